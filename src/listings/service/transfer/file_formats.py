"""Read and write files of listings, as JSON lines or CSV."""

import csv
import io
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from hashlib import file_digest
from io import BufferedReader
from operator import methodcaller
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from listings.contract.imports import Position
from listings.domain.errors import Problem
from listings.domain.listing_json import BYTE_ORDER_MARK, OPTIONAL_LISTING_FIELDS, build_record, decode_object
from listings.domain.model import Listing
from listings.domain.number_text import parse_price
from listings.service.transfer.rows import COLUMNS, Row

MAX_ROW_BYTES = 8 * 1024 * 1024
_MAX_HEADER_BYTES = 64 * 1024
_MAX_CELL_LENGTH = 1024 * 1024  # characters
_MAX_EMPTY_ROWS = 10_000
_SKIP_BYTES = 64 * 1024  # read at a time in a row that is too long
_MAX_INTEGER_LENGTH = 19  # digits of 2**63
_MAX_NUMBER_LENGTH = 1_000
_FLOAT_DIGITS = 15  # that a float represents exactly

_FORMULA = r"(?:[\t\r\n]|\s*[=+\-@＝＋－＠])"  # noqa: RUF001 - Excel treats full-width signs like ASCII ones
_TO_ESCAPE = re.compile(f"'*{_FORMULA}")
_ESCAPED = re.compile(f"'+{_FORMULA}")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_INTEGER = re.compile(r"-?\d+", re.ASCII)
_NOT_UTF8 = re.compile("[\udc80-\udcff]")  # invalid bytes after decoding with "surrogateescape"

_encode_lines = msgspec.json.Encoder().encode_lines
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
        """Yield the rows from `start` on. Raises Problem if the header is invalid, or if the file was changed."""
        yield from self._format.read_rows(self._file, start)
        if self._read_state() != self._state:
            raise Problem(
                "invalid_request",
                f"{self._file.name} was changed while it was read: check any listings that were imported from it",
            )

    def _read_state(self) -> tuple[int, int]:
        state = os.fstat(self._file.fileno())
        return state.st_size, state.st_mtime_ns


# Lines and rows


class _Lines:
    """Iterator over the lines of a file after a position. Lines end with LF or CRLF."""

    def __init__(self, file: BinaryIO, start: Position) -> None:
        self.max_row_bytes = MAX_ROW_BYTES
        self._file = file
        self.seek(start)

    def seek(self, position: Position) -> None:
        """Continue at a position, where a row begins."""
        self._file.seek(position.offset)
        self._offset, self.line = position
        self.begin_row()

    def begin_row(self) -> None:
        """Count the bytes of the next lines as one row."""
        self._row_offset = self._offset

    @property
    def position(self) -> Position:
        """The position after the last line that was read."""
        return Position(self._offset, self.line)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        """Return the next line with its line break. Raises ValueError after a line that makes its row too long."""
        line = self._file.readline(self.max_row_bytes + 1)
        if not line:
            raise StopIteration
        self.line += 1
        self._offset += len(line)
        if self._offset - self._row_offset > self.max_row_bytes:
            while line and not line.endswith(b"\n"):
                line = self._file.readline(_SKIP_BYTES)
                self._offset += len(line)
            raise ValueError(f"The row must be at most {self.max_row_bytes} bytes")
        return line if self.line > 1 else line.removeprefix(BYTE_ORDER_MARK)


def _iterate_rows(lines: _Lines, read: Callable[[], Mapping[str, object] | None]) -> Iterator[Row]:
    """Yield the rows that `read` returns, until it raises StopIteration.

    `read` returns None for an empty row, and raises ValueError for a row that can't be parsed; its message says why.
    `_MAX_EMPTY_ROWS` empty rows in succession are yielded as one invalid row, so that the caller regains control.
    """
    empty = 0
    while True:
        number = lines.line + 1
        lines.begin_row()
        content: Mapping[str, object] | None = {}
        reason = None
        try:
            content = read()
        except StopIteration:
            return
        except ValueError as error:
            reason = str(error)
        empty = empty + 1 if content is None else 0
        if empty == _MAX_EMPTY_ROWS:
            content, reason, empty = {}, f"This row and the {_MAX_EMPTY_ROWS - 1:,} before it are empty", 0
        if content is not None:
            yield Row(number, lines.position, content, reason)


# JSON lines


def _encode_json_lines(listings: list[Listing]) -> bytes:
    return _encode_lines(build_record(listing, OPTIONAL_LISTING_FIELDS) for listing in listings)


def _read_json_rows(file: BinaryIO, start: Position) -> Iterator[Row]:
    lines = _Lines(file, start)

    def read() -> Mapping[str, object] | None:
        line = next(lines)
        try:
            return None if line.isspace() else decode_object(line)
        except ValueError as error:
            raise ValueError(f"The row {error}") from None

    return _iterate_rows(lines, read)


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
    price = f"{listing.price_cents // 100}.{listing.price_cents % 100:02}"
    images = " ".join(_decode_urls(listing.images))
    record = msgspec.structs.replace(build_record(listing, OPTIONAL_LISTING_FIELDS), images=images, price=price)
    return [_format_cell(getattr(record, name)) for name in COLUMNS]


def _format_cell(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else escape_formula(str(value))


def _read_csv_rows(file: BinaryIO, start: Position) -> Iterator[Row]:
    csv.field_size_limit(_MAX_CELL_LENGTH)
    lines = _Lines(file, Position())
    decode = methodcaller("decode", "utf-8", "surrogateescape")  # invalid UTF-8 becomes surrogates
    reader = csv.reader(map(decode, lines), strict=True)  # unlike a generator, `map` continues after an error
    lines.max_row_bytes = _MAX_HEADER_BYTES
    header = _read_header(reader, file.name)
    lines.max_row_bytes = MAX_ROW_BYTES
    if start.offset:
        lines.seek(start)

    def read() -> Mapping[str, object] | None:
        try:
            cells = next(reader)
        except csv.Error as error:
            raise ValueError(_describe_csv_error(error)) from None
        return _parse_cells(header, cells) if cells else None

    return _iterate_rows(lines, read)


def _read_header(reader: Iterator[list[str]], name: str) -> list[str]:
    """Return the column names. A name may be empty, because some spreadsheets add a column without one.

    Raises Problem("invalid_request") if the first row names no known column or one column twice, or is not UTF-8.
    """
    try:
        header = [_find_column(cell.strip()) for cell in next(reader, [])]
    except (csv.Error, ValueError):
        header = []
    if not _COLUMN_NAMES.intersection(header):
        raise Problem(
            "invalid_request",
            f"The first line of {name} must name the columns, separated by commas, for example id,title,price",
        )
    if any(map(_NOT_UTF8.search, header)):
        raise Problem("invalid_request", f"The first line of {name} is not valid UTF-8: save the file as CSV UTF-8")
    duplicate = next((column for column, count in Counter(header).items() if column and count > 1), None)
    if duplicate is not None:
        raise Problem("invalid_request", f"The column {duplicate} appears twice in {name}")
    return header


def _find_column(text: str) -> str:
    """Return the column that a header cell names, ignoring case. An unknown name is returned unchanged."""
    name = text.lower()
    return name if name in _COLUMN_NAMES else _SYNONYMS.get(name, text)


def _parse_cells(header: list[str], cells: list[str]) -> dict[str, object]:
    """Return the values of columns with a name. Raises ValueError, whose message is a sentence."""
    if any(map(_NOT_UTF8.search, cells)):
        raise ValueError("The row is not valid UTF-8: save the file as CSV UTF-8")
    if len(cells) != len(header):
        columns = "1 column" if len(cells) == 1 else f"{len(cells)} columns"
        raise ValueError(f"This row has {columns}, but the header has {len(header)}")
    return {
        name: _CONVERTERS.get(name, str)(unescape_formula(cell)) if cell else None
        for name, cell in zip(header, cells, strict=True)
        if name
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
    return float(text) if len(text) <= _MAX_NUMBER_LENGTH and _NUMBER.fullmatch(text) else cell


def _convert_price(cell: str) -> object:
    """Return the dollars in a cell such as "$1,250.50" or "4.5e3", or else its text."""
    number = _convert_number(cell)
    amount = parse_price(cell) if isinstance(number, str) else None
    return number if amount is None else amount


def _convert_integer(cell: str) -> object:
    text = cell.strip()
    return int(text) if _INTEGER.fullmatch(text) and len(text) <= _MAX_INTEGER_LENGTH else cell


def _convert_boolean(cell: str) -> object:
    """Convert a boolean, ignoring case, because spreadsheets write it in capitals."""
    return {"true": True, "false": False}.get(cell.strip().lower(), cell)


_COLUMN_NAMES = frozenset(COLUMNS)
_SYNONYMS: Mapping[str, str] = {"description": "content", "image": "images"}
_CONVERTERS: Mapping[str, Callable[[str], object]] = {
    "id": _convert_integer,
    "images": str.split,
    "price": _convert_price,
    "is_active": _convert_boolean,
    "view_count": _convert_integer,
    "latitude": _convert_number,
    "longitude": _convert_number,
}

_FORMATS: Mapping[str, Format] = {
    ".jsonl": Format("jsonl", b"", _encode_json_lines, _read_json_rows),
    ".csv": Format("csv", BYTE_ORDER_MARK + ",".join(COLUMNS).encode() + b"\r\n", _encode_csv, _read_csv_rows),
}
