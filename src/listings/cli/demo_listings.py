"""The listings of the demo, of all four types."""

from typing import Any

from listings.cli.demo_market import PICTURES

ALICE: tuple[dict[str, Any], ...] = (
    {
        "title": "Rimu dining table with six chairs",
        "content": "Solid heart rimu, 1.8 m, made in Oamaru in the seventies. One chair was reglued; all sit firmly.",
        "category": "Furniture",
        "images": [f"{PICTURES}table.svg"],
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
        "images": [f"{PICTURES}vase.svg"],
        "price": 89.5,
        "region": "Wellington",
    },
    {
        "title": "Chair restoration",
        "content": "Regluing, caning and French polishing. Send photos for a free estimate. Most chairs take a week.",
        "type": "service",
        "category": "Trades",
        "images": [f"{PICTURES}desk.svg"],
        "price": 65,
        "price_type": "per_hour",
        "location": "Te Aro",
        "region": "Wellington",
    },
    {
        "title": "Sunny studio near the waterfront",
        "content": "One room with a kitchenette, sleeps two, linen included. Ten minutes' walk to Te Papa. No pets.",
        "type": "rental",
        "category": "Holiday homes",
        "images": [f"{PICTURES}studio.svg", f"{PICTURES}flat.svg"],
        "price": 145,
        "price_type": "per_night",
        "location": "Oriental Bay",
        "region": "Wellington",
        "latitude": -41.2911,
        "longitude": 174.7946,
    },
    {
        "title": "Saturday shop assistant",
        "content": "Every Saturday from 9 to 4 in our Cuba Street shop. You like old things and people who buy them.",
        "type": "job",
        "category": "Retail",
        "images": [f"{PICTURES}lamp.svg"],
        "price": 27.8,
        "price_type": "per_hour",
        "region": "Wellington",
    },
    {
        "title": "Box of LPs, about forty",
        "content": "Split Enz, Dragon, Shona Laing and more. Sleeves range from good to well loved. Sold as one lot.",
        "category": "Music",
        "images": [f"{PICTURES}records.svg"],
        "price": 120,
        "region": "Wellington",
    },
    {
        "title": "Moa replica skeleton, 1:5",
        "content": "Resin on a kauri stand, 60 cm high. One of three sold by a museum shop.",
        "category": "Collectables",
        "price": 0,
        "region": "Wellington",
    },
)

BOB: tuple[dict[str, Any], ...] = (
    {
        "title": "Makita circular saw, 185 mm",
        "content": "1,050 W, with two blades and a case. Used to build one deck.",
        "category": "Tools",
        "images": [f"{PICTURES}saw.svg"],
        "price": 180,
        "location": "Riccarton",
        "region": "Canterbury",
    },
    {
        "title": "Scaffold hire",
        "content": "Aluminium tower up to 6 m. We deliver within Christchurch and set it up.",
        "type": "rental",
        "category": "Tools",
        "price": 55,
        "price_type": "per_night",
        "region": "Canterbury",
    },
    {
        "title": "Chisel and plane sharpening",
        "content": "Done by hand on water stones. Ready the next day.",
        "type": "service",
        "category": "Trades",
        "images": [f"{PICTURES}spade.svg"],
        "price": 40,
        "price_type": "per_hour",
        "region": "Canterbury",
    },
)

CHARLIE: tuple[dict[str, Any], ...] = (
    {
        "title": "Two-seat canoe",
        "content": "Fibreglass, patched once, floats well. Paddles and life jackets included.",
        "category": "Boats",
        "images": [f"{PICTURES}canoe.svg"],
        "price": 399.99,
        "region": "Otago",
    },
    {
        "title": "Orchard workers for the cherry season",
        "content": "December to February near Cromwell. Accommodation on the orchard.",
        "type": "job",
        "category": "Agriculture",
        "images": [f"{PICTURES}orchard.svg"],
        "price": 26.5,
        "price_type": "per_hour",
        "region": "Otago",
    },
)
