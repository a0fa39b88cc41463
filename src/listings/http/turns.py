"""Run requests immediately. If many arrive together, their owners take turns.

Otherwise a thousand requests that arrive together delay everybody else until the last of them has run.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Protocol

from listings.http.asgi import Owner

_TURN_SECONDS = 0.002  # in which requests run, before sockets are read again
_PAUSE_SECONDS = 0.0005  # without a request, after which the event loop counts as idle
_MAX_BODY_BYTES = 4 * 1024 * 1024  # of waiting requests; those that run write large bodies to files


class ReadyConnection(Protocol):
    """A connection with a request that can run."""

    @property
    def owner(self) -> Owner:
        """The owner of the connection's last request, or its client's network."""

    @property
    def body_bytes(self) -> int:
        """The size of the request's body, as far as it has arrived."""

    def run_ready(self) -> None:
        """Run the request, and those that follow."""


class Turns:
    """The connections of one event loop whose requests are ready to run."""

    __slots__ = ("_began", "_body_bytes", "_clock", "_ended", "_last", "_waiting")

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        # By class of owners, and by owner; the first in order is the next.
        self._waiting: dict[str, dict[Owner, deque[tuple[ReadyConnection, int]]]] = {}
        self._body_bytes = 0
        self._clock = clock
        self._last: ReadyConnection | None = None
        self._began = self._ended = 0.0

    def run(self, connection: ReadyConnection) -> None:
        """Run its request now, or if there are many, when it is its owner's turn.

        Requests that follow each other on one connection are not many, however fast they are. One with a body does not
        wait if the bodies of those that wait take much memory.
        """
        if connection is self._last and not self._waiting:
            connection.run_ready()
            return
        now = self._clock()
        if now - self._ended > _PAUSE_SECONDS:
            self._began = now
        self._last = connection
        is_late = bool(self._waiting) or now - self._began > _TURN_SECONDS
        if is_late and not (self._body_bytes > _MAX_BODY_BYTES and connection.body_bytes):
            self.wait(connection)
        else:
            connection.run_ready()
            self._ended = self._clock()

    def wait(self, connection: ReadyConnection) -> None:
        """Run its request when it is its owner's turn. Classes of owners take turns, and the owners of each class."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._run_waiting)
        owner, size = connection.owner, connection.body_bytes
        self._body_bytes += size
        self._waiting.setdefault(owner[0], {}).setdefault(owner, deque()).append((connection, size))

    def forget(self, connection: ReadyConnection) -> None:
        """Release the memory of a connection that has ended, once it is not waiting."""
        if connection is self._last:
            self._last = None

    def _run_waiting(self) -> None:
        end = self._clock() + _TURN_SECONDS
        while self._waiting:
            if self._clock() > end:
                asyncio.get_running_loop().call_soon(self._run_waiting)
                return
            self._pop().run_ready()

    def _pop(self) -> ReadyConnection:
        kind, owners = next(iter(self._waiting.items()))
        owner, connections = next(iter(owners.items()))
        del self._waiting[kind], owners[owner]
        connection, size = connections.popleft()
        self._body_bytes -= size
        if connections:
            owners[owner] = connections
        if owners:
            self._waiting[kind] = owners
        return connection
