"""Import of one limiter's log into another: no request is lost or counted twice."""

from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from listings.domain.errors import Unavailable
from listings.domain.rate_limiter import RateLimitDecision
from listings.ratelimit.mapped import MappedLimiter
from listings.ratelimit.mapped_file import list_log_files
from listings.ratelimit.redis import RedisLimiter
from tests.harness import unused_port
from tests.ratelimit.conftest import Machine, Run
from tests.redis_server import RedisServer

LIMIT, WINDOW = 5, 60
KEYS = (1, 7, 4095, 4096, 9000)
AnyLimiter: TypeAlias = "MappedLimiter | RedisLimiter"


@pytest.fixture
def old(tmp_path: Path, machine: Machine, database_id: str, run: Run) -> Iterator[MappedLimiter]:
    limiter = MappedLimiter(tmp_path / "listings.db", database_id, LIMIT, WINDOW, machine.clock())
    yield limiter
    run(limiter.close())


@pytest.fixture(params=["mapped", "redis"])
def new(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    machine: Machine,
    database_id: str,
    redis_server: RedisServer,
    run: Run,
) -> Iterator[AnyLimiter]:
    limiter: AnyLimiter
    if request.param == "mapped":
        limiter = MappedLimiter(tmp_path / "postgresql", database_id, LIMIT, WINDOW, machine.clock())
    else:
        limiter = RedisLimiter(redis_server.endpoint(), database_id, LIMIT, WINDOW, clock=lambda: machine.wall)
    yield limiter
    run(limiter.close())


async def import_history(old: MappedLimiter, new: AnyLimiter) -> int:
    keys = 0
    for key_id in await old.list_keys():
        ages = await old.list_ages(key_id)
        await new.import_history(key_id, ages)
        keys += bool(ages)
    return keys


def hit(run: Run, limiter: AnyLimiter, machine: Machine, seconds: float, key: int = 1) -> RateLimitDecision:
    """Count one request, then let time pass."""
    decision: RateLimitDecision = run(limiter.hit(key))
    machine.pass_time(seconds)
    return decision


def peek(run: Run, limiter: AnyLimiter, key: int = 1) -> tuple[bool, int, int]:
    """Return whether a request would be accepted, the remaining requests, and the reset in milliseconds."""
    decision: RateLimitDecision = run(limiter.peek(key))
    return decision.accepted, decision.remaining, round(decision.reset * 1000)


def test_remaining_requests_and_reset_are_imported(
    run: Run, old: MappedLimiter, new: AnyLimiter, machine: Machine
) -> None:
    for number, key in enumerate(KEYS):
        for _ in range(number + 1):
            hit(run, old, machine, 1.5, key)
    assert run(import_history(old, new)) == len(KEYS)
    for key in (*KEYS, 2):
        assert peek(run, old, key) == peek(run, new, key)
    machine.pass_time(WINDOW - 8)
    for key in KEYS:
        assert peek(run, old, key) == peek(run, new, key)
        assert hit(run, old, machine, 0, key).accepted == hit(run, new, machine, 0, key).accepted
        assert peek(run, old, key) == peek(run, new, key)


def test_importing_again_counts_nothing_twice(run: Run, old: MappedLimiter, new: AnyLimiter, machine: Machine) -> None:
    for _ in range(2):
        hit(run, old, machine, 1)
    for left in (3, 2):
        run(import_history(old, new))
        run(import_history(old, new))
        assert peek(run, new)[1] == left
        hit(run, old, machine, 1)


def test_a_longer_log_is_not_replaced(run: Run, old: MappedLimiter, new: AnyLimiter, machine: Machine) -> None:
    hit(run, old, machine, 1)
    for _ in range(3):
        hit(run, new, machine, 1)
    before = peek(run, new)
    run(import_history(old, new))
    assert peek(run, new) == before


def test_expired_requests_are_not_imported(run: Run, old: MappedLimiter, new: AnyLimiter, machine: Machine) -> None:
    hit(run, old, machine, WINDOW)
    hit(run, old, machine, 1, key=2)
    assert run(import_history(old, new)) == 1
    assert (peek(run, new)[1], peek(run, new, 2)[1]) == (LIMIT, LIMIT - 1)


def test_a_request_as_old_as_the_window_replaces_nothing(run: Run, new: AnyLimiter, machine: Machine) -> None:
    hit(run, new, machine, 0)
    run(new.import_history(1, [float(WINDOW), 50.0]))
    assert peek(run, new) == (True, LIMIT - 1, WINDOW * 1000)


def test_requests_age_while_the_machine_is_down(
    run: Run, old: MappedLimiter, new: AnyLimiter, machine: Machine
) -> None:
    hit(run, old, machine, 10)
    run(old.close())
    machine.reboot(20)
    run(import_history(old, new))
    assert run(new.peek(1)).reset == pytest.approx(WINDOW - 30, abs=1e-4)


def test_listing_keys_creates_no_file(run: Run, old: MappedLimiter, tmp_path: Path) -> None:
    assert run(old.list_keys()) == []
    assert list(tmp_path.iterdir()) == []
    run(old.close())


def test_the_log_of_another_database_is_ignored(run: Run, old: MappedLimiter, tmp_path: Path) -> None:
    run(MappedLimiter(tmp_path / "listings.db", "f" * 32, LIMIT, WINDOW).hit(1))
    assert run(old.list_keys()) == []
    assert [log.database_id for log in list_log_files(tmp_path / "listings.db")] == ["f" * 32]


def test_a_replaced_file_is_not_written_to(run: Run, tmp_path: Path, machine: Machine, database_id: str) -> None:
    path = tmp_path / "postgresql"
    small = MappedLimiter(path, database_id, LIMIT, WINDOW, machine.clock())
    run(small.hit(2))
    large = MappedLimiter(path, database_id, 2000, WINDOW, machine.clock())
    run(large.hit(2))
    run(small.import_history(1, [3.0, 2.0]))
    assert run(large.peek(1)).remaining == 2000 - 2
    run(small.close())
    run(large.close())


def test_importing_into_an_unreachable_redis_fails(run: Run, redis_server: RedisServer, database_id: str) -> None:
    with unused_port() as port:
        limiter = RedisLimiter(redis_server.endpoint(port=port), database_id, LIMIT, WINDOW)
        with pytest.raises(Unavailable):
            run(limiter.import_history(1, [1.0]))
    run(limiter.close())
