"""Steps that hold the lock have a pause between them if they wait for each other."""

import asyncio
from time import perf_counter

from listings.http.yielding_lock import YieldingLock

PAUSE = 0.05


def measure_seconds(count: int) -> float:
    """Return how long it takes until `count` simultaneous steps have held the lock."""

    async def step(lock: YieldingLock) -> None:
        async with lock.acquire():
            pass

    async def run() -> float:
        lock, began = YieldingLock(PAUSE), perf_counter()
        await asyncio.gather(*(step(lock) for _ in range(count)))
        return perf_counter() - began

    return asyncio.run(run())


def test_steps_that_wait_for_each_other_have_a_pause_between_them() -> None:
    assert measure_seconds(4) >= 3 * PAUSE * 0.9  # a timer may be a little early


def test_a_step_that_follows_at_once_has_a_pause_if_another_one_waits() -> None:
    async def run() -> float:
        lock, began = YieldingLock(PAUSE), perf_counter()

        async def step_twice() -> None:
            for _ in range(2):
                async with lock.acquire():
                    await asyncio.sleep(0)

        async def step() -> None:
            async with lock.acquire():
                pass

        await asyncio.gather(step_twice(), step())
        return perf_counter() - began

    assert asyncio.run(run()) >= 2 * PAUSE * 0.9


def test_a_single_step_has_no_pause() -> None:
    assert min(measure_seconds(1) for _ in range(3)) < PAUSE
