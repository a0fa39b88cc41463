"""Replace the file of a database by another one, and keep it under another name.

The new file takes the name in one step, so a killed process leaves the old database or the new one. A WAL or journal of
a damaged or missing database is moved away before that, because SQLite would replay it into the new file. Meanwhile,
the marker keeps the service from starting.
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw

from listings.domain.errors import Unavailable
from listings.files import replace_file, sync_folder
from listings.store.sqlite.connections import write_recovery_marker
from listings.store.sqlite.maintenance import snapshot

_PIECE_BYTES = 1024 * 1024
_LOCK_START, _LOCK_LENGTH = 0x40000000, 512  # the bytes that SQLite locks on every platform with POSIX locks


def replace_database(real: Path, draft: Path, previous: Path, copy: Callable[[Path], None]) -> None:
    """Rename `draft` to `real`, whose file and side files get the name `previous`. An empty file is not kept.

    The caller holds the write lock, and SQLite's lock on the file. `copy` copies the file if it can't have two names.
    Raises Unavailable, and Problem("backup_refused") if the copy fails.
    """
    if real.exists():
        status = real.stat()
        with suppress(PermissionError):
            os.chown(draft, status.st_uid, status.st_gid)
        if status.st_size:
            try:
                os.link(real, previous)
            except OSError:  # a file system without hard links
                copy(previous)
    pairs = zip(*map(snapshot.list_side_files, (real, previous)), strict=True)
    moves = [(side_file, other) for side_file, other in pairs if side_file.exists()]
    try:
        if moves:
            write_recovery_marker(real, "A restore was interrupted")  # until it ends
        for side_file, other in moves:
            side_file.replace(other)
        sync_folder(real.parent)
        draft.replace(real)
        sync_folder(real.parent)
    except OSError as error:
        raise Unavailable(
            f"The database {real} can't be restored: {error}; its files may have been moved to {previous}"
        ) from error


def remove_side_files(current: apsw.Connection, real: Path) -> None:
    """Write the WAL into the file and remove it, because SQLite could replay it into the new file."""
    current.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    for side_file in snapshot.list_side_files(real):
        side_file.unlink(missing_ok=True)


@contextmanager
def hold_sqlite_lock(real: Path) -> Iterator[Callable[[Path], None]]:
    """Hold SQLite's own lock on a damaged or empty database file, and yield a function that copies the file.

    This process must not open the file again: closing it would release the lock. Raises apsw.BusyError if another
    process holds the lock.
    """
    descriptor = os.open(real, os.O_RDWR | os.O_CLOEXEC)
    try:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, _LOCK_LENGTH, _LOCK_START)
        except (BlockingIOError, PermissionError):
            raise apsw.BusyError(f"{real} is locked") from None
        yield lambda file: _copy(descriptor, file)
    finally:
        os.close(descriptor)


def _copy(descriptor: int, file: Path) -> None:
    with snapshot.report_write_errors(file), replace_file(file, durable=True) as copy:
        offset = 0
        while piece := os.pread(descriptor, _PIECE_BYTES, offset):
            copy.write(piece)
            offset += len(piece)
