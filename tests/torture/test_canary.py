"""Test that secrets do not leak."""

from pathlib import Path

import pytest

from tests.torture.instruments.canary import INSTRUMENT

pytestmark = [pytest.mark.slow, pytest.mark.uncovered]


def test_keys_passwords_and_sessions_do_not_leak(tmp_path: Path) -> None:
    outcome = INSTRUMENT.run_short(tmp_path)
    assert list(outcome.failures) == []
    assert not outcome.summary.startswith("0 ")


def test_the_control_finds_keys_in_the_log(tmp_path: Path) -> None:
    failures = INSTRUMENT.control_short(tmp_path).failures
    assert "a created key is in the file log" in failures
