"""The other sellers of the demo and their listings, so that the market looks like one."""

from typing import Any, NamedTuple

PICTURES = "/static/demo/"
"""Path of the demo's pictures, which the service provides itself."""


class DemoSeller(NamedTuple):
    """A seller who has neither a key nor a password."""

    name: str
    email: str
    contact: str
    listings: tuple[dict[str, Any], ...]


def _listing(  # noqa: PLR0917 - the columns of a table
    title: str, price: float, category: str, location: str, region: str, picture: str, content: str, **more: str
) -> dict[str, Any]:
    images = [f"{PICTURES}{name}.svg" for name in picture.split()]
    place = {"location": location, "region": region}
    return {"title": title, "price": price, "category": category, "images": images, "content": content, **place, **more}


_NEGOTIABLE = {"price_type": "negotiable"}
_SERVICE = {"type": "service", "price_type": "per_hour"}
_RENTAL = {"type": "rental", "price_type": "per_night"}
_JOB = {"type": "job", "price_type": "per_hour"}

SELLERS = (
    DemoSeller(
        "Southern Woodworks",
        "woodworks@demo.example",
        "https://southern-woodworks.example",
        (
            _listing("Kauri desk with three drawers", 680, "Furniture", "Northeast Valley, Dunedin", "Otago", "desk",
                     "Recycled kauri from a villa in Grey Lynn. 140 by 70 cm, oiled last month.", **_NEGOTIABLE),
            _listing("Macrocarpa bookcase", 340, "Furniture", "Roslyn, Dunedin", "Otago", "books",
                     "Three deep shelves, 120 cm wide. Holds records as well as books."),
            _listing("Green three-seat sofa", 890, "Furniture", "Mosgiel", "Otago", "sofa",
                     "Wool cover, feather cushions, two years old. Smoke-free home, one well-behaved cat."),
            _listing("Brass floor lamp", 145, "Furniture", "South Dunedin", "Otago", "lamp",
                     "Rewired and tested. The shade is new linen."),
            _listing("Railway clock from Oamaru", 420, "Antiques", "Oamaru", "Otago", "clock",
                     "Eight-day movement, keeps time to a minute a week. Comes with its key."),
            _listing("Dry firewood, three cubic metres", 260, "Garden", "Milton", "Otago", "firewood",
                     "Split macrocarpa and gum, under cover since last summer. Delivered around Dunedin."),
            _listing("Furniture restoration", 75, "Trades", "Dunedin", "Otago", "table desk",
                     "Loose joints, water marks, missing veneer. Free quote from photos.", **_SERVICE),
            _listing("Cabinetmaker, two years' experience", 36, "Trades", "Dunedin", "Otago", "saw",
                     "Four days a week in a small workshop. Your own projects on Fridays are welcome.", **_JOB),
        ),
    ),
    DemoSeller(
        "Kererū Cycles",
        "cycles@demo.example",
        "03 555 0142",
        (
            _listing("Steel touring bike, 54 cm", 950, "Bicycles", "Addington, Christchurch", "Canterbury", "bicycle",
                     "Reynolds 520 frame, new tyres and chain, racks front and back. Ready for the Alps to Ocean."),
            _listing("Child's bike, 20 inch", 120, "Bicycles", "Sumner, Christchurch", "Canterbury", "bicycle",
                     "Six gears, serviced, red. A bell that works and a bell that doesn't."),
            _listing("Commuter bike with mudguards", 480, "Bicycles", "Riccarton, Christchurch", "Canterbury",
                     "bicycle", "Eight-speed hub, lights and lock included.", **_NEGOTIABLE),
            _listing("Bicycle service, same day", 89, "Trades", "Addington, Christchurch", "Canterbury", "bicycle",
                     "Gears, brakes, wheels and a wash. Bring it before ten, ride it home at five.", type="service"),
            _listing("Two-person tent, 2.1 kg", 210, "Outdoors", "Methven", "Canterbury", "tent",
                     "Used for one Great Walk. All pegs, no holes, dried before packing."),
            _listing("Tramping pack, 65 litres", 165, "Outdoors", "Geraldine", "Canterbury", "pack",
                     "Adjustable back, rain cover, hip belt in good order."),
            _listing("Bike mechanic for the summer", 31, "Retail", "Christchurch", "Canterbury", "bicycle",
                     "November to March, four or five days. You can true a wheel and talk to people.", **_JOB),
            _listing("Kayak paddle, carbon", 48, "Boats", "Lyttelton", "Canterbury", "canoe",
                     "Two parts, 215 cm, a few scratches."),
        ),
    ),
    DemoSeller(
        "Bays and Baches",
        "stays@demo.example",
        "stay@bays-and-baches.example",
        (
            _listing("Bach above Ōhope Beach", 210, "Holiday homes", "Ōhope", "Bay of Plenty", "bach surfboard",
                     "Three bedrooms, sleeps seven. Two minutes down the steps to the sand. With linen.", **_RENTAL),
            _listing("A-frame cabin near Ōhakune", 165, "Holiday homes", "Ōhakune", "Manawatū-Whanganui", "cabin",
                     "Log burner, dry wood and a drying room for skis. Sleeps four.", **_RENTAL),
            _listing("Inner-city flat with a view", 185, "Holiday homes", "Te Aro", "Wellington", "flat studio",
                     "Fifth floor with a lift. Walk to the waterfront. One car park.", **_RENTAL),
            _listing("Farm stay with breakfast", 130, "Holiday homes", "Marton", "Manawatū-Whanganui", "farm",
                     "Feed the lambs, then sit by the fire. Children are very welcome.", **_RENTAL),
            _listing("Campervan for two", 115, "Campervans", "Māngere, Auckland", "Auckland", "van",
                     "Self-contained, with bikes on the back if you like. From three nights.", **_RENTAL),
            _listing("Cottage among the vines", 240, "Holiday homes", "Martinborough", "Wellington", "vines cabin",
                     "One bedroom, an outdoor bath, and four cellar doors within walking distance.", **_RENTAL),
            _listing("Beach house at Oakura", 195, "Holiday homes", "Ōakura", "Taranaki", "bach",
                     "Surf in front, the mountain behind. Sleeps six, dogs by agreement.", **_RENTAL),
            _listing("Housekeeper, weekends", 28.5, "Hospitality", "Ōhope", "Bay of Plenty", "studio",
                     "Six hours on Saturdays and Sundays from December. Training is paid.", **_JOB),
        ),
    ),
    DemoSeller(
        "Harbour Second-hand",
        "harbour@demo.example",
        "09 555 0177",
        (
            _listing("Acoustic guitar, Tasmanian blackwood", 560, "Music", "Ponsonby, Auckland", "Auckland", "guitar",
                     "Warm and loud. New strings, set up in March, hard case included.", **_NEGOTIABLE),
            _listing("Upright piano, tuned this year", 1800, "Music", "Devonport, Auckland", "Auckland", "piano",
                     "English, from 1964. On the ground floor, so moving it is easy."),
            _listing("New Zealand records, 1978 to 1989", 35, "Music", "Kingsland, Auckland", "Auckland", "records",
                     "Sold one by one: choose from a crate of sixty. The price is for three."),
            _listing("Film camera with two lenses", 295, "Electronics", "Grey Lynn, Auckland", "Auckland", "camera",
                     "Light meter checked, seals replaced. 50 mm and 28 mm."),
            _listing("Laptop, 14 inch, 16 GB", 740, "Electronics", "Albany, Auckland", "Auckland", "laptop",
                     "Three years old, new battery, wiped and ready."),
            _listing("Retro fridge, pale green", 390, "Appliances", "Titirangi, Auckland", "Auckland", "fridge",
                     "Quiet and cold. 60 cm wide. We help to carry it."),
            _listing("Oil painting of the Waitākere Ranges", 620, "Art", "Titirangi, Auckland", "Auckland", "painting",
                     "60 by 45 cm, framed in rimu. Signed and dated 1991."),
            _listing("White swan jug", 42, "Pottery and glass", "Devonport, Auckland", "Auckland", "vase",
                     "Stoneware, hand-thrown in Coromandel, no chips."),
            _listing("Hatchback, 98,000 km", 6900, "Cars", "Henderson, Auckland", "Auckland", "car",
                     "One owner, full history, warrant until May. Drives as it should.", **_NEGOTIABLE),
            _listing("Surfboard, 7 foot 2", 280, "Sport", "Piha, Auckland", "Auckland", "surfboard",
                     "A forgiving fun board. Two small repairs, watertight."),
        ),
    ),
    DemoSeller(
        "Te Puna Gardens",
        "gardens@demo.example",
        "07 555 0119",
        (
            _listing("Peace lily in a clay pot", 38, "Plants", "Hamilton East", "Waikato", "plant",
                     "60 cm high, happy in half shade. The pot is from Te Kūiti."),
            _listing("Lawn mower, four-stroke", 185, "Garden", "Cambridge", "Waikato", "mower",
                     "Starts on the first pull. New blade and air filter."),
            _listing("Mānuka honey, one kilogram", 46, "Food", "Raglan", "Waikato", "honey",
                     "From our own hives on the harbour. Tested, dark and strong."),
            _listing("Chicken coop with a run", 320, "Animals", "Te Awamutu", "Waikato", "coop",
                     "For four hens. Treated pine, comes apart for transport. Hens are not included."),
            _listing("Red gumboots, size 40", 25, "Clothing", "Morrinsville", "Waikato", "gumboots",
                     "Worn at one Fieldays. Washed."),
            _listing("Merino jersey, hand-knitted", 95, "Clothing", "Cambridge", "Waikato", "jersey",
                     "Size M, in plum. The wool is from Ōtorohanga."),
            _listing("Garden design and planting", 68, "Gardening", "Hamilton", "Waikato", "spade plant",
                     "Natives that suit your soil. A drawing first, then spades.", **_SERVICE),
            _listing("Hedge trimming and lawns", 52, "Gardening", "Hamilton", "Waikato", "mower",
                     "Every fortnight or once. We take the clippings away.", **_SERVICE),
            _listing("Nursery hand", 27.8, "Agriculture", "Te Puna", "Bay of Plenty", "plant",
                     "Potting, watering, serving customers. Monday to Friday, from seven.", **_JOB),
            _listing("Garden spade, ash handle", 28, "Garden", "Hamilton", "Waikato", "spade",
                     "Sharp, oiled, older than the seller."),
        ),
    ),
    DemoSeller(
        "Tasman Trades",
        "trades@demo.example",
        "0800 555 018",
        (
            _listing("Box of hand tools", 0, "Tools", "Stoke, Nelson", "Nelson", "saw",
                     "Planes, chisels and a brace from my father's shed. Make me an offer."),
            _listing("House painting, inside and out", 58, "Trades", "Stoke, Nelson", "Nelson", "painter",
                     "Two painters, tidy and on time. Quote within two days.", **_SERVICE),
            _listing("Builder for decks and fences", 72, "Trades", "Richmond", "Tasman", "saw",
                     "Licensed. Small jobs are welcome.", **_SERVICE),
            _listing("Piano tuning", 140, "Music", "Nelson", "Nelson", "piano",
                     "About two hours. I also tune school pianos.", type="service"),
            _listing("Maths and physics lessons", 45, "Lessons", "Nelson", "Nelson", "books laptop",
                     "NCEA levels 1 to 3, at your table or online. The first hour is free.", **_SERVICE),
            _listing("Barista, mornings", 29, "Hospitality", "Nelson", "Nelson", "cafe",
                     "Half past six to noon, four days. Flat whites with patience.", **_JOB),
            _listing("Crane operator", 41, "Construction", "Nelson", "Nelson", "crane",
                     "Tower crane ticket needed. Eight months on one site in the city.", **_JOB),
            _listing("Apple pickers", 27, "Agriculture", "Motueka", "Tasman", "orchard",
                     "February to April. Tent sites with a kitchen next to the orchard.", **_JOB),
            _listing("Vineyard worker", 28, "Agriculture", "Blenheim", "Marlborough", "vines",
                     "Pruning from June to August, full time. We teach you.", **_JOB),
            _listing("Open canoe, 4.8 m", 750, "Boats", "Kaiteriteri", "Tasman", "canoe",
                     "Red, stable, two paddles. Lake and river tested.", **_NEGOTIABLE),
            _listing("Camping stove and pots", 40, "Outdoors", "Tākaka", "Tasman", "tent pack",
                     "Everything for two. The gas bottle is half full."),
            _listing("Circular saw, 190 mm", 110, "Tools", "Richmond", "Tasman", "saw",
                     "1,400 W, spare blade, long cable."),
        ),
    ),
)  # fmt: skip
