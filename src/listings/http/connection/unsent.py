"""The bytes that one connection holds for its client, and how fast the client reads them."""

from collections.abc import Mapping

from listings.domain.errors import Unavailable
from listings.http.asgi import Owner
from listings.http.byte_budget import ByteBudget

_MIN_SEND_RATE = 16 * 1024  # bytes per second that a client must read, on average over the write deadline
_HURRIED_SECONDS = 2.0  # the write deadline of owners that leave too many bytes unread


class UnsentBytes:
    """Counts the bytes of a connection for their owners, and recognises clients that read too slowly.

    In the methods, `written` are the bytes passed to the transport since the connection was made, of which `unsent` are
    not sent yet.
    """

    def __init__(self, budgets: Mapping[str, ByteBudget]) -> None:
        """`budgets` has one budget for each class of owners. The bytes of other classes are not counted."""
        self._budgets = budgets
        self.owner: Owner = ("visitors", "")  # the owner of the current response, or of the last one
        self._held = 0  # bytes of the current response that are not passed to the transport yet
        self._earlier: list[tuple[Owner, int]] = []  # owners of earlier unsent bytes, and the value of `written` then
        self._large = (0, 0)  # the values of `written` before and after the last large part
        self._counted: dict[Owner, int] = {}  # the bytes that the budgets include
        self._last_check: tuple[float, int, int] | None = None  # its time, and the bytes sent and written by then

    def set_owner(self, owner: Owner, written: int, unsent: int) -> None:
        """Begin a response. Unsent bytes of earlier responses remain those of their owners."""
        if unsent:
            self._earlier.append((self.owner, written))
        self.owner = owner

    def note_large(self, start: int, end: int) -> None:
        """Note that a part of this size is about to be written: its memory is held until its last byte is sent."""
        self._large = start, end

    def require_room(self, size: int) -> None:
        """Raise Unavailable if the owner may not leave this many bytes unread, in addition to those that it has."""
        budget = self._budgets.get(self.owner[0])
        if budget is not None and not budget.has_room(self.owner[1], size):
            raise Unavailable("Too many responses are waiting for their clients to read them")

    def reserve(self, size: int) -> None:
        """Count bytes that are not passed to the transport yet."""
        budget = self._budgets.get(self.owner[0])
        if budget is not None:
            budget.change(self.owner[1], size)
            self._counted[self.owner] = self._counted.get(self.owner, 0) + size
        self._held += size

    def release(self, size: int) -> None:
        """Note that reserved bytes were passed to the transport, or dropped. Call `count` when they may be sent."""
        self._held -= size

    def count(self, written: int, unsent: int) -> None:
        if not (unsent or self._held or self._counted):
            return
        counted: dict[Owner, int] = {}
        if unsent or self._held:
            counted = self._count_by_owner(written, unsent)
        else:
            self._earlier.clear()
        for owner, size in self._counted.items():
            self._budgets[owner[0]].change(owner[1], -size)
        for owner, size in counted.items():
            self._budgets[owner[0]].change(owner[1], size)
        self._counted = counted

    def _count_by_owner(self, written: int, unsent: int) -> dict[Owner, int]:
        start, counted = written - unsent, dict[Owner, int]()
        if start < self._large[1]:
            start = min(start, self._large[0])
        self._earlier = [(owner, end) for owner, end in self._earlier if end > start]
        for owner, end in [*self._earlier, (self.owner, written + self._held)]:
            if end > start and owner[0] in self._budgets:
                counted[owner] = counted.get(owner, 0) + end - start
            start = end
        return counted

    def forget_rate(self) -> None:
        """Start the next measurement of the client's rate with the next check."""
        self._last_check = None

    def is_read_too_slowly(self, now: float, written: int, unsent: int, write_seconds: float) -> bool:
        """Count the unsent bytes, and return whether the client has read too slowly over a whole write deadline."""
        self.count(written, unsent)
        if not unsent:
            self._last_check = None
            return False
        sent = written - unsent
        since, sent_before, written_before = self._last_check = self._last_check or (now, sent, written)
        if any(self._budgets[owner[0]].is_above_share(owner[1]) for owner in self._counted):
            write_seconds = min(write_seconds, _HURRIED_SECONDS)
        if now - since < write_seconds:
            return False
        self._last_check = (now, sent, written)
        return sent < written_before and sent - sent_before < _MIN_SEND_RATE * (now - since)
