"""What spreadsheets make of the texts of cells when a file is opened and saved."""

import re

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:E([+-]?)[0-9]{1,3})?", re.IGNORECASE)
_PART = "(?:[0-9]{1,4}|[A-Z]{3,9})"
_DATE = re.compile(rf"{_PART}(?:[-/. ]{_PART}){{1,2}}(?:[ T][0-9:. ]{{3,15}}(?:[AP]M)?)?", re.IGNORECASE)
_TIME = re.compile(r"[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = re.compile(rf"\b({'|'.join(_MONTHS)})[a-z]*\b|[A-Z]{{1,9}}", re.IGNORECASE)
_MAX_CELL = 32_767  # UTF-16 code units, of Excel
_MAX_SHORT = 200  # of numbers and dates
_EXACT_DIGITS = 15
_NOON = 12


def would_change(text: str) -> bool:
    """Return whether a spreadsheet that opens a CSV file shows a text as another number, a date or a boolean."""
    if len(text) > _MAX_SHORT:
        return False
    number = _NUMBER.fullmatch(text)
    if number is not None:
        is_plain = text.isdecimal() and not (text.startswith("0") and len(text) > 1) and len(text) < _NOON
        return not is_plain
    return text.lower() in {"true", "false"} or _read_date(text) is not None or _TIME.fullmatch(text) is not None


def is_spreadsheet_form(stored: str, cell: str) -> bool:
    """Return whether a cell is what a spreadsheet makes of a stored text: the user has not edited it.

    Zeros in front and at the end, exponents, dates and booleans may look different, line breaks too, and a text may end
    after the longest cell of Excel.
    """
    stored, cell = _normalise_lines(stored), _normalise_lines(cell)
    if stored == cell or (stored.lower() in {"true", "false"} and stored.lower() == cell.lower()):
        return True
    if len(cell) > _MAX_CELL // 2 and len(cell.encode("utf-16-le", "surrogatepass")) // 2 >= _MAX_CELL - 1:
        return stored.startswith(cell)
    if len(stored) + len(cell) > _MAX_SHORT:
        return False
    if _NUMBER.fullmatch(stored) and _NUMBER.fullmatch(cell):
        return _is_same_number(stored, cell)
    date = _read_date(stored)
    return date is not None and _is_same_date(date, cell)


def _normalise_lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _is_same_number(stored: str, cell: str) -> bool:
    value, shown = float(stored), float(cell)
    if value == shown:
        return True
    mantissa, exponent, _ = cell.lower().partition("e")
    digits = len(re.sub(r"[^0-9]", "", mantissa)) - 1 if exponent else _EXACT_DIGITS - 1
    if f"{value:.{digits}E}" == f"{shown:.{digits}E}":
        return True
    whole = stored.lstrip("+-0")  # a spreadsheet replaces the digits from the 16th on by zeros
    return whole.isdecimal() and cell.lstrip("+-") == whole[:_EXACT_DIGITS] + "0" * (len(whole) - _EXACT_DIGITS)


def _read_date(text: str) -> list[int] | None:
    # Names of months count as their numbers.
    if _DATE.fullmatch(text.strip()) is None:
        return None
    months = 0

    def number_month(match: re.Match[str]) -> str:
        nonlocal months
        months += 1
        return str(_MONTHS.index(match[1].lower()) + 1) if match[1] else "x"

    bare = re.sub(r"(?i)(?<=[0-9 ])[ap]m$|(?<=[0-9])T(?=[0-9])", " ", text.strip())
    numbered = _MONTH.sub(number_month, bare)
    return None if "x" in numbered or months > 1 else [int(one) for one in re.findall("[0-9]+", numbered)]


def _is_same_date(stored: list[int], cell: str) -> bool:
    # The numbers may be in any order.
    shown = _read_date(cell)
    if shown is None:
        return False
    count = min(3, len(stored))
    date, time = stored[:count], stored[count:]
    if len(shown) > count and cell.lower().endswith(("am", "pm")):
        shown[count] = shown[count] % _NOON + (_NOON if cell.lower().endswith("pm") else 0)
    if len(stored) == len("dm") and len(shown) == len("dmy"):  # a spreadsheet adds the year of today, at either end
        return sorted(date) in (sorted(shown[1:]), sorted(shown[:-1]))
    years = [date, [one % 100 for one in date]]
    return sorted(shown[:count]) in map(sorted, years) and shown[count:] in (time, time[:2])
