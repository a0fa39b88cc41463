"""Test that more expensive responses are detected."""

import json

import pytest

from bench.guard import BASELINE_FILE, TOLERANCE, build_measurements, compare


@pytest.mark.parametrize(
    ("measured", "is_more_expensive", "is_cheaper"),
    [(2.0, False, False), (2.19, False, False), (2.21, True, False), (1.81, False, False), (1.79, False, True)],
)
def test_only_growth_beyond_the_tolerance_fails(measured: float, *, is_more_expensive: bool, is_cheaper: bool) -> None:
    assert TOLERANCE == 0.1
    (comparison,) = compare({"create": measured}, {"create": 2.0, "get one": 1.0})
    assert (comparison.is_more_expensive, comparison.is_cheaper) == (is_more_expensive, is_cheaper)


def test_every_measurement_has_a_baseline() -> None:
    baseline = json.loads(BASELINE_FILE.read_text("utf-8"))
    assert list(baseline) == list(build_measurements())
    assert all(multiple > 0 for multiple in baseline.values())
