"""Back up the database to a file while the service runs and writes."""

import logging
import os
import time
from glob import escape
from pathlib import Path

import apsw

from listings.domain.errors import Problem, Unavailable
from listings.store.sqlite.connections import MARKER_SUFFIX, reading, require_database_file, require_safe_sqlite
from listings.store.sqlite.maintenance import migrate
from listings.store.sqlite.maintenance.snapshot import (
    DRAFT_SUFFIX,
    Progress,
    build_exists_error,
    find_existing,
    ignore_progress,
    list_side_files,
    write_copy,
)

_log = logging.getLogger(__name__)

_BUSY_TIMEOUT_MS = 5_000
_STAMP_SUFFIX = ".last-backup"


def back_up(database: Path, file: Path, *, force: bool = False, progress: Progress = ignore_progress) -> Path:
    """Copy a consistent snapshot of the database, which may be in use, to `file`. Return that path with links resolved.

    Raises Problem("database_missing"); Problem("schema_mismatch") for a database that was never migrated or is another
    program's, and for an unsafe SQLite; Problem("backup_refused") if the copy can't be written; Unavailable if the
    database can't be read or is damaged.

    The modification time of a file next to the database is that of the last backup.
    """
    require_safe_sqlite()
    try:
        require_database_file(database)
        target = _resolve_target(database, file, force=force)
        with reading(database) as source:
            source.set_busy_timeout(_BUSY_TIMEOUT_MS)
            migrate.require_migrated(source)
            began = time.time()
            write_copy(source, target, force=force, progress=progress)
    except (apsw.Error, OSError) as error:
        raise Unavailable(f"The database {database} can't be copied: {error}; run `listings doctor`") from error
    _stamp(database, began)
    return target


def get_last_backup(database: Path) -> int | None:
    """Return the time of the last checked backup, in seconds since 1970."""
    try:
        return int(_get_stamp(database).stat().st_mtime)
    except FileNotFoundError:
        return None


def _get_stamp(database: Path) -> Path:
    return Path(f"{database.resolve()}{_STAMP_SUFFIX}")


def _stamp(database: Path, began: float) -> None:
    stamp = _get_stamp(database)
    try:
        stamp.touch(0o600)
        os.utime(stamp, (began, began))
    except OSError as error:
        _log.warning("%s can't be written, so `listings doctor` ignores this backup: %s", stamp, error.strerror)


def is_database_file(database: Path, file: Path) -> bool:
    """Return whether a path, even through a link, is the database or one of its files. The path need not exist."""
    for home in (database.absolute(), database.resolve()):
        own = [home, *list_side_files(home)]
        own += (home.with_name(home.name + suffix) for suffix in (".lock", MARKER_SUFFIX, _STAMP_SUFFIX))
        own += home.parent.glob(f"{escape(home.name)}.limits-*")
        if file in own or (file.parent == home.parent and file.name.startswith(f"{home.name}.limits-")):
            return True
        if file.exists() and any(path.exists() and path.samefile(file) for path in own):
            return True
    return False


def _resolve_target(database: Path, file: Path, *, force: bool) -> Path:
    try:
        target = file.resolve()
        if target.is_dir():
            raise Problem("backup_refused", f"{file} is a folder: name a file in it")
        if not target.parent.is_dir():
            raise Problem("backup_refused", f"There is no folder {target.parent}: create it, or use another one")
        draft = target.with_name(target.name + DRAFT_SUFFIX)
        written = [target, draft, *list_side_files(target), *list_side_files(draft)]
        if any(is_database_file(database, path) for path in written):
            raise Problem("backup_refused", f"{file} belongs to the database itself: name another file")
        for replaced in (target, *list_side_files(target)):
            if os.path.lexists(replaced) and not replaced.is_file():
                raise Problem("backup_refused", f"{replaced} is not a regular file: name another one")
        existing = find_existing(target)
        if existing is not None and not force:
            raise build_exists_error(existing)
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "this is not a valid file name"
        raise Problem("backup_refused", f"{str(file)[:200]} can't be written: {reason}") from None
    return target
