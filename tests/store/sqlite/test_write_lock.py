"""The write lock, and the caches that its counters validate."""

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from listings.store.sqlite.write_lock import VersionedCache, WriteLock
from tests.harness import Clock

KILLED_WHILE_WRITING = """
import os, signal, sys
from pathlib import Path
from listings.store.sqlite.write_lock import WriteLock
with WriteLock(Path(sys.argv[1])).acquire():
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "listings.db"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cache(path: Path, clock: Clock) -> Iterator[VersionedCache]:
    with closing(WriteLock(path)) as lock:
        yield VersionedCache(lock.read_sequence, clock)


@pytest.fixture
def callers(path: Path, clock: Clock) -> Iterator[VersionedCache]:
    with closing(WriteLock(path)) as lock:
        yield VersionedCache(lock.read_caller_sequence, clock)


def test_the_cache_is_valid_while_no_process_writes(cache: VersionedCache) -> None:
    cache.values()["a"] = 1
    assert cache.values() == {"a": 1}


def test_a_wait_for_the_lock_that_fails_has_ended(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lock(_descriptor: int, operation: int) -> None:
        raise BlockingIOError if operation & fcntl.LOCK_NB else OSError(errno.ENOLCK, "No locks available")

    with closing(WriteLock(path)) as write_lock:
        monkeypatch.setattr(fcntl, "flock", lock)
        with pytest.raises(OSError, match="No locks available"), write_lock.acquire():
            pass
        assert write_lock.waiting_since is None


def test_a_write_by_another_process_invalidates_the_cache(path: Path, cache: VersionedCache) -> None:
    cache.values()["a"] = 1
    with closing(WriteLock(path)) as other, other.acquire():
        pass
    assert cache.values() == {}


def test_a_failed_write_invalidates_the_cache(path: Path, cache: VersionedCache) -> None:
    cache.values()["a"] = 1
    with closing(WriteLock(path)) as other, pytest.raises(OSError, match="gone"), other.acquire():
        raise OSError("gone")
    assert cache.values() == {}


def test_nothing_is_cached_while_a_process_holds_the_lock(path: Path, cache: VersionedCache) -> None:
    cache.values()["a"] = 1
    with closing(WriteLock(path)) as other, other.acquire():
        cache.values()["a"] = 2
        assert cache.values() == {}
    assert cache.values() == {}


def test_writes_that_change_no_caller_keep_cached_callers(path: Path, callers: VersionedCache) -> None:
    callers.values()["a"] = 1
    with closing(WriteLock(path)) as other, other.acquire(changes_callers=False):
        assert callers.values() == {"a": 1}
    assert callers.values() == {"a": 1}


@pytest.mark.decision("G25")
@pytest.mark.parametrize("changes_callers", [False, True])
def test_writes_that_may_change_callers_invalidate_cached_callers(
    path: Path, callers: VersionedCache, *, changes_callers: bool
) -> None:
    callers.values()["a"] = 1
    with closing(WriteLock(path)) as other, other.acquire(changes_callers=changes_callers):
        other.mark_callers_changed()
        callers.values()["a"] = 2
        assert callers.values() == {}
    assert callers.values() == {}
    callers.values()["a"] = 3
    assert callers.values() == {"a": 3}


@pytest.mark.parametrize("changes_callers", [False, True])
@pytest.mark.parametrize("fixture", ["cache", "callers"])
def test_a_killed_writer_disables_the_cache_until_the_next_write(
    path: Path, request: pytest.FixtureRequest, fixture: str, *, changes_callers: bool
) -> None:
    cache: VersionedCache = request.getfixturevalue(fixture)
    cache.values()["a"] = 1
    killed = subprocess.run([sys.executable, "-c", KILLED_WHILE_WRITING, str(path)], check=False)
    assert killed.returncode < 0
    cache.values()["a"] = 2
    assert cache.values() == {}
    with closing(WriteLock(path)) as other, other.acquire(changes_callers=changes_callers):
        pass
    cache.values()["a"] = 3
    assert cache.values() == {"a": 3}


def test_a_write_by_a_foreign_program_is_seen_within_a_second(cache: VersionedCache, clock: Clock) -> None:
    cache.values()["a"] = 1
    clock.now += 1.0
    assert cache.values() == {"a": 1}
    clock.now += 0.01
    assert cache.values() == {}


def test_the_size_of_the_cache_is_limited(cache: VersionedCache) -> None:
    for number in range(10_000):
        cache.values()[number] = number
    assert len(cache.values()) <= 4096


def test_the_lock_file_of_an_earlier_version_is_extended(path: Path) -> None:
    file = Path(f"{path}.lock")
    file.write_bytes((6).to_bytes(8, sys.byteorder))
    with closing(WriteLock(path)) as lock, lock.acquire():
        assert lock.read_sequence() == 7
    assert file.read_bytes() == b"".join(counter.to_bytes(8, sys.byteorder) for counter in (8, 2, 0))


def test_a_full_disk_is_reported_when_creating_the_lock_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space"):
        WriteLock(path)


def test_damage_is_known_to_processes_that_start_later(path: Path) -> None:
    with closing(WriteLock(path)) as lock:
        assert not lock.is_damaged
        lock.report_damage()
        with closing(WriteLock(path)) as other:
            assert other.is_damaged
        assert lock.is_damaged


def test_damage_is_forgotten_once_no_process_uses_the_file(path: Path) -> None:
    with closing(WriteLock(path)) as lock, closing(WriteLock(path)):
        lock.report_damage()
    with closing(WriteLock(path)) as lock:
        assert not lock.is_damaged
