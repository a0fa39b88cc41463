"""Whether what clients saw of one listing can be told as a story in which one thing happened after the other.

The search is Wing and Gong's (Testing and Verifying Concurrent Objects, 1993) with Lowe's memory of what was tried
(Testing for Linearizability, 2017): operations are taken in any order that respects who had ended before whom began.
An operation whose end is unknown never ends: it may have happened at any moment since it began, or not at all, which
is the same as after everything else.
"""

from collections.abc import Sequence
from math import inf
from typing import Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["read", "set price", "set place", "swap", "delete"]
Shown: TypeAlias = tuple[int, int]
"""Price and place, each value of which is written once at most: together they name a version."""


class Operation(NamedTuple):
    """What a client asked and was answered; `status` None: it has no answer."""

    kind: Kind
    began: float
    ended: float = inf
    status: int | None = None
    value: int = 0  # to be written
    shown: Shown = (0, 0)  # what a read was answered, or what a swap wants to find


class State(NamedTuple):
    """The listing between two operations."""

    shown: Shown = (0, 0)
    is_deleted: bool = False


def step(state: State, operation: Operation) -> tuple[int, State]:
    """What the operation is answered in this state, and the state afterwards."""
    price, place = state.shown
    match operation.kind:
        case _ if state.is_deleted:
            return 404, state
        case "swap" if operation.shown != state.shown:
            return 412, state
        case "set price" | "swap":
            return 200, State((operation.value, place))
        case "set place":
            return 200, State((price, operation.value))
        case "delete":
            return 200, State(state.shown, is_deleted=True)
    return 200, state


def fits(state: State, operation: Operation) -> State | None:
    """The state after an operation that was answered as it was; None where it can't have been."""
    status, after = step(state, operation)
    if operation.status is None:
        return after
    if operation.kind == "read" and status == operation.status == 200 and operation.shown != state.shown:
        return None
    return after if status == operation.status else None


class _Entry:
    """The beginning or the end of an operation, among those that are not placed yet."""

    def __init__(self, number: int, end: "_Entry | None") -> None:
        self.number = number
        self.end = end  # None: this is one
        self.before: _Entry = self
        self.after: _Entry | None = None

    def link(self, before: "_Entry") -> None:
        self.before, self.after = before, before.after
        before.after = self
        if self.after is not None:
            self.after.before = self

    def unlink(self) -> None:
        self.before.after = self.after
        if self.after is not None:
            self.after.before = self.before

    def relink(self) -> None:
        """Back to where it was."""
        self.before.after = self
        if self.after is not None:
            self.after.before = self

    def lift(self) -> None:
        """The operation is placed."""
        self.unlink()
        if self.end is not None:
            self.end.unlink()

    def lay(self) -> None:
        """It is not, after all."""
        if self.end is not None:
            self.end.relink()
        self.relink()


def is_linearizable(history: Sequence[Operation], state: State | None = None) -> bool:
    """Whether there is an order; `state` is the listing's before all of it."""
    state = state or State()
    head = _linked(history)
    tried: set[tuple[int, State]] = set()
    placed = 0
    path: list[tuple[_Entry, State]] = []
    entry = head.after
    while entry is not None:
        after = fits(state, history[entry.number]) if entry.end is not None else None
        if after is not None and (placed | 1 << entry.number, after) not in tried:
            placed |= 1 << entry.number
            tried.add((placed, after))
            path.append((entry, state))
            state = after
            entry.lift()
            entry = head.after
        elif entry.end is not None:
            entry = entry.after
        elif path:  # somebody has ended who could not be placed: another order
            entry, state = path.pop()
            placed &= ~(1 << entry.number)
            entry.lay()
            entry = entry.after
        else:
            return False
    return True


def _linked(history: Sequence[Operation]) -> _Entry:
    """Beginnings and ends in the order of their moments, behind a first entry that is none."""
    moments: list[tuple[float, int, _Entry]] = []
    for number, operation in enumerate(history):
        end = _Entry(number, None)
        moments += [(operation.began, 0, _Entry(number, end)), (operation.ended, 1, end)]
    head = last = _Entry(-1, None)
    for _, _, entry in sorted(moments, key=lambda moment: moment[:2]):
        entry.link(last)
        last = entry
    return head
