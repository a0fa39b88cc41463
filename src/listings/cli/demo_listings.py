"""The demo's dozen listings, of all four types."""

from typing import Any

_PICTURES = "https://images.example"

ALICE: tuple[dict[str, Any], ...] = (
    {
        "title": "Rimu dining table with six chairs",
        "content": "Solid heart rimu, 1.8 m, made in Oamaru in the seventies. One chair was reglued; all sit firmly.",
        "category": "Furniture",
        "images": [f"{_PICTURES}/rimu-table-1.jpg", f"{_PICTURES}/rimu-table-2.jpg"],
        "price": 1250,
        "price_type": "negotiable",
        "location": "12 Cuba Street, Te Aro",
        "region": "Wellington",
        "district": "Wellington City",
        "latitude": -41.2936,
        "longitude": 174.7762,
    },
    {
        "title": "Crown Lynn swan vase, white",
        "content": "Large swan, no chips or crazing, stamped below. Courier at the buyer's cost.",
        "category": "Pottery and glass",
        "images": [f"{_PICTURES}/crown-lynn-swan.jpg"],
        "price": 89.5,
        "region": "Wellington",
    },
    {
        "title": "Restoring of old chairs",
        "content": "Regluing, caning and French polish. Send photographs for a free estimate; most chairs take a week.",
        "type": "service",
        "category": "Trades",
        "price": 65,
        "price_type": "per_hour",
        "location": "Te Aro",
        "region": "Wellington",
    },
    {
        "title": "Sunny studio near the waterfront",
        "content": "One room with kitchenette for two, linen included, ten minutes on foot to Te Papa. No pets.",
        "type": "rental",
        "category": "Holiday homes",
        "images": [f"{_PICTURES}/studio-bed.jpg", f"{_PICTURES}/studio-view.jpg"],
        "price": 145,
        "price_type": "per_night",
        "location": "Oriental Bay",
        "region": "Wellington",
        "latitude": -41.2911,
        "longitude": 174.7946,
    },
    {
        "title": "Saturday shop assistant",
        "content": "Every Saturday from 9 to 4 in our shop in Cuba Street. You like old things and those who buy them.",
        "type": "job",
        "category": "Retail",
        "price": 27.8,
        "price_type": "per_hour",
        "region": "Wellington",
    },
    {
        "title": "Box of LPs, about forty",
        "content": "Split Enz, Dragon, Shona Laing and much else, sleeves from good to loved. Sold as one lot.",
        "category": "Music",
        "price": 120,
        "region": "Wellington",
    },
    {
        "title": "Moa replica skeleton, 1:5",
        "content": "Resin on a kauri stand, 60 cm high. A museum's shop sold three of them; this is the second.",
        "category": "Collectables",
        "price": 0,
        "region": "Wellington",
    },
)

BOB: tuple[dict[str, Any], ...] = (
    {
        "title": "Makita circular saw, 185 mm",
        "content": "1,050 W, two blades, used for one deck. With its case.",
        "category": "Tools",
        "images": [f"{_PICTURES}/makita-saw.jpg"],
        "price": 180,
        "location": "Riccarton",
        "region": "Canterbury",
    },
    {
        "title": "Scaffold by the night",
        "content": "Aluminium tower to 6 m, delivered within Christchurch, set up by us.",
        "type": "rental",
        "category": "Tools",
        "price": 55,
        "price_type": "per_night",
        "region": "Canterbury",
    },
    {
        "title": "Sharpening of chisels and planes",
        "content": "Water stones, by hand; ready the next day.",
        "type": "service",
        "category": "Trades",
        "price": 40,
        "price_type": "per_hour",
        "region": "Canterbury",
    },
)

CHARLIE: tuple[dict[str, Any], ...] = (
    {
        "title": "Canoe, two seats",
        "content": "Fibreglass, patched once, floats well. Paddles and vests go with it.",
        "category": "Boats",
        "price": 399.99,
        "region": "Otago",
    },
    {
        "title": "Orchard hands for the cherry season",
        "content": "December to February near Cromwell, beds on the orchard.",
        "type": "job",
        "category": "Agriculture",
        "price": 26.5,
        "price_type": "per_hour",
        "region": "Otago",
    },
)
