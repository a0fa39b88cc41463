"""Query parameters: parse the query string to a `ListingQuery`, and build cursors (decisions G1, G17, G53)."""

import base64
import binascii
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Any, NamedTuple, TypeAlias, cast, get_args
from urllib.parse import parse_qsl, quote, urlencode

import msgspec

from listings.api import codec
from listings.domain import timestamps, tokenizer
from listings.domain.faults import Fault, FieldError, fold_name, preview, raise_faults, reject
from listings.domain.fields import FIELDS, MAX_PRICE_CENTS, parse_id
from listings.domain.listing_json import INCLUDABLE_FIELDS
from listings.domain.model import MAX_ID, ListingQuery, Revisions, SortKey, Status
from listings.domain.pictures import Picture
from listings.domain.rules import Choice, Money, Schema
from listings.service.history.change_waits import MAX_WAIT_SECONDS, Poll

INCLUDE_ALL_FIELDS = ("district", "latitude", "longitude")
"""The fields that `include=all` adds to a record. It will never add others (decision G1)."""

_MAX_LIMIT = 1000
MAX_IDS = 100
MAX_INTEGER = 2**53 - 1  # the largest that every JSON parser preserves
MAX_SEARCH_TERMS = 10
MAX_SEARCH_LENGTH = 200
MAX_CURSOR_LENGTH = 4000  # a title of 255 control characters needs 2,100
_CURSOR_VERSION = 1
_CHECKSUM_BYTES = 6
_FINGERPRINT_LENGTH = 16
_FIRST_PAGES = {"page": 1, "offset": 0}  # of other services; later ones would be the first page again
_MAX_DIGITS = 19
_FIRST_SECOND, _LAST_SECOND = map(timestamps.parse_timestamp, ("0001-01-01", "9999-12-31 23:59:59"))
IMAGE_CURSOR: re.Pattern[str] = re.compile(r"([0-9]{1,12})-([0-9a-f]{32})")
_DECIMAL = re.compile(r"[0-9]{1,12}(\.[0-9]{1,20})?")
_TIMESTAMP = re.compile(
    # A plus in a query is a space.
    r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d:\d\d)(?:\.\d{1,9})?(?:Z|([+ -])([01]\d|2[0-3]):([0-5]\d))?)?",
    re.ASCII,
)


# Rules: parse the text of a parameter to its value. They raise FieldError, as the rules of fields do.


@dataclass(frozen=True, slots=True)
class Count:
    """An integer in a range."""

    minimum: int
    maximum: int

    def __call__(self, text: str) -> int:
        if not re.fullmatch("[0-9]{1,19}", text) or not self.minimum <= int(text) <= self.maximum:
            raise FieldError(
                f"must be an integer from {self.minimum} to {self.maximum}, got {preview(text)}", "out_of_range"
            )
        return int(text)

    @property
    def schema(self) -> Schema:
        return {"type": "integer", "minimum": self.minimum, "maximum": self.maximum}


@dataclass(frozen=True, slots=True)
class Amount:
    """Dollars as a plain decimal number, parsed to cents."""

    money: Money

    def __call__(self, text: str) -> int:
        if not _DECIMAL.fullmatch(text):
            raise FieldError(f"must be a number of dollars like 12.50, got {preview(text)}", "wrong_type")
        return self.money(float(text))

    @property
    def schema(self) -> Schema:
        return self.money.schema


@dataclass(frozen=True, slots=True)
class NameSet:
    """A comma-separated list of names. The name "all" means the names in `all`."""

    allowed: tuple[str, ...]
    all: tuple[str, ...]

    def __call__(self, text: str) -> frozenset[str]:
        names = frozenset(text.split(","))
        if not names <= {*self.allowed, "all"}:
            allowed = ", ".join(self.allowed)
            raise FieldError(f"must be all or a comma-separated list of {allowed}, got {preview(text)}", "not_allowed")
        return names - {"all"} | (frozenset(self.all) if "all" in names else frozenset())


def parse_timestamp(text: str) -> str:
    """Return a UTC time in the stored format, without its fraction of a second. An offset is subtracted."""
    match = _TIMESTAMP.fullmatch(text)
    day, hour, sign, hours, minutes = match.groups() if match is not None else (text, None, None, None, None)
    offset = (int(hours or 0) * 60 + int(minutes or 0)) * (-60 if sign == "-" else 60)
    try:
        moment = timestamps.parse_timestamp(f"{day} {hour}" if hour else day) - offset
        return timestamps.format_timestamp(min(max(moment, _FIRST_SECOND), _LAST_SECOND))
    except ValueError:
        raise FieldError(
            f"must be YYYY-MM-DD HH:MM:SS, YYYY-MM-DDTHH:MM:SSZ or YYYY-MM-DD, in UTC, got {preview(text)}"
        ) from None


def parse_search_terms(text: str) -> tuple[str, ...]:
    """Return the distinct terms of a search."""
    terms = tuple(dict.fromkeys(tokenizer.tokenize(text)))
    if not terms or len(terms) > MAX_SEARCH_TERMS or len(text) > MAX_SEARCH_LENGTH:
        raise FieldError(
            f"must have 1 to {MAX_SEARCH_TERMS} words of letters or digits, and at most {MAX_SEARCH_LENGTH} characters"
        )
    return terms


def parse_external_id(text: str) -> frozenset[str]:
    """Return the external id as a set, to which others are added if the parameter is repeated."""
    return frozenset([cast("str", FIELDS["external_id"].rule(text))])


def parse_ids(text: str) -> frozenset[int]:
    """Return the ids in a comma-separated list."""
    ids = [parse_id(part) for part in text.split(",")]
    if None in ids:
        raise FieldError(f"must be a comma-separated list of listing ids, got {preview(text)}")
    return frozenset(filter(None, ids))


def parse_sort(text: str) -> tuple[str, bool]:
    """Return the sort key, and whether the order is descending."""
    name = text.removeprefix("-")
    if name not in get_args(SortKey):
        allowed = ", ".join(get_args(SortKey))
        message = f"must be one of {allowed} (prefix - for descending order), got {preview(text)}"
        raise FieldError(message, "not_allowed")
    return name, text.startswith("-")


def parse_bool(text: str) -> bool:
    """Parse `true`, `false`, `1` or `0`, in any case: clients format booleans in different ways."""
    value = {"true": True, "1": True, "false": False, "0": False}.get(text.lower())
    if value is None:
        raise FieldError(f"must be true or false, got {preview(text)}", "wrong_type")
    return value


def check_cursor_length(text: str) -> str:
    """Return the cursor as it is. It is decoded once the rest of the query is parsed."""
    if len(text) > MAX_CURSOR_LENGTH:
        raise FieldError(f"must be at most {MAX_CURSOR_LENGTH} characters", "too_long")
    return text


STATUS: Choice = Choice("ListingStatus", get_args(Status))

Rules: TypeAlias = Mapping[str, Callable[[str], Any]]
"""Query parameters, each with its rule."""

LIST_PARAMETERS: Rules = {
    "limit": Count(1, _MAX_LIMIT),
    "cursor": check_cursor_length,
    "status": STATUS,
    "type": FIELDS["type"].rule,
    "category": FIELDS["category"].rule,
    "region": FIELDS["region"].rule,
    "q": parse_search_terms,
    "price_min": Amount(Money(MAX_PRICE_CENTS)),
    "price_max": Amount(Money(MAX_PRICE_CENTS)),
    "updated_since": parse_timestamp,
    "external_id": parse_external_id,
    "ids": parse_ids,
    "sort": parse_sort,
    "include": NameSet(INCLUDABLE_FIELDS, INCLUDE_ALL_FIELDS),
    "count": parse_bool,
}
LISTING_PARAMETERS: Rules = {"include": LIST_PARAMETERS["include"]}
WRITE_PARAMETERS: Rules = {"dry_run": parse_bool}
CHANGE_PARAMETERS: Rules = {  # for the feed of change sets
    "after": Count(0, MAX_INTEGER),
    "limit": Count(0, _MAX_LIMIT),
    "timeout": Count(0, MAX_WAIT_SECONDS),
    "gather": Count(0, MAX_WAIT_SECONDS),
    "since": parse_timestamp,
    "until": parse_timestamp,
}
HISTORY_PARAMETERS: Rules = {"before": Count(1, MAX_INTEGER), "limit": Count(1, _MAX_LIMIT)}  # for a listing
CONFLICT_PARAMETERS: Rules = {"after": Count(0, MAX_INTEGER), "limit": Count(0, _MAX_LIMIT)}  # for a revert

_DEFAULT_CHANGE_SETS = 100
DEFAULT_CONFLICTS = 100

_SPECIAL = {"q", "sort", "include", "cursor", "external_id", "ids"}  # not copied to the ListingQuery as they are
_REPEATABLE = {"include", "external_id", "ids"}


class ListRequest(NamedTuple):
    """A parsed list request: the query, the included fields, the parameters as they were sent, and the last restore."""

    query: ListingQuery = ListingQuery()
    include: frozenset[str] = frozenset()
    pairs: tuple[tuple[str, str], ...] = ()
    restore_id: str = ""

    def build_next_page(self, path: str, last: tuple[str | int, int]) -> tuple[str, str]:
        """Return the URL and the cursor of the page after the listing with the sort value and id in `last`."""
        pairs = [pair for pair in self.pairs if pair[0] != "cursor"]
        content = msgspec.json.encode((_CURSOR_VERSION, self.restore_id + _fingerprint(self.query), *last))
        cursor = base64.urlsafe_b64encode(sha256(content).digest()[:_CHECKSUM_BYTES] + content).decode().rstrip("=")
        return f"{path}?{urlencode([*pairs, ('cursor', cursor)], quote_via=quote)}", cursor

    def format_etag(self, account_id: int, revisions: Revisions) -> str:
        """Return the entity tag: state and revision of the account, query and included fields (decisions G35, G48)."""
        state_tag = codec.format_state_tag(account_id, revisions.edit_revision, self.restore_id)
        tag = f"{state_tag[:-1]}-r{revisions.revision}"
        if not self.pairs:
            return f'{tag}"'
        content = msgspec.json.encode((_changed_fields(self.query), sorted(self.include)))
        return f'{tag}-{sha256(content).hexdigest()[:12]}"'


_PLAIN = ListRequest()


def parse_list(query_string: bytes, restore_id: str, *, strict: bool) -> ListRequest:
    """Parse the query string of a list. Raises Problem("invalid_request") that names every error.

    A cursor from before the restore `restore_id` is an error. Unknown parameters are ignored, or errors if `strict`
    (`Prefer: handling=strict`).
    """
    if not query_string:
        return ListRequest(restore_id=restore_id) if restore_id else _PLAIN
    pairs = _split(query_string)
    values = _parse(pairs, LIST_PARAMETERS, strict=strict)
    if values.get("price_min", 0) > values.get("price_max", MAX_PRICE_CENTS):
        reject("price_min", "inconsistent", "price_min must not be above price_max")
    ids = tuple(sorted(values.get("ids", ())))
    if len(ids) > MAX_IDS:
        reject("ids", "too_many", f"ids must be at most {MAX_IDS} listing ids, got {len(ids)}")
    sort, descending = values.get("sort", ("id", True))
    wanted = {name: value for name, value in values.items() if name not in _SPECIAL} | {"words": values.get("q", ())}
    external_ids = tuple(sorted(values["external_id"])) if "external_id" in values else None
    query = ListingQuery(sort=sort, descending=descending, external_ids=external_ids, ids=ids, **wanted)
    if "cursor" in values:
        query = msgspec.structs.replace(query, after=_decode_cursor(values["cursor"], query, restore_id))
    known = tuple(pair for pair in pairs if pair[0] in LIST_PARAMETERS)
    return ListRequest(query, values.get("include", frozenset()), known, restore_id)


def parse(query_string: bytes, rules: Rules, *, strict: bool) -> dict[str, Any]:
    """Return the values of the given parameters by name. Raises like `parse_list`."""
    if not query_string:
        return {}  # most requests: parsing takes 4% of a read of one listing
    return _parse(_split(query_string), rules, strict=strict)


def find_unknown(query_string: bytes, known: Collection[str]) -> list[str]:
    """Return the names of the parameters that are not known, in the order of the query."""
    names = (part.partition("=")[0] for part in query_string.decode("latin-1").split("&"))
    if all(name in known for name in names):  # parsing takes much longer
        return []
    return list(dict.fromkeys(_replace_surrogates(name) for name, _ in _split(query_string) if name not in known))


def _split(query_string: bytes) -> list[tuple[str, str]]:
    text = query_string.decode("ascii", "surrogateescape")
    return parse_qsl(text, keep_blank_values=True, errors="surrogateescape")


def _replace_surrogates(name: str) -> str:
    return name.encode(errors="replace").decode()


def _parse(pairs: list[tuple[str, str]], rules: Rules, *, strict: bool) -> dict[str, Any]:
    values: dict[str, Any] = {}
    faults: list[Fault] = []
    for name, text in pairs:
        if name not in rules:
            fault = _check_unknown(_replace_surrogates(name), text, rules, strict=strict)
            faults += [fault] if fault is not None else []
        elif name in values and name not in _REPEATABLE:
            faults.append(Fault(name, "repeated", f"{name} may be given only once"))
        else:
            try:
                text.encode()
                value = rules[name](text)
                values[name] = values[name] | value if name in values else value
            except UnicodeEncodeError:
                faults.append(FieldError("must be percent-encoded UTF-8", "invalid_characters").locate(name))
            except FieldError as error:
                faults.append(error.locate(name))
    raise_faults(faults)
    return values


def _check_unknown(name: str, text: str, rules: Iterable[str], *, strict: bool) -> Fault | None:
    message, folded = f"{preview(name)} is not a known parameter", fold_name(name)
    meant = {fold_name(rule): rule for rule in rules}
    if "dryrun" in meant:
        meant |= dict.fromkeys(("validateonly", "preview"), "dry_run")
    if folded in meant:
        return Fault(name, "misspelled", f"{message}: did you mean {meant[folded]}?")
    if folded in _FIRST_PAGES and text.isdecimal() and int(text[:_MAX_DIGITS]) > _FIRST_PAGES[folded]:
        paging = next((one for one in ("cursor", "after", "before") if one in meant), None)
        if paging is not None:
            return Fault(name, "misspelled", f"{message}: the next page begins at {paging}")
    return Fault(name, "unknown", message) if strict else None


# A cursor is the sort value and id of the last listing of a page, with the id of the last restore and a digest of the
# query it belongs to. It is opaque to clients and contains only data that they have seen. The checksum detects typing
# errors.


_Integer = Annotated[int, msgspec.Meta(ge=0, le=MAX_ID)]
_decode_content = msgspec.json.Decoder(tuple[int, str, str | _Integer, _Integer]).decode


def _decode_cursor(cursor: str, query: ListingQuery, restore_id: str) -> tuple[str | int, int]:
    try:
        data = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars="-_", validate=True)
        version, fingerprint, value, listing_id = _decode_content(data[_CHECKSUM_BYTES:])
    except (binascii.Error, ValueError, msgspec.DecodeError):
        data, version, fingerprint, value, listing_id = b"", 0, "", 0, 0
    if (
        version != _CURSOR_VERSION
        or sha256(data[_CHECKSUM_BYTES:]).digest()[:_CHECKSUM_BYTES] != data[:_CHECKSUM_BYTES]
    ):
        reject("cursor", "invalid_format", "cursor is invalid: use the one from Link or X-Next-Cursor")
    if fingerprint[:-_FINGERPRINT_LENGTH] != restore_id:
        reject("cursor", "inconsistent", "cursor is from before a backup was restored: start at the first page")
    if fingerprint[-_FINGERPRINT_LENGTH:] != _fingerprint(query):
        reject("cursor", "inconsistent", "cursor belongs to a list with different filters or sort order")
    return value, listing_id


# Reading the fields of a struct evaluates their annotations: 57 µs, which is a tenth of a page of 50.
_DEFAULTS = tuple((field.name, field.default) for field in msgspec.structs.fields(ListingQuery))


def _fingerprint(query: ListingQuery) -> str:
    unpaged = msgspec.structs.replace(query, limit=None, after=None, count=False)
    return sha256(msgspec.json.encode(_changed_fields(unpaged))).hexdigest()[:_FINGERPRINT_LENGTH]


def _changed_fields(query: ListingQuery) -> dict[str, object]:
    # Without those that have their default, so that a new filter does not change existing digests. The names are part
    # of the digests: renaming a field of `ListingQuery` invalidates cursors and entity tags.
    return {name: value for name, default in _DEFAULTS if (value := getattr(query, name)) != default}


# Change sets


def parse_changes(query_string: bytes, *, strict: bool) -> tuple[Poll, int | None, int | None]:
    """Return which changes are requested, and the Unix times of the first and last. Raises like `parse_list`."""
    values = parse(query_string, CHANGE_PARAMETERS, strict=strict)
    since, until = (timestamps.parse_timestamp(values[name]) if name in values else None for name in ("since", "until"))
    poll = Poll(
        after=values.get("after", 0),
        limit=values.get("limit", _DEFAULT_CHANGE_SETS),
        timeout=values.get("timeout", 0),
        gather=values.get("gather", 0),
    )
    return poll, since, until


def parse_history(query_string: bytes, *, strict: bool) -> tuple[int, int]:
    """Return the id below which change sets are requested, and their maximum number. Raises like `parse_list`."""
    values = parse(query_string, HISTORY_PARAMETERS, strict=strict)
    return values.get("before", MAX_ID), values.get("limit", _DEFAULT_CHANGE_SETS)


# Pictures


def check_image_cursor(text: str) -> tuple[int, str]:
    """Return the time and the name of the last picture on the previous page."""
    match = IMAGE_CURSOR.fullmatch(text)
    if match is None:
        raise FieldError("must be a cursor from X-Next-Cursor")
    return int(match[1]), match[2]


def format_image_cursor(last: Picture) -> str:
    """Return the cursor of the page after a picture."""
    return f"{last.created_at}-{last.name}"


IMAGE_PARAMETERS: Rules = {"limit": Count(1, _MAX_LIMIT), "cursor": check_image_cursor}
IMAGE_DELETION_PARAMETERS: Rules = {"force": parse_bool, "dry_run": parse_bool}


# Writes


def parse_dry_run(query_string: bytes, *, strict: bool) -> bool:
    """Return whether `dry_run=true` is set. Raises like `parse_list`."""
    if not query_string:
        return False
    return bool(parse(query_string, WRITE_PARAMETERS, strict=strict).get("dry_run", False))
