"""Between bytes and the model: bodies to listings, listings and problems to answers."""

import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from math import ceil
from typing import NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from listings.contract.listings import AddResult
from listings.contract.rate_limiter import RateLimitDecision
from listings.domain import fields
from listings.domain.errors import Code, Problem, Unavailable
from listings.domain.listing_json import NO_EXTRA_FIELDS, build_record, decode_object
from listings.domain.model import Listing, ListingChange, NewListing

T = TypeVar("T")

LISTINGS_PATH = "/api/v1/listings"
STATUS: Mapping[Code, int] = {
    "invalid_request": 400,
    "malformed_json": 400,
    "malformed_request": 400,
    "api_key_required": 401,
    "invalid_api_key": 401,
    "not_owner": 403,
    "plan_expired": 403,
    "account_disabled": 403,
    "listing_not_found": 404,
    "path_not_found": 404,
    "method_not_allowed": 405,
    "request_timeout": 408,
    "precondition_failed": 412,
    "body_too_large": 413,
    "uri_too_long": 414,
    "unsupported_encoding": 415,
    "idempotency_key_reused": 422,
    "dependency_failed": 424,
    "rate_limited": 429,
    "header_too_large": 431,
    "internal_error": 500,
    "unavailable": 503,
    "version_not_supported": 505,
}

_ID = re.compile(r"[1-9][0-9]{0,18}")
LARGEST_ID = 2**63 - 1
_VERSION = re.compile(r'"v([0-9]{1,18})[.-][^"]*"')
_IDEMPOTENCY_KEY = re.compile(r'"([\x20-\x7e]{1,255})"|([\x20-\x21\x23-\x7e][\x20-\x7e]{0,254})')
REPLAYED = b"idempotent-replayed: true\r\n"
_MOST_NAMED = 20
_LONGEST_NAMED = 100
_LONGEST_LINE = 4000

encode = msgspec.json.Encoder().encode


JSON = b"application/json; charset=utf-8"
_HEAD = b"content-type: %b\r\nx-content-type-options: nosniff\r\ncontent-length: %d\r\n%b"
_HEAD_OF_NO_BODY = b"x-content-type-options: nosniff\r\n%b"
_NOT_KEPT = b"cache-control: no-store\r\n"
_KEPT = b"cache-control: private, no-cache\r\netag: %b\r\n"
_NOT_MODIFIED = 304


class Response(NamedTuple):
    """A response but for the headers that every response has; `headers` are lines, each ended with CR LF.

    One with an entity tag may be kept by its receiver, who has to ask whether it still holds (decision G35).
    """

    status: int
    body: bytes
    headers: bytes = b""
    code: Code | None = None
    tag: str = ""
    kind: bytes = JSON  # the value of Content-Type
    head: bytes = b""  # what `head_of` makes of it, where that was made before


def head_of(answer: Response) -> bytes:
    """The headers that tell the body; an answer that is not modified tells nothing of a body that it hasn't."""
    kept = _KEPT % answer.tag.encode() if answer.tag else _NOT_KEPT
    if answer.status == _NOT_MODIFIED:
        return _HEAD_OF_NO_BODY % kept
    return _HEAD % (answer.kind, len(answer.body), kept)


def ready(answer: Response) -> Response:
    """The same, to be sent more than once."""
    return answer._replace(head=head_of(answer))


class MethodNotAllowed(Problem):
    """A known path, but not by this method."""

    def __init__(self, method: str, allowed: str) -> None:
        """`allowed` is the value of the Allow header."""
        super().__init__("method_not_allowed", f"{method[:20]} is not possible here, only {allowed}")
        self.allowed = allowed


# Answers


def answer(content: object, status: int = 200, headers: bytes = b"") -> Response:
    """Any content as a JSON answer."""
    return Response(status, encode(content), headers)


def listing_response(listing: Listing, include: frozenset[str] = NO_EXTRA_FIELDS) -> Response:
    """One record, under its tag."""
    return Response(200, encode(build_record(listing, include)), tag=tag_of(listing, include))


def list_body(found: list[Listing], include: frozenset[str] = NO_EXTRA_FIELDS) -> bytes:
    """The records of a list."""
    return encode({"listings": [build_record(listing, include) for listing in found]})


def page_response(found: list[Listing], include: frozenset[str], tag: str, next_address: str) -> Response:
    """The records of a list, and where the next page is (RFC 8288); "": nowhere."""
    body = list_body(found, include)
    return Response(200, body, f'link: <{next_address}>; rel="next"\r\n'.encode() if next_address else b"", tag=tag)


def not_modified_response(tag: str) -> Response:
    """304: what the client has still holds (RFC 9110, 15.4.5)."""
    return Response(304, b"", tag=tag)


def created_response(added: AddResult, headers: bytes) -> Response:
    """201 with the new id, and where it is; an answer that is repeated says so."""
    location = f"location: {LISTINGS_PATH}/{added.listing_id}\r\n".encode()
    replayed = REPLAYED if added.replayed else b""
    return answer(created_body(added.listing_id), 201, location + replayed + headers)


def created_body(listing_id: int) -> dict[str, object]:
    """What a create is answered."""
    return {"id": listing_id, "message": "listing created"}


def message_response(message: str, headers: bytes = b"", tag: str = "") -> Response:
    """200 with a message."""
    return Response(200, encode({"message": message}), headers, tag=tag)


def tag_of(listing: Listing, include: frozenset[str] = NO_EXTRA_FIELDS) -> str:
    """A listing's entity tag: its version, its views, and what was added to it (decision G35)."""
    more = "-".join(["", *sorted(include)]) if include else ""
    return f'"v{listing.version}.{listing.view_count}{more}"'


def problem_response(problem: Problem, verdict: RateLimitDecision | None = None) -> Response:
    """The one shape of every refusal: {"error": text}, its code in X-Error-Code (decision G27)."""
    headers = [f"x-error-code: {problem.code}\r\n"]
    if problem.code == "api_key_required":
        headers.append('www-authenticate: Bearer realm="listings"\r\n')
    elif problem.code == "invalid_api_key":
        headers.append('www-authenticate: Bearer realm="listings", error="invalid_token"\r\n')
    elif problem.code == "rate_limited" and verdict is not None:
        headers.append(f"retry-after: {ceil(verdict.reset)}\r\n")
    if isinstance(problem, Unavailable):
        headers.append(f"retry-after: {problem.retry_after}\r\n")
    if isinstance(problem, MethodNotAllowed):
        headers.append(f"allow: {problem.allowed}\r\n")
    body = encode({"error": problem.message})
    return Response(STATUS[problem.code], body, "".join(headers).encode(), problem.code)


def status_line(status: int) -> bytes:
    """The first line of an answer."""
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode()


def preference_headers(ignored: list[str], *, strict: bool) -> bytes:
    """Which keys of the body were ignored (decision G6), and that a preference was followed (RFC 7240, 3)."""
    headers = ""
    if ignored:
        headers = f"x-ignored-fields: {_named(ignored)}\r\n"
    if strict:
        headers += "preference-applied: handling=strict\r\n"
    return headers.encode()


def _named(ignored: list[str]) -> str:
    """The first 20 names, percent-encoded, and not so many that the line would be too long for a proxy."""
    names = [quote(name[:_LONGEST_NAMED], safe="") or '""' for name in ignored[:_MOST_NAMED]]
    while sum(map(len, names)) > _LONGEST_LINE:
        names.pop()
    return ", ".join(names)


# Requests


def listing_id(segment: str) -> int:
    """The id that stands in a path. Raises Problem("listing_not_found") for what can't be one (decision G19)."""
    if _ID.fullmatch(segment) is None or int(segment) > LARGEST_ID:
        raise Problem("listing_not_found", "Listing not found")
    return int(segment)


def is_current(sent: list[str], tag: str) -> bool:
    """Whether If-None-Match names this tag, by weak comparison (RFC 9110, 13.1.2)."""
    return bool(sent) and any(other in {"*", tag} for other in _tags(sent))


def versions_of(sent: list[str]) -> frozenset[int] | None:
    """The versions that If-Match allows; None: any. What is no tag of ours allows none (decision G35).

    A weak tag is taken as well, since compressing proxies make ours weak.
    """
    tags = _tags(sent)
    if not tags or "*" in tags:
        return None
    matches = (_VERSION.fullmatch(tag) for tag in tags)
    return frozenset(int(match[1]) for match in matches if match is not None)


def _tags(sent: list[str]) -> list[str]:
    return [tag.strip().removeprefix("W/") for value in sent for tag in value.split(",")]


def idempotency_key(sent: list[str]) -> str | None:
    """The key of Idempotency-Key, quoted or bare (decision G36). Raises Problem("invalid_request")."""
    if not sent:
        return None
    key = _IDEMPOTENCY_KEY.fullmatch(sent[0])
    if len(sent) > 1 or key is None:
        raise Problem("invalid_request", "Idempotency-Key must stand once and have 1 to 255 visible ASCII characters")
    return key[1] or key[2]


def new_listing(body: bytes, *, strict: bool) -> tuple[NewListing, bytes]:
    """What a create's body describes, and the headers that tell how it was taken."""
    return _read(fields.parse_new_listing, body, strict=strict)


def listing_change(body: bytes, *, strict: bool) -> tuple[ListingChange | Problem, bytes]:
    """What an update's body describes; its faults are carried along, since the listing is judged first (G21)."""
    try:
        return _read(fields.parse_listing_change, body, strict=strict)
    except Problem as problem:
        return problem, b""


def _read(
    read: Callable[..., tuple[T, list[str]]],
    body: bytes,
    *,
    strict: bool,
) -> tuple[T, bytes]:
    content, ignored = read(decode_body(body), strict=strict)
    return content, preference_headers([] if strict else ignored, strict=strict)


def decode_body(body: bytes) -> dict[str, object]:
    """The JSON object of a body. Raises Problem("malformed_json")."""
    if not body:
        raise Problem("malformed_json", "The body must be a JSON object, but it is empty")
    try:
        return decode_object(body)
    except ValueError as fault:
        raise Problem("malformed_json", f"The body {fault}") from None
