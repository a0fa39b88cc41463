"""The operations of the API, as generators that both clients drive."""

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, Unpack

from listings_client import core
from listings_client.core import Call, Emit, Emits, Lost, Options, Pause, Read, Reply, Steps
from listings_client.errors import NoResponseError, NotFoundError, StaleError
from listings_client.records import (
    FIELD_NAMES,
    BatchResult,
    ChangeGroup,
    ChangeSet,
    Filters,
    Image,
    KeyInfo,
    Listing,
    ListingFields,
    RateLimit,
    Record,
    Revert,
    convert,
)

R = TypeVar("R", bound=Record)
Operation: TypeAlias = Mapping[str, Any]  # a write of a batch, from one of the first functions below
Query: TypeAlias = list[tuple[str, str]]
Bodies: TypeAlias = Sequence[Mapping[str, Any]]

LISTINGS = "/api/v1/listings"
CHANGES = "/api/v1/changes"
MAX_OPERATIONS, MAX_BATCH_BYTES = 100, 1024 * 1024
_INCLUDE = ("include", "all,deleted_at,external_id,etag")
_PAGE = 1000
_POLL_SECONDS, _GATHER_SECONDS = 30, 5
_REVERT_WAIT = 1.0  # seconds between two requests for the state of a revert
_HIDDEN = ("district", "latitude", "longitude", "external_id")
_CLEARED = {"images": (), "price": 0, "price_type": "fixed", **dict.fromkeys(_HIDDEN[1:])}
_RECORD = {"Prefer": "return=representation, errors=detailed"}


def create(**fields: Any) -> Operation:  # noqa: ANN401 - the fields of a listing
    """Return the operation that creates a listing."""
    return {"op": "create", "listing": to_json(fields)}


def put(external_id: str, /, **fields: Any) -> Operation:  # noqa: ANN401 - the fields of a listing
    """Return the operation that creates the listing with an external id, or updates it."""
    return {"op": "put", "listing": to_json({**fields, "external_id": external_id})}


def update(listing: Listing | int | str, **changes: Any) -> Operation:  # noqa: ANN401 - the fields of a listing
    """Return the operation that updates a listing: a record (if it is unchanged), an id, or an external id."""
    return {"op": "update", **_name(listing), "changes": to_json(changes)}


def delete(listing: Listing | int | str) -> Operation:
    """Return the operation that deletes a listing: a record (if it is unchanged), an id, or an external id."""
    return {"op": "delete", **_name(listing)}


def restore(listing: Listing | int) -> Operation:
    """Return the operation that restores a deleted listing."""
    return {"op": "restore", "id": get_id(listing)}


def _name(listing: Listing | int | str) -> dict[str, Any]:
    if isinstance(listing, Listing):
        return {"id": listing.id, "if_match": listing.etag} if listing.etag else {"id": listing.id}
    return {"id": listing} if isinstance(listing, int) else {"external_id": listing}


def get_id(listing: Listing | int) -> int:
    """Return the id of a listing."""
    return listing.id if isinstance(listing, Listing) else listing


def to_json(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of a listing for a request. Raises TypeError for an unknown one."""
    unknown = next((name for name in given if name not in FIELD_NAMES), None)
    if unknown is not None:
        raise TypeError(f"{unknown} is not a field of a listing that can be set")
    return given


def encode(value: object) -> bytes:
    """Return JSON. Equal values have equal bytes, which a repetition with an Idempotency-Key needs.

    Raises ValueError for a Decimal that is not exact as a number.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_encode_other)
    return text.encode("utf-8", "surrogatepass")


def _encode_other(value: Any) -> Any:  # noqa: ANN401 - what json does not know
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    if isinstance(value, Decimal):
        if Decimal(repr(float(value))) != value:
            raise ValueError(f"{value} has more digits than a price can have")
        return float(value)
    return {one.name: getattr(value, one.name) for one in fields(value)} if is_dataclass(value) else list(value)


def decode(content: bytes) -> Any:  # noqa: ANN401 - JSON
    """Decode a body, with Decimal for numbers that have a fraction."""
    return json.loads(content, parse_float=Decimal)


def format_time(time: datetime) -> str:
    """Format a time for the API. A naive one is in UTC."""
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def build_query(parameters: Mapping[str, Any]) -> Query:
    """Return the query of a request. None adds nothing; ids are joined; other sequences are repeated."""
    query: Query = []
    for name, value in parameters.items():
        if name == "ids":
            query.append((name, ",".join(map(str, value))))
        elif isinstance(value, datetime):
            query.append((name, format_time(value)))
        elif isinstance(value, bool):
            query.append((name, str(value).lower()))
        elif isinstance(value, str) or not isinstance(value, Sequence):
            query += [] if value is None else [(name, str(value))]
        else:
            query += [(name, str(each)) for each in value]
    return query


def read_listing(options: Options, listing: Listing | int) -> Steps[Listing]:
    """Return a listing."""
    reply = yield from core.read(options, Call("GET", f"{LISTINGS}/{get_id(listing)}", [_INCLUDE]))
    return Listing.from_json(decode(reply.content))


def list_listings(options: Options, *, page_size: int = 1000, **filters: Unpack[Filters]) -> Emits[Listing]:
    """Yield your listings, by default the active ones, the newest first."""
    query = build_query({**filters, "limit": page_size})
    cursor: str | None = ""
    while cursor is not None:
        place = [("cursor", cursor)] if cursor else []
        reply = yield from core.read(options, Call("GET", LISTINGS, [*query, *place, _INCLUDE]))
        yield Emit([Listing.from_json(one) for one in decode(reply.content)["listings"]])
        cursor = reply.headers.get("x-next-cursor")


def stream_listings(options: Options, **filters: Unpack[Filters]) -> Emits[Listing]:
    """Yield your listings by id, from one request, which is read as it arrives.

    If the connection is lost, the list is requested again, and the listings that were yielded are skipped.
    """
    call = Call("GET", LISTINGS, [*build_query({**filters, "sort": "id"}), _INCLUDE], is_stream=True)
    last, failures, tag = 0, 0, ""
    while True:
        reply = yield from core.send(options, call)
        tag = tag or reply.headers.get("etag", "")  # the result of the generator
        buffer = _Listings()
        outcome = yield Read(reply)
        while isinstance(outcome, bytes) and outcome:
            found = [one for one in map(Listing.from_json, buffer.add(outcome)) if one.id > last]
            if found:
                last, failures = found[-1].id, 0
                yield Emit(found)
            outcome = yield Read(reply)
        if buffer.is_complete:
            return tag
        failures += 1
        error = NoResponseError(f"The list was cut off: {outcome.reason if isinstance(outcome, Lost) else 'no end'}")
        if failures > 5:  # noqa: PLR2004 - attempts without a single new listing
            raise error
        yield Pause(core.choose_delay(error, failures), str(error))


class _Listings:
    """Decodes the records of a list that arrives in pieces."""

    def __init__(self) -> None:
        self.is_complete = False
        self._bytes = b""
        self._text = ""
        self._has_begun = False
        self._decoder = json.JSONDecoder(parse_float=Decimal)

    def add(self, piece: bytes) -> Iterator[dict[str, Any]]:
        """Yield the records that are complete now."""
        self._bytes += piece
        end = max(self._bytes.rfind(b"}"), self._bytes.rfind(b"]")) + 1  # a character is never cut there
        self._text, self._bytes = self._text + self._bytes[:end].decode(), self._bytes[end:]
        position = 0
        if not self._has_begun:
            position = self._text.find("[") + 1
            self._has_begun = position > 0
        while self._has_begun:
            while self._text[position : position + 1] in {",", " ", "\n"}:
                position += 1
            if self._text[position : position + 1] == "]":
                self.is_complete = True
                break
            try:
                record, position = self._decoder.raw_decode(self._text, position)
            except ValueError:  # incomplete
                break
            yield record
        self._text = self._text[position:]


def create_listing(
    options: Options, *, idempotency_key: str | None = None, **fields: Unpack[ListingFields]
) -> Steps[Listing]:
    """Create a listing, and return it."""
    headers = {**_write(options), **_RECORD, "Idempotency-Key": idempotency_key or str(uuid.uuid4())}
    reply = yield from core.send(options, Call("POST", LISTINGS, content=encode(to_json(fields)), headers=headers))
    body = decode(reply.content)
    if "idempotent-replayed" in reply.headers or "title" not in body:  # it may have been edited since
        return (yield from read_listing(options, body["id"]))
    return _complete(body, reply, fields)


def _complete(body: Mapping[str, Any], reply: Reply, fields: Mapping[str, Any]) -> Listing:
    """Return the record of a write, with the fields that only a request with `include` returns."""
    hidden = {name: _predict(name, fields[name]) for name in _HIDDEN if name in fields}
    return replace(Listing.from_json(body), **hidden, etag=reply.headers.get("etag", ""))


def _predict(name: str, value: Any) -> Any:  # noqa: ANN401 - any field
    """Return the value that a listing has after a field was set. None clears it."""
    return convert(name, _CLEARED.get(name, "") if value is None else value)


def _write(options: Options) -> dict[str, str]:
    """Return the header of every write that can belong to a group."""
    return {} if options.change_group is None else {"X-Change-Group": options.change_group}


def update_listing(options: Options, listing: Listing | int, **changes: Unpack[ListingFields]) -> Steps[Listing]:
    """Update fields, and return the listing. Raises StaleError if a record was edited since."""
    path, sent = f"{LISTINGS}/{get_id(listing)}", to_json(changes)
    match = {"If-Match": listing.etag} if isinstance(listing, Listing) and listing.etag else {}
    call = Call("PATCH", path, content=encode(sent), headers={**_write(options), **_RECORD, **match})
    try:
        reply = yield from core.send(options, call)
    except StaleError as error:
        if not error.may_have_applied:
            raise
        current = yield from read_listing(options, listing)  # the first attempt may be the edit that changed it
        if any(getattr(current, name) != _predict(name, value) for name, value in changes.items()):
            raise
        return current
    body = decode(reply.content)
    if isinstance(listing, int) or not listing.etag or "title" not in body:
        return (yield from read_listing(options, listing))
    return _complete(body, reply, {**{name: getattr(listing, name) for name in _HIDDEN}, **changes})


def delete_listing(options: Options, listing: Listing | int) -> Steps[None]:
    """Delete a listing. Raises StaleError if a record was edited since."""
    match = {"If-Match": listing.etag} if isinstance(listing, Listing) and listing.etag else {}
    call = Call("DELETE", f"{LISTINGS}/{get_id(listing)}", headers={**_write(options), **match})
    try:
        yield from core.send(options, call)
    except NotFoundError as error:
        if not error.may_have_applied:
            raise


def restore_listing(options: Options, listing: Listing | int) -> Steps[Listing]:
    """Restore a deleted listing, and return it. It is paused."""
    yield from core.send(options, Call("POST", f"{LISTINGS}/{get_id(listing)}/restore", headers=_write(options)))
    return (yield from read_listing(options, listing))


def put_listing(options: Options, external_id: str, /, **fields: Unpack[ListingFields]) -> Steps[BatchResult]:
    """Create the listing with your external id, or update it. `op` of the result says which."""
    return (yield from run_batch(options, [put(external_id, **fields)]))[0]


def run_batch(
    options: Options, writes: Iterable[Operation], *, dry_run: bool = False, idempotency_key: str | None = None
) -> Steps[list[BatchResult]]:
    """Run any number of writes, in requests of 100. Check `ok` of each result."""
    base = idempotency_key or str(uuid.uuid4())
    results: list[BatchResult] = []
    for number, bodies in enumerate(split(list(writes))):
        results += yield from send_batch(options, bodies, f"{base}-{number}", dry_run=dry_run)
    return results


def split(bodies: Bodies) -> Iterator[Bodies]:
    """Split the operations of a batch at 100 operations or 1 MiB. The same ones are always split alike."""
    start, size = 0, 0
    for number, body in enumerate(bodies):
        length = len(encode(body)) + 1
        if number > start and (number - start == MAX_OPERATIONS or size + length > MAX_BATCH_BYTES):
            yield bodies[start:number]
            start, size = number, 0
        size += length
    if start < len(bodies):
        yield bodies[start:]


def send_batch(
    options: Options, bodies: Bodies, key: str, *, dry_run: bool = False, if_match: str | None = None
) -> Steps[list[BatchResult]]:
    """Send one batch of at most 100 operations. Raises ListingsError."""
    headers = {**_write(options), "Idempotency-Key": key, **({"If-Match": if_match} if if_match else {})}
    query = [("dry_run", "true")] if dry_run else []
    content = encode({"operations": bodies})
    reply = yield from core.send(options, Call("POST", f"{LISTINGS}/batch", query, content, headers))
    return [BatchResult.from_json(one) for one in decode(reply.content)["results"]]


def read_last_change(options: Options) -> Steps[int]:
    """Return the id of the last change set."""
    reply = yield from core.send(options, Call("GET", CHANGES, [("limit", "0")]))
    return int(decode(reply.content)["last"])


def list_changes(
    options: Options, after: int | None = None, *, until: datetime | None = None, follow: bool = False
) -> Emits[ChangeSet]:
    """Yield the change sets after an id, or after now. With `follow`, wait for those to come, for ever."""
    last = after if after is not None else (yield from read_last_change(options))
    gather, more = 0, True
    while more or follow:
        query = build_query({"after": last, "limit": _PAGE, "until": until})
        if follow:
            query += [("timeout", str(_POLL_SECONDS)), ("gather", str(gather))]
        wait = float(_POLL_SECONDS) if follow else 0.0
        reply = yield from core.send(options, Call("GET", CHANGES, query, patient=follow, wait=wait))
        page = decode(reply.content)
        yield Emit([ChangeSet.from_json(one) for one in page["change_sets"]])
        last, more = page["last"], page["more"]
        gather = _GATHER_SECONDS if page["change_sets"] and not more else 0


def list_history(options: Options, listing: Listing | int) -> Emits[ChangeSet]:
    """Yield the change sets of a listing, the newest first."""
    return _list_pages(options, f"{LISTINGS}/{get_id(listing)}/changes", "change_sets", ChangeSet)


def list_groups(options: Options) -> Emits[ChangeGroup]:
    """Yield imports, bulk actions, named groups and reverts, the newest first."""
    return _list_pages(options, f"{CHANGES}/groups", "groups", ChangeGroup)


def _list_pages(options: Options, path: str, name: str, kind: type[R]) -> Emits[R]:
    query: Query = [("limit", str(_PAGE))]
    more = True
    while more:
        reply = yield from core.send(options, Call("GET", path, query))
        page = decode(reply.content)
        yield Emit([kind.from_json(one) for one in page[name]])
        query, more = [("limit", str(_PAGE)), ("before", str(page["last"]))], page["more"]


def revert_changes(
    options: Options, /, *, dry_run: bool = False, idempotency_key: str | None = None, **what: object
) -> Steps[Revert]:
    """Undo `change=`, `group=`, `revert=`, or `key=` with `since=`; `overwrite=True` also undoes later changes.

    Wait for the end, and return the revert with all conflicts.
    """
    body = {name: format_time(value) if isinstance(value, datetime) else value for name, value in what.items()}
    headers = {"Idempotency-Key": idempotency_key or str(uuid.uuid4())}
    query = [("dry_run", "true")] if dry_run else []
    reply = yield from core.send(options, Call("POST", f"{CHANGES}/revert", query, encode(body), headers))
    page = decode(reply.content)
    path = f"{CHANGES}/reverts/{page['id']}"
    while page["status"] == "running":
        yield Pause(float(reply.headers.get("retry-after", _REVERT_WAIT)), "the revert is running")
        reply = yield from core.send(options, Call("GET", path))
        page = decode(reply.content)
    conflicts = page["conflicts"]
    while page["more"] and not dry_run:
        reply = yield from core.send(options, Call("GET", path, [("after", str(page["last"])), ("limit", str(_PAGE))]))
        page = decode(reply.content)
        conflicts = conflicts + page["conflicts"]
    return Revert.from_json({**page, "conflicts": conflicts})


def upload_image(options: Options, picture: bytes | Path) -> Steps[Image]:
    """Upload a JPEG, PNG or WebP, and return its URL, for `images` of listings. The same file has the same URL."""
    content = picture if isinstance(picture, bytes) else picture.read_bytes()
    reply = yield from core.send(options, Call("POST", "/api/v1/images", content=content))
    return Image.from_json(decode(reply.content))


def read_key(options: Options) -> Steps[KeyInfo]:
    """Return the key that is sent, and the size of its account."""
    reply = yield from core.send(options, Call("GET", "/api/v1/key"))
    return KeyInfo.from_json(decode(reply.content))


def read_account(options: Options) -> Steps[str]:
    """Return what names the account of the key, in one request or none: mode, URL and number."""
    if not options.account:
        key = yield from read_key(options)
        options.account = f"{key.mode} {options.base_url} account {key.account_id}"
    return options.account


def read_rate_limit(options: Options) -> Steps[RateLimit]:
    """Return the rate limit of the key. This does not count."""
    reply = yield from core.send(options, Call("GET", "/api/v1/rate_limit"))
    return RateLimit.from_json(decode(reply.content))
