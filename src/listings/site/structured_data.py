"""Structured data of a listing for search engines: JSON-LD with the vocabulary of schema.org."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, TypeVar

import msgspec
from markupsafe import Markup

from listings.domain.model import Listing
from listings.site import presentation

T = TypeVar("T")

_UNIT_CODES = {"per_hour": "HUR", "per_night": "DAY"}
_ESCAPES = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}
_MAX_DESCRIPTION = 5000

REQUIRED: Mapping[str, Sequence[str]] = {
    "product": ("name", "offers"),
    "service": ("name",),
    "rental": ("name", "offers"),
    "job": ("title", "description", "datePosted", "hiringOrganization", "jobLocation"),
}
"""The properties that search engines require, by type (Google Search Central: Product snippet, JobPosting)."""


def script_content(listing: Listing, seller: str, url: str, images: Sequence[str] = ()) -> Markup:
    """Return the content of a script element, or "". It is escaped, so nothing in a listing can end the element."""
    data = build(listing, seller, url, images)
    return Markup(msgspec.json.encode(data).decode().translate(_ESCAPES) if data else "")  # noqa: S704 - escaped


def build(listing: Listing, seller: str, url: str, images: Sequence[str] = ()) -> dict[str, Any]:
    """Return the JSON-LD object of a listing with the URLs of its page and pictures.

    Unknown properties are omitted. Without one that search engines require, nothing is returned.
    """
    thing = {"name": listing.title, "description": listing.content[:_MAX_DESCRIPTION]}
    shown = {"image": images, "offers": _offer(listing, url)}
    content: dict[str, Any]
    match listing.type:
        case "product":
            content = {"@type": "Product", **thing, "category": listing.category, **shown}
        case "service":
            area = {"@type": "AdministrativeArea", "name": listing.region} if listing.region else None
            content = {"@type": "Service", **thing, "serviceType": listing.category, "areaServed": area, **shown}
        case "rental":
            place = {"address": _postal_address(listing), "geo": _coordinates(listing)}
            content = {"@type": ["Accommodation", "Product"], **thing, **place, **shown}  # only a Product has offers
        case _:
            content = {**_job(listing), "hiringOrganization": {"@type": "Organization", "name": seller}}
    data = _omit_unknown({"@context": "https://schema.org", **content, "url": url})
    return data if all(name in data for name in REQUIRED[listing.type]) else {}


def _omit_unknown(data: dict[str, T]) -> dict[str, T]:
    return {key: value for key, value in data.items() if value}


def _job(listing: Listing) -> dict[str, Any]:
    address = _postal_address(listing)
    paragraphs = presentation.split_paragraphs(listing.content[:_MAX_DESCRIPTION])
    return {
        "@type": "JobPosting",
        "title": listing.title,
        "description": "".join(f"<p>{'<br>'.join(map(escape, lines))}</p>" for lines in paragraphs),
        "datePosted": presentation.timestamp_to_iso(listing.created_at),
        "occupationalCategory": listing.category,
        "jobLocation": _omit_unknown({"@type": "Place", "address": address, "geo": _coordinates(listing)})
        if address
        else None,
        "baseSalary": _salary(listing),
    }


def _offer(listing: Listing, url: str) -> dict[str, Any] | None:
    if not listing.price_cents:
        return None
    dollars = f"{listing.price_cents // 100}.{listing.price_cents % 100:02}"
    price = {"price": dollars, "priceCurrency": "NZD"}
    offer: dict[str, Any] = {"@type": "Offer", **price, "availability": "https://schema.org/InStock", "url": url}
    unit = _UNIT_CODES.get(listing.price_type)
    if unit is not None:
        offer["priceSpecification"] = {"@type": "UnitPriceSpecification", **price, "unitCode": unit}
    return offer


def _salary(listing: Listing) -> dict[str, Any] | None:
    if not listing.price_cents or listing.price_type != "per_hour":  # it is unknown for which time it is paid
        return None
    value = {"@type": "QuantitativeValue", "value": listing.price_cents / 100, "unitText": "HOUR"}
    return {"@type": "MonetaryAmount", "currency": "NZD", "value": value}


def _postal_address(listing: Listing) -> dict[str, str] | None:
    places = {"streetAddress": listing.location, "addressLocality": listing.district, "addressRegion": listing.region}
    known = _omit_unknown(places)
    return {"@type": "PostalAddress", **known, "addressCountry": "NZ"} if known else None


def _coordinates(listing: Listing) -> dict[str, Any] | None:
    if listing.latitude is None or listing.longitude is None:
        return None
    return {"@type": "GeoCoordinates", "latitude": listing.latitude, "longitude": listing.longitude}
