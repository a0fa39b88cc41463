"""The locks on a file of the mapped limiter, as other processes see them."""

import fcntl
import os
import struct
from pathlib import Path
from typing import NamedTuple

HEADER_AND_KEYS = (0, 4097)  # first byte and number of bytes
USERS = (4097, 1)
_FLOCK = struct.Struct("hhqqi4x")


class Lock(NamedTuple):
    start: int
    length: int
    is_exclusive: bool


def first_log_file(database: Path) -> Path:
    return Path(f"{database}.limits-0000")


def find_lock(path: Path, region: tuple[int, int] = HEADER_AND_KEYS) -> Lock | None:
    """Return the first lock in a region of a file, or None."""
    query = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, *region, 0)
    with path.open("r+b") as file:
        kind, _, start, length, _ = _FLOCK.unpack(fcntl.fcntl(file, fcntl.F_OFD_GETLK, query))
    return None if kind == fcntl.F_UNLCK else Lock(start, length, kind == fcntl.F_WRLCK)


def is_exclusively_locked(database: Path) -> bool:
    """Return whether a process uses the first file in exclusive mode."""
    users = find_lock(first_log_file(database), USERS) if first_log_file(database).exists() else None
    return users is not None and users.is_exclusive
