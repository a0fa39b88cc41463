"""Replace the database with a checked backup, and keep the previous one.

A copy of the backup is written next to the database, gets the current schema and numbers above those that the current
database may have given out, and then takes its name (`replacement`).
"""

import secrets
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import apsw

from listings.domain.errors import Problem, Unavailable
from listings.domain.model import BUCKETS
from listings.store.migrations import Migration, require_equal_schema, shipped_migrations
from listings.store.restored import choose_gaps, list_statements
from listings.store.sql import to_sqlite
from listings.store.sqlite.connections import (
    build_read_only_uri,
    describe_recovery,
    find_orphaned_wal,
    is_damage,
    open_exclusive,
    open_without_writes,
    remove_recovery_marker,
    require_safe_sqlite,
)
from listings.store.sqlite.maintenance import catalogue, losses, migrate, snapshot
from listings.store.sqlite.maintenance.backup import is_database_file
from listings.store.sqlite.maintenance.replacement import hold_sqlite_lock, remove_side_files, replace_database
from listings.store.sqlite.maintenance.snapshot import Progress, ignore_progress
from listings.store.sqlite.write_lock import WriteLock

_OCCASION = "before-restore"
_ADD_SEQUENCES = """
INSERT INTO sqlite_sequence (name, seq)
SELECT value, 0 FROM json_each('["accounts", "api_keys"]') WHERE value NOT IN (SELECT name FROM sqlite_sequence)
"""
_SKIP_GAP = (
    f"""
    INSERT INTO listing_ids (bucket, last) SELECT value, ?1 FROM json_each('{[*range(BUCKETS)]}') WHERE TRUE
    ON CONFLICT (bucket) DO UPDATE SET last = last + excluded.last
    """,
    "UPDATE sqlite_sequence SET seq = seq + ?1",
)
# Numbers that the old file does not know, for example of accounts that were created after it, are raised by the gap.
_STATES_ABOVE_OLD = """
SELECT s.bucket, s.account_id, coalesce(o.revision, s.revision) AS revision,
    coalesce(o.edit_revision, s.edit_revision) AS edit_revision, coalesce(o.last_revert, s.last_revert) AS last_revert
FROM ({}) AS s LEFT JOIN old.account_state AS o
    ON o.bucket = s.bucket AND o.account_id = s.account_id AND o.revision >= (
        SELECT revision FROM account_state AS t WHERE t.bucket = s.bucket AND t.account_id = s.account_id)
"""
_SKIP_OLD = (
    """
    UPDATE listing_ids SET last = last + ?1
    WHERE last > coalesce((SELECT o.last FROM old.listing_ids AS o WHERE o.bucket = listing_ids.bucket), 0)
    """,
    """
    INSERT INTO listing_ids (bucket, last) SELECT bucket, last FROM old.listing_ids WHERE ?1 > 0
    ON CONFLICT (bucket) DO UPDATE SET last = max(last, excluded.last)
    """,
    """
    UPDATE sqlite_sequence SET seq = CASE WHEN o.seq < sqlite_sequence.seq THEN sqlite_sequence.seq + ?1 ELSE o.seq END
    FROM old.sqlite_sequence AS o WHERE o.name = sqlite_sequence.name
    """,
)
_HAS_NUMBERS = "SELECT 1 FROM pragma_table_info('account_state') WHERE name = 'last_revert'"


class _Backup(NamedTuple):
    file: Path
    connection: apsw.Connection
    migrations: list[Migration]
    progress: Progress


class _DamagedError(Exception):
    """The current database is damaged."""


def restore(
    database: Path,
    file: Path,
    *,
    force: bool = False,
    progress: Progress = ignore_progress,
    migrations: list[Migration] | None = None,
) -> Path | None:
    """Replace `database` with the backup in `file`. With `force`, do so even if data is lost.

    Return the previous database, or its remaining WAL or journal, or None if there was nothing.

    Raises Problem("restore_refused"), with nothing changed, if the file is not a sound backup with a known schema, if
    another process has the database open, if the disk is full, or, without `force`, if the current database has data
    that the backup lacks (see docs/backups.md) or can't be compared. Raises Problem("backup_refused") if a copy can't
    be written, of the current database or of the backup, and Unavailable if the disk fails or `database` is not a file.
    """
    require_safe_sqlite()
    migrations = shipped_migrations() if migrations is None else migrations
    _require_file_or_nothing(database)
    with closing(_open_backup(database, file)) as source:
        backup = _Backup(file, source, migrations, progress)
        _check_backup(backup)
        try:
            previous_file = _replace(database, backup, force=force)
            remove_recovery_marker(database)
        except apsw.BusyError:
            raise Problem(
                "restore_refused", f"The database {database} is open in another process: stop the service first"
            ) from None
        except apsw.FullError:
            raise Problem(
                "restore_refused", f"Not enough disk space to restore {database}: nothing was changed"
            ) from None
        except (apsw.Error, OSError) as error:
            raise Unavailable(f"The database {database} can't be restored: {error}") from error
    return previous_file


# The backup


def _require_file_or_nothing(database: Path) -> None:
    try:
        if database.exists() and not database.is_file():
            raise Unavailable(f"The database {database} is not a file")
    except OSError as error:
        raise Unavailable(f"The database {database} can't be restored: {error.strerror}") from None


def _open_backup(database: Path, file: Path) -> apsw.Connection:
    try:
        real = file.resolve(strict=True)
        belongs = is_database_file(database, real)
        if belongs or not real.is_file():
            reason = "it belongs to the database itself: name a backup" if belongs else "it is not a file"
        else:
            return open_without_writes(real)
    except Problem as problem:
        reason = problem.message
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "this is not a valid file name"
    except apsw.Error as error:
        reason = str(error)
    raise _build_unfit_error(file, reason)


def _check_backup(backup: _Backup) -> None:
    try:
        found = snapshot.check_integrity(backup.connection)
        if found:
            raise _build_unfit_error(backup.file, f"it is damaged or not a database: {found[0]}")
        if _get_database_id(backup.connection) is None:
            raise _build_unfit_error(backup.file, "it is not a Listings database")
        require_equal_schema(catalogue.find_differences(backup.connection, backup.migrations))
    except apsw.Error as error:
        raise _build_unfit_error(backup.file, str(error)) from None
    except Problem as problem:
        if problem.code == "restore_refused":
            raise
        raise _build_unfit_error(backup.file, problem.message) from None


def _build_unfit_error(file: Path, reason: str) -> Problem:
    return Problem("restore_refused", f"{str(file)[:200]} can't be restored: {reason}")


# The database


def _replace(database: Path, backup: _Backup, *, force: bool) -> Path | None:
    # Returns the new path of the previous database, or of its remaining WAL or journal.
    orphan, real = find_orphaned_wal(database), database.resolve()
    if orphan is not None and not force:
        raise _build_force_error(database, f"is missing or empty, but {orphan} still contains writes to it")
    real.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with closing(WriteLock(database)) as lock, lock.acquire():
        if orphan is None and real.exists():
            return _replace_file(real, backup, force=force)
        previous_file = _replace_unusable(real, backup)
    return orphan and previous_file.with_name(f"{previous_file.name}-{orphan.name.rpartition('-')[2]}")


def _replace_file(real: Path, backup: _Backup, *, force: bool) -> Path | None:
    try:
        with _open_current(real) as current:
            has_tables = bool(current.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall())
            reason = None if force or not has_tables else _find_objection(current, backup)
            if reason is not None:
                raise _build_force_error(real, reason)
            # The current database is a later state of the one that was backed up, with numbers that can be read.
            is_same = has_tables and _get_database_id(current) == _get_database_id(backup.connection)
            is_older_state = is_same and bool(current.execute(_HAS_NUMBERS).fetchall())
            remove_side_files(current, real)
            previous_file = _write_and_replace(
                real, backup, lambda file: snapshot.write_copy(current, file), old=real if is_older_state else None
            )
            if not has_tables:
                previous_file.unlink(missing_ok=True)
            return previous_file if has_tables else None
    except _DamagedError as damage:
        if not force:
            raise _build_force_error(real, f"is damaged or needs recovery ({damage})") from None
        return _replace_unusable(real, backup)


def _replace_unusable(real: Path, backup: _Backup) -> Path:
    if not real.exists():
        return _write_and_replace(real, backup, lambda _: None)
    with hold_sqlite_lock(real) as copy:
        return _write_and_replace(real, backup, copy)


def _write_and_replace(real: Path, backup: _Backup, copy: Callable[[Path], None], *, old: Path | None = None) -> Path:
    previous_file = snapshot.choose_copy_path(real, _OCCASION)
    uri = None if old is None else build_read_only_uri(old)
    with snapshot.draft_copy(
        backup.connection, real, backup.progress, lambda draft: _finish(draft, backup.migrations, uri)
    ) as draft:
        replace_database(real, draft, previous_file, copy)
    return previous_file


def _finish(draft: apsw.Connection, migrations: list[Migration], old: str | None) -> None:
    # `old` is the URI of a later state of the same database, whose numbers were given out.
    gaps = choose_gaps()
    migrate.apply(draft, migrations)
    if old is not None:
        draft.execute("ATTACH ? AS old", (old,)).fetchall()
    with draft:
        reached = _STATES_ABOVE_OLD.format(gaps.states) if old else gaps.states
        for statement, values in list_statements(secrets.token_hex(4), reached):
            draft.execute(to_sqlite(statement), values).fetchall()
        draft.execute(_ADD_SEQUENCES).fetchall()
        for statement in _SKIP_OLD if old else _SKIP_GAP:
            draft.execute(statement, (gaps.serials,)).fetchall()
    if old is not None:
        draft.execute("DETACH old").fetchall()
    draft.execute("PRAGMA journal_mode = WAL").fetchall()


@contextmanager
def _open_current(database: Path) -> Iterator[apsw.Connection]:
    recovery = describe_recovery(database)
    if recovery is not None:  # the WAL may belong to a file that was replaced
        raise _DamagedError(recovery[0])
    try:
        connection = open_exclusive(database)
    except apsw.Error as error:
        if is_damage(error):
            raise _DamagedError(str(error)) from None
        raise
    with closing(connection):
        found = snapshot.check_integrity(connection)
        if found:
            raise _DamagedError(found[0])
        yield connection


def _find_objection(target: apsw.Connection, backup: _Backup) -> str | None:
    target_id = _get_database_id(target)
    if target_id is None:
        return "is not a Listings database"
    try:
        migrate.count_applied(target, backup.migrations)
    except Problem:
        return "has a schema that is newer than this program's, or altered"
    if target_id != _get_database_id(backup.connection):
        return "is not the database that was backed up"
    target.execute("ATTACH ? AS backup", (build_read_only_uri(backup.file),)).fetchall()
    try:
        lost = losses.describe_losses(target, catalogue.list_own_tables(backup.connection, backup.migrations))
    finally:
        target.execute("DETACH backup").fetchall()
    return f"has new or changed rows that the backup lacks: {lost}" if lost else None


def _get_database_id(connection: apsw.Connection) -> str | None:
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()}
    if not tables >= {"database_id", "schema_migrations"}:
        return None
    found: str | None = connection.execute("SELECT id FROM database_id").get
    return found


def _build_force_error(database: Path, reason: str) -> Problem:
    return Problem(
        "restore_refused",
        f"The database {database} {reason}: use --force to replace it anyway; the old files are kept under other names",
    )
