"""The ways to a PostgreSQL server: reads on any session, writes in transactions, each again where that does no harm."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias, TypeVar

from listings.domain.errors import Unavailable
from listings.store.postgres import errors as faults
from listings.store.postgres.pool import Pool, Rows, Session

T = TypeVar("T")
Operation: TypeAlias = Callable[[Session], Awaitable[T]]

ATTEMPTS = 5  # at a transaction that the server undoes for another's sake

_log = logging.getLogger(__name__)


class Transactions:
    """What a store does its reads and writes by, over a pool of sessions."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._writes: set[asyncio.Task[Any]] = set()
        self._written = 0  # transactions that have ended

    async def _read(self, statement: str, *values: object) -> Rows:
        """All rows of one statement."""
        pool = self._pool
        session = pool.take_now() or await pool.take()
        try:
            rows = await session.fetch(statement, *values)
        except BaseException as error:  # noqa: BLE001 - told there
            return await self._read_again(session, error, lambda fresh: fresh.fetch(statement, *values))
        pool.give(session)
        return rows

    async def _use(self, read: Operation[Rows]) -> Rows:
        """What several statements read."""
        session = self._pool.take_now() or await self._pool.take()
        try:
            rows = await read(session)
        except BaseException as error:  # noqa: BLE001 - told there
            return await self._read_again(session, error, read)
        self._pool.give(session)
        return rows

    async def _read_again(self, session: Session, error: BaseException, read: Operation[Rows]) -> Rows:
        """Once more on a fresh session where the old one was lost; else raises what the read has come to."""
        if not isinstance(error, faults.DRIVER_ERRORS):
            self._pool.discard(session)  # it may still be waiting for its answer
            raise error
        if session.is_overdue or not (faults.is_lost(error) or faults.is_stale(error)):
            await self._leave(session)
            raise told(faults.unread(error), error)
        fresh = await self._pool.replace(session)
        try:
            rows = await read(fresh)
        except faults.DRIVER_ERRORS as again:
            self._pool.discard(fresh)
            raise told(faults.unread(again), again) from again
        except BaseException:
            self._pool.discard(fresh)
            raise
        self._pool.give(fresh)
        return rows

    async def _run(self, operation: Operation[T]) -> T:
        """An operation in a transaction, whatever becomes of who waits for it."""
        return await self._shielded(self._transact(operation))

    async def _shielded(self, write: Coroutine[Any, Any, T]) -> T:
        task = asyncio.get_running_loop().create_task(write)
        self._writes.add(task)
        task.add_done_callback(self._note_end)
        return await asyncio.shield(task)

    def _note_end(self, task: asyncio.Task[Any]) -> None:
        self._writes.discard(task)
        self._written += 1
        log_error(task)

    async def _transact(self, operation: Operation[T]) -> T:
        """Again from the beginning where the server undid it for another's sake, or was lost before the commit."""
        attempts, losses = 0, 0
        while True:
            session = await self._pool.take_good()
            try:
                return await self._attempt(session, operation)
            except faults.DRIVER_ERRORS as error:
                attempts += 1
                losses += faults.is_lost(error) or faults.is_stale(error)
                again = faults.is_undone(error) or ((faults.is_lost(error) or faults.is_stale(error)) and losses == 1)
                if not again or session.is_overdue or attempts == ATTEMPTS:
                    raise told(faults.unwritten(error), error) from error

    async def _attempt(self, session: Session, operation: Operation[T]) -> T:
        """One transaction. Raises a driver's error only when it has certainly written nothing, else Unavailable."""
        try:
            await session.run("BEGIN")
            result = await operation(session)
        except BaseException as error:
            await self._leave(session, keep=isinstance(error, Exception))
            raise
        try:
            done = await session.run("COMMIT")
        except BaseException as error:
            self._pool.discard(session)
            if faults.is_undone(error):
                raise
            raise told(faults.unknown(), error) from error
        self._pool.give(session)
        if done != "COMMIT":
            raise faults.unknown()
        return result

    async def _leave(self, session: Session, *, keep: bool = True) -> None:
        """Give a session back out of whatever transaction it may be in."""
        try:
            if not keep or session.connection.is_closed():
                self._pool.discard(session)
                return
            if session.connection.is_in_transaction():
                await session.run("ROLLBACK")
        except BaseException as error:
            self._pool.discard(session)
            if not isinstance(error, faults.DRIVER_ERRORS):
                raise
        else:
            self._pool.give(session)

    async def _prepared(self, statement: str) -> Session:
        """A session that holds the statement, so that no fault of preparing it leaves a write in doubt."""
        losses = 0
        while True:
            session = await self._pool.take_good()
            try:
                await session.prepare_once(statement)
            except faults.DRIVER_ERRORS as error:
                await self._leave(session)
                losses += 1
                if losses > 1 or not faults.is_lost(error):
                    raise told(faults.unwritten(error), error) from error
            except BaseException:
                self._pool.discard(session)
                raise
            else:
                return session


def log_error(task: asyncio.Task[Any]) -> None:
    """Look at what a task has come to, which nobody may be waiting for any more."""
    if not task.cancelled():
        task.exception()


def told(fault: Unavailable, error: BaseException) -> Unavailable:
    """A fault, whose reason is for the log alone."""
    _log.warning("%s: %s", fault.message, faults.described(error))
    fault.__cause__ = error
    return fault
