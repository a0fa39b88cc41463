"""The exact sliding log in memory-mapped files: shared by the processes of a machine, and there after a restart.

One file for 4,096 keys, sparse, beside the database (`listings.db.limits-0000`):

    header  4096 bytes: magic, capacity, state, anchor, the database's id, the machine's boot id
    slot    for each key: how many requests were ever accepted (u64), then a ring of `capacity` times (f64)

The ring has one place more than the limit needs. A hit writes its time to the place that counts no more, then
raises the number, which is what makes it count: a process that is killed between the two has changed nothing.

Every process holds the byte of a key locked while it reads the clock, the ring, and writes. The locks belong to an
open file (OFD locks), since those of a process vanish when it closes any descriptor of the file; threads take turns
by a lock of their own.

A process that is alone with a file does without, for two locks take three quarters of a hit. Whoever counts in a file
holds one more byte, behind those of the keys, in common with the others. Who gets it for itself is alone, until
somebody who comes writes to the header that it is no more. That is read at each hit, and now and then where there are
none, and the byte is then given back to be held in common. Until it is, the newcomer counts nothing and waits.

Times are CLOCK_BOOTTIME plus an anchor that is taken once per boot, under the lock of the header: steps of the wall
clock change nothing. A new boot begins at the wall clock, but not before the newest time in the file. The kernel
keeps the files; a power cut may lose what it had not yet written, some seconds.
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

_MAGIC = b"LSTLIM01"
_HEADER = struct.Struct("8sQQd32s36s")
_HEADER_SIZE = 4096
_STATE_WORD = 2  # the place of `state` in the file, in words of 8 bytes
_STATE = struct.Struct("Q")
_MOVED = 1  # the file was replaced by another of its name
_JOINED = 2  # nobody is alone with the file, or may be any longer
_KEYS = 4096
_KEY_BITS = 12
_LEAST_CAPACITY = 1001
_FLOCK = struct.Struct("hhqqi4x")
_HEADER_AND_KEYS = (0, 1 + _KEYS)
_USERS_BYTE = (1 + _KEYS, 1)
_LOOK_SECONDS = 0.05  # between two looks whether one is alone
_CALM_LOOKS = 20  # so many after others were let in it is not tried to be alone: they knock anew, or more of them come
_KNOCK_SECONDS = 0.005
_PATIENCE = 5.0  # seconds for a process that is alone to notice that it is no more
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
    state: int  # _MOVED, _JOINED, or 0
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
    """`listings.contract.rate_limiter.RateLimiter` over all processes of one machine."""

    is_shared: ClassVar[bool] = False
    scope: ClassVar[str] = "this machine"

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

    async def hit(self, key_id: int) -> RateLimitDecision:
        """Count one request of the key. Raises Unavailable when the disk is full or fails."""
        while True:
            try:
                return self._ask(key_id, taken=1)
            except BlockingIOError:
                await self._enter(key_id >> _KEY_BITS)

    async def peek(self, key_id: int) -> RateLimitDecision:
        """Count nothing. Raises Unavailable as `hit` does."""
        while True:
            try:
                return self._ask(key_id, taken=0)
            except BlockingIOError:
                await self._enter(key_id >> _KEY_BITS)

    def _ask(self, key_id: int, taken: int) -> RateLimitDecision:
        number, slot = key_id >> _KEY_BITS, key_id & (_KEYS - 1)
        try:
            with self._threads:
                verdict = None
                while verdict is None:
                    verdict = self._file(number).hit(slot, self.limit, self.window, taken)
                    if verdict is None:
                        self._files.pop(number).close()
                return verdict
        except BlockingIOError:
            raise
        except OSError as error:
            raise _uncountable(error) from error

    async def _enter(self, number: int) -> None:
        """Open a file, as soon as a process that is alone with it lets us in. Raises Unavailable."""
        give_up = time.monotonic() + _PATIENCE
        while True:
            try:
                with self._threads:
                    self._file(number)
            except BlockingIOError as error:
                if time.monotonic() > give_up:
                    raise Unavailable("The rate limit can't be counted: another process keeps it to itself") from error
            except OSError as error:
                raise _uncountable(error) from error
            else:
                return
            await asyncio.sleep(_KNOCK_SECONDS)

    async def run_maintenance(self) -> None:
        """Find out, until cancelled, of which files there are no other users, to count in them without locks."""
        try:
            while True:
                await asyncio.sleep(_LOOK_SECONDS)
                self._for_each_file(_File.settle)
        finally:
            self._for_each_file(_File.share)

    def _for_each_file(self, act: "Callable[[_File], None]") -> None:
        with self._threads:
            for file in self._files.values():
                try:
                    act(file)
                except OSError as error:
                    _log.warning("A file of the rate limit can't be locked: %s", error.strerror)

    async def keys(self) -> list[int]:
        """The keys of which anything was ever counted, of files that are there and this database's.

        Raises Unavailable.
        """
        found = []
        try:
            for log in log_files(self._database):
                if log.database_id == self._database_id and log.is_sound:
                    number = int(log.path.name[-4:])
                    await self._enter(number)
                    with self._threads:
                        found += [(number << _KEY_BITS) + slot for slot in self._file(number).used()]
        except OSError as error:
            raise Unavailable(f"The rate limit can't be read: {error.strerror}") from error
        return found

    async def ages(self, key_id: int) -> list[float]:
        """The seconds since each of the key's requests that count, the oldest first. Raises Unavailable."""
        await self._enter(key_id >> _KEY_BITS)
        with self._threads:
            return self._file(key_id >> _KEY_BITS).ages(key_id & (_KEYS - 1), self.limit, self.window)

    async def import_history(self, key_id: int, ages: Sequence[float]) -> None:
        """Count the requests that another limiter has accepted, unless as many count here: see `ages`.

        Raises Unavailable.
        """
        number, slot = key_id >> _KEY_BITS, key_id & (_KEYS - 1)
        while True:
            await self._enter(number)
            with self._threads:
                try:
                    if self._file(number).import_history(slot, self.limit, self.window, ages):
                        return
                except OSError as error:
                    raise _uncountable(error) from error
                self._files.pop(number).close()

    async def check(self) -> None:
        """Open the first file. Raises Unavailable."""
        await self._enter(0)

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
        self._is_alone = False
        self._looks_left = 0  # before it is tried to be alone

    def hit(self, slot: int, limit: int, window: int, taken: int) -> RateLimitDecision | None:
        """Count one request, or none where `taken` is 0; None when the file was replaced meanwhile."""
        place = self._slots.get(slot) or self._allocate(slot)
        if self._is_alone:
            if self._words[_STATE_WORD] == 0:
                return self._count(place, limit, window, taken)
            self.share()
        _set_lock(self.descriptor, _WAIT, place.lock)
        try:
            return None if self._words[_STATE_WORD] == _MOVED else self._count(place, limit, window, taken)
        finally:
            _set_lock(self.descriptor, _WAIT, place.unlock)

    def settle(self) -> None:
        """Be alone where there is no other user, and no more where there is one."""
        if self._is_alone:
            if self._words[_STATE_WORD] != 0:
                self.share()
        elif self._looks_left > 0:
            self._looks_left -= 1
        elif _try_lock(self.descriptor, fcntl.F_WRLCK, *_USERS_BYTE) and self._words[_STATE_WORD] != _MOVED:
            self._words[_STATE_WORD] = 0  # who has knocked in this moment is not in yet, and knocks anew
            self._is_alone = True

    def share(self) -> None:
        """Let others in, if they were not, and lock each key from now on."""
        if self._is_alone:
            self._is_alone = False
            self._looks_left = _CALM_LOOKS
            _try_lock(self.descriptor, fcntl.F_RDLCK, *_USERS_BYTE)

    def used(self) -> list[int]:
        """The slots of keys that were ever counted."""
        return [slot for slot in range(_KEYS) if self._words[self._word_of(slot)]]

    def ages(self, slot: int, limit: int, window: int) -> list[float]:
        """Seconds since each request of a key that counts, the oldest first."""
        with self._locked(slot) as count_at:
            now = self._now()
            return [now - time for time in self._counting(count_at, limit, now - window)]

    def import_history(self, slot: int, limit: int, window: int, ages: Sequence[float]) -> bool:
        """Let these be the key's requests, unless as many count already; False when the file was replaced meanwhile."""
        with self._locked(slot) as count_at:
            if self._words[_STATE_WORD] == _MOVED:
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

    def _count(self, place: _Slot, limit: int, window: int, taken: int) -> RateLimitDecision:
        words, times, capacity, count_at = self._words, self._times, self._capacity, place.count_at
        count, ring = words[count_at], count_at + 1
        now = self._since_boot() + self._anchor
        start = now - window
        place.first = first = self._first_near(place.first, start, ring, (max(0, count - limit), count))
        accepted = count - first < limit
        if accepted and taken:
            times[ring + count % capacity] = now
            words[count_at] = count = count + 1
        oldest = times[ring + first % capacity] if first < count else start
        return RateLimitDecision(accepted, limit - (count - first), oldest - start)

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
        self._words[_STATE_WORD] = _MOVED

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


def _uncountable(error: OSError) -> Unavailable:
    return Unavailable(f"The rate limit can't be counted: {error.strerror}")


def _lock(descriptor: int, start: int, length: int) -> None:
    """Hold bytes of a file against all other processes; length 0 reaches to its end."""
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLKW, _lock_of(fcntl.F_WRLCK, start, length))


def _unlock(descriptor: int, start: int, length: int) -> None:
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLKW, _lock_of(fcntl.F_UNLCK, start, length))


def _try_lock(descriptor: int, kind: int, start: int, length: int) -> bool:
    """Hold bytes of a file, or hold them otherwise than before, if that can be at once."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _lock_of(kind, start, length))
    except BlockingIOError:
        return False
    return True


def _lock_of(kind: int, start: int, length: int) -> bytes:
    """A `struct flock`."""
    return _FLOCK.pack(kind, os.SEEK_SET, start, length, 0)


def _open(path: Path, database_id: str, capacity: int, clock: MachineClock) -> _File:
    """The file of this name, made, or replaced where it can't be used as it is.

    Raises BlockingIOError while another process is alone with it, which is told that it is to be no more.
    """
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
            _lock(descriptor, *_HEADER_AND_KEYS)
            if _has_name(descriptor, path):
                _join(descriptor)
                file = _take(path, descriptor, fresh, clock)
        finally:
            if file is None:
                os.close(descriptor)  # and with it the lock
        if file is not None:
            _unlock(descriptor, *_HEADER_AND_KEYS)
            return file


def _join(descriptor: int) -> None:
    """Be one of the users of a file whose header is locked. Raises BlockingIOError as `_open` does."""
    if os.fstat(descriptor).st_size:
        os.pwrite(descriptor, _STATE.pack(_JOINED), _STATE_WORD * _STATE.size)
    if not _try_lock(descriptor, fcntl.F_RDLCK, *_USERS_BYTE):
        raise BlockingIOError(errno.EAGAIN, "another process is alone with it")


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
