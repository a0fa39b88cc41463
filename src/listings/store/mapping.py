"""Rows of the database and the listings they hold."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from listings.domain.model import Listing

Row: TypeAlias = tuple[Any, ...]


Partition: TypeAlias = tuple[int, int]
"""Bucket and account."""


_IS_ACTIVE = 15  # its place among sql.LISTING_COLUMNS


def listing_of(row: Sequence[Any]) -> Listing:
    """The listing of a row. SQLite has no booleans: is_active comes back as 0 or 1."""
    values = list(row)
    values[_IS_ACTIVE] = row[_IS_ACTIVE] == 1
    return Listing(*values)
