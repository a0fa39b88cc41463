"""Processes that write to one SQLite file take turns, and whoever reads it knows whether anybody did.

The lock file beside the database holds two numbers, which all processes map. The first is odd while somebody has the
turn, and a turn that ends leaves the next even one; so does the second, but only in turns that may change what a caller
is made of: keys, plans, accounts. So a reader may keep what it has read for as long as the number is the same even one.
A process that is killed in its turn leaves them odd, until the next turn has ended.
"""

import fcntl
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Final, TypeAlias

_WRITES, _CALLERS = 0, 1
_SIZE = 16  # bytes: a word for each
UNKNOWN: Final = -1
LONGEST_KEPT = 1.0  # seconds: a foreign program that writes to the file takes no turn
MOST_KEPT = 4096


Number: TypeAlias = Callable[[], int]
"""Even while nobody has a turn of its kind; raised by every such turn."""


class WriteLock:
    """The right to write: one process at a time has it.

    The kernel wakes the next one at once; SQLite's own busy handler sleeps and starves.
    """

    def __init__(self, path: Path) -> None:
        """`path` is the database's; whoever reaches it by another name takes turns with us all the same."""
        self._descriptor = os.open(f"{path.resolve()}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(self._descriptor, 0, _SIZE)  # to write to a mapped hole on a full disk would kill us
            self._map = mmap.mmap(self._descriptor, _SIZE)
        except OSError:
            os.close(self._descriptor)
            raise
        self._words = memoryview(self._map).cast("Q")
        self.own_from = UNKNOWN  # the number that this process's last turn followed upon, whoever else had one since
        self.number: Number = partial(self._words.__getitem__, _WRITES)
        self.callers_number: Number = partial(self._words.__getitem__, _CALLERS)

    @contextmanager
    def taken(self, *, changes_callers: bool = True, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Wait for this process's turn, however long, and end it.

        `changes_callers`: it may change what a caller is made of, or `mark_callers` is called before it does.
        `on_wait` is called where somebody else has the turn.
        """
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        try:
            number = self._words[_WRITES]
            self.own_from = UNKNOWN if number & 1 else number  # before the number tells that somebody has the turn
            self._words[_WRITES] = number | 1
            if changes_callers:
                self.mark_callers()
            yield
        finally:
            self._words[_WRITES] = (self._words[_WRITES] | 1) + 1
            self._words[_CALLERS] += self._words[_CALLERS] & 1
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def mark_callers(self) -> None:
        """In this process's turn: callers may change in it."""
        self._words[_CALLERS] |= 1

    def close(self) -> None:
        """Give the lock file back."""
        self._words.release()
        self._map.close()
        os.close(self._descriptor)


class VersionedCache:
    """What was read of the database, for as long as nobody has written to it. For one thread."""

    def __init__(self, number: Number, clock: Callable[[], float] = monotonic) -> None:
        """`number` is raised by every turn that can change what is kept here; `clock` tells seconds."""
        self._read_number = number
        self._clock = clock
        self._values: dict[Any, Any] = {}
        self._number = 0
        self._since = clock()

    def values(self) -> dict[Any, Any]:
        """What still holds, for more to be put in at once; nothing while somebody has the turn to write."""
        number = self._read_number()
        if number != self._number or self._clock() - self._since > LONGEST_KEPT or len(self._values) >= MOST_KEPT:
            self._values = {}
            self._number = number
            self._since = self._clock()
        return {} if number & 1 else self._values
