"""A listing as JSON, and JSON objects strictly read: what an answer of the API and a row of a file have in common."""

import re
from typing import Any

import msgspec

from listings.domain import timestamps
from listings.domain.model import Listing

NOTHING: frozenset[str] = frozenset()
EVERYTHING = frozenset(("district", "latitude", "longitude", "deleted_at"))
"""What can be added to a record (decision G1)."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# An escaped first half of a pair without an escaped second half behind it, which msgspec calls truncated.
_HALF_PAIR = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])")
_KINDS = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a number",
    "null": "null",
    "str": "text",
}

_decode = msgspec.json.Decoder(dict[str, object]).decode


class Record(msgspec.Struct, frozen=True, gc=False):
    """The listing record of the specification: its 14 fields, in its order; behind them, what was asked for."""

    id: int
    title: str
    content: str
    type: str
    category: str
    images: msgspec.Raw
    price: float
    price_type: str
    location: str
    region: str
    is_active: bool
    view_count: int
    created_at: str
    updated_at: str
    district: str | msgspec.UnsetType = msgspec.UNSET
    latitude: float | msgspec.UnsetType | None = msgspec.UNSET
    longitude: float | msgspec.UnsetType | None = msgspec.UNSET
    deleted_at: str | msgspec.UnsetType | None = msgspec.UNSET


def _included(listing: Listing, include: frozenset[str]) -> dict[str, Any]:
    more = {name: getattr(listing, name) for name in include}
    if more.get("deleted_at") is not None:
        more["deleted_at"] = timestamps.text_of(more["deleted_at"])
    return more


def record_of(listing: Listing, include: frozenset[str] = NOTHING) -> Record:
    """What of a listing is shown, and what more of it was asked for (decision G1)."""
    more = _included(listing, include) if include else {}
    return Record(
        listing.id,
        listing.title,
        listing.content,
        listing.type,
        listing.category,
        msgspec.Raw(listing.images),
        listing.price_cents / 100,
        listing.price_type,
        listing.location,
        listing.region,
        listing.is_active,
        listing.view_count,
        listing.created_at,
        listing.updated_at,
        **more,
    )


def decode_object(text: bytes) -> dict[str, object]:
    """A JSON object, with or without a byte-order mark. ValueError with the end of a sentence: "is not valid UTF-8"."""
    try:
        return _decode(text.removeprefix(_BYTE_ORDER_MARK))
    except UnicodeDecodeError:
        fault = "is not valid UTF-8"
    except RecursionError:
        fault = "is nested too deeply"
    except msgspec.ValidationError as error:
        fault = _sentence(error)
    except msgspec.DecodeError as error:
        half = "truncated" in str(error) and _HALF_PAIR.search(text)
        fault = "contains half of a surrogate pair" if half else f"is not valid JSON: {_without_prefix(error)}"
    raise ValueError(fault)


def _sentence(error: msgspec.ValidationError) -> str:
    """For msgspec's "Expected `object`, got `array`" and "Integer value out of range - at `$[...]`", in our words."""
    got = re.search(r"got `(\w+)`", str(error))
    return f"must be a JSON object, got {_KINDS[got[1]]}" if got else "contains a number that is out of range"


def _without_prefix(error: msgspec.DecodeError) -> str:
    return str(error).removeprefix("JSON is malformed: ").removeprefix("Input data was ")
