"""Test who may access which listing through every endpoint."""

from pathlib import Path

import pytest

from tests.torture.instruments.authorization import CELLS, INSTRUMENT, build_cells

pytestmark = [pytest.mark.slow, pytest.mark.uncovered]


def test_every_combination_gets_the_specified_response(tmp_path: Path) -> None:
    outcome = INSTRUMENT.run_short(tmp_path)
    assert list(outcome.failures) == []
    assert len(build_cells()) >= CELLS


def test_only_the_right_cells_fail_without_the_owner_check(tmp_path: Path) -> None:
    outcome = INSTRUMENT.control_short(tmp_path)
    assert "only the" in outcome.summary
    assert len(outcome.failures) > 50
