"""What Excel (New Zealand) does to a CSV file that is opened and saved as "CSV UTF-8"."""

import csv
import io
import re
from datetime import datetime

_TRAILING_FROM = 17  # the first row whose last cells Excel may leave out if they are empty
_EXACT = 12  # digits from which on a number is shown with an exponent


def save(data: bytes, *, drop_trailing: bool = False) -> bytes:
    """Return the file as it is after a spreadsheet has opened and saved it."""
    rows = [[change(cell) for cell in row] for row in csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""))]
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    for number, row in enumerate(rows, 1):
        while drop_trailing and number >= _TRAILING_FROM and row and not row[-1]:
            row.pop()
        writer.writerow(row)
    return f"\ufeff{text.getvalue()}".encode()


def change(cell: str) -> str:
    """Return the text of a cell after the spreadsheet has guessed its type."""
    if re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", cell):
        moment = datetime.fromisoformat(cell)
        return f"{moment.day}/{moment:%m/%Y} {moment.hour}:{moment:%M}"
    if re.fullmatch(r"-?\d+(\.\d+)?", cell):
        if "." not in cell and len(cell.lstrip("-")) >= _EXACT:
            return f"{float(cell):.5E}"
        number = float(cell)
        return str(int(number)) if number.is_integer() else repr(number)
    if re.fullmatch(r"\d+E\d+", cell):
        return f"{float(cell):.2E}"
    if cell.lower() in {"true", "false"}:
        return cell.upper()
    return cell.replace("\r\n", "\n")[:32_767]
