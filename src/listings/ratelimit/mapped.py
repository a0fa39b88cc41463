"""Exact sliding-window log in memory-mapped files, shared by the processes of a machine. It survives restarts.

If the disk is full or read-only, each process counts in its own memory the requests of keys that have no space on disk.
`run_maintenance` moves their logs to the files once there is room.
"""

import asyncio
import errno
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from listings.domain.errors import Unavailable
from listings.domain.rate_limiter import RateLimitDecision
from listings.files import has_name
from listings.ratelimit.mapped_file import (
    KEY_BITS,
    KEYS_PER_FILE,
    MachineClock,
    MappedFile,
    list_log_files,
    lock_header,
    open_file,
)
from listings.ratelimit.memory import MemoryLimiter

_POLL_SECONDS = 0.05  # interval of the checks for exclusive mode
_JOIN_RETRY_SECONDS = 0.005
_JOIN_TIMEOUT_SECONDS = 5.0  # for another process to leave exclusive mode
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)

_log = logging.getLogger(__name__)


class _NoRoomError(Exception):
    """The requests of a key must be counted in memory: the disk is full or read-only, or the key has a log there."""


class MappedLimiter:
    """A `RateLimiter` shared by all processes of a machine. In each process, only one thread may use it."""

    is_distributed: ClassVar[bool] = False
    scope: ClassVar[str] = "this machine"

    def __init__(
        self, database: Path, database_id: str, limit: int, window: int, clock: MachineClock | None = None
    ) -> None:
        """`database_id` identifies the database whose keys are counted. The log of another database is discarded."""
        self.limit = limit
        self.window = window
        self._database = database.resolve()  # so that a link to the database leads to the same files
        self._database_id = database_id
        self._clock = clock or MachineClock()
        self._files: dict[int, MappedFile] = {}
        self._failed: set[int] = set()  # numbers of files whose last maintenance failed
        self._unsaved = MemoryLimiter(limit, window, self._clock.since_boot)  # keys for which the disk has no room

    async def hit(self, key_id: int) -> RateLimitDecision:
        """Count one request. Raises Unavailable if the disk fails, or another process locks the file for 5 seconds."""
        while True:
            try:
                return self._decide(key_id, increment=1)
            except BlockingIOError:
                await self._wait_to_join(key_id >> KEY_BITS)
            except _NoRoomError as error:
                if not self._unsaved.logs:
                    _log.error("Requests of keys without space on disk are counted in memory: %s", error)
                return await self._unsaved.hit(key_id)

    async def peek(self, key_id: int) -> RateLimitDecision:
        while True:
            try:
                return self._decide(key_id, increment=0)
            except BlockingIOError:
                await self._wait_to_join(key_id >> KEY_BITS)
            except _NoRoomError:
                return await self._unsaved.peek(key_id)

    def _decide(self, key_id: int, increment: int) -> RateLimitDecision:
        if self._unsaved.logs and key_id in self._unsaved.logs:
            raise _NoRoomError
        file_number, slot = key_id >> KEY_BITS, key_id & (KEYS_PER_FILE - 1)
        try:
            while True:
                decision = self._file(file_number).decide(slot, self.limit, self.window, increment)
                if decision is not None:
                    return decision
                self._drop(file_number)
        except BlockingIOError:
            raise
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise _unavailable(error) from error
            raise _NoRoomError(error.strerror) from error

    def _drop(self, file_number: int) -> None:
        file = self._files.pop(file_number)  # it was replaced, truncated or removed
        try:
            if file.is_truncated():
                lock_header(file.descriptor)  # the process that replaces the file holds this lock too
                if has_name(file.descriptor, file.path):
                    _log.error("The rate limit starts empty: %s was truncated while in use", file.path)
                    file.path.unlink()
            elif not file.path.exists():
                _log.error("The rate limit starts empty: %s was removed while in use", file.path)
        finally:
            file.close()

    def _save(self) -> None:
        unsaved = self._unsaved
        try:
            for key_id in list(unsaved.logs):
                # Other processes may have counted other requests of this key in the file.
                self._import_history(key_id, unsaved.list_ages(key_id), adds=True)
                del unsaved.logs[key_id]
        except OSError:  # there is still no room; try again later
            return
        _log.warning("Requests of all keys are counted in files again")

    def _import_history(self, key_id: int, ages: Sequence[float], *, adds: bool = False) -> None:
        file_number, slot = divmod(key_id, KEYS_PER_FILE)
        while not self._file(file_number).import_history(slot, self.limit, self.window, ages, adds=adds):
            self._drop(file_number)

    async def _wait_to_join(self, file_number: int) -> None:
        deadline = time.monotonic() + _JOIN_TIMEOUT_SECONDS
        while True:
            try:
                self._file(file_number)
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise Unavailable("The rate limit can't be counted: another process has locked its file") from error
            except OSError as error:
                raise _unavailable(error) from error
            else:
                return
            await asyncio.sleep(_JOIN_RETRY_SECONDS)

    async def run_maintenance(self) -> None:
        """Update the mode of each file, and move logs from memory to the files, until cancelled."""
        try:
            while True:
                await asyncio.sleep(_POLL_SECONDS)
                self._for_each_file(MappedFile.update_mode)
                if self._unsaved.logs:
                    self._save()
        finally:
            self._for_each_file(MappedFile.leave_exclusive_mode)

    def _for_each_file(self, act: Callable[[MappedFile], None]) -> None:
        for file_number, file in list(self._files.items()):
            try:
                if file.is_truncated() or not has_name(file.descriptor, file.path):
                    self._drop(file_number)
                else:
                    act(file)
                self._failed.discard(file_number)
            except OSError as error:
                if file_number not in self._failed:
                    self._failed.add(file_number)
                    _log.warning("The rate limit file %s can't be used: %s", file.path, error.strerror)

    async def list_keys(self) -> list[int]:
        """Return the keys that have a log in the existing files of this database. Raises Unavailable."""
        found = []
        try:
            for log in list_log_files(self._database):
                if log.database_id == self._database_id and log.is_valid:
                    await self._wait_to_join(log.number)
                    found += [(log.number << KEY_BITS) + slot for slot in self._file(log.number).list_used_slots()]
        except OSError as error:
            raise Unavailable(f"The rate limit can't be read: {error.strerror}") from error
        return found

    async def list_ages(self, key_id: int) -> list[float]:
        """Return the seconds since each counted request of the key, oldest first. Raises Unavailable."""
        file_number, slot = divmod(key_id, KEYS_PER_FILE)
        await self._wait_to_join(file_number)
        return self._file(file_number).list_ages(slot, self.limit, self.window)

    async def import_history(self, key_id: int, ages: Sequence[float]) -> None:
        """Replace the key's log with another limiter's requests if there are more of those. Raises Unavailable."""
        while True:
            await self._wait_to_join(key_id >> KEY_BITS)
            try:
                return self._import_history(key_id, ages)
            except BlockingIOError:  # the file was replaced, and another process uses the new one exclusively
                continue
            except OSError as error:
                raise _unavailable(error) from error

    async def check(self) -> None:
        await self._wait_to_join(0)
        if self._unsaved.logs:
            reason = "the disk is full or read-only"
            raise Unavailable(f"Requests of keys without space on disk are counted in memory: {reason}")

    async def close(self) -> None:
        while self._files:
            self._files.popitem()[1].close()

    def _file(self, file_number: int) -> MappedFile:
        file = self._files.get(file_number)
        if file is None:
            path = self._database.with_name(f"{self._database.name}.limits-{file_number:04}")
            file = self._files[file_number] = open_file(path, self._database_id, self.limit + 1, self._clock)
        return file


def _unavailable(error: OSError) -> Unavailable:
    return Unavailable(f"The rate limit can't be counted: {error.strerror}")
