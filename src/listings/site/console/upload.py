"""A file that somebody has sent: kept in the page between its rehearsal and its import, so that no process has to."""

import base64
import hashlib
import io
import zlib
from binascii import Error
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from listings.contract.imports import ImportProgress, Position, RowOutcome
from listings.domain.errors import Problem
from listings.service.transfer.file_formats import Format, detect_format
from listings.service.transfer.rows import Row

_MOST_SHOWN = 500
_LONGEST_NAME = 100
_AROUND = 8 * 1024  # of the form that has the file
_CUT = 80


class Upload:
    """A file in memory (`listings.service.transfer.rows.Source`)."""

    def __init__(self, name: str, content: bytes) -> None:
        """Raises Problem("invalid_request") for a name that tells no format, and an empty file."""
        self.name = Path(name.replace("\\", "/")).name[-_LONGEST_NAME:]
        self._form = named(self.name)
        self.content = content
        if not content:
            raise Problem("invalid_request", f"{self.name} is empty")

    @property
    def format(self) -> str:
        """The name of its format."""
        return self._form.name

    @property
    def size(self) -> int:
        """In bytes."""
        return len(self.content)

    def digest(self) -> bytes:
        """SHA-256 of the file."""
        return hashlib.sha256(self.content).digest()

    def rows(self, start: Position) -> Iterator[Row]:
        """Its rows behind a place. Raises Problem when there is no header."""
        return self._form.read_rows(_Bytes(self.content, self.name), start)


class _Bytes(io.BytesIO):
    """Bytes with a name, by which a fault of the whole file is told."""

    def __init__(self, content: bytes, name: str) -> None:
        super().__init__(content)
        self.name = name


def named(name: str) -> Format:
    """The format that a file's name tells. Raises Problem("invalid_request")."""
    try:
        return detect_format(Path(name))
    except ValueError as error:
        raise Problem("invalid_request", f"The file's name {error}") from None


def packed(upload: Upload, most_body: int) -> str:
    """The file as a form's field. Raises Problem("body_too_large") where the form would be too large to be sent."""
    text = base64.b64encode(zlib.compress(upload.content, 6)).decode()
    if len(text) > most_body - _AROUND:
        raise Problem("body_too_large", "The file is too large for one import: make two of it")
    return text


def unpacked(name: str, text: str, most: int) -> Upload:
    """The file that was packed; it was in the browser meanwhile, so it may be any.

    Raises Problem("invalid_request").
    """
    try:
        unpacker = zlib.decompressobj()
        content = unpacker.decompress(base64.b64decode(text, validate=True), most)
    except (Error, ValueError, zlib.error):
        content = b""
    else:
        content = content if unpacker.eof else b""
    if not content:
        raise Problem("invalid_request", "The file got lost on its way: choose it once more")
    return Upload(name, content)


class RowReport(NamedTuple):
    """What became of a row: "made", "changed", "unchanged", or why it is refused."""

    line: int
    listing_id: str
    title: str
    outcome: str
    reason: str


class Report:
    """What is told of an import; of many rows only the first ones, and those refused."""

    def __init__(self, on_step: Callable[[int], None] | None = None) -> None:
        """`on_step` is told up to which byte of the file all rows are done."""
        self.rows: list[RowReport] = []
        self.refused: list[RowReport] = []
        self.ignored_names: list[str] = []
        self.count = 0
        self.resumed_behind = 0
        self._on_step = on_step

    def on_resume(self, done: ImportProgress) -> None:
        """An earlier import of the file has come so far."""
        self.resumed_behind = done.line

    def on_progress(self, doing: str, place: Position) -> None:
        """So far have rows been judged; before that the file is read once for its ids."""
        if self._on_step is not None and doing == "Importing":
            self._on_step(place.offset)

    def on_outcome(self, row: Row, outcome: RowOutcome) -> None:
        """Keep what can be shown."""
        self.count += 1
        told = _told(row, outcome)
        if len(self.rows) < _MOST_SHOWN:
            self.rows.append(told)
        if told.reason and len(self.refused) < _MOST_SHOWN:
            self.refused.append(told)

    def on_ignored_columns(self, names: frozenset[str]) -> None:
        """Columns that are no fields."""
        self.ignored_names += sorted(name[:_CUT] for name in names if name[:_CUT] not in self.ignored_names)[:20]
        del self.ignored_names[20:]


def _told(row: Row, outcome: RowOutcome) -> RowReport:
    listing_id, title = (row.content.get(name) for name in ("id", "title"))
    shown = ("" if listing_id is None else str(listing_id)[:_CUT], str(title or "")[:_CUT])
    if isinstance(outcome, Problem):
        return RowReport(row.line, *shown, "refused", outcome.message)
    return RowReport(row.line, *shown, outcome, "")
