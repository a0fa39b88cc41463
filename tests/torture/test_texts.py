"""What is no JSON is refused; what is text is kept as it was sent."""

from pathlib import Path

import pytest

from tests.torture.instruments.texts import INSTRUMENT
from tests.torture.texts import json_cases, naughty_strings

pytestmark = pytest.mark.slow


def test_json_and_text_of_all_kinds_are_kept_or_refused(tmp_path: Path) -> None:
    outcome = INSTRUMENT.run_short(tmp_path)
    assert list(outcome.faults) == []
    assert (len(json_cases()) >= 250, len(naughty_strings()) >= 400) == (True, True)


def test_a_kinder_reader_and_text_that_is_tidied_up_are_found_out(tmp_path: Path) -> None:
    faults = INSTRUMENT.control_short(tmp_path).faults
    assert any(fault.startswith("kind_json: n_") for fault in faults)
    assert any(fault.startswith("tidy_text") and "came back as" in fault for fault in faults)
