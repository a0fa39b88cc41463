"""The limiter in memory: removal of idle keys."""

import asyncio
from collections.abc import Iterable

import pytest

from listings.ratelimit.memory import MemoryLimiter
from tests.harness import Clock

WINDOW = 60


@pytest.fixture
def limiter(clock: Clock) -> MemoryLimiter:
    return MemoryLimiter(2, WINDOW, clock)


def hit(limiter: MemoryLimiter, keys: Iterable[int]) -> int:
    async def hits() -> None:
        for key in keys:
            await limiter.hit(key)

    asyncio.run(hits())
    return len(limiter.logs)


def test_idle_keys_are_removed_when_another_key_arrives(limiter: MemoryLimiter, clock: Clock) -> None:
    assert hit(limiter, range(1_024)) == 1_024
    clock.now += WINDOW
    assert hit(limiter, [5_000]) == 1


def test_active_keys_are_retained(limiter: MemoryLimiter, clock: Clock) -> None:
    hit(limiter, range(1_024))
    clock.now += WINDOW - 1
    assert hit(limiter, range(1_024, 1_100)) == 1_100
    assert hit(limiter, [0, 0]) == 1_100
    assert asyncio.run(limiter.peek(0)).accepted is False


def test_the_next_sweep_starts_at_twice_the_number_of_keys(limiter: MemoryLimiter, clock: Clock) -> None:
    hit(limiter, range(1_025))
    clock.now += WINDOW
    assert hit(limiter, range(1_025, 2_048)) == 2_048
    assert hit(limiter, [2_048]) == 1_024
