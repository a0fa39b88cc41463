"""ASGI types, and the request-response exchange that a server hands to the application."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol, TypeAlias

from listings.domain.errors import Problem

Scope: TypeAlias = MutableMapping[str, Any]


Message: TypeAlias = MutableMapping[str, Any]


Receive: TypeAlias = Callable[[], Awaitable[Message]]


Send: TypeAlias = Callable[[Message], Awaitable[None]]


Headers: TypeAlias = list[tuple[bytes, bytes]]


class ClientGoneError(Exception):
    """The client left before its request was complete: nothing is done and nobody is answered."""


class Exchange(Protocol):
    """A request and the way to answer it: what a server hands over, by ASGI or, in one write, by our own protocol."""

    method: str
    path: str  # decoded, but for one in which a slash is encoded: that is no slash between segments
    query: bytes
    headers: Headers

    @property
    def scope(self) -> Scope:
        """The request for an application that speaks ASGI, as `send` is."""

    def whole_body(self) -> bytes | None:
        """The body where all of it is here; None: it is to be received."""

    async def receive(self) -> Message:
        """The next piece of the body, as ASGI has it."""

    async def send(self, message: Message) -> None:
        """A message of ASGI."""

    async def answer(self, status: int, head: bytes, body: bytes) -> None:
        """A whole answer; `head` is lines, each ended with CR LF."""


class AsgiExchange:
    """`Exchange` by ASGI 3, type http."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self.path = path_of(scope["raw_path"], scope["path"])
        self.query: bytes = scope["query_string"]
        self.headers: Headers = scope["headers"]
        self.scope = scope
        self._receive = receive
        self._send = send

    def whole_body(self) -> bytes | None:
        """Nobody knows what is here."""
        return None

    async def receive(self) -> Message:
        """The next piece of the body."""
        return await self._receive()

    async def send(self, message: Message) -> None:
        """Hand on."""
        await self._send(message)

    async def answer(self, status: int, head: bytes, body: bytes) -> None:
        """In two messages."""
        headers = [line.split(b": ", 1) for line in head.split(b"\r\n")[:-1]]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})


def path_of(raw: bytes, decoded: str) -> str:
    """The path as it is routed."""
    return raw.decode("latin-1") if b"%" in raw and b"%2f" in raw.lower() else decoded


Pages: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[bool]]
"""Answers what is no path of the API. False: it has nothing there either, and has sent nothing.

The scope tells it the request's name as "listings.request_id"; it leaves there "listings.route", "listings.status".
"""


class HttpApplication(Protocol):
    """An application that a server calls: `listings.api.app.Application`."""

    async def serve(self, exchange: Exchange) -> None:
        """Answer one request."""

    def refusal(self, problem: Problem, method: str) -> bytes:
        """Return the complete response to a request that the server rejects itself."""
