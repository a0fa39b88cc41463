"""Test that expensive requests need little memory."""

from pathlib import Path

import pytest

from tests.torture.instruments.expensive_requests import INSTRUMENT

pytestmark = [pytest.mark.slow, pytest.mark.uncovered]


def test_expensive_requests_need_little_memory(tmp_path: Path) -> None:
    outcome = INSTRUMENT.run_short(tmp_path)
    assert list(outcome.failures) == []
    assert outcome.summary.count("memory") == 16


@pytest.mark.as_written
def test_the_control_with_unlimited_memory_fails_on_both_engines(tmp_path: Path) -> None:
    failures = INSTRUMENT.control_short(tmp_path).failures
    kinds = [
        f"{engine}, {kind}" for engine in ("SQLite", "PostgreSQL") for kind in ("unread lists", "bodies", "dry runs")
    ]
    for kind in [*kinds, "SQLite, unread exports"]:  # PostgreSQL's are read more slowly than they would have to be
        assert any(failure.startswith(kind) for failure in failures), kind
