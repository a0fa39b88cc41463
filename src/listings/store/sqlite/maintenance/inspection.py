"""What can be told of a database without changing a byte of it, while a service may be using it."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import apsw

from listings.domain.errors import Problem, Unavailable
from listings.store.migrations import Migration, shipped_migrations
from listings.store.sqlite.connections import open_reader, open_untouched, state_of
from listings.store.sqlite.maintenance import migrate, snapshot

_ATTEMPTS = 5
_WAITS = 5_000  # milliseconds
_STEPS = 100  # of the engine's, between two looks at the clock
_TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table'"

# Where the times of what was stored are: seconds since 1970, or text in UTC.
_TIMES = {
    "schema_migrations": "SELECT max(applied_at) FROM schema_migrations",
    "accounts": "SELECT max(created_at) FROM accounts",
    "api_keys": "SELECT max(max(created_at), coalesce(max(revoked_at), 0)) FROM api_keys",
    "listings": "SELECT max(unixepoch(max(updated_at)), coalesce(max(deleted_at), 0)) FROM listings",
}


class Inspection(NamedTuple):
    """What was found. `mismatch` is the sentence about a schema that is not this program's."""

    damages: list[str]
    mismatch: str | None = None
    pending: int = 0  # migrations that are still to be applied
    database_id: str | None = None
    newest: int | None = None  # the latest stored time, in seconds since 1970


def inspect(path: Path, migrations: list[Migration] | None = None) -> Inspection:
    """Look through the whole file. Raises Problem for one that can't be read without a change, or not at all."""
    migrations = shipped_migrations() if migrations is None else migrations
    try:
        attempts = 0
        while True:
            before, attempts = state_of(path), attempts + 1
            with closing(open_untouched(path)) as connection:
                found = _look_through(connection, migrations)
            if not found.damages or state_of(path) == before or attempts == _ATTEMPTS:
                return found  # else a service began to write in the middle
    except (apsw.Error, OSError) as error:
        raise Unavailable(f"The database {path} can't be read: {error}") from error


def find_damage(path: Path, seconds: float, is_over: Callable[[], bool] = lambda: False) -> str:
    """What a look through the pages finds wrong first; empty where nothing was found until the time was over.

    `is_over` may end it sooner. Others may be using the database. Raises Unavailable for a file that can't be read at
    all.
    """
    end = monotonic() + seconds
    try:
        with closing(open_reader(path)) as connection:
            connection.set_busy_timeout(_WAITS)
            connection.set_progress_handler(lambda: is_over() or monotonic() > end, _STEPS)
            found = str(connection.execute("PRAGMA quick_check(1)").fetchall()[0][0])
    except apsw.InterruptError:
        return ""
    except (apsw.CorruptError, apsw.NotADBError) as error:
        return str(error)
    except (apsw.Error, OSError) as error:
        raise Unavailable(f"The database {path} can't be read: {error}") from error
    return "" if found == "ok" else " ".join(found.split())


def _look_through(connection: apsw.Connection, migrations: list[Migration]) -> Inspection:
    found = snapshot.damages(connection)
    if found:
        return Inspection(found)
    mismatch, pending = None, 0
    try:
        migrate.require_own(connection)
    except Problem as problem:
        return Inspection([], problem.message)
    try:
        pending = len(migrations) - migrate.count_applied(connection, migrations)
    except Problem as problem:
        mismatch = problem.message
    tables = {row[0] for row in connection.execute(_TABLES).fetchall()}
    times = [connection.execute(query).fetchall()[0][0] for table, query in _TIMES.items() if table in tables]
    ids = connection.execute("SELECT id FROM database_id").fetchall() if "database_id" in tables else []
    return Inspection(
        [],
        mismatch,
        pending,
        str(ids[0][0]) if ids else None,
        max((int(time) for time in times if time is not None), default=None),
    )
