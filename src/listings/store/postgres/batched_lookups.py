"""Rows that are looked up by their ids, many by one message to the server.

A message costs both sides more than what it asks for. So while one has no answer yet, all that is looked up in a turn
of the event loop goes together, and the same row but once. To the server each look-up stays a statement of its own, on
one shard and with a snapshot of its own: a row is found as it was at some moment after it was asked for.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from listings.domain.errors import Unavailable
from listings.store.postgres import errors as faults
from listings.store.postgres.pool import Rows, Session

MOST = 32
"""Look-ups of one message: a session of the server works on them one after the other."""

Use: TypeAlias = Callable[[Callable[[Session], Awaitable[Rows]]], Awaitable[Rows]]


class _Asked(NamedTuple):
    """The values of a statement, and who waits for the row."""

    values: tuple[object, ...]
    row: asyncio.Future[Any]


class Lookups:
    """What is looked up by one statement, on one event loop."""

    def __init__(self, statement: str, use: Use) -> None:
        """`statement` finds one row at most: its last value is the row's first column. `use` gives it a session."""
        self._statement = statement
        self._use = use
        self._of_turn: list[_Asked] = []
        self._under_way = 0  # messages
        self._tasks: set[asyncio.Task[None]] = set()

    async def find(self, *values: object) -> Any | None:  # noqa: ANN401 - a row
        """The row, or None. Raises Unavailable."""
        if not self._under_way:
            return (await self._ask([values])).get(values[-1])
        loop = asyncio.get_running_loop()
        asked = _Asked(values, loop.create_future())
        if not self._of_turn:
            loop.call_soon(self._end_turn)
        self._of_turn.append(asked)
        return await asked.row

    def _end_turn(self) -> None:
        waiting, self._of_turn = self._of_turn, []
        for first in range(0, len(waiting), MOST):
            task = asyncio.get_running_loop().create_task(self._answer(waiting[first : first + MOST]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(self, asked: Sequence[_Asked]) -> None:
        try:
            found = await self._ask(list(dict.fromkeys(one.values for one in asked)))
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody may wait for ever
            await self._tell(asked, error)
            return
        for values, row in asked:
            if not row.done():
                row.set_result(found.get(values[-1]))

    async def _tell(self, asked: Sequence[_Asked], error: Exception) -> None:
        """What is wrong with one row is no fault of the others: each is looked up again by itself."""
        if len(asked) > 1 and faults.is_of_one(error.__cause__ or error):
            await asyncio.gather(*(self._answer([one]) for one in asked))
            return
        for _, row in asked:
            if not row.done():
                row.set_exception(_again(error))

    async def _ask(self, values: list[tuple[object, ...]]) -> dict[object, Any]:
        """The rows by their ids."""

        async def query(session: Session) -> Rows:
            if len(values) == 1:
                return await session.fetch(self._statement, *values[0])
            return await session.fetch_many(self._statement, values)

        self._under_way += 1
        try:
            return {row[0]: row for row in await self._use(query)}
        finally:
            self._under_way -= 1


def _again(error: Exception) -> Exception:
    """The same for one of those who wait: each raises its own."""
    if not isinstance(error, Unavailable):
        return error
    again = Unavailable(error.message, retry_after=error.retry_after)
    again.__cause__ = error.__cause__
    return again
