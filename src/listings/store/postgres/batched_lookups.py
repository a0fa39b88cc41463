"""Batched lookups of rows by id: many in one round trip to the server.

A round trip costs both sides more than the lookup itself. So while one is in progress, all lookups of one iteration of
the event loop are sent together, and duplicates are sent once. On the server, each lookup is still a statement of its
own, on one shard and with its own snapshot. It finds the row as it was at some moment after the lookup began.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeAlias

from listings.domain.errors import Unavailable
from listings.store.postgres import errors
from listings.store.postgres.pool import Session
from listings.store.query import Query, R

MAX_BATCH_SIZE = 32
"""Lookups per round trip. The server runs them one after the other."""

_Lookup: TypeAlias = tuple[tuple[object, ...], asyncio.Future[Any]]  # its values, and its row or None
Use: TypeAlias = Callable[[Callable[[Session], Awaitable[list[R]]]], Awaitable[list[R]]]


class BatchedLookups(Generic[R]):
    """Batches the executions of one statement on one event loop."""

    def __init__(self, statement: Query[R], use: Use[R]) -> None:
        """`statement` finds at most one row, whose first column is its last parameter. `use` runs it on a session."""
        self._statement = statement
        self._use = use
        self._queued: list[_Lookup] = []
        self._in_flight = 0  # round trips
        self._tasks: set[asyncio.Task[None]] = set()

    async def find(self, *values: object) -> R | None:
        """Return the row, or None. Raises Unavailable."""
        if not self._in_flight:
            return (await self._fetch([values])).get(values[-1])
        loop = asyncio.get_running_loop()
        row: asyncio.Future[R | None] = loop.create_future()
        if not self._queued:
            loop.call_soon(self._send_queued)
        self._queued.append((values, row))
        return await row

    def _send_queued(self) -> None:
        queued, self._queued = self._queued, []
        for first in range(0, len(queued), MAX_BATCH_SIZE):
            task = asyncio.get_running_loop().create_task(self._resolve(queued[first : first + MAX_BATCH_SIZE]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _resolve(self, lookups: Sequence[_Lookup]) -> None:
        try:
            found = await self._fetch(list(dict.fromkeys(values for values, _ in lookups)))
        except Exception as error:  # noqa: BLE001 - every future must be resolved
            await self._fail(lookups, error)
            return
        for values, row in lookups:
            if not row.done():
                row.set_result(found.get(values[-1]))

    async def _fail(self, lookups: Sequence[_Lookup], error: Exception) -> None:
        # If it may concern a single row, each of them is looked up again on its own.
        if len(lookups) > 1 and errors.is_of_one_statement(error.__cause__ or error):
            await asyncio.gather(*(self._resolve([one]) for one in lookups))
            return
        for _, row in lookups:
            if not row.done():
                row.set_exception(_copy_error(error))

    async def _fetch(self, values: list[tuple[object, ...]]) -> dict[object, R]:
        async def query(session: Session) -> list[R]:
            if len(values) == 1:
                return await session.fetch(self._statement, *values[0])
            return await session.fetch_many(self._statement, values)

        self._in_flight += 1
        try:
            return {row[0]: row for row in await self._use(query)}
        finally:
            self._in_flight -= 1


def _copy_error(error: Exception) -> Exception:
    # Each waiting caller needs its own instance.
    if not isinstance(error, Unavailable):
        return error
    copied = Unavailable(error.message, retry_after=error.retry_after)
    copied.__cause__ = error.__cause__
    return copied
