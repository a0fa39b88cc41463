"""A long run: what grows is found, what comes and goes is not."""

from pathlib import Path
from random import Random

import pytest

from tests.torture.instruments.soak import INSTRUMENT, Sample, floors, judge, line_through

pytestmark = pytest.mark.slow

HOUR = 3600.0


def samples(growth: float, seconds: float = HOUR) -> list[Sample]:
    """Twice a second: a warm-up, then growth in MiB an hour, with what comes and goes on top."""
    random = Random(1)
    return [
        Sample(second, 40 + min(second / 60, 8) + growth * second / HOUR + random.choice((0, 0, 0.5, 4)), 60, 40, 2**20)
        for second in (number / 2 for number in range(int(seconds * 2)))
    ]


def test_the_slope_of_a_straight_line_is_found_with_its_error() -> None:
    points = [(float(second), 5 + second / 1800) for second in range(100)]
    assert line_through(points).slope == pytest.approx(2)
    assert line_through(points).error == pytest.approx(0, abs=1e-6)
    noisy = [(x, y + Random(x).gauss(0, 0.01)) for x, y in points]
    slope, error = line_through(noisy)
    assert abs(slope - 2) < 4 * error


def test_what_comes_and_goes_within_a_span_is_no_growth() -> None:
    assert max(y for _, y in floors(samples(0)[2400:])) == 48


@pytest.mark.parametrize(("growth", "is_found"), [(0.0, False), (0.5, False), (1.5, True), (20.0, True)])
def test_growth_above_one_mebibyte_an_hour_is_found(growth: float, *, is_found: bool) -> None:
    _, faults = judge(samples(growth), HOUR)
    assert bool(faults) == is_found


def test_a_resident_set_that_grows_beside_what_is_in_use_is_found() -> None:
    more = [one._replace(resident=60 + one.second / 200) for one in samples(0)]
    assert "resident set" in judge(more, HOUR)[1][0]


def test_descriptors_and_a_wal_that_grow_are_found() -> None:
    more = [one._replace(descriptors=40 + int(one.second / 100)) for one in samples(0)]
    assert "descriptors" in judge(more, HOUR)[1][0]
    long = [*samples(0), Sample(HOUR, 48, 60, 40, 2**30)]
    assert "WAL" in judge(long, HOUR)[1][0]


def test_some_seconds_of_load_leak_nothing_that_can_be_seen(tmp_path: Path) -> None:
    outcome = INSTRUMENT.run_short(tmp_path)
    assert list(outcome.faults) == []


def test_a_leak_in_every_request_is_found_out(tmp_path: Path) -> None:
    (fault,) = INSTRUMENT.control_short(tmp_path).faults
    assert "memory has grown" in fault
