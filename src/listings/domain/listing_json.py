"""Encode listings as JSON and decode JSON objects, for the API and for files."""

import json
import re
from collections.abc import Collection
from typing import Any

import msgspec

from listings.domain import timestamps
from listings.domain.model import Listing

NO_EXTRA_FIELDS: frozenset[str] = frozenset()
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_PREVIEW_BYTES = 20
# An escaped high surrogate without its low surrogate. msgspec reports it as truncated input.
_UNPAIRED_SURROGATE = re.compile(rb"(?<!\\)(?:\\\\)*\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])")
_TYPE_NAMES = {
    "array": "an array",
    "bool": "a boolean",
    "float": "a number",
    "int": "a number",
    "null": "null",
    "str": "a string",
}

_decode = msgspec.json.Decoder(dict[str, object]).decode


class Record(msgspec.Struct, frozen=True, gc=False):
    """A listing as JSON and files show it: the 14 fields of the specification, in its order, then those on request."""

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
    external_id: str | msgspec.UnsetType | None = msgspec.UNSET
    etag: str | msgspec.UnsetType = msgspec.UNSET


INCLUDABLE_FIELDS = tuple(field.name for field in msgspec.structs.fields(Record) if not field.required)
"""The fields that a record has only on request (decisions G1 and G43)."""

OPTIONAL_LISTING_FIELDS = tuple(name for name in INCLUDABLE_FIELDS if name != "etag")
"""The fields on request that exported files contain: all except `etag`."""


def build_record(listing: Listing, include: Collection[str] = NO_EXTRA_FIELDS, restore_id: str = "") -> Record:
    """Return the record of a listing, with the fields that `include` names (decision G1). Its tag has `restore_id`."""
    record = Record(
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
    )
    return msgspec.structs.replace(record, **_build_more_fields(listing, include, restore_id)) if include else record


def _build_more_fields(listing: Listing, include: Collection[str], restore_id: str) -> dict[str, Any]:
    fields: dict[str, Any] = {
        it: listing.format_etag(restore_id) if it == "etag" else getattr(listing, it) for it in include
    }
    if fields.get("deleted_at") is not None:
        fields["deleted_at"] = timestamps.format_timestamp(fields["deleted_at"])
    return fields


def decode_object(text: bytes) -> dict[str, object]:
    """Decode a JSON object, with or without a byte-order mark.

    Raises ValueError. Its message continues a sentence about the text: "is not valid UTF-8".
    """
    try:
        return _decode(text.removeprefix(BYTE_ORDER_MARK))
    except UnicodeDecodeError:
        reason = "is not valid UTF-8"
    except RecursionError:
        reason = "is nested too deeply"
    except msgspec.ValidationError as error:
        # "Expected `object`, got `array`", or "Integer value out of range - at `$[...]`"
        got = re.search(r"got `(\w+)`", str(error))
        reason = "contains a number that is out of range"
        if got is not None:
            reason = f"must be a JSON object, got {_TYPE_NAMES[got[1]]}"
    except msgspec.DecodeError as error:
        is_unpaired = "truncated" in str(error) and _UNPAIRED_SURROGATE.search(text)
        reason = "contains an unpaired surrogate" if is_unpaired else f"is not valid JSON: {_locate(error, text)}"
    raise ValueError(reason)


def _locate(error: msgspec.DecodeError, text: bytes) -> str:
    # Anything but an object, such as a submitted form, is shown by its beginning.
    start = text.removeprefix(BYTE_ORDER_MARK).lstrip()[:_PREVIEW_BYTES]
    if not start or start.startswith(b"{"):
        return str(error).removeprefix("JSON is malformed: ").removeprefix("Input data was ")
    return f"it begins with {json.dumps(start.decode('utf-8', 'ignore'))}"
