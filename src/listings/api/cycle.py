"""One request on a connection, from its head to its answer in one write."""

import asyncio
import logging
import types
from collections.abc import Coroutine, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

if TYPE_CHECKING:
    from listings.api.guard import GuardedProtocol

ANSWER = "listings.answer"
"""The extension of ASGI by which a whole answer goes out in one write: a message of this type has `status`, `head`
(header lines, each ended with CR LF), and `body`."""

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


@types.coroutine
def go_on(running: Coroutine[Any, Any, None], waits_for: Any) -> Generator[Any, Any, None]:  # noqa: ANN401 - what a task is handed
    """The rest of a coroutine whose first step has been taken, for a task: what is waited for is handed through."""
    while True:
        try:
            result = yield waits_for
        except BaseException as error:  # noqa: BLE001 - a cancellation belongs to the coroutine
            step = partial(running.throw, error)
        else:
            step = partial(running.send, result)
        try:
            waits_for = step()
        except StopIteration:
            return


class Cycle(RequestResponseCycle):
    """One request and its answer."""

    def __init__(self, protocol: "GuardedProtocol", scope: dict[str, Any], *, keep_alive: bool) -> None:
        """`keep_alive`: whether the client may go on with the connection after this answer.

        All that uvicorn's cycle sets is set here: its own way through a call with eleven names takes twice as long.
        """
        self._protocol = protocol
        self.scope = cast("Any", scope)
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

    async def run_asgi(self, app: ASGI3Application) -> None:
        """Ask the application, which answers its own failures; beyond those there is no answer to give."""
        try:
            await app(self.scope, self.receive, cast("Any", self.send))
        except Exception:  # noqa: BLE001 - whatever it is, the client must not wait for ever
            _log.exception("The application failed")
            self._protocol.fail(self)

    async def send(self, message: Any) -> None:  # noqa: ANN401 - ASGI's messages, and ours
        """A message of the application."""
        if self.waiting_for_100_continue and self.more_body:
            self.keep_alive = False  # the client may never send the body that was not asked for
        if message["type"] != ANSWER:
            await super().send(message)
            return
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if not self.disconnected:
            self._write(STATUS_LINE[message["status"]], message["head"], message["body"])

    def _write(self, status_line: bytes, head: bytes, body: bytes) -> None:
        self.response_started = self.response_complete = True
        date = self.default_headers[0][1] if self.default_headers else b""
        end = b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n"
        if len(body) < _LARGE:
            self._protocol.transport.write(b"%bdate: %b\r\n%b%b%b" % (status_line, date, head, end, body))
        else:
            self._protocol.transport.writelines((b"%bdate: %b\r\n%b%b" % (status_line, date, head, end), body))
        self.message_event.set()
        if not self.keep_alive:
            self._protocol.close()
        self.on_response()
