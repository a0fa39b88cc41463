"""What reads keep beside creates, and how slow the slowest creates are, is told in medians."""

import shutil
from pathlib import Path

import pytest

from bench.beside import Reads, told_of_creates, told_of_reads
from tests.bench.programs import run_program


def test_reads_are_told_by_the_median_of_what_each_run_has_kept() -> None:
    runs = [Reads(100, 50, 10, 1.0), Reads(1_000, 600, 20, 3.0), Reads(10_000, 7_000, 30, 2.0)]
    assert told_of_reads(runs) == (
        "Reads keep 60% of their rate beside 8 connections that create (to be at least 55 %): 1,000 alone, 600 beside"
        " 20 creates a second; p99 2.00 ms (to be at most 2)."
    )


def test_creates_are_told_by_the_median_and_the_worst_of_the_runs() -> None:
    assert told_of_creates([5.0, 30.0, 4.0]) == (
        "p99 of creates with 32 connections in 3 runs: median 5.0 ms (to be at most 5), worst 30.0 ms (to be at most"
        " 12)."
    )


@pytest.mark.timing
@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")
def test_a_short_run_measures_both_and_leaves_nothing_behind(tmp_path: Path) -> None:
    options = ["--rounds", "1", "--creates", "1", "--seconds", "1", "--folder", str(tmp_path)]
    done = run_program("bench.beside", *options)
    assert done.returncode == 0, done.stderr
    reads, creates = done.stdout.splitlines()
    assert reads.startswith("Reads keep ")
    assert creates.startswith("p99 of creates with 32 connections in 1 runs: median ")
    assert list(tmp_path.iterdir()) == []
