"""Check a database for damage, even while a service uses it."""

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import apsw

from listings.domain.errors import Problem, Unavailable
from listings.store.inspection import COUNT_PENDING, Pending
from listings.store.migrations import Difference, Migration, shipped_migrations
from listings.store.sqlite.connections import is_damage, open_without_writes, read_file_state, reading
from listings.store.sqlite.maintenance import catalogue, migrate, snapshot

_MAX_ATTEMPTS = 5
_BUSY_TIMEOUT_MS = 5_000
_PROGRESS_INTERVAL = 100  # instructions of SQLite's virtual machine between two checks of the clock
_LIST_TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table'"

# Timestamps are stored as seconds since 1970 or as text in UTC.
_NEWEST_TIMES = {
    "schema_migrations": "SELECT max(applied_at) FROM schema_migrations",
    "accounts": "SELECT max(created_at) FROM accounts",
    "api_keys": "SELECT max(max(created_at), coalesce(max(revoked_at), 0)) FROM api_keys",
    "listings": "SELECT max(unixepoch(max(updated_at)), coalesce(max(deleted_at), 0)) FROM listings",
}


class Inspection(NamedTuple):
    """The result of `inspect`. `mismatch` is the error message if the schema is not this program's."""

    corruption: list[str]
    mismatch: str | None = None
    differences: Sequence[Difference] = ()  # of the schema from the one that its migrations create
    pending: int = 0  # number of migrations that are not applied
    database_id: str | None = None
    created: int | None = None  # when its first migration was applied, in seconds since 1970
    newest: int | None = None  # the latest stored time, in seconds since 1970
    pending_work: Pending | None = None  # None if the schema is not the current one, or the file is damaged


def inspect(path: Path, migrations: list[Migration] | None = None, *, is_full: bool = False) -> Inspection:
    """Check the schema, and if `is_full`, all pages and references: the snapshot for this lets the WAL grow.

    Raises Problem if it can't be read without changing it, and Unavailable if it can't be read at all.
    """
    migrations = shipped_migrations() if migrations is None else migrations
    try:
        attempts = 0
        while True:
            before, attempts = read_file_state(path), attempts + 1
            with closing(open_without_writes(path)) as connection:
                found = _inspect(connection, migrations, is_full=is_full)
            # If the file changed meanwhile, a service started to write, and the damage may not be real.
            if not found.corruption or read_file_state(path) == before or attempts == _MAX_ATTEMPTS:
                return found
    except (apsw.Error, OSError) as error:
        raise Unavailable(f"The database {path} can't be read: {error}") from error


def find_damage(path: Path, seconds: float, is_over: Callable[[], bool] = lambda: False) -> str:
    """Return the first damage found within `seconds`, or an empty string.

    Stop early when `is_over()` returns True. Other processes may use the database. Raises Unavailable if the file can't
    be read at all.
    """
    end = monotonic() + seconds
    try:
        with reading(path) as connection:
            connection.set_busy_timeout(_BUSY_TIMEOUT_MS)
            connection.set_progress_handler(lambda: is_over() or monotonic() > end, _PROGRESS_INTERVAL)
            found = str(connection.execute("PRAGMA quick_check(1)").get)
    except apsw.InterruptError:
        return ""
    except (apsw.Error, OSError) as error:
        if isinstance(error, apsw.Error) and is_damage(error):
            return str(error)
        raise Unavailable(f"The database {path} can't be read: {error}") from error
    return "" if found == "ok" else " ".join(found.split())


def _inspect(connection: apsw.Connection, migrations: list[Migration], *, is_full: bool) -> Inspection:
    corruption = snapshot.check_integrity(connection) if is_full else []
    if corruption:
        return Inspection(corruption)
    try:
        return _inspect_schema(connection, migrations)
    except apsw.Error as error:
        if not is_damage(error):
            raise
        return Inspection([str(error)])


def _inspect_schema(connection: apsw.Connection, migrations: list[Migration]) -> Inspection:
    mismatch, pending, differences = None, 0, list[Difference]()
    try:
        migrate.require_listings_database(connection)
    except Problem as problem:
        return Inspection([], problem.message)
    try:
        pending = len(migrations) - migrate.count_applied(connection, migrations)
        differences = catalogue.find_differences(connection, migrations)
    except Problem as problem:
        mismatch = problem.message
    tables = {row[0] for row in connection.execute(_LIST_TABLES).fetchall()}
    times = [connection.execute(query).get for table, query in _NEWEST_TIMES.items() if table in tables]
    return Inspection(
        [],
        mismatch,
        differences,
        pending,
        connection.execute("SELECT id FROM database_id").get if "database_id" in tables else None,
        connection.execute("SELECT min(applied_at) FROM schema_migrations").get,
        max((int(time) for time in times if time is not None), default=None),
        None if mismatch or pending else Pending(*connection.execute(COUNT_PENDING).get),
    )
