"""Test that the rate limit is exact across processes."""

from pathlib import Path

import pytest

from tests.torture.instruments.rate_limit import INSTRUMENT

pytestmark = [pytest.mark.slow, pytest.mark.uncovered]


def test_exactly_1000_requests_are_accepted(tmp_path: Path) -> None:
    outcome = INSTRUMENT.run_short(tmp_path)
    assert list(outcome.failures) == []
    assert outcome.summary.startswith("4,200 requests")
