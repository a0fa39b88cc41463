"""Test the linearizability checker, and the service with it."""

from itertools import permutations
from math import inf
from pathlib import Path
from random import Random

import pytest

from tests.torture.instruments.linearizability import INSTRUMENT
from tests.torture.linearizability import Kind, Operation, State, apply, apply_if_consistent, is_linearizable

pytestmark = [pytest.mark.slow, pytest.mark.uncovered]


def read(began: float, ended: float, price: int, location: int = 0) -> Operation:
    return Operation("read", began, ended, 200, values=(price, location))


def set_price(began: float, ended: float, price: int) -> Operation:
    return Operation("set price", began, ended, 200, price)


def swap(began: float, ended: float, old: int, new: int, status: int = 200) -> Operation:
    return Operation("swap", began, ended, status, new, (old, 0))


LOST = Operation("set price", 1, value=7)
GONE = Operation("delete", 1, 2, 200)

BAD = {
    "a stale read": [set_price(1, 2, 5), read(3, 4, 0)],
    "a read of a value nobody wrote": [set_price(1, 2, 5), read(3, 4, 6)],
    "reads go back in time": [set_price(1, 9, 5), read(2, 3, 5), read(4, 5, 0)],
    "two writes, read in both orders": [set_price(1, 4, 5), set_price(1, 4, 6), read(5, 6, 5), read(7, 8, 6)],
    "two swaps of the same value": [swap(1, 4, 0, 5), swap(2, 3, 0, 6), read(5, 6, 6)],
    "a swap is rejected without reason": [swap(1, 2, 0, 5, 412)],
    "a field is lost": [set_price(1, 4, 5), Operation("set location", 2, 3, 200, 6), read(5, 6, 5, 0)],
    "a lost write is undone": [LOST, read(5, 6, 7), read(7, 8, 0)],
    "a lost write took effect before its start": [read(0, 0.5, 7), LOST],
    "a deleted listing is restored": [GONE, read(3, 4, 0)],
    "deleted without a deletion": [Operation("read", 3, 4, 404)],
}


@pytest.mark.parametrize("history", BAD.values(), ids=BAD)
def test_invalid_histories_are_rejected(history: list[Operation]) -> None:
    assert not is_linearizable(history)


def is_linearizable_by_definition(history: list[Operation]) -> bool:
    """Apply the definition by trying every order."""
    for order in permutations(history):
        if any(later.ended < earlier.began for index, earlier in enumerate(order) for later in order[index + 1 :]):
            continue
        state: State | None = State()
        for operation in order:
            state = apply_if_consistent(state, operation) if state is not None else None
        if state is not None:
            return True
    return False


def build_random_history(random: Random, count: int) -> list[Operation]:
    """Build a valid history: each operation takes effect between its start and its end."""
    state, history = State(), []
    kinds: list[Kind] = ["read", "read", "set price", "set location", "swap", "swap", "delete"]
    seen = (0, 0)
    for number in range(1, count + 1):
        kind = random.choice(kinds if number > 3 else kinds[:-1])
        request = Operation(kind, 0, value=number, values=random.choice((seen, state.values)))
        before = state
        status, state = apply(state, request)
        moment = number + random.random() / 2
        began, ended = moment - random.random() * 3, moment + random.random() * 3
        values = before.values if kind == "read" else request.values
        seen = values if kind == "read" else seen
        if random.random() < 0.15 and kind != "read":
            history.append(request._replace(began=began, ended=inf))
        else:
            history.append(request._replace(began=began, ended=ended, status=status, values=values))
    return history


def spoil(history: list[Operation], random: Random) -> list[Operation]:
    """Change the values of one read, or the status of one response."""
    index = random.randrange(len(history))
    one = history[index]
    other = one._replace(values=(random.randrange(7), one.values[1])) if one.kind == "read" else one
    if other == one and one.status is not None:
        other = one._replace(status=random.choice((200, 404, 412)))
    return [*history[:index], other, *history[index + 1 :]]


def test_long_valid_histories_are_accepted() -> None:
    for seed in range(40):
        assert is_linearizable(build_random_history(Random(seed), 120)), seed


def test_the_checker_agrees_with_the_definition() -> None:
    verdicts = []
    for seed in range(600):
        random = Random(seed)
        history = spoil(build_random_history(random, 5), random)
        verdicts.append(is_linearizable(history))
        assert verdicts[-1] == is_linearizable_by_definition(history), history
    assert 100 < sum(verdicts) < 500


def test_clients_see_a_linearizable_history_despite_kills(tmp_path: Path) -> None:
    outcome = INSTRUMENT.run_short(tmp_path)
    assert list(outcome.failures) == []
    assert "SQLite" in outcome.summary
    assert "PostgreSQL" in outcome.summary
