"""Count the bytes of responses that clients have not taken from the process's memory."""

_MAX_BYTES = 32 * 1024 * 1024
_MAX_BYTES_OF_OWNER = 8 * 1024 * 1024


class UnsentBytes:
    """The unsent bytes of all connections, and of each owner, such as an API key."""

    __slots__ = ("_by_owner", "total")

    def __init__(self) -> None:
        self.total = 0
        self._by_owner: dict[int, int] = {}

    def change(self, owner: int, difference: int) -> None:
        """Add to the count, or subtract from it."""
        self.total += difference
        count = self._by_owner.pop(owner, 0) + difference
        if count:
            self._by_owner[owner] = count

    def has_room(self, owner: int) -> bool:
        """Return whether another large response may be sent. Without a key (owner 0), only the total is limited."""
        return not self.is_exceeded and (not owner or self._by_owner.get(owner, 0) < _MAX_BYTES_OF_OWNER)

    @property
    def is_exceeded(self) -> bool:
        """Whether there are too many unsent bytes."""
        return self.total > _MAX_BYTES
