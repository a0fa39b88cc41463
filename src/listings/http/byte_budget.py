"""Limit the bytes that a process holds in memory for its clients: unread responses, or request bodies."""

from typing import TypeAlias

_MAX_BYTES = 32 * 1024 * 1024
_MAX_BYTES_OF_OWNER = 8 * 1024 * 1024
_RESERVED_BYTES = 16 * 1024 * 1024  # above the maximum, for owners without any bytes in memory

Owner: TypeAlias = int | str
"""The id of an account, or the network of a visitor."""


class ByteBudget:
    """The bytes in memory, and those of each owner.

    An owner that has more than its limit, which small messages permit, uses up no more of the maximum than its limit.
    """

    __slots__ = ("_by_owner", "_limited", "total")

    def __init__(self) -> None:
        self.total = 0
        self._limited = 0  # the total, of each owner at most its limit
        self._by_owner: dict[Owner, int] = {}

    def change(self, owner: Owner, difference: int) -> None:
        before = self._by_owner.pop(owner, 0)
        count = before + difference
        if count:
            self._by_owner[owner] = count
        self.total += difference
        self._limited += min(count, _MAX_BYTES_OF_OWNER) - min(before, _MAX_BYTES_OF_OWNER)

    def has_room(self, owner: Owner, size: int) -> bool:
        """Return whether a message of this size may be held in memory. The first of an owner may exceed its limit."""
        if self._limited and self._limited + size > _MAX_BYTES + _RESERVED_BYTES:
            return False
        count = self._by_owner.get(owner, 0)
        return not count or (count + size <= _MAX_BYTES_OF_OWNER and not self.is_above_share(owner))

    def is_above_share(self, owner: Owner) -> bool:
        """Return whether the maximum is exceeded, and the owner has the average of all owners or more."""
        count = self._by_owner.get(owner, 0)
        return self._limited > _MAX_BYTES and count * len(self._by_owner) >= self.total
