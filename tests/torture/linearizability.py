"""Check whether a concurrent history of one listing is linearizable.

The algorithm is Wing and Gong's (Testing and Verifying Concurrent Objects, 1993) with Lowe's cache of visited states
(Testing for Linearizability, 2017). It tries every order in which an operation that ended before another one began
comes first. An operation with an unknown outcome never ends: it may have happened at any time since it began, or not at
all, which is the same as after all others.
"""

from collections.abc import Sequence
from math import inf
from typing import Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["read", "set price", "set location", "swap", "delete"]
Values: TypeAlias = tuple[int, int]
"""Price and location. Each value is written at most once, so that a pair identifies a version."""


class Operation(NamedTuple):
    """A request and its response; `status` is None if there was none."""

    kind: Kind
    began: float
    ended: float = inf
    status: int | None = None
    value: int = 0  # the value to write
    values: Values = (0, 0)  # the values that a read returned, or that a swap expects


class State(NamedTuple):
    """The state of a listing between two operations."""

    values: Values = (0, 0)
    is_deleted: bool = False


def apply(state: State, operation: Operation) -> tuple[int, State]:
    """Return the status of the response in this state, and the next state."""
    price, location = state.values
    match operation.kind:
        case _ if state.is_deleted:
            return 404, state
        case "swap" if operation.values != state.values:
            return 412, state
        case "set price" | "swap":
            return 200, State((operation.value, location))
        case "set location":
            return 200, State((price, operation.value))
        case "delete":
            return 200, State(state.values, is_deleted=True)
    return 200, state


def apply_if_consistent(state: State, operation: Operation) -> State | None:
    """Return the next state, or None if the operation's response is impossible in this state."""
    status, after = apply(state, operation)
    if operation.status is None:
        return after
    if operation.kind == "read" and status == operation.status == 200 and operation.values != state.values:
        return None
    return after if status == operation.status else None


class _Entry:
    """The start or the end of an operation that has no position in the order yet."""

    def __init__(self, number: int, end: "_Entry | None") -> None:
        self.number = number
        self.end = end  # None if this is an end
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
        self.before.after = self
        if self.after is not None:
            self.after.before = self

    def remove(self) -> None:
        self.unlink()
        if self.end is not None:
            self.end.unlink()

    def restore(self) -> None:
        if self.end is not None:
            self.end.relink()
        self.relink()


def is_linearizable(history: Sequence[Operation], state: State | None = None) -> bool:
    """Return whether some order explains the history; `state` is the listing's state at the start."""
    state = state or State()
    head = _link_entries(history)
    tried: set[tuple[int, State]] = set()
    done = 0  # a bit per operation that has a position
    path: list[tuple[_Entry, State]] = []
    entry = head.after
    while entry is not None:
        after = apply_if_consistent(state, history[entry.number]) if entry.end is not None else None
        if after is not None and (done | 1 << entry.number, after) not in tried:
            done |= 1 << entry.number
            tried.add((done, after))
            path.append((entry, state))
            state = after
            entry.remove()
            entry = head.after
        elif entry.end is not None:
            entry = entry.after
        elif path:  # an operation has ended that fits nowhere: try another order
            entry, state = path.pop()
            done &= ~(1 << entry.number)
            entry.restore()
            entry = entry.after
        else:
            return False
    return True


def _link_entries(history: Sequence[Operation]) -> _Entry:
    """Return the starts and ends as a linked list in order of time, after a dummy head."""
    moments: list[tuple[float, int, _Entry]] = []
    for number, operation in enumerate(history):
        end = _Entry(number, None)
        moments += [(operation.began, 0, _Entry(number, end)), (operation.ended, 1, end)]
    head = last = _Entry(-1, None)
    for _, _, entry in sorted(moments, key=lambda moment: moment[:2]):
        entry.link(last)
        last = entry
    return head
