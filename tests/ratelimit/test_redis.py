"""The limiter in Redis: exactness across processes, stored keys, clock steps and changed limits."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from listings.domain.rate_limiter import RateLimitDecision
from listings.ratelimit.redis import RedisLimiter
from tests.harness import TIMEOUT, Clock
from tests.ratelimit.conftest import Run
from tests.redis_server import RedisServer

KEY = 5
DAY = 24 * 3600
ROOT = Path(__file__).parents[2]

MakeLimiter: TypeAlias = Callable[..., "Limiter"]


class Limiter:
    def __init__(self, limiter: RedisLimiter, run: Run) -> None:
        self._limiter = limiter
        self._run = run

    def hit(self, key: int = KEY) -> RateLimitDecision:
        decision: RateLimitDecision = self._run(self._limiter.hit(key))
        return decision

    def peek(self, key: int = KEY) -> RateLimitDecision:
        decision: RateLimitDecision = self._run(self._limiter.peek(key))
        return decision

    def count_accepted(self, hits: int, key: int = KEY) -> int:
        return sum(self.hit(key).accepted for _ in range(hits))

    def close(self) -> None:
        self._run(self._limiter.close())


@pytest.fixture
def make_limiter(redis_server: RedisServer, database_id: str, run: Run, clock: Clock) -> Iterator[MakeLimiter]:
    """Return a function that creates limiters of one database. `real` uses Redis's own clock."""
    limiters: list[Limiter] = []

    def make_limiter(limit: int = 3, window: int = 60, *, name: str = database_id, real: bool = False) -> Limiter:
        limiters.append(
            Limiter(RedisLimiter(redis_server.endpoint(), name, limit, window, None if real else clock), run)
        )
        return limiters[-1]

    yield make_limiter
    for limiter in limiters:
        limiter.close()


@pytest.mark.uncovered
@pytest.mark.parametrize(("processes", "connections"), [(1, 1), (1, 16), (4, 1), (4, 4), (8, 2)])
def test_processes_and_connections_get_exactly_the_limit(
    redis_server: RedisServer, processes: int, connections: int
) -> None:
    hits = 1_600 // processes
    numbers = [str(number) for number in (KEY, 1_000, hits, connections)]
    command = [sys.executable, "-m", "tests.ratelimit.redis_rush", redis_server.socket, uuid4().hex, *numbers]
    rushes = [subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) for _ in range(processes)]
    assert sum(int(process.communicate(timeout=TIMEOUT)[0]) for process in rushes) == 1_000


def test_a_key_in_redis_is_bounded_and_expires(
    make_limiter: MakeLimiter, redis_server: RedisServer, database_id: str
) -> None:
    make_limiter(1_000, 3600, real=True).count_accepted(1_200)
    name = f"listings:{database_id}:limit:{KEY}"
    with redis_server.client() as client:
        assert client.llen(name) == 1_000
        assert 3_500_000 < int(str(client.pttl(name))) <= 3_601_000
        assert int(str(client.memory_usage(name, samples=0))) < 12 * 1024


def test_peek_creates_no_key(make_limiter: MakeLimiter, redis_server: RedisServer, database_id: str) -> None:
    assert make_limiter(real=True).peek() == RateLimitDecision(accepted=True, remaining=3, reset=0)
    with redis_server.client() as client:
        assert client.exists(f"listings:{database_id}:limit:{KEY}") == 0


def test_expired_requests_are_removed(
    make_limiter: MakeLimiter, clock: Clock, redis_server: RedisServer, database_id: str
) -> None:
    limiter = make_limiter(1_000, 60)
    for _ in range(997):
        limiter.hit()
        clock.now += 0.0625
    clock.now += 20
    counted = sum(number * 0.0625 > 997 * 0.0625 + 20 - 60 for number in range(997))
    assert limiter.hit().remaining == 1_000 - counted - 1
    with redis_server.client() as client:
        assert client.llen(f"listings:{database_id}:limit:{KEY}") == counted + 1


@pytest.mark.decision("G30")
def test_two_databases_on_one_redis_do_not_mix(make_limiter: MakeLimiter) -> None:
    assert make_limiter().count_accepted(5) == 3
    assert make_limiter(name=uuid4().hex).count_accepted(5) == 3


def test_the_probe_uses_a_separate_key(make_limiter: MakeLimiter, redis_server: RedisServer, database_id: str) -> None:
    make_limiter(real=True).hit()
    with redis_server.client() as client:
        names = {key.decode() for key in client.scan_iter(f"listings:{database_id}:*")}
    assert names - {f"listings:{database_id}:limit:probe"} == {f"listings:{database_id}:limit:{KEY}"}


def test_a_flushed_script_is_sent_again(make_limiter: MakeLimiter, redis_server: RedisServer) -> None:
    limiter = make_limiter()
    assert limiter.count_accepted(2) == 2
    with redis_server.client() as client:
        client.script_flush()
    assert limiter.count_accepted(5) == 1


def test_a_clock_stepping_back_grants_nothing(make_limiter: MakeLimiter, clock: Clock) -> None:
    limiter = make_limiter(3, 60)
    for _ in range(3):
        limiter.hit()
        clock.now += 10
    clock.now -= 7200
    rejected = limiter.hit()
    assert (rejected.accepted, rejected.reset) == (False, 40)  # as if no time had passed since the third
    clock.now += 39
    assert not limiter.hit().accepted
    clock.now += 1
    assert limiter.count_accepted(5) == 1


def test_a_temporarily_wrong_clock_locks_nobody_out(make_limiter: MakeLimiter, clock: Clock) -> None:
    limiter = make_limiter(3, 60)
    clock.now += DAY
    assert limiter.count_accepted(5) == 3
    clock.now -= DAY
    assert limiter.count_accepted(5) == 0
    clock.now += 60
    assert limiter.count_accepted(5) == 3


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    limit=st.integers(1, 5),
    steps=st.lists(st.tuples(st.integers(0, 25), st.sampled_from([0, 0, 0, 1, 30, 3600])), min_size=10, max_size=60),
)
def test_clock_steps_never_let_a_window_exceed_the_limit(
    make_limiter: MakeLimiter, clock: Clock, limit: int, steps: list[tuple[int, int]]
) -> None:
    limiter = make_limiter(limit, 60, name=uuid4().hex)
    passed, granted = 0, []
    for seconds, back in steps:
        passed += seconds
        clock.now += seconds - back
        if limiter.hit().accepted:
            granted.append(passed)
    assert all(later - earlier >= 60 for earlier, later in zip(granted, granted[limit:], strict=False))
    clock.now += 60
    assert limiter.hit().accepted


@pytest.mark.parametrize(
    ("before", "after", "granted"), [(5, 2, 0), (5, 5, 0), (5, 8, 3), (5, 3000, 2995), (1500, 2, 0)]
)
def test_a_changed_limit_counts_earlier_requests(
    make_limiter: MakeLimiter, before: int, after: int, granted: int
) -> None:
    assert make_limiter(before).count_accepted(before + 1) == before
    assert make_limiter(after).count_accepted(after + 1) == granted


def test_a_lowered_limit_reports_the_correct_reset(make_limiter: MakeLimiter, clock: Clock) -> None:
    high, low = make_limiter(5, 60), make_limiter(2, 60)
    for _ in range(5):
        high.hit()
        clock.now += 10
    rejected = low.hit()
    assert rejected == RateLimitDecision(accepted=False, remaining=0, reset=40)
    clock.now += 39.999
    assert not low.hit().accepted
    clock.now += 0.001
    assert low.hit().accepted


def test_different_limits_share_one_log(make_limiter: MakeLimiter) -> None:
    small, large = make_limiter(10), make_limiter(5_000)
    assert small.count_accepted(4) == 4
    assert large.count_accepted(3) == 3
    assert small.count_accepted(10) == 3
    assert large.hit().remaining == 5_000 - 11


def test_a_shorter_window_removes_older_requests(make_limiter: MakeLimiter, clock: Clock) -> None:
    long, short = make_limiter(3, 120), make_limiter(3, 60)
    assert long.count_accepted(5) == 3
    clock.now += 61
    assert not long.hit().accepted
    assert short.count_accepted(5) == 3
    assert not long.hit().accepted
