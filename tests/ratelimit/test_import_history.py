"""Requests that one limiter has accepted, taken over by another: none is forgotten, and none counts twice."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from listings.contract.rate_limiter import RateLimitDecision
from listings.domain.errors import Unavailable
from listings.ratelimit.mapped import MappedLimiter, log_files
from listings.ratelimit.redis import RedisLimiter
from tests.harness import unused_port
from tests.ratelimit.conftest import Machine, Run
from tests.redis_server import RedisServer

LIMIT, WINDOW = 5, 60
KEYS = (1, 7, 4095, 4096, 9000)
Other: TypeAlias = "MappedLimiter | RedisLimiter"


@pytest.fixture
def old(tmp_path: Path, machine: Machine, database_id: str) -> MappedLimiter:
    return MappedLimiter(tmp_path / "listings.db", database_id, LIMIT, WINDOW, machine.clock())


Make: TypeAlias = Callable[[], Any]


@pytest.fixture(params=["mapped", "redis"])
def make(
    request: pytest.FixtureRequest, tmp_path: Path, machine: Machine, database_id: str, redis_server: RedisServer
) -> Make:
    """Makes a limiter that knows nothing of what the old one has counted."""

    def mapped() -> MappedLimiter:
        return MappedLimiter(tmp_path / "postgresql", database_id, LIMIT, WINDOW, machine.clock())

    def redis() -> RedisLimiter:
        return RedisLimiter(redis_server.endpoint(), database_id, LIMIT, WINDOW, clock=lambda: machine.wall)

    return mapped if request.param == "mapped" else redis


async def import_history(old: MappedLimiter, new: Other) -> int:
    keys = 0
    for key_id in await old.keys():
        ages = await old.ages(key_id)
        await new.import_history(key_id, ages)
        keys += bool(ages)
    return keys


def hit(run: Run, limiter: Other, machine: Machine, seconds: float, key: int = 1) -> RateLimitDecision:
    """One request, and the seconds until the next."""
    verdict: RateLimitDecision = run(limiter.hit(key))
    machine.pass_time(seconds)
    return verdict


def look(run: Run, limiter: Other, key: int = 1) -> tuple[bool, int, int]:
    """Whether a request would be accepted, how many are left, and the milliseconds until one returns."""
    verdict: RateLimitDecision = run(limiter.peek(key))
    return verdict.accepted, verdict.left, round(verdict.reset * 1000)


def test_what_is_left_and_when_it_returns_is_the_same(
    run: Run, old: MappedLimiter, make: Make, machine: Machine
) -> None:
    new = make()
    for number, key in enumerate(KEYS):
        for _ in range(number + 1):
            hit(run, old, machine, 1.5, key)
    assert run(import_history(old, new)) == len(KEYS)
    for key in (*KEYS, 2):
        assert look(run, old, key) == look(run, new, key)
    machine.pass_time(WINDOW - 8)
    for key in KEYS:
        assert look(run, old, key) == look(run, new, key)
        assert hit(run, old, machine, 0, key).accepted == hit(run, new, machine, 0, key).accepted
        assert look(run, old, key) == look(run, new, key)
    run(old.close())
    run(new.close())


def test_to_take_over_again_counts_nothing_twice(run: Run, old: MappedLimiter, make: Make, machine: Machine) -> None:
    new = make()
    for _ in range(2):
        hit(run, old, machine, 1)
    for left in (3, 2):
        run(import_history(old, new))
        run(import_history(old, new))
        assert look(run, new)[1] == left
        hit(run, old, machine, 1)
    run(old.close())
    run(new.close())


def test_a_limiter_that_counts_more_keeps_its_own(run: Run, old: MappedLimiter, make: Make, machine: Machine) -> None:
    new = make()
    hit(run, old, machine, 1)
    for _ in range(3):
        hit(run, new, machine, 1)
    before = look(run, new)
    run(import_history(old, new))
    assert look(run, new) == before
    run(old.close())
    run(new.close())


def test_what_counts_no_more_is_left_behind(run: Run, old: MappedLimiter, make: Make, machine: Machine) -> None:
    new = make()
    hit(run, old, machine, WINDOW)
    hit(run, old, machine, 1, key=2)
    assert run(import_history(old, new)) == 1
    assert (look(run, new)[1], look(run, new, 2)[1]) == (LIMIT, LIMIT - 1)
    run(old.close())
    run(new.close())


def test_a_request_as_old_as_the_window_is_none_that_its_own_make_room_for(
    run: Run, make: Make, machine: Machine
) -> None:
    new = make()
    hit(run, new, machine, 0)
    run(new.import_history(1, [float(WINDOW), 50.0]))
    assert look(run, new) == (True, LIMIT - 1, WINDOW * 1000)
    run(new.close())


def test_a_request_ages_while_the_machine_is_down(run: Run, old: MappedLimiter, make: Make, machine: Machine) -> None:
    hit(run, old, machine, 10)
    run(old.close())
    machine.reboot(20)
    new = make()
    run(import_history(old, new))
    assert run(new.peek(1)).reset == pytest.approx(WINDOW - 30, abs=1e-4)
    run(old.close())
    run(new.close())


def test_where_nothing_was_counted_no_file_is_made(run: Run, old: MappedLimiter, tmp_path: Path) -> None:
    assert run(old.keys()) == []
    assert list(tmp_path.iterdir()) == []
    run(old.close())


def test_the_log_of_another_database_is_not_read(run: Run, old: MappedLimiter, tmp_path: Path) -> None:
    run(MappedLimiter(tmp_path / "listings.db", "f" * 32, LIMIT, WINDOW).hit(1))
    assert run(old.keys()) == []
    assert [log.database_id for log in log_files(tmp_path / "listings.db")] == ["f" * 32]


def test_a_file_that_was_replaced_meanwhile_is_not_written_to(
    run: Run, tmp_path: Path, machine: Machine, database_id: str
) -> None:
    place = tmp_path / "postgresql"
    small = MappedLimiter(place, database_id, LIMIT, WINDOW, machine.clock())
    run(small.hit(2))
    large = MappedLimiter(place, database_id, 2000, WINDOW, machine.clock())
    run(large.hit(2))
    run(small.import_history(1, [3.0, 2.0]))
    assert run(large.peek(1)).left == 2000 - 2
    run(small.close())
    run(large.close())


def test_a_redis_that_is_away_is_told(run: Run, redis_server: RedisServer, database_id: str) -> None:
    with unused_port() as port:
        limiter = RedisLimiter(redis_server.endpoint(port=port), database_id, LIMIT, WINDOW)
        with pytest.raises(Unavailable):
            run(limiter.import_history(1, [1.0]))
    run(limiter.close())
