"""Numbered migrations; those of the SQLite file run under a lock, each in one transaction, known by a checksum."""

import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import apsw

from listings.domain.errors import Problem, Unavailable
from listings.store.migrations import APPLIED, Migration, build_older_schema_problem, count_known, shipped_migrations
from listings.store.sqlite.connections import (
    create_file,
    open_untouched,
    open_writer,
    require_kind,
    require_nothing_left,
    require_sound_sqlite,
)
from listings.store.sqlite.maintenance import snapshot
from listings.store.sqlite.write_lock import WriteLock

_TABLE = """
CREATE TABLE IF NOT EXISTS schema_migrations (
    version INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    checksum TEXT NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT
"""
_FOREIGN = """
SELECT EXISTS (SELECT 1 FROM sqlite_schema)
AND NOT EXISTS (SELECT 1 FROM pragma_table_info('schema_migrations') WHERE name = 'checksum')
"""
_EXISTS = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'schema_migrations'"


def migrate(
    path: Path, migrations: list[Migration] | None = None, on_backup: Callable[[Path], None] = lambda _: None
) -> list[Migration]:
    """Create the file where there is none and bring its schema up to date; returns what was applied.

    Before a schema that is there already is changed, the database is copied to a file beside it, which `on_backup` is
    told. Raises Problem("schema_mismatch") for a newer or an altered schema and for another program's,
    Problem("database_missing") where the WAL of a database is all that is left of it, Problem("backup_refused") when
    the copy can't be made, Unavailable for a file that can't be used; nothing is changed then.
    """
    require_sound_sqlite()
    migrations = shipped_migrations() if migrations is None else migrations
    try:
        require_nothing_left(path)
        require_kind(path)
        _require_own_untouched(path)
        create_file(path)
        with closing(WriteLock(path)) as turn, turn.taken(), closing(open_writer(path)) as connection:
            missing = migrations[count_applied(connection, migrations) :]
            if missing and len(missing) < len(migrations):
                on_backup(snapshot.keep(connection, path, f"before-{missing[0].version:04}"))
            return _apply(connection, migrations)
    except (apsw.Error, OSError) as error:
        raise _unusable(path, error) from error


def require_current(connection: apsw.Connection, migrations: list[Migration] | None = None) -> None:
    """Raises Problem("schema_mismatch") unless the schema is exactly this program's."""
    migrations = shipped_migrations() if migrations is None else migrations
    if count_applied(connection, migrations) < len(migrations):
        raise build_older_schema_problem()


def require_made(connection: apsw.Connection) -> None:
    """Raises Problem("schema_mismatch") for a file that was never migrated, and for another program's."""
    require_own(connection)
    if not connection.execute(_EXISTS).fetchall():
        raise build_older_schema_problem()


def require_own(connection: apsw.Connection) -> None:
    """Raises Problem("schema_mismatch") for a database with tables that are another program's."""
    if connection.execute(_FOREIGN).fetchall()[0][0]:
        raise Problem(
            "schema_mismatch",
            f"{connection.filename} is no database of Listings: see that LISTINGS_DATABASE_URL names the right file",
        )


def count_applied(connection: apsw.Connection, migrations: list[Migration] | None = None) -> int:
    """How many migrations are applied.

    Raises Problem("schema_mismatch") for a newer or an altered schema, and for another program's.
    """
    require_own(connection)
    exists = connection.execute(_EXISTS).fetchall()
    return _check(connection, shipped_migrations() if migrations is None else migrations) if exists else 0


def pending(path: Path, migrations: list[Migration] | None = None) -> list[Migration]:
    """What `migrate` would apply. Changes nothing; raises what `migrate` would."""
    require_sound_sqlite()
    migrations = shipped_migrations() if migrations is None else migrations
    try:
        require_nothing_left(path)
        require_kind(path)
        if not path.exists():
            return migrations
        with closing(open_untouched(path)) as connection:
            return migrations[count_applied(connection, migrations) :]
    except (apsw.Error, OSError) as error:
        raise _unusable(path, error) from error


def _require_own_untouched(path: Path) -> None:
    """`require_own` before anything is made or changed, as far as that can be told without a change."""
    with suppress(apsw.Error):  # which whoever opens it next meets, too
        try:
            connection = open_untouched(path)
        except Problem:  # it is not there yet, or was left in the middle of a change
            return
        with closing(connection):
            require_own(connection)


def _unusable(path: Path, error: Exception) -> Unavailable:
    return Unavailable(f"The database {path} can't be used: {error}")


def _apply(connection: apsw.Connection, migrations: list[Migration]) -> list[Migration]:
    with connection:
        connection.execute(_TABLE).fetchall()
    applied = []
    for migration in migrations[_check(connection, migrations) :]:
        connection.execute("BEGIN IMMEDIATE").fetchall()
        with connection:
            connection.execute(migration.text).fetchall()
            connection.execute(
                "INSERT INTO schema_migrations (version, name, checksum, applied_at) VALUES (?, ?, ?, ?)",
                (migration.version, migration.name, migration.checksum, int(time.time())),
            ).fetchall()
        connection.execute("COMMIT").fetchall()
        applied.append(migration)
    return applied


def _check(connection: apsw.Connection, migrations: list[Migration]) -> int:
    """How many are applied; they must be the first of ours, with the very text."""
    return count_known(connection.execute(APPLIED).fetchall(), migrations)
