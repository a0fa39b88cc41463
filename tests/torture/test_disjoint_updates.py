"""Test that concurrent updates of different fields do not overwrite each other."""

from pathlib import Path

import pytest

from tests.torture.instruments.disjoint_updates import INSTRUMENT

pytestmark = [pytest.mark.slow, pytest.mark.uncovered]


def test_concurrent_updates_of_different_fields_lose_nothing(tmp_path: Path) -> None:
    outcome = INSTRUMENT.run_short(tmp_path)
    assert list(outcome.failures) == []
    assert outcome.summary == "SQLite, two processes: 400 updates; PostgreSQL: 400"


def test_the_control_that_writes_whole_rows_fails(tmp_path: Path) -> None:
    assert INSTRUMENT.control_short(tmp_path).failures
