"""The writes of an account leave sessions and time to others."""

import asyncio
from collections.abc import Awaitable
from time import perf_counter, sleep

import pytest

from listings.domain.errors import Unavailable
from listings.domain.history import CONSOLE, Actor
from listings.domain.listings import AddStep, Batch
from listings.domain.model import NewListing
from listings.http import eager
from listings.queues import FairQueue
from listings.store.postgres import writes
from listings.store.postgres.pool import Pool, PoolLimits
from listings.store.postgres.store import PostgresStore
from listings.store.query import Query
from listings.store.scripts.script import Transaction
from tests.harness import TIMEOUT
from tests.store.postgres.test_errors import open_session, wait_until_blocked

STEP = AddStep(NewListing(title="Lamp", content="Bright."), "2026-11-21 10:00:00")
BY_OWNER = Actor(CONSOLE, 1_500)


class Writers:
    """Writes that last until they are released, and how many run at a time."""

    def __init__(self, slots: FairQueue) -> None:
        self.running = 0
        self.release = asyncio.Event()
        self._slots = slots

    async def write(self, bucket: int) -> None:
        async with self._slots.acquire(bucket):
            self.running += 1
            await self.release.wait()

    async def count(self, *buckets: int) -> int:
        """Return how many of these writes run at the same time; all run in the end."""
        tasks = [asyncio.create_task(self.write(bucket)) for bucket in buckets]
        for _ in range(20):
            await asyncio.sleep(0)
        running = self.running
        self.release.set()
        await asyncio.gather(*tasks)
        assert self.running == len(buckets)
        return running


@pytest.mark.parametrize(
    ("sessions", "buckets", "running"),
    [(8, [1] * 5, 2), (8, [1, 1, 1, 2], 3), (8, [*range(20)], 6), (4, [1, 1, 2, 2], 2), (2, [1, 2], 1), (1, [1, 2], 1)],
)
def test_an_account_has_at_most_two_sessions_and_all_writes_leave_two(
    sessions: int, buckets: list[int], running: int
) -> None:
    async def scenario() -> int:
        store = PostgresStore("postgresql://unused", PoolLimits(sessions, TIMEOUT))
        return await Writers(store._write_slots).count(*buckets)  # noqa: SLF001 - the store need not be open

    assert asyncio.run(scenario()) == running


def test_an_account_has_one_batch_at_a_time() -> None:
    async def scenario() -> int:
        store = PostgresStore("postgresql://unused", PoolLimits(8, TIMEOUT))
        return await Writers(store._batch_slots).count(1, 1, 1, 2)  # noqa: SLF001 - the store need not be open

    assert asyncio.run(scenario()) == 2


def test_a_request_that_runs_without_a_task_gets_one_to_wait_for_a_slot() -> None:
    async def scenario() -> list[str]:
        slots = FairQueue(None, seconds=TIMEOUT)
        tasks: list[asyncio.Task[None]] = []
        done = []

        async def write() -> None:
            async with slots.acquire(1):
                done.append("second")

        def start_task(rest: eager.RequestCoroutine) -> None:
            tasks.append(asyncio.create_task(rest))

        async with slots.acquire(1):
            asyncio.get_running_loop().call_soon(eager.run, write(), start_task)
            await asyncio.sleep(0)
            done.append("first")
        await asyncio.gather(*tasks)
        return done

    assert asyncio.run(scenario()) == ["first", "second"]


def test_a_write_that_waits_too_long_fails_and_others_go_on() -> None:
    async def scenario() -> int:
        slots = FairQueue(None, seconds=0.05)
        async with slots.acquire(1):
            for bucket in (1, 2):
                with pytest.raises(Unavailable, match="Too many requests are waiting"):
                    async with slots.acquire(bucket):
                        pytest.fail("there is only one slot")
        return await Writers(slots).count(1, 2)

    assert asyncio.run(scenario()) == 1


def test_waiting_writes_of_one_account_do_not_block_others(url: str) -> None:
    async def scenario() -> None:
        store = PostgresStore(url, PoolLimits(4, TIMEOUT))
        await store.open()
        try:
            for name in ("alice", "bob"):
                await store.add_member(name, f"{name}@example.com", "hash", 1_000)
            added = [await store.add_listing(account, account, STEP, None, BY_OWNER) for account in (1, 2)]
            async with open_session(url) as other, open_session(url) as observer, other.transaction():
                await other.execute("SELECT 1 FROM account_state WHERE account_id = 1 FOR UPDATE")
                waiting = [asyncio.create_task(store.add_listing(1, 1, STEP, None, BY_OWNER)) for _ in range(20)]
                await wait_until_blocked(observer)
                assert await store.get_listing(added[0].listing_id) is not None
                await store.add_listing(2, 2, STEP, None, BY_OWNER)
                assert not any(task.done() for task in waiting)
                assert store.writes_waiting == len(waiting)
            await asyncio.gather(*waiting)
        finally:
            await store.close()

    asyncio.run(scenario())


async def require_rejected(write: Awaitable[object]) -> None:
    with pytest.raises(Unavailable, match="Too many requests are waiting"):
        await write


def test_a_write_that_waits_too_long_is_not_a_database_failure(url: str) -> None:
    async def scenario() -> None:
        store = PostgresStore(url, PoolLimits(3, 0.5))
        await store.open()
        try:
            batch = Batch([STEP], atomic=True, dry_run=False, encode=str)
            async with store._write_slots.acquire(1):  # noqa: SLF001 - a write that takes long
                await require_rejected(store.add_listing(1, 1, STEP, None, BY_OWNER))
                await require_rejected(store.change_listing(1025, lambda _: {}, BY_OWNER))
            async with store._batch_slots.acquire(1):  # noqa: SLF001 - a batch that takes long
                await require_rejected(store.run_batch(1, 1, batch, None, BY_OWNER))
            await store.check()
        finally:
            await store.close()

    asyncio.run(scenario())


def test_a_script_that_is_not_urgent_pauses_after_long_steps(url: str) -> None:
    async def work(tx: Transaction) -> None:
        for _ in range(10):
            await tx.fetch(Query[tuple[int]]("SELECT 1"), ())
            sleep(0.002)  # noqa: ASYNC251 - the script's own work

    async def scenario() -> float:
        pool = Pool(url, PoolLimits(1, TIMEOUT))
        await pool.open()
        session = await pool.acquire()
        began = perf_counter()
        await work(writes.PostgresTransaction(session, is_urgent=False))
        seconds = perf_counter() - began
        pool.release(session)
        await pool.close()
        return seconds

    assert asyncio.run(scenario()) > 10 * 0.002 + 9 * 0.008  # there is no pause after the last step
