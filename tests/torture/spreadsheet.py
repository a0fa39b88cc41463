"""Check CSV exports: a spreadsheet finds no formula in them, and an import finds every value."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from listings.contract.imports import Position
from listings.domain.model import Listing
from listings.service.transfer.file_formats import detect_format

_SIGNS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")  # Excel treats full-width signs like ASCII ones
FORMULAS = (*(f"{sign}1" for sign in _SIGNS), "\t1", "\r1", "\n=1", "  =1", "\xa0@A1", "'=1", "''+1")
_TEXTS = ("title", "content", "category", "location", "region", "district", "external_id")


class _File(io.BytesIO):
    name = "listings.csv"


def check_csv(listings: Sequence[Listing]) -> tuple[int, list[str]]:
    """Export listings and read the file. Return the number of its cells and the failures."""
    csv_format = detect_format(Path("listings.csv"))
    data = csv_format.header + csv_format.encode(list(listings))
    rows = list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline="")))
    cells = [cell for row in rows[1:] for cell in row]
    failures = [f"CSV: the cell {cell[:40]!r} is a formula" for cell in cells if is_formula(cell)]
    contents = [row.content for row in csv_format.read_rows(_File(data), Position())]
    if len(contents) != len(listings):
        failures.append(f"CSV: {len(contents)} of {len(listings)} rows were read")
    for listing, content in zip(listings, contents, strict=False):
        failures += [
            f"CSV: {name} of listing {listing.id} was read as {content[name]!r:.60}"
            for name in _TEXTS
            if (content[name] or "") != (getattr(listing, name) or "")
        ]
    return len(cells), failures


def is_formula(cell: str) -> bool:
    """Return whether a spreadsheet may run a cell. Some skip white space, and some treat a line break like a cell."""
    return cell.startswith(("\t", "\r", "\n")) or cell.strip().startswith(_SIGNS)
