"""The mapped limiter: exactness across processes, persistence, clocks, full disks and the file format."""

import asyncio
import errno
import mmap
import os
import random
import resource
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from listings.domain.errors import Unavailable
from listings.domain.rate_limiter import RateLimitDecision
from listings.ratelimit.mapped import MappedLimiter
from listings.ratelimit.mapped_file import MappedFile, list_log_files
from tests.harness import TIMEOUT
from tests.processes import run_program
from tests.ratelimit import rush
from tests.ratelimit.conftest import Machine
from tests.ratelimit.locks import Lock, find_lock, first_log_file

pytestmark = pytest.mark.covers_programs

KEY = 5
ROOT = Path(__file__).parents[2]


class Limiter:
    def __init__(
        self, database: Path, machine: Machine, limit: int = 3, window: int = 60, database_id: str = "a" * 32
    ) -> None:
        self._limiter = MappedLimiter(database, database_id, limit, window, machine.clock())

    def hit(self, key: int = KEY) -> RateLimitDecision:
        return asyncio.run(self._limiter.hit(key))

    def close(self) -> None:
        asyncio.run(self._limiter.close())

    def poll(self) -> None:
        poll(self._limiter)


def poll(limiter: MappedLimiter) -> None:
    limiter._for_each_file(MappedFile.update_mode)  # noqa: SLF001 - it runs every 50 ms


def count_accepted(limiter: Limiter, hits: int, key: int = KEY) -> int:
    return sum(limiter.hit(key).accepted for _ in range(hits))


def start_rush(database: Path, limit: int, hits: int) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "tests.ratelimit.rush", str(database), str(KEY), str(limit), str(hits)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)


def count_logged(database: Path, limit: int) -> int:
    limiter = MappedLimiter(database, rush.DATABASE_ID, limit, 3600)
    decision = asyncio.run(limiter.hit(KEY))
    asyncio.run(limiter.close())
    return limit - decision.remaining - decision.accepted


@pytest.mark.uncovered
@pytest.mark.parametrize("processes", [1, 4, 8])
def test_processes_are_granted_exactly_the_limit(database: Path, processes: int) -> None:
    rushes = [start_rush(database, 1_000, 1_600 // processes) for _ in range(processes)]
    granted = [process.communicate(timeout=TIMEOUT)[0] for process in rushes]
    assert sum(map(len, granted)) == 1_000


@pytest.mark.decision("G30")
@pytest.mark.slow
@pytest.mark.uncovered
def test_twenty_kills_lose_no_acknowledged_request(database: Path) -> None:
    choice = random.Random(60)
    acknowledged, kills, limit = 0, 20, 100_000
    for _ in range(kills):
        process = start_rush(database, limit, limit // kills)
        assert process.stdout is not None
        missing = choice.randrange(1, 800)
        while missing > 0:
            received = len(os.read(process.stdout.fileno(), 4096))
            assert received
            missing, acknowledged = missing - received, acknowledged + received
        process.kill()
        acknowledged += len(process.communicate(timeout=TIMEOUT)[0])
    assert acknowledged <= count_logged(database, limit) <= acknowledged + kills


@pytest.mark.decision("G30")
def test_a_new_process_continues_the_log(database: Path, machine: Machine) -> None:
    first = Limiter(database, machine)
    assert count_accepted(first, 2) == 2
    first.close()
    assert count_accepted(Limiter(database, machine), 5) == 1


def test_a_link_to_the_database_shares_its_log(database: Path, machine: Machine) -> None:
    link = database.parent / "elsewhere" / "other.db"
    link.parent.mkdir(parents=True)
    database.touch()
    link.symlink_to(database)
    assert count_accepted(Limiter(database, machine), 2) == 2
    assert count_accepted(Limiter(link, machine), 5) == 1


def test_a_step_of_the_wall_clock_changes_nothing(database: Path, machine: Machine) -> None:
    for step in (3600.0, -3600.0):
        limiter = Limiter(database, machine)
        count_accepted(limiter, 5)
        machine.wall += step
        assert not limiter.hit().accepted
        assert not Limiter(database, machine).hit().accepted
        machine.pass_time(59.9)
        assert not limiter.hit().accepted
        machine.pass_time(0.2)
        assert count_accepted(limiter, 5) == 3


@pytest.mark.parametrize(("downtime", "granted"), [(10.0, 0), (59.0, 0), (61.0, 3), (-7200.0, 0)])
def test_after_a_reboot_the_wall_clock_counts_the_downtime(
    database: Path, machine: Machine, downtime: float, granted: int
) -> None:
    limiter = Limiter(database, machine)
    count_accepted(limiter, 3)
    limiter.close()
    machine.reboot(downtime)
    assert count_accepted(Limiter(database, machine), 5) == granted


def test_a_log_reopened_after_a_reboot_is_shared(database: Path, machine: Machine) -> None:
    count_accepted(Limiter(database, machine), 2)
    machine.reboot(10.0)
    assert count_accepted(Limiter(database, machine), 5) == 1
    assert count_accepted(Limiter(database, machine), 5) == 0


@pytest.mark.decision("G30")
def test_the_log_of_another_database_is_discarded(database: Path, machine: Machine) -> None:
    count_accepted(Limiter(database, machine), 3)
    other = Limiter(database, machine, database_id="b" * 32)
    assert count_accepted(other, 5) == 3


def test_a_damaged_file_is_replaced_by_an_empty_one(database: Path, machine: Machine) -> None:
    Path(f"{database}.limits-0000").write_bytes(b"not a log file" * 1000)
    assert count_accepted(Limiter(database, machine), 5) == 3


def test_a_truncated_file_is_replaced_by_an_empty_one(database: Path, machine: Machine) -> None:
    limiter = Limiter(database, machine)
    count_accepted(limiter, 3)
    limiter.close()
    os.truncate(f"{database}.limits-0000", 8192)
    assert count_accepted(Limiter(database, machine), 5) == 3


def test_only_the_owner_can_access_the_files(database: Path, machine: Machine) -> None:
    for limit in (3, 5_000):  # the second one replaces the file
        Limiter(database, machine, limit=limit).hit()
        assert first_log_file(database).stat().st_mode & 0o777 == 0o600


def test_keys_beyond_4096_have_files_of_their_own(database: Path, machine: Machine) -> None:
    limiter = Limiter(database, machine)
    for key in (1, 4095, 4096, 4097, 2**22):
        assert count_accepted(limiter, 5, key) == 3
    names = sorted(path.name for path in database.parent.iterdir())
    assert names == [f"listings.db.limits-{number}" for number in ("0000", "0001", "1024")]


def test_a_sparse_file_uses_little_disk_space(database: Path, machine: Machine) -> None:
    limiter = Limiter(database, machine, limit=1000)
    limiter.hit(1)
    limiter.hit(4000)
    assert Path(f"{database}.limits-0000").stat().st_blocks * 512 < 100_000


@pytest.mark.parametrize(
    ("before", "after", "granted"), [(5, 2, 0), (5, 5, 0), (5, 8, 3), (5, 3000, 2995), (1500, 2, 0)]
)
def test_a_changed_limit_counts_earlier_requests(
    database: Path, machine: Machine, before: int, after: int, granted: int
) -> None:
    limiter = Limiter(database, machine, limit=before)
    assert count_accepted(limiter, before + 1) == before
    limiter.close()
    assert count_accepted(Limiter(database, machine, limit=after), after + 1) == granted


def test_running_processes_follow_a_log_moved_by_a_larger_limit(database: Path, machine: Machine) -> None:
    small = Limiter(database, machine, limit=10)
    assert count_accepted(small, 4) == 4
    large = Limiter(database, machine, limit=5_000)
    assert count_accepted(large, 3) == 3
    assert count_accepted(small, 10) == 3
    assert large.hit().remaining == 5_000 - 11


def test_a_wrapped_ring_keeps_its_order_when_moved(database: Path, machine: Machine) -> None:
    small = Limiter(database, machine, limit=1_000)
    for _ in range(2_300):
        small.hit()
        machine.pass_time(0.061)
    large = Limiter(database, machine, limit=2_000)
    before = small.hit()
    after = large.hit()
    assert after.accepted
    assert (2_000 - after.remaining) - (1_000 - before.remaining) == 1
    assert after.reset == pytest.approx(before.reset, abs=0.07)


def test_a_changed_window_uses_the_same_log(database: Path, machine: Machine) -> None:
    limiter = Limiter(database, machine, window=60)
    count_accepted(limiter, 3)
    limiter.close()
    machine.pass_time(61)
    assert Limiter(database, machine, window=120).hit().accepted is False
    assert Limiter(database, machine, window=60).hit().accepted is True


def test_a_missing_folder_makes_it_unavailable(tmp_path: Path, machine: Machine) -> None:
    limiter = Limiter(tmp_path / "nowhere" / "listings.db", machine)
    with pytest.raises(Unavailable, match="can't be counted"):
        limiter.hit()


ON_A_SMALL_DISK = 'mount -t tmpfs -o size=256k none "$1" && shift && exec "$@"'


def test_on_a_full_disk_new_keys_are_counted_in_memory_until_there_is_room(tmp_path: Path) -> None:
    namespace = ["unshare", "-m" if os.geteuid() == 0 else "-Urm"]
    if subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small disk needs user namespaces")
    program = [sys.executable, "-m", "tests.ratelimit.full_disk", str(tmp_path)]
    command = [*namespace, "sh", "-c", ON_A_SMALL_DISK, "sh", str(tmp_path), *program]
    outcome = run_program(command, cwd=ROOT)
    assert outcome.stdout.split() == ["50", "50", "49", "False", *["False"] * 6], outcome.stderr
    assert "counted in memory: No space left" in outcome.stderr
    for message in ("counted in memory", "counted in files again"):
        assert outcome.stderr.count(message) == 1


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let this process write no file beyond this size."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def count_descriptors(database: Path) -> int:
    """Return how many descriptors of files in the folder of the database this process has, even of deleted ones."""
    paths = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # of the listing itself
            paths.append(str(link.readlink()))
    return sum(path.startswith(f"{database.parent}/") for path in paths)


@pytest.mark.parametrize("is_damaged", [True, False])
def test_a_failed_replacement_leaves_no_descriptor_and_no_lock(
    database: Path, machine: Machine, *, is_damaged: bool
) -> None:
    small, large = Limiter(database, machine), Limiter(database, machine, limit=5_000)
    assert count_accepted(small, 3) == 3
    small.close()
    content = first_log_file(database).read_bytes()
    if is_damaged:
        first_log_file(database).write_bytes(b"damaged")
    with pytest.raises(Unavailable, match="File too large") as failure, largest_file(4096):
        large.hit()
    assert failure.tb is not None  # its frames still refer to the files
    assert count_descriptors(database) == 0
    assert find_lock(first_log_file(database)) is None
    assert [path.name for path in database.parent.iterdir()] == ["listings.db.limits-0000"]
    first_log_file(database).write_bytes(content)
    assert count_accepted(large, 5_000) == 5_000 - 3


# Truncation in place would kill the process at the next access.
@pytest.mark.parametrize("left", [0, 100, 4096, 4096 + 4096 * 8 * (1 + 1_001) - 1])
@pytest.mark.parametrize("is_exclusive", [True, False])
def test_a_log_truncated_in_use_starts_empty(
    database: Path, machine: Machine, caplog: pytest.LogCaptureFixture, left: int, *, is_exclusive: bool
) -> None:
    limiters = [Limiter(database, machine) for _ in range(1 if is_exclusive else 2)]
    for limiter in limiters:
        limiter.hit()
    for limiter in limiters:
        limiter.poll()
    os.truncate(first_log_file(database), left)
    assert sum(count_accepted(limiter, 4) for limiter in limiters) == 3
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "was truncated while in use" in caplog.text


def test_a_log_that_became_longer_is_replaced_for_all(database: Path, machine: Machine) -> None:
    limiter = Limiter(database, machine)
    limiter.hit()
    with first_log_file(database).open("ab") as file:
        file.write(b"x")
    other = Limiter(database, machine)
    assert count_accepted(other, 4) + count_accepted(limiter, 4) == 3


def test_a_log_removed_in_use_starts_empty(database: Path, machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    limiter = Limiter(database, machine)
    limiter.hit()
    first_log_file(database).unlink()
    limiter.poll()
    other = Limiter(database, machine)
    assert count_accepted(other, 4) + count_accepted(limiter, 4) == 3
    assert "was removed while in use" in caplog.text


def test_the_log_of_an_idle_limiter_may_be_truncated(database: Path, machine: Machine) -> None:
    limiter = Limiter(database, machine)
    limiter.hit()
    limiter.poll()
    os.truncate(first_log_file(database), 0)
    limiter.poll()
    assert not first_log_file(database).exists()
    assert count_accepted(limiter, 4) == 3


def test_a_log_truncated_in_use_is_listed_as_empty(database: Path, machine: Machine) -> None:
    limiter = MappedLimiter(database, "a" * 32, 3, 60, machine.clock())
    asyncio.run(limiter.hit(KEY))
    os.truncate(first_log_file(database), 4096)
    assert asyncio.run(limiter.list_ages(KEY)) == []
    asyncio.run(MappedLimiter(database, "a" * 32, 3, 60, machine.clock()).check())  # replaces it by an empty file
    assert asyncio.run(limiter.list_keys()) == []


def test_a_history_is_imported_although_the_log_was_truncated(database: Path, machine: Machine) -> None:
    limiter = MappedLimiter(database, "a" * 32, 3, 60, machine.clock())
    asyncio.run(limiter.hit(KEY))
    os.truncate(first_log_file(database), 4096)
    asyncio.run(limiter.import_history(KEY, [20.0, 10.0]))
    assert list_ages(limiter) == {KEY: [20.0, 10.0]}


def test_a_truncated_log_that_cannot_be_deleted_is_closed(
    database: Path, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    database = database.parent / "data" / "listings.db"
    database.parent.mkdir()
    limiter = MappedLimiter(database, "a" * 32, 3, 60, machine.clock())
    for use in (poll, import_one):
        asyncio.run(limiter.hit(KEY))
        os.truncate(first_log_file(database), 0)
        folder = database.parent.rename(database.parent.with_name("moved"))
        database.parent.touch()
        use(limiter)
        assert count_descriptors(folder / "listings.db") == 0
        database.parent.unlink()
        folder.rename(database.parent)
    assert caplog.messages == [f"The rate limit file {first_log_file(database)} can't be used: Not a directory"]
    asyncio.run(limiter.close())


def import_one(limiter: MappedLimiter) -> None:
    with pytest.raises(Unavailable, match="can't be counted: Not a directory"):
        asyncio.run(limiter.import_history(KEY, [1.0]))


def test_a_failing_maintenance_is_logged_until_it_succeeds(
    database: Path, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    limiter = MappedLimiter(database, "a" * 32, 3, 60, machine.clock())
    asyncio.run(limiter.hit(KEY))

    def fail(_: MappedFile) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    for act, count in ((fail, 1), (fail, 1), (MappedFile.update_mode, 1), (fail, 2)):
        limiter._for_each_file(act)  # noqa: SLF001 - it runs every 50 ms
        assert (
            caplog.messages
            == [f"The rate limit file {first_log_file(database)} can't be used: No locks available"] * count
        )


# Several releases may share the file format during an upgrade.
def test_the_file_format_is_unchanged(database: Path, machine: Machine) -> None:
    limiter = Limiter(database, machine, limit=1_500)
    limiter.hit()
    machine.pass_time(2.5)
    limiter.hit()
    content = first_log_file(database).read_bytes()
    assert len(content) == 4096 + 4096 * 8 * (1 + 1_501)
    assert struct.unpack_from("8sQQ", content) == (b"LSTLIM01", 1_501, 0)
    first, second = machine.wall - 2.5, machine.wall
    assert struct.unpack_from("Qddd", content, 4096 + KEY * 8 * (1 + 1_501)) == (2, first, second, 0.0)


def test_a_file_has_at_least_1001_entries_per_key(database: Path, machine: Machine) -> None:
    Limiter(database, machine, limit=3).hit()
    assert first_log_file(database).stat().st_size == 4096 + 4096 * 8 * (1 + 1_001)


def test_the_slot_of_the_last_key_is_inside_the_file(database: Path, machine: Machine) -> None:
    limiter = Limiter(database, machine)
    limiter.hit(0)
    size = first_log_file(database).stat().st_size
    limiter.hit(4095)
    assert first_log_file(database).stat().st_size == size
    assert [log.is_valid for log in list_log_files(database)] == [True]


def test_only_the_keys_byte_is_locked_while_counting(database: Path, machine: Machine) -> None:
    Limiter(database, machine).hit()
    seen: list[Lock | None] = []

    def since_boot() -> float:
        seen.append(find_lock(first_log_file(database)))
        return machine.uptime

    clock = machine.clock()._replace(since_boot=since_boot)
    limiter = MappedLimiter(database, "a" * 32, 3, 60, clock)
    asyncio.run(limiter.hit(KEY))
    asyncio.run(limiter.import_history(KEY, []))
    assert seen[1:] == [Lock(1 + KEY, 1, is_exclusive=True)] * 2
    assert find_lock(first_log_file(database)) is None


def test_header_and_keys_are_locked_while_reopening_after_a_reboot(database: Path, machine: Machine) -> None:
    Limiter(database, machine).hit()
    machine.reboot(1.0)
    seen: list[Lock | None] = []

    def wall() -> float:
        seen.append(find_lock(first_log_file(database)))
        return machine.wall

    asyncio.run(MappedLimiter(database, "a" * 32, 3, 60, machine.clock()._replace(wall=wall)).hit(KEY))
    assert seen == [None, Lock(0, 4097, is_exclusive=True)]


def test_a_truncated_or_foreign_file_is_not_valid(database: Path, machine: Machine) -> None:
    Limiter(database, machine).hit()
    content = first_log_file(database).read_bytes()
    for damaged in (content[:-8], b"OTHER" + content[5:]):
        first_log_file(database).write_bytes(damaged)
        assert [log.is_valid for log in list_log_files(database)] == [False]


def test_a_new_file_logs_no_warning(database: Path, machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    Limiter(database, machine).hit()
    assert caplog.messages == []


def test_check_opens_the_first_file(database: Path, machine: Machine) -> None:
    limiter = MappedLimiter(database, "a" * 32, 3, 60, machine.clock())
    asyncio.run(limiter.check())
    assert [path.name for path in database.parent.iterdir()] == ["listings.db.limits-0000"]
    other = database.with_name("other.db")
    first_log_file(other).mkdir()
    with pytest.raises(Unavailable, match="can't be counted"):
        asyncio.run(MappedLimiter(other, "a" * 32, 3, 60, machine.clock()).check())


def list_ages(limiter: MappedLimiter) -> dict[int, list[float]]:
    async def fetch() -> dict[int, list[float]]:
        return {key: await limiter.list_ages(key) for key in await limiter.list_keys()}

    return asyncio.run(fetch())


def test_only_files_with_a_number_are_listed(database: Path, machine: Machine) -> None:
    limiter = MappedLimiter(database, "a" * 32, 3, 60, machine.clock())
    large_key = 10_000 * 4096 + KEY
    for key in (KEY, large_key):
        asyncio.run(limiter.hit(key))
    for suffix in ("save", "0000.new", "0000~", "00001"):
        database.with_name(f"listings.db.limits-{suffix}").write_bytes(first_log_file(database).read_bytes())
    assert [log.number for log in list_log_files(database)] == [0, 10_000]
    assert list_ages(limiter) == {KEY: [0.0], large_key: [0.0]}


def test_the_logs_of_several_processes_in_memory_are_added_up(database: Path, machine: Machine) -> None:
    limiters = [MappedLimiter(database, "a" * 32, 5, 60, machine.clock()) for _ in range(2)]
    for limiter in limiters:
        for _ in range(2):
            asyncio.run(limiter._unsaved.hit(KEY))  # noqa: SLF001 - as on a full disk
    for limiter in limiters:
        limiter._save()  # noqa: SLF001
    assert len(asyncio.run(limiters[0].list_ages(KEY))) == 4


def test_reading_the_log_of_an_unused_key_takes_no_disk_space(database: Path, machine: Machine) -> None:
    limiter = MappedLimiter(database, "a" * 32, 3, 60, machine.clock())
    asyncio.run(limiter.check())
    before = first_log_file(database).stat().st_blocks
    assert asyncio.run(limiter.list_ages(KEY)) == []
    page = mmap.PAGESIZE // 512  # a file in memory stores a page that was only read
    assert first_log_file(database).stat().st_blocks <= before + page


def test_an_unreadable_log_is_unavailable(database: Path, machine: Machine) -> None:
    first_log_file(database).mkdir()
    limiter = MappedLimiter(database, "a" * 32, 3, 60, machine.clock())
    with pytest.raises(Unavailable, match="can't be read"):
        list_ages(limiter)
    with pytest.raises(Unavailable, match="can't be counted"):
        asyncio.run(limiter.import_history(KEY, [1.0]))


def test_a_running_limiter_continues_from_an_imported_history(database: Path, machine: Machine) -> None:
    limiter = Limiter(database, machine)
    for _ in range(4):
        count_accepted(limiter, 3)
        machine.pass_time(61.0)
    limiter.hit()
    machine.pass_time(61.0)
    other = MappedLimiter(database, "a" * 32, 3, 60, machine.clock())
    asyncio.run(other.import_history(KEY, [20.0]))
    assert limiter.hit() == RateLimitDecision(accepted=True, remaining=1, reset=40.0)


def test_every_imported_request_counts(database: Path, machine: Machine) -> None:
    limiter = Limiter(database, machine)
    for _ in range(2):
        limiter.hit()
        machine.pass_time(61.0)
    other = MappedLimiter(database, "a" * 32, 3, 60, machine.clock())
    asyncio.run(other.import_history(KEY, [20.0, 10.0]))
    assert limiter.hit() == RateLimitDecision(accepted=True, remaining=0, reset=40.0)


def test_a_log_never_restarts_before_its_newest_time(database: Path, machine: Machine) -> None:
    limiter = Limiter(database, machine)
    for _ in range(3):
        limiter.hit()
        machine.pass_time(10.0)
    limiter.close()
    machine.reboot(-7200.0)
    assert Limiter(database, machine).hit() == RateLimitDecision(accepted=False, remaining=0, reset=40.0)


def test_a_full_log_is_moved_completely(database: Path, machine: Machine) -> None:
    assert count_accepted(Limiter(database, machine, limit=1_000), 1_000) == 1_000
    assert Limiter(database, machine, limit=1_500).hit().remaining == 499
