"""Test that acknowledged writes survive a power cut."""

from pathlib import Path
from random import Random

import pytest

from tests.torture.instruments.power_cut import INSTRUMENT
from tests.torture.recorder import Disk, Sync, Truncate, Write

pytestmark = [pytest.mark.slow, pytest.mark.uncovered]


def test_a_power_cut_loses_and_damages_nothing(tmp_path: Path) -> None:
    outcome = INSTRUMENT.run_short(tmp_path)
    assert list(outcome.failures) == []
    assert outcome.summary.startswith("300 states")


def test_unsynced_writes_may_be_lost_or_torn() -> None:
    disk = Disk(b"")
    disk.advance(Write("-wal", 0, b"a" * 1024))
    assert {bytes(disk.cut(Random(seed))["-wal"]) for seed in range(200)} >= {b"", b"a" * 512, b"a" * 1024}
    disk.advance(Sync("-wal"))
    disk.advance(Truncate("-wal", 100))
    assert {len(disk.cut(Random(seed))["-wal"]) for seed in range(50)} == {100, 1024}
    assert all(disk.cut(Random(seed))["-wal"].strip(b"a") == b"" for seed in range(50))
