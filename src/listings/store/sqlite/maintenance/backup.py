"""A backup of the database to any file but its own, while the service runs and writes."""

import os
from contextlib import closing
from glob import escape
from pathlib import Path

import apsw

from listings.domain.errors import Problem, Unavailable
from listings.store.sqlite.connections import open_reader, require_file, require_sound_sqlite
from listings.store.sqlite.maintenance import migrate
from listings.store.sqlite.maintenance.snapshot import BESIDE, DRAFT, Progress, ignore_progress, taken, write_copy

_WAITS = 5_000  # milliseconds


def back_up(database: Path, file: Path, *, force: bool = False, progress: Progress = ignore_progress) -> Path:
    """Copy the database, which may be in use, as it is at one moment; returns where the copy is, links resolved.

    Raises Problem("database_missing"), Problem("schema_mismatch") for a file that was never migrated,
    Problem("backup_refused") where the copy can't be, Unavailable when the database can't be read or is damaged.
    """
    require_sound_sqlite()
    try:
        require_file(database)
        target = _place(database, file, force=force)
        with closing(open_reader(database)) as source:
            source.set_busy_timeout(_WAITS)
            migrate.require_made(source)
            write_copy(source, target, force=force, progress=progress)
    except (apsw.Error, OSError) as error:
        raise Unavailable(f"The database {database} can't be copied: {error}; see `listings doctor`") from error
    return target


def belongs_to(database: Path, file: Path) -> bool:
    """Whether a file, which need not be there, is the database or one that lives beside it, by whatever name."""
    for home in (database.absolute(), database.resolve()):
        own = [home.with_name(home.name + suffix) for suffix in ("", *BESIDE, ".lock")]
        own += home.parent.glob(f"{escape(home.name)}.limits-*")
        if file in own or (file.parent == home.parent and file.name.startswith(f"{home.name}.limits-")):
            return True
        if file.exists() and any(path.exists() and path.samefile(file) for path in own):
            return True
    return False


def _place(database: Path, file: Path, *, force: bool) -> Path:
    """Where a copy goes, links resolved. Raises Problem("backup_refused")."""
    try:
        target = file.resolve()
        if target.is_dir():
            raise Problem("backup_refused", f"{file} is a folder: name a file in it")
        if not target.parent.is_dir():
            raise Problem("backup_refused", f"There is no folder {target.parent}: make it, or name another place")
        draft = target.with_name(target.name + DRAFT)
        written = [target, draft, *(draft.with_name(draft.name + suffix) for suffix in BESIDE)]
        if any(belongs_to(database, path) for path in written):
            raise Problem("backup_refused", f"{file} belongs to the database itself: name another file")
        if os.path.lexists(target) and not target.is_file():
            raise Problem("backup_refused", f"{file} is no regular file: name another one")
        if target.exists() and not force:
            raise taken(target)
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "this is no name of a file"
        raise Problem("backup_refused", f"{str(file)[:200]} can't be written: {reason}") from None
    return target
