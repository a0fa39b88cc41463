"""Convert between bytes and the model: parse requests and build responses."""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import TypeVar
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from listings.domain import fields
from listings.domain.changes import (
    CHANGES_BEGIN,
    Change,
    ChangeActor,
    ChangeEncoder,
    GroupPage,
    ListingChangePage,
    build_group_record,
)
from listings.domain.errors import STATUS, Code, Problem
from listings.domain.faults import list_faults, reject
from listings.domain.history import ChangeGroup
from listings.domain.listing_json import NO_EXTRA_FIELDS, build_record, decode_object
from listings.domain.listings import MAX_COUNTED, AddResult
from listings.domain.model import Listing, ListingChange, NewListing
from listings.domain.rate_limiter import RateLimitDecision
from listings.http.asgi import BodyStream
from listings.service.listings.steps import StateCondition, Version, WriteOptions

T = TypeVar("T")

LISTINGS_PATH = "/api/v1/listings"
REVERTS_PATH = "/api/v1/changes/reverts"

_OWN_ID = re.compile(r"[A-Za-z]{2}.*[0-9_-]|[0-9_-].*[A-Za-z]{2}")
_VERSION = re.compile(r'(?:W/)?"([0-9a-f]*)v([0-9]{1,18})[.-][^"]*"')
_STATE = re.compile(r'(?:W/)?"([0-9a-f]*)s([0-9]{1,18})\.([0-9]{1,18})(?:-[^"]*)?"')
_TAG = re.compile(r'(?:W/)?"[^"]*"')
_TAGS = re.compile(rf"\*|[ \t,]*{_TAG.pattern}(?:[ \t]*,[ \t,]*{_TAG.pattern})*[ \t,]*")
CHANGE_GROUP: re.Pattern[str] = re.compile(r'[!"$-~][!-~]{0,63}')
_IDEMPOTENCY_KEY = re.compile(r'"([\x20-\x7e]{1,255})"|([\x20-\x21\x23-\x7e][\x20-\x7e]{0,254})')
DETAILED = "preference-applied: errors=detailed\r\n"
REPLAYED = b"idempotent-replayed: true\r\n"
_MAX_NAMES = 20  # in X-Ignored-Fields and X-Ignored-Parameters
_MAX_NAME_LENGTH = 100
_MAX_NAMES_LENGTH = 4000  # all names together; proxies reject longer headers
_MAX_ENCODED = 200  # changes encoded at a time: about 1 ms

encode = msgspec.json.Encoder().encode


JSON = b"application/json; charset=utf-8"
_HEAD = b"content-type: %b\r\nx-content-type-options: nosniff\r\ncontent-length: %d\r\n%b"
_HEAD_WITHOUT_BODY = b"x-content-type-options: nosniff\r\n%b"
_NO_STORE = b"cache-control: no-store\r\n"
_REVALIDATE = b"cache-control: private, no-cache\r\netag: %b\r\n"
_NOT_MODIFIED = 304


class Response(msgspec.Struct, frozen=True):
    """A response without the headers common to all responses. `headers` are lines that each end with CR LF.

    With an entity tag, the client may cache the response and must revalidate it (decision G35).
    """

    status: int
    body: bytes
    headers: bytes = b""
    code: Code | None = None
    tag: str = ""
    content_type: bytes = JSON
    head: bytes = b""  # the result of `build_head`, if it is known already
    file: BodyStream | None = None  # instead of `body`; released once the response is sent
    cache_key: tuple[int, int, str] | None = None  # account, revision and name if the response is cached
    is_shared: bool = False  # whether the body is one object for all responses, already compressed if need be


def build_head(response: Response) -> bytes:
    """Return the headers that describe the body and its caching. A 304 has no body to describe."""
    caching = _REVALIDATE % response.tag.encode() if response.tag else _NO_STORE
    if response.status == _NOT_MODIFIED:
        return _HEAD_WITHOUT_BODY % caching
    size = len(response.body) if response.file is None else response.file.size
    return _HEAD % (response.content_type, size, caching)


def with_head(response: Response) -> Response:
    """Return the response with its head built, for sending it more than once."""
    return replace(response, head=build_head(response))


class MethodNotAllowed(Problem):
    """The path exists, but does not support the method."""

    def __init__(self, method: str, allowed: str) -> None:
        """`allowed` is the value of the Allow header."""
        super().__init__("method_not_allowed", f"{method[:20]} is not allowed here; use {allowed}")
        self.allowed = allowed


# Responses


def build_json_response(content: object, status: int = 200, headers: bytes = b"") -> Response:
    """Return a response with `content` as JSON."""
    return Response(status, encode(content), headers)


def build_listing_response(listing: Listing, restore_id: str, include: frozenset[str] = NO_EXTRA_FIELDS) -> Response:
    """Return one record with its entity tag."""
    body = encode(build_record(listing, include, restore_id))
    return Response(200, body, tag=format_etag(listing, restore_id, include))


def encode_list(listings: list[Listing], restore_id: str, include: frozenset[str] = NO_EXTRA_FIELDS) -> bytes:
    """Return the body of a list."""
    return encode({"listings": [build_record(listing, include, restore_id) for listing in listings]})


LIST_BEGIN, LIST_END = b'{"listings":[', b"]}"


def encode_records(listings: list[Listing], restore_id: str, include: frozenset[str]) -> bytes:
    """Return a part of the body of a list, between `LIST_BEGIN` and `LIST_END`. Parts have commas between them."""
    return encode([build_record(listing, include, restore_id) for listing in listings])[1:-1]


def format_next_page(url: str, cursor: str) -> bytes:
    """Return the Link to the next page of a list (RFC 8288), and its cursor for generated clients."""
    return f'link: <{url}>; rel="next"\r\nx-next-cursor: {cursor}\r\n'.encode()


def split_changes(changes: Sequence[Change]) -> list[Sequence[Change]]:
    """Return the parts of changes that are each encoded in one step of the event loop."""
    return [changes[start : start + _MAX_ENCODED] for start in range(0, len(changes), _MAX_ENCODED)]


async def build_history_response(page: ListingChangePage, actors: Mapping[int, ChangeActor], before: int) -> Response:
    """Return a page of the history of a listing. Its change sets have ids below `before`."""
    encoder, body = ChangeEncoder(actors), CHANGES_BEGIN
    for part in split_changes(page.changes):
        body += encoder.encode(part)
        await asyncio.sleep(0)
    body += encoder.finish()
    last = page.changes[-1].edit_revision if page.changes else before
    return Response(200, body + b'],"last":%d,"more":%b}' % (last, b"true" if page.more else b"false"))


def build_groups_response(page: GroupPage, actors: Mapping[int, ChangeActor]) -> Response:
    """Return a page of the groups of change sets."""
    records = [build_group_record(one, actors.get(one.actor), page.purged) for one in page.groups]
    last = page.groups[-1].id if page.groups else 0
    return build_json_response({"groups": records, "last": last, "more": page.more})


def format_total(total: int, *, is_exact: bool = False) -> bytes:
    """Return X-Total-Count, how many listings match the filters of a list (decision G53)."""
    return f"x-total-count: {total if is_exact or total <= MAX_COUNTED else f'{MAX_COUNTED}+'}\r\n".encode()


def build_created_response(
    added: AddResult, headers: bytes, base_url: str, restore_id: str, listing: Listing | None = None
) -> Response:
    """Return a 201 with Location and the new id, or the listing if it is given. A replayed response is marked."""
    headers = f"location: {base_url}{LISTINGS_PATH}/{added.listing_id}\r\n".encode() + headers
    if added.replayed:
        headers = REPLAYED + headers
    if listing is None:
        return Response(201, encode(build_created_body(added.listing_id)), headers, tag=format_new_etag(restore_id))
    return replace(build_representation(listing, restore_id, headers), status=201)


def build_created_body(listing_id: int) -> dict[str, object]:
    """Return the body of the response to a create."""
    return {"id": listing_id, "message": "listing created"}


def build_message_response(message: str, headers: bytes = b"", tag: str = "") -> Response:
    """Return a 200 with a message."""
    return Response(200, encode({"message": message}), headers, tag=tag)


def build_representation(listing: Listing, restore_id: str, headers: bytes) -> Response:
    """Return the record of a listing after a write, as the client prefers it (RFC 7240, 4.2)."""
    headers += b"preference-applied: return=representation\r\n"
    return replace(build_listing_response(listing, restore_id), headers=headers)


def format_etag(listing: Listing, restore_id: str, include: frozenset[str] = NO_EXTRA_FIELDS) -> str:
    """Return the entity tag: that of the listing and the included fields (decision G35)."""
    tag = listing.format_etag(restore_id)
    return f'{tag[:-1]}-{"-".join(sorted(include))}"' if include else tag


def format_new_etag(restore_id: str) -> str:
    """Return the entity tag of a new listing."""
    return f'"{restore_id}v1.0"'


def format_state_tag(account_id: int, edit_revision: int, restore_id: str) -> str:
    """Return the account's state tag, the prefix of every list's ETag (decision G48).

    The account is part of it because all accounts share the URL, and a client may use several keys.
    """
    return f'"{restore_id}s{edit_revision}.{account_id}"'


def build_problem_response(
    problem: Problem, decision: RateLimitDecision | None = None, *, detailed: bool = False
) -> Response:
    """Return the error response: {"error": message}, with the code in X-Error-Code (decision G27).

    `detailed` adds the faults of fields (decision G31).
    """
    headers = [f"x-error-code: {problem.code}\r\n"]
    if problem.code == "api_key_required":
        headers.append('www-authenticate: Bearer realm="listings"\r\n')
    elif problem.code == "invalid_api_key":
        headers.append('www-authenticate: Bearer realm="listings", error="invalid_token"\r\n')
    elif problem.code == "rate_limited" and decision is not None:
        headers.append(f"retry-after: {ceil(decision.reset)}\r\n")
    if problem.retry_after:
        headers.append(f"retry-after: {problem.retry_after}\r\n")
    if isinstance(problem, MethodNotAllowed):
        headers.append(f"allow: {problem.allowed}\r\n")
    if detailed:
        headers.append(DETAILED)
    body = encode(build_error_body(problem, detailed=detailed))
    return Response(STATUS[problem.code], body, "".join(headers).encode(), problem.code)


def build_error_body(problem: Problem, *, detailed: bool, parent: str = "") -> dict[str, object]:
    """Return the body of an error. `parent` is the object whose fields the problem names without it."""
    body: dict[str, object] = {"error": f"{parent}{problem.message}"}
    if detailed:
        faults = [fault.within(parent[:-1]) if parent else fault for fault in list_faults(problem)]
        body["errors"] = [fault._asdict() for fault in faults]
    return body


def build_preference_headers(ignored: list[str], *, strict: bool) -> bytes:
    """Return X-Ignored-Fields (decision G6) and Preference-Applied (RFC 7240, 3), if they apply."""
    headers = ""
    if ignored:
        headers = f"x-ignored-fields: {_format_names(ignored)}\r\n"
    if strict:
        headers += "preference-applied: handling=strict\r\n"
    return headers.encode()


def format_ignored_parameters(names: list[str]) -> bytes:
    """Return X-Ignored-Parameters (decision G17)."""
    return f"x-ignored-parameters: {_format_names(names)}\r\n".encode()


def _format_names(ignored: list[str]) -> str:
    names = [quote(name[:_MAX_NAME_LENGTH], safe="") or '""' for name in ignored[:_MAX_NAMES]]
    while sum(map(len, names)) > _MAX_NAMES_LENGTH:
        names.pop()
    return ", ".join(names)


# Requests


def parse_listing_id(segment: str) -> int:
    """Parse the id in a path. Raises Problem("listing_not_found") if it can't be one (decision G19)."""
    listing_id = fields.parse_id(segment)
    if listing_id is None:
        hint = ": ids are integers; find a listing by your own id with ?external_id=" if _OWN_ID.search(segment) else ""
        raise Problem("listing_not_found", f"Listing not found{hint}")
    return listing_id


def match_etag(values: list[str], tags: list[str]) -> str:
    """Return the first of the tags that If-None-Match names, by weak comparison (RFC 9110, 13.1.2), or ""."""
    sent = [tag.strip().removeprefix("W/") for value in values for tag in value.split(",")]
    if "*" in sent and len(sent) > 1:
        _parse_tags(values, "If-None-Match")  # always raises
    return tags[0] if "*" in sent else next((tag for tag in tags if tag in sent), "")


def parse_if_match(values: list[str], name: str = "If-Match") -> frozenset[Version] | None:
    """Return the versions that a header names, or None for any. Unknown tags name none (decision G54).

    Weak tags count as strong ones, because proxies that compress make tags weak. Raises Problem("invalid_request").
    """
    tags = _parse_tags(values, name) if values else None
    if tags is None:
        return None
    matches = (_VERSION.fullmatch(tag) for tag in tags)
    return frozenset(Version(match[1], int(match[2])) for match in matches if match is not None)


def require_match(values: list[str], tag: str) -> None:
    """Check If-Match of a read against the tag of a listing. Raises Problem: precondition_failed, invalid_request."""
    restore_id, _, version = tag[1 : tag.index(".")].partition("v")  # of "v2.0"
    WriteOptions(parse_if_match(values)).require_version(Version(restore_id, int(version)))


def parse_state_condition(values: list[str], account_id: int, restore_id: str) -> StateCondition | None:
    """Return the edit revisions of the account that If-Match allows for a batch, or None without If-Match.

    The tag of a list begins with the edit revision.

    Raises Problem("invalid_request").
    """
    if not values:
        return None
    tags = _parse_tags(values, "If-Match")
    if tags is None:
        return StateCondition(None)
    matches = (_STATE.fullmatch(tag) for tag in tags)
    found = [match for match in matches if match is not None and match.group(1, 3) == (restore_id, str(account_id))]
    return StateCondition(frozenset(int(match[2]) for match in found))


def _parse_tags(values: list[str], name: str) -> list[str] | None:
    for value in values:
        if _TAGS.fullmatch(value) is None or (value == "*" and len(values) > 1):
            message = f'{name} must be one or more ETags, each in double quotes as in "v2.0", or *'
            reject(name, "invalid_format", message)
    # None: any
    return None if values == ["*"] else [tag for value in values for tag in _TAG.findall(value)]


def parse_idempotency_key(values: list[str]) -> str | None:
    """Return the Idempotency-Key without quotes, or None (decision G36). Raises Problem("invalid_request")."""
    if not values:
        return None
    key = _IDEMPOTENCY_KEY.fullmatch(values[0])
    if len(values) > 1 or key is None:
        message = "Idempotency-Key must be sent once, with 1 to 255 printable ASCII characters"
        reject("Idempotency-Key", "invalid_format", message)
    return key[1] or key[2]


def parse_change_group(values: list[str]) -> ChangeGroup | None:
    """Return the group of X-Change-Group, or None. Raises Problem("invalid_request")."""
    if not values:
        return None
    if len(values) > 1 or not CHANGE_GROUP.fullmatch(values[0]):
        message = "X-Change-Group must be sent once, with 1 to 64 visible ASCII characters, of which the first is not #"
        reject("X-Change-Group", "invalid_format", message)
    return ChangeGroup(values[0])


def parse_new_listing(body: bytes, *, strict: bool) -> tuple[NewListing, bytes]:
    """Parse the body of a create. Return the listing and the preference headers of the response."""
    return _parse(fields.parse_new_listing, body, strict=strict)


def parse_listing_change(body: bytes, *, strict: bool) -> tuple[ListingChange | Problem, bytes]:
    """Parse the body of an update. Errors are returned, because the listing is checked first (decision G21)."""
    try:
        return _parse(fields.parse_listing_change, body, strict=strict)
    except Problem as problem:
        return problem, b""


def _parse(read: Callable[..., tuple[T, list[str]]], body: bytes, *, strict: bool) -> tuple[T, bytes]:
    content, ignored = read(decode_body(body), strict=strict)
    return content, build_preference_headers(ignored, strict=strict)


def decode_body(body: bytes) -> dict[str, object]:
    """Decode the JSON object of a body. Raises Problem("malformed_json")."""
    if not body:
        raise Problem("malformed_json", "The body must be a JSON object, but it is empty")
    try:
        return decode_object(body)
    except ValueError as error:
        raise Problem("malformed_json", f"The body {error}") from None
