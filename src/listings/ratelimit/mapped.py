"""Exact sliding-window log in memory-mapped files, shared by the processes of a machine. It survives restarts.

Each sparse file next to the database has the logs of 4,096 keys (`listings.db.limits-0000`):

    header  4096 bytes: magic, capacity, state, anchor, the database's ID, the machine's boot ID
    slot    for each key: the number of requests ever accepted (u64), then a ring of `capacity` times (f64)

The ring has one entry more than the limit needs. A hit writes its time to the unused entry and then increments the
number. Only the increment counts, so a process that is killed between the two has changed nothing.

A process locks the byte of a key while it reads the clock, reads the ring and writes. The locks are open file
description (OFD) locks, because a process loses its traditional locks when it closes any descriptor of the file.
Threads are serialised by a lock of their own.

Exclusive mode: the only process that uses a file skips these locks, because two locks take three quarters of a hit.
Every user of a file holds a shared lock of one more byte, after those of the keys. A process that can lock that byte
exclusively is in exclusive mode, until a newcomer changes the state in the header. The process reads the state at each
hit, and periodically without hits, and then returns to the shared lock. Until then, the newcomer waits.

Without room on the disk, a key that has no slot yet is counted in memory, by each process alone. The maintenance moves
its log to the file once there is room.

A file that is truncated in place would kill the process (SIGBUS) at the next access. So its length is read before each
hit. A truncated file loses its name, so that every process starts with the same new one.

Times are CLOCK_BOOTTIME plus an anchor, which is set once per boot while the header is locked. So steps of the wall
clock change nothing. After a boot, times start at the wall clock, but not before the newest time in the file. The
kernel writes the pages to disk; a power failure may lose a few seconds.
"""

import asyncio
import errno
import fcntl
import logging
import mmap
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from typing import ClassVar, NamedTuple

from listings.contract.rate_limiter import RateLimitDecision
from listings.domain.errors import Unavailable
from listings.files import replace_file
from listings.ratelimit.memory import MemoryLimiter

_MAGIC = b"LSTLIM01"
_HEADER = struct.Struct("8sQQd32s36s")
_HEADER_SIZE = 4096
_STATE_WORD = 2  # offset of `state` in words of 8 bytes
_STATE = struct.Struct("Q")
_REPLACED = 1  # another file has the name now
_SHARED = 2  # exclusive mode is over, or must end
_KEYS_PER_FILE = 4096
_KEY_BITS = 12
_MIN_CAPACITY = 1001
_FLOCK = struct.Struct("hhqqi4x")
_HEADER_AND_KEYS_BYTES = (0, 1 + _KEYS_PER_FILE)
_USERS_BYTE = (1 + _KEYS_PER_FILE, 1)
_POLL_SECONDS = 0.05  # interval of the checks for exclusive mode
_SHARED_POLLS = 20  # checks to skip after leaving exclusive mode, because the newcomer retries or more of them come
_JOIN_RETRY_SECONDS = 0.005
_JOIN_TIMEOUT_SECONDS = 5.0  # for another process to leave exclusive mode
_MAX_STEPS = 8  # of the linear search
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_set_lock = fcntl.fcntl
_seek = os.lseek
_SET_LOCK_WAIT = fcntl.F_OFD_SETLKW

_log = logging.getLogger(__name__)


def _read_boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


class MachineClock(NamedTuple):
    """The clocks of this machine in seconds, and the ID of its current boot."""

    boot_id: Callable[[], str] = _read_boot_id
    since_boot: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME)
    wall: Callable[[], float] = time.time


class _NoRoomError(Exception):
    """The disk has no room for the log of a key."""


class _Header(NamedTuple):
    magic: bytes
    capacity: int
    state: int  # _REPLACED, _SHARED or 0
    anchor: float  # is added to the seconds since boot
    database_id: bytes
    boot_id: bytes


class _Slot:
    """A key's slot: the offset of its count in words of 8 bytes, and the structs that lock and unlock its byte.

    `first` is the number of the oldest counted request at the last hit. At the next hit it is the same or slightly
    higher.
    """

    __slots__ = ("count_word", "first", "lock", "unlock")

    def __init__(self, count_word: int, lock: bytes, unlock: bytes) -> None:
        self.count_word = count_word
        self.lock = lock
        self.unlock = unlock
        self.first = 0


class LogFile(NamedTuple):
    """The header of a log file, checked."""

    path: Path
    database_id: str  # the database of its keys
    is_valid: bool  # whether it has this format, and the length that its header implies


def list_log_files(database: Path) -> list[LogFile]:
    """Return the log files next to a database. Raises OSError if one cannot be read."""
    resolved = database.resolve()
    return [_inspect(path) for path in sorted(resolved.parent.glob(f"{escape(resolved.name)}.limits-????"))]


class MappedLimiter:
    """A `RateLimiter` shared by all processes of a machine."""

    is_shared: ClassVar[bool] = False
    scope: ClassVar[str] = "this machine"

    def __init__(
        self, database: Path, database_id: str, limit: int, window: int, clock: MachineClock | None = None
    ) -> None:
        """`database_id` identifies the keys. The log of another database is discarded."""
        self.limit = limit
        self.window = window
        self._database = database.resolve()  # so that a link to the database leads to the same files
        self._database_id = database_id
        self._clock = clock or MachineClock()
        self._files: dict[int, _File] = {}
        self._thread_lock = threading.Lock()
        self._unsaved = MemoryLimiter(limit, window, self._clock.since_boot)  # keys for which the disk has no room

    async def hit(self, key_id: int) -> RateLimitDecision:
        """Count one request. Raises Unavailable if the disk fails."""
        while True:
            try:
                return self._decide(key_id, increment=1)
            except BlockingIOError:
                await self._wait_to_join(key_id >> _KEY_BITS)
            except _NoRoomError as error:
                if not self._unsaved.logs:
                    _log.error("The rate limit of new keys is counted in memory: %s", error)
                return await self._unsaved.hit(key_id)

    async def peek(self, key_id: int) -> RateLimitDecision:
        while True:
            try:
                return self._decide(key_id, increment=0)
            except BlockingIOError:
                await self._wait_to_join(key_id >> _KEY_BITS)
            except _NoRoomError:
                return await self._unsaved.peek(key_id)

    def _decide(self, key_id: int, increment: int) -> RateLimitDecision:
        if self._unsaved.logs and key_id in self._unsaved.logs:
            raise _NoRoomError
        number, slot = key_id >> _KEY_BITS, key_id & (_KEYS_PER_FILE - 1)
        try:
            with self._thread_lock:
                decision = None
                while decision is None:
                    decision = self._file(number).hit(slot, self.limit, self.window, increment)
                    if decision is None:
                        self._drop(number)
                return decision
        except BlockingIOError:
            raise
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise _unavailable(error) from error
            raise _NoRoomError(error.strerror) from error

    def _drop(self, number: int) -> None:
        """Close a file that was replaced or truncated."""
        file = self._files.pop(number)
        if file.is_truncated():
            path = self._path(number)
            _lock(file.descriptor, *_HEADER_AND_KEYS_BYTES)  # as whoever replaces the file does
            if _is_current(file.descriptor, path):
                _log.error("The rate limit starts empty: %s was truncated while in use", path)
                path.unlink()
        file.close()

    def _save(self) -> None:
        """Move logs from memory to the files, as long as there is room."""
        unsaved = self._unsaved
        try:
            for key_id in list(unsaved.logs):
                number, slot = key_id >> _KEY_BITS, key_id & (_KEYS_PER_FILE - 1)
                with self._thread_lock:
                    ages = unsaved.list_ages(key_id)
                    while not self._file(number).import_history(slot, self.limit, self.window, ages):
                        self._drop(number)
                del unsaved.logs[key_id]
        except OSError:  # try again later
            return
        _log.warning("The rate limit of all keys is counted in files again")

    async def _wait_to_join(self, number: int) -> None:
        """Open a file, waiting for another process to leave exclusive mode. Raises Unavailable."""
        deadline = time.monotonic() + _JOIN_TIMEOUT_SECONDS
        while True:
            try:
                with self._thread_lock:
                    self._file(number)
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise Unavailable(
                        "The rate limit can't be counted: another process holds it exclusively"
                    ) from error
            except OSError as error:
                raise _unavailable(error) from error
            else:
                return
            await asyncio.sleep(_JOIN_RETRY_SECONDS)

    async def run_maintenance(self) -> None:
        """Enter and leave exclusive mode for each file, until cancelled."""
        try:
            while True:
                await asyncio.sleep(_POLL_SECONDS)
                self._for_each_file(_File.update_mode)
                if self._unsaved.logs:
                    self._save()
        finally:
            self._for_each_file(_File.leave_exclusive_mode)

    def _for_each_file(self, act: "Callable[[_File], None]") -> None:
        with self._thread_lock:
            for number, file in list(self._files.items()):
                try:
                    if file.is_truncated():
                        self._drop(number)
                    else:
                        act(file)
                except OSError as error:
                    _log.warning("A rate limit file can't be locked: %s", error.strerror)

    async def list_keys(self) -> list[int]:
        """Return the keys that have a log in the existing files of this database. Raises Unavailable."""
        found = []
        try:
            for log in list_log_files(self._database):
                if log.database_id == self._database_id and log.is_valid:
                    number = int(log.path.name[-4:])
                    await self._wait_to_join(number)
                    with self._thread_lock:
                        found += [(number << _KEY_BITS) + slot for slot in self._file(number).list_used_slots()]
        except OSError as error:
            raise Unavailable(f"The rate limit can't be read: {error.strerror}") from error
        return found

    async def list_ages(self, key_id: int) -> list[float]:
        """Return the seconds since each counted request of the key, oldest first. Raises Unavailable."""
        await self._wait_to_join(key_id >> _KEY_BITS)
        with self._thread_lock:
            return self._file(key_id >> _KEY_BITS).list_ages(key_id & (_KEYS_PER_FILE - 1), self.limit, self.window)

    async def import_history(self, key_id: int, ages: Sequence[float]) -> None:
        """Replace the key's log by another limiter's (`list_ages`), if that has more requests. Raises Unavailable."""
        number, slot = key_id >> _KEY_BITS, key_id & (_KEYS_PER_FILE - 1)
        while True:
            await self._wait_to_join(number)
            with self._thread_lock:
                try:
                    if self._file(number).import_history(slot, self.limit, self.window, ages):
                        return
                except OSError as error:
                    raise _unavailable(error) from error
                self._drop(number)

    async def check(self) -> None:
        await self._wait_to_join(0)
        if self._unsaved.logs:
            raise Unavailable("The rate limit of new keys is counted in memory, because the disk has no room")

    async def close(self) -> None:
        with self._thread_lock:
            while self._files:
                self._files.popitem()[1].close()

    def _file(self, number: int) -> "_File":
        file = self._files.get(number)
        if file is None:
            file = self._files[number] = _open(self._path(number), self._database_id, self.limit + 1, self._clock)
        return file

    def _path(self, number: int) -> Path:
        return self._database.with_name(f"{self._database.name}.limits-{number:04}")


class _File:
    """One mapped file. Created by `_open`, which holds the lock of the header."""

    def __init__(self, descriptor: int, clock: MachineClock) -> None:
        self.descriptor = descriptor
        self.map = mmap.mmap(descriptor, 0)
        self.header = _Header(*_HEADER.unpack_from(self.map))
        self._words = memoryview(self.map).cast("Q")
        self._times = memoryview(self.map).cast("d")
        self._capacity, self._anchor = self.header.capacity, self.header.anchor
        self._length = len(self.map)
        self._since_boot = clock.since_boot
        self._slots: dict[int, _Slot] = {}  # those with allocated disk space
        self._is_exclusive = False
        self._polls_left = 0  # checks to skip before trying exclusive mode

    def hit(self, slot: int, limit: int, window: int, increment: int) -> RateLimitDecision | None:
        """Count one request, or none if `increment` is 0. Return None if the file was replaced or truncated."""
        if self.is_truncated():
            return None
        entry = self._slots.get(slot) or self._allocate(slot)
        if self._is_exclusive:
            if self._words[_STATE_WORD] == 0:
                return self._count(entry, limit, window, increment)
            self.leave_exclusive_mode()
        _set_lock(self.descriptor, _SET_LOCK_WAIT, entry.lock)
        try:
            if self.is_truncated() or self._words[_STATE_WORD] == _REPLACED:
                return None
            return self._count(entry, limit, window, increment)
        finally:
            _set_lock(self.descriptor, _SET_LOCK_WAIT, entry.unlock)

    def is_truncated(self) -> bool:
        """Return whether the file is shorter than its mapping. Moves the file's offset, which nothing uses."""
        return _seek(self.descriptor, 0, os.SEEK_END) < self._length

    def update_mode(self) -> None:
        """Enter exclusive mode if there is no other user, and leave it if there is one."""
        if self._is_exclusive:
            if self._words[_STATE_WORD] != 0:
                self.leave_exclusive_mode()
        elif self._polls_left > 0:
            self._polls_left -= 1
        elif _try_lock(self.descriptor, fcntl.F_WRLCK, *_USERS_BYTE) and self._words[_STATE_WORD] != _REPLACED:
            self._words[_STATE_WORD] = 0  # a process that is just joining retries
            self._is_exclusive = True

    def leave_exclusive_mode(self) -> None:
        """Let others join, and lock each key from now on. Does nothing in shared mode."""
        if self._is_exclusive:
            self._is_exclusive = False
            self._polls_left = _SHARED_POLLS
            _try_lock(self.descriptor, fcntl.F_RDLCK, *_USERS_BYTE)

    def list_used_slots(self) -> list[int]:
        """Return the slots of keys with a count."""
        if self.is_truncated():
            return []
        return [slot for slot in range(_KEYS_PER_FILE) if self._words[self._word_offset(slot)]]

    def list_ages(self, slot: int, limit: int, window: int) -> list[float]:
        """Return the seconds since each counted request, oldest first."""
        if self.is_truncated():
            return []
        with self._locked_slot(slot) as count_word:
            now = self._now()
            return [now - time for time in self._times_after(count_word, limit, now - window)]

    def import_history(self, slot: int, limit: int, window: int, ages: Sequence[float]) -> bool:
        """Replace the key's log by these requests if they are more. Return False as `hit` returns None."""
        if self.is_truncated():
            return False
        with self._locked_slot(slot) as count_word:
            if self._words[_STATE_WORD] == _REPLACED:
                return False
            now = self._now()
            imported = [now - age for age in ages if age < window][-limit:]
            if len(self._times_after(count_word, limit, now - window)) >= len(imported):
                return True
            self._words[count_word] = 0
            for number, time in enumerate(imported):
                self._times[count_word + 1 + number] = time
            self._words[count_word] = len(imported)
            return True

    @contextmanager
    def _locked_slot(self, slot: int) -> Iterator[int]:
        """Lock a key against other processes. Yields the offset of its count in words."""
        entry = self._slots.get(slot) or self._allocate(slot)
        _set_lock(self.descriptor, _SET_LOCK_WAIT, entry.lock)
        try:
            yield entry.count_word
        finally:
            _set_lock(self.descriptor, _SET_LOCK_WAIT, entry.unlock)

    def _now(self) -> float:
        return self._since_boot() + self._anchor

    def _times_after(self, count_word: int, limit: int, start: float) -> list[float]:
        """Return the times of a key that are after `start`, oldest first."""
        count, ring = self._words[count_word], count_word + 1
        first = self._first_after(start, ring, max(0, count - limit), count)
        return [self._times[ring + number % self.header.capacity] for number in range(first, count)]

    def _count(self, entry: _Slot, limit: int, window: int, increment: int) -> RateLimitDecision:
        words, times, capacity, count_word = self._words, self._times, self._capacity, entry.count_word
        count, ring = words[count_word], count_word + 1
        now = self._since_boot() + self._anchor
        start = now - window
        entry.first = first = self._first_after_guess(entry.first, start, ring, (max(0, count - limit), count))
        accepted = count - first < limit
        if accepted and increment:
            times[ring + count % capacity] = now
            words[count_word] = count = count + 1
        oldest = times[ring + first % capacity] if first < count else start
        return RateLimitDecision(accepted, limit - (count - first), oldest - start)

    def _first_after(self, start: float, ring: int, low: int, high: int) -> int:
        """Return the number of the first request after `start`, from `low` to `high`, by binary search."""
        times, capacity = self._times, self._capacity
        while low < high:
            middle = (low + high) // 2
            if times[ring + middle % capacity] > start:
                high = middle
            else:
                low = middle + 1
        return low

    def _first_after_guess(self, guess: int, start: float, ring: int, numbers: tuple[int, int]) -> int:
        """Like `_first_after`, but faster if the result is the guess or one of the next numbers."""
        (low, high), times, capacity = numbers, self._times, self._capacity
        first = max(guess, low)
        if first > high or (first > low and times[ring + (first - 1) % capacity] > start):
            return self._first_after(start, ring, low, high)
        for _ in range(_MAX_STEPS):
            if first == high or times[ring + first % capacity] > start:
                return first
            first += 1
        return self._first_after(start, ring, first, high)

    def newest_time(self) -> float:
        """Return the newest time of all keys."""
        capacity = self.header.capacity
        counts = ((self._word_offset(slot), self._words[self._word_offset(slot)]) for slot in range(_KEYS_PER_FILE))
        return max((self._times[at + 1 + (count - 1) % capacity] for at, count in counts if count), default=0.0)

    def copy_to(self, other: "_File") -> None:
        """Copy all logs to a file with a larger capacity."""
        for slot in range(_KEYS_PER_FILE):
            count = self._words[self._word_offset(slot)]
            if not count:
                continue
            other._allocate(slot)  # noqa: SLF001 - same class
            at, length = other._word_offset(slot), min(count, self.header.capacity - 1)  # noqa: SLF001 - same class
            for number in range(count - length, count):
                time_at = self._word_offset(slot) + 1 + number % self.header.capacity
                other._times[at + 1 + (number - count + length)] = self._times[time_at]  # noqa: SLF001
            other._words[at] = length  # noqa: SLF001 - same class

    def mark_replaced(self) -> None:
        """Tell other processes that another file has this one's name now."""
        self._words[_STATE_WORD] = _REPLACED

    def write_header(self, header: _Header) -> None:
        """Write the header."""
        _HEADER.pack_into(self.map, 0, *header)
        self.header = header
        self._capacity, self._anchor = header.capacity, header.anchor

    def close(self) -> None:
        """Unmap and close the file. The kernel writes the pages to disk."""
        self.unmap()
        os.close(self.descriptor)

    def unmap(self) -> None:
        """Unmap the file and keep its descriptor open."""
        self._words.release()
        self._times.release()
        self.map.close()

    def _word_offset(self, slot: int) -> int:
        return _HEADER_SIZE // 8 + slot * (self.header.capacity + 1)

    def _allocate(self, slot: int) -> _Slot:
        """Allocate disk space. Writing to a hole of a mapped file would kill the process if the disk is full."""
        count_word = self._word_offset(slot)
        os.posix_fallocate(self.descriptor, 8 * count_word, 8 * (self.header.capacity + 1))
        locks = _pack_lock(fcntl.F_WRLCK, 1 + slot, 1), _pack_lock(fcntl.F_UNLCK, 1 + slot, 1)
        entry = self._slots[slot] = _Slot(count_word, *locks)
        return entry


def _unavailable(error: OSError) -> Unavailable:
    return Unavailable(f"The rate limit can't be counted: {error.strerror}")


def _lock(descriptor: int, start: int, length: int) -> None:
    """Lock bytes of a file, waiting for other processes. Length 0 means to the end of the file."""
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLKW, _pack_lock(fcntl.F_WRLCK, start, length))


def _unlock(descriptor: int, start: int, length: int) -> None:
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLKW, _pack_lock(fcntl.F_UNLCK, start, length))


def _try_lock(descriptor: int, kind: int, start: int, length: int) -> bool:
    """Lock bytes of a file, or change the kind of their lock, without waiting. Return whether it succeeded."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _pack_lock(kind, start, length))
    except BlockingIOError:
        return False
    return True


def _pack_lock(kind: int, start: int, length: int) -> bytes:
    """Return a `struct flock`."""
    return _FLOCK.pack(kind, os.SEEK_SET, start, length, 0)


def _open(path: Path, database_id: str, capacity: int, clock: MachineClock) -> _File:
    """Open the file, creating it or replacing an unusable one.

    Raises BlockingIOError while another process is in exclusive mode, after asking that process to leave it.
    """
    new_header = _Header(
        _MAGIC,
        max(_MIN_CAPACITY, capacity),
        0,
        clock.wall() - clock.since_boot(),
        database_id.encode(),
        clock.boot_id().encode().ljust(36, b"\0"),
    )
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        file = None
        try:
            _lock(descriptor, *_HEADER_AND_KEYS_BYTES)
            if _is_current(descriptor, path):
                _join(descriptor)
                file = _use_or_replace(path, descriptor, new_header, clock)
        finally:
            if file is None:
                os.close(descriptor)  # which also unlocks it
        if file is not None:
            _unlock(descriptor, *_HEADER_AND_KEYS_BYTES)
            return file


def _join(descriptor: int) -> None:
    """Become a user of a file whose header is locked. Raises BlockingIOError as `_open` does."""
    if os.fstat(descriptor).st_size:
        os.pwrite(descriptor, _STATE.pack(_SHARED), _STATE_WORD * _STATE.size)
    if not _try_lock(descriptor, fcntl.F_RDLCK, *_USERS_BYTE):
        raise BlockingIOError(errno.EAGAIN, "another process holds it exclusively")


def _inspect(path: Path) -> LogFile:
    with path.open("rb") as file:
        header = _read_header(file.fileno())
        is_valid = header.magic == _MAGIC and os.fstat(file.fileno()).st_size == _size(header.capacity)
    return LogFile(path, header.database_id.decode("ascii", "replace"), is_valid)


def _read_header(descriptor: int) -> _Header:
    return _Header(*_HEADER.unpack(os.pread(descriptor, _HEADER.size, 0).ljust(_HEADER.size, b"\0")))


def _is_current(descriptor: int, path: Path) -> bool:
    """Return whether the open file still has this name, or was replaced before it was locked."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _use_or_replace(path: Path, descriptor: int, new_header: _Header, clock: MachineClock) -> _File | None:
    """Return the locked file if it is usable. Otherwise replace it and return None."""
    if os.fstat(descriptor).st_size == 0:
        return _format(descriptor, new_header, clock)
    header = _read_header(descriptor)
    is_own = (header.magic, header.database_id) == (_MAGIC, new_header.database_id)
    if not is_own or os.fstat(descriptor).st_size != _size(header.capacity):
        _log.warning("The rate limit starts empty: %s was damaged or belonged to another database", path)
        _replace(path, new_header, None, clock)
        return None
    file = _File(descriptor, clock)
    if header.boot_id != new_header.boot_id:
        anchor = max(clock.wall(), file.newest_time()) - clock.since_boot()
        file.write_header(header._replace(anchor=anchor, boot_id=new_header.boot_id))
    if header.capacity >= new_header.capacity:
        return file
    _replace(path, file.header._replace(capacity=new_header.capacity), file, clock)
    file.mark_replaced()
    file.unmap()
    return None


def _replace(path: Path, header: _Header, old: _File | None, clock: MachineClock) -> None:
    """Replace the file by a new one, with the logs of the old one."""
    with replace_file(path) as new:
        file = _format(os.dup(new.fileno()), header, clock)
        if old is not None:
            old.copy_to(file)
        file.close()


def _format(descriptor: int, header: _Header, clock: MachineClock) -> _File:
    """Write the header of a new, empty file."""
    os.posix_fallocate(descriptor, 0, _HEADER_SIZE)
    os.pwrite(descriptor, _HEADER.pack(*header), 0)
    os.ftruncate(descriptor, _size(header.capacity))
    return _File(descriptor, clock)


def _size(capacity: int) -> int:
    return _HEADER_SIZE + _KEYS_PER_FILE * 8 * (capacity + 1)
