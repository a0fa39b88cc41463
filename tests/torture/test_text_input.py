"""Test JSON texts and strings of all kinds."""

from pathlib import Path

import pytest

from tests.torture.input_samples import build_json_cases, build_naughty_strings
from tests.torture.instruments.text_input import INSTRUMENT

pytestmark = [pytest.mark.slow, pytest.mark.uncovered]


def test_json_and_text_are_stored_unchanged_or_rejected(tmp_path: Path) -> None:
    outcome = INSTRUMENT.run_short(tmp_path)
    assert list(outcome.failures) == []
    assert (len(build_json_cases()) >= 250, len(build_naughty_strings()) >= 400) == (True, True)


def test_the_controls_that_alter_input_fail(tmp_path: Path) -> None:
    failures = INSTRUMENT.control_short(tmp_path).failures
    assert any(failure.startswith("lenient_json: n_") for failure in failures)
    assert any(failure.startswith("simple_escape: CSV: the cell") for failure in failures)
    assert any(failure.startswith("normalized_text") and "was returned as" in failure for failure in failures)
