"""Every rule and bound of a listing's fields, once: one table from a body's key to its rule.

A rule turns the value that JSON gave into the value that is stored, or raises a `FieldError` with the end of a
sentence that begins with the field's name. Rules carry their bounds as attributes, so that the described API
is made of the same table. All faults of a body are told at once (decisions G2-G6, G32).
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple, TypeAlias, cast

import msgspec

from listings.domain.errors import Problem
from listings.domain.model import ListingChange, NewListing, Value

Body: TypeAlias = Mapping[str, object]
Rule: TypeAlias = Callable[[object], Value]

_MOST_FAULTS = 20
_NOISE = 0.000001  # dollars by which floats may miss a whole cent (decision G4)
_KINDS: Mapping[type, str] = {
    bool: "true or false",
    str: "text",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "an object",
    type(None): "null",
}


class FieldError(ValueError):
    """The end of a sentence that begins with the field's name: "must be text, got a number"."""


class InvalidFields(Problem):
    """What a body has at fault, all of it."""

    def __init__(self, faults: Mapping[str, str]) -> None:
        """`faults` are sentences by the field's name."""
        super().__init__("invalid_request", _joined(list(faults.values())))
        self.faults = faults


def json_type(value: object) -> str:
    """What JSON calls such a value, with an article."""
    return _KINDS[type(value)]


def shown(value: object) -> str:
    """The value as JSON for a message, cut to 40 characters; of a list or an object only its kind."""
    if isinstance(value, list | dict):
        return json_type(value)
    if isinstance(value, int) and abs(value) >= 10**39:
        return "a number of 40 digits or more"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else text[:37] + "..."  # noqa: PLR2004


@dataclass(frozen=True, slots=True)
class Text:
    """Text of at most `longest` code points, kept exactly as sent; U+0000 is refused (decision G2)."""

    longest: int
    blank: bool = True  # False: white space alone counts as missing

    def __call__(self, value: object) -> str:
        """The text itself."""
        if not isinstance(value, str):
            raise FieldError(f"must be text, got {json_type(value)}")
        if len(value) > self.longest:
            raise FieldError(f"must be at most {self.longest} characters, got {len(value)}")
        if "\0" in value:
            raise FieldError("must not contain the character U+0000")
        if not self.blank and (not value or value.isspace()):
            raise FieldError("is required and must not be blank")
        return value


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    allowed: tuple[str, ...]

    def __call__(self, value: object) -> str:
        """The word itself."""
        if isinstance(value, str) and value in self.allowed:
            return value
        raise FieldError(f"must be one of {', '.join(self.allowed)}, got {shown(value)}")


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    def __call__(self, value: object) -> bool:
        """The flag itself."""
        if isinstance(value, bool):
            return value
        raise FieldError(f"must be true or false, got {shown(value)}")


def _number(value: Any) -> float:  # noqa: ANN401 - what JSON gave; to mypyc an int is a float once it is known as one
    """A whole number that no float holds is beyond every bound, as infinity is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FieldError(f"must be a number, got {shown(value)}")
    try:
        return float(value)
    except OverflowError:
        return inf


@dataclass(frozen=True, slots=True)
class Money:
    """Dollars of at most two decimals, kept as cents; float noise passes, a third decimal doesn't (decision G4)."""

    most_cents: int

    def __call__(self, value: object) -> int:
        """The amount in cents."""
        dollars = _number(value)
        cents = round(dollars * 100) if abs(dollars) <= self.most_cents else -1
        if not 0 <= cents <= self.most_cents or dollars < -_NOISE:
            raise FieldError(f"must be from 0 to {self.most_cents / 100}, got {shown(value)}")
        if abs(dollars - cents / 100) > _NOISE:
            raise FieldError(f"must have at most two decimals, got {shown(value)}")
        return cents


@dataclass(frozen=True, slots=True)
class Coordinate:
    """Degrees between two bounds, both allowed."""

    least: int
    most: int

    def __call__(self, value: object) -> float:
        """The degrees as a float."""
        degrees = _number(value)
        if not self.least <= degrees <= self.most:
            raise FieldError(f"must be from {self.least} to {self.most}, got {shown(value)}")
        return float(degrees) + 0.0  # -0.0 + 0.0 is 0.0


_UNFIT = re.compile(r"[\s\x00-\x1f\x7f-\x9f\\]")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_HTTP = re.compile(r"https?://([^/?#]*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Images:
    """Addresses of pictures, kept in order as a JSON array; nothing is ever fetched (decision G3)."""

    most: int
    longest: int
    absolute: bool = False  # True: only http and https addresses, none relative

    def __call__(self, value: object) -> str:
        """The JSON array of the addresses."""
        if not isinstance(value, list):
            raise FieldError(f"must be a list of addresses, got {json_type(value)}")
        if len(value) > self.most:
            raise FieldError(f"must have at most {self.most} addresses, got {len(value)}")
        for place, address in enumerate(value):
            fault = self._fault_of(address)
            if fault is not None:
                raise FieldError(f"[{place}] {fault}, got {shown(address)}")
        return msgspec.json.encode(value).decode()

    def _fault_of(self, address: object) -> str | None:
        if not isinstance(address, str) or not 0 < len(address) <= self.longest:
            return f"must be an address of 1 to {self.longest} characters"
        if _UNFIT.search(address):
            return "must not contain white space, a control character or a backslash"
        if _SCHEME.match(address) is None:
            return "must be an absolute http or https address" if self.absolute else None
        http = _HTTP.match(address)
        if http is None:
            return "must be an http or https address"
        authority = http[1]
        if "@" in authority or authority.partition(":")[0] == "":
            return "must have a host and no user name or password"
        return None


class Field(NamedTuple):
    """One key of a body: where its value is stored and by which rule."""

    attribute: str
    rule: Rule
    clearable: bool = True  # null on an update sets it back to what it holds when it was never given
    strict_rule: Rule | None = None  # in place of `rule` under `Prefer: handling=strict`


FIELDS: Mapping[str, Field] = {
    "title": Field("title", Text(255, blank=False), clearable=False),
    "content": Field("content", Text(100_000, blank=False), clearable=False),
    "type": Field("type", Choice(("product", "service", "rental", "job")), clearable=False),
    "category": Field("category", Text(100)),
    "images": Field("images", Images(50, 2_048), strict_rule=Images(50, 2_048, absolute=True)),
    "price": Field("price_cents", Money(99_999_999_999)),
    "price_type": Field("price_type", Choice(("fixed", "negotiable", "per_hour", "per_night"))),
    "location": Field("location", Text(255)),
    "region": Field("region", Text(100)),
    "district": Field("district", Text(100)),
    "latitude": Field("latitude", Coordinate(-90, 90)),
    "longitude": Field("longitude", Coordinate(-180, 180)),
    "is_active": Field("is_active", Flag(), clearable=False),
}
"""The keys that a body may set, in the order of the specification."""

REQUIRED = ("title", "content")

_EMPTY = NewListing(title="", content="")
_CLEARED: Mapping[str, Value] = {
    name: getattr(_EMPTY, field.attribute) for name, field in FIELDS.items() if field.clearable
}


def read_new(body: Body, *, strict: bool = False) -> tuple[NewListing, list[str]]:
    """The listing that a create's body describes, and the keys that were ignored.

    null means "not given". `strict` (`Prefer: handling=strict`) makes unknown keys and relative images faults.
    Raises Problem("invalid_request") that names every fault.
    """
    given = {name: value for name, value in body.items() if value is not None or name not in FIELDS}
    values, ignored, faults = _read(given, strict=strict)
    faults |= {name: f"{name} is required" for name in REQUIRED if name not in given}
    _refuse(faults)
    return NewListing(**cast("Mapping[str, Any]", values)), ignored


def read_change(body: Body, *, strict: bool = False) -> tuple[ListingChange, list[str]]:
    """The changes that an update's body describes, and the keys that were ignored.

    null clears an optional field. Raises Problem("invalid_request") that names every fault.
    """
    cleared = [name for name, value in body.items() if value is None and name in _CLEARED]
    given = {name: value for name, value in body.items() if name not in cleared}
    values, ignored, faults = _read(given, strict=strict)
    _refuse(faults)
    values.update((FIELDS[name].attribute, _CLEARED[name]) for name in cleared)
    return values, ignored


def _read(given: Body, *, strict: bool) -> tuple[dict[str, Value], list[str], dict[str, str]]:
    values: dict[str, Value] = {}
    ignored: list[str] = []
    faults: dict[str, str] = {}
    for name, value in given.items():
        field = FIELDS.get(name)
        if field is None:
            ignored.append(name)
            continue
        rule = (field.strict_rule or field.rule) if strict else field.rule
        try:
            values[field.attribute] = rule(value)
        except FieldError as fault:
            faults[name] = f"{name}{'' if str(fault).startswith('[') else ' '}{fault}"
    if strict:
        faults |= {name: f"{shown(name)} is not a field that can be set" for name in ignored}
    return values, ignored, faults


def _refuse(faults: Mapping[str, str]) -> None:
    if faults:
        raise InvalidFields(faults)


def refuse(faults: list[str]) -> None:
    """Raises Problem("invalid_request") that names the faults, unless there are none."""
    if faults:
        raise Problem("invalid_request", _joined(faults))


def _joined(faults: list[str]) -> str:
    """Not so many that nobody would read them."""
    more = len(faults) - _MOST_FAULTS
    return "; ".join([*faults[:_MOST_FAULTS], f"and {more} more"] if more > 0 else faults)
