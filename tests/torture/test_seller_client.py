"""Test that the Python client creates and changes exactly what it should."""

from pathlib import Path

import pytest

from tests.torture.instruments.seller_client import INSTRUMENT

pytestmark = [pytest.mark.slow, pytest.mark.uncovered]


def test_creates_and_catalogues_end_as_they_should(tmp_path: Path) -> None:
    outcome = INSTRUMENT.run_short(tmp_path)
    assert list(outcome.failures) == []
    assert outcome.summary == "500 creates, 200 faults; 50 catalogues"


def test_the_control_without_idempotency_keys_fails(tmp_path: Path) -> None:
    assert INSTRUMENT.control_short(tmp_path).failures
