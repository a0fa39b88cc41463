"""A session counts as busy only while a statement runs. One that is cut leaves the pool."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from listings.domain.errors import Problem, Unavailable
from listings.domain.model import bucket_of
from listings.domain.reverts import RevertRequest
from listings.store.postgres.pool import Pool, PoolLimits, Session
from listings.store.postgres.store import PostgresStore
from listings.store.query import Query
from tests.harness import TIMEOUT
from tests.postgres_server import PostgresServer

CUT = "Closed a session"
FAILURES: dict[str, Callable[[Session], Awaitable[Any]]] = {
    "fetch": lambda session: session.fetch(Query[tuple[int]]("SELECT 1 / $1::integer"), 0),
    "fetch_many": lambda session: session.fetch_many(Query[tuple[int]]("SELECT 1 / $1::integer"), [(0,)]),
    "a parameter": lambda session: session.fetch(Query[tuple[int]]("SELECT $1::integer"), "no number"),
    "execute": lambda session: session.execute("SELECT 1 / 0"),
    "prepare": lambda session: session.prepare("SELECT nothing"),
}


@pytest.mark.parametrize("fail", FAILURES.values(), ids=FAILURES)
def test_a_session_is_idle_after_a_failed_statement(
    url: str, fail: Callable[[Session], Awaitable[Any]], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        pool = Pool(url, PoolLimits(1, TIMEOUT))
        await pool.open()
        try:
            session = await pool.acquire()
            with pytest.raises((asyncpg.PostgresError, asyncpg.DataError)):
                await fail(session)
            pool.release(session)
            _let_time_pass(pool)
            assert pool.acquire_idle() is session
        finally:
            await pool.close()

    asyncio.run(scenario())
    assert CUT not in caplog.text


def test_the_server_plans_a_statement_once_in_a_session(url: str) -> None:
    async def scenario() -> None:
        store = PostgresStore(url, PoolLimits(1, TIMEOUT))
        await store.open()
        for number in range(30):
            await store.get_listing(1024 * number + 1)
        session = await store._pool.acquire_usable()  # noqa: SLF001 - only the session knows its statements
        runs = await session.fetch(Query[tuple[int]]("SELECT max(generic_plans) FROM pg_prepared_statements"))
        assert runs[0][0] > 20
        store._pool.release(session)  # noqa: SLF001
        await store.close()

    asyncio.run(scenario())


def test_a_read_that_finds_nothing_keeps_its_session(url: str) -> None:
    async def scenario() -> None:
        store = PostgresStore(url, PoolLimits(1, TIMEOUT))
        await store.open()
        try:
            alice = await store.add_account("Alice", "alice@example.com", None, 1_000)
            assert alice is not None
            pool = store._pool  # noqa: SLF001 - no method shows the sessions
            session = await pool.acquire()
            pool.release(session)
            with pytest.raises(Problem, match="no change set"):
                await store.find_revert_scope(bucket_of(alice.id), alice.id, RevertRequest("change", 5))
            assert pool.acquire_idle(searching=True) is session
            assert not session.connection.is_in_transaction()
        finally:
            await store.close()

    asyncio.run(scenario())


def test_a_session_that_is_cut_leaves_the_pool_after_one_line(url: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        store = PostgresStore(url, PoolLimits(1, TIMEOUT))
        await store.open()
        try:
            read = asyncio.create_task(store._read(Query[tuple[int]]("SELECT pg_sleep(1000)")))  # noqa: SLF001 - slow enough
            waiting = asyncio.create_task(store.get_account(1))
            pool = store._pool  # noqa: SLF001 - the test moves its time
            while not any(session.sent_at >= 0 for session in pool._sessions):  # noqa: SLF001, ASYNC110 - no event
                await asyncio.sleep(0.01)
            for _ in range(3):
                _let_time_pass(pool)
            assert await waiting is None  # on a new session
            with pytest.raises(Unavailable, match="can't be reached"):
                await read
        finally:
            await store.close()

    asyncio.run(scenario())
    assert caplog.text.count(CUT) == 1


def test_a_caller_that_waits_learns_that_the_database_is_not_supported(postgres: PostgresServer) -> None:
    create = "CREATE DATABASE exchanged TEMPLATE template0 LOCALE 'C' ENCODING"
    postgres.execute(f"{create} 'UTF8'")

    async def scenario() -> list[Session | BaseException]:
        pool = Pool(postgres.url("exchanged"), PoolLimits(1, TIMEOUT))
        await pool.open()
        try:
            pool.discard(await pool.acquire())
            await asyncio.to_thread(postgres.execute, "DROP DATABASE exchanged WITH (FORCE)")
            await asyncio.to_thread(postgres.execute, f"{create} 'LATIN1'")
            return [*await asyncio.gather(pool.acquire(), pool.acquire(), return_exceptions=True)]
        finally:
            await pool.close()

    assert ["LATIN1" in str(error) for error in asyncio.run(scenario())] == [True, True]


def _let_time_pass(pool: Pool) -> None:
    """Let the pool believe that a statement's time is over."""
    pool.second += 2 * TIMEOUT
    pool._timer.cancel()  # type: ignore[union-attr]  # noqa: SLF001 - the next line starts another one
    pool._tick()  # noqa: SLF001 - runs once a second
