"""Concurrent lookups on PostgreSQL share messages, and each gets its own result."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from listings.domain.errors import Unavailable
from listings.domain.listings import AddStep
from listings.store.postgres.batched_lookups import MAX_BATCH_SIZE, BatchedLookups
from listings.store.postgres.pool import Session
from listings.store.postgres.store import PostgresStore
from listings.store.query import Query
from tests.harness import TIMEOUT
from tests.postgres_server import PostgresServer
from tests.store.postgres.test_errors import (
    CREATED,
    NEW,
    Other,
    create_alice,
    end_store_sessions,
    open_session,
    open_store,
    rename,
    wait_until_blocked,
)

QUOTIENTS = Query[tuple[int, int]](
    "SELECT id, 100 / (id - 3) FROM (SELECT CAST($1 AS int) AS id) AS asked WHERE id > 0"
)
"""Finds no row for 0 and fails for 3."""


class CountedLookups(BatchedLookups[tuple[int, int]]):
    def __init__(self, statement: Query[tuple[int, int]], store: PostgresStore) -> None:
        async def use(read: Callable[[Session], Awaitable[list[tuple[int, int]]]]) -> list[tuple[int, int]]:
            self.messages += 1
            return await store._use(read)  # noqa: SLF001 - like the store's own lookups

        super().__init__(statement, use)
        self.messages = 0


@asynccontextmanager
async def open_lookups(url: str, seconds: float = TIMEOUT) -> AsyncIterator[CountedLookups]:
    async with open_store(url, seconds=seconds) as store:
        yield CountedLookups(QUOTIENTS, store)


@asynccontextmanager
async def block_reads(
    url: str, store: PostgresStore, third: Other, count: int
) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """Yield `count` reads of one listing. They were sent in two messages, which are blocked by a lock."""
    listing_id = await create_alice(store)
    async with open_session(url) as other, other.transaction():
        await other.execute("LOCK TABLE listings IN ACCESS EXCLUSIVE MODE")
        reads = [asyncio.create_task(store.get_listing(listing_id)) for _ in range(count)]
        await wait_until_blocked(third, 2)
        yield reads


async def gather(*finds: Awaitable[Any]) -> list[Any]:
    async with asyncio.timeout(TIMEOUT):
        return await asyncio.gather(*finds, return_exceptions=True)


def test_each_of_many_concurrent_lookups_gets_its_own_row_or_none(url: str) -> None:
    async def scenario() -> None:
        async with open_lookups(url) as lookups:
            ids = [number % 50 + 4 if number % 7 else 0 for number in range(500)]
            found = await gather(*map(lookups.find, ids))
            expected = [(number, 100 // (number - 3)) if number else None for number in ids]
            assert [row and tuple(row) for row in found] == expected

    asyncio.run(scenario())


def test_concurrent_lookups_share_messages_and_a_single_one_is_immediate(url: str) -> None:
    async def scenario() -> None:
        async with open_lookups(url) as lookups:
            await gather(*map(lookups.find, range(4, 5 + 2 * MAX_BATCH_SIZE)))
            assert lookups.messages == 3  # the first lookup is sent alone, because no message is in flight
            for number in range(4, 8):
                assert await lookups.find(number)
            assert lookups.messages == 7

    asyncio.run(scenario())


def test_concurrent_lookups_of_the_same_row_are_sent_once(postgres: PostgresServer) -> None:
    async def scenario(url: str) -> None:
        async with open_lookups(url) as lookups, open_session(url) as other:
            await other.execute("CREATE SEQUENCE times")
            lookups._statement = Query("SELECT CAST($1 AS int), nextval('times')")  # noqa: SLF001 - numbers them
            found = await gather(*map(lookups.find, [1, 5, 6, 5, 6, 5]))
            executions = sorted({(row[1], row[0]) for row in found})
            assert [number for number, _ in executions] == [1, 2, 3]  # in any order: the messages use two sessions
            assert [row[0] for row in found] == [1, 5, 6, 5, 6, 5]

    with postgres.database(altered=True) as url:
        asyncio.run(scenario(url))


def test_an_error_of_one_lookup_does_not_affect_the_others(url: str) -> None:
    async def scenario() -> None:
        async with open_lookups(url) as lookups:
            found = await gather(*map(lookups.find, [9, 1, 2, 3, 4, 3, 5]))
            assert [isinstance(row, Unavailable) for row in found] == [False, False, False, True, False, True, False]
            assert [row[0] for row in found if not isinstance(row, Unavailable)] == [9, 1, 2, 4, 5]
            assert found[3] is not found[5]
            assert str(found[3]) == "The database can't be read"

    asyncio.run(scenario())


def test_lookups_are_retried_if_their_session_is_ended(url: str) -> None:
    async def scenario() -> None:
        async with open_store(url) as store, open_session(url) as third:
            async with block_reads(url, store, third, 12) as reads:
                assert await end_store_sessions(third, only_waiting=True) == 2
            found = await gather(*reads)
            assert [listing.title for listing in found] == ["Lamp"] * 12

    asyncio.run(scenario())


def test_lookups_that_time_out_are_not_retried_one_by_one(url: str) -> None:
    async def scenario() -> None:
        async with open_store(url, seconds=3) as store, open_session(url) as other:
            await create_alice(store)
            lookups = CountedLookups(Query("SELECT id FROM listings WHERE id = $1"), store)
            async with other.transaction():
                await other.execute("LOCK TABLE listings IN ACCESS EXCLUSIVE MODE")
                found = await gather(*map(lookups.find, range(9)))
            assert {str(error) for error in found} == {"The database took too long to respond"}
            assert len({id(error) for error in found}) == 9
            assert lookups.messages == 2

    asyncio.run(scenario())


def test_a_cancelled_lookup_does_not_affect_the_others(url: str) -> None:
    async def scenario() -> None:
        async with open_store(url) as store, open_session(url) as third:
            async with block_reads(url, store, third, 6) as reads:
                for read in reads[::2]:
                    read.cancel()
            found = await gather(*reads)
            assert [isinstance(outcome, asyncio.CancelledError) for outcome in found] == [True, False] * 3
            assert [outcome.title for outcome in found[1::2]] == ["Lamp"] * 3

    asyncio.run(scenario())


def test_a_lookup_finds_all_earlier_writes(url: str) -> None:
    async def scenario() -> None:
        async with open_store(url) as store:
            listing_id = await create_alice(store)
            running = [asyncio.create_task(store.get_listing(listing_id))]
            for number in range(50):
                await store.change_listing(listing_id, rename(str(number)))
                running += [asyncio.create_task(store.get_listing(listing_id)) for _ in range(5)]
                found = await asyncio.gather(*(store.get_listing(listing_id) for _ in range(5)))
                assert {listing and listing.title for listing in found} == {str(number)}
            await asyncio.gather(*running)

    asyncio.run(scenario())


def test_the_revision_of_an_unknown_account_is_zero(url: str) -> None:
    async def scenario() -> list[int]:
        async with open_store(url) as store:
            await create_alice(store)
            await store.add_listing(1, 1, AddStep(NEW, CREATED))
            found = await asyncio.gather(*(store.get_revisions(1, account_id) for account_id in (1, 1, 2, 1, 2)))
            return [revisions.revision for revisions in found]

    assert asyncio.run(scenario()) == [2, 2, 0, 2, 0]
