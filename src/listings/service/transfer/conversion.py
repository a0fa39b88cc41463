"""Convert the files of spreadsheets to UTF-8 CSV before they are read."""

import codecs
import csv
import io
import re
from collections.abc import Callable, Iterable
from typing import BinaryIO, NamedTuple

from listings.domain.errors import Problem
from listings.service.transfer.columns import Header, ReadOptions, build_header, detect_delimiter
from listings.service.transfer.escaping import escape_formula
from listings.service.transfer.variants import merge_products
from listings.service.transfer.xlsx import Workbook

_PIECE = 1024 * 1024
_ZIP = b"PK\x03\x04"
_UTF_16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_HEADER_BYTES = 64 * 1024
_QUOTED = re.compile(rb'"[^"]*(?:"|$)')
_LINE_END = re.compile(rb"\r\n|\n|\r(?!$)")  # the piece may end within CR LF
_MAX_SHOP_BYTES = 64 * 1024 * 1024  # an export of a shop is in memory


class Converted(NamedTuple):
    """A file in UTF-8: the same file if it was already, or a copy.

    `by_record`: its rows are numbered like those of a spreadsheet, not like lines.
    """

    file: BinaryIO
    by_record: bool
    encoding: str  # before the conversion: "utf-8", "utf-16", "cp1252" or "xlsx"
    header: Header


def convert(file: BinaryIO, name: str, options: ReadOptions, make_copy: Callable[[], BinaryIO]) -> Converted:
    """Return a file of a spreadsheet as UTF-8 CSV. `make_copy` creates an empty file.

    Raises Problem("invalid_request").
    """
    file.seek(0)
    start = file.read(4)
    text, encoding = file, "utf-8"
    if start == _ZIP:
        text, encoding = make_copy(), "xlsx"
        _write_rows(((number, map(escape_formula, row)) for number, row in Workbook(file).read_rows()), text)
    elif name.lower().endswith(".xlsx"):
        raise Problem("invalid_request", f"{name} is not an Excel workbook (.xlsx)")
    else:
        encoding = _UTF_16.get(start[:2]) or _detect_encoding(file)
        text = _decode(file, encoding, make_copy)
    if encoding != "xlsx":
        text = _unify_line_ends(text, make_copy)
    return _merge(text, encoding[:6], name, options, make_copy)


def decode_utf_16(file: BinaryIO, make_copy: Callable[[], BinaryIO]) -> BinaryIO:
    """Return a file in UTF-8: a copy if it begins with a byte-order mark of UTF-16, otherwise the same file."""
    file.seek(0)
    return _decode(file, _UTF_16.get(file.read(2), "utf-8"), make_copy)


def _decode(file: BinaryIO, encoding: str, make_copy: Callable[[], BinaryIO]) -> BinaryIO:
    if encoding == "utf-8":
        return file
    copy = make_copy()
    file.seek(2 if encoding in _UTF_16.values() else 0)
    reader = codecs.getreader(encoding)(file, "replace")
    while piece := reader.read(_PIECE):
        copy.write(piece.encode())
    return copy


def _unify_line_ends(file: BinaryIO, make_copy: Callable[[], BinaryIO]) -> BinaryIO:
    file.seek(0)
    first = _LINE_END.search(_QUOTED.sub(b"", file.read(_HEADER_BYTES)))
    if first is None or first[0] != b"\r":  # as in "CSV (Macintosh)" of Excel
        return file
    copy = make_copy()
    file.seek(0)
    while piece := file.read(_PIECE):
        copy.write(piece.replace(b"\r", b"\n"))
    return copy


def _merge(
    file: BinaryIO, encoding: str, name: str, options: ReadOptions, make_copy: Callable[[], BinaryIO]
) -> Converted:
    delimiter, is_said, header = _read_header(file, name, options)
    same = Converted(file, encoding == "xlsx", encoding, header)
    if header.shop is None:
        return same
    file.seek(0)
    data = file.read(_MAX_SHOP_BYTES + 1)
    if len(data) > _MAX_SHOP_BYTES:
        raise Problem("invalid_request", f"{name} is too large for an export of {header.shop}: split it")
    try:
        rows = list(
            csv.reader(io.StringIO(data.decode("utf-8-sig", "surrogateescape"), newline=""), delimiter=delimiter)
        )
    except csv.Error:  # its rows are rejected one by one
        return same
    start = next(number for number, row in enumerate(rows, 1) if any(row)) if is_said else 0  # after "sep=;"
    if not merge_products(header.shop, rows[start:], skip_variants=options.skip_variants):
        return same
    copy = make_copy()
    _write_rows(((number, row) for number, row in enumerate(rows, 1) if row), copy, delimiter)
    return Converted(copy, by_record=True, encoding=encoding, header=header)


def _read_header(file: BinaryIO, name: str, options: ReadOptions) -> tuple[str, bool, Header]:
    file.seek(0)
    start = file.read(_HEADER_BYTES)
    delimiter, is_said = detect_delimiter(start)
    text = start.decode("utf-8-sig", "replace")
    rows = csv.reader(io.StringIO(text.partition("\n")[2] if is_said else text, newline=""), delimiter=delimiter)
    try:
        cells = next((row for row in rows if any(cell.strip() for cell in row)), [])
    except csv.Error:
        cells = []
    return delimiter, is_said, build_header(cells, name, options)


def _detect_encoding(file: BinaryIO) -> str:
    # It is Windows-1252 if it is not UTF-8, and has none of the characters that UTF-8 encodes in several bytes.
    file.seek(0)
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    is_valid, has_long = True, False
    while piece := file.read(_PIECE):
        text = decoder.decode(piece)
        if not text.isascii():
            is_valid = is_valid and not any("\udc80" <= one <= "\udcff" for one in text)
            has_long = has_long or any(one > "\x7f" and not "\udc80" <= one <= "\udcff" for one in text)
    return "utf-8" if is_valid or has_long else "cp1252"


def _write_rows(rows: Iterable[tuple[int, Iterable[str]]], copy: BinaryIO, delimiter: str = ",") -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\r\n")
    written = 0
    for number, cells in rows:
        text.write("\r\n" * (number - 1 - written))  # blank lines for rows without cells
        writer.writerow(cells)
        written = number
        if text.tell() > _PIECE:
            copy.write(text.getvalue().encode("utf-8", "surrogateescape"))
            text.seek(0)
            text.truncate()
    copy.write(text.getvalue().encode("utf-8", "surrogateescape"))
