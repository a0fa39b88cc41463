"""Limit the bytes that a process holds in memory for its clients: unread responses, or request bodies."""

_MAX_BYTES = 32 * 1024 * 1024
_MAX_BYTES_OF_OWNER = 8 * 1024 * 1024
_RESERVED_BYTES = 16 * 1024 * 1024  # above the maximum, for owners without any bytes in memory


class ByteBudget:
    """The bytes in memory, and those of each owner: an API key, an address, or 0 for all others."""

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
        """Return whether another large message may be held in memory, whatever its size."""
        count = self._by_owner.get(owner, 0)
        total = self.total - self._by_owner.get(0, 0)  # clients without a key must not use up the room of keys
        return count < _MAX_BYTES_OF_OWNER and total <= (_MAX_BYTES if count else _MAX_BYTES + _RESERVED_BYTES)

    @property
    def is_exceeded(self) -> bool:
        """Whether all owners together exceed the maximum."""
        return self.total > _MAX_BYTES
