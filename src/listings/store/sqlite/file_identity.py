"""Detect that an open database file was removed or replaced, or that its WAL was truncated.

A removed file lives on for the processes that have it open, and their writes to it are lost when they close it.

The check runs with every batch of writes. It uses statx(2) and requests only inode and size. `os.stat` also requests
the timestamps, and since Linux 6.13 that makes the next write record an exact time. On a file system without a journal,
each commit then waits for the disk twice, which makes its sync take 50% longer.
"""

import ctypes
import os
import struct
from pathlib import Path
from typing import Final, Literal, TypeAlias

import apsw

_FileId: TypeAlias = tuple[int, int] | None
"""A file's device and inode, or None if no file has the name."""

_AT_FDCWD: Final = -100
_STATX_INO_AND_SIZE: Final = 0x100 | 0x200
_STATX_STRUCT: Final = struct.Struct("=32xQQ88xII112x")  # reads inode, size, device major and minor
_WAL_HEADER_BYTES: Final = 32
_FRAME_HEADER_BYTES: Final = 24

_Change: TypeAlias = Literal["replaced", "truncated"]

_statx = getattr(ctypes.CDLL(None), "statx", None)
_Buffer = ctypes.c_char * _STATX_STRUCT.size


class OpenFiles:
    """The open database file and its WAL.

    Create the object in a transaction, during which the WAL exists, or check `has_wal` afterwards: a WAL that is
    created later would count as replaced.
    """

    def __init__(self, path: Path) -> None:
        """`path` is the database file or a link to it."""
        self._names = (os.fsencode(path), os.fsencode(f"{path.resolve()}-wal"))
        self._opened = self._read_ids()
        self._page_bytes: int | None = None

    def find_change(self, connection: apsw.Connection | None) -> _Change | None:
        """Return "replaced" if a file was removed or replaced, "truncated" if frames of the WAL are gone, else None.

        `connection` belongs to the calling thread and has no transaction. If None, the WAL's size is not checked.
        Thread-safe.
        """
        (database, _), (wal, size) = map(_read_status, self._names)
        if database is None or (database, wal) != self._opened:
            return "replaced"
        if connection is None or size >= self._measure_wal(connection):
            return None
        # Another process may have written or truncated the WAL since its size was read.
        for _ in range(2):
            expected = self._measure_wal(connection)
            if _read_status(self._names[1])[1] >= expected:
                return None
        return "truncated"

    @property
    def has_wal(self) -> bool:
        """Whether the WAL existed when this object was created."""
        return self._opened[1] is not None

    def may_checkpoint(self) -> bool:
        """Return whether the WAL may be written into the database.

        It may if the database's name still belongs to the open file, and the WAL's name to the open WAL or to no file.
        """
        database, wal = self._read_ids()
        return database is not None and database == self._opened[0] and wal in {None, self._opened[1]}

    def _measure_wal(self, connection: apsw.Connection) -> int:
        # A header and all frames in SQLite's index.
        frames, _ = connection.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_NOOP)
        if frames <= 0:
            return 0
        if self._page_bytes is None:
            self._page_bytes = int(connection.pragma("page_size"))
        return _WAL_HEADER_BYTES + frames * (_FRAME_HEADER_BYTES + self._page_bytes)

    def _read_ids(self) -> tuple[_FileId, ...]:
        return tuple(map(read_file_id, self._names))


def read_file_id(name: bytes) -> _FileId:
    """Return the id of the file that currently has this name. Never raises."""
    return _read_status(name)[0]


def _read_status(name: bytes) -> tuple[_FileId, int]:
    status = _Buffer()
    if _statx is None or _statx(_AT_FDCWD, name, 0, _STATX_INO_AND_SIZE, status):
        return _read_status_with_stat(name)
    inode, size, major, minor = _STATX_STRUCT.unpack(status)
    return (os.makedev(major, minor), inode), size


def _read_status_with_stat(name: bytes) -> tuple[_FileId, int]:
    # If statx is missing or has failed.
    try:
        status = os.stat(name)  # noqa: PTH116 - the name is bytes
    except OSError:
        return None, 0
    return (status.st_dev, status.st_ino), status.st_size
