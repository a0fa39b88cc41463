"""docs/decisions.md: every decision has a row and tests marked with it."""

import ast
import re
from pathlib import Path

HOME = Path(__file__).parent.parent
PAGE = (HOME / "docs" / "decisions.md").read_text("utf-8")
DECISIONS = [
    *("G1", "G2", "G3", "G4", "G5", "G6", "G7a", "G7", "G8"),
    *("G9", "G10", "G11", "G12", "G13"),
    *("G14", "G15", "G16", "G17", "G53", "G18", "G19", "G20", "G21"),
    *("G22", "G23", "G24", "G25", "G26", "G27", "G44"),
    *("G28", "G29", "G30", "G31", "G32", "G33", "G34", "G35", "G54", "G36", "G57", "G37", "G38", "G39", "G40"),
    *("G41", "G43", "G45", "G46", "G55", "G47", "G48", "G49", "G50", "G51", "G52", "G56", "G58", "G59", "G61", "G62"),
]


def marks_in(file: Path) -> set[str]:
    """Return the decisions in the `pytest.mark.decision(...)` of a file."""
    calls = (node for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, ast.Call))
    marks = [call for call in calls if ast.unparse(call.func) == "pytest.mark.decision"]
    return {str(argument.value) for call in marks for argument in call.args if isinstance(argument, ast.Constant)}


MARKED = set().union(*(marks_in(file) for file in (HOME / "tests").rglob("test_*.py")))


def test_every_decision_has_one_row_in_order() -> None:
    assert re.findall(r"^\| (G[0-9][0-9a-z]*) ", PAGE, re.MULTILINE) == DECISIONS


def test_every_decision_has_marked_tests() -> None:
    assert set(DECISIONS) == MARKED
