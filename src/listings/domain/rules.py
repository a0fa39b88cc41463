"""The rules of the kinds of values that fields of a listing may have (decisions G2-G6).

A rule converts a JSON value to the value that is stored, or raises a `FieldError`, and knows how forms, files and the
API description show its values.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, TypeAlias

import msgspec

from listings.domain.faults import FaultCode, FieldError, json_type, preview
from listings.domain.model import Value
from listings.domain.number_text import read_number, read_price
from listings.domain.pictures import find_name
from listings.domain.spreadsheets import would_change

Schema: TypeAlias = dict[str, Any]
"""A JSON Schema. Patterns use what all dialects of regular expressions share: no \\u, and only ASCII in \\x.

So a pattern accepts every valid value, but also some that the rule rejects.
"""


_TOLERANCE = 0.000001  # dollars by which a float may differ from a whole cent (decision G4)


class Rule:  # not an ABC: mypyc can't create data classes that inherit from one
    """The values that a kind of field may have, and how they are shown."""

    def __call__(self, value: object) -> Value:
        """Convert a JSON value to the value that is stored. Raises FieldError."""
        raise NotImplementedError

    @property
    def schema(self) -> Schema:
        """The JSON Schema of the values."""
        raise NotImplementedError

    @property
    def components(self) -> Mapping[str, Schema]:
        """The schemas that `schema` refers to, by name."""
        return {}

    @property
    def decoded_type(self) -> object:
        """The type of a valid JSON value."""
        return str

    def from_text(self, text: str) -> object:
        """Return the JSON value of a form's text, or the text itself if it is invalid: the rule then rejects it."""
        return text

    def to_text(self, value: Value) -> str:
        """Return the text of a stored value in a form."""
        return "" if value is None else str(value)

    def from_cell(self, cell: str) -> object:
        """Return the JSON value of a cell of a file, like `from_text`. The cell is not empty."""
        return self.from_text(cell)

    def to_cell(self, value: Value) -> str:
        """Return a stored value as the cell of a file."""
        return self.to_text(value)

    def to_json(self, value: Value) -> Any:  # noqa: ANN401 - JSON
        """Return a stored value as JSON shows it."""
        return value


@dataclass(frozen=True, slots=True)
class Text(Rule):
    """A string of at most `max_length` code points without U+0000, stored exactly as sent (decision G2)."""

    max_length: int
    allow_blank: bool = True  # False: a string of white space alone counts as missing

    def __call__(self, value: object) -> str:
        if not isinstance(value, str):
            raise FieldError(f"must be a string, got {json_type(value)}", "wrong_type")
        if len(value) > self.max_length:
            raise FieldError(f"must be at most {self.max_length} characters, got {len(value)}", "too_long")
        if "\0" in value:
            raise FieldError("must not contain the character U+0000", "invalid_characters")
        if not self.allow_blank and (not value or value.isspace()):
            raise FieldError("is required and must not be blank", "required")
        return value

    @property
    def schema(self) -> Schema:
        if self.allow_blank:
            return {"type": "string", "maxLength": self.max_length, "pattern": r"^[^\x00]*$"}
        return _build_string_schema(self.max_length, r"^[^\x00]*[^\x00\t-\r\x1c-\x20][^\x00]*$")


def _build_string_schema(max_length: int, pattern: str) -> Schema:
    return {"type": "string", "minLength": 1, "maxLength": max_length, "pattern": pattern}


_SHORTENED = re.compile(r"[0-9](?:[.,][0-9]+)?E\+[0-9]{2,3}", re.IGNORECASE)
_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class Identifier(Rule):
    """A string of 1 to `max_length` code points without control characters, compared exactly (decision G43)."""

    max_length: int

    def __call__(self, value: object) -> str:
        if not isinstance(value, str):
            raise FieldError(f"must be a string, got {json_type(value)}", "wrong_type")
        if not 0 < len(value) <= self.max_length:
            code: FaultCode = "too_long" if value else "too_short"
            raise FieldError(f"must have 1 to {self.max_length} characters, got {len(value)}", code)
        if _CONTROL_CHARACTER.search(value):
            raise FieldError(f"must not contain control characters, got {preview(value)}", "invalid_characters")
        return value

    @property
    def schema(self) -> Schema:
        return _build_string_schema(self.max_length, r"^[^\x00-\x1f\x7f]*$")

    def from_text(self, text: str) -> str | None:
        return text.strip() or None

    def from_cell(self, cell: str) -> str:
        """Return the identifier in a cell. A leading apostrophe protects one that a spreadsheet would change."""
        text = cell.strip()
        if text.startswith("'"):
            return cell.lstrip()[1:] if len(text) > 1 else text
        if _SHORTENED.fullmatch(text):
            advice = "format its column as text, and enter it again"
            raise FieldError(f"was shortened by a spreadsheet, got {preview(text)}: {advice}", "invalid_format")
        return text or cell

    def to_cell(self, value: Value) -> str:
        text = self.to_text(value)
        return f"'{text}" if text and (text.startswith("'") or text != text.strip() or would_change(text)) else text


@dataclass(frozen=True, slots=True)
class Choice(Rule):
    """One of the allowed strings. `name` is that of its schema."""

    name: str
    allowed: tuple[str, ...]
    is_optional: bool = False  # True: a form offers to choose none

    def __call__(self, value: object) -> str:
        if isinstance(value, str) and value in self.allowed:
            return value
        code: FaultCode = "not_allowed" if isinstance(value, str) else "wrong_type"
        raise FieldError(f"must be one of {', '.join(self.allowed)}, got {preview(value)}", code)

    @property
    def schema(self) -> Schema:
        return {"$ref": f"#/components/schemas/{self.name}"}

    @property
    def components(self) -> Mapping[str, Schema]:
        return {self.name: {"type": "string", "enum": list(self.allowed)}}

    def from_text(self, text: str) -> str | None:
        return None if self.is_optional and not text else text


@dataclass(frozen=True, slots=True)
class Flag(Rule):
    """A boolean."""

    def __call__(self, value: object) -> bool:
        if isinstance(value, bool):
            return value
        advice = ": remove the quotes" if isinstance(value, str) and value in {"true", "false"} else ""
        raise FieldError(f"must be true or false, got {preview(value)}{advice}", "wrong_type")

    @property
    def schema(self) -> Schema:
        return {"type": "boolean"}

    @property
    def decoded_type(self) -> object:
        return bool

    def from_text(self, text: str) -> bool:
        """Return the state of a checkbox, which submits nothing if it is not checked."""
        return text == "true"

    def to_text(self, value: Value) -> str:
        return "true" if value else ""

    def from_cell(self, cell: str) -> bool | str:
        """Return the boolean in a cell, ignoring case, because spreadsheets write it in capitals."""
        return {"true": True, "false": False}.get(cell.strip().lower(), cell)

    def to_cell(self, value: Value) -> str:
        return "true" if value else "false"


_QUOTED_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,20})?")


def _parse_number(value: Any) -> float:  # noqa: ANN401 - with a narrower type, mypyc would treat an int as a float
    # Integers too large for a float become infinity, which exceeds every limit.
    if isinstance(value, bool) or not isinstance(value, int | float):
        is_quoted = isinstance(value, str) and _QUOTED_NUMBER.fullmatch(value) is not None
        advice = ": remove the quotes" if is_quoted else ""
        raise FieldError(f"must be a number, got {preview(value)}{advice}", "wrong_type")
    try:
        return float(value)
    except OverflowError:
        return inf


_ON_REQUEST = re.compile(r"P\.?O\.?A\.?|POR|price on (?:application|request)", re.IGNORECASE)
_AMBIGUOUS = re.compile(r"[^0-9]*[0-9]{1,3}\.[0-9]{3}[^0-9]*")
_FOREIGN = re.compile(r"(?:US|A|AU|C|CA|S|HK)\$|[£€¥₹]|\b(?:USD|AUD|GBP|EUR|CAD|JPY)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Money(Rule):
    """Dollars with at most two decimals, stored as cents. Float noise is tolerated, a third decimal is not (G4)."""

    max_cents: int

    def __call__(self, value: object) -> int:
        dollars = _parse_number(value)
        cents = round(dollars * 100) if abs(dollars) <= self.max_cents else -1
        if not 0 <= cents <= self.max_cents or dollars < -_TOLERANCE:
            raise FieldError(f"must be from 0 to {self.max_cents / 100}, got {preview(value)}", "out_of_range")
        if abs(dollars - cents / 100) > _TOLERANCE:
            raise FieldError(f"must have at most two decimals, got {preview(value)}", "too_many_decimals")
        return cents

    @property
    def schema(self) -> Schema:
        return {"type": "number", "format": "double", "minimum": 0, "maximum": self.max_cents / 100}

    @property
    def decoded_type(self) -> object:
        return float

    def from_text(self, text: str) -> object:
        return read_price(text)

    def from_cell(self, cell: str) -> object:
        text = cell.strip()
        if _ON_REQUEST.fullmatch(text):
            return 0
        if _AMBIGUOUS.fullmatch(text):
            raise FieldError(f"must be a number like 1250 or 1.25, got {preview(text)}", "invalid_format")
        if _FOREIGN.search(text):
            raise FieldError(f"must be in New Zealand dollars, got {preview(text)}", "not_allowed")
        return read_price(cell)

    def to_text(self, value: Value) -> str:
        """Return the amount, or "" for 0, which means not stated."""
        return self.to_cell(value) if value else ""

    def to_cell(self, value: Value) -> str:
        cents = int(value or 0)
        return f"{cents // 100}.{cents % 100:02}"

    def to_json(self, value: Value) -> float:
        return int(value or 0) / 100


@dataclass(frozen=True, slots=True)
class Coordinate(Rule):
    """Degrees from `minimum` to `maximum`."""

    minimum: int
    maximum: int

    def __call__(self, value: object) -> float:
        degrees = _parse_number(value)
        if not self.minimum <= degrees <= self.maximum:
            raise FieldError(f"must be from {self.minimum} to {self.maximum}, got {preview(value)}", "out_of_range")
        return float(degrees) + 0.0  # -0.0 + 0.0 is 0.0

    @property
    def schema(self) -> Schema:
        return {"type": "number", "format": "double", "minimum": self.minimum, "maximum": self.maximum}

    @property
    def decoded_type(self) -> object:
        return float

    def from_text(self, text: str) -> object:
        return read_number(text)


_FORBIDDEN_IN_URL = re.compile(r"[\s\x00-\x1f\x7f-\x9f\\]")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_HTTP = re.compile(r"https?://([^/?#]*)", re.IGNORECASE)
_FORBIDDEN = r"\x00-\x20\x7f\\"
_URL_PATTERN = (
    rf"^(?:[Hh][Tt][Tt][Pp][Ss]?://[^@:/?#{_FORBIDDEN}][^@/?#{_FORBIDDEN}]*(?:[/?#][^{_FORBIDDEN}]*)?"
    rf"|[A-Za-z][A-Za-z0-9+.-]*(?:[^A-Za-z0-9+.:{_FORBIDDEN}-][^{_FORBIDDEN}]*)?"  # relative: no scheme
    rf"|[^A-Za-z{_FORBIDDEN}][^{_FORBIDDEN}]*)$"
)
_RELATIVE = re.compile(r"(?:^|\s)(?!https?://|/)\S", re.IGNORECASE)
_SEPARATORS = " \t\u00a0,;|"
_BEFORE_URL = re.compile(r"(?<![\s,;|])[\s,;|]++(?=https?://)", re.IGNORECASE)  # linear in the length of a run
_PLAIN_URL = r'"https?://[A-Za-z0-9.-]+(?::[0-9]+)?(?:[/?#][!#-\[\]-~]*)?"'
_PLAIN_URLS = re.compile(rf"\[{_PLAIN_URL}(?:,{_PLAIN_URL})*\]")  # two in 0.8 us, one by one in 2.2
_decode_urls = msgspec.json.Decoder(list[str]).decode


def _read_array(text: str) -> list[str] | None:
    try:
        return _decode_urls(text) if text.lstrip().startswith("[") else None
    except msgspec.DecodeError:
        return None


@dataclass(frozen=True, slots=True)
class Images(Rule):
    """An array of image URLs, stored as JSON in the order sent. The images are never fetched (decision G3)."""

    max_items: int
    max_length: int  # per URL
    absolute: bool = False  # True: relative URLs are invalid, except those of uploaded pictures

    def __call__(self, value: object) -> str:
        if not isinstance(value, list):
            raise FieldError(f"must be an array of URLs, got {json_type(value)}", "wrong_type")
        if len(value) > self.max_items:
            raise FieldError(f"must have at most {self.max_items} URLs, got {len(value)}", "too_many")
        encoded = msgspec.json.encode(value).decode()
        if len(encoded) <= self.max_length and _PLAIN_URLS.fullmatch(encoded):
            return encoded
        for index, url in enumerate(value):
            error = self._find_error(url)
            if error is not None:
                raise FieldError(f"[{index}] {error}, got {preview(url)}", "invalid_url")
        return encoded

    def _find_error(self, url: object) -> str | None:
        if not isinstance(url, str) or not 0 < len(url) <= self.max_length:
            return f"must be a URL of 1 to {self.max_length} characters"
        if _FORBIDDEN_IN_URL.search(url):
            return "must be a URL without spaces, control characters or backslashes"
        if _SCHEME.match(url) is None:
            is_invalid = self.absolute and find_name(url) is None
            return "must be an absolute http or https URL" if is_invalid else None
        http = _HTTP.match(url)
        if http is None:
            return "must be an http or https URL"
        authority = http[1]
        if "@" in authority or authority.partition(":")[0] == "":
            return "must have a host and no user name or password"
        return None

    @property
    def schema(self) -> Schema:
        return {"type": "array", "maxItems": self.max_items, "items": {"$ref": "#/components/schemas/ImageUrl"}}

    @property
    def decoded_type(self) -> object:
        return list[str]

    @property
    def components(self) -> Mapping[str, Schema]:
        return {"ImageUrl": _build_string_schema(self.max_length, _URL_PATTERN)}

    def from_text(self, text: str) -> list[str]:
        """Return the URLs of a form or a cell: a JSON array, or separated by line breaks, spaces, commas or bars.

        Other separators than line breaks count only before a URL that begins with http. The rule rejects the rest.
        """
        urls = _read_array(text)
        if urls is not None:
            return urls
        parts = [part.strip(_SEPARATORS) for line in text.splitlines() for part in _BEFORE_URL.split(line)]
        return [part for part in parts if part]

    def to_text(self, value: Value) -> str:
        return "\n".join(_decode_urls(str(value)))

    def from_cell(self, cell: str) -> list[str]:
        """Return the URLs. Relative ones are permitted in a JSON array only, or if they begin with a slash."""
        urls = self.from_text(cell)
        for index, url in enumerate(urls if _read_array(cell) is None else []):
            if not _HTTP.match(url) and (not url.startswith("/") or _FORBIDDEN_IN_URL.search(url)):
                raise FieldError(f"[{index}] must be an absolute http or https URL, got {preview(url)}", "invalid_url")
        return urls

    def to_cell(self, value: Value) -> str:
        """Return the URLs separated by spaces, or the JSON array if they can't be read back from that."""
        urls = _decode_urls(str(value))
        text = " ".join(urls)
        return text if self.from_text(text) == urls and not _RELATIVE.search(text) else str(value)

    def to_json(self, value: Value) -> msgspec.Raw:
        return msgspec.Raw(str(value))
