"""Reads and writes that are interrupted because the server, a session or the caller goes away."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeAlias

import asyncpg
import pytest

from listings.domain.errors import Unavailable
from listings.domain.listings import AddStep, Batch, ChangeStep, IdempotencyRecord
from listings.domain.model import Listing, ListingChange, ListingQuery, NewListing
from listings.store.postgres import pool
from listings.store.postgres.inspection import inspect
from listings.store.postgres.pool import PoolLimits
from listings.store.postgres.store import PostgresStore
from listings.store.query import Query
from tests.harness import TIMEOUT
from tests.postgres_server import PostgresServer
from tests.tcp_proxy import run_tcp_proxy

NEW = NewListing(title="Lamp", content="Bright.")
CREATED = "2026-11-21 10:00:00"
Other: TypeAlias = Any
"""A connection of the driver to the same database, independent of the store."""


@asynccontextmanager
async def open_store(url: str, sessions: int = 4, seconds: float = TIMEOUT) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url, PoolLimits(sessions, seconds))
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def open_session(url: str) -> AsyncIterator[Other]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def create_alice(store: PostgresStore) -> int:
    """Create alice's account in bucket 1 with one listing, and return the listing's id."""
    await store.add_account("Alice", "alice@example.com", None, 1_000)
    return (await store.add_listing(1, 1, AddStep(NEW, CREATED))).listing_id


async def wait_until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(TIMEOUT):
        while not await condition():  # noqa: ASYNC110 - the server sends no event
            await asyncio.sleep(0.01)


async def wait_until_blocked(other: Other, count: int = 1) -> None:
    """Wait until `count` sessions are waiting for a lock."""

    async def condition() -> bool:
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        return int(await other.fetchval(query)) >= count

    await wait_until(condition)


async def end_store_sessions(other: Other, *, only_waiting: bool = False) -> int:
    """Terminate the store's sessions, and return how many there were."""
    query = """
        SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'listings' AND (NOT $1 OR wait_event_type = 'Lock')
    """
    return int(await other.fetchval(query, only_waiting))


def rename(title: str) -> Callable[[Listing | None], ListingChange]:
    return lambda _: {"title": title}


def test_the_store_works_after_its_idle_sessions_were_terminated(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "listings.store.postgres.store._CHECK_TIMEOUT_SECONDS", TIMEOUT
    )  # opening a session may be slow here

    async def scenario() -> None:
        async with open_store(url) as store, open_session(url) as other:
            listing_id = await create_alice(store)
            for use in (
                lambda: store.get_listing(listing_id),
                lambda: store.add_listing(1, 1, AddStep(NEW, CREATED)),
                lambda: store.change_listing(listing_id, rename("x")),
                store.check,
            ):
                assert await end_store_sessions(other) >= 1
                await use()
            assert len((await store.list_listings(1, 1)).listings) == 2

    asyncio.run(scenario())


def test_a_read_is_retried_if_its_session_is_terminated(url: str) -> None:
    async def scenario() -> Listing | None:
        async with open_store(url) as store, open_session(url) as other:
            listing_id = await create_alice(store)
            async with other.transaction():
                await other.execute("LOCK TABLE listings IN ACCESS EXCLUSIVE MODE")
                read = asyncio.create_task(store.get_listing(listing_id))
                async with open_session(url) as third:
                    await wait_until_blocked(third)
                    await end_store_sessions(third, only_waiting=True)
            return await read

    found = asyncio.run(scenario())
    assert found is not None
    assert found.title == "Lamp"


def test_a_change_is_retried_if_its_session_ends_before_the_commit(url: str) -> None:
    async def scenario() -> Listing:
        async with open_store(url) as store, open_session(url) as other:
            listing_id = await create_alice(store)
            async with other.transaction():
                await other.execute("SELECT 1 FROM listings FOR UPDATE")
                change = asyncio.create_task(store.change_listing(listing_id, rename("x")))
                async with open_session(url) as third:
                    await wait_until_blocked(third)
                    await end_store_sessions(third, only_waiting=True)
            return await change

    changed = asyncio.run(scenario())
    assert (changed.title, changed.version) == ("x", 2)


def test_a_write_is_retried_if_its_session_has_lost_its_statements(url: str) -> None:
    async def scenario() -> None:
        async with open_store(url, sessions=1) as store:
            listing_id = await create_alice(store)
            await store.change_listing(listing_id, rename("First"))
            for _ in range(2):
                session = await store._pool.acquire_usable()  # noqa: SLF001 - as a pooler between them would
                await session.execute("DEALLOCATE ALL")
                store._pool.release(session)  # noqa: SLF001
                await store.add_listing(1, 1, AddStep(NEW, CREATED))
                session = await store._pool.acquire_usable()  # noqa: SLF001
                await session.execute("DEALLOCATE ALL")
                store._pool.release(session)  # noqa: SLF001
                await store.change_listing(listing_id, rename("Second"))
            assert len((await store.list_listings(1, 1)).listings) == 3

    asyncio.run(scenario())


def test_a_create_has_an_unknown_outcome_if_its_session_is_terminated(url: str) -> None:
    async def scenario() -> int:
        async with open_store(url) as store, open_session(url) as other:
            await create_alice(store)
            async with other.transaction():
                await other.execute("SELECT 1 FROM listing_ids FOR UPDATE")
                create = asyncio.create_task(store.add_listing(1, 1, AddStep(NEW, CREATED)))
                async with open_session(url) as third:
                    await wait_until_blocked(third)
                    await end_store_sessions(third, only_waiting=True)
            with pytest.raises(Unavailable, match="outcome is unknown") as raised:
                await create
            assert raised.value.retry_after == 1
            return len((await store.list_listings(1, 1)).listings)

    assert asyncio.run(scenario()) == 1


# Rollbacks and rejections

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
def test_a_transaction_is_retried_after_a_conflict(
    altered_url: str,
    state: str,
    deferred: bool,  # noqa: FBT001 - from the parameters
) -> None:
    async def scenario() -> tuple[Listing, int]:
        async with open_store(altered_url) as store, open_session(altered_url) as other:
            listing_id = await create_alice(store)
            at_commit = "DEFERRABLE INITIALLY DEFERRED" if deferred else ""
            script = _CONFLICTS.format(
                state=state, constraint="CONSTRAINT", event="INSERT OR UPDATE", deferred=at_commit
            )
            await other.execute(script)
            changed = await store.change_listing(listing_id, rename("x"))
            await other.execute("SELECT setval('tries', 1)")
            added = await store.add_listing(1, 1, AddStep(NEW, CREATED))
            return changed, added.listing_id

    changed, added = asyncio.run(scenario())
    assert (changed.title, changed.version) == ("x", 2)
    assert added == 2 * 1024 + 1


def test_a_failed_commit_has_an_unknown_outcome(altered_url: str) -> None:
    async def scenario() -> None:
        async with open_store(altered_url) as store, open_session(altered_url) as other:
            listing_id = await create_alice(store)
            await other.execute(
                _CONFLICTS.format(
                    state="XX000",
                    constraint="CONSTRAINT",
                    event="INSERT OR UPDATE",
                    deferred="DEFERRABLE INITIALLY DEFERRED",
                )
            )
            for write in (
                store.change_listing(listing_id, rename("x")),
                store.add_listing(1, 1, AddStep(NEW, CREATED)),
            ):
                with pytest.raises(Unavailable, match="outcome is unknown"):
                    await write
            assert (await store.change_listing(listing_id, rename("x"))).version == 2

    asyncio.run(scenario())


def test_a_lock_timeout_ends_a_write_without_changes(url: str) -> None:
    async def scenario() -> float:
        async with open_store(url, seconds=3) as store, open_session(url) as other:
            listing_id = await create_alice(store)
            started = time.monotonic()
            async with other.transaction():
                await other.execute("SELECT 1 FROM listings, listing_ids FOR UPDATE")
                for write in (
                    store.change_listing(listing_id, rename("x")),
                    store.add_listing(1, 1, AddStep(NEW, CREATED)),
                ):
                    with pytest.raises(Unavailable, match="nothing was written"):
                        await write
            seconds = time.monotonic() - started
            assert (await store.change_listing(listing_id, rename("y"))).version == 2
            return seconds

    assert asyncio.run(scenario()) < 20


def test_a_session_is_reused_after_a_statement_timeout(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_OVERDUE_SECONDS", TIMEOUT)  # so that the server ends it, not the pool

    async def scenario() -> None:
        async with open_store(url, sessions=1, seconds=3) as store:
            with pytest.raises(Unavailable, match="took too long"):
                await store._read(Query[tuple[int]]("SELECT pg_sleep(1000)"))  # noqa: SLF001 - no statement of the store is slow enough
            assert (await store.get_revisions(1, 1)).revision == 0

    asyncio.run(scenario())


def test_the_log_of_a_rejected_write_quotes_no_row(url: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with open_store(url) as store:
            with pytest.raises(Unavailable, match="rejected the write"):
                await store.add_listing(5, 5, AddStep(NEW, CREATED))

    asyncio.run(scenario())
    assert "ForeignKeyViolationError 23503" in caplog.text
    assert "Bright" not in caplog.text
    assert "Traceback" not in caplog.text


def test_the_log_of_an_invalid_value_does_not_quote_it(url: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with open_store(url) as store:
            with pytest.raises(Unavailable):
                await store._read(Query[tuple[int]]("SELECT CAST($1 AS integer)"), "secret")  # noqa: SLF001 - no method gets so far

    asyncio.run(scenario())
    assert "DataError 22000" in caplog.text
    assert "secret" not in caplog.text


def test_the_number_of_callers_that_wait_for_a_session_is_limited(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> list[Any]:
        async with open_store(url, sessions=1) as store, open_session(url) as other:
            await create_alice(store)
            async with other.transaction():
                await other.execute("LOCK TABLE listings IN ACCESS EXCLUSIVE MODE")
                reads = [asyncio.create_task(store.list_listings(1, 1)) for _ in range(8)]
                await asyncio.wait(reads, return_when=asyncio.FIRST_COMPLETED)
                early = [read.done() for read in reads]
            outcomes = await asyncio.gather(*reads, return_exceptions=True)
            assert early.count(True) == 4
            return outcomes

    monkeypatch.setattr(pool, "_MAX_WAITING", 3)
    outcomes = asyncio.run(scenario())
    rejected = [outcome for outcome in outcomes if isinstance(outcome, Unavailable)]
    assert {error.message for error in rejected} == {"Too many requests are waiting for the database"}
    assert len(rejected) == 4


def test_no_caller_waits_for_a_session_longer_than_the_timeout(url: str) -> None:
    async def scenario() -> float:
        async with open_store(url, sessions=1, seconds=3) as store, open_session(url) as other:
            await create_alice(store)
            async with other.transaction():
                await other.execute("LOCK TABLE listings IN ACCESS EXCLUSIVE MODE")
                started = time.monotonic()
                outcomes = await asyncio.gather(*(store.list_listings(1, 1) for _ in range(60)), return_exceptions=True)
                seconds = time.monotonic() - started
            assert all(isinstance(outcome, Unavailable) for outcome in outcomes)
            return seconds

    assert asyncio.run(scenario()) < 60  # seconds; one after the other, they would take 108


def test_cancelled_callers_hold_no_session_and_undo_no_write(url: str) -> None:
    async def scenario() -> int:
        async with open_store(url, sessions=2) as store, open_session(url) as other:
            listing_id = await create_alice(store)
            uses: list[Callable[[], Coroutine[Any, Any, Any]]] = [
                lambda: store.get_listing(listing_id),
                lambda: store.change_listing(listing_id, lambda found: {"price_cents": found.price_cents + 1}),  # type: ignore[union-attr]
                lambda: store.add_listing(1, 1, AddStep(NEW, CREATED)),
            ]
            for number in range(60):
                task = asyncio.create_task(uses[number % 3]())
                await asyncio.sleep(0.0003 * (number % 17))
                task.cancel()
            async with other.transaction():
                await other.execute("LOCK TABLE listings IN ACCESS EXCLUSIVE MODE")
                reads = [asyncio.create_task(store.get_listing(listing_id)) for _ in range(6)]
                async with open_session(url) as third:
                    await wait_until_blocked(third, 2)
                for read in reads:
                    read.cancel()
                await asyncio.wait(reads)
            async with asyncio.timeout(TIMEOUT):
                await asyncio.gather(*(store.get_listing(listing_id) for _ in range(20)))
            await asyncio.gather(*store._writes)  # noqa: SLF001 - writes of cancelled callers
            listing = await store.get_listing(listing_id)
            assert listing is not None
            assert listing.price_cents == 20
            return len((await store.list_listings(1, 1)).listings)

    assert asyncio.run(scenario()) == 21


def test_concurrent_batches_changes_and_creates_all_succeed(url: str) -> None:
    async def scenario() -> int:
        async with open_store(url, sessions=8) as store:
            await create_alice(store)
            ids = [(await store.add_listing(1, 1, AddStep(NEW, CREATED))).listing_id for _ in range(6)]

            async def batch(number: int) -> None:
                rotated = ids[number % 6 :] + ids[: number % 6]
                steps = [ChangeStep(one, rename(str(number))) for one in (rotated if number % 2 else rotated[::-1])]
                await store.run_batch(1, 1, Batch(steps, atomic=True, dry_run=False, encode=str))

            creates = [
                store.add_listing(1, 1, AddStep(NEW, CREATED), IdempotencyRecord(f"k{n % 5}", b"d" * 32, 1, 0))
                for n in range(20)
            ]
            changes = [store.change_listing(ids[n % 6], rename(f"c{n}")) for n in range(20)]
            await asyncio.gather(*(batch(number) for number in range(20)), *creates, *changes)
            return len((await store.list_listings(1, 1)).listings)

    assert asyncio.run(scenario()) == 7 + 5


async def is_available(store: PostgresStore) -> bool:
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
    """Limit connecting to three seconds, as in production (tests/conftest.py allows more)."""
    monkeypatch.setattr(pool, "_MIN_CONNECT_TIMEOUT_SECONDS", 3)


@pytest.mark.slow
@pytest.mark.usefixtures("short_connects")
def test_a_silent_server_is_given_up_and_used_again_when_it_responds(own_server: PostgresServer) -> None:
    async def scenario(url: str) -> None:
        async with open_store(url, seconds=3) as store:
            listing_id = await create_alice(store)
            own_server.pause()
            try:
                started = time.monotonic()
                with pytest.raises(Unavailable, match="too long"):
                    await store.check()
                assert time.monotonic() - started < 20
                with pytest.raises(Unavailable):
                    await store.get_listing(listing_id)
                assert time.monotonic() - started < 40
            finally:
                own_server.resume()
            await wait_until(partial(is_available, store))
            assert await store.get_listing(listing_id) is not None

    with own_server.database() as url:
        asyncio.run(scenario(url))


@pytest.mark.usefixtures("short_connects")
def test_a_server_that_falls_silent_while_connecting_is_given_up(postgres: PostgresServer, url: str) -> None:
    async def scenario() -> None:
        async with run_tcp_proxy(postgres.port) as (wire, port):
            wire.withhold_after = b"synchronous_commit"
            store = PostgresStore(url.replace(f":{postgres.port}/", f":{port}/"), PoolLimits(4, 5))
            async with asyncio.timeout(TIMEOUT):
                with pytest.raises(Unavailable, match="can't be reached"):
                    await store.open()

    asyncio.run(scenario())


def test_a_longer_statement_timeout_also_applies_to_connecting(
    own_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_MIN_CONNECT_TIMEOUT_SECONDS", 0.2)

    async def scenario(url: str) -> None:
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
        asyncio.run(scenario(url))


def test_one_line_is_logged_for_an_outage_and_one_for_the_recovery(
    own_server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    def take_messages() -> list[str]:
        messages = [record.getMessage() for record in caplog.records if record.name == pool.__name__]
        caplog.clear()
        return messages

    async def scenario(url: str) -> None:
        async with open_store(url) as store:
            own_server.stop()
            reads = (store.get_account(1) for _ in range(4))
            outcomes = await asyncio.gather(*reads, return_exceptions=True)
            assert all(isinstance(outcome, Unavailable) for outcome in outcomes)
            (outage,) = take_messages()
            assert outage.startswith("The database can't be reached: ")
            own_server.start()
            await wait_until(partial(is_available, store))
            (recovery,) = take_messages()
            assert re.fullmatch(r"The database is reachable again after \d+ s", recovery)

    with own_server.database() as url:
        asyncio.run(scenario(url))


def test_calls_fail_fast_during_an_outage_and_work_afterwards(own_server: PostgresServer) -> None:
    async def scenario(url: str) -> float:
        async with open_store(url) as store:
            listing_id = await create_alice(store)
            own_server.stop()
            for use in (
                store.check(),
                store.get_listing(listing_id),
                store.add_listing(1, 1, AddStep(NEW, CREATED)),
                store.change_listing(listing_id, rename("x")),
            ):
                started = time.monotonic()
                with pytest.raises(Unavailable):
                    await use
                assert time.monotonic() - started < 10  # seconds; the timeout for a session is two minutes
            own_server.start()
            started = time.monotonic()
            await wait_until(partial(is_available, store))
            await store.change_listing(listing_id, rename("x"))
            return time.monotonic() - started

    with own_server.database() as url:
        assert asyncio.run(scenario(url)) < 20


def test_a_write_that_waits_for_another_one_leaves_the_store_ready(url: str) -> None:
    async def scenario() -> None:
        async with open_store(url, seconds=1) as store, open_session(url) as other:
            listing_id = await create_alice(store)
            async with other.transaction():
                await other.execute("SELECT 1 FROM listings WHERE id = $1 FOR UPDATE", listing_id)
                with pytest.raises(Unavailable, match="The database is busy; nothing was written"):
                    await store.change_listing(listing_id, rename("x"))
            await store.check()

    asyncio.run(scenario())


def test_a_write_without_a_session_leaves_the_store_ready(url: str) -> None:
    async def scenario() -> None:
        async with open_store(url, sessions=1, seconds=1) as store:
            listing_id = await create_alice(store)
            session = await store._pool.acquire()  # noqa: SLF001 - as a long read would
            with pytest.raises(Unavailable, match="The database is busy"):
                await store.change_listing(listing_id, rename("x"))
            store._pool.release(session)  # noqa: SLF001
            await store.check()

    asyncio.run(scenario())


def test_a_session_without_its_statements_is_not_used_again(url: str) -> None:
    async def scenario() -> None:
        async with open_store(url, sessions=1) as store:
            await create_alice(store)

            async def count() -> int:
                async with store.read_listings(1, 1, ListingQuery()) as found:
                    return sum([len(piece) async for piece in found.pieces])

            assert await count() == 1
            session = await store._pool.acquire_usable(searching=True)  # noqa: SLF001 - as a pooler between them would
            await session.execute("DEALLOCATE ALL")
            store._pool.release(session)  # noqa: SLF001
            with pytest.raises(Unavailable):
                await count()
            assert await count() == 1

    asyncio.run(scenario())


def test_sessions_of_other_roles_are_not_free(postgres: PostgresServer) -> None:
    role = "owner_without_statistics"

    async def scenario(url: str) -> tuple[int, int]:
        async with open_session(url) as admin:
            await admin.execute(f"CREATE ROLE {role} LOGIN; GRANT pg_read_all_data TO {role}")
            try:
                own = re.sub(r"//[^@]*@", f"//{role}@", url) if "@" in url else url.replace("//", f"//{role}@", 1)
                before = (await inspect(own)).free_connections
                others = [await asyncpg.connect(url) for _ in range(5)]
                after = (await inspect(own)).free_connections
                for other in others:
                    await other.close()
            finally:
                await admin.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
            return before, after

    with postgres.database() as url:
        before, after = asyncio.run(scenario(url))
    assert before - after == 5
