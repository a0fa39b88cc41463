"""Rows of a file of listings."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from listings.contract.imports import Position
from listings.domain.listing_json import Record

COLUMNS = tuple(name for name in Record.__struct_fields__ if name != "etag")
"""The columns of a row, in the order of an export."""


class Row(NamedTuple):
    """A row. `line`: number of its first line, `end`: where the next row begins, `error`: why it can't be parsed."""

    line: int
    end: Position
    content: Mapping[str, object]
    error: str | None = None


class Source(Protocol):
    """A file to import. It must not change during the import."""

    @property
    def format(self) -> str:
        """The name of its format."""

    def digest(self) -> bytes:
        """Return the SHA-256 of its bytes."""

    def rows(self, start: Position) -> Iterator[Row]:
        """Yield the rows from `start` on, which is where a row begins. Raises Problem if the file is not valid."""
