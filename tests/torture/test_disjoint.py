"""Who changes one field takes nothing back of what others have changed."""

from pathlib import Path

import pytest

from tests.torture.instruments.disjoint import INSTRUMENT

pytestmark = pytest.mark.slow


def test_writers_of_different_fields_lose_nothing(tmp_path: Path) -> None:
    outcome = INSTRUMENT.run_short(tmp_path)
    assert list(outcome.faults) == []
    assert outcome.done == "SQLite, two processes: 400 updates; PostgreSQL: 400"


def test_updates_of_whole_rows_without_a_transaction_are_found_out(tmp_path: Path) -> None:
    assert INSTRUMENT.control_short(tmp_path).faults
