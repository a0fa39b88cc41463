"""Run statements and scripts on a SQLite connection. Every cursor is read to its end."""

from collections.abc import Callable, Iterable
from typing import TypeAlias, TypeVar

import apsw

from listings.store.mapping import Row
from listings.store.scripts.script import Query, Script
from listings.store.sql import to_sqlite

Read: TypeAlias = Callable[[str, Row], list[Row]]
"""Run a statement with values and return all rows."""


T = TypeVar("T")


def execute(connection: apsw.Connection, statement: str, values: Row) -> list[Row]:
    """Run a statement and return all rows."""
    return connection.execute(to_sqlite(statement), values).fetchall()


def execute_one(connection: apsw.Connection, statement: str, values: Row) -> Row:
    """Run a statement and return its first row, which must exist."""
    return execute(connection, statement, values)[0]


def execute_many(connection: apsw.Connection, statement: str, many: Iterable[Row]) -> list[Row]:
    """Run a statement once for each set of values and return all rows."""
    return connection.executemany(to_sqlite(statement), many).fetchall()


def run_script(connection: apsw.Connection, script: Script[T]) -> T:
    """Run a script in the current write transaction, which locks the whole database."""
    send, execute_query = script.send, connection.execute
    try:
        query = next(script)
        while True:
            if isinstance(query, Query):
                query = send(execute_query(to_sqlite(query.statement), query.values).fetchall())
            else:
                query = send(execute_many(connection, query.statement, query.many))
    except StopIteration as end:
        result: T = end.value
        return result
