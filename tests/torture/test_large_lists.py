"""Test that large lists need little memory."""

from pathlib import Path

import pytest

from tests.torture.instruments.large_lists import INSTRUMENT

pytestmark = [pytest.mark.slow, pytest.mark.uncovered]


def test_large_lists_are_sent_with_little_memory(tmp_path: Path) -> None:
    outcome = INSTRUMENT.run_short(tmp_path)
    assert list(outcome.failures) == []
    assert outcome.summary.count("memory") == 6


@pytest.mark.as_written
def test_the_control_with_lists_in_memory_fails(tmp_path: Path) -> None:
    assert INSTRUMENT.control_short(tmp_path).failures
