"""Test the benchmark of a large database."""

import shutil
from pathlib import Path

import pytest

from tests.bench.programs import run_program


@pytest.mark.uncovered
@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")
def test_a_short_run_measures_and_cleans_up(tmp_path: Path) -> None:
    options = ["--listings", "20000", "--rounds", "1", "--seconds", "1", "--folder", str(tmp_path)]
    done = run_program("bench.large", *options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("20,000 listings were imported through the store: ")
    assert list(tmp_path.iterdir()) == []
