"""Test that a failing disk loses no acknowledged write."""

from pathlib import Path

import pytest

from tests.torture.instruments.disk import INSTRUMENT

pytestmark = [pytest.mark.slow, pytest.mark.uncovered]


def test_a_failing_disk_loses_nothing_and_is_reported(tmp_path: Path) -> None:
    outcome = INSTRUMENT.run_short(tmp_path)
    assert list(outcome.failures) == []


def test_the_control_that_acknowledges_failed_commits_fails(tmp_path: Path) -> None:
    failures = INSTRUMENT.control_short(tmp_path).failures
    assert any("was acknowledged" in failure for failure in failures)
    assert "writes are not rejected with a deleted database" in failures
    assert "a start after the loss of a file was not refused" in failures
