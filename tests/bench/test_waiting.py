"""Test the benchmark of clients that wait for changes."""

from pathlib import Path

import pytest

from tests.bench.programs import run_program


@pytest.mark.uncovered
def test_a_short_run_measures_and_cleans_up(tmp_path: Path) -> None:
    options = ["--clients", "20", "--workers", "2", "--writes", "2", "--seconds", "1", "--folder", str(tmp_path)]
    done = run_program("bench.waiting", *options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("20 waiting clients take ")
    assert list(tmp_path.iterdir()) == []
