"""Puts a backup in the database's place: checked first, with the present database kept, and whole at every moment.

A sound database, an empty one and none at all are replaced by one transaction of the engine, under its rollback
journal and its exclusive lock: a process that is killed leaves a journal, and whoever opens the file next undoes what
was half done. No WAL is there meanwhile, since the engine itself folds it in and removes it first. A damaged database,
in which no transaction can be trusted, gives its name to a whole file instead, after what lay beside it is set aside:
a WAL or journal left there would be replayed into the new file.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import apsw

from listings.domain.errors import Problem, Unavailable
from listings.store.migrations import Migration, shipped_migrations
from listings.store.sqlite.connections import (
    create_file,
    fold_wal_on_close,
    left_behind,
    open_alone,
    open_untouched,
    require_sound_sqlite,
    untouched_address,
)
from listings.store.sqlite.maintenance import migrate, snapshot
from listings.store.sqlite.maintenance.backup import belongs_to
from listings.store.sqlite.maintenance.snapshot import Progress, ignore_progress
from listings.store.sqlite.write_lock import WriteLock

_OCCASION = "before-restore"
_LOCK_START, _LOCK_LENGTH = 0x40000000, 512  # the bytes that SQLite locks on every platform with POSIX locks

# What the present database has that the backup has not. Revisions and versions only ever rise, and ids are never given
# twice; names and plans carry no such number, so that any difference of them counts.
_LOSSES = (
    (
        "edit",
        "edits",
        """
        SELECT max(
            (SELECT coalesce(sum(max(0, m.revision - coalesce(b.revision, 0))), 0) FROM main.account_state m
             LEFT JOIN backup.account_state b ON b.bucket = m.bucket AND b.account_id = m.account_id),
            (SELECT count(*) FROM main.listings m LEFT JOIN backup.listings b ON b.id = m.id
             WHERE b.id IS NULL OR m.version > b.version
             OR (m.version = b.version AND (m.updated_at, m.created_at) <> (b.updated_at, b.created_at))))
        """,
    ),
    (
        "account",
        "accounts",
        "SELECT count(*) FROM main.accounts m LEFT JOIN backup.accounts b ON b.id = m.id WHERE b.id IS NULL",
    ),
    (
        "change of an account",
        "changes of accounts",
        """
        SELECT count(*) FROM main.accounts m JOIN backup.accounts b ON b.id = m.id
        WHERE (m.name, m.email, m.created_at) <> (b.name, b.email, b.created_at)
        OR m.plan_expires_at IS NOT b.plan_expires_at
        """,
    ),
    (
        "key",
        "keys",
        """
        SELECT count(*) FROM main.api_keys m LEFT JOIN backup.api_keys b ON b.id = m.id
        WHERE b.id IS NULL OR b.digest <> m.digest
        """,
    ),
    (
        "revocation of a key",
        "revocations of keys",
        """
        SELECT count(*) FROM main.api_keys m JOIN backup.api_keys b ON b.id = m.id AND b.digest = m.digest
        WHERE m.revoked_at IS NOT NULL AND b.revoked_at IS NULL
        """,
    ),
)

_SCHEMA_OF_BOTH = """
SELECT min((SELECT max(version) FROM main.schema_migrations), (SELECT max(version) FROM backup.schema_migrations))
"""
_DISABLING = 2  # the migration from which on accounts can be disabled
_LOSSES_OF_DISABLING = (
    (
        "account disabled or enabled",
        "accounts disabled or enabled",
        """
        SELECT count(*) FROM main.accounts m JOIN backup.accounts b ON b.id = m.id
        WHERE m.disabled_at IS NOT b.disabled_at
        """,
    ),
)


class _Backup(NamedTuple):
    """The file that is restored, open, and what it is restored with."""

    file: Path
    connection: apsw.Connection
    migrations: list[Migration]
    progress: Progress


class Restored(NamedTuple):
    """What a restore did: where the database is, where the one before it is kept, and what `migrate` would apply."""

    database: Path
    kept: Path | None
    pending: list[Migration]


class _Damage(Exception):
    """The present database can't be read as one."""


def restore(
    database: Path,
    file: Path,
    *,
    force: bool = False,
    progress: Progress = ignore_progress,
    migrations: list[Migration] | None = None,
) -> Restored:
    """Make `database` what the backup in `file` is. `force` gives up what the present one has beyond that.

    Raises Problem("restore_refused") with nothing changed: for a file that is no sound backup of a schema that this
    program knows, while another process has the database open, and, without `force`, where something would be lost.
    Raises Problem("backup_refused") when the present database can't be kept, Unavailable when the disk fails.
    """
    require_sound_sqlite()
    migrations = shipped_migrations() if migrations is None else migrations
    _require_place(database)
    with closing(_open_backup(database, file)) as source:
        backup = _Backup(file, source, migrations, progress)
        pending = _judge(backup)
        try:
            kept = _replace(database, backup, force=force)
        except apsw.BusyError:
            raise Problem(
                "restore_refused", f"The database {database} is open in another process: stop the service first"
            ) from None
        except apsw.FullError:
            raise Problem("restore_refused", f"There is no room to restore {database}: nothing was changed") from None
        except (apsw.Error, OSError) as error:
            raise Unavailable(f"The database {database} can't be restored: {error}") from error
    return Restored(database.absolute(), kept, pending)


# The backup


def _require_place(database: Path) -> None:
    """Raises Unavailable where no database can be."""
    try:
        if database.exists() and not database.is_file():
            raise Unavailable(f"The database {database} is no file")
    except OSError as error:
        raise Unavailable(f"The database {database} can't be restored: {error.strerror}") from None


def _open_backup(database: Path, file: Path) -> apsw.Connection:
    try:
        real = file.resolve(strict=True)
        belongs = belongs_to(database, real)
        if belongs or not real.is_file():
            reason = "it belongs to the database itself: name a backup" if belongs else "it is no file"
        else:
            return open_untouched(real)
    except Problem as problem:
        reason = problem.message
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "this is no name of a file"
    except apsw.Error as error:
        reason = str(error)
    raise _unfit(file, reason)


def _judge(backup: _Backup) -> list[Migration]:
    """Raises Problem("restore_refused") unless it can be restored; returns what its schema lacks."""
    try:
        found = snapshot.damages(backup.connection)
        if found:
            raise _unfit(backup.file, f"it is damaged or no database: {found[0]}")
        if _database_id(backup.connection) is None:
            raise _unfit(backup.file, "it is no database of Listings")
        return backup.migrations[migrate.count_applied(backup.connection, backup.migrations) :]
    except apsw.Error as error:
        raise _unfit(backup.file, str(error)) from None
    except Problem as problem:
        if problem.code == "restore_refused":
            raise
        raise _unfit(backup.file, problem.message) from None


def _unfit(file: Path, reason: str) -> Problem:
    return Problem("restore_refused", f"{str(file)[:200]} can't be restored: {reason}")


# The database


def _replace(database: Path, backup: _Backup, *, force: bool) -> Path | None:
    """Returns where the present database is kept, None when there was nothing in it."""
    is_new, left = not database.exists(), left_behind(database)
    if left is not None and not force:
        raise _refused(database, f"is gone, and {left} still holds writes to it")
    create_file(database)
    with closing(WriteLock(database)) as turn, turn.taken():
        if left is not None:
            kept = _set_aside_and_replace(database.resolve(), backup)
            return kept.with_name(f"{kept.name}-{left.name.rpartition('-')[2]}")
        try:
            with closing(_open_target(database)) as target:
                return _overwrite(target, database, backup, force=force)
        except _Damage as damage:
            if not force:
                raise _refused(database, f"is damaged ({damage})") from None
            return _set_aside_and_replace(database.resolve(), backup)
        except (apsw.BusyError, Problem):  # before anything was written
            raise
        except BaseException:
            _undo(database, is_new=is_new)
            raise


def _undo(database: Path, *, is_new: bool) -> None:
    """Roll a half-written transaction back now, while the engine would wait for whoever opens the file next."""
    with suppress(apsw.Error, OSError), closing(open_alone(database)) as connection:
        fold_wal_on_close(connection, fold=True)
        if is_new and not _has_tables(connection):
            database.unlink()


def _has_tables(connection: apsw.Connection) -> bool:
    return bool(connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall())


def _open_target(database: Path) -> apsw.Connection:
    try:
        return open_alone(database)
    except (apsw.NotADBError, apsw.CorruptError, apsw.FormatError) as error:
        raise _Damage(str(error)) from None


def _overwrite(target: apsw.Connection, database: Path, backup: _Backup, *, force: bool) -> Path | None:
    """One transaction of the engine, which nobody else can be beside."""
    found = snapshot.damages(target)
    if found:
        raise _Damage(found[0])
    fold_wal_on_close(target, fold=True)
    kept = None
    if _has_tables(target):
        reason = None if force else _objection(target, backup)
        if reason is not None:
            raise _refused(database, reason)
        kept = snapshot.keep(target, database, _OCCASION)
    target.execute("PRAGMA journal_mode = DELETE").fetchall()
    snapshot.copy(backup.connection, target, backup.progress)
    target.execute("PRAGMA journal_mode = WAL").fetchall()
    return kept


def _objection(target: apsw.Connection, backup: _Backup) -> str | None:
    """Why the present database should not be given up for this backup."""
    target_id = _database_id(target)
    if target_id is None:
        return "is no database of Listings"
    try:
        migrate.count_applied(target, backup.migrations)
    except Problem:
        return "has a schema that is newer than this program knows, or altered"
    if target_id != _database_id(backup.connection):
        return "is another one than the backup is of"
    lost = _losses(target, backup.file)
    return f"has {lost} that the backup has not" if lost else None


def _losses(target: apsw.Connection, file: Path) -> str:
    """What the present database has and the backup has not, such as "12 edits and 3 accounts"."""
    target.execute("ATTACH ? AS backup", (untouched_address(file),)).fetchall()
    try:
        schema = int(str(target.execute(_SCHEMA_OF_BOTH).fetchall()[0][0]))
        losses = [*_LOSSES, *(_LOSSES_OF_DISABLING if schema >= _DISABLING else ())]
        counts = [(target.execute(query).fetchall()[0][0], one, many) for one, many, query in losses]
    finally:
        target.execute("DETACH backup").fetchall()
    parts = [f"{count} {one if count == 1 else many}" for count, one, many in counts if count]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _database_id(connection: apsw.Connection) -> str | None:
    tables = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN ('database_id', 'schema_migrations')"
    if connection.execute(tables).fetchall()[0][0] != 2:  # noqa: PLR2004 - the two of them
        return None
    rows = connection.execute("SELECT id FROM database_id").fetchall()
    return str(rows[0][0]) if rows else None


def _refused(database: Path, reason: str) -> Problem:
    return Problem(
        "restore_refused",
        f"The database {database} {reason}: give --force to replace it all the same; it is kept beside the new one",
    )


def _set_aside_and_replace(real: Path, backup: _Backup) -> Path:
    """Give a damaged database's name to a whole file; the old one is kept with all that lay beside it.

    Of an empty one only that is kept: beside an empty file, SQLite would remove it.
    """
    kept = snapshot.name_kept(real, _OCCASION)
    with _held(real), snapshot.drafted(backup.connection, real, backup.progress) as draft:
        if real.stat().st_size:
            _link(real, kept)
        for suffix in snapshot.BESIDE:
            beside = real.with_name(real.name + suffix)
            if beside.exists():
                beside.replace(kept.with_name(kept.name + suffix))
        snapshot.sync_folder(real.parent)
        draft.replace(real)
        snapshot.sync_folder(real.parent)
    return kept


def _link(file: Path, name: Path) -> None:
    try:
        os.link(file, name)
    except OSError:  # a file system without links
        shutil.copy2(file, name)


@contextmanager
def _held(real: Path) -> Iterator[None]:
    """Hold the engine's own lock of a file that the engine can't read. Raises apsw.BusyError when another holds it.

    No connection of this process may be open on the file: closing one would give the lock up.
    """
    descriptor = os.open(real, os.O_RDWR | os.O_CLOEXEC)
    try:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, _LOCK_LENGTH, _LOCK_START)
        except (BlockingIOError, PermissionError):
            raise apsw.BusyError(f"{real} is locked") from None
        yield
    finally:
        os.close(descriptor)
