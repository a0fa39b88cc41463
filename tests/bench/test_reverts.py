"""Test the benchmark of reverts."""

from pathlib import Path

import pytest

from bench.reverts import Figures, summarize
from tests.bench.programs import run_program


def test_the_figures_are_summarized_by_their_medians() -> None:
    rounds = [
        Figures(seconds, {"get one": seconds, "create": 4.0}, {"get one": 6.0, "create": 7.0})
        for seconds in (2.0, 9.0, 3.0)
    ]
    assert summarize(99_000, rounds) == (
        "Reverting 99,000 listings takes 3.0 s.\n"
        "p99 of others (get one): 3.0 ms, and 6.0 during reverts (target: at most double).\n"
        "p99 of others (create): 4.0 ms, and 7.0 during reverts (target: at most double)."
    )


@pytest.mark.uncovered
def test_a_short_run_measures_and_cleans_up(tmp_path: Path) -> None:
    done = run_program(
        "bench.reverts", "--listings", "500", "--rounds", "1", "--seconds", "1", "--folder", str(tmp_path)
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Reverting 500 listings takes ")
    assert list(tmp_path.iterdir()) == []
