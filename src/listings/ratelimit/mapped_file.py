"""A memory-mapped file with the logs of 4,096 keys, shared by the processes of a machine.

Each file is sparse, and is next to the database (`listings.db.limits-0000`):

    header  4096 bytes: magic, capacity, state, anchor, the database's ID, the machine's boot ID
    slot    for each key: a counter of logged requests (u64), then a ring of `capacity` times (f64)

The ring has at least one entry more than the limit. A hit writes its time to an unused entry and then increments the
counter. Only the increment counts, so a process that is killed between the two has changed nothing.

Each key has a byte whose lock a process holds for a whole hit: while it reads the clock, reads the ring and writes.

Exclusive mode: the only process that uses a file skips these locks, because locking and unlocking take 75% of the time
of a hit. Every user of a file holds a shared lock of one more byte, after those of the keys. A process that can lock
that byte exclusively is in exclusive mode, until a newcomer changes the state in the header. The process checks the
state at each hit and at each poll, and returns to the shared lock once it has changed. Until then, the newcomer
retries.

A file that is truncated in place would kill the process (SIGBUS) at the next access. So its length is read before each
hit. A truncated file is unlinked, so that all processes open the same new one.

Times are CLOCK_BOOTTIME plus an anchor, which is set once per boot while the header is locked. So steps of the wall
clock change nothing. After a boot, times start at the wall clock, but not before the newest time in the file. The
kernel writes the pages to disk. By default, a power failure may lose about the last half minute.
"""

import errno
import fcntl
import logging
import math
import mmap
import os
import re
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from typing import NamedTuple

from listings.domain.rate_limiter import RateLimitDecision
from listings.files import has_name, pack_lock, replace_file, try_lock

_MAGIC = b"LSTLIM01"
_HEADER = struct.Struct("8sQQd32s36s")
_HEADER_SIZE = 4096
_STATE_WORD = 2  # offset of `state` in words of 8 bytes
_STATE = struct.Struct("Q")
_REPLACED = 1  # another file has the name now
_SHARED = 2  # exclusive mode is over, or must end
KEY_BITS = 12  # the low bits of a key's ID are its slot, the others the number of its file
KEYS_PER_FILE = 1 << KEY_BITS
_MIN_CAPACITY = 1001
_HEADER_AND_KEYS_BYTES = (0, 1 + KEYS_PER_FILE)
_USERS_BYTE = (1 + KEYS_PER_FILE, 1)
# Polls to skip after leaving exclusive mode: the newcomer may still be retrying, and others may follow.
_SHARED_POLLS = 20
_MAX_STEPS = 8  # in the linear search
_fcntl = fcntl.fcntl  # aliases save each hit an attribute lookup
_lseek = os.lseek
_SET_LOCK_WAIT = fcntl.F_OFD_SETLKW

_log = logging.getLogger(__name__)


class MachineClock(NamedTuple):
    """The clocks of this machine in seconds, and the ID of its current boot."""

    boot_id: Callable[[], str] = lambda: Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    since_boot: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME)
    wall: Callable[[], float] = time.time


class _Header(NamedTuple):
    magic: bytes
    capacity: int
    state: int  # _REPLACED, _SHARED or 0
    anchor: float  # added to the seconds since boot
    database_id: bytes
    boot_id: bytes


class _Slot:
    __slots__ = ("count_offset", "first", "lock", "unlock")

    def __init__(self, count_offset: int, lock: bytes, unlock: bytes) -> None:
        self.count_offset = count_offset  # to the key's count, in words of 8 bytes
        self.lock = lock  # the structs that lock and unlock the key's byte
        self.unlock = unlock
        # The index, among all logged requests, of the first one in the window at the last hit. At the next hit, it is
        # usually the same or slightly higher.
        self.first = 0


class LogFile(NamedTuple):
    """A log file: what its name and its header say, and whether it is valid."""

    path: Path
    number: int  # in its name
    database_id: str  # the database of its keys
    is_valid: bool  # whether it has this format, and the length that its header implies


def list_log_files(database: Path) -> list[LogFile]:
    """Return the log files next to a database. Raises OSError if one cannot be read."""
    resolved = database.resolve()
    suffix = re.compile(r"\.limits-([0-9]{4}|[1-9][0-9]{4,})")
    found = []
    for path in sorted(resolved.parent.glob(f"{escape(resolved.name)}.limits-*")):
        match = suffix.fullmatch(path.name, len(resolved.name))
        if match is not None:
            with path.open("rb") as file:
                header = _read_header(file.fileno())
                is_valid = header.magic == _MAGIC and os.fstat(file.fileno()).st_size == _size(header.capacity)
            found.append(LogFile(path, int(match[1]), header.database_id.decode("ascii", "replace"), is_valid))
    return found


class MappedFile:
    """One mapped file. Create it with `open_file`, which keeps the header locked until the file is ready."""

    def __init__(self, path: Path, descriptor: int, clock: MachineClock) -> None:
        self.path = path
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
        self._polls_left = 0  # polls to skip before trying to enter exclusive mode

    def decide(self, slot: int, limit: int, window: int, increment: int) -> RateLimitDecision | None:
        """Count one request, or none if `increment` is 0. Return None if the file was replaced or truncated."""
        if self.is_truncated():
            return None
        entry = self._slots.get(slot) or self._allocate(slot)
        if self._is_exclusive:
            if self._words[_STATE_WORD] == 0:
                return self._count(entry, limit, window, increment)
            self.leave_exclusive_mode()
        _fcntl(self.descriptor, _SET_LOCK_WAIT, entry.lock)
        try:
            if self.is_truncated() or self._words[_STATE_WORD] == _REPLACED:
                return None
            return self._count(entry, limit, window, increment)
        finally:
            _fcntl(self.descriptor, _SET_LOCK_WAIT, entry.unlock)

    def is_truncated(self) -> bool:
        """Return whether the file is shorter than its mapping. Moves the file's offset, which nothing uses."""
        return _lseek(self.descriptor, 0, os.SEEK_END) < self._length

    def update_mode(self) -> None:
        """Enter exclusive mode if there is no other user. Leave it if a newcomer has asked for that."""
        if self._is_exclusive:
            if self._words[_STATE_WORD] != 0:
                self.leave_exclusive_mode()
        elif self._polls_left > 0:
            self._polls_left -= 1
        elif try_lock(self.descriptor, fcntl.F_WRLCK, *_USERS_BYTE) and self._words[_STATE_WORD] != _REPLACED:
            self._words[_STATE_WORD] = 0  # a process that has just asked to join retries
            self._is_exclusive = True

    def leave_exclusive_mode(self) -> None:
        """Let others join, and lock each key from now on. Does nothing in shared mode."""
        if self._is_exclusive:
            self._is_exclusive = False
            self._polls_left = _SHARED_POLLS
            try_lock(self.descriptor, fcntl.F_RDLCK, *_USERS_BYTE)

    def list_used_slots(self) -> list[int]:
        if self.is_truncated():
            return []
        return [slot for slot in range(KEYS_PER_FILE) if self._words[self._count_offset(slot)]]

    def list_ages(self, slot: int, limit: int, window: int) -> list[float]:
        """Return the seconds since each counted request, oldest first."""
        if self.is_truncated() or not self._words[self._count_offset(slot)]:
            return []
        with self._locked_slot(slot) as count_offset:
            if count_offset is None:
                return []
            now = self._now()
            return [now - moment for moment in self._times_after(count_offset, limit, now - window)]

    def import_history(self, slot: int, limit: int, window: int, ages: Sequence[float], *, adds: bool = False) -> bool:
        """Replace the key's log with these requests if there are more of them, or with `adds`, add them to it.

        Return False if the file was replaced or truncated.
        """
        if self.is_truncated():
            return False
        with self._locked_slot(slot) as count_offset:
            if count_offset is None:
                return False
            now = self._now()
            imported = [now - age for age in ages if age < window][-limit:]
            counted = self._times_after(count_offset, limit, now - window)
            if adds:
                imported = sorted([*counted, *imported])[-limit:]
            elif len(counted) >= len(imported):
                return True
            self._words[count_offset] = 0
            self.write_log(slot, imported)
            return True

    @contextmanager
    def _locked_slot(self, slot: int) -> Iterator[int | None]:  # None: the file was replaced or truncated
        entry = self._slots.get(slot) or self._allocate(slot)
        _fcntl(self.descriptor, _SET_LOCK_WAIT, entry.lock)
        try:
            is_lost = self.is_truncated() or self._words[_STATE_WORD] == _REPLACED
            yield None if is_lost else entry.count_offset
        finally:
            _fcntl(self.descriptor, _SET_LOCK_WAIT, entry.unlock)

    def _now(self) -> float:
        return self._since_boot() + self._anchor

    def _times_after(self, count_offset: int, limit: int, start: float) -> list[float]:
        count, ring = self._words[count_offset], count_offset + 1
        first = self._first_after(start, ring, max(0, count - limit), count)
        return [self._times[ring + number % self.header.capacity] for number in range(first, count)]

    def _count(self, entry: _Slot, limit: int, window: int, increment: int) -> RateLimitDecision:
        words, times, capacity, count_offset = self._words, self._times, self._capacity, entry.count_offset
        count, ring = words[count_offset], count_offset + 1
        now = self._since_boot() + self._anchor
        start = now - window
        entry.first = first = self._first_after_guess(entry.first, start, ring, (max(0, count - limit), count))
        accepted = count - first < limit
        if accepted and increment:
            times[ring + count % capacity] = now
            words[count_offset] = count = count + 1
        oldest = times[ring + first % capacity] if first < count else start
        return RateLimitDecision(accepted, limit - (count - first), oldest - start)

    def _first_after(self, start: float, ring: int, low: int, high: int) -> int:
        times, capacity = self._times, self._capacity
        while low < high:
            middle = (low + high) // 2
            if times[ring + middle % capacity] > start:
                high = middle
            else:
                low = middle + 1
        return low

    def _first_after_guess(self, guess: int, start: float, ring: int, numbers: tuple[int, int]) -> int:
        # Faster than a binary search if the result is the guess or one of the next numbers.
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
        capacity = self.header.capacity
        offsets = map(self._count_offset, range(KEYS_PER_FILE))
        counts = ((offset, self._words[offset]) for offset in offsets)
        return max((self._times[offset + 1 + (count - 1) % capacity] for offset, count in counts if count), default=0.0)

    def read_log(self, slot: int) -> list[float]:
        """Return the times of a key's counted requests, oldest first. The file must be locked."""
        return self._times_after(self._count_offset(slot), self.header.capacity - 1, -math.inf)

    def write_log(self, slot: int, times: Sequence[float]) -> None:
        """Store the times of a key that has no times yet."""
        count_offset = self._allocate(slot).count_offset
        for offset, moment in enumerate(times, count_offset + 1):
            self._times[offset] = moment
        self._words[count_offset] = len(times)

    def mark_replaced(self) -> None:
        self._words[_STATE_WORD] = _REPLACED

    def write_header(self, header: _Header) -> None:
        _HEADER.pack_into(self.map, 0, *header)
        self.header = header
        self._capacity, self._anchor = header.capacity, header.anchor

    def close(self) -> None:
        self.unmap()
        os.close(self.descriptor)

    def unmap(self) -> None:
        """Unmap the file and keep its descriptor open."""
        self._words.release()
        self._times.release()
        self.map.close()

    def _count_offset(self, slot: int) -> int:
        return _HEADER_SIZE // 8 + slot * (self.header.capacity + 1)

    def _allocate(self, slot: int) -> _Slot:
        count_offset = self._count_offset(slot)
        # Writing to a hole of a mapped file would kill the process if the disk is full.
        os.posix_fallocate(self.descriptor, 8 * count_offset, 8 * (self.header.capacity + 1))
        locks = pack_lock(fcntl.F_WRLCK, 1 + slot, 1), pack_lock(fcntl.F_UNLCK, 1 + slot, 1)
        entry = self._slots[slot] = _Slot(count_offset, *locks)
        return entry


def lock_header(descriptor: int) -> None:
    """Lock the header and all keys, waiting for other processes."""
    _fcntl(descriptor, _SET_LOCK_WAIT, pack_lock(fcntl.F_WRLCK, *_HEADER_AND_KEYS_BYTES))


def open_file(path: Path, database_id: str, capacity: int, clock: MachineClock) -> MappedFile:
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
            lock_header(descriptor)
            if has_name(descriptor, path):  # otherwise it was replaced before it was locked
                if os.fstat(descriptor).st_size:
                    os.pwrite(descriptor, _STATE.pack(_SHARED), _STATE_WORD * _STATE.size)
                if not try_lock(descriptor, fcntl.F_RDLCK, *_USERS_BYTE):
                    raise BlockingIOError(errno.EAGAIN, "another process holds it exclusively")
                file = _use_or_replace(path, descriptor, new_header, clock)
        finally:
            if file is None:
                os.close(descriptor)  # which also unlocks it
        if file is not None:
            _fcntl(descriptor, _SET_LOCK_WAIT, pack_lock(fcntl.F_UNLCK, *_HEADER_AND_KEYS_BYTES))
            return file


def _read_header(descriptor: int) -> _Header:
    return _Header(*_HEADER.unpack(os.pread(descriptor, _HEADER.size, 0).ljust(_HEADER.size, b"\0")))


def _use_or_replace(path: Path, descriptor: int, new_header: _Header, clock: MachineClock) -> MappedFile | None:
    if os.fstat(descriptor).st_size == 0:
        return _format(path, descriptor, new_header, clock)
    header = _read_header(descriptor)
    is_own = (header.magic, header.database_id) == (_MAGIC, new_header.database_id)
    if not is_own or os.fstat(descriptor).st_size != _size(header.capacity):
        _log.warning("The rate limit starts empty: %s was damaged or belonged to another database", path)
        _replace(path, new_header, None, clock)
        if is_own:  # it has the wrong length, but other processes may count in it
            os.pwrite(descriptor, _STATE.pack(_REPLACED), _STATE_WORD * _STATE.size)
        return None
    file = MappedFile(path, descriptor, clock)
    is_usable = False
    try:
        if header.boot_id != new_header.boot_id:
            anchor = max(clock.wall(), file.newest_time()) - clock.since_boot()
            file.write_header(header._replace(anchor=anchor, boot_id=new_header.boot_id))
        is_usable = header.capacity >= new_header.capacity
        if not is_usable:
            _replace(path, file.header._replace(capacity=new_header.capacity), file, clock)
            file.mark_replaced()
    finally:
        if not is_usable:
            file.unmap()  # otherwise the mapping's duplicate of the descriptor would keep the locks
    return file if is_usable else None


def _replace(path: Path, header: _Header, old: MappedFile | None, clock: MachineClock) -> None:
    with replace_file(path) as new:
        file = _format(path, new.fileno(), header, clock)
        try:
            if old is not None:
                for slot in old.list_used_slots():
                    file.write_log(slot, old.read_log(slot))
        finally:
            file.unmap()


def _format(path: Path, descriptor: int, header: _Header, clock: MachineClock) -> MappedFile:
    os.posix_fallocate(descriptor, 0, _HEADER_SIZE)
    os.pwrite(descriptor, _HEADER.pack(*header), 0)
    os.ftruncate(descriptor, _size(header.capacity))
    return MappedFile(path, descriptor, clock)


def _size(capacity: int) -> int:
    return _HEADER_SIZE + KEYS_PER_FILE * 8 * (capacity + 1)
