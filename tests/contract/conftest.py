"""Fixtures that run each test on every engine. The tests themselves know no engine."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast
from uuid import uuid4

import apsw
import pytest

from listings.domain.account_limits import NO_LIMITS, AccountLimits
from listings.domain.model import Account
from listings.domain.rate_limiter import RateLimiter
from listings.ratelimit.mapped import MappedLimiter
from listings.ratelimit.mapped_file import MachineClock
from listings.ratelimit.memory import MemoryLimiter
from listings.ratelimit.redis import RedisLimiter
from listings.store.postgres.pool import PoolLimits
from listings.store.postgres.store import PostgresStore
from listings.store.sqlite import database
from listings.store.sqlite.database import Database
from listings.store.sqlite.store import SqliteStore
from listings.store.store import Store
from tests.citus_cluster import ADDRESS
from tests.harness import Clock
from tests.redis_server import RedisServer
from tests.sqlite_database import create_database

T = TypeVar("T")
ENGINES = ("sqlite", "postgres", *(["citus"] if ADDRESS else []))
Run: TypeAlias = Callable[[Coroutine[Any, Any, Any]], Any]
MakeLimiter: TypeAlias = Callable[..., RateLimiter]


class WatchedStore:
    """A SQLite store that is checked after each call: no statement may be left open on the reader."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if not inspect.iscoroutinefunction(method):
            return method

        async def watched(*arguments: Any, **options: Any) -> Any:
            try:
                return await method(*arguments, **options)
            finally:
                database = self._store._database  # noqa: SLF001 - the check needs it
                if isinstance(database, Database):
                    assert database.reader.txn_state() == apsw.SQLITE_TXN_NONE

        return watched


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stall of the machine must not divide a read: callers of a store repeat one that takes too long in pieces."""
    monkeypatch.setattr(database, "_MAX_READ_SECONDS", 60.0)


@pytest.fixture
def run() -> Iterator[Run]:
    """Run coroutines one after another on one event loop."""
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture(params=ENGINES)
def store(request: pytest.FixtureRequest, tmp_path: Path, run: Run) -> Iterator[Store]:
    """An empty store of each engine."""
    with open_store(request, request.param, tmp_path, run) as store:
        yield store


@contextmanager
def open_store(
    request: pytest.FixtureRequest, engine: str, folder: Path, run: Run, limits: AccountLimits = NO_LIMITS
) -> Iterator[Store]:
    if engine != "sqlite":
        with request.getfixturevalue(engine).database() as url:
            postgres_store = PostgresStore(url, PoolLimits(sessions=8, seconds=120), account_limits=limits)
            run(postgres_store.open())
            yield postgres_store
            run(postgres_store.close())
        return
    path = folder / "listings.db"
    create_database(path)
    store = SqliteStore(path, account_limits=limits)
    run(store.open())
    yield cast("Store", WatchedStore(store))
    run(store.close())


@pytest.fixture
def account(store: Store, run: Run) -> Account:
    """Alice's account, with an active plan."""
    account = run(store.add_account("Alice", "alice@example.com", 2_000_000_000, 1_000))
    assert isinstance(account, Account)
    return account


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "mapped", "redis"])
def make_limiter(request: pytest.FixtureRequest, clock: Clock, tmp_path: Path, run: Run) -> Iterator[MakeLimiter]:
    """Create empty limiters of each kind, given limit and window in seconds."""
    limiters: list[RateLimiter] = []

    def create(limit: int, window: int) -> RateLimiter:
        if request.param == "memory":
            limiters.append(MemoryLimiter(limit, window, clock))
        elif request.param == "redis":
            server: RedisServer = request.getfixturevalue("redis_server")
            limiters.append(RedisLimiter(server.endpoint(), uuid4().hex, limit, window, clock))
        else:
            machine = MachineClock(since_boot=clock, wall=clock)
            database = tmp_path / f"{len(limiters)}.db"
            limiters.append(MappedLimiter(database, "0" * 32, limit, window, machine))
        return limiters[-1]

    yield create
    for limiter in limiters:
        run(limiter.close())
