"""A disk that fails costs no write that was acknowledged."""

from pathlib import Path

import pytest

from tests.torture.instruments.disk import INSTRUMENT

pytestmark = pytest.mark.slow


def test_a_failing_disk_loses_nothing_and_what_is_wrong_is_told(tmp_path: Path) -> None:
    outcome = INSTRUMENT.run_short(tmp_path)
    assert list(outcome.faults) == []


def test_acknowledging_failed_commits_is_found_out(tmp_path: Path) -> None:
    faults = INSTRUMENT.control_short(tmp_path).faults
    assert any("was acknowledged" in fault for fault in faults)
