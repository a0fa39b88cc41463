"""Rows of a file of listings."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from listings.contract.imports import Position

COLUMNS = (
    *("id", "title", "content", "type", "category", "images", "price", "price_type", "location", "region"),
    *("is_active", "view_count", "created_at", "updated_at", "district", "latitude", "longitude", "deleted_at"),
)
"""The columns of a row, in the order of an export."""


class Row(NamedTuple):
    """A row of a file. `line` is its first line, `error` a sentence if it can't be parsed."""

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
        """Yield the rows after a position between two rows. Raises Problem if the file is not valid."""
