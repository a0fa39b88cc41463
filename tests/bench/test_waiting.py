"""Test the benchmark of clients that wait for changes."""

from pathlib import Path

import pytest

from bench.waiting import Figures, summarize
from tests.bench.programs import run_program


def test_the_figures_are_summarized_by_the_first_and_the_last_response() -> None:
    figures = Figures(1_000, 10.24, 0.031, [[10.0, 20.0], [30.0, 90.0], [20.0, 40.0]])
    assert summarize(figures) == (
        "1,000 waiting clients take 10.0 MiB, 10.2 KiB each, and 3.1% of a core.\n"
        "From sending a write to its first response: median 20 ms, maximum 30 ms; to the last one of the account's "
        "clients: 40 and 90 ms."
    )


@pytest.mark.uncovered
def test_a_short_run_measures_and_cleans_up(tmp_path: Path) -> None:
    options = ["--clients", "20", "--workers", "2", "--writes", "2", "--seconds", "1", "--folder", str(tmp_path)]
    done = run_program("bench.waiting", *options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("20 waiting clients take ")
    assert list(tmp_path.iterdir()) == []
