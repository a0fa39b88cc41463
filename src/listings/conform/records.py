"""The listing record: its fourteen fields and their types, as get-one and as the list show them."""

import re
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from listings.conform.context import Sample, Trial
from listings.conform.session import id_of
from listings.conform.suite import Look, Sheet
from listings.conform.verdicts import Broken, Prevented

SHEET = Sheet()
_SECTION = "Listing record (returned by list and by get-one)"
TYPES = ("product", "service", "rental", "job")
PRICE_TYPES = ("fixed", "negotiable", "per_hour", "per_night")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}")


def is_integer(value: object) -> bool:
    """JSON's true is no number here, and 1.0 is no integer."""
    return isinstance(value, int) and not isinstance(value, bool)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_time(value: object) -> bool:
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        return False
    try:
        datetime.strptime(value, "%Y-%m-%d %H:%M:%S")  # noqa: DTZ007 - no zone is written
    except ValueError:
        return False
    return True


class Field(NamedTuple):
    """A row of the record's table. An optional field that was never given may be null: nothing says what it is then."""

    name: str
    row: str
    fits: Callable[[object], bool]
    optional: bool = False


FIELDS = (
    Field("id", "id | integer | Identifier assigned by the service", is_integer),
    Field("title", "title | string", _is_text),
    Field("content", "content | string | The description", _is_text),
    Field("type", "type | string | One of: product, service, rental, job", lambda value: value in TYPES),
    Field("category", "category | string | Subcategory", _is_text, optional=True),
    Field("images", "images | array of strings | Image URLs", _are_texts, optional=True),
    Field("price", "price | number | Price in NZD, decimal", _is_number, optional=True),
    Field(
        "price_type",
        "price_type | string | One of: fixed, negotiable, per_hour, per_night",
        lambda value: value in PRICE_TYPES,
        optional=True,
    ),
    Field("location", "location | string", _is_text, optional=True),
    Field("region", "region | string", _is_text, optional=True),
    Field("is_active", "is_active | boolean", lambda value: isinstance(value, bool)),
    Field("view_count", "view_count | integer | Read-only counter of views", is_integer),
    Field("created_at", "created_at | string | Timestamp in the form YYYY-MM-DD HH:MM:SS", _is_time),
    Field("updated_at", "updated_at | string | Timestamp in the same form", _is_time),
)
_TEXTS_FOR_NUMBERS = {"price": "12.50", "type": "boat", "price_type": "per_mile"}


def _look_for(field: Field) -> Look:
    def look(trial: Trial) -> None:
        samples = [*trial.samples, *_odd_samples(trial, field.name)]
        if not samples:
            raise Prevented("no listing could be made and read")
        for sample in samples:
            _require_fit(field, sample)

    return look


def _require_fit(field: Field, sample: Sample) -> None:
    if field.name not in sample.record:
        raise Broken(f"{sample.where} has no {field.name}")
    value = sample.record[field.name]
    may_be_null = field.optional and field.name not in sample.sent
    if not (field.fits(value) or (value is None and may_be_null)):
        raise Broken(f"{sample.where} has {field.name} {value!r:.200}")


def _odd_samples(trial: Trial, name: str) -> list[Sample]:
    """A listing created with a value that the field does not have, where the server takes it in."""
    if name not in _TEXTS_FOR_NUMBERS:
        return []
    fields = trial.fields(**{name: _TEXTS_FOR_NUMBERS[name]})
    created = trial.attempt("POST", body=fields)
    listing_id = id_of(created.members.get("id"))
    if not created.succeeded or listing_id is None:
        return []
    return [Sample(f"GET of listing {listing_id}, created with {name} {fields[name]!r},", {}, trial.record(listing_id))]


for _number, _field in enumerate(FIELDS, 1):
    SHEET.add(f"record-{_number}", _SECTION, _field.row)(_look_for(_field))


@SHEET.add("record-15", _SECTION, "A get-one response carries the same fields as the list.")
def same_fields_in_both(trial: Trial) -> None:
    """The names of the fields are the same."""
    by_id: dict[str, list[Sample]] = {}
    for sample in trial.samples:
        by_id.setdefault(str(id_of(sample.record.get("id"))), []).append(sample)
    pairs = [pair for pair in by_id.values() if len(pair) > 1]
    if not pairs:
        raise Prevented(f"the list does not show listing {trial.listable}")
    for one, listed in pairs:
        if one.record.keys() != listed.record.keys():
            different = sorted(one.record.keys() ^ listed.record.keys())
            raise Broken(f"{one.where} and {listed.where} differ in having {', '.join(different)}")
