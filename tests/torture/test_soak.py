"""Test how the soak instrument detects growth."""

from random import Random

import pytest

from tests.torture.instruments.soak import Sample, evaluate

pytestmark = pytest.mark.uncovered

HOUR_SECONDS = 3600.0


def build_samples(growth: float, seconds: float = HOUR_SECONDS) -> list[Sample]:
    """Build samples every half second: a warm-up, then growth in MiB per hour, with random peaks."""
    random = Random(1)
    return [
        Sample(
            second,
            40 + min(second / 60, 8) + growth * second / HOUR_SECONDS + random.choice((0, 0, 0.5, 4)),
            60,
            40,
            2**20,
        )
        for second in (number / 2 for number in range(int(seconds * 2)))
    ]


@pytest.mark.parametrize(("growth", "is_found"), [(0.0, False), (0.5, False), (1.5, True), (20.0, True)])
def test_growth_above_one_mebibyte_an_hour_is_found(growth: float, *, is_found: bool) -> None:
    _, failures = evaluate(build_samples(growth), HOUR_SECONDS)
    assert bool(failures) == is_found


def test_growth_of_the_resident_set_is_found() -> None:
    more = [one._replace(resident=60 + one.second / 200) for one in build_samples(0)]
    assert "resident set" in evaluate(more, HOUR_SECONDS)[1][0]


def test_growth_of_descriptors_and_of_the_wal_is_found() -> None:
    more = [one._replace(descriptors=40 + int(one.second / 100)) for one in build_samples(0)]
    assert "descriptors" in evaluate(more, HOUR_SECONDS)[1][0]
    long = [*build_samples(0), Sample(HOUR_SECONDS, 48, 60, 40, 2**30)]
    assert "WAL" in evaluate(long, HOUR_SECONDS)[1][0]
