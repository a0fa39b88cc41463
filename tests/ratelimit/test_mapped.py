"""The mapped limiter: exact over threads and processes, and what it remembers through kills, clocks and full disks."""

import asyncio
import os
import random
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from listings.contract.rate_limiter import RateLimitDecision
from listings.domain.errors import Unavailable
from listings.ratelimit.mapped import MappedLimiter, log_files
from tests.harness import TIMEOUT
from tests.ratelimit import rush
from tests.ratelimit.conftest import Machine
from tests.ratelimit.locks import Lock, file_of, held

KEY = 5
ROOT = Path(__file__).parents[2]


class Limiter:
    """A process's view of the log."""

    def __init__(self, database: Path, machine: Machine, limit: int = 3, window: int = 60, of: str = "a" * 32) -> None:
        self._limiter = MappedLimiter(database, of, limit, window, machine.clock())

    def hit(self, key: int = KEY) -> RateLimitDecision:
        return asyncio.run(self._limiter.hit(key))

    def close(self) -> None:
        asyncio.run(self._limiter.close())


def accepted(limiter: Limiter, hits: int, key: int = KEY) -> int:
    return sum(limiter.hit(key).accepted for _ in range(hits))


def start_rush(database: Path, limit: int, hits: int, threads: int = 1) -> "subprocess.Popen[bytes]":
    command = [
        sys.executable,
        "-m",
        "tests.ratelimit.rush",
        str(database),
        str(KEY),
        str(limit),
        str(hits),
        str(threads),
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)


def remembered(database: Path, limit: int) -> int:
    """How many accepted requests of the key the file knows."""
    limiter = MappedLimiter(database, rush.DATABASE_ID, limit, 3600)
    verdict = asyncio.run(limiter.hit(KEY))
    asyncio.run(limiter.close())
    return limit - verdict.left - verdict.accepted


# Exactness


@pytest.mark.parametrize(("processes", "threads"), [(1, 1), (1, 4), (4, 1), (4, 4), (8, 1), (8, 4)])
def test_processes_and_threads_together_are_granted_exactly_the_limit(
    database: Path, processes: int, threads: int
) -> None:
    hits = 1_600 // (processes * threads)
    rushes = [start_rush(database, 1_000, hits, threads) for _ in range(processes)]
    granted = [process.communicate(timeout=TIMEOUT)[0] for process in rushes]
    assert sum(map(len, granted)) == 1_000


@pytest.mark.decision("G30")
@pytest.mark.slow
def test_sixty_kills_forget_nothing_that_was_acknowledged(database: Path) -> None:
    choice = random.Random(60)
    acknowledged, kills, limit = 0, 60, 100_000
    for _ in range(kills):
        process = start_rush(database, limit, limit // kills)
        assert process.stdout is not None
        wanted = choice.randrange(1, 800)
        while wanted > 0:
            got = len(os.read(process.stdout.fileno(), 4096))
            assert got
            wanted, acknowledged = wanted - got, acknowledged + got
        process.kill()
        acknowledged += len(process.communicate(timeout=TIMEOUT)[0])
    assert acknowledged <= remembered(database, limit) <= acknowledged + kills


# What is remembered


@pytest.mark.decision("G30")
def test_a_new_process_goes_on_where_the_last_one_ended(database: Path, machine: Machine) -> None:
    first = Limiter(database, machine)
    assert accepted(first, 2) == 2
    first.close()
    assert accepted(Limiter(database, machine), 5) == 1


def test_who_reaches_the_database_by_a_link_is_counted_with_the_others(database: Path, machine: Machine) -> None:
    link = database.parent / "elsewhere" / "other.db"
    link.parent.mkdir(parents=True)
    database.touch()
    link.symlink_to(database)
    assert accepted(Limiter(database, machine), 2) == 2
    assert accepted(Limiter(link, machine), 5) == 1


def test_a_step_of_the_wall_clock_changes_nothing(database: Path, machine: Machine) -> None:
    for step in (3600.0, -3600.0):
        limiter = Limiter(database, machine)
        accepted(limiter, 5)
        machine.wall += step
        assert not limiter.hit().accepted
        assert not Limiter(database, machine).hit().accepted
        machine.pass_time(59.9)
        assert not limiter.hit().accepted
        machine.pass_time(0.2)
        assert accepted(limiter, 5) == 3


@pytest.mark.parametrize(("away", "granted"), [(10.0, 0), (59.0, 0), (61.0, 3), (-7200.0, 0)])
def test_after_a_reboot_the_wall_clock_tells_how_long_it_was_away(
    database: Path, machine: Machine, away: float, granted: int
) -> None:
    limiter = Limiter(database, machine)
    accepted(limiter, 3)
    limiter.close()
    machine.reboot(away)
    assert accepted(Limiter(database, machine), 5) == granted


def test_a_log_that_was_taken_into_use_after_a_reboot_is_there_for_the_next_process(
    database: Path, machine: Machine
) -> None:
    accepted(Limiter(database, machine), 2)
    machine.reboot(10.0)
    assert accepted(Limiter(database, machine), 5) == 1
    assert accepted(Limiter(database, machine), 5) == 0


@pytest.mark.decision("G30")
def test_beside_another_database_the_log_starts_empty(database: Path, machine: Machine) -> None:
    accepted(Limiter(database, machine), 3)
    theirs = Limiter(database, machine, of="b" * 32)
    assert accepted(theirs, 5) == 3


def test_a_damaged_file_is_replaced_by_an_empty_one(database: Path, machine: Machine) -> None:
    Path(f"{database}.limits-0000").write_bytes(b"no log at all" * 1000)
    assert accepted(Limiter(database, machine), 5) == 3


def test_a_file_that_was_cut_short_is_replaced_by_an_empty_one(database: Path, machine: Machine) -> None:
    limiter = Limiter(database, machine)
    accepted(limiter, 3)
    limiter.close()
    os.truncate(f"{database}.limits-0000", 8192)
    assert accepted(Limiter(database, machine), 5) == 3


def test_the_files_belong_to_their_owner_alone(database: Path, machine: Machine) -> None:
    Limiter(database, machine).hit()
    assert Path(f"{database}.limits-0000").stat().st_mode & 0o777 == 0o600


def test_keys_beyond_4096_have_files_of_their_own(database: Path, machine: Machine) -> None:
    limiter = Limiter(database, machine)
    for key in (1, 4095, 4096, 4097, 2**22):
        assert accepted(limiter, 5, key) == 3
    names = sorted(path.name for path in database.parent.iterdir())
    assert names == [f"listings.db.limits-{number}" for number in ("0000", "0001", "1024")]


def test_a_sparse_file_takes_little_of_the_disk(database: Path, machine: Machine) -> None:
    limiter = Limiter(database, machine, limit=1000)
    limiter.hit(1)
    limiter.hit(4000)
    assert Path(f"{database}.limits-0000").stat().st_blocks * 512 < 100_000


# A changed limit or window


@pytest.mark.parametrize(
    ("before", "after", "granted"), [(5, 2, 0), (5, 5, 0), (5, 8, 3), (5, 3000, 2995), (1500, 2, 0)]
)
def test_a_changed_limit_counts_what_was_accepted_before(
    database: Path, machine: Machine, before: int, after: int, granted: int
) -> None:
    limiter = Limiter(database, machine, limit=before)
    assert accepted(limiter, before + 1) == before
    limiter.close()
    assert accepted(Limiter(database, machine, limit=after), after + 1) == granted


def test_a_larger_limit_moves_the_log_and_processes_that_run_follow(database: Path, machine: Machine) -> None:
    small = Limiter(database, machine, limit=10)
    assert accepted(small, 4) == 4
    large = Limiter(database, machine, limit=5_000)
    assert accepted(large, 3) == 3
    assert accepted(small, 10) == 3
    assert large.hit().left == 5_000 - 11


def test_a_ring_that_went_round_keeps_its_order_when_it_moves(database: Path, machine: Machine) -> None:
    small = Limiter(database, machine, limit=1_000)
    for _ in range(2_300):
        small.hit()
        machine.pass_time(0.061)
    large = Limiter(database, machine, limit=2_000)
    before = small.hit()
    after = large.hit()
    assert after.accepted
    assert (2_000 - after.left) - (1_000 - before.left) == 1
    assert after.reset == pytest.approx(before.reset, abs=0.07)


def test_a_changed_window_judges_the_same_log(database: Path, machine: Machine) -> None:
    limiter = Limiter(database, machine, window=60)
    accepted(limiter, 3)
    limiter.close()
    machine.pass_time(61)
    assert Limiter(database, machine, window=120).hit().accepted is False
    assert Limiter(database, machine, window=60).hit().accepted is True


# The disk


def test_without_a_place_for_the_file_it_is_unavailable(tmp_path: Path, machine: Machine) -> None:
    limiter = Limiter(tmp_path / "nowhere" / "listings.db", machine)
    with pytest.raises(Unavailable, match="can't be counted"):
        limiter.hit()


ON_A_SMALL_DISK = 'mount -t tmpfs -o size=256k none "$1" && shift && exec "$@"'


def test_on_a_full_disk_it_is_unavailable_and_the_process_lives(tmp_path: Path) -> None:
    namespace = ["unshare", "-m" if os.geteuid() == 0 else "-Urm"]
    if subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine lets nobody mount a small disk")
    trial = [sys.executable, "-m", "tests.ratelimit.full_disk", str(tmp_path)]
    command = [*namespace, "sh", "-c", ON_A_SMALL_DISK, "sh", str(tmp_path), *trial]
    outcome = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert outcome.stdout.split() == ["granted", "refused", "granted"], outcome.stderr


# The file, which processes of several releases may share for a while


def test_a_file_has_a_header_and_for_each_key_a_count_and_a_ring_of_one_more_than_the_limit(
    database: Path, machine: Machine
) -> None:
    limiter = Limiter(database, machine, limit=1_500)
    limiter.hit()
    machine.pass_time(2.5)
    limiter.hit()
    content = file_of(database).read_bytes()
    assert len(content) == 4096 + 4096 * 8 * (1 + 1_501)
    assert struct.unpack_from("8sQQ", content) == (b"LSTLIM01", 1_501, 0)
    first, second = machine.wall - 2.5, machine.wall
    assert struct.unpack_from("Qddd", content, 4096 + KEY * 8 * (1 + 1_501)) == (2, first, second, 0.0)


def test_a_file_has_room_for_a_limit_of_a_thousand_whatever_the_limit_is(database: Path, machine: Machine) -> None:
    Limiter(database, machine, limit=3).hit()
    assert file_of(database).stat().st_size == 4096 + 4096 * 8 * (1 + 1_001)


def test_the_last_key_of_a_file_has_its_room_within_it(database: Path, machine: Machine) -> None:
    limiter = Limiter(database, machine)
    limiter.hit(0)
    size = file_of(database).stat().st_size
    limiter.hit(4095)
    assert file_of(database).stat().st_size == size
    assert [log.is_sound for log in log_files(database)] == [True]


def test_a_file_that_took_the_place_of_another_belongs_to_its_owner_alone_too(database: Path, machine: Machine) -> None:
    Limiter(database, machine).hit()
    Limiter(database, machine, limit=5_000).hit()
    assert file_of(database).stat().st_mode & 0o777 == 0o600


def test_a_keys_own_byte_is_held_while_it_is_counted_and_nothing_behind(database: Path, machine: Machine) -> None:
    Limiter(database, machine).hit()
    seen: list[Lock | None] = []

    def since_boot() -> float:
        seen.append(held(file_of(database)))
        return machine.uptime

    clock = machine.clock()._replace(since_boot=since_boot)
    limiter = MappedLimiter(database, "a" * 32, 3, 60, clock)
    asyncio.run(limiter.hit(KEY))
    asyncio.run(limiter.import_history(KEY, []))
    assert seen[1:] == [Lock(1 + KEY, 1, is_exclusive=True)] * 2
    assert held(file_of(database)) is None


def test_the_header_and_every_key_are_held_while_it_is_taken_into_use_after_a_reboot(
    database: Path, machine: Machine
) -> None:
    Limiter(database, machine).hit()
    machine.reboot(1.0)
    seen: list[Lock | None] = []

    def wall() -> float:
        seen.append(held(file_of(database)))
        return machine.wall

    asyncio.run(MappedLimiter(database, "a" * 32, 3, 60, machine.clock()._replace(wall=wall)).hit(KEY))
    assert seen == [None, Lock(0, 4097, is_exclusive=True)]


def test_a_file_that_is_cut_short_or_of_another_kind_is_not_sound(database: Path, machine: Machine) -> None:
    Limiter(database, machine).hit()
    content = file_of(database).read_bytes()
    for damaged in (content[:-8], b"OTHER" + content[5:]):
        file_of(database).write_bytes(damaged)
        assert [log.is_sound for log in log_files(database)] == [False]


def test_a_new_file_is_nothing_to_warn_of(database: Path, machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    Limiter(database, machine).hit()
    assert caplog.messages == []


def test_a_limiter_is_checked_by_its_first_file(database: Path, machine: Machine) -> None:
    limiter = MappedLimiter(database, "a" * 32, 3, 60, machine.clock())
    asyncio.run(limiter.check())
    assert [path.name for path in database.parent.iterdir()] == ["listings.db.limits-0000"]
    other = database.with_name("other.db")
    file_of(other).mkdir()
    with pytest.raises(Unavailable, match="can't be counted"):
        asyncio.run(MappedLimiter(other, "a" * 32, 3, 60, machine.clock()).check())


# What a limiter that takes over is told, and what it does with that


def ages_of(limiter: MappedLimiter) -> dict[int, list[float]]:
    async def fetch() -> dict[int, list[float]]:
        return {key: await limiter.ages(key) for key in await limiter.keys()}

    return asyncio.run(fetch())


def test_keys_of_every_file_are_told_with_the_ages_of_what_counts(database: Path, machine: Machine) -> None:
    limiter = MappedLimiter(database, "a" * 32, 3, 60, machine.clock())
    for key, moments in ((KEY, 2), (4096 + KEY, 1)):
        for _ in range(moments):
            asyncio.run(limiter.hit(key))
            machine.pass_time(10.0)
    assert ages_of(limiter) == {KEY: [30.0, 20.0], 4096 + KEY: [10.0]}
    machine.pass_time(30.0)
    assert ages_of(limiter) == {KEY: [50.0], 4096 + KEY: [40.0]}


def test_a_log_that_can_not_be_read_is_unavailable(database: Path, machine: Machine) -> None:
    file_of(database).mkdir()
    limiter = MappedLimiter(database, "a" * 32, 3, 60, machine.clock())
    with pytest.raises(Unavailable, match="can't be read"):
        ages_of(limiter)
    with pytest.raises(Unavailable, match="can't be counted"):
        asyncio.run(limiter.import_history(KEY, [1.0]))


def test_where_as_many_count_already_nothing_is_taken_over(database: Path, machine: Machine) -> None:
    limiter = MappedLimiter(database, "a" * 32, 3, 60, machine.clock())
    asyncio.run(limiter.hit(KEY))
    asyncio.run(limiter.import_history(KEY, [50.0]))
    assert ages_of(limiter) == {KEY: [0.0]}
    asyncio.run(limiter.import_history(KEY, [50.0, 40.0]))
    assert ages_of(limiter) == {KEY: [50.0, 40.0]}


def test_a_limiter_whose_log_was_taken_over_meanwhile_counts_on_from_that(database: Path, machine: Machine) -> None:
    limiter = Limiter(database, machine)
    for _ in range(4):
        accepted(limiter, 3)
        machine.pass_time(61.0)
    limiter.hit()
    machine.pass_time(61.0)
    other = MappedLimiter(database, "a" * 32, 3, 60, machine.clock())
    asyncio.run(other.import_history(KEY, [20.0]))
    assert limiter.hit() == RateLimitDecision(accepted=True, left=1, reset=40.0)


def test_what_was_taken_over_meanwhile_counts_from_its_first_request_on(database: Path, machine: Machine) -> None:
    limiter = Limiter(database, machine)
    for _ in range(2):
        limiter.hit()
        machine.pass_time(61.0)
    other = MappedLimiter(database, "a" * 32, 3, 60, machine.clock())
    asyncio.run(other.import_history(KEY, [20.0, 10.0]))
    assert limiter.hit() == RateLimitDecision(accepted=True, left=0, reset=40.0)


def test_a_log_goes_on_from_its_newest_time_when_the_wall_clock_was_set_back(database: Path, machine: Machine) -> None:
    limiter = Limiter(database, machine)
    for _ in range(3):
        limiter.hit()
        machine.pass_time(10.0)
    limiter.close()
    machine.reboot(-7200.0)
    assert Limiter(database, machine).hit() == RateLimitDecision(accepted=False, left=0, reset=40.0)


def test_a_full_log_moves_whole(database: Path, machine: Machine) -> None:
    assert accepted(Limiter(database, machine, limit=1_000), 1_000) == 1_000
    assert Limiter(database, machine, limit=1_500).hit().left == 499
