"""The checker of histories knows good ones from bad ones."""

from itertools import permutations
from math import inf
from pathlib import Path
from random import Random

import pytest

from tests.torture.instruments.linearizability import INSTRUMENT
from tests.torture.linearizability import Kind, Operation, State, fits, is_linearizable, step

pytestmark = pytest.mark.slow


def read(began: float, ended: float, price: int, place: int = 0) -> Operation:
    return Operation("read", began, ended, 200, shown=(price, place))


def put(began: float, ended: float, price: int) -> Operation:
    return Operation("set price", began, ended, 200, price)


def swap(began: float, ended: float, old: int, new: int, status: int = 200) -> Operation:
    return Operation("swap", began, ended, status, new, (old, 0))


LOST = Operation("set price", 1, value=7)
GONE = Operation("delete", 1, 2, 200)

GOOD = {
    "nothing": [],
    "one after the other": [put(1, 2, 5), read(3, 4, 5)],
    "a read beside a write sees the old": [put(1, 4, 5), read(2, 3, 0)],
    "a read beside a write sees the new": [put(1, 4, 5), read(2, 3, 5)],
    "two writes beside each other in either order": [put(1, 4, 5), put(2, 3, 6), read(5, 6, 5)],
    "a write without an answer was done": [LOST, read(5, 6, 7)],
    "a write without an answer was not done": [LOST, read(5, 6, 0)],
    "a write without an answer was done late": [LOST, read(5, 6, 0), read(7, 8, 7)],
    "one of two swaps": [swap(1, 4, 0, 5), swap(2, 3, 0, 6, 412), read(5, 6, 5)],
    "a swap after another": [swap(1, 2, 0, 5), swap(3, 4, 5, 6)],
    "gone": [GONE, Operation("read", 3, 4, 404), Operation("set place", 3, 4, 404, 9)],
    "a deletion without an answer": [Operation("delete", 1), read(2, 3, 0), Operation("read", 4, 5, 404)],
    "fields apart": [put(1, 4, 5), Operation("set place", 2, 3, 200, 6), read(5, 6, 5, 6)],
}
BAD = {
    "a stale read": [put(1, 2, 5), read(3, 4, 0)],
    "a read of what nobody wrote": [put(1, 2, 5), read(3, 4, 6)],
    "a read goes back": [put(1, 9, 5), read(2, 3, 5), read(4, 5, 0)],
    "two writes, read in both orders": [put(1, 4, 5), put(1, 4, 6), read(5, 6, 5), read(7, 8, 6)],
    "two swaps of the same": [swap(1, 4, 0, 5), swap(2, 3, 0, 6), read(5, 6, 6)],
    "a swap is refused for nothing": [swap(1, 2, 0, 5, 412)],
    "a field is lost": [put(1, 4, 5), Operation("set place", 2, 3, 200, 6), read(5, 6, 5, 0)],
    "a write without an answer comes and goes": [LOST, read(5, 6, 7), read(7, 8, 0)],
    "a write without an answer before it was asked": [read(0, 0.5, 7), LOST],
    "back from the dead": [GONE, read(3, 4, 0)],
    "gone, and nobody did it": [Operation("read", 3, 4, 404)],
}


@pytest.mark.parametrize("history", GOOD.values(), ids=GOOD)
def test_a_good_history_is_good(history: list[Operation]) -> None:
    assert is_linearizable(history)


@pytest.mark.parametrize("history", BAD.values(), ids=BAD)
def test_a_bad_history_is_bad(history: list[Operation]) -> None:
    assert not is_linearizable(history)


def by_trying_all(history: list[Operation]) -> bool:
    """The definition, word by word."""
    for order in permutations(history):
        if any(later.ended < earlier.began for place, earlier in enumerate(order) for later in order[place + 1 :]):
            continue
        state: State | None = State()
        for operation in order:
            state = fits(state, operation) if state is not None else None
        if state is not None:
            return True
    return False


def of_chance(random: Random, count: int) -> list[Operation]:
    """A history as a correct listing makes it: each operation happens at a moment between its beginning and its end."""
    state, history = State(), []
    kinds: list[Kind] = ["read", "read", "set price", "set place", "swap", "swap", "delete"]
    seen = (0, 0)
    for number in range(1, count + 1):
        kind = random.choice(kinds if number > 3 else kinds[:-1])
        asked = Operation(kind, 0, value=number, shown=random.choice((seen, state.shown)))
        before = state
        status, state = step(state, asked)
        moment = number + random.random() / 2
        began, ended = moment - random.random() * 3, moment + random.random() * 3
        shown = before.shown if kind == "read" else asked.shown
        seen = shown if kind == "read" else seen
        if random.random() < 0.15 and kind != "read":
            history.append(asked._replace(began=began, ended=inf))
        else:
            history.append(asked._replace(began=began, ended=ended, status=status, shown=shown))
    return history


def spoiled(history: list[Operation], random: Random) -> list[Operation]:
    """One read sees something else, or one answer is another."""
    place = random.randrange(len(history))
    one = history[place]
    other = one._replace(shown=(random.randrange(7), one.shown[1])) if one.kind == "read" else one
    if other == one and one.status is not None:
        other = one._replace(status=random.choice((200, 404, 412)))
    return [*history[:place], other, *history[place + 1 :]]


def test_what_a_correct_listing_does_is_good_however_long_it_is() -> None:
    for seed in range(40):
        assert is_linearizable(of_chance(Random(seed), 120)), seed


def test_the_checker_agrees_with_the_definition() -> None:
    verdicts = []
    for seed in range(600):
        random = Random(seed)
        history = spoiled(of_chance(random, 5), random)
        verdicts.append(is_linearizable(history))
        assert verdicts[-1] == by_trying_all(history), history
    assert 100 < sum(verdicts) < 500


def test_clients_see_one_thing_after_the_other_whatever_is_killed(tmp_path: Path) -> None:
    outcome = INSTRUMENT.run_short(tmp_path)
    assert list(outcome.faults) == []
    assert "SQLite" in outcome.done
    assert "PostgreSQL" in outcome.done


def test_updates_without_a_transaction_are_found_out(tmp_path: Path) -> None:
    assert INSTRUMENT.control_short(tmp_path).faults
