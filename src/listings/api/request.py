"""One HTTP request as the API handles it."""

import re
import secrets
from itertools import count
from typing import IO

from listings.api import codec, compression
from listings.api.lists import Lists
from listings.api.response_cache import ResponseCache
from listings.domain.errors import Problem, Unavailable
from listings.domain.model import Caller, Listing
from listings.domain.rate_limiter import RateLimitDecision
from listings.http import accept_encoding
from listings.http.accept_encoding import Encodings
from listings.http.asgi import LARGE_RESPONSE_BYTES, ClientDisconnectedError, Exchange
from listings.http.large_bodies import LARGE_BODY_BYTES, LargeBodies, ReceivedBody, Upload
from listings.queues import FairQueue
from listings.service.pictures import MAX_PICTURE_BYTES

MAX_BODY_BYTES = 2 * 1024 * 1024
_MAX_ESCAPED_BYTES = 6  # for a code point in JSON
_MAX_DIGITS = 15  # a longer Content-Length exceeds every limit
_PREFERENCE = re.compile(r'(?:[^,"]|"[^"]*")+')
_KEY_IN_QUERY = re.compile(rb"(?:^|&)(?:x[-_])?(?:api[-_]?key|access[-_]token|token|key)=", re.IGNORECASE)
_HOW_TO_SEND = "send it in X-API-Key, or in Authorization after Bearer"
_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")


class RequestIds:
    """Generates request ids that are unique across processes."""

    def __init__(self) -> None:
        self._prefix = secrets.token_hex(6)
        self._numbers = count(1)

    def next(self) -> str:
        return self._prefix + next(self._numbers).to_bytes(5).hex()  # formatting takes twice as long


class Request:
    """The parts of a request that checks and handlers need, and their intermediate results."""

    caller: Caller  # set by the checks, if the endpoint needs a key

    def __init__(
        self, exchange: Exchange, ids: RequestIds, cache: ResponseCache, lists: Lists, dry_runs: FairQueue
    ) -> None:
        """`cache` holds responses that handlers may reuse, and `lists` builds lists."""
        self.cache = cache
        self.lists = lists
        self.dry_runs = dry_runs
        headers = exchange.headers
        self.method = exchange.method
        self.path = exchange.path
        self.query = exchange.query
        self.route = "-"  # the pattern that matches the path
        self.segment = ""  # the part of the path that matches {id} or {guide}
        self.body = b""
        self.upload: IO[bytes] | None = None  # the body of an endpoint that takes an upload
        self.decision: RateLimitDecision | None = None
        self.is_test = False  # whether the key is a test key
        self._received: ReceivedBody | None = None
        self._exchange = exchange
        self._headers = dict(headers)
        self._repeated = headers if len(self._headers) != len(headers) else None
        sent = self._headers.get(b"x-request-id")
        self.id = sent.decode("latin-1") if sent is not None and _REQUEST_ID.fullmatch(sent) else ids.next()

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
                if scheme.lower() != "bearer":
                    raise Problem("api_key_required", f"API key is required: {_HOW_TO_SEND}")
                return key.strip(" \t")
        if len(values) > 1:
            raise Problem("invalid_api_key", "Invalid API key")
        if not values and _KEY_IN_QUERY.search(self.query):
            raise Problem("api_key_required", f"API key is required, but not in the URL: {_HOW_TO_SEND}")
        return values[0] if values else None

    @property
    def has_two_keys(self) -> bool:
        """Whether both headers have a key, of which only X-API-Key counts (decision G22)."""
        return bool(self.header(b"x-api-key") and self.header(b"authorization"))

    @property
    def has_idempotency_key(self) -> bool:
        """Whether Idempotency-Key is set, perhaps to an empty value."""
        return b"idempotency-key" in self._headers

    @property
    def names_encodings(self) -> bool:
        return b"accept-encoding" in self._headers

    @property
    def encodings(self) -> Encodings:
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
        return self._prefers("handling", "strict")

    @property
    def wants_representation(self) -> bool:
        return self._prefers("return", "representation")

    @property
    def wants_details(self) -> bool:
        return self._prefers("errors", "detailed")

    def _prefers(self, name: str, value: str) -> bool:
        if b"prefer" not in self._headers:
            return False
        for preference in _PREFERENCE.findall(",".join(self.header_values(b"prefer"))):
            named = preference.partition(";")[0].replace(" ", "").replace("\t", "").replace('"', "").lower()
            if named.startswith(f"{name}="):  # the first one counts (RFC 7240, 2)
                return bool(named == f"{name}={value}")
        return False

    async def read_body(self, large_bodies: LargeBodies) -> bool:
        """Read the whole body into `body`. Return whether the request had to wait for it.

        Call `release_body` when the request is processed.

        Raises Problem: unsupported_encoding, body_too_large, invalid_request; Unavailable; ClientDisconnectedError.
        """
        self._require_uncompressed()
        part = self._exchange.take_body()
        if not part[1] and len(part[0]) <= LARGE_BODY_BYTES:
            self.body = part[0]
            return False
        self._check_length(MAX_BODY_BYTES)
        received = ReceivedBody(large_bodies, self.caller.account_id, part)
        part = b"", True  # it must not stay in memory while the client stalls
        await self._receive(received, MAX_BODY_BYTES)
        self.body = await large_bodies.read(received)
        return True

    async def receive_upload(self, uploads: LargeBodies) -> bool:
        """Write the whole body to the file `upload`. Otherwise like `read_body`."""
        self._require_uncompressed()
        self._check_length(MAX_PICTURE_BYTES)
        received = Upload(uploads, self.caller.account_id, self._exchange.take_body())
        await self._receive(received, MAX_PICTURE_BYTES)
        self.upload = await received.finish_upload()
        return True

    async def _receive(self, received: ReceivedBody, max_bytes: int) -> None:
        self._received = received
        received.set_limit(max_bytes, _too_large(max_bytes))
        while await received.needs_more():
            received.add(await self._receive_chunk())

    def _require_uncompressed(self) -> None:
        if any(value.lower() != "identity" for value in self.header_values(b"content-encoding")):
            raise Problem("unsupported_encoding", "Content-Encoding must be identity: send the body uncompressed")

    def _check_length(self, max_bytes: int) -> None:
        declared = self.header(b"content-length").lstrip("0")
        if len(declared) > _MAX_DIGITS or (declared and int(declared) > max_bytes):
            raise _too_large(max_bytes)

    def release_body(self) -> None:
        if self._received is not None:
            self._received.release()
            self._received = self.upload = None
            self.body = b""

    async def skip_body(self) -> bool:
        """Discard a body that the endpoint does not use. Return whether there was one. Raises ClientDisconnectedError.

        For GET and HEAD, the connection discards the rest of one that is too large. For a write, raises
        Problem("body_too_large"): a request that may be incomplete must change nothing.
        """
        more = self.header(b"content-length") not in {"", "0"} or b"transfer-encoding" in self._headers
        if not more:
            return False
        is_write = self.method not in {"GET", "HEAD"}
        if is_write:
            self._check_length(MAX_BODY_BYTES)
        size = 0
        while more and size <= MAX_BODY_BYTES:
            chunk, more = await self._receive_chunk()
            size += len(chunk)
        if is_write and size > MAX_BODY_BYTES:
            raise _too_large(MAX_BODY_BYTES)
        return True

    def has_room(self, listing: Listing) -> bool:
        """Return whether a response may contain the listing. If so, memory for it is reserved."""
        size = _MAX_ESCAPED_BYTES * len(listing.content)
        try:
            if size >= LARGE_RESPONSE_BYTES:
                self._exchange.reserve(size)
        except Unavailable:
            return False
        return True

    def require_room(self, size: int) -> None:
        """Reserve memory for a response that may be large, before it is built or anything is written.

        Raises Unavailable if the clients of the account have left too many bytes unread.
        """
        self._exchange.reserve(size)

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
