"""One HTTP request as the API sees it."""

import re
import secrets
from itertools import count

from listings.api.response_cache import ResponseCache
from listings.contract.rate_limiter import RateLimitDecision
from listings.domain.errors import Problem
from listings.domain.model import Caller
from listings.http.asgi import ClientGoneError, Exchange

MOST_BODY = 2 * 1024 * 1024
_MOST_DIGITS = 15  # of a length that could be read at all
_PREFERENCE = re.compile(r'(?:[^,"]|"[^"]*")+')
_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")


class RequestIds:
    """Names for requests, different in every process."""

    def __init__(self) -> None:
        self._prefix = secrets.token_hex(6)
        self._numbers = count(1)

    def next(self) -> str:
        """A new name."""
        return f"{self._prefix}{next(self._numbers):08x}"


class Request:
    """What of a request the gate and the handlers need, and what they find out on its way."""

    __slots__ = (
        "_headers",
        "_receive",
        "_repeated",
        "_whole_body",
        "body",
        "caller",
        "id",
        "kept",
        "method",
        "path",
        "query",
        "route",
        "segment",
        "verdict",
    )

    caller: Caller  # set by the gate, where a key is needed

    def __init__(self, exchange: Exchange, ids: RequestIds, kept: ResponseCache) -> None:
        """`kept` is what handlers may answer with again."""
        self.kept = kept
        headers = exchange.headers
        self.method = exchange.method
        self.path = exchange.path
        self.query = exchange.query
        self.route = "-"  # the pattern that the path fits
        self.segment = ""  # what stands in the place of {id}
        self.body = b""
        self.verdict: RateLimitDecision | None = None
        self._receive = exchange.receive
        self._whole_body = exchange.whole_body
        self._headers = dict(headers)
        self._repeated = headers if len(self._headers) != len(headers) else None
        self.id = self._sent_id() or ids.next()

    def _sent_id(self) -> str | None:
        """The client's own name of the request: at most 128 visible characters."""
        value = self._headers.get(b"x-request-id")
        return value.decode("latin-1") if value is not None and _REQUEST_ID.fullmatch(value) else None

    def header(self, name: bytes) -> str:
        """The value of a header that should stand once (the last one otherwise), without surrounding space."""
        value = self._headers.get(name)
        return value.decode("latin-1").strip(" \t") if value is not None else ""

    def header_values(self, name: bytes) -> list[str]:
        """The different values of a header, without surrounding space and without empty ones."""
        if self._repeated is None:
            value = self.header(name)
            return [value] if value else []
        values = (value.decode("latin-1").strip(" \t") for header, value in self._repeated if header == name)
        return list(dict.fromkeys(value for value in values if value))

    @property
    def strict(self) -> bool:
        """Whether `Prefer: handling=strict` asks that nothing be ignored; of several the first counts (RFC 7240, 2)."""
        if b"prefer" not in self._headers:
            return False
        preferences = map(_plain, _PREFERENCE.findall(",".join(self.header_values(b"prefer"))))
        return next((one for one in preferences if one.startswith("handling=")), "") == "handling=strict"

    async def read_body(self, most: int) -> None:
        """Take the whole body, of `most` bytes, into `body`.

        Raises Problem: unsupported_encoding, body_too_large; ClientGoneError.
        """
        if any(value.lower() != "identity" for value in self.header_values(b"content-encoding")):
            raise Problem("unsupported_encoding", "The body must not have a Content-Encoding other than identity")
        whole = self._whole_body()
        if whole is not None and len(whole) <= most:
            self.body = whole
            return
        announced = self.header(b"content-length").lstrip("0")
        if len(announced) > _MOST_DIGITS or (announced and int(announced) > most):
            raise _too_large(most)
        chunks, size, more = [], 0, True
        while more:
            chunk, more = await self._receive_chunk()
            chunks.append(chunk)
            size += len(chunk)
            if size > most:
                raise _too_large(most)
        self.body = b"".join(chunks)

    async def skip_body(self) -> None:
        """Read a body that means nothing to its end, and forget it. Raises ClientGoneError."""
        more = self.header(b"content-length") not in {"", "0"} or b"transfer-encoding" in self._headers
        while more:
            _, more = await self._receive_chunk()

    async def _receive_chunk(self) -> tuple[bytes, bool]:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        return message.get("body", b""), message.get("more_body", False)


def _too_large(most: int) -> Problem:
    return Problem("body_too_large", f"The body must be at most {most} bytes")


def _plain(preference: str) -> str:
    """Without parameters, space, quotes and case."""
    return preference.partition(";")[0].replace(" ", "").replace("\t", "").replace('"', "").lower()
