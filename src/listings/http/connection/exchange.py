"""One request on a connection, and its response: complete, in pieces, or as ASGI messages."""

import asyncio
import logging
import re
from functools import cached_property
from typing import Any, Protocol, cast
from urllib.parse import unquote

import httptools

from listings.domain.errors import Problem
from listings.http.asgi import (
    LARGE_RESPONSE_BYTES,
    PIECE_BYTES,
    BodySource,
    Headers,
    HttpApplication,
    Owner,
    Scope,
    choose_path,
)
from listings.http.connection.unsent import UnsentBytes
from listings.http.connection.write_buffer import Data
from listings.http.host import is_host
from listings.http.throttle import Throttle
from listings.http.uvicorn_base import STATUS_LINE, BaseExchange, FlowControl

_AUTHORITY_END = re.compile(rb"[/?#]")
_ERROR = 400
_LARGE_PIECE_BYTES = 16 * 1024  # of a body; clients that send larger ones are fast
_FRAGMENT = ord("#")  # an int: `bytes in bytes` first raises a TypeError internally, which takes 2,000 instructions

_log = logging.getLogger(__name__)


class ExchangeConnection(Protocol):
    """The part of a connection that an exchange uses. uvicorn's code calls it the transport."""

    server: tuple[str, int | None] | None
    client: tuple[str, int] | None
    scheme: Any
    server_state: Any  # of uvicorn: its default headers have the current date
    flow: FlowControl
    throttle: Throttle  # of pieces that are sent
    receiving: Throttle  # of pieces that arrive
    unsent: UnsentBytes
    stopping: bool  # the connection closes after the pending responses
    stopped: bool  # because the service stops

    def set_owner(self, owner: Owner) -> None:
        """Change the owner of the next response."""

    def release(self, size: int) -> None:
        """Count reserved bytes as written."""

    def write(self, data: bytes) -> None:
        """Write after all earlier responses."""

    def write_response(self, data: Data, reserved: int) -> None:
        """Write a complete response, buffered with those of other connections. Releases its reserved bytes."""

    def begin_body(self) -> None:
        """Prepare for `write_body`."""

    def write_body(self, piece: bytes) -> None:
        """Write a piece of a body."""

    def end_body(self) -> None:
        """End the body."""

    def close(self) -> None:
        """Close after the last response."""

    def fail(self, exchange: "HttpExchange") -> None:
        """Handle a failure of the application."""

    def on_response_complete(self) -> None:
        """Continue with the next request."""


class SingleWaiterEvent:
    """Like asyncio.Event, but for one waiter. Ten times cheaper to construct."""

    __slots__ = ("_is_set", "_waiter")

    def __init__(self) -> None:
        self._is_set = False
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        self._is_set = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def clear(self) -> None:
        self._is_set = False

    async def wait(self) -> None:
        if not self._is_set:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter


class HttpExchange(BaseExchange):
    """One request and its response. Implements `listings.http.asgi.Exchange`."""

    def __init__(  # noqa: PLR0913 - a request's parts
        self,
        connection: ExchangeConnection,
        method: str,
        target: tuple[bytes, str, bytes],
        headers: Headers,
        version: str,
        *,
        keep_alive: bool,
        expects_100_continue: bool,
    ) -> None:
        """Start an exchange with a complete request head.

        `target` is the path as sent, the path to route by, and the query. `keep_alive` is whether the client may send
        another request on the connection.
        """
        super().__init__(connection, SingleWaiterEvent())
        self.keep_alive = keep_alive
        if expects_100_continue:
            self.waiting_for_100_continue = True
        self._connection = connection
        self.method = method
        self._raw_path, self.path, self.query = target
        self.headers = headers
        self._version = version
        self._reserved = 0  # bytes of the response
        self._is_admitted = False  # whether a response that follows immediately has room
        self._is_fast = False  # whether the last piece of the body was large
        self._start: Any = None  # the ASGI message that begins the response, until the first part of the body

    @cached_property
    def scope(self) -> Scope:  # type: ignore[override]  # uvicorn builds it for every request
        """The ASGI scope, which only the pages need."""
        path = self._raw_path.decode("ascii")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": self._version,
            "server": self._connection.server,
            "client": self._connection.client,
            "scheme": self._connection.scheme,
            "root_path": "",
            "method": self.method,
            "path": unquote(path) if "%" in path else path,
            "raw_path": self._raw_path,
            "query_string": self.query,
            "headers": self.headers,
        }

    @property
    def default_headers(self) -> Headers:  # type: ignore[override]  # uvicorn sets them for every request
        """The headers of every response to which uvicorn adds those of its message."""
        headers: Headers = self._connection.server_state.default_headers
        return headers

    def on_response(self) -> None:
        self._connection.on_response_complete()

    def take_body(self) -> tuple[bytes, bool]:
        body, self.body = bytes(self.body), bytearray()
        self._note_piece(len(body))
        return body, self.more_body or self.disconnected

    def _note_piece(self, size: int) -> None:
        if size >= _LARGE_PIECE_BYTES and not self._is_fast:  # otherwise it has been counted while it waited
            self._connection.receiving.count()
        self._is_fast = size >= _LARGE_PIECE_BYTES

    async def wait_for_close(self, *, may_half_close: bool = False) -> None:
        connection = self._connection
        while not (self._is_disconnected() or (connection.stopped if may_half_close else connection.stopping)):
            self.message_event.clear()
            await self.message_event.wait()

    async def run(self, app: HttpApplication) -> None:
        """Run the application. If it raises, or returns before its response is complete, fail the connection."""
        try:
            await app.serve(cast("Any", self))
        except Exception:  # noqa: BLE001 - the client must not wait forever
            _log.exception("The application failed")
        finally:
            self._release()
            if self.body:  # the connection still refers to this exchange
                self.body = bytearray()
        if not (self.response_complete or self.disconnected):
            self._connection.fail(self)

    async def receive(self) -> Any:
        """Receive an ASGI message. Unlike uvicorn's method, it resumes reading only if it needs more of the body.

        If the last piece was large, the next one waits for its turn. A body that is already complete needs no 100
        Continue (RFC 9110, 10.1.1).
        """
        if self.more_body and not (self.body or self._has_ended()):
            if self._is_fast:
                async with self._connection.receiving.acquire(self._connection.unsent.owner):
                    await self._connection.receiving.wait()
            message: Any = await super().receive()
            self._note_piece(len(message.get("body", b"")))
            return message
        if not self._has_ended():
            await self.message_event.wait()
            self.message_event.clear()
        if self._has_ended():
            return {"type": "http.disconnect"}
        body, more = self.take_body()
        return {"type": "http.request", "body": body, "more_body": more}

    def set_owner(self, owner: Owner) -> None:
        if owner != self._connection.unsent.owner:
            self._connection.set_owner(owner)

    def reserve(self, size: int, *, is_admitted: bool = False, is_immediate: bool = False) -> None:
        missing = size - self._reserved
        if missing > 0:
            if not (is_admitted or self._reserved):
                self._connection.unsent.require_room(missing)
            if is_immediate and not self.flow.write_paused:  # it is counted once the transport has tried to send it
                self._is_admitted = True
            else:
                self._connection.unsent.reserve(missing)
                self._reserved = size

    def _release(self, kept: int = 0) -> None:
        if self._reserved > kept:
            self._connection.release(self._reserved - kept)
            self._reserved = kept

    def _require_room(self, status: int, size: int) -> None:
        if size >= LARGE_RESPONSE_BYTES:
            self.reserve(size, is_admitted=status >= _ERROR or self._is_admitted)

    async def send(self, message: Any) -> None:
        """Send an ASGI message of the pages. For HTTP/1.0, which has no chunks, closing ends the body.

        The response begins with the first part of its body. If that has no room, raises Unavailable, and the
        application can begin another response.
        """
        if message["type"] == "http.response.start":
            self._start = message
            return
        size = 0 if self.method == "HEAD" else len(message.get("body", b""))
        kept = self._reserved if message.get("more_body") else 0
        start, self._start = self._start, None
        if start is not None:
            self._require_room(start["status"], size)
            await self._send(start)
        elif size >= LARGE_RESPONSE_BYTES:
            self.reserve(size, is_admitted=True)
        await self._send(message)
        self._release(kept)

    async def _send(self, message: Any) -> None:
        self._close_if_continue_pending()
        if self._version == "1.0":
            self.chunked_encoding = False
            self.expected_content_length = len(message.get("body", b""))
        await super().send(message)

    async def respond(self, status: int, head: bytes, body: bytes) -> None:
        if len(body) >= LARGE_RESPONSE_BYTES and not self._is_admitted:
            self.reserve(len(body), is_admitted=status >= _ERROR, is_immediate=True)
        self._close_if_continue_pending()
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        self.response_started = self.response_complete = True
        status_line = STATUS_LINE[status]
        date = self._connection.server_state.default_headers[0][1]  # the current one: the request may have waited
        end = b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n"
        data: Data
        if len(body) < LARGE_RESPONSE_BYTES:  # from this size on, two buffers are cheaper than a copy
            data = b"%bdate: %b\r\n%b%b%b" % (status_line, date, head, end, body)
        else:
            data = b"%bdate: %b\r\n%b%b" % (status_line, date, head, end), body
        self._connection.write_response(data, self._reserved)
        self._reserved = 0
        self.message_event.set()
        if not self.keep_alive:
            self._connection.close()
        self._connection.on_response_complete()

    async def respond_from(self, status: int, head: bytes, source: BodySource) -> None:
        self._require_room(status, min(source.size, PIECE_BYTES))
        self._close_if_continue_pending()
        if self.flow.write_paused and not self._is_disconnected():
            await self.flow.drain()
        if self._is_disconnected():
            return
        self.response_started = True
        connection = self._connection
        date = self._connection.server_state.default_headers[0][1]  # the current one: the request may have waited
        end = b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n"
        connection.write(b"%bdate: %b\r\n%b%b" % (STATUS_LINE[status], date, head, end))
        connection.begin_body()
        offset = 0
        while offset < source.size and not self._is_disconnected():
            async with connection.throttle.acquire(connection.unsent.owner):
                if not self._is_disconnected():
                    piece = await source.read(offset, PIECE_BYTES)
                    connection.write_body(piece)
                    self._release()  # from now on, the connection counts the piece that it has not sent
                    offset += len(piece)
                    await connection.throttle.wait()
            if self.flow.write_paused and not self._is_disconnected():
                await self.flow.drain()
        connection.end_body()
        if self._is_disconnected():
            return
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            connection.close()
        connection.on_response_complete()

    def _is_disconnected(self) -> bool:  # a method, because mypy assumes that a checked attribute does not change
        return bool(self.disconnected)

    def _has_ended(self) -> bool:
        return self._is_disconnected() or bool(self.response_complete)

    def _close_if_continue_pending(self) -> None:
        if self.waiting_for_100_continue and self.more_body:
            self.keep_alive = False  # a client that got no 100 Continue may never send the body


def split_target(target: bytes, headers: Headers) -> tuple[bytes, str, bytes]:
    """Split a request target of any form into raw path, path to route by, and query (RFC 9112, 3.2).

    A host in the target replaces the Host header.
    """
    if target.startswith(b"/") and _FRAGMENT not in target:
        raw, _, query = target.partition(b"?")
    elif target == b"*":
        raw, query = target, b""
    else:
        parsed: Any = httptools.parse_url(target)  # missing parts are None, although its types deny it
        raw, query = parsed.path or b"/", parsed.query or b""
        if parsed.host is not None:
            host = _AUTHORITY_END.split(target.split(b"//", 1)[1], 1)[0]
            if not is_host(host):
                raise Problem("malformed_request", "The URL must have a valid host, optionally with a port")
            headers[:] = [header for header in headers if header[0] != b"host"]
            headers.append((b"host", host))
    path = raw.decode("ascii")
    return raw, choose_path(raw, unquote(path)) if "%" in path else path, query
