"""The mutator itself, on a toy."""

from pathlib import Path

import pytest

from tests.torture.instrument import Scale
from tests.torture.instruments.mutation import GOOD_TESTS, INSTRUMENT, try_toy
from tests.torture.mutants import mutants_of

pytestmark = pytest.mark.slow


def test_good_tests_kill_every_mutant_of_a_toy(tmp_path: Path) -> None:
    trials, faults = try_toy(Scale(tmp_path, 1.0, 100), GOOD_TESTS)
    assert (len(trials) >= 10, faults) == (True, [])


def test_weak_tests_let_mutants_live(tmp_path: Path) -> None:
    faults = INSTRUMENT.control_short(tmp_path).faults
    assert any("no raise ValueError" in fault for fault in faults)


def test_mutants_are_what_they_say() -> None:
    source = "def f(a, b):\n    _log.info('x', 1)\n    if a < 1 and not b:\n        raise KeyError\n    return a\n"
    assert [mutant.what for mutant in mutants_of(source)] == [
        "1 is 2",
        "a < 1 and (not b): Or",
        "a < 1: LtE",
        "not b: no not",
        "no raise KeyError",
        "return a: None",
    ]
    assert mutants_of(source)[4].source.endswith("if False:\n            raise KeyError\n    return a")
