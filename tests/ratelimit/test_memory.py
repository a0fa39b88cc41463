"""The limiter in memory: how many keys it remembers that nobody uses any more."""

import asyncio
from collections.abc import Iterable

import pytest

from listings.ratelimit.memory import MemoryLimiter

WINDOW = 60


class Clock:
    """Seconds, turned by hand."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def limiter(clock: Clock) -> MemoryLimiter:
    return MemoryLimiter(2, WINDOW, clock)


def hit(limiter: MemoryLimiter, keys: Iterable[int]) -> int:
    """Returns how many keys are remembered then."""

    async def hits() -> None:
        for key in keys:
            await limiter.hit(key)

    asyncio.run(hits())
    return len(limiter._logs)  # noqa: SLF001 - what is to be bounded


def test_a_thousand_idle_keys_are_forgotten_when_one_more_comes(limiter: MemoryLimiter, clock: Clock) -> None:
    assert hit(limiter, range(1_024)) == 1_024
    clock.now += WINDOW
    assert hit(limiter, [5_000]) == 1


def test_keys_that_still_count_are_kept(limiter: MemoryLimiter, clock: Clock) -> None:
    hit(limiter, range(1_024))
    clock.now += WINDOW - 1
    assert hit(limiter, range(1_024, 1_100)) == 1_100
    assert hit(limiter, [0, 0]) == 1_100
    assert asyncio.run(limiter.peek(0)).accepted is False


def test_as_many_again_may_come_before_the_idle_are_looked_for_again(limiter: MemoryLimiter, clock: Clock) -> None:
    hit(limiter, range(1_025))
    clock.now += WINDOW
    assert hit(limiter, range(1_025, 2_048)) == 2_048
    assert hit(limiter, [2_048]) == 1_024
