"""The limiter in Redis: exact over processes, machines' clocks and limits that change, and what it keeps there."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from listings.contract.rate_limiter import RateLimitDecision
from listings.ratelimit.redis import RedisLimiter
from tests.conformance.conftest import Clock
from tests.harness import TIMEOUT
from tests.ratelimit.conftest import Run
from tests.redis_server import RedisServer

KEY = 5
DAY = 24 * 3600
ROOT = Path(__file__).parents[2]

MakeLimiter: TypeAlias = Callable[..., "Limiter"]


class Limiter:
    """A machine's view of the log."""

    def __init__(self, limiter: RedisLimiter, run: Run) -> None:
        self._limiter = limiter
        self._run = run

    def hit(self, key: int = KEY) -> RateLimitDecision:
        verdict: RateLimitDecision = self._run(self._limiter.hit(key))
        return verdict

    def peek(self, key: int = KEY) -> RateLimitDecision:
        verdict: RateLimitDecision = self._run(self._limiter.peek(key))
        return verdict

    def accepted(self, hits: int, key: int = KEY) -> int:
        return sum(self.hit(key).accepted for _ in range(hits))

    def close(self) -> None:
        self._run(self._limiter.close())


@pytest.fixture
def clock() -> Clock:
    """Redis's clock, turned by hand."""
    return Clock()


@pytest.fixture
def make(redis_server: RedisServer, database_id: str, run: Run, clock: Clock) -> Iterator[MakeLimiter]:
    """Makes limiters over one database; `real` ones go by Redis's own clock."""
    made: list[Limiter] = []

    def make(limit: int = 3, window: int = 60, *, of: str = database_id, real: bool = False) -> Limiter:
        made.append(Limiter(RedisLimiter(redis_server.endpoint(), of, limit, window, None if real else clock), run))
        return made[-1]

    yield make
    for limiter in made:
        limiter.close()


# Exactness


@pytest.mark.parametrize(("processes", "connections"), [(1, 1), (1, 16), (4, 1), (4, 4), (8, 2)])
def test_processes_and_connections_together_are_granted_exactly_the_limit(
    redis_server: RedisServer, processes: int, connections: int
) -> None:
    hits = 1_600 // processes
    for _ in range(3):
        numbers = [str(number) for number in (KEY, 1_000, hits, connections)]
        command = [sys.executable, "-m", "tests.ratelimit.redis_rush", redis_server.socket, uuid4().hex, *numbers]
        rushes = [subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) for _ in range(processes)]
        assert sum(int(process.communicate(timeout=TIMEOUT)[0]) for process in rushes) == 1_000


def test_by_redis_own_clock_a_request_is_accepted_after_the_told_time_and_not_before(
    make: MakeLimiter, run: Run
) -> None:
    limiter = make(3, 1, real=True)
    while (refused := limiter.hit()).accepted:
        pass  # three of them come within a second, if not at first
    assert refused.left == 0
    assert 0 < refused.reset < 1
    while not (verdict := limiter.peek()).accepted:
        assert verdict.reset > 0
        run(asyncio.sleep(verdict.reset / 2 + 0.001))
    assert limiter.hit().accepted


# What lies in Redis


def test_a_key_holds_no_more_than_the_limit_and_ends_after_the_window(
    make: MakeLimiter, redis_server: RedisServer, database_id: str
) -> None:
    make(1_000, 3600, real=True).accepted(1_200)
    name = f"listings:{database_id}:limit:{KEY}"
    with redis_server.client() as client:
        assert client.llen(name) == 1_000
        assert 3_500_000 < int(str(client.pttl(name))) <= 3_601_000
        assert int(str(client.memory_usage(name, samples=0))) < 12 * 1024


def test_a_look_makes_nothing(make: MakeLimiter, redis_server: RedisServer, database_id: str) -> None:
    assert make(real=True).peek() == RateLimitDecision(accepted=True, left=3, reset=0)
    with redis_server.client() as client:
        assert client.exists(f"listings:{database_id}:limit:{KEY}") == 0


def test_what_counts_no_more_is_taken_off(
    make: MakeLimiter, clock: Clock, redis_server: RedisServer, database_id: str
) -> None:
    limiter = make(1_000, 60)
    for _ in range(997):
        limiter.hit()
        clock.now += 0.0625
    clock.now += 20
    counted = sum(number * 0.0625 > 997 * 0.0625 + 20 - 60 for number in range(997))
    assert limiter.hit().left == 1_000 - counted - 1
    with redis_server.client() as client:
        assert client.llen(f"listings:{database_id}:limit:{KEY}") == counted + 1


@pytest.mark.decision("G30")
def test_two_services_on_one_redis_do_not_mix(make: MakeLimiter) -> None:
    assert make().accepted(5) == 3
    assert make(of=uuid4().hex).accepted(5) == 3


def test_the_key_of_the_probe_is_nobodys(make: MakeLimiter, redis_server: RedisServer, database_id: str) -> None:
    make(real=True).hit()
    with redis_server.client() as client:
        names = {key.decode() for key in client.scan_iter(f"listings:{database_id}:*")}
    assert names - {f"listings:{database_id}:limit:probe"} == {f"listings:{database_id}:limit:{KEY}"}


def test_a_script_that_redis_has_forgotten_is_sent_again(make: MakeLimiter, redis_server: RedisServer) -> None:
    limiter = make()
    assert limiter.accepted(2) == 2
    with redis_server.client() as client:
        client.script_flush()
    assert limiter.accepted(5) == 1


# A clock that steps


def test_a_step_back_forgets_nothing_and_grants_nothing(make: MakeLimiter, clock: Clock) -> None:
    limiter = make(3, 60)
    for _ in range(3):
        limiter.hit()
        clock.now += 10
    clock.now -= 7200
    refused = limiter.hit()
    assert (refused.accepted, refused.reset) == (False, 40)  # as if no time had passed since the third
    clock.now += 39
    assert not limiter.hit().accepted
    clock.now += 1
    assert limiter.accepted(5) == 1


def test_a_clock_that_was_wrong_for_a_while_shuts_nobody_out(make: MakeLimiter, clock: Clock) -> None:
    limiter = make(3, 60)
    clock.now += DAY
    assert limiter.accepted(5) == 3
    clock.now -= DAY
    assert limiter.accepted(5) == 0
    clock.now += 60
    assert limiter.accepted(5) == 3


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    limit=st.integers(1, 5),
    steps=st.lists(st.tuples(st.integers(0, 25), st.sampled_from([0, 0, 0, 1, 30, 3600])), min_size=10, max_size=60),
)
def test_whatever_steps_back_there_are_no_window_holds_more_than_the_limit(
    make: MakeLimiter, clock: Clock, limit: int, steps: list[tuple[int, int]]
) -> None:
    limiter = make(limit, 60, of=uuid4().hex)
    passed, granted = 0, []
    for seconds, back in steps:
        passed += seconds
        clock.now += seconds - back
        if limiter.hit().accepted:
            granted.append(passed)
    assert all(later - earlier >= 60 for earlier, later in zip(granted, granted[limit:], strict=False))
    clock.now += 60
    assert limiter.hit().accepted


# A changed limit or window


@pytest.mark.parametrize(
    ("before", "after", "granted"), [(5, 2, 0), (5, 5, 0), (5, 8, 3), (5, 3000, 2995), (1500, 2, 0)]
)
def test_a_changed_limit_counts_what_was_accepted_before(
    make: MakeLimiter, before: int, after: int, granted: int
) -> None:
    assert make(before).accepted(before + 1) == before
    assert make(after).accepted(after + 1) == granted


def test_a_lowered_limit_tells_when_a_request_is_accepted(make: MakeLimiter, clock: Clock) -> None:
    high, low = make(5, 60), make(2, 60)
    for _ in range(5):
        high.hit()
        clock.now += 10
    refused = low.hit()
    assert refused == RateLimitDecision(accepted=False, left=0, reset=40)
    clock.now += 39.999
    assert not low.hit().accepted
    clock.now += 0.001
    assert low.hit().accepted


def test_limits_of_two_heights_count_together(make: MakeLimiter) -> None:
    small, large = make(10), make(5_000)
    assert small.accepted(4) == 4
    assert large.accepted(3) == 3
    assert small.accepted(10) == 3
    assert large.hit().left == 5_000 - 11


def test_a_shorter_window_forgets_what_is_older(make: MakeLimiter, clock: Clock) -> None:
    long, short = make(3, 120), make(3, 60)
    assert long.accepted(5) == 3
    clock.now += 61
    assert not long.hit().accepted
    assert short.accepted(5) == 3
    assert not long.hit().accepted
