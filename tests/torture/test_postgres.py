"""Test that PostgreSQL crashes and failovers lose no acknowledged write."""

from pathlib import Path

import pytest

from tests.torture.instruments.postgres import INSTRUMENT

pytestmark = [pytest.mark.slow, pytest.mark.uncovered]


def test_crashes_and_a_failover_lose_nothing(tmp_path: Path) -> None:
    outcome = INSTRUMENT.run_short(tmp_path)
    assert list(outcome.failures) == []
    assert outcome.summary.startswith("1 crashes, 2 times all sessions ended: ")


def test_the_control_with_a_lagging_standby_fails(tmp_path: Path) -> None:
    assert INSTRUMENT.control_short(tmp_path).failures
