"""Test the benchmark of reverts."""

from pathlib import Path

import pytest

from tests.bench.programs import run_program


@pytest.mark.uncovered
def test_a_short_run_measures_and_cleans_up(tmp_path: Path) -> None:
    done = run_program(
        "bench.reverts", "--listings", "500", "--rounds", "1", "--seconds", "1", "--folder", str(tmp_path)
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Reverting 500 listings takes ")
    assert list(tmp_path.iterdir()) == []
