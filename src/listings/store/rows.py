"""Statements over a SQLite connection, every cursor read to its end, and what their rows mean."""

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import apsw

from listings.model import Listing
from listings.store.sql import for_sqlite

T = TypeVar("T")

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


def write_many(connection: apsw.Connection, statement: str, many: Iterable[Row]) -> list[Row]:
    """All rows that it returns, for each of many values in turn."""
    return connection.executemany(for_sqlite(statement), many).fetchall()


class Ask(NamedTuple):
    """A statement of a script. `locks`: the rows that it reads stay as they are until the transaction ends."""

    statement: str
    values: Row
    locks: bool = False


Script: TypeAlias = Generator[Ask, list[Any], T]
"""What a transaction does, statement by statement, for engines of any kind: it is given the rows of each.

It may be run more than once."""


def ask(statement: str, *values: object) -> Script[list[Any]]:
    """The script of one statement, and its rows."""
    return (yield Ask(statement, values))


def perform(connection: apsw.Connection, script: Script[T]) -> T:
    """Run a script in the writer's transaction, which locks everything."""
    rows: list[Row] = []
    try:
        asked = next(script)
        while True:
            rows = write(connection, asked.statement, asked.values)
            asked = script.send(rows)
    except StopIteration as end:
        result: T = end.value
        return result


def listing_of(row: Sequence[Any]) -> Listing:
    """The listing of a row. SQLite has no booleans: is_active comes back as 0 or 1."""
    values = list(row)
    values[_IS_ACTIVE] = row[_IS_ACTIVE] == 1
    return Listing(*values)
