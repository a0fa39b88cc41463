"""Reject writes to a database that was damaged, removed or replaced while it is open."""

import logging

import apsw

from listings.domain.errors import Unavailable
from listings.store.sqlite.file_identity import OpenFiles
from listings.store.sqlite.write_lock import WriteLock

_REPLACED = "The database was removed or replaced while in use"
_TRUNCATED = "The database's WAL was truncated while in use"
_FOUND_ELSEWHERE = "Another process has found the database damaged"

_log = logging.getLogger(__name__)


class FileGuard:
    """Knows whether the open files are still in place and undamaged. Thread-safe."""

    def __init__(self, lock: WriteLock, files: OpenFiles | None) -> None:
        """`files` are the readers' files, or None until the first write has created the WAL."""
        self.files = files  # set once: a new connection must use the files of the readers
        self._lock = lock
        self._damage: str | None = None

    def report_damage(self, damage: str) -> None:
        """Reject all further writes, in all processes."""
        if self._damage is None:
            self._set_damage(damage)
            self._lock.report_damage()

    def _set_damage(self, damage: str) -> None:
        self._damage = damage
        _log.error("%s: writes are rejected from now on", damage)

    def require_undamaged(self) -> None:
        """Raise Unavailable if this or another process has found damage."""
        if self._damage is None and self._lock.is_damaged:
            self._set_damage(_FOUND_ELSEWHERE)
        if self._damage is not None:
            raise Unavailable(f"{self._damage}; nothing was written")

    def require_files(self, connection: apsw.Connection | None) -> None:
        """Raise Unavailable if the open database was removed, replaced or damaged.

        `connection` is the calling thread's, and has no transaction.
        """
        if self.files is None:
            self.require_undamaged()
            return
        change = self.files.find_change(connection)
        if change == "replaced":
            raise Unavailable(f"{_REPLACED}; nothing was written")
        if change == "truncated":
            self.report_damage(_TRUNCATED)
        self.require_undamaged()

    def find_fault(self, connection: apsw.Connection | None) -> str | None:
        """Return why the WAL must not be written into the database, or None."""
        try:
            self.require_files(connection)
        except (Unavailable, apsw.Error):
            if self._damage is None and self.files is not None and not self.files.may_checkpoint():
                return _REPLACED
        return self._damage
