"""Statements over a SQLite connection, every cursor read to its end, and what their rows mean."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import apsw

from listings.model import Listing
from listings.store.sql import for_sqlite

Row: TypeAlias = tuple[Any, ...]
Place: TypeAlias = tuple[int, int]
"""Bucket and account."""

Read: TypeAlias = Callable[[str, Row], list[Row]]

_IS_ACTIVE = 15  # its place among sql.LISTING_COLUMNS


def write(connection: apsw.Connection, statement: str, values: Row) -> list[Row]:
    """All rows that a statement of the writer's returns."""
    return connection.execute(for_sqlite(statement), values).fetchall()


def write_one(connection: apsw.Connection, statement: str, values: Row) -> Row:
    """The one row that it returns."""
    return write(connection, statement, values)[0]


def listing_of(row: Sequence[Any]) -> Listing:
    """The listing of a row. SQLite has no booleans: is_active comes back as 0 or 1."""
    values = list(row)
    values[_IS_ACTIVE] = row[_IS_ACTIVE] == 1
    return Listing(*values)
