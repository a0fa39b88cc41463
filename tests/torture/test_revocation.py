"""Test that revoked keys are rejected everywhere."""

from pathlib import Path

import pytest

from tests.torture.instruments.revocation import INSTRUMENT

pytestmark = [pytest.mark.slow, pytest.mark.uncovered]


def test_a_revoked_key_is_rejected_by_every_process(tmp_path: Path) -> None:
    assert list(INSTRUMENT.run_short(tmp_path).failures) == []


def test_the_control_that_does_not_wait_fails(tmp_path: Path) -> None:
    assert INSTRUMENT.control_short(tmp_path).failures
