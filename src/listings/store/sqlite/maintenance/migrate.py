"""Apply the numbered migrations to a SQLite file, under the write lock and each in one transaction."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import apsw

from listings.domain.errors import Problem, Unavailable
from listings.store.migrations import APPLIED, Migration, build_older_schema_problem, count_known, shipped_migrations
from listings.store.sqlite.connections import (
    create_file,
    get_free_bytes,
    open_without_writes,
    open_writer,
    require_no_orphaned_wal,
    require_no_recovery_marker,
    require_safe_sqlite,
    require_sqlite_file,
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
_DROPS_OLD_INDEXES = "DROP TABLE market_words"
_OLD_INDEXES_BYTES = "SELECT coalesce(sum(pgsize), 0) FROM dbstat WHERE name GLOB 'market*' AND aggregate = TRUE"
_MIB = 1024 * 1024
_MIN_FREE_BYTES = 128 * 1024  # SQLite's index of the WAL takes 32 KiB, and the system needs some for itself
_HAS_FOREIGN_TABLES = """
SELECT EXISTS (SELECT 1 FROM sqlite_schema)
AND NOT EXISTS (SELECT 1 FROM pragma_table_info('schema_migrations') WHERE name = 'checksum')
"""
_HAS_MIGRATIONS_TABLE = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'schema_migrations'"


def migrate(
    path: Path, migrations: list[Migration] | None = None, on_backup: Callable[[Path], None] = lambda _: None
) -> list[Migration]:
    """Create the file if it does not exist, bring its schema up to date, and return the applied migrations.

    Before an existing schema is changed, the database is copied to a file next to it, and `on_backup` is called with
    its path. Raises Unavailable if the file can't be used or a migration fails; earlier migrations stay applied. The
    other errors leave the schema and all rows unchanged: Problem("schema_mismatch") for a newer or altered schema and
    for the database of another program; Problem("database_missing") if the database is missing but has a WAL or
    a journal, or is empty but has a WAL; Problem("backup_refused") if the copy can't be written.
    """
    migrations = shipped_migrations() if migrations is None else migrations
    with _checking(path):
        _require_listings_database_first(path)
        create_file(path)
        with closing(WriteLock(path)) as lock, lock.acquire(), closing(open_writer(path)) as connection:
            missing = migrations[count_applied(connection, migrations) :]
            _require_space_to_drop(connection, path, missing)
            if missing and len(missing) < len(migrations):
                on_backup(snapshot.copy_aside(connection, path, f"before-{missing[0].version:04}"))
            return apply(connection, migrations)


@contextmanager
def _checking(path: Path) -> Iterator[None]:
    require_safe_sqlite()
    try:
        require_no_recovery_marker(path)
        require_no_orphaned_wal(path)
        require_sqlite_file(path)
        yield
    except (apsw.Error, OSError) as error:
        raise Unavailable(f"The database {path} can't be used: {_explain(error, path)}") from error


def _explain(error: Exception, path: Path) -> str:
    # SQLite's own message names neither a full disk nor the file.
    if not isinstance(error, apsw.IOError | apsw.FullError | apsw.CantOpenError | apsw.ReadOnlyError):
        return str(error)
    files = [Path(f"{path}{suffix}") for suffix in ("", "-wal", "-shm", "-journal")]
    closed = [str(file) for file in files if file.exists() and not os.access(file, os.R_OK | os.W_OK)]
    if closed:
        return f"{', '.join(closed)}: no permission to read and write ({error})"
    if get_free_bytes(path.parent) < _MIN_FREE_BYTES:
        return f"the disk is full ({error})"
    return str(error)


def _require_space_to_drop(connection: apsw.Connection, path: Path, missing: list[Migration]) -> None:
    # The WAL gets as many pages as the tables that a migration drops.
    if any(_DROPS_OLD_INDEXES in migration.text for migration in missing):
        needed, free = 2 * connection.execute(_OLD_INDEXES_BYTES).get, get_free_bytes(path)
        if free < needed:
            raise Unavailable(
                f"The upgrade needs {needed // _MIB} MiB of free disk space to drop the old search index, and "
                f"{free // _MIB} are free: free disk space, and run `listings migrate` again"
            )


def require_current(connection: apsw.Connection) -> None:
    """Raise Problem("schema_mismatch") unless the schema is exactly this program's."""
    migrations = shipped_migrations()
    if count_applied(connection, migrations) < len(migrations):
        raise build_older_schema_problem()


def require_migrated(connection: apsw.Connection) -> None:
    """Raise Problem("schema_mismatch") if the file was never migrated or belongs to another program."""
    require_listings_database(connection)
    if not connection.execute(_HAS_MIGRATIONS_TABLE).fetchall():
        raise build_older_schema_problem()


def require_listings_database(connection: apsw.Connection) -> None:
    """Raise Problem("schema_mismatch") if the database has the tables of another program."""
    if connection.execute(_HAS_FOREIGN_TABLES).get:
        raise Problem(
            "schema_mismatch",
            f"{connection.filename} is not a Listings database: check that LISTINGS_DATABASE_URL names the right file",
        )


def count_applied(connection: apsw.Connection, migrations: list[Migration]) -> int:
    """Return the number of applied migrations, which must be the first ones shipped, with the same text.

    Raises Problem("schema_mismatch") for a newer or altered schema, and for the database of another program.
    """
    require_listings_database(connection)
    if not connection.execute(_HAS_MIGRATIONS_TABLE).fetchall():
        return 0
    return count_known(connection.execute(APPLIED).fetchall(), migrations)


def list_pending(path: Path, migrations: list[Migration] | None = None) -> list[Migration]:
    """Return the migrations that `migrate` would apply, without changing anything.

    Raises like `migrate`, and Problem("schema_mismatch") if the file can't be read without changing it.
    """
    migrations = shipped_migrations() if migrations is None else migrations
    with _checking(path):
        if not path.exists():
            return migrations
        with closing(open_without_writes(path)) as connection:
            return migrations[count_applied(connection, migrations) :]


def _require_listings_database_first(path: Path) -> None:
    with suppress(apsw.Error):  # opening it for writing raises the same error
        try:
            connection = open_without_writes(path)
        except Problem:  # it is missing, or can't be read without changing it
            return
        with closing(connection):
            require_listings_database(connection)


def apply(connection: apsw.Connection, migrations: list[Migration]) -> list[Migration]:
    """Apply the pending migrations, each in a transaction, and return them."""
    with connection:
        connection.execute(_TABLE).fetchall()
    applied = []
    for migration in migrations[count_applied(connection, migrations) :]:
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
