"""Escape the cells of CSV files that a spreadsheet would run as formulas."""

import re

_FORMULA = r"(?:[\t\r\n]|\s*[=+\-@＝＋－＠])"  # noqa: RUF001 - Excel treats full-width signs like ASCII ones
_TO_ESCAPE = re.compile(f"'*{_FORMULA}")
_ESCAPED = re.compile(f"'+{_FORMULA}")


def escape_formula(text: str) -> str:
    """Escape a cell that a spreadsheet would run as a formula (OWASP, "CSV Injection")."""
    return f"'{text}" if not text[:1].isalnum() and _TO_ESCAPE.match(text) else text


def unescape_formula(cell: str) -> str:
    """Reverse `escape_formula`."""
    return cell[1:] if cell.startswith("'") and _ESCAPED.match(cell) else cell
