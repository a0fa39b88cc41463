"""ASGI types, and `Exchange`: a request, with the means to respond, that a server passes to the application."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol, TypeAlias

from listings.domain.errors import Problem

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Headers: TypeAlias = list[tuple[bytes, bytes]]


LARGE_RESPONSE_BYTES = 16 * 1024
"""From this size on, a response counts as large."""


PIECE_BYTES = 64 * 1024
"""Size of the pieces in which a body that is not in memory is sent. `Throttle` limits their rate."""


class BodySource(Protocol):
    """A body that is not in memory."""

    size: int

    async def read(self, offset: int, count: int) -> bytes:
        """Return at most `count` bytes, and at least one."""


class ClientDisconnectedError(Exception):
    """The request will never be complete: the client disconnected, or the connection has rejected its body.

    The application executes nothing and sends no response.
    """


class Exchange(Protocol):
    """A request and the means to respond.

    Implemented over ASGI by `AsgiExchange`, and by `HttpExchange`, which our server uses and which is faster.
    """

    method: str
    path: str  # decoded, unless it contains an encoded slash, which must not separate segments
    query: bytes
    headers: Headers

    @property
    def scope(self) -> Scope:
        """The request as an ASGI scope."""

    def get_body(self) -> bytes | None:
        """Return the body if it is available at once. If None, call `receive`, which also reports a disconnect."""

    async def receive(self) -> Message:
        """Return the next ASGI message: a part of the body, or `http.disconnect`."""

    async def send(self, message: Message) -> None:
        """Send an ASGI message."""

    async def wait_for_close(self) -> None:
        """Wait until the client has disconnected or will send nothing further, or the connection is about to close.

        Call it after the body has arrived.
        """

    async def respond(self, status: int, head: bytes, body: bytes) -> None:
        """Send a complete response. `head` consists of header lines, each of which ends with CR LF."""

    async def respond_from(self, status: int, head: bytes, source: BodySource) -> None:
        """Like `respond`, with a body that is read at the client's pace."""

    def begin_large_response(self, owner: int) -> bool:
        """Count the connection's unsent bytes for `owner` from now on, and return whether a large response may be sent.

        `owner` identifies the client across connections, as the id of its API key does; 0 if it is not known.
        """


class AsgiExchange:
    """`Exchange` over ASGI 3, type http."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self.path = choose_path(scope["raw_path"], scope["path"])
        self.query: bytes = scope["query_string"]
        self.headers: Headers = scope["headers"]
        self.scope = scope
        self._receive = receive
        self._send = send

    def get_body(self) -> bytes | None:
        return None

    async def receive(self) -> Message:
        return await self._receive()

    async def send(self, message: Message) -> None:
        await self._send(message)

    async def wait_for_close(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def respond(self, status: int, head: bytes, body: bytes) -> None:
        headers = [line.split(b": ", 1) for line in head.split(b"\r\n")[:-1]]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})

    async def respond_from(self, status: int, head: bytes, source: BodySource) -> None:
        headers = [line.split(b": ", 1) for line in head.split(b"\r\n")[:-1]]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        offset = 0
        while offset < source.size:
            piece = await source.read(offset, PIECE_BYTES)
            offset += len(piece)
            more = offset < source.size
            await self._send({"type": "http.response.body", "body": piece, "more_body": more})

    def begin_large_response(self, owner: int) -> bool:  # noqa: ARG002 - the server limits what it buffers
        return True


def choose_path(raw: bytes, decoded: str) -> str:
    """Return the path to route by: the raw one if it contains an encoded slash."""
    return raw.decode("latin-1") if b"%" in raw and b"%2f" in raw.lower() else decoded


Pages: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[bool]]
"""Handles paths outside the API. Returns False if there is no such page; nothing has been sent then.

The scope contains the request id as "listings.request_id". The pages set "listings.route" and "listings.status" in it.
"""


class HttpApplication(Protocol):
    """An application that a server calls, such as `listings.api.app.Application`."""

    async def serve(self, exchange: Exchange) -> None:
        """Serve one request."""

    def render_error(self, problem: Problem, method: str) -> bytes:
        """Return the bytes of an error response, for a request that can't be served or for which `serve` fails.

        `method` is empty if it is unknown.
        """
