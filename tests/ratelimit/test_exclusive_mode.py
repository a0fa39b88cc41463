"""Exclusive mode of the mapped limiter: no locks for a single process, and exact limits when others join."""

import asyncio
import os
import random
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from listings.domain.errors import Unavailable
from listings.domain.rate_limiter import RateLimitDecision
from listings.ratelimit import mapped, mapped_file
from listings.ratelimit.mapped import MappedLimiter
from listings.ratelimit.mapped_file import MachineClock
from listings.ratelimit.memory import MemoryLimiter
from tests.ratelimit.conftest import Machine, Run
from tests.ratelimit.locks import USERS, Lock, find_lock, first_log_file, is_exclusively_locked
from tests.ratelimit.test_mapped import poll
from tests.waiting import until_async

DATABASE_ID = "d" * 32
KEY = 5
SHARED, EXCLUSIVE = Lock(*USERS, is_exclusive=False), Lock(*USERS, is_exclusive=True)


@asynccontextmanager
async def maintained_limiter(
    database: Path, clock: MachineClock, limit: int = 1000, window: int = 60
) -> AsyncIterator[MappedLimiter]:
    limiter = MappedLimiter(database, DATABASE_ID, limit, window, clock)
    maintenance = asyncio.create_task(limiter.run_maintenance())
    try:
        yield limiter
    finally:
        maintenance.cancel()
        await asyncio.wait([maintenance])
        await limiter.close()


async def start_maintenance(limiter: MappedLimiter, database: Path) -> "asyncio.Task[None]":
    """Start the maintenance and wait for exclusive mode. The maintenance runs only while the event loop does."""
    await limiter.check()
    maintenance = asyncio.create_task(limiter.run_maintenance())
    await until_async(lambda: is_exclusively_locked(database))
    return maintenance


def test_exclusive_mode_locks_no_key(run: Run, database: Path, machine: Machine) -> None:
    seen: list[Lock | None] = []

    def since_boot() -> float:
        if first_log_file(database).exists():
            seen.append(find_lock(first_log_file(database)))
        return machine.uptime

    async def work() -> None:
        async with maintained_limiter(database, machine.clock()._replace(since_boot=since_boot)) as limiter:
            await limiter.hit(KEY)
            await until_async(lambda: is_exclusively_locked(database))
            await limiter.hit(KEY)

    run(work())
    assert seen == [Lock(1 + KEY, 1, is_exclusive=True), None]


def test_a_newcomer_joins_and_both_count_together(run: Run, database: Path, machine: Machine) -> None:
    async def work() -> list[RateLimitDecision]:
        async with maintained_limiter(database, machine.clock(), limit=3) as first:
            await first.check()
            await until_async(lambda: is_exclusively_locked(database))
            assert (await first.hit(KEY)).remaining == 2
            second = MappedLimiter(database, DATABASE_ID, 3, 60, machine.clock())
            decisions = [await second.hit(KEY), await first.hit(KEY), await second.hit(KEY), await first.hit(KEY)]
            assert find_lock(first_log_file(database), USERS) == SHARED
            await second.close()
        return decisions

    assert [decision.accepted for decision in run(work())] == [True, True, False, False]


def test_a_newcomer_waits_for_exclusive_mode_to_end(run: Run, database: Path, machine: Machine) -> None:
    first = MappedLimiter(database, DATABASE_ID, 3, 60, machine.clock())
    second = MappedLimiter(database, DATABASE_ID, 3, 60, machine.clock())
    maintenance = run(start_maintenance(first, database))
    with asyncio.Runner() as other, pytest.raises(TimeoutError):
        other.run(asyncio.wait_for(second.hit(KEY), 0.05))
    assert find_lock(first_log_file(database), USERS) == EXCLUSIVE
    assert run(first.hit(KEY)).remaining == 2  # ends exclusive mode
    assert find_lock(first_log_file(database), USERS) == SHARED
    with asyncio.Runner() as other:
        assert other.run(second.hit(KEY)).remaining == 1
        other.run(second.close())
    run(first.close())
    assert not maintenance.done()


def test_an_idle_process_is_exclusive_until_another_joins(run: Run, database: Path, machine: Machine) -> None:
    async def work() -> None:
        first = MappedLimiter(database, DATABASE_ID, 3, 60, machine.clock())
        second = MappedLimiter(database, DATABASE_ID, 3, 60, machine.clock())
        await first.check()
        for _ in range(2):
            poll(first)
            assert find_lock(first_log_file(database), USERS) == EXCLUSIVE
        joining = asyncio.create_task(second.check())
        await asyncio.sleep(0)
        poll(first)
        assert find_lock(first_log_file(database), USERS) == SHARED
        await joining
        await first.close()
        await second.close()

    run(work())


def test_the_remaining_process_returns_to_exclusive_mode(run: Run, database: Path, machine: Machine) -> None:
    async def work() -> None:
        async with maintained_limiter(database, machine.clock()) as first:
            await first.check()
            async with maintained_limiter(database, machine.clock()) as second:
                await second.check()
                assert find_lock(first_log_file(database), USERS) == SHARED
            await until_async(lambda: is_exclusively_locked(database))
            assert (await first.hit(KEY)).accepted
        assert find_lock(first_log_file(database), USERS) is None

    run(work())


def test_a_replaced_file_is_not_used_exclusively(
    run: Run, database: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapped_file, "_SHARED_POLLS", 0)

    async def work() -> tuple[RateLimitDecision, RateLimitDecision]:
        async with maintained_limiter(database, machine.clock(), limit=3) as small:
            await small.hit(KEY)
            await until_async(lambda: is_exclusively_locked(database))
            async with maintained_limiter(database, machine.clock(), limit=5_000) as large:
                await large.hit(KEY)
                # The lock is that of the new file; the old one is checked as often.
                await until_async(lambda: is_exclusively_locked(database))
                return await small.hit(KEY), await large.hit(KEY)

    assert [decision.remaining for decision in run(work())] == [0, 5_000 - 4]


def test_exclusive_mode_ends_with_its_maintenance(run: Run, database: Path, machine: Machine) -> None:
    async def work() -> None:
        limiter = MappedLimiter(database, DATABASE_ID, 3, 60, machine.clock())
        await limiter.check()
        maintenance = asyncio.create_task(limiter.run_maintenance())
        await until_async(lambda: is_exclusively_locked(database))
        maintenance.cancel()
        await asyncio.wait([maintenance])
        assert find_lock(first_log_file(database), USERS) == SHARED
        await limiter.close()

    run(work())


def test_a_newcomer_killed_while_joining_has_no_effect(run: Run, database: Path, machine: Machine) -> None:
    async def work() -> None:
        async with maintained_limiter(database, machine.clock(), limit=2) as limiter:
            await limiter.check()
            await until_async(lambda: is_exclusively_locked(database))
            with first_log_file(database).open("r+b") as file:
                os.pwrite(file.fileno(), struct.pack("Q", 2), 16)
            assert (await limiter.hit(KEY)).remaining == 1
            assert find_lock(first_log_file(database), USERS) == SHARED
            await until_async(lambda: is_exclusively_locked(database))
            assert struct.unpack_from("Q", first_log_file(database).read_bytes(), 16) == (0,)
            assert (await limiter.hit(KEY)).remaining == 0

    run(work())


def test_a_process_that_cannot_join_is_unavailable_until_it_can(
    run: Run, database: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapped, "_JOIN_TIMEOUT_SECONDS", 0.05)
    first = MappedLimiter(database, DATABASE_ID, 3, 60, machine.clock())
    second = MappedLimiter(database, DATABASE_ID, 3, 60, machine.clock())
    maintenance = run(start_maintenance(first, database))
    with asyncio.Runner() as other:
        for fetch in (second.hit, second.peek, second.list_ages):
            with pytest.raises(Unavailable, match=r"^The rate limit can't be counted: another process has locked"):
                other.run(fetch(KEY))
        assert run(first.hit(KEY)).remaining == 2
        assert other.run(second.hit(KEY)).remaining == 1
        other.run(second.close())
    run(first.close())
    assert not maintenance.done()


@pytest.mark.decision("G28")
def test_the_limit_is_exact_while_processes_come_and_go(
    run: Run, database: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compare many limiters of one file, whose maintenance runs constantly, with a single limiter in memory."""
    monkeypatch.setattr(mapped, "_POLL_SECONDS", 0.0)
    monkeypatch.setattr(mapped, "_JOIN_RETRY_SECONDS", 0.0)
    monkeypatch.setattr(mapped_file, "_SHARED_POLLS", 2)
    choice = random.Random(20)
    model = MemoryLimiter(4, 10, lambda: machine.uptime)
    is_exclusive = []

    async def work() -> None:
        async with AsyncExitStack() as stack:
            for _ in range(40):
                limiters = [await stack.enter_async_context(maintained_limiter(database, machine.clock(), 4, 10))]
                for _ in range(choice.randrange(60)):
                    machine.pass_time(choice.random())
                    key = choice.choice((1, 4095, 4096))
                    decision, expected = await choice.choice(limiters).hit(key), await model.hit(key)
                    assert (decision.accepted, decision.remaining) == (expected.accepted, expected.remaining)
                    assert decision.reset == pytest.approx(expected.reset, abs=1e-3)
                    is_exclusive.append(is_exclusively_locked(database))
                    await asyncio.sleep(0)
                    if len(limiters) > 1 and choice.random() < 0.1:
                        await limiters.pop(0).close()
                    if choice.random() < 0.1:
                        limiters.append(
                            await stack.enter_async_context(maintained_limiter(database, machine.clock(), 4, 10))
                        )
                await stack.aclose()

    run(work())
    assert is_exclusive.count(False) > 100
    assert is_exclusive.count(True) > 100
