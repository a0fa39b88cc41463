"""Records the writes and syncs of SQLite, and computes what may be on the disk after a power cut."""

from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple, TypeAlias

import apsw

Suffix: TypeAlias = Literal["", "-wal"]
SUFFIXES: tuple[Suffix, ...] = ("", "-wal")
_BASE_VFS = "unix"
_SECTOR_BYTES = 512  # a disk writes a sector completely or not at all


class Write(NamedTuple):
    """Bytes passed to the operating system; until a sync, any of their sectors may reach the disk."""

    suffix: Suffix
    offset: int
    data: bytes


class Truncate(NamedTuple):
    suffix: Suffix
    size: int


class Sync(NamedTuple):
    """An fsync: all earlier changes of this file are on the disk."""

    suffix: Suffix


class Requested(NamedTuple):
    """A client sent a write: the listing may have this version from now on."""

    listing_id: int
    version: int


class Acknowledged(NamedTuple):
    """A client received a response: the listing must have this version."""

    listing_id: int
    version: int


Event: TypeAlias = Write | Truncate | Sync | Requested | Acknowledged


class RecordedFile(apsw.VFSFile):
    """A file that records changes before they happen and syncs after they have finished."""

    def __init__(self, events: list[Event], suffix: Suffix, name: Any, flags: Any) -> None:
        super().__init__(_BASE_VFS, name, flags)
        self._events = events
        self._suffix: Suffix = suffix

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802 - SQLite's name
        self._events.append(Write(self._suffix, offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:  # noqa: N802 - SQLite's name
        self._events.append(Truncate(self._suffix, size))
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        super().xSync(flags)
        self._events.append(Sync(self._suffix))


class Recorder(apsw.VFS):
    """A VFS that records one database and its WAL; the default VFS of this process."""

    def __init__(self, database: Path) -> None:
        super().__init__("recorded", _BASE_VFS, makedefault=True)
        self.events: list[Event] = []
        self._database = str(database)

    def xOpen(self, name: Any, flags: Any) -> apsw.VFSFile:  # noqa: N802 - SQLite's name
        path = name if isinstance(name, str | None) else name.filename()
        for suffix in SUFFIXES:
            if path == self._database + suffix:
                return RecordedFile(self.events, suffix, name, flags)
        return apsw.VFSFile(_BASE_VFS, name, flags)


class Disk:
    """The content of a disk that is certain after the events so far, and changes that are not synced."""

    def __init__(self, database: bytes) -> None:
        """Start with `database` on the disk and without a WAL."""
        self._synced: dict[Suffix, bytearray] = {"": bytearray(database), "-wal": bytearray()}
        self._pending: dict[Suffix, list[Write | Truncate]] = {"": [], "-wal": []}
        self.acknowledged_versions: dict[int, int] = {}  # by listing
        self.requested_versions: dict[int, int] = {}

    def advance(self, event: Event) -> None:
        match event:
            case Requested(listing_id, version):
                self.requested_versions[listing_id] = version
            case Acknowledged(listing_id, version):
                self.acknowledged_versions[listing_id] = version
            case Sync(suffix):
                for change in self._pending[suffix]:
                    _apply(self._synced[suffix], change)
                self._pending[suffix].clear()
            case Write() | Truncate():
                self._pending[event.suffix].append(event)

    def cut(self, random: Random) -> dict[Suffix, bytearray]:
        """Return the files after a power cut: each unsynced change is complete, torn or missing."""
        fraction = random.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        files = {suffix: bytearray(content) for suffix, content in self._synced.items()}
        for suffix, pending in self._pending.items():
            for change in pending:
                if random.random() < fraction:
                    _apply(files[suffix], change)
                elif isinstance(change, Write) and random.random() < 0.5:
                    for piece in _tear(change, random):
                        _apply(files[suffix], piece)
        return files


def _apply(content: bytearray, change: Write | Truncate) -> None:
    if isinstance(change, Truncate):
        del content[change.size :]
        return
    if len(content) < change.offset:
        content.extend(bytes(change.offset - len(content)))
    content[change.offset : change.offset + len(change.data)] = change.data


def _tear(write: Write, random: Random) -> list[Write]:
    pieces = []
    start = write.offset
    end = start + len(write.data)
    while start < end:
        sector_end = min(end, (start // _SECTOR_BYTES + 1) * _SECTOR_BYTES)
        if random.random() < 0.5:
            pieces.append(Write(write.suffix, start, write.data[start - write.offset : sector_end - write.offset]))
        start = sector_end
    return pieces
