"""Test malformed requests."""

from pathlib import Path

import pytest

from tests.torture.instruments.malformed import CONTROLS, INSTRUMENT
from tests.torture.malformed_requests import SHAPES, CaseGenerator, Expectation

pytestmark = [pytest.mark.slow, pytest.mark.uncovered]


def test_malformed_requests_are_handled(tmp_path: Path) -> None:
    outcome = INSTRUMENT.run_short(tmp_path)
    assert list(outcome.failures) == []
    assert outcome.summary.startswith("1,200 connections")


@pytest.mark.as_written
def test_the_controls_with_a_lenient_parser_fail(tmp_path: Path) -> None:
    failures = INSTRUMENT.control_short(tmp_path).failures
    assert {failure.partition(":")[0] for failure in failures} == set(CONTROLS)


def test_every_shape_occurs_and_has_a_unique_name() -> None:
    generator = CaseGenerator("key", "is_fuzzed", 1)
    cases = [generator.next() for _ in range(len(SHAPES) * 3)]
    assert {shape.name for shape in SHAPES} <= {case.name for case in cases}
    assert len({shape.name for shape in SHAPES}) == len(SHAPES)
    assert {case.expectation for case in cases} == set(Expectation)
