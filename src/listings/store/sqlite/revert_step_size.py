"""The size of a revert's steps on a file with one writer."""

from listings.domain.reverts import MAX_STEP_LISTINGS
from listings.store.sqlite.write_lock import INCREMENT_PER_WRITE, ReadSequence

_MIN_LISTINGS = 25  # cost as much as the rest of a step: 1 to 2 ms of CPU time
_GROWTH = 10  # per step, so that it reaches the maximum after a quarter of a second


class RevertStepSize:
    """Chooses small steps while others write, because they wait for each step, and larger ones while nobody does."""

    def __init__(self, read_sequence: ReadSequence) -> None:
        """`read_sequence` reads the counter of the writes of all processes."""
        self._read_sequence = read_sequence
        self._sequence = read_sequence()
        self._size = _MIN_LISTINGS

    def choose(self) -> int:
        """Return the number of listings for the next step. Call it before each one."""
        before, self._sequence = self._sequence, self._read_sequence()
        is_alone = self._sequence - before <= INCREMENT_PER_WRITE
        self._size = min(self._size + _GROWTH, MAX_STEP_LISTINGS) if is_alone else _MIN_LISTINGS
        return self._size
