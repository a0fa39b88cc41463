"""The unsent bytes of one connection, and how fast its client reads them."""

from listings.http.byte_budget import ByteBudget

_MIN_SEND_RATE = 16 * 1024  # bytes per second that a client must read, on average over the write deadline
_HURRIED_SECONDS = 2.0  # the write deadline while clients leave too many bytes unread


class UnsentBytes:
    """Adds a connection's unsent bytes to the budget of its process, and recognises clients that read too slowly."""

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self.owner = 0  # of the last large response
        self._counted = self._counted_owner = 0  # the bytes that the budget includes, and their owner
        self._last_check: tuple[float, int] | None = None  # its time, and the bytes sent by then

    def has_room(self) -> bool:
        """Return whether another large response may be sent to the owner."""
        return self._budget.has_room(self.owner)

    def count(self, unsent: int) -> None:
        """Replace the connection's bytes in the budget."""
        if self._counted:
            self._budget.change(self._counted_owner, -self._counted)
        if unsent:
            self._budget.change(self.owner, unsent)
        self._counted, self._counted_owner = unsent, self.owner

    def forget_rate(self) -> None:
        """Start the next measurement of the client's rate with the next check."""
        self._last_check = None

    def is_read_too_slowly(self, now: float, written: int, unsent: int, write_seconds: float) -> bool:
        """Count the unsent bytes, and return whether the client has read too slowly over a whole write deadline.

        `written`: the bytes written since the connection was made, of which `unsent` are not sent yet.
        """
        self.count(unsent)
        if not unsent:
            self._last_check = None
            return False
        sent = written - unsent
        since, sent_before = self._last_check = self._last_check or (now, sent)
        if now - since < (min(write_seconds, _HURRIED_SECONDS) if self._budget.is_exceeded else write_seconds):
            return False
        self._last_check = (now, sent)
        return sent - sent_before < _MIN_SEND_RATE * (now - since)
