"""Values that no server has a reason to reject."""

TYPES = ("product", "service", "rental", "job")
PRICE_TYPES = ("fixed", "negotiable", "per_hour", "per_night")
RECORD_FIELDS: dict[str, object] = {
    "content": "Bicycle repairs, at your home if you like.",
    "type": "service",
    "category": "Repairs",
    "images": ["https://images.example/1.jpg", "https://images.example/2.jpg"],
    "price": 1250.5,
    "price_type": "negotiable",
    "location": "12 Cuba Street",
    "region": "Wellington",
}
LOCATION_FIELDS: dict[str, object] = {"district": "Te Aro", "latitude": -41.2924, "longitude": 174.7787}
ALL_FIELDS = RECORD_FIELDS | LOCATION_FIELDS
OTHER_FIELDS: dict[str, object] = {
    "content": "Sleeps four.",
    "type": "rental",
    "category": "Tents",
    "images": ["https://images.example/3.jpg"],
    "price": 75.25,
    "price_type": "per_night",
    "location": "3 Queen Street",
    "region": "Auckland",
}
VOLATILE_FIELDS = {"updated_at", "view_count"}  # the service decides when these change
