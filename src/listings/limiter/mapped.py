"""The exact sliding log in memory-mapped files: shared by the processes of a machine, and there after a restart.

One file for 4,096 keys, sparse, beside the database (`listings.db.limits-0000`):

    header  4096 bytes: magic, capacity, moved, anchor, the database's id, the machine's boot id
    slot    for each key: how many requests were ever accepted (u64), then a ring of `capacity` times (f64)

The ring has one place more than the limit needs. A hit writes its time to the place that counts no more, then
raises the number, which is what makes it count: a process that is killed between the two has changed nothing.

Every process holds the byte of a key locked while it reads the clock, the ring, and writes. The locks belong to an
open file (OFD locks), since those of a process vanish when it closes any descriptor of the file; threads take turns
by a lock of their own.

Times are CLOCK_BOOTTIME plus an anchor that is taken once per boot, under the lock of the header: steps of the wall
clock change nothing. A new boot begins at the wall clock, but not before the newest time in the file. The kernel
keeps the files; a power cut may lose what it had not yet written, some seconds.
"""

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

from listings.contract import Verdict
from listings.errors import Unavailable

_MAGIC = b"LSTLIM01"
_HEADER = struct.Struct("8sQQd32s36s")
_HEADER_SIZE = 4096
_MOVED_WORD = 2  # the place of `moved` in the file, in words of 8 bytes
_KEYS = 4096
_KEY_BITS = 12
_LEAST_CAPACITY = 1001
_FLOCK = struct.Struct("hhqqi4x")
_WHOLE_FILE = (0, 0)
_NEAR = 8
_set_lock = fcntl.fcntl
_WAIT = fcntl.F_OFD_SETLKW

_log = logging.getLogger(__name__)


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


class MachineClock(NamedTuple):
    """What tells the time on this machine; both in seconds."""

    boot_id: Callable[[], str] = _boot_id
    since_boot: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME)
    wall: Callable[[], float] = time.time


class _Header(NamedTuple):
    magic: bytes
    capacity: int
    moved: int  # 1: the file was replaced by another of its name
    anchor: float  # what to add to the seconds since boot
    database_id: bytes
    boot_id: bytes


class _Slot:
    """A key's place: of its count, in words of 8 bytes, and the structs that lock and unlock its byte.

    `first` is the number of the first acceptance that counted when it was last looked at: the next time it is that one
    or one soon behind it.
    """

    __slots__ = ("count_at", "first", "lock", "unlock")

    def __init__(self, count_at: int, lock: bytes, unlock: bytes) -> None:
        self.count_at = count_at
        self.lock = lock
        self.unlock = unlock
        self.first = 0


class LogFile(NamedTuple):
    """What a file of the log says of itself."""

    path: Path
    database_id: str  # whose keys are counted in it
    is_sound: bool  # of this format, and as long as its header says


def log_files(database: Path) -> list[LogFile]:
    """The files of the log beside a database. Changes nothing; raises OSError for one that can't be read."""
    home = database.resolve()
    return [_look_at(path) for path in sorted(home.parent.glob(f"{escape(home.name)}.limits-????"))]


class MappedLimiter:
    """`listings.contract.RateLimiter` over all processes of one machine."""

    is_shared: ClassVar[bool] = False
    reach: ClassVar[str] = "this machine"

    def __init__(
        self, database: Path, database_id: str, limit: int, window: int, clock: MachineClock | None = None
    ) -> None:
        """`database_id` tells whose keys are counted: beside another database the log starts empty."""
        self.limit = limit
        self.window = window
        self._database = database.resolve()  # whoever reaches it by another name counts with us
        self._database_id = database_id
        self._clock = clock or MachineClock()
        self._files: dict[int, _File] = {}
        self._threads = threading.Lock()

    async def hit(self, key_id: int) -> Verdict:
        """Count one request of the key. Raises Unavailable when the disk is full or fails."""
        return self._ask(key_id, taken=1)

    async def look(self, key_id: int) -> Verdict:
        """Count nothing. Raises Unavailable as `hit` does."""
        return self._ask(key_id, taken=0)

    def _ask(self, key_id: int, taken: int) -> Verdict:
        number, slot = key_id >> _KEY_BITS, key_id & (_KEYS - 1)
        try:
            with self._threads:
                verdict = None
                while verdict is None:
                    verdict = self._file(number).hit(slot, self.limit, self.window, taken)
                    if verdict is None:
                        self._files.pop(number).close()
                return verdict
        except OSError as error:
            raise Unavailable(f"The rate limit can't be counted: {error.strerror}") from error

    def ages(self) -> Iterator[tuple[int, list[float]]]:
        """Each key with requests that count, and the seconds since each of them, the oldest first.

        Only of files that are there and this database's. Raises Unavailable.
        """
        try:
            for log in log_files(self._database):
                if log.database_id == self._database_id and log.is_sound:
                    number = int(log.path.name[-4:])
                    for slot in range(_KEYS):
                        with self._threads:
                            found = self._file(number).ages(slot, self.limit, self.window)
                        if found:
                            yield (number << _KEY_BITS) + slot, found
        except OSError as error:
            raise Unavailable(f"The rate limit can't be read: {error.strerror}") from error

    async def take_over(self, key_id: int, ages: Sequence[float]) -> None:
        """Count the requests that another limiter has accepted, unless as many count here: see `ages`.

        Raises Unavailable.
        """
        number, slot = key_id >> _KEY_BITS, key_id & (_KEYS - 1)
        try:
            with self._threads:
                while not self._file(number).take_over(slot, self.limit, self.window, ages):
                    self._files.pop(number).close()
        except OSError as error:
            raise Unavailable(f"The rate limit can't be counted: {error.strerror}") from error

    async def check(self) -> None:
        """Open the first file. Raises Unavailable."""
        try:
            with self._threads:
                self._file(0)
        except OSError as error:
            raise Unavailable(f"The rate limit can't be counted: {error.strerror}") from error

    async def close(self) -> None:
        """Give the files back."""
        with self._threads:
            while self._files:
                self._files.popitem()[1].close()

    def _file(self, number: int) -> "_File":
        file = self._files.get(number)
        if file is None:
            path = self._database.with_name(f"{self._database.name}.limits-{number:04}")
            file = self._files[number] = _open(path, self._database_id, self.limit + 1, self._clock)
        return file


class _File:
    """One mapped file. Made by `_open`, which holds the header's lock."""

    def __init__(self, descriptor: int, clock: MachineClock) -> None:
        self.descriptor = descriptor
        self.map = mmap.mmap(descriptor, 0)
        self.header = _Header(*_HEADER.unpack_from(self.map))
        self._words = memoryview(self.map).cast("Q")
        self._times = memoryview(self.map).cast("d")
        self._capacity, self._anchor = self.header.capacity, self.header.anchor
        self._since_boot = clock.since_boot
        self._slots: dict[int, _Slot] = {}  # those that have their room

    def hit(self, slot: int, limit: int, window: int, taken: int) -> Verdict | None:
        """Count one request, or none where `taken` is 0; None when the file was replaced meanwhile."""
        place = self._slots.get(slot) or self._allocate(slot)
        _set_lock(self.descriptor, _WAIT, place.lock)
        try:
            return self._count(place, limit, window, taken)
        finally:
            _set_lock(self.descriptor, _WAIT, place.unlock)

    def ages(self, slot: int, limit: int, window: int) -> list[float]:
        """Seconds since each request of a key that counts, the oldest first."""
        if not self._words[self._word_of(slot)]:
            return []  # and no room is made for it
        with self._locked(slot) as count_at:
            now = self._now()
            return [now - time for time in self._counting(count_at, limit, now - window)]

    def take_over(self, slot: int, limit: int, window: int, ages: Sequence[float]) -> bool:
        """Let these be the key's requests, unless as many count already; False when the file was replaced meanwhile."""
        with self._locked(slot) as count_at:
            if self._words[_MOVED_WORD]:
                return False
            now = self._now()
            kept = [now - age for age in ages if age < window][-limit:]
            if len(self._counting(count_at, limit, now - window)) >= len(kept):
                return True
            self._words[count_at] = 0
            for number, time in enumerate(kept):
                self._times[count_at + 1 + number] = time
            self._words[count_at] = len(kept)
            return True

    @contextmanager
    def _locked(self, slot: int) -> Iterator[int]:
        """Hold a key against all other processes; tells where its count is, in words."""
        place = self._slots.get(slot) or self._allocate(slot)
        _set_lock(self.descriptor, _WAIT, place.lock)
        try:
            yield place.count_at
        finally:
            _set_lock(self.descriptor, _WAIT, place.unlock)

    def _now(self) -> float:
        return self._since_boot() + self._anchor

    def _counting(self, count_at: int, limit: int, start: float) -> list[float]:
        """The times of a key that are after `start`, in their order."""
        count, ring = self._words[count_at], count_at + 1
        first = self._first_after(start, ring, max(0, count - limit), count)
        return [self._times[ring + number % self.header.capacity] for number in range(first, count)]

    def _count(self, place: _Slot, limit: int, window: int, taken: int) -> Verdict | None:
        words, times, capacity, count_at = self._words, self._times, self._capacity, place.count_at
        if words[_MOVED_WORD]:
            return None
        count, ring = words[count_at], count_at + 1
        now = self._since_boot() + self._anchor
        start = now - window
        place.first = first = self._first_near(place.first, start, ring, (max(0, count - limit), count))
        accepted = count - first < limit
        if accepted and taken:
            times[ring + count % capacity] = now
            words[count_at] = count = count + 1
        oldest = times[ring + first % capacity] if first < count else start
        return Verdict(accepted, limit - (count - first), oldest - start)

    def _first_after(self, start: float, ring: int, low: int, high: int) -> int:
        """The number of the first acceptance after `start`, of those from `low` to before `high`, which ascend."""
        times, capacity = self._times, self._capacity
        while low < high:
            middle = (low + high) // 2
            if times[ring + middle % capacity] > start:
                high = middle
            else:
                low = middle + 1
        return low

    def _first_near(self, guess: int, start: float, ring: int, numbers: tuple[int, int]) -> int:
        """What `_first_after` finds, at once where it is the guess or one of the next."""
        (low, high), times, capacity = numbers, self._times, self._capacity
        first = max(guess, low)
        if first > high or (first > low and times[ring + (first - 1) % capacity] > start):
            return self._first_after(start, ring, low, high)
        for _ in range(_NEAR):
            if first == high or times[ring + first % capacity] > start:
                return first
            first += 1
        return self._first_after(start, ring, first, high)

    def newest(self) -> float:
        """The latest time of any key."""
        capacity = self.header.capacity
        counts = ((self._word_of(slot), self._words[self._word_of(slot)]) for slot in range(_KEYS))
        return max((self._times[at + 1 + (count - 1) % capacity] for at, count in counts if count), default=0.0)

    def copy_to(self, other: "_File") -> None:
        """Give a file of a larger capacity all that is remembered."""
        for slot in range(_KEYS):
            count = self._words[self._word_of(slot)]
            if not count:
                continue
            other._allocate(slot)  # noqa: SLF001 - of the same class
            at, kept = other._word_of(slot), min(count, self.header.capacity - 1)  # noqa: SLF001 - of the same class
            for number in range(count - kept, count):
                time_at = self._word_of(slot) + 1 + number % self.header.capacity
                other._times[at + 1 + (number - count + kept)] = self._times[time_at]  # noqa: SLF001
            other._words[at] = kept  # noqa: SLF001 - of the same class

    def mark_moved(self) -> None:
        """Tell the other processes that another file has taken this one's name."""
        self._words[_MOVED_WORD] = 1

    def write_header(self, header: _Header) -> None:
        """Replace the header."""
        _HEADER.pack_into(self.map, 0, *header)
        self.header = header
        self._capacity, self._anchor = header.capacity, header.anchor

    def close(self) -> None:
        """Give the file back; what was written is the kernel's to keep."""
        self.unmap()
        os.close(self.descriptor)

    def unmap(self) -> None:
        """Give back all but the descriptor."""
        self._words.release()
        self._times.release()
        self.map.close()

    def _word_of(self, slot: int) -> int:
        return _HEADER_SIZE // 8 + slot * (self.header.capacity + 1)

    def _allocate(self, slot: int) -> _Slot:
        """Make room on the disk now: writing to a mapped hole on a full disk would kill the process."""
        count_at = self._word_of(slot)
        os.posix_fallocate(self.descriptor, 8 * count_at, 8 * (self.header.capacity + 1))
        locks = _lock_of(fcntl.F_WRLCK, 1 + slot, 1), _lock_of(fcntl.F_UNLCK, 1 + slot, 1)
        found = self._slots[slot] = _Slot(count_at, *locks)
        return found


def _lock(descriptor: int, start: int, length: int) -> None:
    """Hold bytes of a file against all other processes; length 0 reaches to its end."""
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLKW, _lock_of(fcntl.F_WRLCK, start, length))


def _unlock(descriptor: int, start: int, length: int) -> None:
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLKW, _lock_of(fcntl.F_UNLCK, start, length))


def _lock_of(kind: int, start: int, length: int) -> bytes:
    """A `struct flock`."""
    return _FLOCK.pack(kind, os.SEEK_SET, start, length, 0)


def _open(path: Path, database_id: str, capacity: int, clock: MachineClock) -> _File:
    """The file of this name, made, or replaced where it can't be used as it is."""
    fresh = _Header(
        _MAGIC,
        max(_LEAST_CAPACITY, capacity),
        0,
        clock.wall() - clock.since_boot(),
        database_id.encode(),
        clock.boot_id().encode().ljust(36, b"\0"),
    )
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        file = None
        try:
            _lock(descriptor, *_WHOLE_FILE)
            if _has_name(descriptor, path):
                file = _take(path, descriptor, fresh, clock)
        finally:
            if file is None:
                os.close(descriptor)  # and with it the lock
        if file is not None:
            _unlock(descriptor, *_WHOLE_FILE)
            return file


def _look_at(path: Path) -> LogFile:
    with path.open("rb") as file:
        header = _read_header(file.fileno())
        is_sound = header.magic == _MAGIC and os.fstat(file.fileno()).st_size == _size(header.capacity)
    return LogFile(path, header.database_id.decode("ascii", "replace"), is_sound)


def _read_header(descriptor: int) -> _Header:
    return _Header(*_HEADER.unpack(os.pread(descriptor, _HEADER.size, 0).ljust(_HEADER.size, b"\0")))


def _has_name(descriptor: int, path: Path) -> bool:
    """Whether the file was not replaced between its opening and its locking."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _take(path: Path, descriptor: int, fresh: _Header, clock: MachineClock) -> _File | None:
    """Use the locked file as it is, or put another in its place (None)."""
    if os.fstat(descriptor).st_size == 0:
        return _format(descriptor, fresh, clock)
    header = _read_header(descriptor)
    ours = (header.magic, header.database_id) == (_MAGIC, fresh.database_id)
    if not ours or os.fstat(descriptor).st_size != _size(header.capacity):
        _log.warning("The rate limit starts empty: %s was of another database, or damaged", path)
        _replace(path, fresh, None, clock)
        return None
    file = _File(descriptor, clock)
    if header.boot_id != fresh.boot_id:
        anchor = max(clock.wall(), file.newest()) - clock.since_boot()
        file.write_header(header._replace(anchor=anchor, boot_id=fresh.boot_id))
    if header.capacity >= fresh.capacity:
        return file
    _replace(path, file.header._replace(capacity=fresh.capacity), file, clock)
    file.mark_moved()
    file.unmap()
    return None


def _replace(path: Path, header: _Header, old: _File | None, clock: MachineClock) -> None:
    """Give the name to a new file, with what the old one remembers."""
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    file = _format(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), header, clock)
    if old is not None:
        old.copy_to(file)
    file.close()
    draft.replace(path)


def _format(descriptor: int, header: _Header, clock: MachineClock) -> _File:
    """A new file: its header, and nothing counted."""
    os.posix_fallocate(descriptor, 0, _HEADER_SIZE)
    os.pwrite(descriptor, _HEADER.pack(*header), 0)
    os.ftruncate(descriptor, _size(header.capacity))
    return _File(descriptor, clock)


def _size(capacity: int) -> int:
    return _HEADER_SIZE + _KEYS * 8 * (capacity + 1)
