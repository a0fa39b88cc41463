"""Read and write files of listings: JSON lines, CSV and Excel workbooks."""

import csv
import hashlib
import io
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from hashlib import file_digest
from io import BufferedReader
from operator import methodcaller
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeAlias

import msgspec

from listings.domain.errors import Problem
from listings.domain.faults import FieldError
from listings.domain.imports import Position
from listings.domain.listing_json import BYTE_ORDER_MARK, OPTIONAL_LISTING_FIELDS, build_record, decode_object
from listings.domain.model import Listing
from listings.service.transfer.cells import CELLS, convert_cells
from listings.service.transfer.columns import Header, ReadOptions, build_header, detect_delimiter
from listings.service.transfer.conversion import convert, decode_utf_16
from listings.service.transfer.escaping import escape_formula
from listings.service.transfer.rows import COLUMNS, SCANNED, Row
from listings.service.transfer.xlsx import ERROR, WorkbookWriter

MAX_ROW_BYTES = 8 * 1024 * 1024
_MAX_HEADER_BYTES = 64 * 1024
_MAX_CELL_LENGTH = 1024 * 1024  # characters
_MAX_BLANK_LINES = 32  # in succession that are read one by one
_SKIP_BYTES = 64 * 1024  # read at a time in a row that is too long, and in a gap

_BLANK_JSON = re.compile(rb"(?:[ \t\r\v\f]*+\n)++")
_BLANK_CSV = re.compile(rb"(?:\r*+\n)++")
_NOT_UTF8 = re.compile("[\udc80-\udcff]")  # invalid bytes after decoding with "surrogateescape"

_encode_lines = msgspec.json.Encoder().encode_lines
_DEFAULT = ReadOptions()


class Format(NamedTuple):
    """A file format: how listings are written and rows are read."""

    name: str
    header: bytes
    encode: Callable[..., bytes]
    read_rows: Callable[..., Iterator[Row]]
    finish: Callable[[], bytes] = bytes


def begin_export(file_format: Format, origin: str) -> Format:
    """Return a format that encodes one file, whose versions end with `origin`."""
    if file_format.name != "xlsx":
        return file_format._replace(encode=partial(file_format.encode, origin=origin))
    writer = WorkbookWriter()

    def encode(listings: list[Listing]) -> bytes:
        return writer.write(_build_cells(listing, origin, is_text=True) for listing in listings)

    return file_format._replace(header=writer.write([COLUMNS]), encode=encode, finish=writer.finish)


def detect_format(path: Path) -> Format:
    """Return the format of a file by its extension. Raises ValueError if it is unknown."""
    found = _FORMATS.get(path.suffix.lower())
    if found is None:
        raise ValueError(f"must end in {' or '.join(_FORMATS)}")
    return found


class ImportFile:
    """A file on disk to import (`listings.service.transfer.rows.Source`)."""

    def __init__(self, file: BufferedReader, file_format: Format, options: ReadOptions = _DEFAULT) -> None:
        """`file` must be seekable. Raises Problem("invalid_request") if it is empty or can't be converted."""
        self._file = file
        self._format = file_format
        self._options = options
        self._state = self._read_state()
        if not self._state[0]:
            raise Problem("invalid_request", f"{file.name} is empty")
        self._by_record, self.encoding = False, "utf-8"
        with ExitStack() as copies:

            def make_copy() -> BinaryIO:
                return copies.enter_context(tempfile.TemporaryFile())

            if file_format.name == "jsonl":
                self._text = decode_utf_16(file, make_copy)
            else:
                converted = convert(file, file.name, options, make_copy)
                converted.header.require_title(file.name)
                self._text, self._by_record, self.encoding = converted[:3]
            self.close = copies.pop_all().close  # deletes temporary copies
        self.size = self._text.seek(0, os.SEEK_END)

    @property
    def format(self) -> str:
        return self._format.name

    def digest(self) -> bytes:
        self._file.seek(0)
        return extend_digest(file_digest(self._file, "sha256").digest(), self._options)

    def rows(self, start: Position) -> Iterator[Row]:
        """Yield the rows from `start` on. Raises Problem if the header is invalid, or if the file was changed."""
        yield from self._format.read_rows(self._text, start, self._options, self._file.name, self._by_record)
        if self._read_state() != self._state:
            raise Problem(
                "invalid_request",
                f"{self._file.name} was changed while it was read: check any listings that were imported from it",
            )

    def scan_rows(self) -> Iterator[Row]:
        """Yield all rows with the columns of `SCANNED` only."""
        options = self._options._replace(only=SCANNED)
        return self._format.read_rows(self._text, Position(), options, self._file.name, self._by_record)

    def _read_state(self) -> tuple[int, int]:
        state = os.fstat(self._file.fileno())
        return state.st_size, state.st_mtime_ns


def extend_digest(digest: bytes, options: ReadOptions) -> bytes:
    """Return the digest of a file and the options with which it is read: with the default ones, that of the file."""
    if options == _DEFAULT:
        return digest
    described = repr((sorted(options.mapping.items()), options.keep_text, options.skip_variants))
    return hashlib.sha256(digest + described.encode()).digest()


# Lines and rows


# The content, cells and cell errors of a row
_Parsed: TypeAlias = tuple[Mapping[str, object], Mapping[str, str], Mapping[str, FieldError]]


class _Lines:
    def __init__(self, file: BinaryIO, start: Position) -> None:
        self.max_row_bytes = MAX_ROW_BYTES
        self._file = file
        self.seek(start)

    def seek(self, position: Position) -> None:
        self._file.seek(position.offset)
        self._offset, self.line = position
        self.begin_row()

    def begin_row(self) -> None:
        self.row_offset = self._offset  # from which `max_row_bytes` are counted

    @property
    def position(self) -> Position:
        return Position(self._offset, self.line)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        line = self._file.readline(self.max_row_bytes + 1)
        if not line:
            raise StopIteration
        self.line += 1
        self._offset += len(line)
        if self._offset - self.row_offset > self.max_row_bytes:
            while line and not line.endswith(b"\n"):
                line = self._file.readline(_SKIP_BYTES)
                self._offset += len(line)
            raise ValueError(f"The row must be at most {self.max_row_bytes} bytes")
        return line if self.line > 1 else line.removeprefix(BYTE_ORDER_MARK)

    def skip(self, blank: re.Pattern[bytes]) -> int:
        read = self._file.read(_SKIP_BYTES)  # because one call for each line would be slow
        found = blank.match(read)
        size = found.end() if found is not None else 0
        self.line += read.count(b"\n", 0, size)
        self._offset += size
        self._file.seek(self._offset)
        return size


def _iterate_rows(
    lines: _Lines, blank: re.Pattern[bytes], read: Callable[[], _Parsed | None], *, by_record: bool = False
) -> Iterator[Row]:
    # `read` returns None for a blank line, many of which match `blank`. It raises ValueError with a sentence for a row
    # that can't be parsed, and StopIteration at the end.
    blank_lines = 0
    while True:
        number = lines.line + 1
        lines.begin_row()
        parsed: _Parsed | None = ({}, {}, {})
        reason = None
        try:
            parsed = read()
        except StopIteration:
            return
        except ValueError as error:
            reason = str(error)
        if by_record:
            lines.line = number
        if parsed is not None:
            content, cells, errors = parsed
            yield Row(number, lines.row_offset, lines.position, content, reason, cells=cells, cell_errors=errors)
        blank_lines = blank_lines + 1 if parsed is None else 0
        if blank_lines > _MAX_BLANK_LINES and lines.skip(blank) > _SKIP_BYTES // 2:
            yield Row(number, lines.row_offset, lines.position, {}, is_gap=True)


# JSON lines


def _encode_json_lines(listings: list[Listing], origin: str = "") -> bytes:
    lines = _encode_lines(build_record(listing, OPTIONAL_LISTING_FIELDS) for listing in listings).splitlines()
    versions = (f',"version":"{_format_version(listing, origin)}"}}\n'.encode() for listing in listings)
    return b"".join(line[:-1] + version for line, version in zip(lines, versions, strict=True))


def _format_version(listing: Listing, origin: str) -> str:
    return f"v{listing.version}-{origin}"


def _read_json_rows(file: BinaryIO, start: Position, *_: object) -> Iterator[Row]:
    lines = _Lines(file, start)

    def read() -> _Parsed | None:
        line = next(lines)
        try:
            return None if line.isspace() else (decode_object(line), {}, {})
        except ValueError as error:
            raise ValueError(f"The row {error}") from None

    return _iterate_rows(lines, _BLANK_JSON, read)


# CSV


def _encode_csv(listings: list[Listing], origin: str = "") -> bytes:
    text = io.StringIO()
    rows = (map(escape_formula, _build_cells(listing, origin)) for listing in listings)
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue().encode()


def _build_cells(listing: Listing, origin: str, *, is_text: bool = False) -> list[str]:
    cells = [to_cell(getattr(listing, attribute)) for attribute, to_cell in CELLS.values()]
    own_id = listing.external_id
    if is_text and own_id and own_id == own_id.strip() and not own_id.startswith("'"):
        cells[-1] = own_id  # a spreadsheet keeps a text cell as it is
    return [*cells, _format_version(listing, origin)]


class _Table(NamedTuple):
    reader: Iterator[list[str]]
    header: Header
    delimiter: str


def _open_table(lines: _Lines, file: BinaryIO, options: ReadOptions, name: str, *, by_record: bool) -> _Table:
    csv.field_size_limit(_MAX_CELL_LENGTH)
    delimiter, is_said = detect_delimiter(file.read(_MAX_HEADER_BYTES))
    lines.seek(Position())
    if is_said:
        next(lines)
    decode = methodcaller("decode", "utf-8", "surrogateescape")  # invalid UTF-8 becomes surrogates
    # Unlike a generator, `map` continues after an error.
    reader = csv.reader(map(decode, lines), delimiter=delimiter, strict=True)
    lines.max_row_bytes = _MAX_HEADER_BYTES
    cells: list[str] = []
    count = 0
    try:
        while not any(cell.strip() for cell in cells):
            cells = next(reader)
            count += 1
    except (csv.Error, ValueError, StopIteration):
        cells = []
    lines.max_row_bytes = MAX_ROW_BYTES
    if by_record:
        lines.line = count
    if any(map(_NOT_UTF8.search, cells)):
        raise Problem("invalid_request", f"The first line of {name} is not valid UTF-8: save the file as CSV UTF-8")
    header = build_header(cells, name, options)
    header.require_any(name)
    return _Table(reader, header, delimiter)


def read_csv_rows(
    file: BinaryIO,
    start: Position,
    options: ReadOptions = _DEFAULT,
    name: str = "",
    by_record: bool = False,  # noqa: FBT001, FBT002 - as Format calls it
) -> Iterator[Row]:
    """Yield the rows of a CSV file in UTF-8 from `start` on. `by_record`: count rows, not lines."""
    lines = _Lines(file, Position())
    table = _open_table(lines, file, options, name or file.name, by_record=by_record)
    if start.offset:
        lines.seek(start)

    def read() -> _Parsed | None:
        try:
            cells = next(table.reader)
        except csv.Error as error:
            raise ValueError(_describe_csv_error(error)) from None
        return _parse_cells(table, cells, options, by_record=by_record)

    return _iterate_rows(lines, _BLANK_CSV, read, by_record=by_record)


def _parse_cells(table: _Table, cells: list[str], options: ReadOptions, *, by_record: bool) -> _Parsed | None:
    if not any(cells) or not any(map(str.strip, cells)):
        return None
    if any(map(_NOT_UTF8.search, cells)):
        raise ValueError("The row is not valid UTF-8: save the file as CSV UTF-8")
    names = table.header.names
    while len(cells) > len(names) and not cells[-1].strip():
        cells.pop()
    if len(cells) > len(names):
        raise ValueError(f"This row has {len(cells)} columns, but the header has {len(names)}")
    if by_record and (
        fault := next(((name, one) for name, one in zip(names, cells, strict=False) if one[:1] == ERROR), None)
    ):
        raise ValueError(f"The column {fault[0] or 'without a name'} has {fault[1][1:]}: enter a value")
    texts = table.header.read(cells, convert_text=not options.keep_text)
    content, errors = convert_cells(texts, decimal_comma=table.delimiter == ";")
    return content, texts, errors


def _describe_csv_error(error: csv.Error) -> str:
    if "field limit" in str(error):
        return f"A cell must be at most {_MAX_CELL_LENGTH} characters: check for a missing closing quote"
    if "end of data" in str(error):
        return "The row ends within a quoted cell"
    return "The row is not valid CSV: put a cell with a quote or a line break in quotes, and double its quotes"


_HEADER = BYTE_ORDER_MARK + ",".join(COLUMNS).encode() + b"\r\n"
_CSV = Format("csv", _HEADER, _encode_csv, read_csv_rows)
_FORMATS: Mapping[str, Format] = {
    ".jsonl": Format("jsonl", b"", _encode_json_lines, _read_json_rows),
    ".csv": _CSV,
    ".xlsx": _CSV._replace(name="xlsx", header=b""),
    ".tsv": _CSV,
}
