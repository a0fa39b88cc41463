"""Replace the database with a checked backup, keep the previous one, and stay consistent if the process is killed.

A sound, empty or missing database is replaced in one SQLite transaction, with a rollback journal and an exclusive lock.
If the process is killed, it leaves a journal, and the next process that opens the file rolls the transaction back.
There is no WAL meanwhile: SQLite checkpoints and removes it first.

That is not possible if the database is damaged or needs recovery, is missing but has a WAL or a journal, or is empty
but has a WAL. Then a complete copy of the backup is written next to it, the old file (unless it is empty) gets a second
name, its WAL and journal are renamed, because they would be replayed into the new file, and the copy takes the name of
the database.
"""

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import NamedTuple

import apsw

from listings.domain.errors import Problem, Unavailable
from listings.files import replace_file, sync_folder
from listings.store.migrations import Migration, shipped_migrations
from listings.store.sqlite.connections import (
    build_read_only_uri,
    create_file,
    describe_recovery,
    find_orphaned_wal,
    is_damage,
    open_exclusive,
    open_without_writes,
    remove_recovery_marker,
    require_safe_sqlite,
    set_checkpoint_on_close,
    write_recovery_marker,
)
from listings.store.sqlite.maintenance import migrate, snapshot
from listings.store.sqlite.maintenance.backup import is_database_file
from listings.store.sqlite.maintenance.snapshot import Progress, ignore_progress
from listings.store.sqlite.write_lock import WriteLock

_OCCASION = "before-restore"
_PIECE_BYTES = 1024 * 1024
_LOCK_START, _LOCK_LENGTH = 0x40000000, 512  # the bytes that SQLite locks on every platform with POSIX locks

_COUNT_EDITS = """
SELECT max(
    (SELECT coalesce(sum(max(0, m.revision - coalesce(b.revision, 0))), 0) FROM main.account_state m
     LEFT JOIN backup.account_state b ON b.bucket = m.bucket AND b.account_id = m.account_id),
    (SELECT count(*) FROM main.listings m LEFT JOIN backup.listings b ON b.id = m.id
     WHERE b.id IS NULL OR m.version > b.version
     OR (m.version = b.version AND (m.updated_at, m.created_at) <> (b.updated_at, b.created_at))))
"""
_EDIT_REVISION_SCHEMA = 14  # the first schema version that counts edits without views
_LATEST = sys.maxsize
# What a restore can lose. Each row: the first and last schema version to which it applies, its name in the singular and
# plural, and a query that counts the data that the current database has and the backup lacks. Revisions and versions
# only rise, and ids are never reused. Names and plans have no version, so any difference counts.
_LOSSES = (
    (1, _EDIT_REVISION_SCHEMA - 1, "edit or view", "edits and views", _COUNT_EDITS),
    (_EDIT_REVISION_SCHEMA, _LATEST, "edit", "edits", _COUNT_EDITS.replace("revision", "edit_revision")),
    (
        *(1, _LATEST, "account", "accounts"),
        "SELECT count(*) FROM main.accounts m LEFT JOIN backup.accounts b ON b.id = m.id WHERE b.id IS NULL",
    ),
    (
        *(1, _LATEST, "change of an account", "changes of accounts"),
        """
        SELECT count(*) FROM main.accounts m JOIN backup.accounts b ON b.id = m.id
        WHERE (m.name, m.email, m.created_at) <> (b.name, b.email, b.created_at)
        OR m.plan_expires_at IS NOT b.plan_expires_at
        """,
    ),
    (
        *(1, _LATEST, "key", "keys"),
        """
        SELECT count(*) FROM main.api_keys m LEFT JOIN backup.api_keys b ON b.id = m.id
        WHERE b.id IS NULL OR b.digest <> m.digest
        """,
    ),
    (
        *(1, _LATEST, "revocation of a key", "revocations of keys"),
        """
        SELECT count(*) FROM main.api_keys m JOIN backup.api_keys b ON b.id = m.id AND b.digest = m.digest
        WHERE m.revoked_at IS NOT NULL AND b.revoked_at IS NULL
        """,
    ),
    (
        *(2, _LATEST, "enabling or disabling of an account", "enablings or disablings of accounts"),
        """
        SELECT count(*) FROM main.accounts m JOIN backup.accounts b ON b.id = m.id
        WHERE m.disabled_at IS NOT b.disabled_at
        """,
    ),
)
_GET_COMMON_SCHEMA = """
SELECT min((SELECT max(version) FROM main.schema_migrations), (SELECT max(version) FROM backup.schema_migrations))
"""


class _Backup(NamedTuple):
    """The open backup and the parameters of its restore."""

    file: Path
    connection: apsw.Connection
    migrations: list[Migration]
    progress: Progress


class Restored(NamedTuple):
    """The result of a restore."""

    database: Path
    previous_file: Path | None  # the previous database, or its remaining WAL or journal, or None if there was nothing
    pending: list[Migration]  # that `migrate` would apply


class _DamagedError(Exception):
    """The current database is damaged."""


def restore(
    database: Path,
    file: Path,
    *,
    force: bool = False,
    progress: Progress = ignore_progress,
    migrations: list[Migration] | None = None,
) -> Restored:
    """Replace `database` with the backup in `file`. With `force`, do so even if data is lost.

    Raises Problem("restore_refused"), with nothing changed, if the file is not a sound backup with a known schema, if
    another process has the database open, if the disk is full, or, without `force`, if `_LOSSES` finds data that the
    backup lacks (see docs/backups.md) or the current database can't be compared. Raises Problem("backup_refused") if a
    copy can't be written, of the current database or of the backup, and Unavailable if the disk fails or `database` is
    not a file.
    """
    require_safe_sqlite()
    migrations = shipped_migrations() if migrations is None else migrations
    _require_file_or_nothing(database)
    with closing(_open_backup(database, file)) as source:
        backup = _Backup(file, source, migrations, progress)
        pending = _check_backup(backup)
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
    return Restored(database.absolute(), previous_file, pending)


# The backup


def _require_file_or_nothing(database: Path) -> None:
    """Raise Unavailable if the path is unusable, or exists but is not a file."""
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


def _check_backup(backup: _Backup) -> list[Migration]:
    """Return the migrations that the backup lacks. Raises Problem("restore_refused") if it can't be restored."""
    try:
        found = snapshot.check_integrity(backup.connection)
        if found:
            raise _build_unfit_error(backup.file, f"it is damaged or not a database: {found[0]}")
        if _get_database_id(backup.connection) is None:
            raise _build_unfit_error(backup.file, "it is not a Listings database")
        return backup.migrations[migrate.count_applied(backup.connection, backup.migrations) :]
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
    """Replace the database. Return the new path of the previous one, or of its remaining WAL or journal, or None."""
    is_new, orphan = not database.exists(), find_orphaned_wal(database)
    if orphan is not None and not force:
        raise _build_force_error(database, f"is missing or empty, but {orphan} still contains writes to it")
    if orphan is None:  # otherwise, create no empty file: SQLite would remove a WAL or journal next to it
        create_file(database)
    with closing(WriteLock(database)) as lock, lock.acquire():
        if orphan is not None:
            previous_file = _set_aside_and_replace(database.resolve(), backup)
            return previous_file.with_name(f"{previous_file.name}-{orphan.name.rpartition('-')[2]}")
        try:
            with closing(_open_target(database)) as target:
                return _overwrite(target, database, backup, force=force)
        except _DamagedError as damage:
            if not force:
                raise _build_force_error(database, f"is damaged or needs recovery ({damage})") from None
            return _set_aside_and_replace(database.resolve(), backup)
        except (apsw.BusyError, Problem):  # raised before anything was written
            raise
        except BaseException:
            _roll_back(database, is_new=is_new)
            raise


def _roll_back(database: Path, *, is_new: bool) -> None:
    """Roll an unfinished transaction back now. SQLite itself would do so only when the file is next opened."""
    with suppress(apsw.Error, OSError), closing(open_exclusive(database)) as connection:
        set_checkpoint_on_close(connection, enabled=True)
        if is_new and not _has_tables(connection):
            database.resolve().unlink()  # not a link to it


def _has_tables(connection: apsw.Connection) -> bool:
    return bool(connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall())


def _open_target(database: Path) -> apsw.Connection:
    recovery = describe_recovery(database)
    if recovery is not None:  # the WAL may belong to a file that was replaced
        raise _DamagedError(recovery[0])
    try:
        return open_exclusive(database)
    except apsw.Error as error:
        if is_damage(error):
            raise _DamagedError(str(error)) from None
        raise


def _overwrite(target: apsw.Connection, database: Path, backup: _Backup, *, force: bool) -> Path | None:
    """Replace a sound database in one transaction, under SQLite's exclusive lock."""
    found = snapshot.check_integrity(target)
    if found:
        raise _DamagedError(found[0])
    set_checkpoint_on_close(target, enabled=True)
    previous_file = None
    if _has_tables(target):
        reason = None if force else _find_objection(target, backup)
        if reason is not None:
            raise _build_force_error(database, reason)
        previous_file = snapshot.copy_aside(target, database, _OCCASION)
    try:
        target.execute("PRAGMA journal_mode = DELETE").fetchall()
        snapshot.copy_pages(backup.connection, target, backup.progress)
    except apsw.FullError:
        if previous_file is not None:
            previous_file.unlink()  # the database is unchanged, and the disk is full
        raise
    target.execute("PRAGMA journal_mode = WAL").fetchall()
    return previous_file


def _find_objection(target: apsw.Connection, backup: _Backup) -> str | None:
    """Return why the current database should not be replaced by this backup, or None."""
    target_id = _get_database_id(target)
    if target_id is None:
        return "is not a Listings database"
    try:
        migrate.count_applied(target, backup.migrations)
    except Problem:
        return "has a schema that is newer than this program's, or altered"
    if target_id != _get_database_id(backup.connection):
        return "is not the database that was backed up"
    lost = _describe_losses(target, backup.file)
    return f"has {lost} that the backup lacks" if lost else None


def _describe_losses(target: apsw.Connection, file: Path) -> str:
    """Return what the current database has and the backup lacks, such as "12 edits and 3 accounts"."""
    target.execute("ATTACH ? AS backup", (build_read_only_uri(file),)).fetchall()
    try:
        schema = int(str(target.execute(_GET_COMMON_SCHEMA).fetchall()[0][0]))
        counts = [
            (target.execute(query).fetchall()[0][0], one, many)
            for first_schema, last_schema, one, many, query in _LOSSES
            if first_schema <= schema <= last_schema
        ]
    finally:
        target.execute("DETACH backup").fetchall()
    parts = [f"{count} {one if count == 1 else many}" for count, one, many in counts if count]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _get_database_id(connection: apsw.Connection) -> str | None:
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()}
    if not tables >= {"database_id", "schema_migrations"}:
        return None
    rows = connection.execute("SELECT id FROM database_id").fetchall()
    return str(rows[0][0]) if rows else None


def _build_force_error(database: Path, reason: str) -> Problem:
    return Problem(
        "restore_refused",
        f"The database {database} {reason}: use --force to replace it anyway; the old files are kept under other names",
    )


def _set_aside_and_replace(real: Path, backup: _Backup) -> Path:
    """Replace a damaged or missing database with a complete file, and return the new path of the old files.

    An empty database file is not kept: SQLite would remove a WAL or journal next to it.
    """
    previous_file = snapshot.choose_copy_path(real, _OCCASION)
    sqlite_lock = _hold_sqlite_lock(real) if real.exists() else nullcontext()
    with sqlite_lock as locked, snapshot.draft_copy(backup.connection, real, backup.progress) as draft:
        if locked is not None and os.fstat(locked).st_size:
            try:
                os.link(real, previous_file)
            except OSError:  # a file system without hard links
                _copy(locked, previous_file)
        try:
            write_recovery_marker(real, "A restore was interrupted")  # until `restore` ends
            for side_file, previous in zip(*map(snapshot.list_side_files, (real, previous_file)), strict=True):
                if side_file.exists():
                    side_file.replace(previous)
            sync_folder(real.parent)
            draft.replace(real)
            sync_folder(real.parent)
        except OSError as error:
            raise Unavailable(
                f"The database {real} can't be restored: {error}; its files may have been moved to {previous_file}"
            ) from error
    return previous_file


@contextmanager
def _hold_sqlite_lock(real: Path) -> Iterator[int]:
    """Hold SQLite's own lock on a damaged or empty database file, and yield the file's descriptor.

    This process must not open the file again: closing it would release the lock. Raises apsw.BusyError if another
    process holds the lock.
    """
    descriptor = os.open(real, os.O_RDWR | os.O_CLOEXEC)
    try:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, _LOCK_LENGTH, _LOCK_START)
        except (BlockingIOError, PermissionError):
            raise apsw.BusyError(f"{real} is locked") from None
        yield descriptor
    finally:
        os.close(descriptor)


def _copy(descriptor: int, file: Path) -> None:
    """Write a durable copy of an open file, readable only by its owner. Remove the copy if writing it fails."""
    with snapshot.report_write_errors(file), replace_file(file, durable=True) as copy:
        offset = 0
        while piece := os.pread(descriptor, _PIECE_BYTES, offset):
            copy.write(piece)
            offset += len(piece)
