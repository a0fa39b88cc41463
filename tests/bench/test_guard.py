"""Test that more expensive responses are detected, and that counts are reproducible."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench import BenchmarkError, callgrind, servers
from bench.guard import BASELINE_FILE, TOLERANCE, build_measurements, compare
from bench.http_client import Request, Response
from bench.machine import choose_cores
from bench.scenarios import SCENARIOS

PROJECT_FOLDER = Path(__file__).parent.parent.parent
RESPONSE = Response(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n", b"{}")


@pytest.mark.parametrize(
    ("measured", "is_more_expensive", "is_cheaper"),
    [(2.0, False, False), (2.19, False, False), (2.21, True, False), (1.81, False, False), (1.79, False, True)],
)
def test_only_growth_beyond_the_tolerance_fails(measured: float, *, is_more_expensive: bool, is_cheaper: bool) -> None:
    assert TOLERANCE == 0.1
    (comparison,) = compare({"create": measured}, {"create": 2.0, "get one": 1.0})
    assert (comparison.is_more_expensive, comparison.is_cheaper) == (is_more_expensive, is_cheaper)


def test_each_scenario_has_a_baseline() -> None:
    baseline = json.loads(BASELINE_FILE.read_text("utf-8"))
    assert list(baseline) == list(build_measurements())
    assert {scenario.name for scenario in SCENARIOS} <= baseline.keys()
    assert all(multiple > 0 for multiple in baseline.values())


def test_missing_valgrind_is_reported(tmp_path: Path) -> None:
    outcome = subprocess.run(
        [sys.executable, "-m", "bench.guard"],
        cwd=PROJECT_FOLDER,
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (outcome.returncode, outcome.stdout) == (1, "")
    assert outcome.stderr == (
        "bench: valgrind, which counts instructions, is missing: install it with `apt-get install valgrind`\n"
    )


@pytest.mark.uncovered
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_counts_are_reproducible_and_errors_are_rejected(tmp_path: Path) -> None:
    requests = [Request("GET", "/", "key")]
    with servers.run_reference(
        RESPONSE, tmp_path, choose_cores()[0], wrapper=callgrind.build_command(tmp_path)
    ) as server:
        first, second = (callgrind.count_instructions(server, requests, tmp_path) for _ in range(2))
    assert first == pytest.approx(second, rel=0.03)
    assert 20_000 < first < 1_000_000
    wrong = RESPONSE._replace(head=RESPONSE.head.replace(b"200 OK", b"404 Not Found"))
    with (
        servers.run_reference(wrong, tmp_path, choose_cores()[0]) as server,
        pytest.raises(BenchmarkError, match="404"),
    ):
        callgrind.count_instructions(server, requests, tmp_path)
