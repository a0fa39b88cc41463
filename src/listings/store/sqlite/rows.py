"""Run statements and scripts on a SQLite connection; every cursor is read to its end."""

from collections.abc import Callable, Iterable
from typing import TypeAlias, TypeVar

import apsw

from listings.store.mapping import Row
from listings.store.scripts.script import Script
from listings.store.sql import to_sqlite

Read: TypeAlias = Callable[[str, Row], list[Row]]


T = TypeVar("T")


def write(connection: apsw.Connection, statement: str, values: Row) -> list[Row]:
    """All rows that a statement of the writer's returns."""
    return connection.execute(to_sqlite(statement), values).fetchall()


def write_one(connection: apsw.Connection, statement: str, values: Row) -> Row:
    """The one row that it returns."""
    return write(connection, statement, values)[0]


def write_many(connection: apsw.Connection, statement: str, many: Iterable[Row]) -> list[Row]:
    """All rows that it returns, for each of many values in turn."""
    return connection.executemany(to_sqlite(statement), many).fetchall()


def run_script(connection: apsw.Connection, script: Script[T]) -> T:
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
