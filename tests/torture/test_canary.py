"""Secrets stay where they belong."""

from pathlib import Path

import pytest

from tests.torture.instruments.canary import INSTRUMENT

pytestmark = pytest.mark.slow


def test_keys_passwords_and_sessions_are_found_nowhere(tmp_path: Path) -> None:
    outcome = INSTRUMENT.run_short(tmp_path)
    assert list(outcome.faults) == []
    assert not outcome.done.startswith("0 ")


def test_keys_in_the_log_are_found_out(tmp_path: Path) -> None:
    faults = INSTRUMENT.control_short(tmp_path).faults
    assert "a key that was made is in the file log" in faults
