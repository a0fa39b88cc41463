"""Test how instruments are selected and rated."""

import pytest

from bench import BenchmarkError
from tests.torture.instrument import Instrument, Outcome, Scale
from tests.torture.registry import find_instruments, run_all, select_instruments


def find_nothing(scale: Scale) -> Outcome:
    return Outcome(f"{scale.amount(1000)} kills")


def find(scale: Scale) -> Outcome:
    return Outcome(f"{scale.amount(1000)} kills", ["write | 7 is lost"])


def do_less(_: Scale) -> Outcome:
    return Outcome("1 kill", is_complete=False)


def crash(_: Scale) -> Outcome:
    raise ValueError("no such thing")


GOOD = Instrument(1, "kill -9", "0 lost", 1, find_nothing, find)


@pytest.mark.parametrize(
    ("instrument", "verdict"),
    [
        (GOOD, "PASS"),
        (GOOD._replace(run=do_less), "PASS (part)"),
        (GOOD._replace(run=find), "FAIL"),
        (GOOD._replace(control=find_nothing), "FAIL"),
        (GOOD._replace(run=crash), "FAIL"),
        (GOOD._replace(control=crash), "FAIL"),
    ],
    ids=["good", "incomplete", "failure", "blind control", "crash", "control crashes"],
)
def test_a_run_passes_if_only_the_control_finds_failures(instrument: Instrument, verdict: str) -> None:
    (result,) = run_all([instrument], 1.0, None, lambda _: None)
    assert result.verdict == verdict


def test_instruments_have_unique_numbers_and_are_selected_by_them() -> None:
    numbers = [one.number for one in find_instruments()]
    assert numbers == sorted(set(numbers))
    assert [one.number for one in select_instruments(None)] == numbers
    with pytest.raises(BenchmarkError, match="no instrument 99"):
        select_instruments("99")
