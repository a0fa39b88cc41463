"""Test the mutation instrument on a toy module."""

from pathlib import Path

import pytest

from tests.torture.instrument import Scale
from tests.torture.instruments.mutation import GOOD_TESTS, run_toy_mutants
from tests.torture.mutants import generate_mutants

pytestmark = [pytest.mark.slow, pytest.mark.uncovered]


def test_good_tests_kill_every_mutant_of_a_toy(tmp_path: Path) -> None:
    results, failures = run_toy_mutants(Scale(tmp_path, 1.0, 100), GOOD_TESTS)
    assert (len(results) >= 10, failures) == (True, [])


def test_mutants_are_described() -> None:
    source = "def f(a, b):\n    _log.info('x', 1)\n    if a < 1 and not b:\n        raise KeyError\n    return a\n"
    assert [mutant.description for mutant in generate_mutants(source)] == [
        "1 is 2",
        "a < 1 and (not b): Or",
        "a < 1: LtE",
        "not b: no not",
        "no raise KeyError",
        "return a: None",
    ]
    assert generate_mutants(source)[4].source.endswith("if False:\n            raise KeyError\n    return a")
