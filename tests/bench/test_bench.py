"""Test the benchmark: the output of wrk, the checks of responses, and a short run."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import BenchmarkError, rounds, scenarios
from bench.data import Data, fill
from bench.http_client import Request, Response, send
from bench.scenarios import SCENARIOS
from bench.wrk import Count, parse_output
from tests.bench.programs import run_program
from tests.harness import RunningService

pytestmark = pytest.mark.uncovered


# The output of wrk

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


# Checks of responses


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    return fill(tmp_path_factory.mktemp("filled") / "listings.db")


@pytest.fixture
def service(data: Data, tmp_path: Path) -> Iterator[RunningService]:
    """Run the service on a copy of the data."""
    shutil.copyfile(data.database, tmp_path / "listings.db")
    with RunningService(tmp_path) as running:
        yield running


def get_port(service: RunningService) -> int:
    return int(service.base_url.rpartition(":")[2])


def change(service: RunningService, data: Data, **values: object) -> None:
    """Update the first owner's newest listing, so that it differs from the test data."""
    owner = data.owners[0]
    request = Request("PATCH", f"{scenarios.PATH}/{owner.listings[-1]}", owner.key, json.dumps(values))
    assert send(get_port(service), request).status == 200


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[scenario.name for scenario in SCENARIOS])
def test_responses_of_the_service_are_accepted(
    service: RunningService, data: Data, scenario: scenarios.Scenario
) -> None:
    response = scenario.check(data, get_port(service))
    assert response.status == (201 if scenario.creates else 200)


@pytest.mark.parametrize(
    ("scenario", "values", "message"),
    [
        (SCENARIOS[0], {"title": "Another"}, "its title must be"),
        (SCENARIOS[0], {"price": 17}, "its price must be"),
        (SCENARIOS[1], {"title": "Another"}, "every title must match"),
        (SCENARIOS[1], {"is_active": False}, "it must list the 100 active listings, newest first"),
    ],
    ids=["title", "price", "title in the list", "incomplete list"],
)
def test_a_wrong_response_is_rejected(
    service: RunningService, data: Data, scenario: scenarios.Scenario, values: dict[str, object], message: str
) -> None:
    change(service, data, **values)
    with pytest.raises(BenchmarkError, match=message):
        scenario.check(data, get_port(service))


def response(body: object, status: bytes = b"200 OK", headers: bytes = b"") -> Response:
    return Response(b"HTTP/1.1 " + status + b"\r\n" + headers, json.dumps(body).encode())


@pytest.mark.parametrize(
    "wrong",
    [
        response({"id": 1025, "message": "listing created"}),
        response({"message": "listing created"}, b"201 Created"),
        response({"id": 1025}, b"201 Created"),
        response([], b"201 Created"),
        Response(b"HTTP/1.1 201 Created\r\n", b"{"),
    ],
    ids=["status", "no id", "no message", "array", "no JSON"],
)
def test_a_wrong_response_to_a_create_is_rejected(wrong: Response) -> None:
    with pytest.raises(BenchmarkError, match="Wrong response"):
        scenarios.require_created(wrong)


@pytest.mark.parametrize(("expected", "good"), [(12_000, True), (11_936, True), (11_935, False), (12_001, False)])
def test_creates_without_a_row_are_rejected(data: Data, expected: int, *, good: bool) -> None:
    if good:
        rounds.require_rows(data.database, expected, connections=32)
        return
    with pytest.raises(BenchmarkError, match="12000 listings are stored"):
        rounds.require_rows(data.database, expected, connections=32)


# The command


def test_missing_wrk_is_reported(tmp_path: Path) -> None:
    outcome = run_program("bench", "--quick", PATH=str(tmp_path))
    assert (outcome.returncode, outcome.stdout) == (1, "")
    assert outcome.stderr == ("bench: wrk, the load generator, is missing: install it with `apt-get install wrk`\n")


@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")
def test_a_short_run_measures_creates_and_cleans_up(tmp_path: Path) -> None:
    options = ["--rounds", "1", "--seconds", "1", "--connections", "4", "--scenario", "create"]
    outcome = run_program("bench", *options, "--folder", str(tmp_path))
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stderr.startswith("2 runs: about 8 seconds, at most 24 ")
    (row,) = (line for line in outcome.stdout.splitlines() if line.startswith("| create |"))
    rate, constant = (int(cell.replace(",", "")) for cell in row.split("|")[3:5])
    assert rate > 0
    assert constant > 0
    assert not list(tmp_path.iterdir())
