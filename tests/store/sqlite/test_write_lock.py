"""Turns to write, and what a reader may keep between them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from listings.store.sqlite.write_lock import VersionedCache, WriteLock

KILLED_IN_ITS_TURN = """
import os, signal, sys
from pathlib import Path
from listings.store.sqlite.write_lock import WriteLock
with WriteLock(Path(sys.argv[1])).taken():
    os.kill(os.getpid(), signal.SIGKILL)
"""


class Seconds:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "listings.db"


@pytest.fixture
def seconds() -> Seconds:
    return Seconds()


@pytest.fixture
def kept(path: Path, seconds: Seconds) -> Iterator[VersionedCache]:
    with closing(WriteLock(path)) as turn:
        yield VersionedCache(turn.number, seconds)


@pytest.fixture
def callers(path: Path, seconds: Seconds) -> Iterator[VersionedCache]:
    with closing(WriteLock(path)) as turn:
        yield VersionedCache(turn.callers_number, seconds)


def test_what_was_read_is_kept_while_nobody_writes(kept: VersionedCache) -> None:
    kept.values()["a"] = 1
    assert kept.values() == {"a": 1}


def test_a_turn_of_another_process_ends_what_was_kept(path: Path, kept: VersionedCache) -> None:
    kept.values()["a"] = 1
    with closing(WriteLock(path)) as other, other.taken():
        pass
    assert kept.values() == {}


def test_a_turn_that_fails_ends_what_was_kept(path: Path, kept: VersionedCache) -> None:
    kept.values()["a"] = 1
    with closing(WriteLock(path)) as other, pytest.raises(OSError, match="gone"), other.taken():
        raise OSError("gone")
    assert kept.values() == {}


def test_nothing_is_kept_while_somebody_has_the_turn(path: Path, kept: VersionedCache) -> None:
    kept.values()["a"] = 1
    with closing(WriteLock(path)) as other, other.taken():
        kept.values()["a"] = 2
        assert kept.values() == {}
    assert kept.values() == {}


def test_callers_are_kept_over_turns_that_are_not_about_them(path: Path, callers: VersionedCache) -> None:
    callers.values()["a"] = 1
    with closing(WriteLock(path)) as other, other.taken(changes_callers=False):
        assert callers.values() == {"a": 1}
    assert callers.values() == {"a": 1}


@pytest.mark.decision("G25")
@pytest.mark.parametrize("changes_callers", [False, True])
def test_a_turn_that_may_change_callers_ends_what_was_kept_of_them(
    path: Path, callers: VersionedCache, *, changes_callers: bool
) -> None:
    callers.values()["a"] = 1
    with closing(WriteLock(path)) as other, other.taken(changes_callers=changes_callers):
        other.mark_callers()
        callers.values()["a"] = 2
        assert callers.values() == {}
    assert callers.values() == {}
    callers.values()["a"] = 3
    assert callers.values() == {"a": 3}


@pytest.mark.parametrize("changes_callers", [False, True])
@pytest.mark.parametrize("subject", ["kept", "callers"])
def test_after_a_writer_was_killed_in_its_turn_nothing_is_kept_until_another_has_had_one(
    path: Path, request: pytest.FixtureRequest, subject: str, *, changes_callers: bool
) -> None:
    kept: VersionedCache = request.getfixturevalue(subject)
    kept.values()["a"] = 1
    killed = subprocess.run([sys.executable, "-c", KILLED_IN_ITS_TURN, str(path)], check=False)
    assert killed.returncode < 0
    kept.values()["a"] = 2
    assert kept.values() == {}
    with closing(WriteLock(path)) as other, other.taken(changes_callers=changes_callers):
        pass
    kept.values()["a"] = 3
    assert kept.values() == {"a": 3}


def test_what_a_foreign_program_writes_is_seen_within_a_second(kept: VersionedCache, seconds: Seconds) -> None:
    kept.values()["a"] = 1
    seconds.now += 1.0
    assert kept.values() == {"a": 1}
    seconds.now += 0.01
    assert kept.values() == {}


def test_what_is_kept_is_bounded(kept: VersionedCache) -> None:
    for number in range(10_000):
        kept.values()[number] = number
    assert len(kept.values()) <= 4096


def test_a_lock_file_of_an_earlier_version_is_taken_over(path: Path) -> None:
    lock = Path(f"{path}.lock")
    lock.write_bytes((6).to_bytes(8, sys.byteorder))
    with closing(WriteLock(path)) as turn, turn.taken():
        assert turn.number() == 7
    assert lock.read_bytes() == (8).to_bytes(8, sys.byteorder) + (2).to_bytes(8, sys.byteorder)


def test_a_disk_without_room_for_the_lock_file_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space"):
        WriteLock(path)
