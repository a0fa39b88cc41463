"""Every cell of who may do what to what is as decided."""

from pathlib import Path

import pytest

from tests.torture.instruments.authorization import CELLS, INSTRUMENT, cells

pytestmark = pytest.mark.slow


def test_every_cell_is_as_decided(tmp_path: Path) -> None:
    outcome = INSTRUMENT.run_short(tmp_path)
    assert list(outcome.faults) == []
    assert len(cells()) >= CELLS


def test_without_the_owner_check_just_the_right_cells_fail(tmp_path: Path) -> None:
    outcome = INSTRUMENT.control_short(tmp_path)
    assert "just the" in outcome.done
    assert len(outcome.faults) > 50
