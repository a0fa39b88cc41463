"""A migration is done once, whole or not at all, whoever is killed."""

from pathlib import Path

import pytest

from tests.torture.instruments.migrations import INSTRUMENT

pytestmark = pytest.mark.slow


def test_killed_migrations_come_to_the_same_and_run_once(tmp_path: Path) -> None:
    outcome = INSTRUMENT.run_short(tmp_path)
    assert list(outcome.faults) == []
    assert outcome.done.count(": 5 kills") == 2


def test_migrations_without_transactions_are_found_out(tmp_path: Path) -> None:
    assert INSTRUMENT.control_short(tmp_path).faults
