"""What was acknowledged is there after a kill."""

from pathlib import Path

import pytest

from tests.torture.instruments.kill import INSTRUMENT

pytestmark = pytest.mark.slow


def test_a_killed_service_has_lost_and_doubled_nothing(tmp_path: Path) -> None:
    outcome = INSTRUMENT.run_short(tmp_path)
    assert list(outcome.faults) == []
    assert outcome.done.startswith("10 kills, ")
    assert " 0 acknowledged" not in outcome.done


def test_a_writer_that_acknowledges_before_it_commits_is_found_out(tmp_path: Path) -> None:
    faults = INSTRUMENT.control_short(tmp_path).faults
    assert any("was acknowledged" in fault for fault in faults)
