"""Whether the files that are open are still the ones that their names stand for.

A file that is removed or replaced lives on for whoever has it open, and what is written to it is gone with them.

This is asked with every batch of writes, by statx(2) and for nothing but the inode: `os.stat` asks for the times, too,
and Linux since 6.13 notes that somebody has seen them, so that the next write tells its own time exactly. Where a file
system has no journal, each commit then waits for the disk a second time, which makes its sync half as long again.
"""

import ctypes
import os
import struct
from pathlib import Path
from typing import Final, TypeAlias

_Number: TypeAlias = tuple[int, int] | None
"""A file's device and inode; None where there is none of its name."""

_WORKING_FOLDER: Final = -100  # AT_FDCWD
_INODE: Final = 0x100  # STATX_INO
_STATX = struct.Struct("=32xQ96xII112x")  # what is used of it: the inode, and the device's two numbers

_statx = getattr(ctypes.CDLL(None), "statx", None)


class OpenFiles:
    """The database and its WAL, as a connection that has begun to write has them open."""

    def __init__(self, path: Path) -> None:
        """`path` is the database's, by whatever name it is reached."""
        self._names = (os.fsencode(path), os.fsencode(f"{path.resolve()}-wal"))
        self._known = self._look()

    def are_there(self) -> bool:
        """Whether their names stand for the same files as at first. May be asked from any thread."""
        found = self._look()
        return found[0] is not None and found == self._known

    def _look(self) -> tuple[_Number, ...]:
        return tuple(map(number_of, self._names))


def number_of(name: bytes) -> _Number:
    """Of the file that has this name now; never raises."""
    status = ctypes.create_string_buffer(_STATX.size)
    if _statx is None or _statx(_WORKING_FOLDER, name, 0, _INODE, status):
        return _number_with_times(name)
    inode, major, minor = _STATX.unpack(status)
    return os.makedev(major, minor), inode


def _number_with_times(name: bytes) -> _Number:
    """The same of a system that has no statx, or a sandbox that refuses it."""
    try:
        status = os.stat(name)  # noqa: PTH116 - of a name in bytes
    except OSError:
        return None
    return status.st_dev, status.st_ino
