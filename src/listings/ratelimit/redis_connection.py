"""One pipelined connection to Redis or Valkey. Replies arrive in the order of the calls.

On uvloop, calls of one iteration of the event loop are sent together. A call without a reply is never repeated here,
because Redis may have executed it.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, cast

import hiredis

from listings.domain.errors import Unavailable

Reply: TypeAlias = Any
"""A reply of Redis, of any type."""

NOT_REDIS = "the server is not Redis"

_MAX_PENDING_CALLS = 16_384
_GRACE_SECONDS = 0.02  # to read replies that arrived while this process was stalled


class Endpoint(NamedTuple):
    """Address and credentials of a Redis server."""

    host: str
    port: int
    path: str  # the Unix socket's, instead of host and port; "" for TCP
    tls: bool
    user: str
    password: str
    database: int
    timeout_seconds: float  # for a reply


class ErrorReply(Exception):
    """An error reply of Redis, with its message."""


class Connection(asyncio.Protocol):
    """A connection. Created by `connect`."""

    def __init__(self, timeout_seconds: float, on_close: Callable[[str], None]) -> None:
        """`on_close` is called once with the reason, before pending calls fail."""
        self._loop = asyncio.get_running_loop()
        self._timeout_seconds = timeout_seconds
        self._on_close = on_close
        self._reader = hiredis.Reader(replyError=ErrorReply)
        self._calls: deque[tuple[asyncio.Future[Any], float]] = deque()  # with the time of sending
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self.close_reason = ""  # "" while the connection is open

    def call(self, *words: bytes | str | int) -> asyncio.Future[Any]:
        """Send a command. The future resolves to the reply, which may be an ErrorReply.

        Raises Unavailable if the connection is closed or has too many pending calls. The future raises it if the
        connection is lost before the reply.
        """
        if self.close_reason or len(self._calls) >= _MAX_PENDING_CALLS:
            raise Unavailable(self.close_reason or f"{_MAX_PENDING_CALLS} calls are waiting for Redis")
        future = self._loop.create_future()
        now = self._loop.time()
        self._calls.append((future, now))
        self._transport.write(hiredis.pack_command(words))  # type: ignore[arg-type]  # the stub wants one element
        if self._timer is None:
            self._set_timer(now + self._timeout_seconds)
        return future

    def close(self, reason: str) -> None:
        """Close the connection. Pending calls raise Unavailable."""
        if self.close_reason:
            return
        self.close_reason = reason
        self._transport.abort()
        if self._timer is not None:
            self._timer.cancel()
        self._on_close(reason)
        while self._calls:
            future, _ = self._calls.popleft()
            if not future.done():
                future.set_exception(Unavailable(reason))

    # Callbacks of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not False:
                future, _ = self._calls.popleft()
                if not future.done():
                    future.set_result(reply)
        except (hiredis.ProtocolError, IndexError):
            self.close(NOT_REDIS)

    def connection_lost(self, error: Exception | None) -> None:
        self.close(f"the connection was lost: {describe_error(error)}" if error else "the connection was closed")

    # The timeout of replies. All calls share one timer, because a timer costs more than a call.

    def _set_timer(self, due: float) -> None:
        self._timer_due = due
        self._timer = self._loop.call_at(due, self._check_timeout)

    def _check_timeout(self) -> None:
        self._timer = None
        if not self._calls:
            return
        now, due = self._loop.time(), self._calls[0][1] + self._timeout_seconds
        if due > now:
            self._set_timer(due)
        elif now - self._timer_due > _GRACE_SECONDS:
            self._set_timer(now + _GRACE_SECONDS)  # this process was stalled: the reply may be in the socket buffer
        else:
            self.close(f"no response within {self._timeout_seconds * 1000:.0f} ms")


async def connect(endpoint: Endpoint, on_close: Callable[[str], None]) -> Connection:
    """Connect, authenticate and select the database. Raises OSError, ErrorReply or Unavailable."""

    def protocol() -> Connection:
        return Connection(endpoint.timeout_seconds, on_close)

    loop = asyncio.get_running_loop()
    if endpoint.path:
        _, connection = await loop.create_unix_connection(protocol, endpoint.path)
    else:
        tls = ssl.create_default_context() if endpoint.tls else None
        _, connection = await loop.create_connection(protocol, endpoint.host, endpoint.port, ssl=tls)
    try:
        if endpoint.password:
            names = (endpoint.user,) if endpoint.user else ()
            require_success(await connection.call("AUTH", *names, endpoint.password))
        if endpoint.database:
            require_success(await connection.call("SELECT", endpoint.database))
    except BaseException:
        connection.close("the connection was never used")
        raise
    return connection


def require_success(reply: Reply) -> Reply:
    """Return the reply. Raises it if it is an ErrorReply."""
    if isinstance(reply, ErrorReply):
        raise reply
    return reply


def describe_error(error: BaseException) -> str:
    """Return the message of the system or of Redis."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
