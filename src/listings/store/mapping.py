"""Build listings from database rows."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from listings.domain.model import Listing

Row: TypeAlias = tuple[Any, ...]


Partition: TypeAlias = tuple[int, int]
"""Bucket and account id."""


_IS_ACTIVE = Listing.__struct_fields__.index("is_active")


def build_listing(row: Sequence[Any]) -> Listing:
    """Return the listing in a row. SQLite has no booleans, so its is_active is 0 or 1."""
    values = list(row)
    values[_IS_ACTIVE] = row[_IS_ACTIVE] == 1
    return Listing(*values)
