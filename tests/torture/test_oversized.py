"""Test that oversized requests are rejected without reading them into memory."""

from pathlib import Path

import pytest

from tests.torture.instruments.oversized import CONTROL_KINDS, INSTRUMENT

pytestmark = [pytest.mark.slow, pytest.mark.uncovered]


def test_oversized_requests_are_rejected_in_little_memory(tmp_path: Path) -> None:
    outcome = INSTRUMENT.run_short(tmp_path)
    assert list(outcome.failures) == []
    assert "16 requests" in outcome.summary


@pytest.mark.as_written
def test_the_control_without_limits_on_bodies_fails(tmp_path: Path) -> None:
    failures = INSTRUMENT.control_short(tmp_path).failures
    assert {failure.partition(":")[0] for failure in failures} == set(CONTROL_KINDS)
