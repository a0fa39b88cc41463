"""Test that more expensive responses are detected, and that counts are reproducible."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench import BenchmarkError, callgrind, servers
from bench.data import ACTIVE, Data, Owner
from bench.guard import BASELINE_FILE, TOLERANCE, Comparison, Count, build_measurements, compare
from bench.http_client import Request, Response, send_all
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


def test_a_comparison_is_formatted_as_a_line() -> None:
    assert Comparison("create", 2.1, 2.0).format() == "create: 2.10 times the constant body, baseline 2.00, +5.0%"
    assert Comparison("create", 3.0, 2.0).format().endswith("+50.0%: more than 10% above the baseline")
    assert Comparison("create", 1.0, 2.0).format().endswith("update the baseline with `make bench-check ARGS=--write`")
    assert Comparison("create", 1.0, None).format() == "create: 1.00 times the constant body, no baseline"


def test_a_scenario_without_baseline_does_not_fail() -> None:
    assert not compare({"new": 9.0}, {})[0].is_more_expensive


def test_a_count_is_relative_to_the_constant_body() -> None:
    assert Count(300.0, 150.0).multiple == 2.0


def test_each_scenario_has_a_baseline() -> None:
    baseline = json.loads(BASELINE_FILE.read_text("utf-8"))
    assert list(baseline) == list(build_measurements())
    assert {scenario.name for scenario in SCENARIOS} <= baseline.keys()
    assert all(multiple > 0 for multiple in baseline.values())


def test_the_total_of_a_dump_is_read() -> None:
    assert callgrind.read_total("events: Ir\nsummary: 1234\n\nfn=x\n1 2\ntotals: 1234\n") == 1234
    assert callgrind.read_total("events: Ir\n\nfn=x\n1 2\ntotals: 77\n") == 77
    with pytest.raises(BenchmarkError, match="callgrind has counted no instructions"):
        callgrind.read_total("events: Ir\n")


def test_counted_requests_are_new() -> None:
    requests = [Request("GET", f"/{number}", "key") for number in range(1_000)]
    warm_up, *counted = callgrind.split_requests(requests)
    sent = [request for part in (warm_up, *counted) for request in part]
    assert sent == requests[: len(sent)]
    assert {len(part) for part in counted} == {callgrind.REQUESTS}
    assert len(warm_up) > callgrind.REQUESTS


def test_several_requests_share_a_connection(tmp_path: Path) -> None:
    with servers.run_reference(RESPONSE, tmp_path, choose_cores()[0]) as server:
        responses = list(send_all(server.port, [Request("GET", "/", "key")] * 5))
    assert [response.body for response in responses] == [b"{}"] * 5


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


def test_reading_scenarios_are_also_measured_with_one_request() -> None:
    listings = tuple(range(ACTIVE))
    filled = Data(PROJECT_FOLDER, (Owner("key", listings), Owner("other", listings)), 0)
    again = {name: row.requests(filled) for name, row in build_measurements().items() if name.endswith(", again")}
    assert [len(requests) for requests in again.values()] == [1, 1]
    assert again["list of 100, again"] == [Request("GET", "/api/v1/listings", "key")]


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
