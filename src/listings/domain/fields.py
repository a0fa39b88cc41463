"""The fields of a listing, in one table, and the validation of bodies with them (decision G32).

A body is validated completely: one error lists all of its invalid fields.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias, cast

import msgspec

from listings.domain.faults import Fault, FieldError, find_misspelled, preview, raise_faults
from listings.domain.model import MAX_ID, ListingChange, NewListing, Value
from listings.domain.rules import Choice, Coordinate, Flag, Identifier, Images, Money, Rule, Text

Body: TypeAlias = Mapping[str, object]


class Field(NamedTuple):
    """One field of a body: the `Listing` attribute that stores it, its rule, and its texts."""

    attribute: str
    rule: Rule
    label: str  # in forms
    description: str  # in the documentation of the API
    example: Any  # in the documentation of the API; mypyc rejects `object`
    options: Mapping[str, str] = {}  # the label of each text that a form offers to choose
    clearable: bool = True  # null in an update resets it to the default of a new listing
    strict_rule: Rule | None = None  # replaces `rule` under `Prefer: handling=strict`


MAX_PRICE_CENTS = 99_999_999_999
_TYPES = {"product": "For sale", "service": "Service", "rental": "Rental", "job": "Job"}
_PRICE_TYPES = {"fixed": "Fixed", "negotiable": "Negotiable", "per_hour": "Per hour", "per_night": "Per night"}

FIELDS: Mapping[str, Field] = {
    "title": Field(
        "title",
        Text(255, allow_blank=False),
        "Title",
        "Title in one line. Not blank; stored exactly as sent.",
        "Rimu dining table with six chairs",
        clearable=False,
    ),
    "content": Field(
        "content",
        Text(100_000, allow_blank=False),
        "Description",
        "Description. Not blank; stored exactly as sent.",
        "Solid heart rimu, 1.8 m, made in Oamaru in the seventies.",
        clearable=False,
    ),
    "type": Field(
        "type", Choice("ListingType", tuple(_TYPES)), "Type", "Type of the offer.", "product", _TYPES, clearable=False
    ),
    "category": Field("category", Text(100), "Category", "Free-text category. Empty means not stated.", "Furniture"),
    "images": Field(
        "images",
        Images(50, 2_048),
        "Images",
        "Image URLs, in order. The service never fetches them. No white space, control characters or backslashes. "
        "Relative references are allowed; absolute URLs must be http or https, with a host and without a user name.",
        ["https://images.example/rimu-table-1.jpg", "https://images.example/rimu-table-2.jpg"],
        strict_rule=Images(50, 2_048, absolute=True),
    ),
    "price": Field(
        "price_cents",
        Money(MAX_PRICE_CENTS),
        "Price",
        "Price in New Zealand dollars, with at most two decimals. 0 means not stated.",
        1250.5,
    ),
    "price_type": Field(
        "price_type",
        Choice("PriceType", tuple(_PRICE_TYPES)),
        "Price type",
        "How the price is charged.",
        "negotiable",
        _PRICE_TYPES,
    ),
    "location": Field(
        "location",
        Text(255),
        "Address or suburb",
        "Address or place. Empty means not stated.",
        "12 Cuba Street, Te Aro",
    ),
    "region": Field("region", Text(100), "Region", "Region. Empty means not stated.", "Wellington"),
    "district": Field("district", Text(100), "District", "District. Empty means not stated.", "Te Aro"),
    "latitude": Field(
        "latitude", Coordinate(-90, 90), "Latitude", "Latitude in degrees, positive to the north.", -41.2936
    ),
    "longitude": Field(
        "longitude", Coordinate(-180, 180), "Longitude", "Longitude in degrees, positive to the east.", 174.7762
    ),
    "is_active": Field(
        "is_active",
        Flag(),
        "On the market",
        "Whether the listing is on the market. Send false on create for a draft.",
        example=True,
        options={"true": "yes", "": "no"},
        clearable=False,
    ),
    "external_id": Field(
        "external_id",
        Identifier(255),
        "Your own ID",
        "Your own identifier, such as a SKU. Unique among your listings that are not deleted.",
        "sku-17",
    ),
}
"""The fields that a body may set: those of the specification, in its order, and external_id."""

REQUIRED = ("title", "content")

_EMPTY = NewListing(title="", content="")


def get_default(name: str) -> Value:
    """Return the stored value of a field that was never given. None means that the field may be null."""
    default: Value = getattr(_EMPTY, FIELDS[name].attribute)
    return default


_DEFAULTS: Mapping[str, Value] = {name: get_default(name) for name, field in FIELDS.items() if field.clearable}
_ID = re.compile(r"[1-9][0-9]{0,18}")


def parse_id(text: str) -> int | None:
    """Parse a listing id. Return None if the text can't be one (decision G19)."""
    if _ID.fullmatch(text) is None:
        return None
    number = int(text)
    return number if number <= MAX_ID else None


def parse_new_listing(body: Body, *, strict: bool = False) -> tuple[NewListing, list[str]]:
    """Return the listing that the body of a create describes, and the names of its ignored fields.

    A field that is null counts as missing. `strict` (`Prefer: handling=strict`) rejects unknown fields and relative
    image URLs, except those of uploaded pictures.

    Raises InvalidFieldsError, which lists every invalid field.
    """
    given = {name: value for name, value in body.items() if value is not None or name not in FIELDS}
    values, ignored, faults = _apply_rules(body, given, strict=strict)
    _raise_in_order([*faults, *find_missing(given)])
    return NewListing(**cast("Mapping[str, Any]", values)), ignored


def find_missing(given: Mapping[str, object]) -> list[Fault]:
    """Return the faults of the required fields that a new listing lacks."""
    return [Fault(name, "required", f"{name} is required") for name in REQUIRED if name not in given]


def list_given(body: Body, new: NewListing) -> ListingChange:
    """Return the changes that the body of an update describes, which is also that of the valid `new`, without nulls."""
    return {field.attribute: getattr(new, field.attribute) for name in body if (field := FIELDS.get(name)) is not None}


def build_typed_body() -> type[msgspec.Struct]:
    """Return the type of decoded bodies whose fields are known, have the right types and are not null, as most are."""
    types = {name: cast("Any", field.rule.decoded_type) | msgspec.UnsetType for name, field in FIELDS.items()}
    fields = [(name, kind, msgspec.UNSET) for name, kind in types.items()]
    return msgspec.defstruct("TypedBody", fields, forbid_unknown_fields=True, gc=False)


def read_typed(body: msgspec.Struct, *, strict: bool) -> dict[str, Value]:
    """Return the stored values of the fields of a typed body, by attribute. Raises FieldError.

    It replaces `parse_new_listing` and `parse_listing_change` where nothing needs to be reported.
    """
    values: dict[str, Value] = {}
    for name, field in FIELDS.items():
        value = getattr(body, name)
        if value is not msgspec.UNSET:
            rule = (field.strict_rule or field.rule) if strict else field.rule
            values[field.attribute] = rule(value)
    return values


def parse_listing_change(body: Body, *, strict: bool = False) -> tuple[ListingChange, list[str]]:
    """Return the changes that the body of an update describes, and the names of its ignored fields.

    null clears an optional field. Raises InvalidFieldsError, which lists every invalid field.
    """
    cleared = [name for name, value in body.items() if value is None and name in _DEFAULTS]
    given = {name: value for name, value in body.items() if name not in cleared}
    values, ignored, faults = _apply_rules(body, given, strict=strict)
    _raise_in_order(faults)
    values.update((FIELDS[name].attribute, _DEFAULTS[name]) for name in cleared)
    return values, ignored


def _apply_rules(body: Body, given: Body, *, strict: bool) -> tuple[dict[str, Value], list[str], list[Fault]]:
    values: dict[str, Value] = {}
    ignored: list[str] = []
    faults: list[Fault] = []
    for name, value in given.items():
        field = FIELDS.get(name)
        if field is None:
            ignored.append(name)
            continue
        rule = (field.strict_rule or field.rule) if strict else field.rule
        try:
            values[field.attribute] = rule(value)
        except FieldError as error:
            faults.append(error.locate(name))
    misspelled = find_misspelled(ignored, FIELDS, body, "a field that can be set") if ignored else []
    faults += misspelled
    if strict:
        ignored = [name for name in ignored if all(fault.field != name for fault in misspelled)]
        faults += [Fault(name, "unknown", f"{preview(name)} is not a field that can be set") for name in ignored]
    return values, ignored, faults


def _raise_in_order(faults: list[Fault]) -> None:
    if faults:
        order = {name: number for number, name in enumerate(FIELDS)}
        raise_faults(sorted(faults, key=lambda fault: order.get(fault.field.partition("[")[0], len(order))))
