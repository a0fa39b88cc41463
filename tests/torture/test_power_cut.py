"""What was acknowledged is there after a power cut."""

from pathlib import Path
from random import Random

import pytest

from tests.torture.instruments.power_cut import INSTRUMENT
from tests.torture.recorder import Disk, Sync, Truncate, Write

pytestmark = pytest.mark.slow


def test_a_power_cut_loses_nothing_that_was_acknowledged_and_damages_nothing(tmp_path: Path) -> None:
    outcome = INSTRUMENT.run_short(tmp_path)
    assert list(outcome.faults) == []
    assert outcome.done.startswith("300 states")


def test_commits_that_are_not_synced_are_found_out(tmp_path: Path) -> None:
    faults = INSTRUMENT.control_short(tmp_path).faults
    assert any("was acknowledged" in fault or "is gone" in fault for fault in faults)


def test_what_was_synced_is_there_and_what_was_not_may_be_in_part() -> None:
    disk = Disk(b"")
    disk.advance(Write("-wal", 0, b"a" * 1024))
    assert {bytes(disk.cut(Random(seed))["-wal"]) for seed in range(200)} >= {b"", b"a" * 512, b"a" * 1024}
    disk.advance(Sync("-wal"))
    disk.advance(Truncate("-wal", 100))
    assert {len(disk.cut(Random(seed))["-wal"]) for seed in range(50)} == {100, 1024}
    assert all(disk.cut(Random(seed))["-wal"].strip(b"a") == b"" for seed in range(50))
