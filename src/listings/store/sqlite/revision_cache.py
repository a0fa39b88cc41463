"""What this process knows of accounts' revisions without a question to the SQLite file.

What was read holds until somebody else has had the turn to write. This process's own turns end nothing where it is
told what they have done: a new listing raises its account's revision by one and changes no listing that was there.
"""

from collections.abc import Callable
from time import monotonic

from listings.store.sqlite.write_lock import LONGEST_KEPT, MOST_KEPT, WriteLock

_OWN_TURN = (1, 2)  # by which the number is raised while it lasts, and from its end on


class RevisionCache:
    """Accounts' revisions, and since when their listings are as they are. For the event loop's thread."""

    def __init__(self, turn: WriteLock, clock: Callable[[], float] = monotonic) -> None:
        """`turn` is that of this process's writer; `clock` tells seconds."""
        self._turn = turn
        self._clock = clock
        self._number = turn.number()  # of the last turn up to which all is known
        self._until = clock() + LONGEST_KEPT
        self._era = 0  # what was read in an earlier one is to be read again
        self._accounts: dict[int, tuple[int, int, int]] = {}  # revision, since when settled, era
        self._unfollowed = 0  # of this process's operations, those under way of which nothing will be told

    def holds(self) -> bool:
        """Whether what is read now may be noted, and what was noted in this era still holds."""
        number, now = self._turn.number(), self._clock()
        if not self._is_own(number):
            self._number = number
            self._begin_era(now)
        elif now > self._until:
            self._begin_era(now)
        return not self._number & 1 and not self._unfollowed

    def present(self, account_id: int) -> int | None:
        """The account's revision; None where it is to be read."""
        known = self._find(account_id)
        return known[0] if known is not None and self._turn.number() == self._number else None

    def settled(self, account_id: int) -> int | None:
        """A revision since which none of the account's listings has changed, new ones aside; None as above."""
        known = self._find(account_id)
        return known[1] if known is not None else None

    def note(self, account_id: int, revision: int) -> None:
        """What was read directly after `holds` had said yes. One that is as it was expected has settled long since."""
        known = self._accounts.get(account_id)
        if known is not None and known[2] == self._era:
            return
        if len(self._accounts) >= MOST_KEPT:
            self._accounts.clear()
        settled = known[1] if known is not None and known[0] == revision else revision
        self._accounts[account_id] = (revision, settled, self._era)

    def follow(self, account_id: int, revision: int) -> None:
        """A new listing of this process's has raised the account's revision to this one."""
        known = self._accounts.get(account_id)
        if known is None or revision <= known[0]:
            return
        if revision == known[0] + 1:
            self._accounts[account_id] = (revision, known[1], known[2])
        else:
            del self._accounts[account_id]

    def begin_unfollowed(self) -> None:
        """An operation of this process waits to be written that may change any listing: nothing holds until it ends."""
        self._unfollowed += 1

    def end_turn(self, began_at: int, unfollowed: int, *, known: bool) -> None:
        """Of this process, begun at a number of turns, when all that it has done has been followed.

        `unfollowed`: how many operations of it were not; `known`: whether it is known what has become of all others.
        """
        self._unfollowed -= unfollowed
        if unfollowed or not known:
            self._begin_era(self._clock())
        if began_at == self._number:
            self._number += 2

    def _find(self, account_id: int) -> tuple[int, int, int] | None:
        if not self.holds():
            return None
        known = self._accounts.get(account_id)
        return known if known is not None and known[2] == self._era else None

    def _is_own(self, number: int) -> bool:
        """Whether nobody but this process has had the turn, or has it."""
        return number == self._number or (number - self._number in _OWN_TURN and self._turn.own_from == self._number)

    def _begin_era(self, now: float) -> None:
        self._era += 1
        self._until = now + LONGEST_KEPT
