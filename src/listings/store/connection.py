"""Connections to the SQLite file: how each is set, and which SQLite is good enough."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from listings.errors import Problem

# 3.7.0 to 3.51.2 can corrupt a file when a WAL is reset while another process writes.
_OLDEST_SQLITE = (3, 51, 3)
_READER_WAITS = 50  # milliseconds: the event loop stands still meanwhile
_WRITER_WAITS = 5_000
_WAL_KEPT = 64 * 1024 * 1024


def require_sound_sqlite() -> None:
    """Raises Problem("schema_mismatch") when this SQLite is one that can corrupt the file."""
    version = apsw.sqlite_lib_version()
    if tuple(int(part) for part in version.split(".")) < _OLDEST_SQLITE:
        oldest = ".".join(map(str, _OLDEST_SQLITE))
        raise Problem("schema_mismatch", f"SQLite {version} can corrupt a database; {oldest} or newer is needed")


def create_file(path: Path) -> None:
    """Make an empty file and its folder, readable by their owner alone, where there is none."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def open_writer(path: Path) -> apsw.Connection:
    """A connection whose commits are on disk when they return. The file must exist."""
    connection = _open(path)
    connection.set_busy_timeout(_WRITER_WAITS)
    for pragma in (
        "journal_mode = WAL",
        "synchronous = FULL",
        "foreign_keys = ON",
        "wal_autocheckpoint = 1000",
        f"journal_size_limit = {_WAL_KEPT}",
    ):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    return connection


def open_reader(path: Path) -> apsw.Connection:
    """A connection that can't write, for the thread of the event loop. The file must exist."""
    connection = _open(path)
    connection.set_busy_timeout(_READER_WAITS)
    for pragma in ("query_only = ON", "cache_size = -16384"):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    return connection


def _open(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    # Without this promise, a SQLite built with STAT4 plans a statement anew whenever other values are bound to it,
    # which takes three times as long as to run it.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    return connection


class WritersTurn:
    """Processes that write to one file take turns by a lock file beside it.

    The kernel wakes the next one at once; SQLite's own busy handler sleeps and starves.
    """

    def __init__(self, path: Path) -> None:
        """`path` is the database's."""
        self._descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Wait for this process's turn, and end it."""
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Give the lock file back."""
        os.close(self._descriptor)
