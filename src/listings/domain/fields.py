"""Validation rules for the fields of a listing, in one table (decisions G2-G6, G32).

A rule converts a JSON value to the value that is stored, or raises a `FieldError`. The API documentation and the forms
are generated from the same table. A body is validated completely: one error lists all of its invalid fields.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple, TypeAlias, cast

import msgspec

from listings.domain.errors import Problem
from listings.domain.model import MAX_ID, ListingChange, NewListing, Value

Body: TypeAlias = Mapping[str, object]
Rule: TypeAlias = Callable[[object], Value]

_MAX_LISTED_ERRORS = 20
_MAX_PREVIEW_LENGTH = 40
_TOLERANCE = 0.000001  # dollars by which a float may differ from a whole cent (decision G4)
_TYPE_NAMES: Mapping[type, str] = {
    bool: "a boolean",
    str: "a string",
    int: "a number",
    float: "a number",
    list: "an array",
    dict: "an object",
    type(None): "null",
}


class FieldError(ValueError):
    """An invalid value. The message continues a sentence that begins with the field's name: "must be a string"."""


class InvalidFieldsError(Problem):
    """A body with invalid fields. `errors` has a whole sentence for each of them, by the field's name."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        super().__init__("invalid_request", _join(list(errors.values())))
        self.errors = errors


def json_type(value: object) -> str:
    """Return the name of a value's JSON type, with its article."""
    return _TYPE_NAMES[type(value)]


def preview(value: object) -> str:
    """Return the value as JSON of at most 40 characters, for a message. Arrays and objects are shown as their type."""
    if isinstance(value, list | dict):
        return json_type(value)
    if isinstance(value, int) and abs(value) >= 10**39:
        return "a number of 40 digits or more"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_PREVIEW_LENGTH else text[: _MAX_PREVIEW_LENGTH - 3] + "..."


@dataclass(frozen=True, slots=True)
class Text:
    """A string of at most `max_length` code points without U+0000, stored exactly as sent (decision G2)."""

    max_length: int
    allow_blank: bool = True  # False: a string of white space alone counts as missing

    def __call__(self, value: object) -> str:
        """Return the string unchanged."""
        if not isinstance(value, str):
            raise FieldError(f"must be a string, got {json_type(value)}")
        if len(value) > self.max_length:
            raise FieldError(f"must be at most {self.max_length} characters, got {len(value)}")
        if "\0" in value:
            raise FieldError("must not contain the character U+0000")
        if not self.allow_blank and (not value or value.isspace()):
            raise FieldError("is required and must not be blank")
        return value


_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class Identifier:
    """A string of 1 to `max_length` code points without control characters, compared exactly (decision G43)."""

    max_length: int

    def __call__(self, value: object) -> str:
        """Return the string unchanged."""
        if not isinstance(value, str):
            raise FieldError(f"must be a string, got {json_type(value)}")
        if not 0 < len(value) <= self.max_length:
            raise FieldError(f"must have 1 to {self.max_length} characters, got {len(value)}")
        if _CONTROL_CHARACTER.search(value):
            raise FieldError(f"must not contain control characters, got {preview(value)}")
        return value


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the allowed strings."""

    allowed: tuple[str, ...]

    def __call__(self, value: object) -> str:
        """Return the string unchanged."""
        if isinstance(value, str) and value in self.allowed:
            return value
        raise FieldError(f"must be one of {', '.join(self.allowed)}, got {preview(value)}")


@dataclass(frozen=True, slots=True)
class Flag:
    """A boolean."""

    def __call__(self, value: object) -> bool:
        """Return the boolean unchanged."""
        if isinstance(value, bool):
            return value
        advice = ": remove the quotes" if isinstance(value, str) and value in {"true", "false"} else ""
        raise FieldError(f"must be true or false, got {preview(value)}{advice}")


_QUOTED_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,20})?")


def _parse_number(value: Any) -> float:  # noqa: ANN401 - with a narrower type, mypyc would treat an int as a float
    """Return a number as a float. Integers too large for a float become infinity, which exceeds every limit."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        is_quoted = isinstance(value, str) and _QUOTED_NUMBER.fullmatch(value) is not None
        advice = ": remove the quotes" if is_quoted else ""
        raise FieldError(f"must be a number, got {preview(value)}{advice}")
    try:
        return float(value)
    except OverflowError:
        return inf


@dataclass(frozen=True, slots=True)
class Money:
    """Dollars with at most two decimals, stored as cents. Float noise is tolerated, a third decimal is not (G4)."""

    max_cents: int

    def __call__(self, value: object) -> int:
        """Return the amount in cents."""
        dollars = _parse_number(value)
        cents = round(dollars * 100) if abs(dollars) <= self.max_cents else -1
        if not 0 <= cents <= self.max_cents or dollars < -_TOLERANCE:
            raise FieldError(f"must be from 0 to {self.max_cents / 100}, got {preview(value)}")
        if abs(dollars - cents / 100) > _TOLERANCE:
            raise FieldError(f"must have at most two decimals, got {preview(value)}")
        return cents


@dataclass(frozen=True, slots=True)
class Coordinate:
    """Degrees from `minimum` to `maximum`."""

    minimum: int
    maximum: int

    def __call__(self, value: object) -> float:
        """Return the degrees as a float."""
        degrees = _parse_number(value)
        if not self.minimum <= degrees <= self.maximum:
            raise FieldError(f"must be from {self.minimum} to {self.maximum}, got {preview(value)}")
        return float(degrees) + 0.0  # -0.0 + 0.0 is 0.0


_FORBIDDEN_IN_URL = re.compile(r"[\s\x00-\x1f\x7f-\x9f\\]")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_HTTP = re.compile(r"https?://([^/?#]*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Images:
    """An array of image URLs, stored as JSON in the order sent. The images are never fetched (decision G3)."""

    max_items: int
    max_length: int  # per URL
    absolute: bool = False  # True: relative URLs are invalid

    def __call__(self, value: object) -> str:
        """Return the JSON array of the URLs."""
        if not isinstance(value, list):
            raise FieldError(f"must be an array of URLs, got {json_type(value)}")
        if len(value) > self.max_items:
            raise FieldError(f"must have at most {self.max_items} URLs, got {len(value)}")
        for index, url in enumerate(value):
            error = self._find_error(url)
            if error is not None:
                raise FieldError(f"[{index}] {error}, got {preview(url)}")
        return msgspec.json.encode(value).decode()

    def _find_error(self, url: object) -> str | None:
        if not isinstance(url, str) or not 0 < len(url) <= self.max_length:
            return f"must be a URL of 1 to {self.max_length} characters"
        if _FORBIDDEN_IN_URL.search(url):
            return "must be a URL without spaces, control characters or backslashes"
        if _SCHEME.match(url) is None:
            return "must be an absolute http or https URL" if self.absolute else None
        http = _HTTP.match(url)
        if http is None:
            return "must be an http or https URL"
        authority = http[1]
        if "@" in authority or authority.partition(":")[0] == "":
            return "must have a host and no user name or password"
        return None


class Field(NamedTuple):
    """One field of a body: the `Listing` attribute that stores it, its rule, and its texts."""

    attribute: str
    rule: Rule
    label: str  # in forms
    description: str  # in the documentation of the API
    example: Any  # in the documentation of the API; mypyc rejects `object`
    options: Mapping[str, str] = {}  # the label of each value that a choice allows
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
    "type": Field("type", Choice(tuple(_TYPES)), "Type", "Type of the offer.", "product", _TYPES, clearable=False),
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
        "price_type", Choice(tuple(_PRICE_TYPES)), "Price type", "How the price is charged.", "negotiable", _PRICE_TYPES
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
    image URLs.

    Raises InvalidFieldsError, which lists every invalid field.
    """
    given = {name: value for name, value in body.items() if value is not None or name not in FIELDS}
    values, ignored, errors = _apply_rules(given, strict=strict)
    errors |= {name: f"{name} is required" for name in REQUIRED if name not in given}
    _raise_invalid_fields(errors)
    return NewListing(**cast("Mapping[str, Any]", values)), ignored


def parse_listing_change(body: Body, *, strict: bool = False) -> tuple[ListingChange, list[str]]:
    """Return the changes that the body of an update describes, and the names of its ignored fields.

    null clears an optional field. Raises InvalidFieldsError, which lists every invalid field.
    """
    cleared = [name for name, value in body.items() if value is None and name in _DEFAULTS]
    given = {name: value for name, value in body.items() if name not in cleared}
    values, ignored, errors = _apply_rules(given, strict=strict)
    _raise_invalid_fields(errors)
    values.update((FIELDS[name].attribute, _DEFAULTS[name]) for name in cleared)
    return values, ignored


def _apply_rules(given: Body, *, strict: bool) -> tuple[dict[str, Value], list[str], dict[str, str]]:
    values: dict[str, Value] = {}
    ignored: list[str] = []
    errors: dict[str, str] = {}
    for name, value in given.items():
        field = FIELDS.get(name)
        if field is None:
            ignored.append(name)
            continue
        rule = (field.strict_rule or field.rule) if strict else field.rule
        try:
            values[field.attribute] = rule(value)
        except FieldError as error:
            errors[name] = f"{name}{'' if str(error).startswith('[') else ' '}{error}"
    if strict:
        errors |= {name: f"{preview(name)} is not a field that can be set" for name in ignored}
    return values, ignored, errors


def _raise_invalid_fields(errors: Mapping[str, str]) -> None:
    if errors:
        names = dict.fromkeys((*FIELDS, *errors))
        raise InvalidFieldsError({name: errors[name] for name in names if name in errors})


def raise_field_errors(errors: list[str]) -> None:
    """Raise Problem("invalid_request"), which lists the errors, unless there are none."""
    if errors:
        raise Problem("invalid_request", _join(errors))


def _join(errors: list[str]) -> str:
    remaining = len(errors) - _MAX_LISTED_ERRORS
    return "; ".join([*errors[:_MAX_LISTED_ERRORS], f"and {remaining} more"] if remaining > 0 else errors)
