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
"""From this size on, a response counts as large: it is sent only if there is room for it."""

ASKING_BYTES = 256 * 1024
"""A response that may exceed this size is built only if there is room for it."""

OWNERS = ("api", "console", "visitors")
"""The classes of owners, each of which has a limit of its own for the bytes that its clients leave unread."""

Owner: TypeAlias = tuple[str, int | str]
"""Who a response is for: a class of owners, and an account's id or a visitor's network."""

SHARED: Owner = ("shared", 0)
"""The owner of a body that is one object for all responses, and so takes no memory of its own."""


PIECE_BYTES = 64 * 1024
"""Size of the pieces in which a body that is not in memory is sent. `Throttle` limits their rate."""


class BodySource(Protocol):
    """A body that is not in memory."""

    size: int

    async def read(self, offset: int, count: int) -> bytes:
        """Return at most `count` bytes, and at least one."""


class BodyStream(BodySource, Protocol):
    """A body that is closed once its response is sent."""

    def release(self) -> None:
        """Close it."""


class ClientDisconnectedError(Exception):
    """The request will never be complete: the client disconnected, or the connection has rejected its body.

    The application executes nothing and sends no response.
    """


class Exchange(Protocol):
    """A request and the means to respond.

    Implemented over ASGI by `AsgiExchange`, and by `HttpExchange`, which our server uses and which is faster.
    """

    disconnected: bool
    method: str
    path: str  # decoded, unless it contains an encoded slash, which must not separate segments
    query: bytes
    headers: Headers

    @property
    def scope(self) -> Scope:
        """The request as an ASGI scope."""

    def take_body(self) -> tuple[bytes, bool]:
        """Return the part of the body that has arrived, and whether to call `receive` for the rest or a disconnect."""

    async def receive(self) -> Message:
        """Return the next ASGI message: a part of the body, or `http.disconnect`."""

    async def send(self, message: Message) -> None:
        """Send an ASGI message."""

    async def wait_for_close(self, *, may_half_close: bool = False) -> None:
        """Wait until the client has disconnected or will send nothing further, or the service is about to stop.

        `may_half_close`: a client that will send nothing further still reads. Call it after the body has arrived.
        """

    def set_owner(self, owner: Owner) -> None:
        """Set the owner of the response, which is otherwise the client's network."""

    def reserve(self, size: int, *, is_admitted: bool = False, is_immediate: bool = False) -> None:
        """Reserve memory for a response, until its last byte is sent. Raises Unavailable if its owner has no room.

        Call it before a response that may be large is built. A further call raises the reservation if `size` is larger.
        It always has room, as has a response that must be sent (`is_admitted`), because something was written.
        `is_immediate`: the caller passes the response to `respond` without waiting for anything.
        """

    async def respond(self, status: int, head: bytes, body: bytes) -> None:
        """Send a complete response. `head` consists of header lines, each of which ends with CR LF.

        Raises Unavailable, before anything is sent, if a large response that is not an error has no room.
        """

    async def respond_from(self, status: int, head: bytes, source: BodySource) -> None:
        """Like `respond`, with a body that is read at the client's pace. Only a piece of it takes memory."""


class AsgiExchange:
    """`Exchange` over ASGI 3, type http."""

    disconnected = False  # otherwise, `receive` reports it

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self.path = choose_path(scope["raw_path"], scope["path"])
        self.query: bytes = scope["query_string"]
        self.headers: Headers = scope["headers"]
        self.scope = scope
        self._receive = receive
        self._send = send

    def take_body(self) -> tuple[bytes, bool]:
        return b"", True

    async def receive(self) -> Message:
        return await self._receive()

    async def send(self, message: Message) -> None:
        await self._send(message)

    async def wait_for_close(self, *, may_half_close: bool = False) -> None:  # noqa: ARG002 - ASGI can't tell
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.disconnected = True

    def set_owner(self, owner: Owner) -> None:
        pass

    def reserve(self, size: int, *, is_admitted: bool = False, is_immediate: bool = False) -> None:
        pass  # the server limits its own buffers

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


def choose_path(raw: bytes, decoded: str) -> str:
    """Return the path to route by: the raw one if it contains an encoded slash."""
    return raw.decode("latin-1") if b"%" in raw and b"%2f" in raw.lower() else decoded


Pages: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[bool]]
"""Handles paths outside the API. Returns False if there is no such page; nothing has been sent then.

The scope contains the `Exchange` as "listings.exchange" and the request id as "listings.request_id". The pages set
"listings.route" and "listings.status" in it.
"""


class HttpApplication(Protocol):
    """An application that a server calls, such as `listings.api.app.Application`."""

    async def serve(self, exchange: Exchange) -> None:
        """Serve one request."""

    def render_error(self, problem: Problem, method: str) -> bytes:
        """Return the bytes of an error response, for a request that can't be served or for which `serve` fails.

        `method` is empty if it is unknown.
        """
