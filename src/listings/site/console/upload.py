"""Uploaded files. A file stays in a hidden form field between preview and import, so the server need not store it."""

import base64
import hashlib
import io
import zlib
from binascii import Error
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup

from listings.contract.imports import ImportProgress, Position, RowOutcome
from listings.domain.errors import Problem
from listings.service.transfer.file_formats import Format, detect_format
from listings.service.transfer.importer import ImportPhase
from listings.service.transfer.rows import Row

_MAX_ROWS = 500
_MAX_COLUMNS = 20
_MAX_TEXT_LENGTH = 80
_MAX_NAME_LENGTH = 100
_FORM_OVERHEAD_BYTES = 8 * 1024  # for the other fields of the form that contains the file


class Upload:
    """An uploaded file in memory (`listings.service.transfer.rows.Source`)."""

    def __init__(self, name: str, content: bytes) -> None:
        """Raise Problem("invalid_request") if the file is empty or its name has no known extension."""
        self.name = Path(name.replace("\\", "/")).name[-_MAX_NAME_LENGTH:]
        self._format = find_format(self.name)
        self.content = content
        if not content:
            raise Problem("invalid_request", f"{self.name} is empty")

    @property
    def format(self) -> str:
        return self._format.name

    @property
    def size(self) -> int:
        """The size in bytes."""
        return len(self.content)

    def digest(self) -> bytes:
        return hashlib.sha256(self.content).digest()

    def rows(self, start: Position) -> Iterator[Row]:
        return self._format.read_rows(_NamedBytes(self.content, self.name), start)

    def select_rows(self, lines: Collection[int]) -> Iterator[bytes]:
        """Yield the lines of the header, if the file has one, and those of the rows that begin in `lines`."""
        text, read = io.BytesIO(self.content), 0
        for row in self.rows(Position()):
            before = list(islice(text, row.line - 1 - read))
            content = list(islice(text, row.end.line - row.line + 1))
            if not read:
                yield from before
            if row.line in lines:
                yield from content
            read = row.end.line


class _NamedBytes(io.BytesIO):
    """Bytes with a file name, which error messages about the file contain."""

    def __init__(self, content: bytes, name: str) -> None:
        super().__init__(content)
        self.name = name


def find_format(name: str) -> Format:
    """Return the format for a file name. Raises Problem("invalid_request") if the extension is unknown."""
    try:
        return detect_format(Path(name))
    except ValueError as error:
        raise Problem("invalid_request", f"The file's name {error}") from None


def pack(upload: Upload, max_body_bytes: int) -> str:
    """Return the file as text for a form field. A large file takes seconds.

    Raises Problem("body_too_large") if the form would be too large to submit.
    """
    text = Markup(base64.b64encode(zlib.compress(upload.content, 6)).decode())  # noqa: S704 - base64
    if len(text) > max_body_bytes - _FORM_OVERHEAD_BYTES:
        raise Problem("body_too_large", "The file is too large for one import. Split it into several files")
    return text


def pack_rows(upload: Upload, lines: Collection[int], max_body_bytes: int) -> str:
    """Return a file of the rows that begin in `lines` as text for a form field, or "" without any."""
    return pack(Upload(upload.name, b"".join(upload.select_rows(lines))), max_body_bytes) if lines else ""


def unpack(name: str, text: str, max_bytes: int) -> Upload:
    """Return the file that was packed. The text comes from a browser, so it can be anything.

    Raises Problem("invalid_request") if it is not a packed file of at most `max_bytes`.
    """
    try:
        unpacker = zlib.decompressobj()
        content = unpacker.decompress(base64.b64decode(text, validate=True), max_bytes)
    except (Error, ValueError, zlib.error):
        content = b""
    else:
        content = content if unpacker.eof else b""
    if not content:
        raise Problem("invalid_request", "The uploaded file was lost. Choose it again")
    return Upload(name, content)


class RowReport(NamedTuple):
    """The outcome of a row: "created", "updated", "unchanged", or "rejected" with the reason."""

    line: int
    listing_id: str
    title: str
    outcome: str
    reason: str


class ImportReport:
    """The rows of an import that a page shows (`listings.service.transfer.importer.ImportProgressListener`).

    Only the first rows and the first rejected rows are stored, and the lines of all rejected ones.
    """

    def __init__(self, on_batch: Callable[[int], None] | None = None) -> None:
        """`on_batch` is called after each imported batch with the byte offset up to which the file is done."""
        self.rows: list[RowReport] = []
        self.rejected: list[RowReport] = []
        self.rejected_lines: set[int] = set()
        self.ignored_columns: list[str] = []
        self.count = 0
        self.resumed_after_line = 0
        self.resumed_import_id: int | None = None
        self.rejected_before = 0  # rows that were rejected before the interruption
        self._on_batch = on_batch

    @property
    def rejected_count(self) -> int:
        """The number of rejected rows, including those before an interruption."""
        return self.rejected_before + len(self.rejected_lines)

    def on_resume(self, done: ImportProgress) -> None:
        self.resumed_after_line, self.resumed_import_id = done.line, done.import_id
        self.rejected_before = done.rejected

    def on_progress(self, phase: ImportPhase, position: Position) -> None:
        if self._on_batch is not None and phase == "Importing":
            self._on_batch(position.offset)

    def on_outcome(self, row: Row, outcome: RowOutcome) -> None:
        self.count += 1
        report = _report_row(row, outcome)
        if len(self.rows) < _MAX_ROWS:
            self.rows.append(report)
        if report.reason:
            self.rejected_lines.add(row.line)
        if report.reason and len(self.rejected) < _MAX_ROWS:
            self.rejected.append(report)

    def on_ignored_columns(self, names: frozenset[str]) -> None:
        if len(self.ignored_columns) == _MAX_COLUMNS:
            return
        cut = (name[:_MAX_TEXT_LENGTH] for name in names)
        self.ignored_columns += sorted(name for name in cut if name not in self.ignored_columns)[:_MAX_COLUMNS]
        del self.ignored_columns[_MAX_COLUMNS:]


def _report_row(row: Row, outcome: RowOutcome) -> RowReport:
    listing_id, title = (row.content.get(name) for name in ("id", "title"))
    cut = ("" if listing_id is None else str(listing_id)[:_MAX_TEXT_LENGTH], str(title or "")[:_MAX_TEXT_LENGTH])
    if isinstance(outcome, Problem):
        return RowReport(row.line, *cut, "rejected", outcome.message)
    return RowReport(row.line, *cut, outcome, "")
