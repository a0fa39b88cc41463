"""What is looked up at the same time on PostgreSQL: by few messages, and each for itself."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from listings.domain.errors import Unavailable
from listings.store.postgres.batched_lookups import MOST, Lookups
from listings.store.postgres.pool import Rows, Session
from listings.store.postgres.store import PostgresStore
from tests.harness import TIMEOUT
from tests.postgres_server import PostgresServer
from tests.store.postgres.test_errors import CREATED, NEW, Other, alice, blocked, end_others, opened, rename, session

HALVES = "SELECT id, 100 / (id - 3) FROM (SELECT CAST($1 AS int) AS id) AS asked WHERE id > 0"
"""Finds nothing for 0 and fails for 3."""


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    with postgres.database() as url:
        yield url


class Counted(Lookups):
    """Tells how many messages there were."""

    def __init__(self, statement: str, store: PostgresStore) -> None:
        async def use(read: Callable[[Session], Awaitable[Rows]]) -> Rows:
            self.messages += 1
            return await store._use(read)  # noqa: SLF001 - as the store's own look-ups do

        super().__init__(statement, use)
        self.messages = 0


@asynccontextmanager
async def counted(url: str, seconds: float = TIMEOUT) -> AsyncIterator[Counted]:
    async with opened(url, seconds=seconds) as store:
        yield Counted(HALVES, store)


@asynccontextmanager
async def held_up(url: str, store: PostgresStore, third: Other, count: int) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """So many reads of a listing, by two messages that the server holds up meanwhile."""
    listing_id = await alice(store)
    async with session(url) as other, other.transaction():
        await other.execute("LOCK TABLE listings IN ACCESS EXCLUSIVE MODE")
        reads = [asyncio.create_task(store.get_listing(listing_id)) for _ in range(count)]
        await blocked(third, 2)
        yield reads


async def outcomes(*finds: Awaitable[Any]) -> list[Any]:
    async with asyncio.timeout(TIMEOUT):
        return await asyncio.gather(*finds, return_exceptions=True)


def test_each_finds_its_own_row_or_none_however_many_ask_at_once(url: str) -> None:
    async def scene() -> None:
        async with counted(url) as lookups:
            asked = [number % 50 + 4 if number % 7 else 0 for number in range(500)]
            found = await outcomes(*map(lookups.find, asked))
            expected = [(number, 100 // (number - 3)) if number else None for number in asked]
            assert [row and tuple(row) for row in found] == expected

    asyncio.run(scene())


def test_those_of_a_turn_share_messages_and_one_that_is_alone_waits_for_no_turn(url: str) -> None:
    async def scene() -> None:
        async with counted(url) as lookups:
            await outcomes(*map(lookups.find, range(4, 5 + 2 * MOST)))
            assert lookups.messages == 3  # the first by itself, since nothing was under way
            for number in range(4, 8):
                assert await lookups.find(number)
            assert lookups.messages == 7

    asyncio.run(scene())


def test_those_of_a_turn_who_ask_for_the_same_row_are_told_what_was_looked_up_once(postgres: PostgresServer) -> None:
    async def scene(url: str) -> None:
        async with counted(url) as lookups, session(url) as other:
            await other.execute("CREATE SEQUENCE times")
            lookups._statement = "SELECT CAST($1 AS int), nextval('times')"  # noqa: SLF001 - tells them apart
            found = await outcomes(*map(lookups.find, [1, 5, 6, 5, 6, 5]))
            assert sorted({tuple(row) for row in found}) == [(1, 1), (5, 2), (6, 3)]
            assert [row[0] for row in found] == [1, 5, 6, 5, 6, 5]

    with postgres.database(altered=True) as url:
        asyncio.run(scene(url))


def test_a_row_that_cannot_be_read_keeps_nobody_from_the_others(url: str) -> None:
    async def scene() -> None:
        async with counted(url) as lookups:
            found = await outcomes(*map(lookups.find, [9, 1, 2, 3, 4, 3, 5]))
            assert [isinstance(row, Unavailable) for row in found] == [False, False, False, True, False, True, False]
            assert [row[0] for row in found if not isinstance(row, Unavailable)] == [9, 1, 2, 4, 5]
            assert found[3] is not found[5]
            assert str(found[3]) == "The database can't be read"

    asyncio.run(scene())


def test_those_whose_session_is_ended_are_looked_up_on_another(url: str) -> None:
    async def scene() -> None:
        async with opened(url) as store, session(url) as third:
            async with held_up(url, store, third, 12) as reads:
                assert await end_others(third, only_waiting=True) == 2
            found = await outcomes(*reads)
            assert [listing.title for listing in found] == ["Lamp"] * 12

    asyncio.run(scene())


def test_those_that_take_too_long_are_told_so_and_not_asked_again_one_by_one(url: str) -> None:
    async def scene() -> None:
        async with opened(url, seconds=3) as store, session(url) as other:
            await alice(store)
            lookups = Counted("SELECT id FROM listings WHERE id = $1", store)
            async with other.transaction():
                await other.execute("LOCK TABLE listings IN ACCESS EXCLUSIVE MODE")
                found = await outcomes(*map(lookups.find, range(9)))
            assert {str(fault) for fault in found} == {"The database took too long to answer"}
            assert len({id(fault) for fault in found}) == 9
            assert lookups.messages == 2

    asyncio.run(scene())


def test_who_stops_waiting_takes_no_row_from_the_others(url: str) -> None:
    async def scene() -> None:
        async with opened(url) as store, session(url) as third:
            async with held_up(url, store, third, 6) as reads:
                for read in reads[::2]:
                    read.cancel()
            found = await outcomes(*reads)
            assert [isinstance(outcome, asyncio.CancelledError) for outcome in found] == [True, False] * 3
            assert [outcome.title for outcome in found[1::2]] == ["Lamp"] * 3

    asyncio.run(scene())


def test_what_was_written_before_it_is_asked_for_is_found(url: str) -> None:
    async def scene() -> None:
        async with opened(url) as store:
            listing_id = await alice(store)
            under_way = [asyncio.create_task(store.get_listing(listing_id))]
            for number in range(50):
                await store.change_listing(listing_id, rename(str(number)))
                under_way += [asyncio.create_task(store.get_listing(listing_id)) for _ in range(5)]
                found = await asyncio.gather(*(store.get_listing(listing_id) for _ in range(5)))
                assert {listing and listing.title for listing in found} == {str(number)}
            await asyncio.gather(*under_way)

    asyncio.run(scene())


def test_revisions_are_looked_up_together_and_an_account_without_one_has_none(url: str) -> None:
    async def scene() -> list[int]:
        async with opened(url) as store:
            await alice(store)
            await store.add_listing(1, 1, NEW, CREATED)
            return await asyncio.gather(*(store.get_revision(1, account_id) for account_id in (1, 1, 2, 1, 2)))

    assert asyncio.run(scene()) == [2, 2, 0, 2, 0]
