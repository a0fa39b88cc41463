"""Odd requests are refused or served, in order, and nothing is done that nobody has asked for."""

from pathlib import Path

import pytest

from tests.torture.instruments.malformed import CONTROLS, INSTRUMENT
from tests.torture.malformed import SHAPES, Expectation, Maker

pytestmark = pytest.mark.slow


def test_odd_requests_are_borne(tmp_path: Path) -> None:
    outcome = INSTRUMENT.run_short(tmp_path)
    assert list(outcome.faults) == []
    assert outcome.done.startswith("1,200 connections")


@pytest.mark.as_written
def test_a_parser_that_is_too_kind_cut_bodies_and_another_order_are_found_out(tmp_path: Path) -> None:
    faults = INSTRUMENT.control_short(tmp_path).faults
    assert {fault.partition(":")[0] for fault in faults} == set(CONTROLS)


def test_every_shape_has_its_turn_and_a_name_of_its_own() -> None:
    maker = Maker("key", "wild", 1)
    cases = [maker.next() for _ in range(len(SHAPES) * 3)]
    assert {shape.name for shape in SHAPES} <= {case.name for case in cases}
    assert len({shape.name for shape in SHAPES}) == len(SHAPES)
    assert {case.verdict for case in cases} == set(Expectation)
