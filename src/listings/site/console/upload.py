"""Uploaded files. A file stays in a hidden form field between preview and import, so the server need not store it."""

import base64
import csv
import hashlib
import io
import json
import zlib
from binascii import Error
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from markupsafe import Markup

from listings.domain.errors import Problem
from listings.domain.imports import Position
from listings.service.transfer.columns import ReadOptions, detect_delimiter
from listings.service.transfer.conversion import Converted, convert, decode_utf_16
from listings.service.transfer.file_formats import detect_format, extend_digest
from listings.service.transfer.rows import Row
from listings.site.console.import_report import Span

_MAX_NAME_LENGTH = 100
_MAX_TEXT_BYTES = 16 * 1024 * 1024  # in a converted file
_TOO_LARGE = "The file is too large for one import. Split it into several files"
_FORM_OVERHEAD_BYTES = 8 * 1024  # for the other fields of the form that contains the file


class Upload:
    """An uploaded file in memory (`listings.service.transfer.rows.Source`)."""

    def __init__(self, name: str, content: bytes, options: ReadOptions = ReadOptions()) -> None:  # noqa: B008 - a tuple
        """Raise Problem("invalid_request") if the file is empty or its name has no known extension."""
        self.name = Path(name.replace("\\", "/")).name[-_MAX_NAME_LENGTH:]
        try:
            self._format = detect_format(Path(self.name))
        except ValueError as error:
            raise Problem("invalid_request", f"The file's name {error}") from None
        self.content = content
        self.options = options
        if not content:
            raise Problem("invalid_request", f"{self.name} is empty")

    @property
    def format(self) -> str:
        return self._format.name

    @property
    def size(self) -> int:
        """The size of the text in bytes."""
        return len(self.text)

    @cached_property
    def table(self) -> Converted | None:
        """The file as CSV, or None if it is not one. Raises Problem("invalid_request")."""
        if self.format == "jsonl":
            return None
        return convert(io.BytesIO(self.content), self.name, self.options, _BoundedBytes)

    @cached_property
    def text(self) -> bytes:
        """The text whose rows are read."""
        file = decode_utf_16(io.BytesIO(self.content), _BoundedBytes) if self.table is None else self.table.file
        file.seek(0)
        return file.read()

    def digest(self) -> bytes:
        return extend_digest(hashlib.sha256(self.content).digest(), self.options)

    def rows(self, start: Position) -> Iterator[Row]:
        by_record = self.table is not None and self.table.by_record
        if self.table is not None:
            self.table.header.require_title(self.name)
        return self._format.read_rows(io.BytesIO(self.text), start, self.options, self.name, by_record)

    def select_rows(self, reasons: Mapping[Span, str]) -> bytes:
        """Return the header, if the file has one, and the bytes in the spans, with the reasons of their rejection."""
        first = next(self.rows(Position()))
        delimiter = detect_delimiter(self.text[: first.offset])[0]
        head = self.text[: first.offset].rstrip(b"\r\n")
        parts = [] if self.table is None else [_append_cell(head, "reason", delimiter)]
        for (start, end), reason in sorted(reasons.items()):
            row = self.text[start:end].rstrip(b"\r\n").replace(b"\0", b"")
            parts.append(self._append_reason(row, reason, delimiter))
        return b"".join(parts)

    def _append_reason(self, row: bytes, reason: str, delimiter: str) -> bytes:
        if self.table is not None:
            missing = len(self.table.header.names)
            with suppress(csv.Error):  # its cells can't be counted
                missing -= len(next(csv.reader([row.decode("utf-8", "replace")], delimiter=delimiter), []))
            return _append_cell(row + max(0, missing) * delimiter.encode(), reason, delimiter)
        if row.rstrip().endswith(b"}") and row.strip() != b"{}":
            return row.rstrip()[:-1] + f', "reason": {json.dumps(reason, ensure_ascii=False)}}}\n'.encode()
        return row + b"\n"


def _append_cell(row: bytes, text: str, delimiter: str) -> bytes:
    cell = io.StringIO(newline="")
    csv.writer(cell, delimiter=delimiter, lineterminator="\r\n").writerow([text])
    return row + delimiter.encode() + cell.getvalue().encode()


class _BoundedBytes(io.BytesIO):
    def write(self, data: Any) -> int:  # noqa: ANN401 - any buffer
        if self.tell() + len(data) > _MAX_TEXT_BYTES:
            raise Problem("body_too_large", _TOO_LARGE)
        return super().write(data)


def pack(upload: Upload, max_body_bytes: int) -> str:
    """Return the file as text for a form field. A large file takes seconds.

    Raises Problem("body_too_large") if the form would be too large to submit.
    """
    text = Markup(base64.b64encode(zlib.compress(upload.content, 6)).decode())  # noqa: S704 - base64
    if len(text) > max_body_bytes - _FORM_OVERHEAD_BYTES:
        raise Problem("body_too_large", _TOO_LARGE)
    return text


def pack_rows(upload: Upload, reasons: Mapping[Span, str], max_body_bytes: int) -> str:
    """Return a file of the rows with these spans as text for a form field, or "" without any."""
    name = f"{Path(upload.name).stem}.csv" if upload.format == "xlsx" else upload.name
    return pack(Upload(name, upload.select_rows(reasons)), max_body_bytes) if reasons else ""


def unpack(name: str, text: str, max_bytes: int, options: ReadOptions = ReadOptions()) -> Upload:  # noqa: B008 - a tuple
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
    return Upload(name, content, options)
