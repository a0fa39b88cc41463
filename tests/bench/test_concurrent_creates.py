"""Test the benchmark of reads during creates."""

import shutil
from pathlib import Path

import pytest

from tests.bench.programs import run_program


@pytest.mark.uncovered
@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")
def test_a_short_run_measures_both_and_cleans_up(tmp_path: Path) -> None:
    options = ["--rounds", "1", "--creates", "1", "--seconds", "1", "--folder", str(tmp_path)]
    done = run_program("bench.concurrent_creates", *options)
    assert done.returncode == 0, done.stderr
    reads, creates = done.stdout.splitlines()
    assert reads.startswith("Reads keep ")
    assert creates.startswith("p99 of creates with 32 connections in 1 runs: median ")
    assert list(tmp_path.iterdir()) == []
