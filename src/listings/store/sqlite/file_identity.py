"""Detect that an open database file was removed or replaced.

A removed file lives on for the processes that have it open, and their writes to it are lost when they close it.

The check runs with every batch of writes. It uses statx(2) and requests the inode only. `os.stat` also requests the
timestamps, and since Linux 6.13 that makes the next write record an exact time. On a file system without a journal,
each commit then waits for the disk twice, which makes its sync take 50% longer.
"""

import ctypes
import os
import struct
from pathlib import Path
from typing import Final, TypeAlias

_FileId: TypeAlias = tuple[int, int] | None
"""A file's device and inode, or None if no file has the name."""

_AT_FDCWD: Final = -100
_STATX_INO: Final = 0x100
_STATX_STRUCT: Final = struct.Struct("=32xQ96xII112x")  # the fields that are read: inode, device major and minor

_statx = getattr(ctypes.CDLL(None), "statx", None)


class OpenFiles:
    """The database file and its WAL that a connection has open. Create it once the connection has begun to write."""

    def __init__(self, path: Path) -> None:
        """`path` is the database file or a link to it."""
        self._names = (os.fsencode(path), os.fsencode(f"{path.resolve()}-wal"))
        self._opened = self._read_ids()

    def are_unchanged(self) -> bool:
        """Return whether both names still belong to the files that were opened. Thread-safe."""
        current = self._read_ids()
        return current[0] is not None and current == self._opened

    def _read_ids(self) -> tuple[_FileId, ...]:
        return tuple(map(read_file_id, self._names))


def read_file_id(name: bytes) -> _FileId:
    """Return the id of the file that currently has this name. Never raises."""
    status = ctypes.create_string_buffer(_STATX_STRUCT.size)
    if _statx is None or _statx(_AT_FDCWD, name, 0, _STATX_INO, status):
        return _read_file_id_with_stat(name)
    inode, major, minor = _STATX_STRUCT.unpack(status)
    return os.makedev(major, minor), inode


def _read_file_id_with_stat(name: bytes) -> _FileId:
    """Fallback for a system without statx, or a sandbox that blocks it."""
    try:
        status = os.stat(name)  # noqa: PTH116 - the name is bytes
    except OSError:
        return None
    return status.st_dev, status.st_ino
