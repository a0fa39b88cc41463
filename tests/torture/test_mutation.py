"""The mutator itself, on a toy."""

from pathlib import Path

import pytest

from tests.torture.instrument import Scale
from tests.torture.instruments.mutation import GOOD_TESTS, INSTRUMENT, WEAK_TESTS, Look, Ward, toy_of, try_toy
from tests.torture.mutants import Mutant, mutants_of

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


def test_every_comparison_of_a_chain_is_turned_round() -> None:
    assert [mutant.source for mutant in mutants_of("x = a < b <= c")] == ["x = a < b < c", "x = a <= b <= c"]


def test_what_only_types_and_readers_need_is_left_alone() -> None:
    source = (
        "class A:\n  '1'\n  __slots__ = ('a', 1)\n  a: Bound[1] = 2\n\n  def f(b: Bound[3]) -> Bound[4]:\n    '5'\n"
    )
    assert [mutant.what for mutant in mutants_of(source)] == ["2 is 3"]


def test_a_mutant_tells_the_lines_of_the_statement_that_it_is_in() -> None:
    source = "x[0] = f(\n    1,\n)\nif (\n    x\n    > 2\n):\n    pass\n"
    assert [(mutant.what, sorted(mutant.span)) for mutant in mutants_of(source)] == [
        ("0 is 1", [1, 2, 3]),
        ("1 is 2", [1, 2, 3]),
        ("x > 2: GtE", [5, 6]),
        ("2 is 3", [6]),
    ]


def test_a_constant_of_a_module_is_where_it_is_used() -> None:
    source = "A = 1\nB: int = 2\n\ndef f():\n    return (A,\n            B + A)\n"
    assert [sorted(mutant.span) for mutant in mutants_of(source)][:2] == [[5, 6], [6]]


def test_a_flag_is_returned_as_its_opposite() -> None:
    assert [mutant.source for mutant in mutants_of("def f():\n    return False")] == ["def f():\n    return not False"]


def test_tests_that_go_unusual_ways_are_asked_first() -> None:
    (mutant,) = [it for it in mutants_of("def f(a):\n    if a > 1:\n        g()\n    h()\n") if it.line == 2][1:]
    reached = {("m", 2): {"a", "b", "c"}, ("m", 3): {"c"}, ("m", 4): {"a", "b", "c"}}
    look = Look(True, {"a": 2, "b": 1, "c": 3, "d": 0}, {place: frozenset(names) for place, names in reached.items()})  # noqa: FBT003
    assert look.tests_of("m", mutant) == ["c", "b", "a"]
    shared = look._replace(reached={("m", 2): frozenset({"", "a"})})
    assert shared.tests_of("m", mutant) == ["a", "d", "b", "c"]


def test_a_mutant_that_no_test_reaches_is_told_as_such(tmp_path: Path) -> None:
    trials, _ = try_toy(Scale(tmp_path, 1.0, 100), WEAK_TESTS)
    assert "toy.py:4: no raise ValueError('no such points') (no test reaches it)" in {str(trial) for trial in trials}


def test_without_time_for_a_mutant_that_is_told(tmp_path: Path) -> None:
    trials, faults = try_toy(Scale(tmp_path, 1.0, 0), GOOD_TESTS)
    assert (trials, faults) == ([], ["no mutant was tried: there was no time for one"])


def test_tests_that_fail_as_it_is_are_told(tmp_path: Path) -> None:
    _, faults = try_toy(Scale(tmp_path, 1.0, 100), GOOD_TESTS.replace('"none"', '"nothing"'))
    assert faults == ["test_toy.py fails as it is"]


def test_a_mutant_that_hangs_is_killed(tmp_path: Path) -> None:
    with Ward(toy_of(tmp_path, GOOD_TESTS), tmp_path) as ward:
        loop = Mutant(2, "a loop", "while True:\n    pass\n", frozenset(), frozenset())
        assert not ward.survives("toy.py", loop, {"test_toy.py::test_grades[0-none]": 1})
        assert ward.look("test_toy.py", 100).passes
