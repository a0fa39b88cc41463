"""Test that acknowledged writes survive SIGKILL."""

from pathlib import Path

import pytest

from tests.torture.instruments.kill import INSTRUMENT

pytestmark = [pytest.mark.slow, pytest.mark.uncovered]


def test_kills_lose_and_duplicate_nothing(tmp_path: Path) -> None:
    outcome = INSTRUMENT.run_short(tmp_path)
    assert list(outcome.failures) == []
    assert outcome.summary.startswith("10 kills, ")
    assert " 0 acknowledged" not in outcome.summary


def test_the_control_that_acknowledges_before_the_commit_fails(tmp_path: Path) -> None:
    failures = INSTRUMENT.control_short(tmp_path).failures
    assert any("was acknowledged" in failure for failure in failures)
