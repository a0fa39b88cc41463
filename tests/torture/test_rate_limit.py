"""A thousand an hour, whoever counts."""

from pathlib import Path

import pytest

from tests.torture.instruments.rate_limit import CONTROLS, INSTRUMENT

pytestmark = pytest.mark.slow


def test_a_thousand_are_accepted_by_two_processes_by_two_services_whose_clock_jumps_and_by_one_that_comes_later(
    tmp_path: Path,
) -> None:
    outcome = INSTRUMENT.run_short(tmp_path)
    assert list(outcome.faults) == []
    assert outcome.done.startswith("4,200 requests")


def test_a_limit_for_each_process_and_one_by_the_wall_clock_are_found_out(tmp_path: Path) -> None:
    faults = INSTRUMENT.control_short(tmp_path).faults
    assert {fault.partition(":")[0] for fault in faults} == set(CONTROLS)
