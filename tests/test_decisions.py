"""docs/decisions.md: every decision has its row, and every row is kept by tests that exist."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.api.test_decision_by_decision import CASES

HOME = Path(__file__).parent.parent
PAGE = (HOME / "docs" / "decisions.md").read_text("utf-8")
DECIDED = [
    *("G1", "G2", "G3", "G4", "G5", "G6", "G7a", "G7", "G8"),
    *("G9", "G10", "G11", "G12", "G13"),
    *("G14", "G15", "G16", "G17", "G18", "G19", "G20", "G21"),
    *("G22", "G23", "G24", "G25", "G26", "G27"),
    *("G28", "G29", "G30", "G31", "G32", "G33", "G34", "G35", "G36"),
]


class Row(NamedTuple):
    """One decision; `tests` are written file::function."""

    decision: str
    cells: list[str]
    tests: list[str]


def row_of(line: str) -> Row:
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    return Row(cells[0].partition(" ")[0], cells, re.findall(r"`(\S+?::\w+)`", cells[-1]))


ROWS = [row_of(line) for line in PAGE.splitlines() if line.startswith("| G") and not line.startswith("| Gap ")]
by_decision = pytest.mark.parametrize("row", ROWS, ids=[row.decision for row in ROWS])


@cache
def names_in(path: str) -> frozenset[str]:
    """The names of the test functions of a file."""
    file = HOME / path
    tree = ast.parse(file.read_text("utf-8")) if file.is_file() else ast.Module([], [])
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def test_every_decision_has_one_row_in_its_order() -> None:
    assert [row.decision for row in ROWS] == DECIDED


def test_the_three_principles_stand_at_the_head() -> None:
    head = PAGE[: PAGE.index("| Gap ")]
    assert re.findall(r"^- \*\*(P\d) ", head, re.MULTILINE) == ["P1", "P2", "P3"]


@by_decision
def test_a_row_tells_gap_decision_reason_and_tests(row: Row) -> None:
    assert len(row.cells) == 4
    assert all(row.cells)
    assert row.cells[0] != row.decision


@by_decision
def test_a_row_names_tests_and_they_exist(row: Row) -> None:
    assert row.tests
    assert len(row.tests) == row.cells[-1].count("`") / 2
    missing = [test for test in row.tests if test.partition("::")[2] not in names_in(test.partition("::")[0])]
    assert missing == []


@by_decision
def test_a_row_has_cases_of_its_own(row: Row) -> None:
    assert [case for case in CASES if case.decision == row.decision]


def test_no_case_is_of_an_unknown_decision() -> None:
    assert {case.decision for case in CASES} <= set(DECIDED)


def test_each_case_has_a_sentence_of_its_own() -> None:
    sentences = [(case.decision, case.situation) for case in CASES]
    assert len(set(sentences)) == len(sentences)
