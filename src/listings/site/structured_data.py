"""A listing as search engines read it: schema.org's words in JSON-LD."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from markupsafe import Markup

from listings.domain.model import Listing
from listings.site import presentation

_UNIT_CODES = {"per_hour": "HUR", "per_night": "DAY"}
_ESCAPES = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}
_MOST_WORDS = 5000


def script_of(listing: Listing, address: str) -> Markup:
    """The content of a script element, which nothing in a listing can end."""
    return Markup(msgspec.json.encode(data_of(listing, address)).decode().translate(_ESCAPES))  # noqa: S704 - escaped


def data_of(listing: Listing, address: str) -> dict[str, Any]:
    """What the page at an address is about. What is not known is left out."""
    data = {"@context": "https://schema.org", **_KINDS[listing.type](listing, address), "url": address}
    return {key: value for key, value in data.items() if value}


def _product(listing: Listing, address: str) -> dict[str, Any]:
    return {"@type": "Product", **_thing(listing), "category": listing.category, "offers": _offer(listing, address)}


def _service(listing: Listing, address: str) -> dict[str, Any]:
    area = {"@type": "AdministrativeArea", "name": listing.region} if listing.region else None
    return {
        "@type": "Service",
        **_thing(listing),
        "serviceType": listing.category,
        "areaServed": area,
        "offers": _offer(listing, address),
    }


def _accommodation(listing: Listing, address: str) -> dict[str, Any]:
    """Only what is a product, too, can have an offer."""
    return {
        "@type": ["Accommodation", "Product"],
        **_thing(listing),
        "address": _postal_address(listing),
        "geo": _coordinates(listing),
        "offers": _offer(listing, address),
    }


def _job(listing: Listing, address: str) -> dict[str, Any]:  # noqa: ARG001 - as the others
    place = {"@type": "Place", "address": _postal_address(listing), "geo": _coordinates(listing)}
    known = {key: value for key, value in place.items() if value}
    return {
        "@type": "JobPosting",
        "title": listing.title,
        "description": listing.content[:_MOST_WORDS],
        "datePosted": presentation.machine_time_of(listing.created_at),
        "occupationalCategory": listing.category,
        "jobLocation": known if len(known) > 1 else None,
        "baseSalary": _salary(listing),
    }


_KINDS: Mapping[str, Callable[[Listing, str], dict[str, Any]]] = {
    "product": _product,
    "service": _service,
    "rental": _accommodation,
    "job": _job,
}


def _thing(listing: Listing) -> dict[str, Any]:
    return {
        "name": listing.title,
        "description": listing.content[:_MOST_WORDS],
        "image": presentation.pictures_of(listing.images),
    }


def _offer(listing: Listing, address: str) -> dict[str, Any] | None:
    if not listing.price_cents:
        return None
    price = {"price": _dollars(listing), "priceCurrency": "NZD"}
    offer: dict[str, Any] = {"@type": "Offer", **price, "availability": "https://schema.org/InStock", "url": address}
    unit = _UNIT_CODES.get(listing.price_type)
    if unit is not None:
        offer["priceSpecification"] = {"@type": "UnitPriceSpecification", **price, "unitCode": unit}
    return offer


def _salary(listing: Listing) -> dict[str, Any] | None:
    if not listing.price_cents:
        return None
    value = {"@type": "QuantitativeValue", "value": listing.price_cents / 100}
    if listing.price_type == "per_hour":
        value["unitText"] = "HOUR"
    return {"@type": "MonetaryAmount", "currency": "NZD", "value": value}


def _postal_address(listing: Listing) -> dict[str, str] | None:
    known = {
        "streetAddress": listing.location,
        "addressLocality": listing.district,
        "addressRegion": listing.region,
    }
    told = {key: value for key, value in known.items() if value}
    return {"@type": "PostalAddress", **told, "addressCountry": "NZ"} if told else None


def _coordinates(listing: Listing) -> dict[str, Any] | None:
    if listing.latitude is None or listing.longitude is None:
        return None
    return {"@type": "GeoCoordinates", "latitude": listing.latitude, "longitude": listing.longitude}


def _dollars(listing: Listing) -> str:
    return f"{listing.price_cents // 100}.{listing.price_cents % 100:02}"
