"""Run scripts on a SQLite connection. Every cursor is read to its end."""

import asyncio
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from threading import Lock
from time import perf_counter
from typing import Any, TypeAlias, TypeVar

import apsw

from listings.store.query import Query, R, Row
from listings.store.scripts.script import Script, Transaction
from listings.store.sql import to_sqlite

T = TypeVar("T")

Read: TypeAlias = Callable[[str, Row], list[Row]]
"""Run a statement with values and return all rows."""

Iterate: TypeAlias = Callable[[str, Row], Generator[Row]]
"""Run a statement with values, and yield its rows until it is closed."""

_WORK_SECONDS = 0.001  # between two pauses
_MAX_PAUSE_SECONDS = 0.02  # while the event loop is busy


class SqliteTransaction(Transaction):
    """Runs each statement immediately, so that a script never waits. A write locks the whole database."""

    def __init__(self, connection: apsw.Connection, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """`loop` runs in another thread. It may run after statements of a script that takes long."""
        self._connection = connection
        self._loop = loop
        self._paused_at = perf_counter()

    async def fetch(self, statement: Query[R], values: Row, *, locks: bool = False) -> list[R]:
        rows: list[Any] = self._connection.execute(to_sqlite(statement), values).fetchall()
        self._pause()
        return rows

    async def fetch_many(self, statement: Query[R], many: Iterable[Row], at_once: Query[R] | None = None) -> list[R]:
        rows: list[Any] = self._connection.executemany(to_sqlite(statement), many).fetchall()
        self._pause()
        return rows

    def _pause(self) -> None:
        if self._loop is not None and perf_counter() - self._paused_at > _WORK_SECONDS:
            _let_run(self._loop)
            self._paused_at = perf_counter()


def run_script(connection: apsw.Connection, script: Script[T], loop: asyncio.AbstractEventLoop | None = None) -> T:
    """Run a script in the current transaction. Raises AssertionError if it awaits anything but its statements."""
    coroutine = script(SqliteTransaction(connection, loop))
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise AssertionError(f"{coroutine} awaits something other than a statement of its transaction")


def _let_run(loop: asyncio.AbstractEventLoop) -> None:
    # Otherwise, a request waits for the GIL several times, each time until this thread has decoded a long text. During
    # dry runs of 40 listings of 400 kB, p99 of other requests was 5 ms instead of 2 ms.
    has_run = Lock()
    has_run.acquire()
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(has_run.release)
        has_run.acquire(timeout=_MAX_PAUSE_SECONDS)
