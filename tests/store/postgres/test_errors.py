"""What becomes of reads and writes when PostgreSQL, a session or a caller goes away in the middle of them."""

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeAlias

import asyncpg
import pytest

from listings.contract.listings import Batch, ChangeStep, IdempotencyRecord
from listings.domain.errors import Unavailable
from listings.domain.model import Listing, ListingChange, NewListing
from listings.store.postgres import pool
from listings.store.postgres.pool import PoolLimits
from listings.store.postgres.store import PostgresStore
from tests.harness import TIMEOUT
from tests.postgres_server import PostgresServer
from tests.raw_http import wire_to

NEW = NewListing(title="Lamp", content="Bright.")
CREATED = "2026-11-21 10:00:00"
UPDATES = int(os.environ.get("LISTINGS_TEST_UPDATES", "400"))
Other: TypeAlias = Any
"""Another session with the same database, as the driver has it."""


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    with postgres.database() as url:
        yield url


@pytest.fixture
def altered_url(postgres: PostgresServer) -> Iterator[str]:
    with postgres.database(altered=True) as url:
        yield url


@asynccontextmanager
async def opened(url: str, sessions: int = 4, seconds: float = TIMEOUT) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url, PoolLimits(sessions, seconds))
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def session(url: str) -> AsyncIterator[Other]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def alice(store: PostgresStore) -> int:
    """alice's account in bucket 1, with one listing; returns its id."""
    await store.add_account("Alice", "alice@example.com", None, 1_000)
    return (await store.add_listing(1, 1, NEW, CREATED)).listing_id


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(TIMEOUT):
        while not await holds():  # noqa: ASYNC110 - the server tells of no event
            await asyncio.sleep(0.01)


async def blocked(other: Other, count: int = 1) -> None:
    """Until so many sessions wait for a lock."""

    async def holds() -> bool:
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        return int(await other.fetchval(query)) >= count

    await eventually(holds)


async def end_others(other: Other, *, only_waiting: bool = False) -> int:
    """End the store's sessions; returns how many."""
    query = """
        SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'listings' AND (NOT $1 OR wait_event_type = 'Lock')
    """
    return int(await other.fetchval(query, only_waiting))


def rename(title: str) -> Callable[[Listing | None], ListingChange]:
    return lambda _: {"title": title}


# Sessions that are ended


def test_after_its_idle_sessions_were_ended_the_store_goes_on(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("listings.store.postgres.store._CHECK_SECONDS", TIMEOUT)  # a new session may take as long here

    async def scene() -> None:
        async with opened(url) as store, session(url) as other:
            listing_id = await alice(store)
            for use in (
                lambda: store.get_listing(listing_id),
                lambda: store.add_listing(1, 1, NEW, CREATED),
                lambda: store.change_listing(listing_id, rename("x")),
                store.check,
            ):
                assert await end_others(other) >= 1
                await use()
            assert len(await store.list_listings(1, 1)) == 2

    asyncio.run(scene())


def test_a_read_whose_session_is_ended_under_way_is_done_on_another(url: str) -> None:
    async def scene() -> Listing | None:
        async with opened(url) as store, session(url) as other:
            listing_id = await alice(store)
            async with other.transaction():
                await other.execute("LOCK TABLE listings IN ACCESS EXCLUSIVE MODE")
                read = asyncio.create_task(store.get_listing(listing_id))
                async with session(url) as third:
                    await blocked(third)
                    await end_others(third, only_waiting=True)
            return await read

    found = asyncio.run(scene())
    assert found is not None
    assert found.title == "Lamp"


def test_a_change_whose_session_is_ended_before_its_commit_is_done_once(url: str) -> None:
    async def scene() -> Listing:
        async with opened(url) as store, session(url) as other:
            listing_id = await alice(store)
            async with other.transaction():
                await other.execute("SELECT 1 FROM listings FOR UPDATE")
                change = asyncio.create_task(store.change_listing(listing_id, rename("x")))
                async with session(url) as third:
                    await blocked(third)
                    await end_others(third, only_waiting=True)
            return await change

    changed = asyncio.run(scene())
    assert (changed.title, changed.version) == ("x", 2)


def test_a_create_whose_session_is_ended_under_way_is_told_as_unknown(url: str) -> None:
    async def scene() -> int:
        async with opened(url) as store, session(url) as other:
            await alice(store)
            async with other.transaction():
                await other.execute("SELECT 1 FROM listing_ids FOR UPDATE")
                create = asyncio.create_task(store.add_listing(1, 1, NEW, CREATED))
                async with session(url) as third:
                    await blocked(third)
                    await end_others(third, only_waiting=True)
            with pytest.raises(Unavailable, match="outcome is unknown") as told:
                await create
            assert told.value.retry_after == 1
            return len(await store.list_listings(1, 1))

    assert asyncio.run(scene()) == 1


# What the server undoes or refuses

_CONFLICTS = """
CREATE SEQUENCE tries;
CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('tries') < 3 THEN
        RAISE EXCEPTION 'conflict' USING ERRCODE = '{state}';
    END IF;
    RETURN NEW;
END $$;
CREATE {constraint} TRIGGER conflict AFTER {event} ON listings {deferred} FOR EACH ROW EXECUTE FUNCTION conflict()
"""


@pytest.mark.parametrize("state", ["40001", "40P01"])
@pytest.mark.parametrize("deferred", [False, True], ids=["in a statement", "in the commit"])
def test_what_the_server_undoes_for_anothers_sake_is_done_again(
    altered_url: str,
    state: str,
    deferred: bool,  # noqa: FBT001 - when
) -> None:
    async def scene() -> tuple[Listing, int]:
        async with opened(altered_url) as store, session(altered_url) as other:
            listing_id = await alice(store)
            at_commit = "DEFERRABLE INITIALLY DEFERRED" if deferred else ""
            script = _CONFLICTS.format(
                state=state, constraint="CONSTRAINT", event="INSERT OR UPDATE", deferred=at_commit
            )
            await other.execute(script)
            changed = await store.change_listing(listing_id, rename("x"))
            await other.execute("SELECT setval('tries', 1)")
            added = await store.add_listing(1, 1, NEW, CREATED)
            return changed, added.listing_id

    changed, added = asyncio.run(scene())
    assert (changed.title, changed.version) == ("x", 2)
    assert added == 2 * 1024 + 1


def test_a_commit_that_fails_is_told_as_unknown(altered_url: str) -> None:
    async def scene() -> None:
        async with opened(altered_url) as store, session(altered_url) as other:
            listing_id = await alice(store)
            await other.execute(
                _CONFLICTS.format(
                    state="XX000",
                    constraint="CONSTRAINT",
                    event="INSERT OR UPDATE",
                    deferred="DEFERRABLE INITIALLY DEFERRED",
                )
            )
            for write in (store.change_listing(listing_id, rename("x")), store.add_listing(1, 1, NEW, CREATED)):
                with pytest.raises(Unavailable, match="outcome is unknown"):
                    await write
            assert (await store.change_listing(listing_id, rename("x"))).version == 2

    asyncio.run(scene())


def test_a_lock_that_is_held_too_long_ends_a_write_with_nothing_written(url: str) -> None:
    async def scene() -> float:
        async with opened(url, seconds=3) as store, session(url) as other:
            listing_id = await alice(store)
            began = time.monotonic()
            async with other.transaction():
                await other.execute("SELECT 1 FROM listings, listing_ids FOR UPDATE")
                for write in (store.change_listing(listing_id, rename("x")), store.add_listing(1, 1, NEW, CREATED)):
                    with pytest.raises(Unavailable, match="nothing was written"):
                        await write
            seconds = time.monotonic() - began
            assert (await store.change_listing(listing_id, rename("y"))).version == 2
            return seconds

    assert asyncio.run(scene()) < 20


def test_a_statement_that_takes_too_long_is_ended_and_its_session_used_again(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_OVERDUE", TIMEOUT)  # the server is to end it, not the pool

    async def scene() -> None:
        async with opened(url, sessions=1, seconds=3) as store:
            with pytest.raises(Unavailable, match="took too long"):
                await store._read("SELECT pg_sleep(1000)")  # noqa: SLF001 - no statement of the store's is so slow
            assert await store.get_revision(1, 1) == 0

    asyncio.run(scene())


def test_the_log_of_a_refused_write_quotes_no_row(url: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        async with opened(url) as store:
            with pytest.raises(Unavailable, match="refused the write"):
                await store.add_listing(5, 5, NEW, CREATED)

    asyncio.run(scene())
    assert "ForeignKeyViolationError 23503" in caplog.text
    assert "Bright" not in caplog.text
    assert "Traceback" not in caplog.text


# Who waits, and who stops waiting


def test_no_more_than_the_bound_wait_for_a_session(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> list[Any]:
        async with opened(url, sessions=1) as store, session(url) as other:
            await alice(store)
            async with other.transaction():
                await other.execute("LOCK TABLE listings IN ACCESS EXCLUSIVE MODE")
                reads = [asyncio.create_task(store.list_listings(1, 1)) for _ in range(8)]
                await asyncio.wait(reads, return_when=asyncio.FIRST_COMPLETED)
                early = [read.done() for read in reads]
            outcomes = await asyncio.gather(*reads, return_exceptions=True)
            assert early.count(True) == 4
            return outcomes

    monkeypatch.setattr(pool, "_MOST_WAITING", 3)
    outcomes = asyncio.run(scene())
    refused = [outcome for outcome in outcomes if isinstance(outcome, Unavailable)]
    assert {fault.message for fault in refused} == {"Too many requests wait for the database"}
    assert len(refused) == 4


def test_nobody_waits_for_a_session_longer_than_the_bound(url: str) -> None:
    async def scene() -> float:
        async with opened(url, sessions=1, seconds=3) as store, session(url) as other:
            await alice(store)
            async with other.transaction():
                await other.execute("LOCK TABLE listings IN ACCESS EXCLUSIVE MODE")
                began = time.monotonic()
                outcomes = await asyncio.gather(*(store.list_listings(1, 1) for _ in range(60)), return_exceptions=True)
                seconds = time.monotonic() - began
            assert all(isinstance(outcome, Unavailable) for outcome in outcomes)
            return seconds

    assert asyncio.run(scene()) < 60  # one after the other they would take 108


def test_cancelled_callers_keep_no_session_and_undo_no_write(url: str) -> None:
    async def scene() -> int:
        async with opened(url, sessions=2) as store, session(url) as other:
            listing_id = await alice(store)
            uses: list[Callable[[], Coroutine[Any, Any, Any]]] = [
                lambda: store.get_listing(listing_id),
                lambda: store.change_listing(listing_id, lambda found: {"price_cents": found.price_cents + 1}),  # type: ignore[union-attr]
                lambda: store.add_listing(1, 1, NEW, CREATED),
            ]
            for number in range(60):
                task = asyncio.create_task(uses[number % 3]())
                await asyncio.sleep(0.0003 * (number % 17))
                task.cancel()
            async with other.transaction():
                await other.execute("LOCK TABLE listings IN ACCESS EXCLUSIVE MODE")
                reads = [asyncio.create_task(store.get_listing(listing_id)) for _ in range(6)]
                async with session(url) as third:
                    await blocked(third, 2)
                for read in reads:
                    read.cancel()
                await asyncio.wait(reads)
            async with asyncio.timeout(TIMEOUT):
                await asyncio.gather(*(store.get_listing(listing_id) for _ in range(20)))
            await asyncio.gather(*store._writes)  # noqa: SLF001 - what goes on unseen
            listing = await store.get_listing(listing_id)
            assert listing is not None
            assert listing.price_cents == 20
            return len(await store.list_listings(1, 1))

    assert asyncio.run(scene()) == 21


# Many at once


def test_changes_of_different_fields_at_once_lose_nothing(url: str) -> None:
    async def scene() -> Listing:
        async with opened(url) as one, opened(url) as two:
            listing_id = await alice(one)

            async def count(store: PostgresStore, field: str, times: int) -> None:
                def decide(listing: Listing | None) -> ListingChange:
                    value = getattr(listing, field)
                    return {field: value + 1 if isinstance(value, int) else str(int(value or "0") + 1)}

                for _ in range(times):
                    await store.change_listing(listing_id, decide)

            fields = ("price_cents", "region", "district", "location")
            await asyncio.gather(*(count(store, field, UPDATES // 8) for field in fields for store in (one, two)))
            found = await one.get_listing(listing_id)
            assert found is not None
            return found

    found = asyncio.run(scene())
    each = UPDATES // 8 * 2
    assert (found.price_cents, found.region, found.district, found.location) == (each, str(each), str(each), str(each))
    assert found.version == 1 + 4 * each


def test_batches_in_any_order_and_creates_at_once_all_pass(url: str) -> None:
    async def scene() -> int:
        async with opened(url, sessions=8) as store:
            await alice(store)
            ids = [(await store.add_listing(1, 1, NEW, CREATED)).listing_id for _ in range(6)]

            async def batch(number: int) -> None:
                turned = ids[number % 6 :] + ids[: number % 6]
                steps = [ChangeStep(one, rename(str(number))) for one in (turned if number % 2 else turned[::-1])]
                await store.run_batch(1, 1, Batch(steps, atomic=True, dry_run=False, record=str))

            creates = [
                store.add_listing(1, 1, NEW, CREATED, IdempotencyRecord(f"k{n % 5}", b"d" * 32, 1, 0))
                for n in range(20)
            ]
            changes = [store.change_listing(ids[n % 6], rename(f"c{n}")) for n in range(20)]
            await asyncio.gather(*(batch(number) for number in range(20)), *creates, *changes)
            return len(await store.list_listings(1, 1))

    assert asyncio.run(scene()) == 7 + 5


# The server


async def answers(store: PostgresStore) -> bool:
    try:
        await store.check()
    except Unavailable:
        return False
    return True


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
def short_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session is begun within three seconds, as in earnest (tests/conftest.py allows more)."""
    monkeypatch.setattr(pool, "_CONNECT_SECONDS", 3)


@pytest.mark.usefixtures("short_connects")
def test_a_server_that_is_silent_is_given_up_and_one_that_is_back_is_used(own_server: PostgresServer) -> None:
    async def scene(url: str) -> None:
        async with opened(url, seconds=3) as store:
            listing_id = await alice(store)
            own_server.pause()
            try:
                began = time.monotonic()
                with pytest.raises(Unavailable, match="too long"):
                    await store.check()
                assert time.monotonic() - began < 20
                with pytest.raises(Unavailable):
                    await store.get_listing(listing_id)
                assert time.monotonic() - began < 40
            finally:
                own_server.resume()
            await eventually(partial(answers, store))
            assert await store.get_listing(listing_id) is not None

    with own_server.database() as url:
        asyncio.run(scene(url))


@pytest.mark.usefixtures("short_connects")
def test_a_server_that_falls_silent_while_a_session_begins_is_given_up(postgres: PostgresServer, url: str) -> None:
    async def scene() -> None:
        async with wire_to(postgres.port) as (wire, port):
            wire.keeps_answers_to = b"synchronous_commit"
            store = PostgresStore(url.replace(f":{postgres.port}/", f":{port}/"), PoolLimits(4, 5))
            async with asyncio.timeout(TIMEOUT):
                with pytest.raises(Unavailable, match="can't be reached"):
                    await store.open()

    asyncio.run(scene())


def test_who_waits_longer_for_a_statement_waits_as_long_for_a_session(
    own_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_CONNECT_SECONDS", 0.2)

    async def scene(url: str) -> None:
        store = PostgresStore(url, PoolLimits(4, TIMEOUT))
        own_server.pause()
        try:
            opening = asyncio.create_task(store.open())
            await asyncio.wait([opening], timeout=0.6)
        finally:
            own_server.resume()
        await opening
        await store.close()

    with own_server.database() as url:
        asyncio.run(scene(url))


def test_a_server_that_is_away_is_told_of_in_one_line_and_in_another_when_it_is_back(
    own_server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    def said() -> list[str]:
        messages = [record.getMessage() for record in caplog.records if record.name == pool.__name__]
        caplog.clear()
        return messages

    async def scene(url: str) -> None:
        async with opened(url) as store:
            own_server.stop()
            reads = (store.get_account(1) for _ in range(4))
            outcomes = await asyncio.gather(*reads, return_exceptions=True)
            assert all(isinstance(outcome, Unavailable) for outcome in outcomes)
            (away,) = said()
            assert away.startswith("The database can't be reached: ")
            own_server.start()
            await eventually(partial(answers, store))
            (back,) = said()
            assert re.fullmatch(r"The database is back after \d+ s", back)

    with own_server.database() as url:
        asyncio.run(scene(url))


def test_while_the_server_is_away_all_is_refused_at_once_and_afterwards_all_is_well(own_server: PostgresServer) -> None:
    async def scene(url: str) -> float:
        async with opened(url) as store:
            listing_id = await alice(store)
            own_server.stop()
            for use in (
                store.check(),
                store.get_listing(listing_id),
                store.add_listing(1, 1, NEW, CREATED),
                store.change_listing(listing_id, rename("x")),
            ):
                began = time.monotonic()
                with pytest.raises(Unavailable):
                    await use
                assert time.monotonic() - began < 10  # of the two minutes that it may wait for a session
            own_server.start()
            began = time.monotonic()
            await eventually(partial(answers, store))
            await store.change_listing(listing_id, rename("x"))
            return time.monotonic() - began

    with own_server.database() as url:
        assert asyncio.run(scene(url)) < 20
