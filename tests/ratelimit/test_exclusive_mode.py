"""The mapped limiter where its process is alone with a file: it locks no key, and is as exact when others come."""

import asyncio
import os
import random
import struct
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from listings.contract.rate_limiter import RateLimitDecision
from listings.domain.errors import Unavailable
from listings.ratelimit import mapped
from listings.ratelimit.mapped import MachineClock, MappedLimiter
from listings.ratelimit.memory import MemoryLimiter
from tests.harness import TIMEOUT
from tests.ratelimit import lone
from tests.ratelimit.conftest import Machine, Run
from tests.ratelimit.locks import USERS, Lock, file_of, held, is_somebody_alone
from tests.ratelimit.test_mapped import ROOT

KEY = 5
IN_COMMON, FOR_ONE = Lock(*USERS, is_exclusive=False), Lock(*USERS, is_exclusive=True)


@asynccontextmanager
async def kept_up(
    database: Path, clock: MachineClock, limit: int = 1000, window: int = 60
) -> AsyncIterator[MappedLimiter]:
    """A limiter that is looked after, as in the service."""
    limiter = MappedLimiter(database, lone.DATABASE_ID, limit, window, clock)
    keeping_up = asyncio.create_task(limiter.run_maintenance())
    try:
        yield limiter
    finally:
        keeping_up.cancel()
        await asyncio.wait([keeping_up])
        await limiter.close()


async def until_somebody_is_alone(database: Path) -> None:
    for _ in range(TIMEOUT * 100):
        if is_somebody_alone(database):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("nobody is alone")


async def be_alone(limiter: MappedLimiter, database: Path) -> "asyncio.Task[None]":
    """Looks after a limiter until it is alone, and then whenever its loop runs: between two runs it stands still."""
    await limiter.check()
    keeping_up = asyncio.create_task(limiter.run_maintenance())
    await until_somebody_is_alone(database)
    return keeping_up


def test_who_is_alone_locks_no_key(run: Run, database: Path, machine: Machine) -> None:
    seen: list[Lock | None] = []

    def since_boot() -> float:
        if file_of(database).exists():
            seen.append(held(file_of(database)))
        return machine.uptime

    async def work() -> None:
        async with kept_up(database, machine.clock()._replace(since_boot=since_boot)) as limiter:
            await limiter.hit(KEY)
            await until_somebody_is_alone(database)
            await limiter.hit(KEY)

    run(work())
    assert seen == [Lock(1 + KEY, 1, is_exclusive=True), None]


def test_a_newcomer_is_let_in_and_both_count_together(run: Run, database: Path, machine: Machine) -> None:
    async def work() -> list[RateLimitDecision]:
        async with kept_up(database, machine.clock(), limit=3) as first:
            await first.check()
            await until_somebody_is_alone(database)
            assert (await first.hit(KEY)).left == 2
            second = MappedLimiter(database, lone.DATABASE_ID, 3, 60, machine.clock())
            verdicts = [await second.hit(KEY), await first.hit(KEY), await second.hit(KEY), await first.hit(KEY)]
            assert held(file_of(database), USERS) == IN_COMMON
            await second.close()
        return verdicts

    assert [verdict.accepted for verdict in run(work())] == [True, True, False, False]


def test_a_newcomer_counts_nothing_before_it_is_let_in(run: Run, database: Path, machine: Machine) -> None:
    first = MappedLimiter(database, lone.DATABASE_ID, 3, 60, machine.clock())
    second = MappedLimiter(database, lone.DATABASE_ID, 3, 60, machine.clock())
    keeping_up = run(be_alone(first, database))
    with asyncio.Runner() as other, pytest.raises(TimeoutError):
        other.run(asyncio.wait_for(second.hit(KEY), 0.05))
    assert held(file_of(database), USERS) == FOR_ONE
    assert run(first.hit(KEY)).left == 2  # which lets it in
    assert held(file_of(database), USERS) == IN_COMMON
    with asyncio.Runner() as other:
        assert other.run(second.hit(KEY)).left == 1
        other.run(second.close())
    run(first.close())
    assert not keeping_up.done()


def test_who_remains_is_alone_again(run: Run, database: Path, machine: Machine) -> None:
    async def work() -> None:
        async with kept_up(database, machine.clock()) as first:
            await first.check()
            async with kept_up(database, machine.clock()) as second:
                await second.check()
                assert held(file_of(database), USERS) == IN_COMMON
            await until_somebody_is_alone(database)
            assert (await first.hit(KEY)).accepted
        assert held(file_of(database), USERS) is None

    run(work())


def test_nobody_is_alone_with_a_file_that_was_replaced(
    run: Run, database: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapped, "_CALM_LOOKS", 0)

    async def work() -> tuple[RateLimitDecision, RateLimitDecision]:
        async with kept_up(database, machine.clock(), limit=3) as small:
            await small.hit(KEY)
            await until_somebody_is_alone(database)
            async with kept_up(database, machine.clock(), limit=5_000) as large:
                await large.hit(KEY)
                await until_somebody_is_alone(database)  # with the new file: the other looks as often
                return await small.hit(KEY), await large.hit(KEY)

    assert [verdict.left for verdict in run(work())] == [0, 5_000 - 4]


def test_who_is_not_looked_after_any_more_is_not_alone(run: Run, database: Path, machine: Machine) -> None:
    async def work() -> None:
        limiter = MappedLimiter(database, lone.DATABASE_ID, 3, 60, machine.clock())
        await limiter.check()
        keeping_up = asyncio.create_task(limiter.run_maintenance())
        await until_somebody_is_alone(database)
        keeping_up.cancel()
        await asyncio.wait([keeping_up])
        assert held(file_of(database), USERS) == IN_COMMON
        await limiter.close()

    run(work())


def test_a_newcomer_that_was_killed_before_it_was_let_in_leaves_nothing_behind(
    run: Run, database: Path, machine: Machine
) -> None:
    async def work() -> None:
        async with kept_up(database, machine.clock(), limit=2) as limiter:
            await limiter.check()
            await until_somebody_is_alone(database)
            with file_of(database).open("r+b") as file:
                os.pwrite(file.fileno(), struct.pack("Q", 2), 16)
            assert (await limiter.hit(KEY)).left == 1
            assert held(file_of(database), USERS) == IN_COMMON
            await until_somebody_is_alone(database)
            assert struct.unpack_from("Q", file_of(database).read_bytes(), 16) == (0,)
            assert (await limiter.hit(KEY)).left == 0

    run(work())


def test_who_is_not_let_in_is_unavailable_and_may_be_later(
    run: Run, database: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapped, "_PATIENCE", 0.05)
    first = MappedLimiter(database, lone.DATABASE_ID, 3, 60, machine.clock())
    second = MappedLimiter(database, lone.DATABASE_ID, 3, 60, machine.clock())
    keeping_up = run(be_alone(first, database))
    with asyncio.Runner() as other:
        for fetch in (second.hit, second.peek, second.ages):
            with pytest.raises(Unavailable, match=r"^The rate limit can't be counted: another process keeps it to"):
                other.run(fetch(KEY))
        assert run(first.hit(KEY)).left == 2
        assert other.run(second.hit(KEY)).left == 1
        other.run(second.close())
    run(first.close())
    assert not keeping_up.done()


@pytest.mark.decision("G28")
def test_whoever_comes_and_goes_the_limit_is_exact(
    run: Run, database: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many limiters of one file, looked after at every turn, beside one that has all requests."""
    monkeypatch.setattr(mapped, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(mapped, "_KNOCK_SECONDS", 0.0)
    monkeypatch.setattr(mapped, "_CALM_LOOKS", 2)
    choice = random.Random(20)
    model = MemoryLimiter(4, 10, lambda: machine.uptime)
    alone = []

    async def work() -> None:
        async with AsyncExitStack() as stack:
            for _ in range(40):
                limiters = [await stack.enter_async_context(kept_up(database, machine.clock(), 4, 10))]
                for _ in range(choice.randrange(60)):
                    machine.pass_time(choice.random())
                    key = choice.choice((1, 4095, 4096))
                    found, expected = await choice.choice(limiters).hit(key), await model.hit(key)
                    assert (found.accepted, found.left) == (expected.accepted, expected.left)
                    assert found.reset == pytest.approx(expected.reset, abs=1e-3)
                    alone.append(is_somebody_alone(database))
                    await asyncio.sleep(0)
                    if len(limiters) > 1 and choice.random() < 0.1:
                        await limiters.pop(0).close()
                    if choice.random() < 0.1:
                        limiters.append(await stack.enter_async_context(kept_up(database, machine.clock(), 4, 10)))
                await stack.aclose()

    run(work())
    assert alone.count(False) > 100
    assert alone.count(True) > 100


def start_lone(database: Path, limit: int, hits: int) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "tests.ratelimit.lone", str(database), str(KEY), str(limit), str(hits)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)


def granted(process: "subprocess.Popen[bytes]", at_least: int) -> int:
    """Reads until so many requests were accepted; tells how many were."""
    assert process.stdout is not None
    count = 0
    while count < at_least:
        got = len(os.read(process.stdout.fileno(), 4096))
        assert got
        count += got
    return count


def test_processes_that_come_to_one_that_is_alone_are_granted_exactly_the_limit(database: Path) -> None:
    limit, first = 20_000, start_lone(database, 20_000, 10)
    count = granted(first, 10)
    assert is_somebody_alone(database)
    others = [start_lone(database, limit, 10) for _ in range(2)]
    count += sum(granted(process, 10) for process in others)
    assert held(file_of(database), USERS) == IN_COMMON
    rests = [process.communicate(b"\n", timeout=TIMEOUT)[0] for process in (first, *others)]
    assert count + sum(map(len, rests)) == limit


@pytest.mark.slow
def test_kills_of_one_that_is_alone_forget_nothing_that_was_acknowledged(database: Path) -> None:
    choice, limit, kills, acknowledged = random.Random(20), 100_000, 20, 0
    for _ in range(kills):
        process = start_lone(database, limit, limit // kills)
        acknowledged += granted(process, choice.randrange(1, 800))
        assert is_somebody_alone(database)
        process.kill()
        acknowledged += len(process.communicate(timeout=TIMEOUT)[0])
    limiter = MappedLimiter(database, lone.DATABASE_ID, limit, 3600)
    remembered = limit - asyncio.run(limiter.peek(KEY)).left
    asyncio.run(limiter.close())
    assert acknowledged <= remembered <= acknowledged + kills
