"""Count the bytes of responses that clients have not taken from the process's memory."""

from collections import Counter

_MAX_BYTES = 32 * 1024 * 1024
_MAX_BYTES_OF_OWNER = 8 * 1024 * 1024


class UnsentBytes:
    """The unsent bytes of all connections, and of each owner, such as an API key."""

    __slots__ = ("_by_owner", "total")

    def __init__(self) -> None:
        self.total = 0
        self._by_owner: Counter[int] = Counter()

    def change(self, owner: int, difference: int) -> None:
        """Add to the count, or subtract from it."""
        self.total += difference
        self._by_owner[owner] += difference
        if not self._by_owner[owner]:
            del self._by_owner[owner]

    def has_room(self, owner: int) -> bool:
        """Return whether another large response may be sent."""
        return not self.is_exceeded and self._by_owner[owner] < _MAX_BYTES_OF_OWNER

    @property
    def is_exceeded(self) -> bool:
        """Whether there are too many unsent bytes."""
        return self.total > _MAX_BYTES
