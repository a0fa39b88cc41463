"""Test that migrations run exactly once, even if they are killed."""

from pathlib import Path

import pytest

from tests.torture.instruments.migrations import INSTRUMENT

pytestmark = [pytest.mark.slow, pytest.mark.uncovered]


def test_killed_migrations_run_once_with_the_same_result(tmp_path: Path) -> None:
    outcome = INSTRUMENT.run_short(tmp_path)
    assert list(outcome.failures) == []
    assert outcome.summary.count(": 5 kills") == 2


def test_the_control_without_transactions_fails(tmp_path: Path) -> None:
    assert INSTRUMENT.control_short(tmp_path).failures
