"""Test the benchmark: wrong results are rejected, and a short run cleans up."""

import shutil
import sys
from pathlib import Path

import pytest

from bench import BenchmarkError, rounds
from bench.data import fill
from bench.wrk import Count, parse_output
from tests.processes import run_program

pytestmark = pytest.mark.uncovered

GOOD = """\
Running 1s test @ http://127.0.0.1:45379/
  1 threads and 32 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     3.53ms    1.46ms  16.72ms   87.33%
    Req/Sec     9.03k     1.35k   10.88k    80.00%
  8991 requests in 1.00s, 9.24MB read
Requests/sec:   8971.54
Transfer/sec:      9.22MB
COUNTED requests=8991 microseconds=1002169 bytes=9690298 p50=3012 p99=14918 failed=0 broken=0
"""


def test_the_output_of_wrk_is_parsed() -> None:
    count = parse_output(GOOD)
    assert count == Count(8991, 1.002169, 9_690_298, 3012, 14918)
    assert count.rate == pytest.approx(8971.54, abs=0.01)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (GOOD.replace("Requests/sec", "  Non-2xx or 3xx responses: 7\nRequests/sec"), "Non-2xx or 3xx responses: 7"),
        (
            GOOD.replace("Requests/sec", "  Socket errors: connect 0, read 3, write 0, timeout 0\nRequests/sec"),
            "Socket errors: connect 0, read 3",
        ),
        (GOOD.replace("failed=0", "failed=7"), "7 error responses, 0 broken connections"),
        (GOOD.replace("broken=0", "broken=3"), "0 error responses, 3 broken connections"),
        (GOOD.replace("requests=8991", "requests=0"), "wrk received no response"),
        ("unable to connect to 127.0.0.1:1 Connection refused\n", "wrk printed no result: unable to connect"),
        (GOOD.partition("COUNTED")[0], "wrk printed no result"),
    ],
    ids=["non-2xx", "socket errors", "failed", "broken", "no response", "no server", "no result"],
)
def test_a_run_with_errors_has_no_result(output: str, message: str) -> None:
    with pytest.raises(BenchmarkError, match=message):
        parse_output(output)


def test_creates_without_a_row_are_rejected(tmp_path: Path) -> None:
    database = fill(tmp_path / "listings.db").database
    for expected in (12_000, 11_936):  # the responses to 32 connections may be lost twice
        rounds.require_rows(database, expected, connections=32)
    for expected in (11_935, 12_001):
        with pytest.raises(BenchmarkError, match="12000 listings are stored"):
            rounds.require_rows(database, expected, connections=32)


@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")
def test_a_short_run_measures_creates_and_cleans_up(tmp_path: Path) -> None:
    options = ["--rounds", "1", "--seconds", "1", "--connections", "4", "--scenario", "create"]
    command = [sys.executable, "-m", "bench", *options, "--folder", str(tmp_path)]
    done = run_program(command)
    assert done.returncode == 0, done.stderr
    (row,) = (line for line in done.stdout.splitlines() if line.startswith("| create |"))
    rate, constant = (int(cell.replace(",", "")) for cell in row.split("|")[3:5])
    assert rate > 0
    assert constant > 0
    assert not list(tmp_path.iterdir())
