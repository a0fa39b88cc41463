"""Read and write files of listings, as JSON lines or CSV."""

import csv
import io
import os
import re
from collections.abc import Callable, Iterator, Mapping
from hashlib import file_digest
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from listings.contract.imports import Position
from listings.domain.errors import Problem
from listings.domain.listing_json import EXTRA_FIELDS, Record, build_record, decode_object
from listings.domain.model import Listing
from listings.service.transfer.rows import COLUMNS, Row

MAX_ROW_BYTES = 8 * 1024 * 1024
_MAX_CELL_LENGTH = 1024 * 1024  # characters
_SKIP_BYTES = 64 * 1024  # read at a time in a row that is too long
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MAX_INTEGER_LENGTH = 19  # digits of 2**63
_FLOAT_DIGITS = 15  # that a float represents exactly

_TO_ESCAPE = re.compile(r"'*[=+\-@\t\r]")
_ESCAPED = re.compile(r"'+[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_INTEGER = re.compile(r"-?\d+", re.ASCII)
_NOT_UTF8 = re.compile("[\udc80-\udcff]")  # invalid bytes after decoding with "surrogateescape"

_encode = msgspec.json.Encoder().encode
_decode_urls = msgspec.json.Decoder(list[str]).decode


class Format(NamedTuple):
    """A file format: how listings are written and rows are read."""

    name: str
    header: bytes
    encode: Callable[[list[Listing]], bytes]
    read_rows: Callable[[BinaryIO, Position], Iterator[Row]]


def detect_format(path: Path) -> Format:
    """Return the format of a file by its extension. Raises ValueError if it is unknown."""
    found = _FORMATS.get(path.suffix.lower())
    if found is None:
        raise ValueError(f"must end in {' or '.join(_FORMATS)}")
    return found


class ImportFile:
    """A file on disk to import (`listings.service.transfer.rows.Source`)."""

    def __init__(self, file: BufferedReader, file_format: Format) -> None:
        """`file` must be seekable. Raises Problem("invalid_request") if it is empty."""
        self._file = file
        self._format = file_format
        self.size = os.fstat(file.fileno()).st_size
        self._state = self._read_state()
        if not self.size:
            raise Problem("invalid_request", f"{file.name} is empty")

    @property
    def format(self) -> str:
        return self._format.name

    def digest(self) -> bytes:
        self._file.seek(0)
        return file_digest(self._file, "sha256").digest()

    def rows(self, start: Position) -> Iterator[Row]:
        """Yield the rows after a position. Raises Problem if a CSV file has no header, or if the file was changed."""
        yield from self._format.read_rows(self._file, start)
        if self._read_state() != self._state:
            raise Problem(
                "invalid_request", f"{self._file.name} was changed while it was read: check the imported listings"
            )

    def _read_state(self) -> tuple[int, int]:
        state = os.fstat(self._file.fileno())
        return state.st_size, state.st_mtime_ns


def build_export_record(listing: Listing) -> Record:
    """Return the record of a listing with all extra fields."""
    return build_record(listing, EXTRA_FIELDS)


# Lines


class _RowTooLong(Exception):
    """A row that exceeds `MAX_ROW_BYTES`."""


class _Lines:
    """Iterator over the lines of a file after a position. Lines end with LF or CRLF."""

    def __init__(self, file: BinaryIO, start: Position) -> None:
        self._file = file
        self.seek(start)

    def seek(self, position: Position) -> None:
        """Continue from a position."""
        self._file.seek(position.offset)
        self._offset, self.line = position

    @property
    def position(self) -> Position:
        """The position after the last line that was read."""
        return Position(self._offset, self.line)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        """Return the next line with its line break. Raises _RowTooLong after reading past a line that is too long."""
        line = self._file.readline(MAX_ROW_BYTES + 1)
        if not line:
            raise StopIteration
        self.line += 1
        self._offset += len(line)
        if len(line) <= MAX_ROW_BYTES:
            return line if self.line > 1 else line.removeprefix(_BYTE_ORDER_MARK)
        while line and not line.endswith(b"\n"):
            line = self._file.readline(_SKIP_BYTES)
            self._offset += len(line)
        raise _RowTooLong


_TOO_LONG = f"The row must be at most {MAX_ROW_BYTES} bytes"


# JSON lines


def _encode_json_lines(listings: list[Listing]) -> bytes:
    return b"".join(_encode(build_export_record(listing)) + b"\n" for listing in listings)


def _read_json_rows(file: BinaryIO, start: Position) -> Iterator[Row]:
    lines = _Lines(file, start)
    while True:
        number = lines.line + 1
        content: Mapping[str, object] = {}
        reason = None
        try:
            line = next(lines)
            if line.isspace():
                continue
            content = decode_object(line)
        except StopIteration:
            return
        except _RowTooLong:
            reason = _TOO_LONG
        except ValueError as error:
            reason = f"The row {error}"
        yield Row(number, lines.position, content, reason)


# CSV


def escape_formula(text: str) -> str:
    """Escape a cell that a spreadsheet would run as a formula (OWASP, "CSV Injection")."""
    return f"'{text}" if _TO_ESCAPE.match(text) else text


def unescape_formula(cell: str) -> str:
    """Reverse `escape_formula`."""
    return cell[1:] if _ESCAPED.match(cell) else cell


def _encode_csv(listings: list[Listing]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(map(_build_cells, listings))
    return text.getvalue().encode()


def _build_cells(listing: Listing) -> list[str]:
    record = build_export_record(listing)
    record = msgspec.structs.replace(
        record, images=" ".join(_decode_urls(listing.images)), price=_format_price(listing)
    )
    return [_format_cell(value) for value in msgspec.structs.astuple(record)]


def _format_price(listing: Listing) -> str:
    return f"{listing.price_cents // 100}.{listing.price_cents % 100:02}"


def _format_cell(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else escape_formula(str(value))


class _DecodedLines:
    """Iterator over the decoded lines of a row. Invalid UTF-8 becomes surrogates."""

    def __init__(self, lines: _Lines) -> None:
        self._lines = lines
        self.row_bytes = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self.row_bytes += len(line)
        if self.row_bytes > MAX_ROW_BYTES:
            raise _RowTooLong
        return line.decode("utf-8", "surrogateescape")


def _read_csv_rows(file: BinaryIO, start: Position) -> Iterator[Row]:
    csv.field_size_limit(_MAX_CELL_LENGTH)
    lines = _Lines(file, Position())
    decoded = _DecodedLines(lines)
    reader = csv.reader(decoded, strict=True)
    header = _read_header(reader, file.name)
    if start.offset:
        lines.seek(start)
    while True:
        number = lines.line + 1
        decoded.row_bytes = 0
        content: Mapping[str, object] = {}
        reason = None
        try:
            cells = next(reader)
            if not cells:
                continue
            content = _parse_cells(header, cells)
        except StopIteration:
            return
        except _RowTooLong:
            reason = _TOO_LONG
        except csv.Error as error:
            reason = _describe_csv_error(error)
        except ValueError as error:
            reason = str(error)
        yield Row(number, lines.position, content, reason)


def _read_header(reader: Iterator[list[str]], name: str) -> list[str]:
    """Return the column names. Raises Problem("invalid_request") if the first row has none, or one of them twice."""
    try:
        header = [cell.strip() for cell in next(reader, [])]
    except (csv.Error, _RowTooLong):
        header = []
    if not _COLUMN_NAMES.intersection(header):
        raise Problem(
            "invalid_request",
            f"The first line of {name} must name the columns, separated by commas, for example id,title,price",
        )
    duplicates = [column for column in header if header.count(column) > 1]
    if duplicates:
        raise Problem("invalid_request", f"The column {duplicates[0]} appears twice in {name}")
    return header


def _parse_cells(header: list[str], cells: list[str]) -> dict[str, object]:
    """Return the values by column. Raises ValueError, whose message is a sentence."""
    if any(map(_NOT_UTF8.search, cells)):
        raise ValueError("The row is not valid UTF-8")
    if len(cells) != len(header):
        columns = "1 column" if len(cells) == 1 else f"{len(cells)} columns"
        raise ValueError(f"This row has {columns}, but the header has {len(header)}")
    return {
        name: _CONVERTERS.get(name, str)(unescape_formula(cell)) if cell else None
        for name, cell in zip(header, cells, strict=True)
    }


def _describe_csv_error(error: csv.Error) -> str:
    if "field limit" in str(error):
        return f"A cell must be at most {_MAX_CELL_LENGTH} characters: check for a missing closing quote"
    if "end of data" in str(error):
        return "The row ends within a quoted cell"
    return "The row is not valid CSV: put a cell with a quote or a line break in quotes, and double its quotes"


def _convert_number(cell: str) -> object:
    """Return the number in a cell, or else its text, so that the rule of the field reports the error."""
    text = cell.strip()
    if _INTEGER.fullmatch(text) and len(text) <= _FLOAT_DIGITS:
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else cell


def _convert_integer(cell: str) -> object:
    text = cell.strip()
    return int(text) if _INTEGER.fullmatch(text) and len(text) <= _MAX_INTEGER_LENGTH else cell


def _convert_boolean(cell: str) -> object:
    """Convert a boolean in any case, because spreadsheets write them in capitals."""
    return {"true": True, "false": False}.get(cell.strip().lower(), cell)


_COLUMN_NAMES = frozenset(COLUMNS)
_CONVERTERS: Mapping[str, Callable[[str], object]] = {
    "id": _convert_integer,
    "images": str.split,
    "price": _convert_number,
    "is_active": _convert_boolean,
    "view_count": _convert_integer,
    "latitude": _convert_number,
    "longitude": _convert_number,
}

_FORMATS: Mapping[str, Format] = {
    ".jsonl": Format("jsonl", b"", _encode_json_lines, _read_json_rows),
    ".csv": Format("csv", _BYTE_ORDER_MARK + ",".join(COLUMNS).encode() + b"\r\n", _encode_csv, _read_csv_rows),
}
