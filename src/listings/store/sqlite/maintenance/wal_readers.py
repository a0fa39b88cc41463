"""Find the processes that keep an old snapshot of the database open, so that its WAL grows.

SQLite's file format documents both sources: the WAL's index (`-shm`) has the snapshot of each reader, and a reader
locks the byte of its entry (https://www.sqlite.org/walformat.html).
"""

import os
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_LOCKS = Path("/proc/locks")  # Linux only
_MARKS = struct.Struct("=5I")  # the last frame of each reader's snapshot
_MARKS_OFFSET, _LOCKS_OFFSET = 100, 123
_SAMPLES, _INTERVAL_SECONDS = 5, 0.2
_SERVICE_ARGUMENTS = {b"serve", b"listings.cli.worker"}


class Reader(NamedTuple):
    """A process that has read from one snapshot for a second."""

    pid: int
    name: str
    is_service: bool


def find_old_readers(database: Path) -> list[Reader] | None:
    """Return the processes that keep a snapshot open, or None if the system does not tell. Takes a second."""
    index = Path(f"{database.resolve()}-shm")
    held: set[tuple[int, int, int]] | None = None
    for number in range(_SAMPLES):
        time.sleep(_INTERVAL_SECONDS if number else 0)
        try:
            found = set(_list_snapshots(index))
        except OSError:
            return None
        held = found if held is None else held & found
    return [_describe(pid) for pid in sorted({pid for pid, _, _ in held or ()})]


def _list_snapshots(index: Path) -> Iterator[tuple[int, int, int]]:
    # Yields the process, the entry in the index, and the last frame.
    if not index.exists():
        return
    with index.open("rb") as file:
        marks = _MARKS.unpack(os.pread(file.fileno(), _MARKS.size, _MARKS_OFFSET).ljust(_MARKS.size, b"\0"))
        inode = os.fstat(file.fileno()).st_ino
    for line in _LOCKS.read_text().splitlines():
        _, kind, *words = line.split()
        if kind != "POSIX":  # a process that waits for a lock has an arrow here
            continue
        pid, file_id, first = words[2:5]
        entry = int(first) - _LOCKS_OFFSET
        if file_id.endswith(f":{inode}") and entry in range(len(marks)):
            yield int(pid), entry, marks[entry]


def _describe(pid: int) -> Reader:
    name, arguments = "unknown", list[bytes]()
    with suppress(OSError):
        name = Path(f"/proc/{pid}/comm").read_text().strip()
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return Reader(pid, name, not _SERVICE_ARGUMENTS.isdisjoint(arguments))
