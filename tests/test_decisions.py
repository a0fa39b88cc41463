"""docs/decisions.md: every decision has a row, cases and tests marked with it."""

import ast
import re
from pathlib import Path
from typing import NamedTuple

from tests.api.decisions.test_cases import CASES

HOME = Path(__file__).parent.parent
PAGE = (HOME / "docs" / "decisions.md").read_text("utf-8")
DECISIONS = [
    *("G1", "G2", "G3", "G4", "G5", "G6", "G7a", "G7", "G8"),
    *("G9", "G10", "G11", "G12", "G13"),
    *("G14", "G15", "G16", "G17", "G53", "G18", "G19", "G20", "G21"),
    *("G22", "G23", "G24", "G25", "G26", "G27", "G44"),
    *("G28", "G29", "G30", "G31", "G32", "G33", "G34", "G35", "G54", "G36", "G37", "G38", "G39", "G40"),
    *("G41", "G43", "G45", "G46", "G55", "G47", "G48", "G49", "G50", "G51", "G52"),
]


class Row(NamedTuple):
    """One row of a table of decisions."""

    decision: str
    cells: list[str]


def parse_row(line: str) -> Row:
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    return Row(cells[0].partition(" ")[0], cells)


def marks_in(file: Path) -> set[str]:
    """Return the decisions in the `pytest.mark.decision(...)` of a file."""
    calls = (node for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, ast.Call))
    marks = [call for call in calls if ast.unparse(call.func) == "pytest.mark.decision"]
    return {str(argument.value) for call in marks for argument in call.args if isinstance(argument, ast.Constant)}


ROWS = [parse_row(line) for line in PAGE.splitlines() if line.startswith("| G") and not line.startswith("| Gap ")]
PROVED_BY_CASES_ALONE = {"G34"}  # there are no events, so there is nothing else to test
PROVED_WITHOUT_CASES = {
    *("G37", "G38", "G39", "G40", "G41", "G43", "G45", "G46", "G55", "G47", "G48", "G49", "G50", "G51", "G52"),
}
"""The start, the console, large accounts, the description, compression, external ids, change sets, reverts, waits,
states, mail, requests for the plan, the market, sellers."""
MARKED = set().union(*(marks_in(file) for file in (HOME / "tests").rglob("test_*.py")))


def test_every_decision_has_one_row_in_order() -> None:
    assert [row.decision for row in ROWS] == DECISIONS


def test_the_page_begins_with_the_three_principles() -> None:
    head = PAGE[: PAGE.index("| Gap ")]
    assert re.findall(r"^- \*\*(P\d) ", head, re.MULTILINE) == ["P1", "P2", "P3"]


def test_a_row_has_a_gap_a_decision_and_a_reason() -> None:
    for row in ROWS:
        assert len(row.cells) == 3, row
        assert all(row.cells), row
        assert row.cells[0] != row.decision, row


def test_a_row_has_cases() -> None:
    assert {case.decision for case in CASES} == {row.decision for row in ROWS} - PROVED_WITHOUT_CASES


def test_every_decision_has_marked_tests() -> None:
    assert set(DECISIONS) - PROVED_BY_CASES_ALONE == MARKED


def test_every_case_has_a_description_of_its_own() -> None:
    descriptions = [(case.decision, case.situation) for case in CASES]
    assert len(set(descriptions)) == len(descriptions)
