"""SQLite's way to a disk that fails when it is told to."""

from typing import Any, Literal, TypeAlias

import apsw

Failure: TypeAlias = Literal["fsync fails", "writes fail", "the disk is full"]
FAILURES: tuple[Failure, ...] = ("fsync fails", "writes fail", "the disk is full")
_PLAIN = "unix"  # the way that fails now and then
_WATCHED = (".db", ".db-wal")


class FailingFile(apsw.VFSFile):
    """A file of a database, or its WAL."""

    def __init__(self, disk: "FailingDisk", name: Any, flags: Any) -> None:
        super().__init__(_PLAIN, name, flags)
        self._disk = disk

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802 - SQLite's name
        self._disk.may_write()
        super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:  # noqa: N802 - SQLite's name
        self._disk.may_write()
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        if self._disk.failure == "fsync fails":
            self._disk.failed += 1
            raise apsw.IOError("EIO")
        super().xSync(flags)


class FailingDisk(apsw.VFS):
    """All databases of this process that are opened from now on."""

    def __init__(self) -> None:
        super().__init__("failing", _PLAIN, makedefault=True)
        self.failure: Failure | None = None
        self.failed = 0  # calls

    def xOpen(self, name: Any, flags: Any) -> apsw.VFSFile:  # noqa: N802 - SQLite's name
        path = name if isinstance(name, str | None) else name.filename()
        if path is not None and path.endswith(_WATCHED):
            return FailingFile(self, name, flags)
        return apsw.VFSFile(_PLAIN, name, flags)

    def may_write(self) -> None:
        """Raises what SQLite is told of a disk without room, or of one that lets nobody write any more."""
        if self.failure == "the disk is full":
            self.failed += 1
            raise apsw.FullError("ENOSPC")
        if self.failure == "writes fail":  # EIO, and EROFS when a file system was remounted to be read alone
            self.failed += 1
            raise apsw.IOError("EROFS")
