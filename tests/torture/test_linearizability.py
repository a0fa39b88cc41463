"""Test the linearizability checker, and the service with it."""

from itertools import permutations
from math import inf
from pathlib import Path
from random import Random

import pytest

from tests.torture.instruments.linearizability import INSTRUMENT
from tests.torture.linearizability import Kind, Operation, State, apply, apply_if_consistent, is_linearizable

pytestmark = [pytest.mark.slow, pytest.mark.uncovered]


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
