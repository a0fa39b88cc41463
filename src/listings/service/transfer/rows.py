"""A file's rows as an import reads them and an export writes them."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from listings.contract.imports import Position

COLUMNS = (
    *("id", "title", "content", "type", "category", "images", "price", "price_type", "location", "region"),
    *("is_active", "view_count", "created_at", "updated_at", "district", "latitude", "longitude", "deleted_at"),
)
"""What a row can hold, in the order of an export."""


class Row(NamedTuple):
    """A row of a file: the line on which it begins, where it ends, and what it holds or why that can't be told."""

    line: int
    end: Position
    content: Mapping[str, object]
    fault: str | None = None


class Source(Protocol):
    """A file to be imported, which stays as it is meanwhile."""

    @property
    def format(self) -> str:
        """How its bytes are to be taken."""

    def digest(self) -> bytes:
        """SHA-256 of its bytes."""

    def rows(self, start: Position) -> Iterator[Row]:
        """Its rows behind a place that lies between two of them. Raises Problem when the file is none at all."""
