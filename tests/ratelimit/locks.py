"""The locks on a file of the mapped limiter, as another process sees them."""

import fcntl
import os
import struct
from pathlib import Path
from typing import NamedTuple

COUNTING = (0, 4097)  # where the header and the keys of a file are locked, and how many bytes these are
USERS = (4097, 1)
_FLOCK = struct.Struct("hhqqi4x")


class Lock(NamedTuple):
    """What somebody holds."""

    start: int
    length: int
    is_exclusive: bool


def file_of(database: Path) -> Path:
    """The first file."""
    return Path(f"{database}.limits-0000")


def held(path: Path, place: tuple[int, int] = COUNTING) -> Lock | None:
    """The first lock in a place of a file, None where there is none."""
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, *place, 0)
    with path.open("r+b") as file:
        kind, _, start, length, _ = _FLOCK.unpack(fcntl.fcntl(file, fcntl.F_OFD_GETLK, asked))
    return None if kind == fcntl.F_UNLCK else Lock(start, length, kind == fcntl.F_WRLCK)


def is_somebody_alone(database: Path) -> bool:
    """Whether a process has the first file for itself."""
    users = held(file_of(database), USERS) if file_of(database).exists() else None
    return users is not None and users.is_exclusive
