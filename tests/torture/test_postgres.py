"""PostgreSQL may go away and come back as another server: what was acknowledged is there."""

from pathlib import Path

import pytest

from tests.torture.instruments.postgres import INSTRUMENT

pytestmark = pytest.mark.slow


def test_crashes_ended_sessions_and_a_promotion_lose_nothing(tmp_path: Path) -> None:
    outcome = INSTRUMENT.run_short(tmp_path)
    assert list(outcome.faults) == []
    assert outcome.done.startswith("1 crashes, 2 times all sessions ended: ")


def test_a_standby_that_is_behind_is_found_out(tmp_path: Path) -> None:
    assert INSTRUMENT.control_short(tmp_path).faults
