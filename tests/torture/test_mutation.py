"""Test the mutation instrument on a toy module."""

from pathlib import Path

import pytest

from tests.torture.instrument import Scale
from tests.torture.instruments.mutation import (
    GOOD_TESTS,
    WEAK_TESTS,
    Baseline,
    run_toy_mutants,
)
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


def test_annotations_and_docstrings_are_not_mutated() -> None:
    source = (
        "class A:\n  '1'\n  __slots__ = ('a', 1)\n  a: Bound[1] = 2\n\n  def f(b: Bound[3]) -> Bound[4]:\n    '5'\n"
    )
    assert [mutant.description for mutant in generate_mutants(source)] == ["2 is 3"]


def test_a_mutant_has_the_lines_of_its_statement() -> None:
    source = "x[0] = f(\n    1,\n)\nif (\n    x\n    > 2\n):\n    pass\n"
    assert [(mutant.description, sorted(mutant.span)) for mutant in generate_mutants(source)] == [
        ("0 is 1", [1, 2, 3]),
        ("1 is 2", [1, 2, 3]),
        ("x > 2: GtE", [5, 6]),
        ("2 is 3", [6]),
    ]


def test_tests_that_reach_rare_lines_run_first() -> None:
    (mutant,) = [it for it in generate_mutants("def f(a):\n    if a > 1:\n        g()\n    h()\n") if it.line == 2][1:]
    reached = {("m", 2): {"a", "b", "c"}, ("m", 3): {"c"}, ("m", 4): {"a", "b", "c"}}
    lines = {line: frozenset(names) for line, names in reached.items()}
    baseline = Baseline(passes=True, seconds={"a": 2, "b": 1, "c": 3, "d": 0}, reached=lines)
    assert baseline.rank_tests("m", mutant) == ["c", "b", "a"]
    shared = baseline._replace(reached={("m", 2): frozenset({"", "a"})})
    assert shared.rank_tests("m", mutant) == ["a", "d", "b", "c"]


def test_a_mutant_that_no_test_reaches_is_reported(tmp_path: Path) -> None:
    results, _ = run_toy_mutants(Scale(tmp_path, 1.0, 100), WEAK_TESTS)
    assert "toy.py:4: no raise ValueError('no such points') (no test reaches it)" in {str(result) for result in results}
