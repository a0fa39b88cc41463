"""The parameters of a list, from the query of its address to a `ListingQuery` and back (decisions G1, G17)."""

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Any, NamedTuple, get_args
from urllib.parse import parse_qsl, quote, urlencode

import msgspec

from listings.domain import timestamps, tokenizer
from listings.domain.errors import Problem
from listings.domain.fields import FIELDS, Choice, FieldError, Money, Text, preview, raise_field_errors
from listings.domain.model import ListingQuery, SortKey, Status

EXTRAS = ("district", "latitude", "longitude")
"""What `include=all` adds to a record."""

INCLUDABLE = (*EXTRAS, "deleted_at")
_MOST_LISTINGS = 1000
MOST_WORDS = 10
LONGEST_SEARCH = 200
LONGEST_CURSOR = 4000  # a title of 255 control characters makes one of 2,100
_CURSOR_VERSION = 1
_CHECKSUM = 6
_DECIMAL = re.compile(r"[0-9]{1,12}(\.[0-9]{1,20})?")
_MOMENT = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d:\d\d)(?:\.\d{1,9})?(?:Z|[+ ]00:00)?)?",  # the plus of a query is a space
    re.ASCII,
)


# Rules: from the text of a parameter to its value. They raise a Fault, as the rules of fields do.


@dataclass(frozen=True, slots=True)
class Count:
    """A whole number between two bounds."""

    least: int
    most: int

    def __call__(self, text: str) -> int:
        """The number."""
        if not re.fullmatch("[0-9]{1,9}", text) or not self.least <= int(text) <= self.most:
            raise FieldError(f"must be an integer from {self.least} to {self.most}, got {preview(text)}")
        return int(text)


@dataclass(frozen=True, slots=True)
class Amount:
    """Dollars as a plain decimal number, kept as cents."""

    money: Money

    def __call__(self, text: str) -> int:
        """The cents."""
        if not _DECIMAL.fullmatch(text):
            raise FieldError(f"must be a number of dollars like 12.50, got {preview(text)}")
        return self.money(float(text))


@dataclass(frozen=True, slots=True)
class Several:
    """Names with commas between them; `all` stands for some of them."""

    allowed: tuple[str, ...]
    all: tuple[str, ...]

    def __call__(self, text: str) -> frozenset[str]:
        """The names."""
        names = frozenset(text.split(","))
        if not names <= {*self.allowed, "all"}:
            raise FieldError(
                f"must be some of {', '.join(self.allowed)}, with commas between them, or all, got {preview(text)}"
            )
        return names - {"all"} | (frozenset(self.all) if "all" in names else frozenset())


def moment(text: str) -> str:
    """A moment in UTC as it is stored, without its fraction of a second."""
    match = _MOMENT.fullmatch(text)
    try:
        return timestamps.format_timestamp(
            timestamps.parse_timestamp(" ".join(filter(None, match.groups())) if match else text)
        )
    except ValueError:
        raise FieldError(
            f"must be YYYY-MM-DD HH:MM:SS, YYYY-MM-DDTHH:MM:SSZ or YYYY-MM-DD, in UTC, got {preview(text)}"
        ) from None


def search_terms(text: str) -> tuple[str, ...]:
    """The words of a search."""
    found = tuple(dict.fromkeys(tokenizer.tokenize(text)))
    if not found or len(found) > MOST_WORDS or len(text) > LONGEST_SEARCH:
        raise FieldError(
            f"must have 1 to {MOST_WORDS} words of letters or digits, and at most {LONGEST_SEARCH} characters"
        )
    return found


def order(text: str) -> tuple[str, bool]:
    """What to sort by, and whether descending."""
    name = text.removeprefix("-")
    if name not in get_args(SortKey):
        allowed = ", ".join(get_args(SortKey))
        raise FieldError(f"must be one of {allowed}, with - in front for descending, got {preview(text)}")
    return name, text.startswith("-")


def truth(text: str) -> bool:
    """True or false."""
    if text not in {"true", "false"}:
        raise FieldError(f"must be true or false, got {preview(text)}")
    return text == "true"


def cursor_text(text: str) -> str:
    """A cursor, which is looked into when everything else is known."""
    if len(text) > LONGEST_CURSOR:
        raise FieldError(f"must be at most {LONGEST_CURSOR} characters")
    return text


def _as_field(name: str) -> Callable[[str], Any]:
    return FIELDS[name].rule


PARAMETERS: Mapping[str, Callable[[str], Any]] = {
    "limit": Count(1, _MOST_LISTINGS),
    "cursor": cursor_text,
    "status": Choice(get_args(Status)),
    "type": _as_field("type"),
    "category": Text(100),
    "region": Text(100),
    "q": search_terms,
    "price_min": Amount(Money(99_999_999_999)),
    "price_max": Amount(Money(99_999_999_999)),
    "updated_since": moment,
    "sort": order,
    "include": Several(INCLUDABLE, EXTRAS),
}
"""The parameters of a list, each with its rule."""

OF_ONE: Mapping[str, Callable[[str], Any]] = {"include": PARAMETERS["include"]}
"""The parameters of a single listing."""

OF_A_WRITE: Mapping[str, Callable[[str], Any]] = {"dry_run": truth}
"""The parameters of every write."""

_ATTRIBUTES = {"q": "words"}
_OWN = {"sort", "include", "cursor"}


class ListRequest(NamedTuple):
    """What a list is asked for: which listings, what of them, and what was written in the address."""

    query: ListingQuery = ListingQuery()
    include: frozenset[str] = frozenset()
    pairs: tuple[tuple[str, str], ...] = ()

    def next_address(self, path: str, place: tuple[str | int, int]) -> str:
        """The address of the page behind a place, with all the parameters that were sent."""
        pairs = [pair for pair in self.pairs if pair[0] != "cursor"]
        cursor = _cursor_of(self.query, place)
        return f"{path}?{urlencode([*pairs, ('cursor', cursor)], quote_via=quote)}"

    def tag(self, account_id: int, revision: int) -> str:
        """The list's entity tag: the account's revision, the query and the representation (decision G35).

        The account too: all lists have one address, and a cache may be used with several keys.
        """
        if not self.pairs:
            return f'"r{revision}.{account_id}"'
        content = msgspec.json.encode((_told(self.query), sorted(self.include)))
        return f'"r{revision}.{account_id}-{sha256(content).hexdigest()[:12]}"'


PLAIN = ListRequest()
"""A list without parameters."""


def read_list(query_string: bytes, *, strict: bool) -> ListRequest:
    """What a list is asked for. Raises Problem("invalid_request") that names every fault.

    An unknown parameter is ignored; `strict` (`Prefer: handling=strict`) makes it a fault.
    """
    if not query_string:
        return PLAIN
    pairs = _pairs(query_string)
    values = _read(pairs, PARAMETERS, strict=strict)
    sort, descending = values.get("sort", ("id", True))
    wanted = {_ATTRIBUTES.get(name, name): value for name, value in values.items() if name not in _OWN}
    query = ListingQuery(sort=sort, descending=descending, **wanted)
    if "cursor" in values:
        query = msgspec.structs.replace(query, after=_place_of(values["cursor"], query))
    known = tuple(pair for pair in pairs if pair[0] in PARAMETERS)
    return ListRequest(query, values.get("include", frozenset()), known)


def read_include(query_string: bytes, *, strict: bool) -> frozenset[str]:
    """What is to be added to a single record. Raises as `read_list` does."""
    if not query_string:
        return frozenset()
    included: frozenset[str] = _read(_pairs(query_string), OF_ONE, strict=strict).get("include", frozenset())
    return included


def _pairs(query_string: bytes) -> list[tuple[str, str]]:
    text = query_string.decode("ascii", "surrogateescape")
    return parse_qsl(text, keep_blank_values=True, errors="surrogateescape")


def _unicode(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise FieldError("must be percent-encoded UTF-8") from None
    return text


def _legible(name: str) -> str:
    return name.encode(errors="replace").decode()


def _read(pairs: list[tuple[str, str]], rules: Mapping[str, Callable[[str], Any]], *, strict: bool) -> dict[str, Any]:
    values: dict[str, Any] = {}
    faults: list[str] = []
    for name, text in pairs:
        if name not in rules:
            faults += [f"{preview(_legible(name))} is not a parameter here"] if strict else []
        elif name in values:
            faults.append(f"{name} must stand once")
        else:
            try:
                values[name] = rules[name](_unicode(text))
            except FieldError as fault:
                faults.append(f"{name} {fault}")
    raise_field_errors(list(dict.fromkeys(faults)))
    return values


# Cursors: the place behind which a page begins, bound to the query by a digest of it. They are opaque to clients and
# hold nothing that the client has not seen; the checksum tells a mistyped one.


_Whole = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_decode_cursor = msgspec.json.Decoder(tuple[int, str, str | _Whole, _Whole]).decode


def _cursor_of(query: ListingQuery, place: tuple[str | int, int]) -> str:
    content = msgspec.json.encode((_CURSOR_VERSION, _fingerprint(query), *place))
    return base64.urlsafe_b64encode(sha256(content).digest()[:_CHECKSUM] + content).decode().rstrip("=")


def _place_of(cursor: str, query: ListingQuery) -> tuple[str | int, int]:
    """Raises Problem("invalid_request") for what is no cursor, or one of another query."""
    try:
        data = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars="-_", validate=True)
        version, fingerprint, value, listing_id = _decode_cursor(data[_CHECKSUM:])
    except (binascii.Error, ValueError, msgspec.DecodeError):
        data, version, fingerprint, value, listing_id = b"", 0, "", 0, 0
    if version != _CURSOR_VERSION or sha256(data[_CHECKSUM:]).digest()[:_CHECKSUM] != data[:_CHECKSUM]:
        raise Problem("invalid_request", "cursor is not one that was given out here")
    if fingerprint != _fingerprint(query):
        raise Problem("invalid_request", "cursor belongs to a list with other filters or another order")
    return value, listing_id


def _fingerprint(query: ListingQuery) -> str:
    """The same for every page of a walk."""
    of_all = msgspec.structs.replace(query, limit=None, after=None)
    return sha256(msgspec.json.encode(_told(of_all))).hexdigest()[:16]


def _told(query: ListingQuery) -> dict[str, object]:
    """Only what is not as it would be without being told, so that a new filter changes no digest of before."""
    values = ((field.name, getattr(query, field.name), field.default) for field in msgspec.structs.fields(query))
    return {name: value for name, value, default in values if value != default}


# Writes


def is_dry_run(query_string: bytes, *, strict: bool) -> bool:
    """Whether a write is only to be checked (`dry_run=true`). Raises as `read_list` does."""
    if not query_string:
        return False
    return bool(_read(_pairs(query_string), OF_A_WRITE, strict=strict).get("dry_run", False))
