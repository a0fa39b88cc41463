"""A SQLite VFS that fails on demand."""

from typing import Any, Literal, TypeAlias

import apsw

Failure: TypeAlias = Literal["fsync fails", "writes fail", "the disk is full"]
FAILURES: tuple[Failure, ...] = ("fsync fails", "writes fail", "the disk is full")
_BASE_VFS = "unix"
_AFFECTED_SUFFIXES = (".db", ".db-wal")


class FailingFile(apsw.VFSFile):
    def __init__(self, disk: "FailingDisk", name: Any, flags: Any) -> None:
        super().__init__(_BASE_VFS, name, flags)
        self._disk = disk

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802 - SQLite's name
        self._disk.check_writable()
        super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:  # noqa: N802 - SQLite's name
        self._disk.check_writable()
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        if self._disk.failure == "fsync fails":
            self._disk.failed += 1
            raise apsw.IOError("EIO")
        super().xSync(flags)


class FailingDisk(apsw.VFS):
    """The default VFS of this process from now on; fails as `failure` says."""

    def __init__(self) -> None:
        super().__init__("failing", _BASE_VFS, makedefault=True)
        self.failure: Failure | None = None
        self.failed = 0  # calls

    def xOpen(self, name: Any, flags: Any) -> apsw.VFSFile:  # noqa: N802 - SQLite's name
        path = name if isinstance(name, str | None) else name.filename()
        if path is not None and path.endswith(_AFFECTED_SUFFIXES):
            return FailingFile(self, name, flags)
        return apsw.VFSFile(_BASE_VFS, name, flags)

    def check_writable(self) -> None:
        """Raise the error that SQLite gets from a full disk or a read-only file system."""
        if self.failure == "the disk is full":
            self.failed += 1
            raise apsw.FullError("ENOSPC")
        if self.failure == "writes fail":  # EIO, or EROFS after a remount as read-only
            self.failed += 1
            raise apsw.IOError("EROFS")
