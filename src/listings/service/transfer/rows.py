"""Rows of a file of listings."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol, TypeAlias

from listings.domain.faults import FieldError
from listings.domain.imports import Position
from listings.domain.listing_json import Record
from listings.domain.model import Value

COLUMNS = (*(name for name in Record.__struct_fields__ if name != "etag"), "version")
"""The columns of a row, in the order of an export."""

FieldDiff: TypeAlias = Mapping[str, tuple[Value, Value]]
SCANNED = frozenset({"id", "external_id", "deleted_at", "version"})
"""The columns that decide on a file as a whole."""


class Row(NamedTuple):
    """A row. `line`: number of its first line, `offset`: that of its first byte, `end`: where the next row begins.

    `error`: why it can't be parsed. `is_gap`: these are blank lines, which a source yields only if there are many.
    `cells` are the texts of a spreadsheet's cells by column, and `cell_errors` those that can't be converted. In a dry
    run, `diff` has the old and the new value of each `Listing` attribute that the row changes.
    """

    line: int
    offset: int
    end: Position
    content: Mapping[str, object]
    error: str | None = None
    is_gap: bool = False
    cells: Mapping[str, str] = {}
    cell_errors: Mapping[str, FieldError] = {}
    diff: Mapping[str, tuple[Value, Value]] = {}


class Source(Protocol):
    """A file to import. It must not change during the import.

    If it has a method `scan_rows`, that yields all rows, perhaps only with the columns of `SCANNED`.
    """

    @property
    def format(self) -> str:
        """The name of its format."""

    def digest(self) -> bytes:
        """Return the SHA-256 of its bytes and of the options with which it is read."""

    def rows(self, start: Position) -> Iterator[Row]:
        """Yield the rows from `start` on, which is where a row begins. Raises Problem if the file is not valid."""
