"""Cells of spreadsheets as people write them."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from listings.domain import timestamps
from listings.domain.faults import FieldError
from listings.domain.fields import FIELDS
from listings.domain.model import Listing
from listings.domain.spreadsheets import is_spreadsheet_form
from listings.service.transfer.escaping import escape_formula
from listings.service.transfer.rows import COLUMNS, Row

_INTEGER = re.compile(r"(-?\d+)(?:\.0+)?", re.ASCII)
_MAX_INTEGER_LENGTH = 19  # digits of 2**63
_NEGOTIABLE = re.compile(r"(.*\d.*?)[\s,(]+(?:o\.?n\.?o|obo|neg|negotiable)\.?\)?\s*", re.IGNORECASE)
_MAX_PRICE_LENGTH = 100
_DECIMALS = frozenset({"price", "latitude", "longitude"})
_SWAP = str.maketrans(",.", ".,")


def _format_time(moment: int | None) -> str:
    return "" if moment is None else timestamps.format_timestamp(moment)


def _convert_integer(cell: str) -> object:
    match = _INTEGER.fullmatch(cell.strip())
    return int(match[1]) if match is not None and len(match[1]) <= _MAX_INTEGER_LENGTH else cell


CELLS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    name: (FIELDS[name].attribute, FIELDS[name].rule.to_cell)
    if name in FIELDS
    else (name, _format_time if name == "deleted_at" else str)
    for name in COLUMNS
    if name != "version"
}
"""The attribute of each column, and the function that converts its value."""

_CONVERTERS: Mapping[str, Callable[[str], object]] = {
    "id": _convert_integer,
    "view_count": _convert_integer,
    **{name: field.rule.from_cell for name, field in FIELDS.items()},
}


def convert_cells(
    cells: Mapping[str, str], *, decimal_comma: bool
) -> tuple[dict[str, object], Mapping[str, FieldError]]:
    """Return the JSON values of cells by column, and the errors of those that have none. Empty cells are None."""
    content: dict[str, object] = {}
    errors: dict[str, FieldError] = {}
    is_negotiable = False
    for name, cell in cells.items():
        convert = _CONVERTERS.get(name)
        if not cell or convert is None:
            content[name] = cell or None
            continue
        text = cell
        if name in _DECIMALS and not cell.isdecimal():
            if (
                name == "price"
                and not cell[-1].isdigit()
                and (match := _NEGOTIABLE.fullmatch(cell[:_MAX_PRICE_LENGTH]))
            ):
                text, is_negotiable = match[1], True
            if decimal_comma and ("," in text or text.count(".") > 1):
                text = text.translate(_SWAP)
        try:
            value = convert(text)
            content[name] = cell if value is text else value
        except FieldError as error:
            errors[name] = error.with_traceback(None)
    if is_negotiable and not cells.get("price_type"):
        content["price_type"] = "negotiable"
    return content, errors


def drop_stored_cells(row: Row, listing: Listing) -> Row:
    """Return a row without the cells that are what a spreadsheet makes of the stored values."""
    same = {name for name, cell in row.cells.items() if name in CELLS and _is_stored(name, cell, listing)}
    content = {name: value for name, value in row.content.items() if name not in same}
    errors = {name: error for name, error in row.cell_errors.items() if name not in same}
    return row._replace(content=content, cell_errors=errors)


def _is_stored(name: str, cell: str, listing: Listing) -> bool:
    attribute, to_cell = CELLS[name]
    stored = to_cell(getattr(listing, attribute))
    bare = stored.removeprefix("'") if name == "external_id" else stored
    # A CSV file that was saved as a workbook has the escaped cells.
    return cell in {stored, escape_formula(stored)} or is_spreadsheet_form(bare, cell)
