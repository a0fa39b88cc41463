"""What is too large is refused without taking it into memory."""

from pathlib import Path

import pytest

from tests.torture.instruments.big import INSTRUMENT

pytestmark = pytest.mark.slow


def test_what_is_too_large_is_refused_in_little_memory(tmp_path: Path) -> None:
    outcome = INSTRUMENT.run_short(tmp_path)
    assert list(outcome.faults) == []
    assert "15 requests" in outcome.done


@pytest.mark.as_written
def test_bodies_without_a_bound_are_found_out(tmp_path: Path) -> None:
    assert INSTRUMENT.control_short(tmp_path).faults
