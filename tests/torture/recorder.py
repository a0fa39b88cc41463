"""What SQLite writes and syncs, recorded, and what of it is on the disk when the power is cut."""

from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple, TypeAlias

import apsw

Suffix: TypeAlias = Literal["", "-wal"]
SUFFIXES: tuple[Suffix, ...] = ("", "-wal")
_PLAIN = "unix"  # the way that is recorded
_SECTOR = 512  # what a disk writes whole, or not at all


class Write(NamedTuple):
    """Bytes that were handed to the system; the disk may have them, or some of their sectors."""

    suffix: Suffix
    offset: int
    data: bytes


class Truncate(NamedTuple):
    """A file was cut, or will be."""

    suffix: Suffix
    size: int


class Sync(NamedTuple):
    """All that came before for this file is on the disk."""

    suffix: Suffix


class Ask(NamedTuple):
    """A client has sent a write: the listing may have this version from now on."""

    listing_id: int
    version: int


class Acknowledged(NamedTuple):
    """A client has heard that the listing has this version."""

    listing_id: int
    version: int


Event: TypeAlias = Write | Truncate | Sync | Ask | Acknowledged


class RecordedFile(apsw.VFSFile):
    """A file whose changes are noted before they are made, and whose syncs when they are."""

    def __init__(self, events: list[Event], suffix: Suffix, name: Any, flags: Any) -> None:
        super().__init__(_PLAIN, name, flags)
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
    """SQLite's way to the disk in this process, for one database and its WAL."""

    def __init__(self, database: Path) -> None:
        super().__init__("recorded", _PLAIN, makedefault=True)
        self.events: list[Event] = []
        self._database = str(database)

    def xOpen(self, name: Any, flags: Any) -> apsw.VFSFile:  # noqa: N802 - SQLite's name
        path = name if isinstance(name, str | None) else name.filename()
        for suffix in SUFFIXES:
            if path == self._database + suffix:
                return RecordedFile(self.events, suffix, name, flags)
        return apsw.VFSFile(_PLAIN, name, flags)


class Disk:
    """What is on the disk for certain after the events so far, and what may be."""

    def __init__(self, database: bytes) -> None:
        """`database` is on the disk already, without a WAL."""
        self._certain: dict[Suffix, bytearray] = {"": bytearray(database), "-wal": bytearray()}
        self._pending: dict[Suffix, list[Write | Truncate]] = {"": [], "-wal": []}
        self.least: dict[int, int] = {}  # the version of each listing that was acknowledged
        self.most: dict[int, int] = {}  # and that was asked for

    def advance(self, event: Event) -> None:
        """One event on."""
        match event:
            case Ask(listing_id, version):
                self.most[listing_id] = version
            case Acknowledged(listing_id, version):
                self.least[listing_id] = version
            case Sync(suffix):
                for one in self._pending[suffix]:
                    _apply(self._certain[suffix], one)
                self._pending[suffix].clear()
            case Write() | Truncate():
                self._pending[event.suffix].append(event)

    def cut(self, random: Random) -> dict[Suffix, bytearray]:
        """The files after the power was cut now: of what was not synced some is there, some not, some is torn."""
        share = random.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        files = {suffix: bytearray(content) for suffix, content in self._certain.items()}
        for suffix, pending in self._pending.items():
            for one in pending:
                if random.random() < share:
                    _apply(files[suffix], one)
                elif isinstance(one, Write) and random.random() < 0.5:
                    for piece in _torn(one, random):
                        _apply(files[suffix], piece)
        return files


def _apply(content: bytearray, one: Write | Truncate) -> None:
    if isinstance(one, Truncate):
        del content[one.size :]
        return
    if len(content) < one.offset:
        content.extend(bytes(one.offset - len(content)))
    content[one.offset : one.offset + len(one.data)] = one.data


def _torn(write: Write, random: Random) -> list[Write]:
    """Some of its sectors."""
    pieces = []
    begin = write.offset
    end = begin + len(write.data)
    while begin < end:
        after = min(end, (begin // _SECTOR + 1) * _SECTOR)
        if random.random() < 0.5:
            pieces.append(Write(write.suffix, begin, write.data[begin - write.offset : after - write.offset]))
        begin = after
    return pieces
