"""Processes that write to one SQLite file take turns, and whoever reads it knows whether anybody did.

The lock file beside the database holds one number, which all processes map: it is odd while somebody has the turn,
and a turn that ends leaves the next even one. So a reader may keep what it has read for as long as the number is the
same even one. A process that is killed in its turn leaves it odd, until the next turn has ended.
"""

import fcntl
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

_SIZE = 8
_LONGEST_KEPT = 1.0  # seconds: a foreign program that writes to the file takes no turn
_MOST_KEPT = 4096


class WritersTurn:
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

    @property
    def number(self) -> int:
        """Even while nobody has the turn; raised by every turn."""
        return self._words[0]

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Wait for this process's turn, and end it."""
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        try:
            self._words[0] |= 1
            yield
        finally:
            self._words[0] = (self._words[0] | 1) + 1
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Give the lock file back."""
        self._words.release()
        self._map.close()
        os.close(self._descriptor)


class Kept:
    """What was read of the database, for as long as nobody has written to it. For one thread."""

    def __init__(self, turn: WritersTurn, clock: Callable[[], float] = monotonic) -> None:
        """`clock` tells seconds."""
        self._turn = turn
        self._clock = clock
        self._values: dict[Any, Any] = {}
        self._number = 0
        self._since = clock()

    def values(self) -> dict[Any, Any]:
        """What still holds, for more to be put in at once; nothing while somebody has the turn to write."""
        number = self._turn.number
        if number != self._number or self._clock() - self._since > _LONGEST_KEPT or len(self._values) >= _MOST_KEPT:
            self._values = {}
            self._number = number
            self._since = self._clock()
        return {} if number & 1 else self._values
