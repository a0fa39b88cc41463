"""A bounded connection pool for PostgreSQL, in which each session keeps its prepared statements.

Searches have sessions of their own, with `enable_sort = off`: SET LOCAL before each search would make it 9 to 48%
slower. If all sessions are open, one of the other kind is converted. Sessions are not reset between uses, because the
store changes no other settings.
"""

import asyncio
import logging
import os
import select
import socket
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import count
from time import monotonic
from typing import Any, NamedTuple, TypeAlias

import asyncpg
from asyncpg.prepared_stmt import PreparedStatement

from listings.domain.errors import Problem, Unavailable
from listings.domain.market import build_timeout_error
from listings.store.postgres import citus, errors
from listings.store.query import Query, R
from listings.store.sql import GET_RESTORE_ID

Rows: TypeAlias = list[Any]
"""Rows with their values in the order of the statement's columns."""
_Server: TypeAlias = tuple[datetime, str]  # the time of its start, and the id of the database's last restore

MIN_SERVER_VERSION = 15
_MAX_WAITING = 1024  # callers that wait for a session
_MAX_PREPARED_STATEMENTS = 400  # per session
_MIN_CONNECT_TIMEOUT_SECONDS = 3  # a longer statement timeout also applies to connecting
_RECONNECT_PAUSE_SECONDS = 0.25  # after a failed attempt
_CLOSE_TIMEOUT_SECONDS = 2
_OVERDUE_SECONDS = 2  # beyond the statement timeout
_MISSING_DATABASE = "3D000"
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 3), (socket.TCP_KEEPCNT, 3))
_SEARCH_SWITCHES = ("enable_sort", "enable_incremental_sort")
_PREPARE_SESSION = f"""
SELECT pg_postmaster_start_time(), {citus.IS_INSTALLED},
    CASE WHEN current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')
    THEN set_config('synchronous_commit', 'on', false) END
"""

_log = logging.getLogger(__name__)


class NoSessionError(Unavailable):
    """All sessions are in use, so nothing was sent to the database."""


class PoolLimits(NamedTuple):
    """The maximum number of sessions, and the timeout in seconds for a statement and for the wait for a session."""

    sessions: int
    seconds: float


class Session:
    """A connection with its prepared statements. Used by one caller at a time."""

    def __init__(self, connection: asyncpg.Connection, pool: "Pool", *, searching: bool) -> None:
        self.connection = connection
        self.searching = searching  # whether its planner is set for searches
        self.is_overdue = False
        self._pool = pool
        self._statements: dict[str, PreparedStatement] = {}
        self._numbers = count()  # of the statements, for their names
        self._poll = select.poll()
        self._poll.register(_get_descriptor(connection), select.POLLIN)
        self._deadline: float | None = None  # of `fetch`, by the monotonic clock
        self.sent_at = -1  # the pool's second in which the running statement was sent; -1 if none is running

    async def fetch(self, statement: Query[R], *values: object) -> list[R]:
        """Return all rows of a statement."""
        prepared = self._statements.get(statement) or await self.prepare(statement)
        self.sent_at = self._pool.second
        try:
            timeout = self._deadline and max(self._deadline - monotonic(), 0.0)
            rows: list[Any] = await prepared.fetch(*values, timeout=timeout)
            return rows
        finally:
            self.sent_at = -1

    @contextmanager
    def limit_time(self, seconds: float) -> Iterator[None]:
        """Limit the time of all calls of `fetch` together. The server ends a later statement; see its error."""
        self._deadline = monotonic() + seconds
        try:
            yield
        except TimeoutError as error:
            raise build_timeout_error() from error
        finally:
            self._deadline = None

    async def fetch_many(self, statement: Query[R], values: list[tuple[object, ...]]) -> list[R]:
        """Run a statement once for each of the values, in one round trip, and return all rows."""
        prepared = self._statements.get(statement) or await self.prepare(statement)
        self.sent_at = self._pool.second
        try:
            rows: list[Any] = await prepared.fetchmany(values)
            return rows
        finally:
            self.sent_at = -1

    async def fetch_one(self, statement: Query[R], *values: object) -> R:
        """Return the first row of a statement, which must have one."""
        return (await self.fetch(statement, *values))[0]

    async def execute(self, command: str) -> str:
        """Run a command without parameters, such as BEGIN, and return its command tag."""
        self.sent_at = self._pool.second
        try:
            return await self.connection.execute(command)
        finally:
            self.sent_at = -1

    async def set_searching(self, *, searching: bool) -> None:
        """Set the planner for searches or for other statements. Must not be called in a transaction."""
        if self.searching != searching:
            switches = _build_switches(searching=searching)
            await self.execute("; ".join(f"SET {name} = {value}" for name, value in switches.items()))
            self.searching = searching

    async def ensure_prepared(self, statement: str) -> None:
        """Prepare a statement unless the session has done so before."""
        if statement not in self._statements:
            await self.prepare(statement)

    async def prepare(self, statement: str) -> PreparedStatement:
        """Prepare a statement for the rest of the session. Drop the oldest one if there are too many."""
        if len(self._statements) >= _MAX_PREPARED_STATEMENTS:
            del self._statements[next(iter(self._statements))]
        # Without a name, asyncpg sends the statement's text each time, and the server plans it again: a read of one
        # listing then takes 115 us instead of 71.
        name = f"listings_{next(self._numbers)}"
        self.sent_at = self._pool.second
        try:
            prepared = self._statements[statement] = await self.connection.prepare(str(statement), name=name)
        finally:
            self.sent_at = -1
        return prepared

    @property
    def is_usable(self) -> bool:
        """Whether the session is open. Unread input on an idle session means that the server has ended it."""
        return not self.connection.is_closed() and not self._poll.poll(0)


class Pool:
    """A pool of sessions for one event loop. Reuses the most recently used session first."""

    def __init__(self, url: str, limits: PoolLimits, on_other_server: Callable[[], None] = lambda: None) -> None:
        """`url` is a libpq connection URI.

        `on_other_server` is called before the first session is used, and whenever a new session is on a different
        server than the previous one. A restarted server, and one with a restored database, count as different.
        """
        self.second = 0
        self.restore_id = ""
        self._url = url
        self._limits = limits
        self._on_other_server = on_other_server
        self._server: _Server | None = None
        self._idle: dict[bool, list[Session]] = {False: [], True: []}  # True: those for searches
        self._sessions: set[Session] = set()
        self._connecting = 0
        self._connects: set[asyncio.Task[Session]] = set()
        self._waiting: deque[asyncio.Future[Session | None]] = deque()
        self._pause_until = 0.0
        self._unreachable_since: float | None = None  # loop time of the first failed attempt to connect
        self._is_closed = True
        self._timer: asyncio.TimerHandle | None = None

    async def open(self) -> None:
        """Open the first session. Raises Problem like `migrate.with_connection`, or Unavailable with the reason."""
        self._is_closed = False
        self._tick()
        try:
            self.release(await self._connect())
        except BaseException as error:
            await self.close()
            if isinstance(error, Unavailable) and error.__cause__ is not None:
                raise build_unreachable_error(error.__cause__) from error
            raise

    async def close(self) -> None:
        """Close idle sessions and terminate those in use."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for future in self._waiting:
            if not future.done():
                future.set_exception(Unavailable("The service is stopping"))
        self._waiting.clear()
        idle = [*self._idle[False], *self._idle[True]]
        self._idle = {False: [], True: []}
        for session in self._sessions - set(idle):
            session.connection.terminate()
        self._sessions.clear()
        closing = [disconnect(session.connection, _CLOSE_TIMEOUT_SECONDS) for session in idle]
        await asyncio.gather(*self._connects, *closing, return_exceptions=True)

    def count(self) -> tuple[int, int]:
        """Return how many sessions are in use, and how many callers wait for one. May be called from any thread."""
        return len(self._sessions) - sum(map(len, self._idle.values())), len(self._waiting)

    @property
    def _has_room(self) -> bool:
        return len(self._sessions) + self._connecting < self._limits.sessions

    def acquire_idle(self, *, searching: bool = False) -> Session | None:
        """Return an idle session whose planner is already set as requested, or None."""
        idle = self._idle[searching]
        while idle:
            session = idle.pop()
            if not session.connection.is_closed():
                return session
            self._sessions.discard(session)
        return None

    async def acquire(self, *, searching: bool = False) -> Session:
        """Return a session for searches, or for other statements.

        Raises Unavailable if too many callers are waiting, or after the timeout.
        """
        deadline = asyncio.get_running_loop().time() + self._limits.seconds
        while True:
            if self._is_closed:
                raise Unavailable("The service is stopping")
            session = self.acquire_idle(searching=searching)
            if session is None and self._has_room:
                return await self._connect(searching=searching)
            session = session or self.acquire_idle(searching=not searching)
            if session is None and not self._has_room:  # it has room if all idle ones turned out to be closed
                session = await self._wait(deadline)
            if session is not None and await self._convert(session, searching=searching):
                return session

    async def acquire_usable(self, *, searching: bool = False) -> Session:
        """Return a session that the server has not ended, as far as this side can know."""
        while True:
            session = self.acquire_idle(searching=searching) or await self.acquire(searching=searching)
            if session.is_usable:
                return session
            self.discard(session)

    async def replace(self, session: Session) -> Session:
        """Terminate a lost session and return a new one."""
        self._terminate(session)
        return await self._connect(searching=session.searching)

    def release(self, session: Session) -> None:
        """Return a session to the pool. It must not be in a transaction."""
        if self._is_closed or session.connection.is_closed() or session not in self._sessions:
            self.discard(session)
        elif (waiter := self._pop_waiter()) is not None:
            waiter.set_result(session)
        else:
            self._idle[session.searching].append(session)

    def discard(self, session: Session) -> None:
        """Terminate a session, so that a waiting caller can open a new one."""
        self._terminate(session)
        self._wake_waiter()

    async def _convert(self, session: Session, *, searching: bool) -> bool:
        # Returns False if the server has ended the session.
        try:
            await session.set_searching(searching=searching)
        except BaseException as error:
            self.discard(session)
            if not isinstance(error, errors.DRIVER_ERRORS):
                raise
            return False
        return True

    def _terminate(self, session: Session) -> None:
        self._sessions.discard(session)
        session.connection.terminate()

    def _wake_waiter(self) -> None:
        waiter = self._pop_waiter()
        if waiter is not None:
            waiter.set_result(None)

    def _pop_waiter(self) -> asyncio.Future[Session | None] | None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                return waiter
        return None

    async def _wait(self, deadline: float) -> Session | None:
        # Returns None if the caller should try again, because it may now open a session itself.
        if len(self._waiting) >= _MAX_WAITING:
            raise NoSessionError("Too many requests are waiting for the database")
        future: asyncio.Future[Session | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        timer = asyncio.get_running_loop().call_at(deadline, _time_out, future)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                session = future.result()
                self.release(session) if session is not None else self._wake_waiter()
            raise
        finally:
            timer.cancel()
            if future in self._waiting:
                self._waiting.remove(future)

    async def _connect(self, *, searching: bool = False) -> Session:
        # In a task of its own, so that others can use the session if the caller is cancelled.
        self._connecting += 1  # before the first await, so that nobody else takes the free slot
        task = asyncio.get_running_loop().create_task(self._open_session(searching=searching))
        self._connects.add(task)
        task.add_done_callback(self._connects.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(self._release_result)
            raise

    def _release_result(self, task: asyncio.Task[Session]) -> None:
        if not task.cancelled() and task.exception() is None:
            self.release(task.result())

    async def _open_session(self, *, searching: bool) -> Session:
        loop = asyncio.get_running_loop()
        session = None
        try:
            if loop.time() < self._pause_until:
                raise Unavailable("The database can't be reached")
            connection, server = await _connect_and_check(self._url, self._limits.seconds, searching=searching)
            session = Session(connection, self, searching=searching)
        except errors.DRIVER_ERRORS as error:
            self._pause_until = loop.time() + _RECONNECT_PAUSE_SECONDS
            self._record_outage(error)
            raise Unavailable("The database can't be reached") from error
        finally:
            self._connecting -= 1
            if session is None:  # somebody else may use the free slot
                self._wake_waiter()
        if self._is_closed:
            session.connection.terminate()
            raise Unavailable("The service is stopping")
        self._record_recovery()
        self._sessions.add(session)
        if server != self._server:
            self._server, self.restore_id = server, server[1]
            self._on_other_server()
        return session

    def _record_outage(self, error: BaseException) -> None:
        if self._unreachable_since is None:
            self._unreachable_since = asyncio.get_running_loop().time()
            _log.warning("The database can't be reached: %s", format_reason(error))

    def _record_recovery(self) -> None:
        if self._unreachable_since is not None:
            seconds = asyncio.get_running_loop().time() - self._unreachable_since
            self._unreachable_since = None
            _log.warning("The database is reachable again after %.0f s", seconds)

    def _tick(self) -> None:
        # Sessions whose server has been silent for too long are terminated, so that no caller waits forever.
        self.second += 1
        self._timer = asyncio.get_running_loop().call_later(1, self._tick)
        allowed = self._limits.seconds + _OVERDUE_SECONDS
        for session in list(self._sessions):
            if session.sent_at >= 0 and self.second - session.sent_at > allowed:
                _log.warning("Closed a session: the database has not responded for %d seconds", allowed)
                session.is_overdue = True
                self.discard(session)


async def connect(url: str, seconds: float, *, searching: bool = False) -> asyncpg.Connection:
    """Open a connection with synchronous commits, for searches or for other statements.

    `seconds` is the timeout for its statements.
    """
    return (await _connect_and_check(url, seconds, searching=searching))[0]


async def disconnect(connection: asyncpg.Connection, seconds: float) -> None:
    """Close a connection, and terminate it if the server does not respond in time."""
    try:
        await connection.close(timeout=seconds)
    except errors.DRIVER_ERRORS:
        connection.terminate()


async def _connect_and_check(url: str, seconds: float, *, searching: bool) -> tuple[asyncpg.Connection, _Server]:
    restore_id = ""
    connection = await _connect(url, max(1, int(seconds * 1000)), searching=searching)
    _enable_keepalive(_get_descriptor(connection))
    try:
        async with asyncio.timeout(max(_MIN_CONNECT_TIMEOUT_SECONDS, seconds)):  # the server may stop responding
            [(server_started, has_citus, _)] = await connection.fetch(_PREPARE_SESSION)
            if has_citus:
                await citus.prepare_session(connection)
            with suppress(asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError):  # an older schema, or none yet
                restore_id = str(await connection.fetchval(str(GET_RESTORE_ID)))
        _require_supported(connection.get_server_version().major, connection.get_settings().server_encoding)
    except BaseException:
        connection.terminate()
        raise
    return connection, (server_started, restore_id)


async def _connect(url: str, milliseconds: int, *, searching: bool) -> asyncpg.Connection:
    try:
        return await asyncpg.connect(
            url,
            timeout=max(_MIN_CONNECT_TIMEOUT_SECONDS, milliseconds / 1000),
            statement_cache_size=0,
            server_settings={
                "application_name": "listings",
                "statement_timeout": str(milliseconds),
                "lock_timeout": str(max(1, milliseconds * 3 // 5)),
                "idle_in_transaction_session_timeout": str(milliseconds * 2),
                "default_transaction_isolation": "read committed",
                "default_transaction_read_only": "off",
                "timezone": "UTC",
                "jit": "off",
                # Otherwise, a plan made without values, or while a table is small, could read all rows.
                "enable_seqscan": "off",
                "enable_hashjoin": "off",
                "enable_mergejoin": "off",
                **_build_switches(searching=searching),
            },
        )
    except ValueError as error:
        if isinstance(error, errors.DRIVER_ERRORS):
            raise
        raise asyncpg.InterfaceError("its URL is not valid") from None  # the original message may quote a password


def _build_switches(*, searching: bool) -> dict[str, str]:
    # A search sorts only rows that it has collected before.
    return dict.fromkeys(_SEARCH_SWITCHES, "off" if searching else "on")


def _require_supported(major: int, encoding: str) -> None:
    if major < MIN_SERVER_VERSION:
        raise Problem("schema_mismatch", f"PostgreSQL {major} is too old: install {MIN_SERVER_VERSION} or newer")
    if encoding != "UTF8":
        raise Problem(
            "schema_mismatch", f"The database's encoding is {encoding}: create it with `createdb --encoding=UTF8`"
        )


def build_unreachable_error(error: BaseException) -> Problem:
    """Return the error for a failed attempt to connect."""
    if errors.get_sqlstate(error) == _MISSING_DATABASE:
        return Problem("database_missing", f"The database does not exist: {format_reason(error)}: run `createdb`")
    return Unavailable(f"The database can't be reached: {format_reason(error)}")


def format_reason(error: BaseException) -> str:
    """Return the driver's message on one line. It never contains a password."""
    return " ".join(str(error).split())[:300] or ("no response" if isinstance(error, OSError) else "unknown reason")


def _time_out(future: asyncio.Future[Session | None]) -> None:
    if not future.done():
        future.set_exception(NoSessionError("The database is busy"))


def _get_descriptor(connection: asyncpg.Connection) -> int:
    transport = connection._transport  # type: ignore[attr-defined]  # noqa: SLF001 - it has no public name
    descriptor: int = transport.get_extra_info("socket").fileno()
    return descriptor


def _enable_keepalive(descriptor: int) -> None:
    # The kernel then closes a TCP connection whose peer is gone. Unix sockets don't need that.
    with socket.socket(fileno=os.dup(descriptor)) as own:
        if own.family not in {socket.AF_INET, socket.AF_INET6}:
            return
        own.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 10_000)
        for option, value in _KEEPALIVE:
            own.setsockopt(socket.IPPROTO_TCP, option, value)
