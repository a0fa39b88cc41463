"""Run reads and transactions on PostgreSQL, and retry them when that is safe."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from time import monotonic
from typing import Any, TypeAlias, TypeVar

from listings.domain.errors import Problem, Unavailable
from listings.store.postgres import errors
from listings.store.postgres.pool import NoSessionError, Pool, Session
from listings.store.query import Query, R

T = TypeVar("T")
Operation: TypeAlias = Callable[[Session], Awaitable[T]]

_FAILURE_SECONDS = 10  # not ready after a failed write, unless another one succeeds
MAX_ATTEMPTS = 5  # at a transaction that the server rolls back because of a conflict

_log = logging.getLogger(__name__)


class Transactions:
    """Reads and writes over a connection pool."""

    def __init__(self, pool: Pool, record_failed_write: Callable[[], None]) -> None:
        """`record_failed_write` is called after a write that the database did not confirm."""
        self._pool = pool
        self._record_failed_write = record_failed_write
        self._writes: set[asyncio.Task[Any]] = set()
        self._written = 0  # finished transactions
        self._failed_until = 0.0  # by the monotonic clock; 0 after a write that succeeded

    async def _read(self, statement: Query[R], *values: object) -> list[R]:
        pool = self._pool
        session = pool.acquire_idle() or await pool.acquire()
        try:
            rows = await session.fetch(statement, *values)
        except BaseException as error:  # noqa: BLE001 - handled there
            return await self._retry_read(session, error, lambda fresh: fresh.fetch(statement, *values))
        pool.release(session)
        return rows

    async def _use(self, read: Operation[T], *, searching: bool = False) -> T:
        pool = self._pool
        session = pool.acquire_idle(searching=searching) or await pool.acquire(searching=searching)
        try:
            rows = await read(session)
        except BaseException as error:  # noqa: BLE001 - handled there
            return await self._retry_read(session, error, read)
        pool.release(session)
        return rows

    async def _retry_read(self, session: Session, error: BaseException, read: Operation[T]) -> T:
        # Once, and on a new session, if the old one was lost.
        if not isinstance(error, errors.DRIVER_ERRORS):
            await self._give_back(session, keep=isinstance(error, Problem))  # else it may be waiting for a response
            raise error
        if session.is_overdue or not (errors.is_lost(error) or errors.is_stale(error)):
            await self._give_back(session)
            raise log_cause(errors.build_read_error(error), error)
        fresh = await self._pool.replace(session)
        try:
            rows = await read(fresh)
        except errors.DRIVER_ERRORS as again:
            self._pool.discard(fresh)
            raise log_cause(errors.build_read_error(again), again) from again
        except BaseException:
            self._pool.discard(fresh)
            raise
        self._pool.release(fresh)
        return rows

    async def _run(self, operation: Operation[T]) -> T:
        # It completes even if the caller is cancelled.
        return await self._shield(self._transact(operation))

    async def _shield(self, write: Coroutine[Any, Any, T]) -> T:
        task = asyncio.get_running_loop().create_task(write)
        self._writes.add(task)
        task.add_done_callback(self._finish_write)
        return await asyncio.shield(task)

    def _finish_write(self, task: asyncio.Task[Any]) -> None:
        self._writes.discard(task)
        self._written += 1
        if task.cancelled():
            return
        error = task.exception()  # reading it marks it as retrieved
        if isinstance(error, Unavailable) and not (
            isinstance(error, NoSessionError) or errors.is_contention(error.__cause__)
        ):
            self._failed_until = monotonic() + _FAILURE_SECONDS
            self._record_failed_write()
        elif error is None:
            self._failed_until = 0.0

    async def _transact(self, operation: Operation[T]) -> T:
        # Repeated after a conflict, or if the session was lost before the commit.
        attempts, losses = 0, 0
        while True:
            session = await self._pool.acquire_usable()
            try:
                return await self._attempt(session, operation)
            except errors.DRIVER_ERRORS as error:
                attempts += 1
                is_lost = errors.is_lost(error) or errors.is_stale(error)
                losses += is_lost
                can_retry = errors.is_rolled_back(error) or (is_lost and losses == 1)
                if not can_retry or session.is_overdue or attempts == MAX_ATTEMPTS:
                    raise log_cause(errors.build_write_error(error), error) from error

    async def _attempt(self, session: Session, operation: Operation[T]) -> T:
        # Raises a driver error only if certainly nothing was written.
        try:
            await session.execute("BEGIN")
            result = await operation(session)
        except BaseException as error:
            await self._give_back(session, keep=isinstance(error, Exception) and not errors.is_stale(error))
            raise
        try:
            tag = await session.execute("COMMIT")
        except BaseException as error:
            self._pool.discard(session)
            if errors.is_rolled_back(error):
                raise
            raise log_cause(errors.build_unknown_outcome(), error) from error
        self._pool.release(session)
        if tag != "COMMIT":
            raise errors.build_unknown_outcome()
        return result

    async def _give_back(self, session: Session, *, keep: bool = True) -> None:
        try:
            if not keep or session.connection.is_closed():
                self._pool.discard(session)
                return
            if session.connection.is_in_transaction():
                await session.execute("ROLLBACK")
        except BaseException as error:
            self._pool.discard(session)
            if not isinstance(error, errors.DRIVER_ERRORS):
                raise
        else:
            self._pool.release(session)

    async def _acquire_prepared(self, statement: str) -> Session:
        # An error while preparing then never leaves the outcome of a write unknown.
        losses = 0
        while True:
            session = await self._pool.acquire_usable()
            try:
                await session.ensure_prepared(statement)
            except errors.DRIVER_ERRORS as error:
                await self._give_back(session)
                losses += 1
                if losses > 1 or not errors.is_lost(error):
                    raise log_cause(errors.build_write_error(error), error) from error
            except BaseException:
                self._pool.discard(session)
                raise
            else:
                return session


def retrieve_exception(task: asyncio.Task[Any]) -> None:
    """Mark a task's exception as retrieved, so that asyncio does not log it if no caller is waiting any longer."""
    if not task.cancelled():
        task.exception()


def log_cause(problem: Unavailable, cause: BaseException) -> Unavailable:
    """Log the cause of a problem, which must not appear in responses, and return the problem."""
    _log.warning("%s: %s", problem.message, errors.describe(cause))
    problem.__cause__ = cause
    return problem
