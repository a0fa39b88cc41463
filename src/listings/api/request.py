"""One HTTP request as the API handles it."""

import re
import secrets
from itertools import count
from typing import TYPE_CHECKING

from listings.api import codec, compression
from listings.api.response_cache import ResponseCache
from listings.contract.rate_limiter import RateLimitDecision
from listings.domain.errors import Problem
from listings.domain.model import Caller
from listings.http import accept_encoding
from listings.http.accept_encoding import Encodings
from listings.http.asgi import ClientDisconnectedError, Exchange
from listings.http.large_bodies import LARGE_BODY_BYTES, LargeBodies
from listings.http.yielding_lock import YieldingLock

if TYPE_CHECKING:  # it imports this module
    from listings.api.lists import Lists

MAX_BODY_BYTES = 2 * 1024 * 1024
_MAX_DIGITS = 15  # a longer Content-Length exceeds every limit
_PREFERENCE = re.compile(r'(?:[^,"]|"[^"]*")+')
_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")


class RequestIds:
    """Generates request ids that are unique across processes."""

    def __init__(self) -> None:
        self._prefix = secrets.token_hex(6)
        self._numbers = count(1)

    def next(self) -> str:
        """Return a new id."""
        return self._prefix + format(next(self._numbers), "08x")  # an f-string takes twice as long if compiled


class Request:
    """The parts of a request that checks and handlers need, and their intermediate results."""

    __slots__ = (
        "_exchange",
        "_headers",
        "_repeated",
        "_reserved",
        "body",
        "cache",
        "caller",
        "decision",
        "dry_run_lock",
        "id",
        "lists",
        "method",
        "path",
        "query",
        "route",
        "segment",
    )

    caller: Caller  # set by the checks, if the endpoint needs a key

    def __init__(
        self, exchange: Exchange, ids: RequestIds, cache: ResponseCache, lists: "Lists", dry_run_lock: YieldingLock
    ) -> None:
        """`cache` holds responses that handlers may reuse, and `lists` builds lists."""
        self.cache = cache
        self.lists = lists
        self.dry_run_lock = dry_run_lock
        headers = exchange.headers
        self.method = exchange.method
        self.path = exchange.path
        self.query = exchange.query
        self.route = "-"  # the pattern that matches the path
        self.segment = ""  # the part of the path that matches {id} or {guide}
        self.body = b""
        self.decision: RateLimitDecision | None = None
        self._reserved: tuple[LargeBodies, int, int] | None = None
        self._exchange = exchange
        self._headers = dict(headers)
        self._repeated = headers if len(self._headers) != len(headers) else None
        self.id = self._sent_id() or ids.next()

    def _sent_id(self) -> str | None:
        """Return the client's own request id, if it is valid: 1 to 128 visible ASCII characters."""
        value = self._headers.get(b"x-request-id")
        return value.decode("latin-1") if value is not None and _REQUEST_ID.fullmatch(value) else None

    def header(self, name: bytes) -> str:
        """Return the value of a header without surrounding space; of repeated ones the last, "" if it is missing."""
        value = self._headers.get(name)
        return value.decode("latin-1").strip(" \t") if value is not None else ""

    def header_values(self, name: bytes) -> list[str]:
        """Return the distinct values of a header, without surrounding space and empty values."""
        if self._repeated is None:
            value = self.header(name)
            return [value] if value else []
        values = (value.decode("latin-1").strip(" \t") for header, value in self._repeated if header == name)
        return list(dict.fromkeys(value for value in values if value))

    def read_key(self) -> str | None:
        """Return the API key, or None if there is none (decisions G22, G23).

        Raises Problem("invalid_api_key") for a header that is sent twice with different values.
        """
        values = self.header_values(b"x-api-key")
        if not values:
            values = self.header_values(b"authorization")
            if len(values) == 1:
                scheme, _, key = values[0].partition(" ")
                return key.strip(" \t") if scheme.lower() == "bearer" else None
        if len(values) > 1:
            raise Problem("invalid_api_key", "Invalid API key")
        return values[0] if values else None

    @property
    def names_encodings(self) -> bool:
        """Whether Accept-Encoding is set."""
        return b"accept-encoding" in self._headers

    @property
    def encodings(self) -> Encodings:
        """The encodings of a body that the client accepts."""
        if not self.names_encodings:
            return accept_encoding.PLAIN
        return accept_encoding.parse_accept_encoding(",".join(self.header_values(b"accept-encoding")))

    def find_current_tag(self, tag: str) -> str:
        """Return the tag of the client's copy if that is current and in an encoding that it accepts, otherwise ""."""
        values = self.header_values(b"if-none-match")
        return codec.match_etag(values, compression.build_tags(tag, self.encodings)) if values else ""

    def require_match(self, tag: str) -> None:
        """Raise Problem("precondition_failed") if If-Match does not allow the listing with this tag."""
        if b"if-match" in self._headers:
            codec.require_match(self.header_values(b"if-match"), tag)

    @property
    def strict(self) -> bool:
        """Whether `Prefer: handling=strict` is set."""
        return self._prefers("handling", "strict")

    @property
    def wants_representation(self) -> bool:
        """Whether `Prefer: return=representation` is set."""
        return self._prefers("return", "representation")

    def _prefers(self, name: str, value: str) -> bool:
        """Return whether the first preference of this name has this value (RFC 7240, 2)."""
        if b"prefer" not in self._headers:
            return False
        preferences = map(_normalize, _PREFERENCE.findall(",".join(self.header_values(b"prefer"))))
        return next((each for each in preferences if each.startswith(f"{name}=")), "") == f"{name}={value}"

    async def read_body(self, max_bytes: int, large_bodies: LargeBodies) -> bool:
        """Read the whole body, of at most `max_bytes`, into `body`. Return whether the client had not sent it yet.

        Call `release_body` when the request is processed.

        Raises Problem: unsupported_encoding, body_too_large, invalid_request; Unavailable; ClientDisconnectedError.
        """
        if any(value.lower() != "identity" for value in self.header_values(b"content-encoding")):
            raise Problem("unsupported_encoding", "Content-Encoding must be identity: send the body uncompressed")
        body = self._exchange.get_body()
        has_waited = body is None
        if body is None or len(body) > max_bytes:
            body = await self._receive_body(max_bytes, large_bodies)
        if len(body) > LARGE_BODY_BYTES:
            await large_bodies.wait_and_check(body)
        self.body = body
        return has_waited

    async def _receive_body(self, max_bytes: int, large_bodies: LargeBodies) -> bytes:
        declared = self._parse_length(max_bytes)
        expected = declared or max_bytes
        chunks, size, more = [], 0, True
        while more:
            if self._reserved is None and (expected if declared else size) > LARGE_BODY_BYTES:
                self._reserve(large_bodies, expected)
            chunk, more = await self._receive_chunk()
            chunks.append(chunk)
            size += len(chunk)
            if size > max_bytes:
                raise _too_large(max_bytes)
        return b"".join(chunks)

    def _parse_length(self, max_bytes: int) -> int:
        """Return Content-Length, or 0 without it. Raises Problem("body_too_large")."""
        declared = self.header(b"content-length").lstrip("0")
        if len(declared) > _MAX_DIGITS or (declared and int(declared) > max_bytes):
            raise _too_large(max_bytes)
        return int(declared) if declared else 0

    def _reserve(self, large_bodies: LargeBodies, size: int) -> None:
        owner = self.caller.key_id
        large_bodies.reserve(owner, size)
        self._reserved = large_bodies, owner, size

    def release_body(self) -> None:
        """Release the memory that was reserved for the body."""
        if self._reserved is not None:
            large_bodies, owner, size = self._reserved
            self._reserved = None
            large_bodies.release(owner, size)

    async def skip_body(self, max_bytes: int) -> bool:
        """Discard a body that the endpoint does not use. Return whether there was one. Raises ClientDisconnectedError.

        For GET and HEAD, the connection discards the rest above `max_bytes`. For a write, raises
        Problem("body_too_large"): a request that may be incomplete must change nothing.
        """
        more = self.header(b"content-length") not in {"", "0"} or b"transfer-encoding" in self._headers
        if not more:
            return False
        is_write = self.method not in {"GET", "HEAD"}
        if is_write:
            self._parse_length(max_bytes)
        size = 0
        while more and size <= max_bytes:
            chunk, more = await self._receive_chunk()
            size += len(chunk)
        if is_write and size > max_bytes:
            raise _too_large(max_bytes)
        return True

    async def wait_for_close(self) -> None:
        """Wait until the client disconnects, or the response should be sent soon. Call it after the body was read."""
        await self._exchange.wait_for_close()

    async def _receive_chunk(self) -> tuple[bytes, bool]:
        message = await self._exchange.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnectedError
        return message.get("body", b""), message.get("more_body", False)


def _too_large(max_bytes: int) -> Problem:
    return Problem("body_too_large", f"The body must be at most {max_bytes} bytes")


def _normalize(preference: str) -> str:
    """Remove parameters, space and quotes, and lowercase."""
    return preference.partition(";")[0].replace(" ", "").replace("\t", "").replace('"', "").lower()
