"""Checks of the listing record: its fourteen fields and their types, in get-one and in the list."""

import re
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import NamedTuple

from listings.conform.context import Context, Sample
from listings.conform.session import parse_id
from listings.conform.suite import Check
from listings.conform.verdicts import Blocked, Failed

_SECTION = "Listing record (returned by list and by get-one)"
TYPES = ("product", "service", "rental", "job")
PRICE_TYPES = ("fixed", "negotiable", "per_hour", "per_night")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}")


def is_integer(value: object) -> bool:
    """Return whether a JSON value is an integer; true and 1.0 are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def _is_string(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _are_strings(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_string, value))


def _is_time(value: object) -> bool:
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        return False
    try:
        datetime.strptime(value, "%Y-%m-%d %H:%M:%S")  # noqa: DTZ007 - no zone is written
    except ValueError:
        return False
    return True


class Field(NamedTuple):
    """A row of the record's table. An optional field may be null if it was never set."""

    name: str
    row: str
    is_valid: Callable[[object], bool]
    optional: bool = False


FIELDS = (
    Field("id", "id | integer | Identifier assigned by the service", is_integer),
    Field("title", "title | string", _is_string),
    Field("content", "content | string | The description", _is_string),
    Field("type", "type | string | One of: product, service, rental, job", lambda value: value in TYPES),
    Field("category", "category | string | Subcategory", _is_string, optional=True),
    Field("images", "images | array of strings | Image URLs", _are_strings, optional=True),
    Field("price", "price | number | Price in NZD, decimal", _is_number, optional=True),
    Field(
        "price_type",
        "price_type | string | One of: fixed, negotiable, per_hour, per_night",
        lambda value: value in PRICE_TYPES,
        optional=True,
    ),
    Field("location", "location | string", _is_string, optional=True),
    Field("region", "region | string", _is_string, optional=True),
    Field("is_active", "is_active | boolean", lambda value: isinstance(value, bool)),
    Field("view_count", "view_count | integer | Read-only counter of views", is_integer),
    Field("created_at", "created_at | string | Timestamp in the form YYYY-MM-DD HH:MM:SS", _is_time),
    Field("updated_at", "updated_at | string | Timestamp in the same form", _is_time),
)
_INVALID_VALUES = {"price": "12.50", "type": "boat", "price_type": "per_mile"}


def _check_field(field: Field, context: Context) -> None:
    samples = [*context.samples, *_create_invalid(context, field.name)]
    if not samples:
        raise Blocked("no listing could be created and read")
    for sample in samples:
        if field.name not in sample.record:
            raise Failed(f"{sample.source} has no {field.name}")
        value = sample.record[field.name]
        may_be_null = field.optional and field.name not in sample.sent
        if not (field.is_valid(value) or (value is None and may_be_null)):
            raise Failed(f"{sample.source} has {field.name} {value!r:.200}")


def _create_invalid(context: Context, name: str) -> list[Sample]:
    """Create a listing with an invalid value of the field. Return its record if the server accepts the value."""
    if name not in _INVALID_VALUES:
        return []
    fields = context.build_fields(**{name: _INVALID_VALUES[name]})
    listing_id = context.send_setup("POST", body=fields).created_id
    if listing_id is None:
        return []
    source = f"GET of listing {listing_id}, created with {name} {fields[name]!r},"
    return [Sample(source, {}, context.get_record(listing_id))]


def _check_same_fields(context: Context) -> None:
    by_id: dict[str, list[Sample]] = {}
    for sample in context.samples:
        by_id.setdefault(str(parse_id(sample.record.get("id"))), []).append(sample)
    groups = [group for group in by_id.values() if len(group) > 1]
    if not groups:
        raise Blocked(f"the list does not contain listing {context.active_listing}")
    for one, *others in groups:
        for listed in others:
            if one.record.keys() != listed.record.keys():
                different = sorted(one.record.keys() ^ listed.record.keys())
                raise Failed(f"only one of {one.source} and {listed.source} has {', '.join(different)}")


CHECKS = (
    *(
        Check(f"record-{number}", _SECTION, field.row, partial(_check_field, field))
        for number, field in enumerate(FIELDS, 1)
    ),
    Check("record-15", _SECTION, "A get-one response carries the same fields as the list.", _check_same_fields),
)
