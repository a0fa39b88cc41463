"""The frame of the long tests: what passes, what fails, what is kept."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench import RejectedRequest
from tests.torture import table
from tests.torture.instrument import Instrument, Outcome, Scale
from tests.torture.registry import chosen, roster, try_all
from tests.torture.table import BEGIN, END, keep, row_of


def find_nothing(scale: Scale) -> Outcome:
    return Outcome(f"{scale.amount(1000)} kills")


def find(scale: Scale) -> Outcome:
    return Outcome(f"{scale.amount(1000)} kills", ["write | 7 is lost"])


def do_less(_: Scale) -> Outcome:
    return Outcome("1 kill", whole=False)


def control(_: Scale) -> Outcome:
    raise ValueError("no such thing")


GOOD = Instrument(1, "kill -9", "0 lost", 1, find_nothing, find)


@pytest.mark.parametrize(
    ("instrument", "verdict"),
    [
        (GOOD, "PASS"),
        (GOOD._replace(run=do_less), "PASS (part)"),
        (GOOD._replace(run=find), "FAIL"),
        (GOOD._replace(control=find_nothing), "FAIL"),
        (GOOD._replace(run=control), "FAIL"),
        (GOOD._replace(control=control), "FAIL"),
    ],
    ids=["good", "less", "found", "control blind", "broken", "control broken"],
)
def test_an_instrument_passes_when_it_finds_nothing_but_what_was_planted(instrument: Instrument, verdict: str) -> None:
    (trial,) = try_all([instrument], 1.0, None, lambda _: None)
    assert trial.verdict == verdict


def test_instruments_are_chosen_by_number_and_have_each_their_own() -> None:
    numbers = [one.number for one in roster()]
    assert numbers == sorted(set(numbers))
    assert [one.number for one in chosen(None)] == numbers
    with pytest.raises(RejectedRequest, match="no instrument 99"):
        chosen("99")


def test_all_of_them_together_take_an_hour_at_most() -> None:
    assert sum(one.minutes for one in roster()) <= 60


def test_the_table_is_kept_and_rows_of_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "today", lambda: "2026-11-22")  # at midnight, too
    page = tmp_path / "reliability.md"
    page.write_text(f"before\n{BEGIN}\n{END}\nafter\n", "utf-8")
    keep(try_all([GOOD._replace(number=2, control=find_nothing)], 0.5, None, lambda _: None), page)
    (first,) = try_all([GOOD._replace(run=find)], 1.0, None, lambda _: None)
    keep([first], page)
    rows = [line for line in page.read_text("utf-8").splitlines() if line.startswith("| ")][2:]
    assert rows[0] == f"| {' | '.join(row_of(first))} |"
    assert "| 1: write \\| 7 is lost | found 1 | FAIL |" in rows[0]
    assert "| 500 kills | 0 | found NOTHING | FAIL |" in rows[1]
    assert page.read_text("utf-8").endswith("\nafter\n")


def test_a_short_result_is_not_kept() -> None:
    command = [sys.executable, "-m", "tests.torture", "--short", "--write"]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (outcome.returncode, "not worth keeping" in outcome.stderr) == (2, True)
