"""Test the mutation instrument on a toy module."""

from pathlib import Path

import pytest

from tests.torture.instrument import Scale
from tests.torture.instruments.mutation import (
    GOOD_TESTS,
    INSTRUMENT,
    PYTEST_ARGUMENTS,
    WEAK_TESTS,
    Baseline,
    Sandbox,
    build_toy,
    run_toy_mutants,
)
from tests.torture.mutants import Mutant, generate_mutants
from tests.torture.services import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.uncovered]


def test_good_tests_kill_every_mutant_of_a_toy(tmp_path: Path) -> None:
    results, failures = run_toy_mutants(Scale(tmp_path, 1.0, 100), GOOD_TESTS)
    assert (len(results) >= 10, failures) == (True, [])


def test_weak_tests_let_mutants_survive(tmp_path: Path) -> None:
    failures = INSTRUMENT.control_short(tmp_path).failures
    assert any("no raise ValueError" in failure for failure in failures)


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


def test_every_comparison_of_a_chain_is_replaced() -> None:
    assert [mutant.source for mutant in generate_mutants("x = a < b <= c")] == ["x = a < b < c", "x = a <= b <= c"]


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


def test_a_constant_has_the_lines_that_use_it() -> None:
    source = "A = 1\nB: int = 2\n\ndef f():\n    return (A,\n            B + A)\n"
    assert [sorted(mutant.span) for mutant in generate_mutants(source)][:2] == [[5, 6], [6]]


def test_a_returned_flag_is_inverted() -> None:
    assert [mutant.source for mutant in generate_mutants("def f():\n    return False")] == [
        "def f():\n    return not False"
    ]


def test_tests_that_reach_rare_lines_run_first() -> None:
    (mutant,) = [it for it in generate_mutants("def f(a):\n    if a > 1:\n        g()\n    h()\n") if it.line == 2][1:]
    reached = {("m", 2): {"a", "b", "c"}, ("m", 3): {"c"}, ("m", 4): {"a", "b", "c"}}
    lines = {line: frozenset(names) for line, names in reached.items()}
    baseline = Baseline(passes=True, seconds={"a": 2, "b": 1, "c": 3, "d": 0}, reached=lines)
    assert baseline.rank_tests("m", mutant) == ["c", "b", "a"]
    shared = baseline._replace(reached={("m", 2): frozenset({"", "a"})})
    assert shared.rank_tests("m", mutant) == ["a", "d", "b", "c"]


def test_tests_without_coverage_are_measured_too(tmp_path: Path) -> None:
    toy = build_toy(tmp_path, f"{GOOD_TESTS}\npytestmark = pytest.mark.uncovered\n")
    conftest = f"import sys\nsys.path.append({str(ROOT)!r})\nfrom tests.conftest import *\n"
    (toy.tests / "conftest.py").write_text(conftest)
    with Sandbox(toy._replace(arguments=(*toy.arguments, *PYTEST_ARGUMENTS)), tmp_path) as sandbox:
        baseline = sandbox.measure_baseline("test_toy.py", 100)
    assert "test_toy.py::test_none[11]" in baseline.reached["toy.py", 3]


def test_a_mutant_that_no_test_reaches_is_reported(tmp_path: Path) -> None:
    results, _ = run_toy_mutants(Scale(tmp_path, 1.0, 100), WEAK_TESTS)
    assert "toy.py:4: no raise ValueError('no such points') (no test reaches it)" in {str(result) for result in results}


def test_a_run_without_time_is_reported(tmp_path: Path) -> None:
    results, failures = run_toy_mutants(Scale(tmp_path, 1.0, 0), GOOD_TESTS)
    assert (results, failures) == ([], ["no mutant was tested: no time left"])


def test_tests_that_fail_without_a_mutant_are_reported(tmp_path: Path) -> None:
    _, failures = run_toy_mutants(Scale(tmp_path, 1.0, 100), GOOD_TESTS.replace('"none"', '"nothing"'))
    assert failures == ["test_toy.py fails without a mutant"]


def test_a_mutant_that_hangs_is_killed(tmp_path: Path) -> None:
    project = build_toy(tmp_path, GOOD_TESTS)._replace(grace_seconds=1)
    with Sandbox(project, tmp_path) as sandbox:
        loop = Mutant(2, "a loop", "while True:\n    pass\n", frozenset(), frozenset())
        assert not sandbox.survives("toy.py", loop, {"test_toy.py::test_grades[0-none]": 1})
        assert sandbox.measure_baseline("test_toy.py", 100).passes
