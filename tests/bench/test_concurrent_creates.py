"""Test the benchmark of reads during creates."""

import shutil
from pathlib import Path

import pytest

from bench.concurrent_creates import Reads, summarize_creates, summarize_reads
from tests.bench.programs import run_program


def test_reads_are_summarized_by_medians() -> None:
    runs = [Reads(100, 50, 10, 1.0), Reads(1_000, 600, 20, 3.0), Reads(10_000, 7_000, 30, 2.0)]
    assert summarize_reads(runs) == (
        "Reads keep 60% of their rate while 8 connections create (target: at least 55%): 1,000 per second alone, 600"
        " during 20 creates per second; p99 2.00 ms (target: at most 2)."
    )


def test_creates_are_summarized_by_median_and_maximum() -> None:
    assert summarize_creates([5.0, 30.0, 4.0]) == (
        "p99 of creates with 32 connections in 3 runs: median 5.0 ms (target: at most 5), maximum 30.0 ms (target: at"
        " most 12)."
    )


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
