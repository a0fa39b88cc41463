"""Cross-process write lock for one SQLite file, with counters that validate the readers' caches.

The lock file next to the database holds three counters, which all processes map into memory. Two are like a seqlock's.
The first counts writes: it is odd while a process holds the lock, and each release leaves the next even value. The
second counts in the same way, but only writes that may change a caller: keys, plans, accounts. A caller is the key and
account that `find_caller` returns. A reader may use cached data while the counter has the same even value. If a process
is killed while it holds the lock, the counters stay odd until another process has acquired and released it.

The third counts reports of damage. Every process that uses the lock file holds a shared lock on the byte after the
counters. One that opens the file while no other uses it resets the third counter.
"""

import fcntl
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any, Final, TypeAlias

from listings.files import pack_lock, try_lock

_WRITES, _CALLERS, _DAMAGES = 0, 1, 2
_SIZE_BYTES = 24  # three 64-bit counters
_USERS_BYTE = (_SIZE_BYTES, 1)
INCREMENT_PER_WRITE: Final = 2  # each write, of any process, raises the counter by 1 at its start and at its end
UNKNOWN: Final = -1  # instead of a counter value
MAX_CACHE_SECONDS = 1.0  # because a foreign program that writes to the file does not take the lock
MAX_CACHE_ENTRIES = 4096


ReadSequence: TypeAlias = Callable[[], int]
"""Return a counter. Each write that it counts raises it by 2, and it is odd while such a write runs."""


class WriteLock:
    """The write lock: at most one process holds it.

    The kernel wakes the next process immediately. SQLite's busy handler sleeps instead, and can starve a process.
    """

    def __init__(self, path: Path) -> None:
        """`path` is the database file; processes that open it through a link share the same lock."""
        self._descriptor = os.open(f"{path.resolve()}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(self._descriptor, 0, _SIZE_BYTES)  # writing to a mapped hole on a full disk is a SIGBUS
            self._map = mmap.mmap(self._descriptor, _SIZE_BYTES)
        except OSError:
            os.close(self._descriptor)
            raise
        self._counters = memoryview(self._map).cast("Q")
        self.waiting_since: float | None = None  # `perf_counter()` seconds; set while another process holds the lock
        self.sequence_at_acquire = UNKNOWN  # the write counter before this process last acquired the lock
        self._join()
        self.read_sequence: ReadSequence = partial(self._counters.__getitem__, _WRITES)
        self.read_caller_sequence: ReadSequence = partial(self._counters.__getitem__, _CALLERS)

    @contextmanager
    def acquire(self, *, changes_callers: bool = True) -> Iterator[None]:
        """Acquire the lock, waiting without a limit, and release it at the end of the block.

        With `changes_callers`, all cached callers are outdated from now on. Otherwise, call `mark_callers_changed`
        before the block changes one.
        """
        self._lock()
        try:
            sequence = self._counters[_WRITES]
            # Set before the counter, because readers use it once they see the new count.
            self.sequence_at_acquire = UNKNOWN if sequence & 1 else sequence
            self._counters[_WRITES] = sequence | 1
            if changes_callers:
                self.mark_callers_changed()
            yield
        finally:
            self._counters[_WRITES] = (self._counters[_WRITES] | 1) + 1
            self._counters[_CALLERS] += self._counters[_CALLERS] & 1
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.waiting_since = perf_counter()
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            finally:
                self.waiting_since = None

    def mark_callers_changed(self) -> None:
        """Invalidate cached callers. This process must hold the lock."""
        self._counters[_CALLERS] |= 1

    def report_damage(self) -> None:
        """Report to all processes that use the lock file that the database is damaged."""
        self._counters[_DAMAGES] += 1

    @property
    def is_damaged(self) -> bool:
        """Whether a process has reported damage since the lock file was last without users."""
        return self._counters[_DAMAGES] != 0

    def _join(self) -> None:
        # The first user forgets earlier damage, which may have been repaired.
        if try_lock(self._descriptor, fcntl.F_WRLCK, *_USERS_BYTE):
            self._counters[_DAMAGES] = 0
        fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLKW, pack_lock(fcntl.F_RDLCK, *_USERS_BYTE))

    def close(self) -> None:
        """Close the lock file."""
        self._counters.release()
        self._map.close()
        os.close(self._descriptor)


class VersionedCache:
    """A cache of database reads, valid until a counter changes, for at most a second. For one thread."""

    def __init__(self, read_sequence: ReadSequence, clock: Callable[[], float] = monotonic) -> None:
        """`read_sequence` reads the counter of the writes that invalidate the cache; `clock` returns seconds."""
        self._read_sequence = read_sequence
        self._clock = clock
        self._values: dict[Any, Any] = {}
        self._sequence = 0
        self._since = clock()

    def values(self) -> dict[Any, Any]:
        """Return the dict of valid entries. Add new ones before the next await. Caches nothing during a write."""
        sequence = self._read_sequence()
        if (
            sequence != self._sequence
            or self._clock() - self._since > MAX_CACHE_SECONDS
            or len(self._values) >= MAX_CACHE_ENTRIES
        ):
            self._values = {}
            self._sequence = sequence
            self._since = self._clock()
        return {} if sequence & 1 else self._values
