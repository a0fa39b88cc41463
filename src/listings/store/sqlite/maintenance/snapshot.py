"""Copy the database while it is in use: a consistent snapshot in one checked file, either complete or missing.

A copy is first written to a draft in the same folder (`FILE.part`), which is locked until the copy is complete. A
draft that is not locked and begins like a database was left by a killed process; the next copy replaces it.
"""

import errno
import fcntl
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TypeAlias

import apsw

from listings.domain.errors import Problem, Unavailable
from listings.files import has_name, sync_folder
from listings.store.sqlite.connections import FILE_HEADER, is_damage

Progress: TypeAlias = Callable[[int, int], None]
"""Called while a copy is written, with the number of copied pages and of all pages."""

DRAFT_SUFFIX = ".part"
_STEP_PAGES = 256  # 1 MiB
_NO_SPACE_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_WRITE_ERRORS = {apsw.SQLITE_IOERR_WRITE, apsw.SQLITE_IOERR_FSYNC, apsw.SQLITE_IOERR_TRUNCATE}


def ignore_progress(done: int, pages: int) -> None:
    """Do nothing."""


def copy_aside(source: apsw.Connection, database: Path, occasion: str) -> Path:
    """Copy an open database to a file next to it, named after the occasion and the UTC time; return its path.

    No other process may write meanwhile. If the file system can, the files share their pages until they change. This
    takes no time, however large the database is, and such a copy is not checked.
    """
    target = choose_copy_path(database, occasion)
    if not _clone(source, database.resolve(), target):
        write_copy(source, target)
    return target


def _clone(source: apsw.Connection, database: Path, target: Path) -> bool:
    # Returns False if the file system can't clone, or a reader needs the WAL.
    is_busy, *_ = source.execute("PRAGMA wal_checkpoint(TRUNCATE)").get
    draft = target.with_name(target.name + DRAFT_SUFFIX)
    with report_write_errors(target), _open_draft(draft) as descriptor:
        # In another process: closing the database here would release SQLite's locks on it.
        clone = ("cp", "--reflink=always", "--", str(database), str(draft))
        if is_busy or subprocess.run(clone, stderr=subprocess.DEVNULL, check=False).returncode:  # noqa: S603 - our names
            return False
        with closing(apsw.Connection(str(draft), flags=apsw.SQLITE_OPEN_READWRITE)) as copy:
            copy.execute("PRAGMA journal_mode = DELETE").fetchall()  # the copied header requests a WAL
        os.fsync(descriptor)
        draft.replace(target)
        sync_folder(target.parent)
    return True


def choose_copy_path(database: Path, occasion: str) -> Path:
    """Return an unused path next to the database, such as `listings.db.before-0002-20261121-093000`.

    Its side files do not exist either.
    """
    real = database.resolve()
    stem = f"{real.name}.{occasion}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    name, number = stem, 1
    while find_existing(real.with_name(name)) is not None:
        number += 1
        name = f"{stem}-{number}"
    return real.with_name(name)


def write_copy(
    source: apsw.Connection, target: Path, *, force: bool = False, progress: Progress = ignore_progress
) -> None:
    """Copy the snapshot that a connection sees to a file, which is either complete or missing.

    Raises Problem("backup_refused") if the file or a side file exists and `force` is not set, or it can't be written;
    Unavailable if the source is damaged; apsw.Error if the source can't be read.
    """
    with draft_copy(source, target, progress) as draft, report_write_errors(target):
        existing = find_existing(target)
        if existing is not None and not force:
            raise build_exists_error(existing)
        _remove_with_side_files(target)
        draft.replace(target)
        sync_folder(target.parent)


@contextmanager
def draft_copy(
    source: apsw.Connection,
    target: Path,
    progress: Progress = ignore_progress,
    finish: Callable[[apsw.Connection], None] = lambda _: None,
) -> Iterator[Path]:
    """Write a checked and durable copy next to `target`. It is removed at the end unless the caller renames it.

    `finish` may change the copy before it is checked.

    Raises Problem("backup_refused") if the copy can't be written, and Unavailable if the source is damaged. Errors of
    the block are not changed.
    """
    draft = target.with_name(target.name + DRAFT_SUFFIX)
    with ExitStack() as stack:
        with report_write_errors(target):
            descriptor = stack.enter_context(_open_draft(draft))
            _fill(source, draft, progress, finish)
            os.fsync(descriptor)
        yield draft


@contextmanager
def report_write_errors(target: Path) -> Iterator[None]:
    """Raise Problem("backup_refused") if the block fails to write the copy `target`."""
    try:
        yield
    except apsw.FullError:
        raise _build_no_space_error(target) from None
    except apsw.IOError as error:
        if getattr(error, "extendedresult", None) not in _WRITE_ERRORS:
            raise
        raise Problem(
            "backup_refused", f"{target} can't be written: the disk failed, or a size limit was reached"
        ) from None
    except OSError as error:
        if error.errno in _NO_SPACE_ERRORS:
            raise _build_no_space_error(target) from None
        raise Problem("backup_refused", f"{target} can't be written: {error.strerror}") from None


def copy_pages(source: apsw.Connection, target: apsw.Connection, progress: Progress = ignore_progress) -> None:
    """Replace the content of `target` with the content of `source`, in one transaction.

    The snapshot of the source is held until all pages are copied. Without it, every commit of another process would
    restart the copy.
    """
    source.execute("BEGIN").fetchall()
    try:
        source.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
        with target.backup("main", source, "main") as backup:
            while not backup.step(_STEP_PAGES):
                progress(backup.page_count - backup.remaining, backup.page_count)
            progress(backup.page_count, backup.page_count)
    finally:
        if source.in_transaction:  # some errors end it
            source.execute("ROLLBACK").fetchall()


def check_integrity(connection: apsw.Connection) -> list[str]:
    """Return the first errors that SQLite's integrity checks find, or an empty list."""
    try:
        found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(5)").fetchall()]
        found = [line for text in found if text != "ok" for line in text.splitlines()]
        orphans = len(connection.execute("PRAGMA foreign_key_check").fetchall())
    except apsw.Error as error:
        if not is_damage(error):
            raise
        return [str(error)]
    return found + ([f"{orphans} rows refer to rows that do not exist"] if orphans else [])


def find_stale_drafts(folder: Path) -> list[Path]:
    """Return the drafts in a folder that no process is writing, with the files that SQLite left next to them.

    Other programs' files may have the same suffix.
    """
    found = [draft for draft in sorted(folder.glob(f"*{DRAFT_SUFFIX}")) if _is_draft(draft) and not _is_locked(draft)]
    return [file for draft in found for file in (draft, *list_side_files(draft)) if file.exists()]


def list_side_files(database: Path) -> list[Path]:
    """Return the paths of the files that SQLite creates next to a database."""
    return [database.with_name(database.name + suffix) for suffix in ("-wal", "-shm", "-journal")]


def find_existing(target: Path) -> Path | None:
    """Return `target` or one of its side files, whichever exists, or None."""
    return next((file for file in (target, *list_side_files(target)) if os.path.lexists(file)), None)


def build_exists_error(file: Path) -> Problem:
    """Return the error for a copy that would replace an existing file."""
    return Problem("backup_refused", f"{file} exists: name another file, or overwrite it with --force")


def _build_no_space_error(target: Path) -> Problem:
    return Problem("backup_refused", f"Not enough disk space for the copy in {target.parent}: nothing was copied")


@contextmanager
def _open_draft(draft: Path) -> Iterator[int]:
    # The draft is removed at the end unless it was renamed.
    descriptor = _create_draft(draft)
    try:
        yield descriptor
    finally:
        if has_name(descriptor, draft):
            _remove(draft)
        os.close(descriptor)


def _create_draft(draft: Path) -> int:
    while True:
        try:
            descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            _remove_stale(draft)
            continue
        try:
            _lock(descriptor, draft)
            if has_name(descriptor, draft):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # another process removed it as stale before it was locked


def _remove_stale(draft: Path) -> None:
    try:
        # Without O_NONBLOCK, opening a pipe waits for a writer.
        descriptor = os.open(draft, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        _lock(descriptor, draft)
        if has_name(descriptor, draft):
            if not _is_draft(draft):
                raise Problem(
                    "backup_refused", f"{draft} is not an unfinished backup: move it, or name another file for the copy"
                )
            _remove(draft)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, draft: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Problem("backup_refused", f"Another backup is writing {draft}: wait until it ends") from None


def _remove(draft: Path) -> None:
    for file in (*list_side_files(draft), draft):
        file.unlink(missing_ok=True)


def _remove_with_side_files(target: Path) -> None:
    # SQLite would replay its WAL or journal into the copy. The target goes first: it is incomplete without its WAL.
    side_files = [file for file in list_side_files(target) if os.path.lexists(file)]
    if side_files:
        for file in (target, *side_files):
            file.unlink(missing_ok=True)
        sync_folder(target.parent)


def _is_draft(file: Path) -> bool:
    # Its first page may not be written yet.
    try:
        if not file.is_file():  # opening a pipe would wait
            return False
        with file.open("rb") as opened:
            return opened.read(len(FILE_HEADER)) in {b"", bytes(len(FILE_HEADER)), FILE_HEADER}
    except OSError:
        return False


def _is_locked(draft: Path) -> bool:
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


def _fill(source: apsw.Connection, draft: Path, progress: Progress, finish: Callable[[apsw.Connection], None]) -> None:
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI  # URI: to attach another database
    with closing(apsw.Connection(str(draft), flags=flags)) as target:
        for pragma in ("locking_mode = EXCLUSIVE", "journal_mode = MEMORY", "synchronous = OFF"):
            target.execute(f"PRAGMA {pragma}").fetchall()
        copy_pages(source, target, progress)
        target.execute("PRAGMA journal_mode = DELETE").fetchall()  # the copied header requests a WAL
        finish(target)
        found = check_integrity(target)
    if found:
        raise Unavailable(f"The database is damaged ({found[0]}): nothing was copied; run `listings doctor`")
