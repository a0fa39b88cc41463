"""Copies of the database while it is in use: one moment, one file, checked, and whole or not there.

A copy is drafted beside its place (`FILE.part`), under a lock that ends with the process. A draft without the lock was
left by a process that was killed, and the next one takes its place.
"""

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeAlias

import apsw

from listings.domain.errors import Problem, Unavailable

Progress: TypeAlias = Callable[[int, int], None]
"""Told while a copy is made: how many pages are copied, of how many."""

DRAFT = ".part"
_STEP = 256  # pages, 1 MiB
BESIDE = ("-wal", "-shm", "-journal")  # what the engine keeps beside a database
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def ignore_progress(done: int, pages: int) -> None:
    """For those who do not show it."""


def keep(source: apsw.Connection, database: Path, occasion: str) -> Path:
    """Copy a database that is open to a file beside it, named after the occasion and the time, in UTC."""
    target = name_kept(database, occasion)
    write_copy(source, target)
    return target


def name_kept(database: Path, occasion: str) -> Path:
    """A name beside the database that is not taken, such as `listings.db.before-0002-20261121-093000`."""
    real = database.resolve()
    stem = f"{real.name}.{occasion}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    name, number = stem, 1
    while os.path.lexists(real.with_name(name)):
        number += 1
        name = f"{stem}-{number}"
    return real.with_name(name)


def write_copy(
    source: apsw.Connection, target: Path, *, force: bool = False, progress: Progress = ignore_progress
) -> None:
    """Copy what a connection sees to a file that is whole or not there.

    Raises Problem("backup_refused"); Unavailable when the copy is damaged, as the source then is; apsw.Error when the
    source can't be read.
    """
    with drafted(source, target, progress) as draft:
        if not force and os.path.lexists(target):
            raise taken(target)
        draft.replace(target)
        sync_folder(target.parent)


@contextmanager
def drafted(source: apsw.Connection, target: Path, progress: Progress = ignore_progress) -> Iterator[Path]:
    """A checked copy on the disk beside `target`, for the caller to give it its name; else nothing is left of it."""
    draft = target.with_name(target.name + DRAFT)
    try:
        with _claimed(draft) as descriptor:
            _fill(source, draft, progress)
            os.fsync(descriptor)
            yield draft
    except apsw.FullError:
        raise _no_room(target) from None
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise _no_room(target) from None
        raise Problem("backup_refused", f"{target} can't be written: {error.strerror}") from None


def copy(source: apsw.Connection, target: apsw.Connection, progress: Progress = ignore_progress) -> None:
    """Replace all that `target` holds by what `source` holds now, in one transaction.

    The source's snapshot is held until all pages are copied: without it, every commit of another process would make
    the copy begin anew.
    """
    source.execute("BEGIN").fetchall()
    try:
        source.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
        with target.backup("main", source, "main") as backup:
            while not backup.step(_STEP):
                progress(backup.page_count - backup.remaining, backup.page_count)
            progress(backup.page_count, backup.page_count)
    finally:
        source.execute("ROLLBACK").fetchall()


def damages(connection: apsw.Connection) -> list[str]:
    """What the engine finds wrong with a database, the first of it; nothing when it is sound."""
    try:
        found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(5)").fetchall()]
        found = [line for text in found if text != "ok" for line in text.splitlines()]
        orphans = len(connection.execute("PRAGMA foreign_key_check").fetchall())
    except (apsw.CorruptError, apsw.NotADBError, apsw.FormatError) as error:
        return [str(error)]
    return found + ([f"{orphans} rows refer to rows that are not there"] if orphans else [])


def stale_drafts(folder: Path) -> list[Path]:
    """Drafts in a folder that no process is writing."""
    return [draft for draft in sorted(folder.glob(f"*{DRAFT}")) if draft.is_file() and not _is_held(draft)]


def sync_folder(folder: Path) -> None:
    """Make the names in a folder as durable as the files behind them."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def taken(target: Path) -> Problem:
    """What to raise where a copy would replace a file."""
    return Problem("backup_refused", f"{target} is there already: name another file, or give --force to replace it")


def _no_room(target: Path) -> Problem:
    return Problem("backup_refused", f"There is no room for the copy in {target.parent}: free some; nothing was kept")


@contextmanager
def _claimed(draft: Path) -> Iterator[int]:
    """An empty draft, locked for as long as this lasts; unless it got another name, it is removed at the end."""
    descriptor = _claim(draft)
    try:
        yield descriptor
    finally:
        if _has_name(descriptor, draft):
            _remove(draft)
        os.close(descriptor)


def _claim(draft: Path) -> int:
    """Make the draft and lock it. Raises Problem("backup_refused") while another process has it locked."""
    while True:
        try:
            descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            _remove_stale(draft)
            continue
        try:
            _lock(descriptor, draft)
            if _has_name(descriptor, draft):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # another process took it for a stale one


def _remove_stale(draft: Path) -> None:
    """Remove a draft, and what the engine left beside it, unless a process has it locked."""
    try:
        descriptor = os.open(draft, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        _lock(descriptor, draft)
        if _has_name(descriptor, draft):
            _remove(draft)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, draft: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Problem("backup_refused", f"{draft} is being written by another backup: wait for it") from None


def _remove(draft: Path) -> None:
    for suffix in (*BESIDE, ""):
        draft.with_name(draft.name + suffix).unlink(missing_ok=True)


def _has_name(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _is_held(draft: Path) -> bool:
    try:
        descriptor = os.open(draft, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _fill(source: apsw.Connection, draft: Path, progress: Progress) -> None:
    """Copy into the draft, as one file that needs none beside it, and check it."""
    with closing(apsw.Connection(str(draft), flags=apsw.SQLITE_OPEN_READWRITE)) as target:
        for pragma in ("locking_mode = EXCLUSIVE", "journal_mode = MEMORY", "synchronous = OFF"):
            target.execute(f"PRAGMA {pragma}").fetchall()
        copy(source, target, progress)
        target.execute("PRAGMA journal_mode = DELETE").fetchall()  # the copied header asks for a WAL
        found = damages(target)
    if found:
        raise Unavailable(f"The database is damaged, so that nothing was copied ({found[0]}); see `listings doctor`")
