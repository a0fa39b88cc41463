"""One request on a connection, from its head to its answer in one write."""

import asyncio
import logging
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from listings.http.asgi import Headers, HttpApplication, Scope
from listings.http.write_buffer import Data

if TYPE_CHECKING:
    from listings.http.connection import HttpConnection

_LARGE = 16 * 1024  # from here on two buffers are cheaper than a copy

_log = logging.getLogger(__name__)


class Signal:
    """What of asyncio.Event one request needs, for the one application that waits: made in a tenth of the time."""

    __slots__ = ("_is_set", "_waiter")

    def __init__(self) -> None:
        self._is_set = False
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Wake who waits."""
        self._is_set = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def clear(self) -> None:
        """Let the next one wait."""
        self._is_set = False

    async def wait(self) -> None:
        """Wait until it is set."""
        if not self._is_set:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter


class HttpExchange(RequestResponseCycle):
    """One request and its answer: `listings.http.asgi.Exchange`."""

    def __init__(  # noqa: PLR0913 - a request's parts
        self,
        protocol: "HttpConnection",
        method: str,
        target: tuple[bytes, str, bytes],
        headers: Headers,
        version: str,
        *,
        keep_alive: bool,
    ) -> None:
        """`target` is the path as it was sent, the path as it is routed, and the query.

        `keep_alive`: whether the client may go on with the connection after this answer.

        All that uvicorn's cycle sets is set here: its own way through a call with eleven names takes twice as long.
        """
        self._protocol = protocol
        self.method = method
        self._raw_path, self.path, self.query = target
        self.headers = headers
        self._version = version
        self.transport = cast("Any", protocol)
        self.flow = protocol.flow
        self.logger = self.access_logger = _log
        self.access_log = False
        self.default_headers = protocol.server_state.default_headers
        self.message_event = cast("Any", Signal())
        self.on_response = protocol.on_response_complete
        self.disconnected = False
        self.keep_alive = keep_alive and not protocol._stopping  # noqa: SLF001 - two halves of one thing
        self.waiting_for_100_continue = protocol.expect_100_continue
        self.body = bytearray()
        self.more_body = True
        self.response_started = self.response_complete = False
        self.chunked_encoding = None
        self.expected_content_length = 0

    @cached_property
    def scope(self) -> Scope:  # type: ignore[override]  # uvicorn has one of each request, we of those who need it
        """The request as ASGI has it: for the pages."""
        path = self._raw_path.decode("ascii")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": self._version,
            "server": self._protocol.server,
            "client": self._protocol.client,
            "scheme": self._protocol.scheme,
            "root_path": "",
            "method": self.method,
            "path": unquote(path) if "%" in path else path,
            "raw_path": self._raw_path,
            "query_string": self.query,
            "headers": self.headers,
        }

    def whole_body(self) -> bytes | None:
        """The body where all of it is here, and nobody waits to be told that it may come."""
        return None if self.more_body or self.waiting_for_100_continue or self.disconnected else bytes(self.body)

    async def run(self, app: HttpApplication) -> None:
        """Ask the application, which answers its own failures; beyond those there is no answer to give."""
        try:
            await app.serve(cast("Any", self))
        except Exception:  # noqa: BLE001 - whatever it is, the client must not wait for ever
            _log.exception("The application failed")
            self._protocol.fail(self)

    async def send(self, message: Any) -> None:  # noqa: ANN401 - ASGI's messages
        """A message of the pages."""
        self._end_unasked_body()
        await super().send(message)

    async def answer(self, status: int, head: bytes, body: bytes) -> None:
        """A whole answer in one write, which comes together with those of other connections."""
        self._end_unasked_body()
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        self.response_started = self.response_complete = True
        status_line = STATUS_LINE[status]
        date = self.default_headers[0][1] if self.default_headers else b""
        end = b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n"
        data: Data
        if len(body) < _LARGE:
            data = b"%bdate: %b\r\n%b%b%b" % (status_line, date, head, end, body)
        else:
            data = b"%bdate: %b\r\n%b%b" % (status_line, date, head, end), body
        self._protocol.outbox.put(self._protocol.transport, data)
        self.message_event.set()
        if not self.keep_alive:
            self._protocol.close()
        self.on_response()

    def _end_unasked_body(self) -> None:
        if self.waiting_for_100_continue and self.more_body:
            self.keep_alive = False  # the client may never send the body that was not asked for
