"""One HTTP request as the API sees it."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from listings.contract import Verdict
from listings.errors import Problem
from listings.model import Caller

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

MOST_BODY = 2 * 1024 * 1024


class ClientGoneError(Exception):
    """The client left before its request was complete: nothing is done and nobody is answered."""


class Request:
    """What of a request the gate and the handlers need, and what they find out on its way."""

    __slots__ = (
        "_headers",
        "_receive",
        "_repeated",
        "body",
        "caller",
        "id",
        "method",
        "path",
        "segment",
        "verdict",
    )

    caller: Caller  # set by the gate where a key is needed

    def __init__(self, scope: Scope, receive: Receive, request_id: str) -> None:
        """`scope` is an ASGI scope of type http."""
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        self.id = request_id
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.segment = ""  # what stands in the place of {id}
        self.body = b""
        self.verdict: Verdict | None = None
        self._receive = receive
        self._headers = dict(headers)
        self._repeated = headers if len(self._headers) != len(headers) else None

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
        """Whether `Prefer: handling=strict` (RFC 7240) asks that nothing be ignored."""
        if b"prefer" not in self._headers:
            return False
        preferences = ",".join(self.header_values(b"prefer")).split(",")
        return any(_plain(preference) == "handling=strict" for preference in preferences)

    async def read_body(self) -> None:
        """Take the whole body into `body`. Raises Problem: unsupported_encoding, body_too_large; ClientGoneError."""
        if self.header(b"content-encoding").lower() not in {"", "identity"}:
            raise Problem("unsupported_encoding", "The body must not have a Content-Encoding other than identity")
        announced = self.header(b"content-length")
        if announced.isdigit() and int(announced) > MOST_BODY:
            raise _too_large()
        chunks, size, more = [], 0, True
        while more:
            chunk, more = await self._receive_chunk()
            chunks.append(chunk)
            size += len(chunk)
            if size > MOST_BODY:
                raise _too_large()
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


def _too_large() -> Problem:
    return Problem("body_too_large", f"The body must be at most {MOST_BODY // 1024 // 1024} MiB")


def _plain(preference: str) -> str:
    """Without parameters, space, quotes and case."""
    return preference.partition(";")[0].replace(" ", "").replace("\t", "").replace('"', "").lower()
