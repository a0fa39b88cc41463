"""Test that attackers can neither guess without a limit nor keep an owner out."""

from pathlib import Path

import pytest

from tests.torture.instruments.sign_in_limits import INSTRUMENT

pytestmark = [pytest.mark.slow, pytest.mark.uncovered]


def test_attackers_are_limited_and_the_owner_is_not(tmp_path: Path) -> None:
    assert list(INSTRUMENT.run_short(tmp_path).failures) == []


def test_the_control_without_a_count_for_the_browser_fails(tmp_path: Path) -> None:
    assert INSTRUMENT.control_short(tmp_path).failures
