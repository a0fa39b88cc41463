"""The two formats of a file of listings, JSON lines and CSV: rows out of bytes, bytes out of listings."""

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
from listings.domain.listing_json import EVERYTHING, Record, decode_object, record_of
from listings.domain.model import Listing
from listings.service.transfer.rows import COLUMNS, Row

LONGEST_ROW = 8 * 1024 * 1024
_LONGEST_CELL = 1024 * 1024  # characters
_SKIPPED = 64 * 1024
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LONGEST_WHOLE = 19  # digits of 2**63
_EXACT = 15  # digits that a float keeps

_TO_ESCAPE = re.compile(r"'*[=+\-@\t\r]")
_ESCAPED = re.compile(r"'+[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_WHOLE = re.compile(r"-?\d+", re.ASCII)
_NOT_UTF8 = re.compile("[\udc80-\udcff]")  # what "surrogateescape" makes of wrong bytes

_encode = msgspec.json.Encoder().encode
_addresses = msgspec.json.Decoder(list[str]).decode


class Format(NamedTuple):
    """How listings are written and how rows are read."""

    name: str
    header: bytes
    encode: Callable[[list[Listing]], bytes]
    rows: Callable[[BinaryIO, Position], Iterator[Row]]


def format_of(path: Path) -> Format:
    """The format that a file's name tells. ValueError for any other name."""
    found = _FORMATS.get(path.suffix.lower())
    if found is None:
        raise ValueError(f"must end in {' or '.join(_FORMATS)}, which tells the format")
    return found


class File:
    """A file to be imported (`listings.service.transfer.rows.Source`)."""

    def __init__(self, file: BufferedReader, form: Format) -> None:
        """`file` can be read anywhere. Raises Problem("invalid_request") when it is empty."""
        self._file = file
        self._form = form
        self.size = os.fstat(file.fileno()).st_size
        self._state = self._look()
        if not self.size:
            raise Problem("invalid_request", f"{file.name} is empty")

    @property
    def format(self) -> str:
        """The name of its format."""
        return self._form.name

    def digest(self) -> bytes:
        """SHA-256 of the file."""
        self._file.seek(0)
        return file_digest(self._file, "sha256").digest()

    def rows(self, start: Position) -> Iterator[Row]:
        """Its rows behind a place. Raises Problem when there is no header, and when the file has been changed."""
        yield from self._form.rows(self._file, start)
        if self._look() != self._state:
            raise Problem(
                "invalid_request", f"{self._file.name} was changed while it was read; look at what is imported"
            )

    def _look(self) -> tuple[int, int]:
        state = os.fstat(self._file.fileno())
        return state.st_size, state.st_mtime_ns


def exported(listing: Listing) -> Record:
    """All of a listing that a file holds: the record as the API shows it, with everything that can be added."""
    return record_of(listing, EVERYTHING)


# Lines


class _RowTooLong(Exception):
    """A row of more bytes than anybody means."""


class _Lines:
    """The lines of a file behind a place, with the place behind the last one; they end with LF alone or behind CR."""

    def __init__(self, file: BinaryIO, start: Position) -> None:
        self._file = file
        self.go_to(start)

    def go_to(self, place: Position) -> None:
        """Read on from here."""
        self._file.seek(place.offset)
        self._offset, self.line = place

    @property
    def place(self) -> Position:
        """Behind the last line that was read."""
        return Position(self._offset, self.line)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        """The next line with its end. Raises _RowTooLong behind one that is over the cap."""
        line = self._file.readline(LONGEST_ROW + 1)
        if not line:
            raise StopIteration
        self.line += 1
        self._offset += len(line)
        if len(line) <= LONGEST_ROW:
            return line if self.line > 1 else line.removeprefix(_BYTE_ORDER_MARK)
        while line and not line.endswith(b"\n"):
            line = self._file.readline(_SKIPPED)
            self._offset += len(line)
        raise _RowTooLong


_TOO_LONG = f"The row must be at most {LONGEST_ROW} bytes"


# JSON lines


def _encode_lines(listings: list[Listing]) -> bytes:
    return b"".join(_encode(exported(listing)) + b"\n" for listing in listings)


def _json_rows(file: BinaryIO, start: Position) -> Iterator[Row]:
    lines = _Lines(file, start)
    while True:
        number = lines.line + 1
        content: Mapping[str, object] = {}
        fault = None
        try:
            line = next(lines)
            if line.isspace():
                continue
            content = decode_object(line)
        except StopIteration:
            return
        except _RowTooLong:
            fault = _TOO_LONG
        except ValueError as error:
            fault = f"The row {error}"
        yield Row(number, lines.place, content, fault)


# CSV


def escaped(text: str) -> str:
    """A cell that no spreadsheet takes for a formula, as OWASP's "CSV Injection" has it."""
    return f"'{text}" if _TO_ESCAPE.match(text) else text


def unescaped(cell: str) -> str:
    """The text that was escaped."""
    return cell[1:] if _ESCAPED.match(cell) else cell


def _encode_cells(listings: list[Listing]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(map(_cells, listings))
    return text.getvalue().encode()


def _cells(listing: Listing) -> list[str]:
    record = exported(listing)
    record = msgspec.structs.replace(record, images=" ".join(_addresses(listing.images)), price=_price(listing))
    return [_cell(value) for value in msgspec.structs.astuple(record)]


def _price(listing: Listing) -> str:
    return f"{listing.price_cents // 100}.{listing.price_cents % 100:02}"


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else escaped(str(value))


class _Texts:
    """Lines as text, as many as a row takes; wrong UTF-8 is marked."""

    def __init__(self, lines: _Lines) -> None:
        self._lines = lines
        self.taken = 0  # bytes of the present row

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self.taken += len(line)
        if self.taken > LONGEST_ROW:
            raise _RowTooLong
        return line.decode("utf-8", "surrogateescape")


def _csv_rows(file: BinaryIO, start: Position) -> Iterator[Row]:
    csv.field_size_limit(_LONGEST_CELL)
    lines = _Lines(file, Position())
    texts = _Texts(lines)
    reader = csv.reader(texts, strict=True)
    header = _header(reader, file.name)
    if start.offset:
        lines.go_to(start)
    while True:
        number = lines.line + 1
        texts.taken = 0
        content: Mapping[str, object] = {}
        fault = None
        try:
            cells = next(reader)
            if not cells:
                continue
            content = _content(header, cells)
        except StopIteration:
            return
        except _RowTooLong:
            fault = _TOO_LONG
        except csv.Error as error:
            fault = _sentence(error)
        except ValueError as error:
            fault = str(error)
        yield Row(number, lines.place, content, fault)


def _header(reader: Iterator[list[str]], name: str) -> list[str]:
    """The names of the columns. Raises Problem("invalid_request") when the first row has none."""
    try:
        header = [cell.strip() for cell in next(reader, [])]
    except (csv.Error, _RowTooLong):
        header = []
    if not _NAMES.intersection(header):
        raise Problem(
            "invalid_request",
            f"The first line of {name} must name the columns, with commas between them, for example id,title,price",
        )
    twice = [column for column in header if header.count(column) > 1]
    if twice:
        raise Problem("invalid_request", f"The column {twice[0]} stands in {name} twice")
    return header


def _content(header: list[str], cells: list[str]) -> dict[str, object]:
    """The cells as values by their columns. ValueError with a sentence."""
    if any(map(_NOT_UTF8.search, cells)):
        raise ValueError("The row is not valid UTF-8")
    if len(cells) != len(header):
        raise ValueError(f"The row must have as many cells as the header, {len(header)}, got {len(cells)}")
    return {
        name: _VALUES.get(name, str)(unescaped(cell)) if cell else None
        for name, cell in zip(header, cells, strict=True)
    }


def _sentence(error: csv.Error) -> str:
    if "field limit" in str(error):
        return f"A cell must be at most {_LONGEST_CELL} characters; is the quote behind it missing?"
    if "end of data" in str(error):
        return "The row ends within a quoted cell"
    return "The row is not valid CSV: a cell with a quote or a line break stands in quotes, its own quotes doubled"


def _number(cell: str) -> object:
    """A number where the cell is one, else the text, so that the field's rule tells what is wrong."""
    text = cell.strip()
    if _WHOLE.fullmatch(text) and len(text) <= _EXACT:
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else cell


def _whole(cell: str) -> object:
    text = cell.strip()
    return int(text) if _WHOLE.fullmatch(text) and len(text) <= _LONGEST_WHOLE else cell


def _flag(cell: str) -> object:
    """Spreadsheets write booleans in capitals."""
    return {"true": True, "false": False}.get(cell.strip().lower(), cell)


_NAMES = frozenset(COLUMNS)
_VALUES: Mapping[str, Callable[[str], object]] = {
    "id": _whole,
    "images": str.split,
    "price": _number,
    "is_active": _flag,
    "view_count": _whole,
    "latitude": _number,
    "longitude": _number,
}

_FORMATS: Mapping[str, Format] = {
    ".jsonl": Format("jsonl", b"", _encode_lines, _json_rows),
    ".csv": Format("csv", _BYTE_ORDER_MARK + ",".join(COLUMNS).encode() + b"\r\n", _encode_cells, _csv_rows),
}
