"""Run scripts on a SQLite connection. Every cursor is read to its end."""

from collections.abc import Callable
from typing import TypeAlias, TypeVar

import apsw

from listings.store.mapping import Row
from listings.store.scripts.script import Query, Script
from listings.store.sql import to_sqlite

Read: TypeAlias = Callable[[str, Row], list[Row]]
"""Run a statement with values and return all rows."""


T = TypeVar("T")


def run_script(connection: apsw.Connection, script: Script[T], before_query: Callable[[], None] = lambda: None) -> T:
    """Run a script in the current write transaction, which locks the whole database.

    `before_query` is called before each statement but the first.
    """
    send, execute_query = script.send, connection.execute
    try:
        query = next(script)
        while True:
            if isinstance(query, Query):
                query = send(execute_query(to_sqlite(query.statement), query.values).fetchall())
            else:
                query = send(connection.executemany(to_sqlite(query.statement), query.many).fetchall())
            before_query()
    except StopIteration as end:
        result: T = end.value
        return result
