"""One connection to Redis or Valkey: any number of calls under way on it, answered in the order of their sending.

What is called in one turn of the event loop goes out together, so that calls are pipelined by themselves. A call
whose answer is lost is never sent again here: it may have been carried out.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import hiredis

from listings.domain.errors import Unavailable

NOT_REDIS = "what answers is not Redis"

_MOST_CALLS = 16_384  # under way
_GRACE_SECONDS = 0.02  # in which what has come while this process stood still is read


class Endpoint(NamedTuple):
    """Where Redis answers, and as whom it is spoken to."""

    host: str
    port: int
    path: str  # of a Unix socket, in the place of host and port; "" where it is none
    tls: bool
    user: str
    password: str
    database: int
    answer_seconds: float  # that it is waited for an answer


class ErrorReply(Exception):
    """Redis's refusal of a command, in its own words."""


class Connection(asyncio.Protocol):
    """Made by `connect`."""

    def __init__(self, answer_seconds: float, on_lost: Callable[[str], None]) -> None:
        """`on_lost` is told why, once, before the calls under way hear of it."""
        self._loop = asyncio.get_running_loop()
        self._answer_seconds = answer_seconds
        self._on_lost = on_lost
        self._reader = hiredis.Reader(replyError=ErrorReply)
        self._calls: deque[tuple[asyncio.Future[Any], float]] = deque()  # with the moment of their sending
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self.lost = ""  # why it is lost, if it is

    def call(self, *words: bytes | str | int) -> asyncio.Future[Any]:
        """Send a command. The future brings the reply, of which an ErrorReply is one.

        Raises Unavailable, as the future does where the connection is lost before the answer.
        """
        if self.lost or len(self._calls) >= _MOST_CALLS:
            raise Unavailable(self.lost or f"{_MOST_CALLS} calls wait for Redis already")
        future = self._loop.create_future()
        now = self._loop.time()
        self._calls.append((future, now))
        self._transport.write(hiredis.pack_command(words))  # type: ignore[arg-type]  # the stub means a tuple of one
        if self._timer is None:
            self._set_timer(now + self._answer_seconds)
        return future

    def lose(self, reason: str) -> None:
        """Give the connection up; the calls under way raise Unavailable."""
        if self.lost:
            return
        self.lost = reason
        self._transport.abort()
        if self._timer is not None:
            self._timer.cancel()
        self._on_lost(reason)
        while self._calls:
            future, _ = self._calls.popleft()
            if not future.done():
                future.set_exception(Unavailable(reason))

    # What asyncio tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It stands."""
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        """Hand each answer to its call."""
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not False:
                future, _ = self._calls.popleft()
                if not future.done():
                    future.set_result(reply)
        except (hiredis.ProtocolError, IndexError):
            self.lose(NOT_REDIS)

    def connection_lost(self, error: Exception | None) -> None:
        """The other side or the network has ended it."""
        self.lose(f"the connection was lost: {reason_of(error)}" if error else "the connection was closed")

    # The deadline of answers: one timer for all calls, since a call costs less than a timer

    def _set_timer(self, due: float) -> None:
        self._due = due
        self._timer = self._loop.call_at(due, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._calls:
            return
        now, due = self._loop.time(), self._calls[0][1] + self._answer_seconds
        if due > now:
            self._set_timer(due)
        elif now - self._due > _GRACE_SECONDS:  # this process stood still: the answer may lie in the socket
            self._set_timer(now + _GRACE_SECONDS)
        else:
            self.lose(f"no answer within {self._answer_seconds * 1000:.0f} ms")


async def connect(endpoint: Endpoint, on_lost: Callable[[str], None]) -> Connection:
    """Connect, log in and choose the database. Raises OSError, ErrorReply or Unavailable."""

    def protocol() -> Connection:
        return Connection(endpoint.answer_seconds, on_lost)

    loop = asyncio.get_running_loop()
    if endpoint.path:
        _, connection = await loop.create_unix_connection(protocol, endpoint.path)
    else:
        tls = ssl.create_default_context() if endpoint.tls else None
        _, connection = await loop.create_connection(protocol, endpoint.host, endpoint.port, ssl=tls)
    try:
        if endpoint.password:
            names = (endpoint.user,) if endpoint.user else ()
            accepted(await connection.call("AUTH", *names, endpoint.password))
        if endpoint.database:
            accepted(await connection.call("SELECT", endpoint.database))
    except BaseException:
        connection.lose("it was never used")
        raise
    return connection


def accepted(reply: Any) -> Any:  # noqa: ANN401 - whatever Redis answers
    """The reply. Raises ErrorReply where it is one."""
    if isinstance(reply, ErrorReply):
        raise reply
    return reply


def reason_of(error: BaseException) -> str:
    """What failed, in the words of the system or of Redis."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
