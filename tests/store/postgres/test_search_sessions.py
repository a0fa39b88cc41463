"""Searches have sessions with a planner of their own, which no other statement uses."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import product
from typing import Any, TypeAlias

import pytest

from listings.domain.history import ActivityCursor
from listings.domain.listings import AddStep
from listings.domain.model import ListingQuery
from listings.store.postgres.pool import Session
from listings.store.postgres.store import PostgresStore
from listings.store.query import Query
from tests.contract.helpers import find_all
from tests.postgres_server import PostgresServer
from tests.store.postgres.test_errors import (
    CREATED,
    NEW,
    create_alice,
    end_store_sessions,
    open_session,
    open_store,
    wait_until,
)

SWITCHES = Query[tuple[str]]("""
SELECT DISTINCT setting FROM pg_settings WHERE name IN ('enable_sort', 'enable_incremental_sort')
""")
COUNT_SESSIONS = Query[tuple[int]]("""
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'listings'
""")
Call: TypeAlias = Callable[[PostgresStore], Awaitable[object]]

SEARCHES: dict[str, Call] = {
    "an account search": lambda store: store.find_listings(1, 1, ListingQuery()),
    "a word search": lambda store: store.find_listings(1, 1, ListingQuery(words=("lamp",))),
    "a large list": lambda store: find_all(store, 1, ListingQuery()),
    "an export": lambda store: store.page_listings(1, 1, 0, 5),
    "the creations": lambda store: store.page_creations(1, 1, 2**62, 5),
    "the activity": lambda store: store.page_events(1, 1, ActivityCursor(2**62, 0, 0), 5),
}
OTHERS: dict[str, Call] = {
    "a list": lambda store: store.list_listings(1, 1),
    "a lookup": lambda store: store.get_listing(1025),
    "counts": lambda store: store.count_listings(1, 1),
    "a create": lambda store: store.add_listing(1, 1, AddStep(NEW, CREATED)),
    "a change": lambda store: store.change_listing(1025, lambda _: {"title": "x"}),
    "a key's caller": lambda store: store.find_caller(b"d" * 32),
    "a step of the market": lambda store: store.stamp_market(5, b"i" * 16, 1_000.0),
    "the cards of a page": lambda store: store.get_market_entries([1]),
}


@pytest.fixture
def planners(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each statement that this thread sends, whether its session is one for searches.

    Services of other tests, which share the process, send statements in threads of their own.
    """
    sent: list[bool] = []
    thread = threading.get_ident()
    for method in ("fetch", "fetch_many"):
        send = getattr(Session, method)

        def record(session: Session, *values: Any, send: Any = send) -> Any:
            if threading.get_ident() == thread:
                sent.append(session.searching)
            return send(session, *values)

        monkeypatch.setattr(Session, method, record)
    return sent


@pytest.mark.parametrize("name", [*SEARCHES, *OTHERS])
def test_only_searches_use_their_sessions(name: str, postgres: PostgresServer, planners: list[bool]) -> None:
    async def scenario(url: str) -> None:
        async with open_store(url) as store:
            await create_alice(store)
            planners.clear()
            await (SEARCHES | OTHERS)[name](store)

    with postgres.database() as url:
        asyncio.run(scenario(url))
    assert set(planners) == {name in SEARCHES}


async def read_switches(store: PostgresStore, *, searching: bool) -> list[str]:
    """Return the different values of the planner's switches, as the server reports them."""
    return [row[0] for row in await store._use(lambda session: session.fetch(SWITCHES), searching=searching)]  # noqa: SLF001 - runs any statement


@pytest.mark.parametrize("sessions", [1, 2])
def test_every_session_has_the_planner_it_is_acquired_for(sessions: int, postgres: PostgresServer) -> None:
    async def scenario(url: str) -> None:
        async with open_store(url, sessions) as store:
            for _ in range(3):
                assert await read_switches(store, searching=True) == ["off"]
                assert await read_switches(store, searching=False) == ["on"]

    with postgres.database() as url:
        asyncio.run(scenario(url))


def test_a_lost_session_is_replaced_by_one_of_the_same_kind(postgres: PostgresServer) -> None:
    async def scenario(url: str) -> None:
        async with open_store(url) as store, open_session(url) as other:
            for searching in (True, False):
                await read_switches(store, searching=searching)
                await end_store_sessions(other)
                assert await read_switches(store, searching=searching) == ["off" if searching else "on"]

    with postgres.database() as url:
        asyncio.run(scenario(url))


def test_a_session_that_the_server_has_ended_is_not_converted(postgres: PostgresServer) -> None:
    async def scenario(url: str) -> None:
        async with open_store(url, sessions=1) as store, open_session(url) as other:
            for searching, waits in product((True, False), (True, False)):
                session = await store._pool.acquire(searching=not searching)  # noqa: SLF001 - to look at its connection
                store._pool.release(session)  # noqa: SLF001 - like above
                await end_store_sessions(other)
                if waits:  # until the driver knows
                    await wait_until(partial(is_closed, session))
                assert await read_switches(store, searching=searching) == ["off" if searching else "on"]

    with postgres.database() as url:
        asyncio.run(scenario(url))


async def is_closed(session: Session) -> bool:
    return session.connection.is_closed()


def test_searches_and_other_reads_share_the_sessions(postgres: PostgresServer) -> None:
    async def scenario(url: str) -> None:
        async with open_store(url, sessions=2) as store:
            kinds = [number % 3 == 0 for number in range(60)]
            found = await asyncio.gather(*(read_switches(store, searching=kind) for kind in kinds))
            assert found == [["off" if kind else "on"] for kind in kinds]
            assert await store._read(COUNT_SESSIONS) == [(2,)]  # noqa: SLF001 - runs any statement

    with postgres.database() as url:
        asyncio.run(scenario(url))
