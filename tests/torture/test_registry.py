"""Test how instruments are selected, rated, and written to the page."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench import BenchmarkError
from tests.torture import table
from tests.torture.instrument import Instrument, Outcome, Scale
from tests.torture.registry import find_instruments, run_all, select_instruments
from tests.torture.table import BEGIN, END, build_row, write_table


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


def test_all_instruments_together_take_at_most_75_minutes() -> None:
    assert sum(one.minutes for one in find_instruments()) <= 75


def test_other_rows_of_the_table_are_preserved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "today", lambda: "2026-11-22")  # independent of midnight
    page = tmp_path / "reliability.md"
    page.write_text(f"before\n{BEGIN}\n{END}\nafter\n", "utf-8")
    write_table(run_all([GOOD._replace(number=2, control=find_nothing)], 0.5, None, lambda _: None), page)
    (first,) = run_all([GOOD._replace(run=find)], 1.0, None, lambda _: None)
    write_table([first], page)
    rows = [line for line in page.read_text("utf-8").splitlines() if line.startswith("| ")][2:]
    assert rows[0] == f"| {' | '.join(build_row(first))} |"
    assert "| 1: write \\| 7 is lost | found 1 | FAIL |" in rows[0]
    assert "| 500 kills | 0 | found NOTHING | FAIL |" in rows[1]
    assert page.read_text("utf-8").endswith("\nafter\n")


def test_a_short_result_is_not_written() -> None:
    command = [sys.executable, "-m", "tests.torture", "--short", "--write"]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (outcome.returncode, "not worth storing" in outcome.stderr) == (2, True)
