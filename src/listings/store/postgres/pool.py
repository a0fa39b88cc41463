"""A bounded number of sessions with PostgreSQL, each held open with the statements that it has prepared.

A session is used as it was left: nothing is reset between uses, since nothing here changes it.
"""

import asyncio
import logging
import os
import select
import socket
from collections import deque
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

import asyncpg
from asyncpg.prepared_stmt import PreparedStatement

from listings.domain.errors import Problem, Unavailable
from listings.store.postgres import errors as faults

Rows: TypeAlias = list[Any]
"""Rows whose values are in the order of a statement's columns."""

OLDEST_SERVER = 15
_MOST_WAITING = 1024
_MOST_STATEMENTS = 400  # that a session holds prepared
_CONNECT_SECONDS = 3  # at least: who waits longer for a statement waits so long for a session, too
_PAUSE = 0.25  # seconds without a new attempt after one has failed
_CLOSE_SECONDS = 2
_OVERDUE = 2  # seconds beyond the statement timeout
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 3), (socket.TCP_KEEPCNT, 3))
_BEGIN = """
SELECT pg_postmaster_start_time(), CASE WHEN current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')
    THEN set_config('synchronous_commit', 'on', false) END
"""

_log = logging.getLogger(__name__)


class PoolLimits(NamedTuple):
    """How many sessions there are at most, and how many seconds a statement may take, as may the wait for a session."""

    sessions: int
    seconds: float


class Session:
    """A connection with its prepared statements, used by one caller at a time."""

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]", pool: "Pool") -> None:
        self.connection = connection
        self.is_overdue = False
        self._pool = pool
        self._statements: dict[str, PreparedStatement[asyncpg.Record]] = {}
        self._poll = select.poll()
        transport = connection._transport  # noqa: SLF001 - the driver shows it nowhere else
        descriptor = transport.get_extra_info("socket").fileno()
        _bound_silence(descriptor)
        self._poll.register(descriptor, select.POLLIN)
        self.asked_at = -1  # the pool's second in which the statement that runs was sent

    async def fetch(self, statement: str, *values: object) -> Rows:
        """All rows of a statement."""
        prepared = self._statements.get(statement) or await self.prepare(statement)
        self.asked_at = self._pool.second
        rows: Rows = await prepared.fetch(*values)
        self.asked_at = -1
        return rows

    async def fetch_many(self, statement: str, values: list[tuple[object, ...]]) -> Rows:
        """All rows of a statement that is run for each of the values, by one message."""
        prepared = self._statements.get(statement) or await self.prepare(statement)
        self.asked_at = self._pool.second
        rows: Rows = await prepared.fetchmany(values)
        self.asked_at = -1
        return rows

    async def fetch_one(self, statement: str, *values: object) -> Any:  # noqa: ANN401 - a row
        """The one row that it returns."""
        return (await self.fetch(statement, *values))[0]

    async def run_many(self, statement: str, values: Iterable[tuple[object, ...]]) -> None:
        """Run a statement once for each of the values, in one transaction and without a wait between them."""
        prepared = self._statements.get(statement) or await self.prepare(statement)
        self.asked_at = self._pool.second
        await prepared.executemany(values)
        self.asked_at = -1

    async def run(self, command: str) -> str:
        """A command without values, such as BEGIN; returns what the server calls it done as."""
        self.asked_at = self._pool.second
        done = await self.connection.execute(command)
        self.asked_at = -1
        return str(done)

    async def prepare_once(self, statement: str) -> None:
        """Have it prepared, if it isn't."""
        if statement not in self._statements:
            await self.prepare(statement)

    async def prepare(self, statement: str) -> "PreparedStatement[asyncpg.Record]":
        """Have the server plan a statement, once for as long as the session lasts."""
        if len(self._statements) >= _MOST_STATEMENTS:
            del self._statements[next(iter(self._statements))]
        self.asked_at = self._pool.second
        prepared = self._statements[statement] = await self.connection.prepare(statement)
        self.asked_at = -1
        return prepared

    @property
    def is_good(self) -> bool:
        """Whether it may be used: nothing has come from the server unasked, which would be its end."""
        return not self.connection.is_closed() and not self._poll.poll(0)


class Pool:
    """Sessions for those who ask, the last one that was used first. Used on one event loop."""

    def __init__(self, url: str, bounds: PoolLimits, on_other_server: Callable[[], None] = lambda: None) -> None:
        """`url` is the database's, as libpq has it.

        `on_other_server` is called before a session is used with another server than the last one was with, be it the
        same one after a restart; and before the first.
        """
        self.second = 0
        self._url = url
        self._bounds = bounds
        self._on_other_server = on_other_server
        self._server_started: datetime | None = None
        self._idle: list[Session] = []
        self._sessions: set[Session] = set()
        self._connecting = 0
        self._connects: set[asyncio.Task[Session]] = set()
        self._waiting: deque[asyncio.Future[Session | None]] = deque()
        self._pause_until = 0.0
        self._away_since: float | None = None  # of the loop's time, when an attempt to connect has failed first
        self._is_closed = True
        self._sweep: asyncio.TimerHandle | None = None

    async def open(self) -> None:
        """Connect once. Raises Problem("database_missing"), Unavailable with the reason."""
        self._is_closed = False
        self._tick()
        try:
            self.give(await self._connect())
        except BaseException as error:
            await self.close()
            if isinstance(error, Unavailable) and error.__cause__ is not None:
                raise unreachable(error.__cause__) from error
            raise

    async def close(self) -> None:
        """End all sessions; those in use are cut."""
        self._is_closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for future in self._waiting:
            if not future.done():
                future.set_exception(Unavailable("The service is stopping"))
        self._waiting.clear()
        idle, self._idle = self._idle, []
        for session in self._sessions - set(idle):
            session.connection.terminate()
        self._sessions.clear()
        await asyncio.gather(*self._connects, *(_end(session) for session in idle), return_exceptions=True)

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, or never opened."""
        return self._is_closed

    def take_now(self) -> Session | None:
        """A session that is idle, if there is one."""
        while self._idle:
            session = self._idle.pop()
            if not session.connection.is_closed():
                return session
            self._sessions.discard(session)
        return None

    async def take(self) -> Session:
        """A session. Raises Unavailable when too many wait for one, or it takes too long."""
        end = asyncio.get_running_loop().time() + self._bounds.seconds
        while True:
            if self._is_closed:
                raise Unavailable("The service is stopping")
            session = self.take_now()
            if session is None and len(self._sessions) + self._connecting < self._bounds.sessions:
                return await self._connect()
            session = session or await self._wait(end)
            if session is not None:
                return session

    async def take_good(self) -> Session:
        """A session of which it is known, as far as this side can know, that the server has not ended it."""
        while True:
            session = self.take_now() or await self.take()
            if session.is_good:
                return session
            self.discard(session)

    async def replace(self, session: Session) -> Session:
        """A new session for one that was lost."""
        self._drop(session)
        return await self._connect()

    def give(self, session: Session) -> None:
        """Return a session that is as it was taken: without a transaction."""
        if self._is_closed or session.connection.is_closed() or session not in self._sessions:
            self.discard(session)
        elif (waiter := self._next_waiter()) is not None:
            waiter.set_result(session)
        else:
            self._idle.append(session)

    def discard(self, session: Session) -> None:
        """Cut a session; one that waits may connect in its place."""
        self._drop(session)
        self._let_one_connect()

    def _drop(self, session: Session) -> None:
        self._sessions.discard(session)
        session.connection.terminate()

    def _let_one_connect(self) -> None:
        waiter = self._next_waiter()
        if waiter is not None:
            waiter.set_result(None)

    def _next_waiter(self) -> "asyncio.Future[Session | None] | None":
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                return waiter
        return None

    async def _wait(self, end: float) -> Session | None:
        """Stand in line; None: look again."""
        if len(self._waiting) >= _MOST_WAITING:
            raise Unavailable("Too many requests wait for the database")
        future: asyncio.Future[Session | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        timer = asyncio.get_running_loop().call_at(end, _refuse, future)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                session = future.result()
                self.give(session) if session is not None else self._let_one_connect()
            raise
        finally:
            timer.cancel()
            if future in self._waiting:
                self._waiting.remove(future)

    async def _connect(self) -> Session:
        """A new session, by a task of its own: it is kept for others should who asks for it be cancelled."""
        self._connecting += 1  # at once, so that nobody else takes the place
        task = asyncio.get_running_loop().create_task(self._open_session())
        self._connects.add(task)
        task.add_done_callback(self._connects.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(self._keep)
            raise

    def _keep(self, task: "asyncio.Task[Session]") -> None:
        if not task.cancelled() and task.exception() is None:
            self.give(task.result())

    async def _open_session(self) -> Session:
        loop = asyncio.get_running_loop()
        try:
            if loop.time() < self._pause_until:
                raise Unavailable("The database can't be reached")
            connection, server_started = await _begin(self._url, self._bounds.seconds)
            session = Session(connection, self)
        except faults.DRIVER_ERRORS as error:
            self._pause_until = loop.time() + _PAUSE
            self._note_away(error)
            raise Unavailable("The database can't be reached") from error
        finally:
            self._connecting -= 1
            if loop.time() < self._pause_until:
                self._let_one_connect()
        if self._is_closed:
            session.connection.terminate()
            raise Unavailable("The service is stopping")
        self._note_back()
        self._sessions.add(session)
        if server_started != self._server_started:
            self._server_started = server_started
            self._on_other_server()
        return session

    def _note_away(self, error: BaseException) -> None:
        if self._away_since is None:
            self._away_since = asyncio.get_running_loop().time()
            _log.warning("The database can't be reached: %s", reason_of(error))

    def _note_back(self) -> None:
        if self._away_since is not None:
            away = asyncio.get_running_loop().time() - self._away_since
            self._away_since = None
            _log.warning("The database is back after %.0f s", away)

    def _tick(self) -> None:
        """Once a second: cut the sessions whose server has long been silent, so that no caller waits for ever."""
        self.second += 1
        self._sweep = asyncio.get_running_loop().call_later(1, self._tick)
        allowed = self._bounds.seconds + _OVERDUE
        for session in list(self._sessions):
            if session.asked_at >= 0 and self.second - session.asked_at > allowed:
                _log.warning("A session is cut: the database has been silent for %d seconds", allowed)
                session.is_overdue = True
                session.connection.terminate()


async def connect(url: str, seconds: float) -> "asyncpg.Connection[asyncpg.Record]":
    """A connection whose commits are on disk when they return, and whose statements and locks wait within bounds."""
    return (await _begin(url, seconds))[0]


async def _begin(url: str, seconds: float) -> "tuple[asyncpg.Connection[asyncpg.Record], datetime]":
    """A connection, and when its server was started."""
    connection = await _connect(url, max(1, int(seconds * 1000)))
    try:
        async with asyncio.timeout(max(_CONNECT_SECONDS, seconds)):  # the server may fall silent at any moment
            server_started = await connection.fetchval(_BEGIN)
        _require_version(connection.get_server_version().major)
        _require_encoding(connection.get_settings().server_encoding)
    except BaseException:
        connection.terminate()
        raise
    return connection, server_started


async def _connect(url: str, milliseconds: int) -> Any:  # noqa: ANN401 - the driver's
    try:
        return await _ask_for_connection(url, milliseconds)
    except ValueError as error:
        if isinstance(error, faults.DRIVER_ERRORS):
            raise
        raise asyncpg.InterfaceError("its address can't be used") from None  # whose text may hold a password


async def _ask_for_connection(url: str, milliseconds: int) -> Any:  # noqa: ANN401 - the driver's
    return await asyncpg.connect(
        url,
        timeout=max(_CONNECT_SECONDS, milliseconds / 1000),
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
            # Every statement has its index, and `postgres_search` sorts only what it has gathered before.
            "enable_seqscan": "off",
            "enable_hashjoin": "off",
            "enable_mergejoin": "off",
            "enable_sort": "off",
            "enable_incremental_sort": "off",
        },
    )


def _require_version(major: int) -> None:
    if major < OLDEST_SERVER:
        raise Problem("schema_mismatch", f"PostgreSQL {major} is too old; {OLDEST_SERVER} or newer is needed")


def _require_encoding(encoding: str) -> None:
    if encoding != "UTF8":
        raise Problem(
            "schema_mismatch", f"The database's encoding is {encoding}: make it with `createdb --encoding=UTF8`"
        )


def unreachable(error: BaseException) -> Problem:
    """What a connection that could not be made is told as."""
    if faults.is_missing_database(error):
        return Problem("database_missing", f"There is no such database: {reason_of(error)}: make it with `createdb`")
    return Unavailable(f"The database can't be reached: {reason_of(error)}")


def reason_of(error: BaseException) -> str:
    """The driver's words in one line, which never hold a password."""
    return " ".join(str(error).split())[:300] or ("it does not answer" if isinstance(error, OSError) else "no reason")


def _refuse(future: "asyncio.Future[Session | None]") -> None:
    if not future.done():
        future.set_exception(Unavailable("The database is busy"))


async def _end(session: Session) -> None:
    try:
        await session.connection.close(timeout=_CLOSE_SECONDS)
    except faults.DRIVER_ERRORS:
        session.connection.terminate()


def _bound_silence(descriptor: int) -> None:
    """Let the kernel end a connection whose other side is gone; a socket of the machine's own needs none of it."""
    with socket.socket(fileno=os.dup(descriptor)) as own:
        if own.family not in {socket.AF_INET, socket.AF_INET6}:
            return
        own.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 10_000)
        for option, value in _KEEPALIVE:
            own.setsockopt(socket.IPPROTO_TCP, option, value)
