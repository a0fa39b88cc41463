"""Guarantees of every rate limiter (`listings.domain.rate_limiter.RateLimiter`, decision G28)."""

import asyncio
from collections import deque

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from listings.domain.rate_limiter import RateLimitDecision, RateLimiter
from tests.contract.conftest import MakeLimiter, Run
from tests.harness import Clock

KEY = 7


def test_requests_above_the_limit_are_rejected(make_limiter: MakeLimiter, run: Run) -> None:
    limiter = make_limiter(3, 60)
    decisions = [run(limiter.hit(KEY)) for _ in range(4)]
    assert [decision.accepted for decision in decisions] == [True, True, True, False]
    assert [decision.remaining for decision in decisions] == [2, 1, 0, 0]


def test_limit_and_window_are_attributes(make_limiter: MakeLimiter) -> None:
    limiter = make_limiter(3, 60)
    assert (limiter.limit, limiter.window) == (3, 60)


def test_the_scope_describes_what_is_counted_together(make_limiter: MakeLimiter) -> None:
    limiter = make_limiter(3, 60)
    assert limiter.scope.startswith("all machines" if limiter.is_distributed else "this ")


def test_peek_does_not_count_a_request(make_limiter: MakeLimiter, run: Run, clock: Clock) -> None:
    limiter = make_limiter(2, 60)
    assert run(limiter.peek(KEY)) == RateLimitDecision(accepted=True, remaining=2, reset=0)
    run(limiter.hit(KEY))
    clock.now += 20
    assert [run(limiter.peek(KEY)) for _ in range(3)] == [RateLimitDecision(accepted=True, remaining=1, reset=40)] * 3
    run(limiter.hit(KEY))
    assert run(limiter.peek(KEY)) == RateLimitDecision(accepted=False, remaining=0, reset=40)
    clock.now += 60
    assert run(limiter.peek(KEY)) == RateLimitDecision(accepted=True, remaining=2, reset=0)


def test_keys_are_counted_separately(make_limiter: MakeLimiter, run: Run) -> None:
    limiter = make_limiter(1, 60)
    assert run(limiter.hit(1)).accepted
    assert run(limiter.hit(2)).accepted
    assert not run(limiter.hit(1)).accepted


def test_the_window_slides(make_limiter: MakeLimiter, run: Run, clock: Clock) -> None:
    limiter = make_limiter(2, 60)
    assert run(limiter.hit(KEY)) == RateLimitDecision(accepted=True, remaining=1, reset=60)
    clock.now += 20
    assert run(limiter.hit(KEY)) == RateLimitDecision(accepted=True, remaining=0, reset=40)
    clock.now += 39
    assert run(limiter.hit(KEY)) == RateLimitDecision(accepted=False, remaining=0, reset=1)
    clock.now += 1
    assert run(limiter.hit(KEY)) == RateLimitDecision(accepted=True, remaining=0, reset=20)
    assert run(limiter.hit(KEY)) == RateLimitDecision(accepted=False, remaining=0, reset=20)


def test_a_rejected_request_does_not_count(make_limiter: MakeLimiter, run: Run, clock: Clock) -> None:
    limiter = make_limiter(1, 60)
    run(limiter.hit(KEY))
    for _ in range(59):
        clock.now += 1
        assert not run(limiter.hit(KEY)).accepted
    clock.now += 1
    assert run(limiter.hit(KEY)).accepted


def test_a_request_is_accepted_after_the_reset_seconds(make_limiter: MakeLimiter, run: Run, clock: Clock) -> None:
    limiter = make_limiter(5, 3600)
    for _ in range(5):
        run(limiter.hit(KEY))
        clock.now += 17.25
    rejected = run(limiter.hit(KEY))
    assert not rejected.accepted
    clock.now += rejected.reset
    assert run(limiter.hit(KEY)).accepted


def test_many_keys_are_counted_separately(make_limiter: MakeLimiter, run: Run, clock: Clock) -> None:
    limiter = make_limiter(2, 60)

    async def hit_all() -> list[RateLimitDecision]:
        return [await limiter.hit(key) for key in range(1, 3_000)]

    for round_ in range(3):
        assert {decision.accepted for decision in run(hit_all())} == {round_ < 2}
        clock.now += 1
    clock.now += 60
    assert {decision.remaining for decision in run(hit_all())} == {1}


def test_concurrent_requests_are_counted_exactly(make_limiter: MakeLimiter, run: Run) -> None:
    limiter = make_limiter(1000, 3600)

    async def hit_concurrently() -> int:
        decisions = await asyncio.gather(*(limiter.hit(KEY) for _ in range(1500)))
        return sum(decision.accepted for decision in decisions)

    assert run(hit_concurrently()) == 1000


class Reference:
    """The definition of decision G28, implemented literally."""

    def __init__(self, limit: int, window: int) -> None:
        self._limit, self._window = limit, window
        self._accepted: deque[float] = deque()

    def hit(self, now: float) -> tuple[bool, int]:
        counted = [moment for moment in self._accepted if now - self._window < moment <= now]
        accepted = len(counted) < self._limit
        if accepted:
            self._accepted.append(now)
        return accepted, self._limit - len(counted) - accepted


@pytest.mark.decision("G28")
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(limit=st.integers(1, 7), window=st.integers(1, 20), steps=st.lists(st.integers(0, 12), max_size=60))
def test_it_behaves_as_decision_g28_defines(
    make_limiter: MakeLimiter, run: Run, clock: Clock, limit: int, window: int, steps: list[int]
) -> None:
    limiter: RateLimiter = make_limiter(limit, window)
    reference = Reference(limit, window)
    for step in steps:
        clock.now += step
        decision = run(limiter.hit(KEY))
        assert (decision.accepted, decision.remaining) == reference.hit(clock.now)


@pytest.mark.parametrize("limit", [1, 1000, 5000])
def test_no_window_contains_more_requests_than_the_limit(
    make_limiter: MakeLimiter, run: Run, clock: Clock, limit: int
) -> None:
    limiter = make_limiter(limit, 100)
    accepted: list[float] = []

    async def hit_repeatedly() -> None:
        for _ in range(2 * limit + 1):
            if (await limiter.hit(KEY)).accepted:
                accepted.append(clock.now)
            clock.now += 60 / limit

    run(hit_repeatedly())
    overlaps = (later - earlier for earlier, later in zip(accepted, accepted[limit:], strict=False))
    assert all(round(distance, 6) >= 100 for distance in overlaps)  # Redis counts in microseconds
    assert len(accepted) > limit
