"""Test the benchmark: the output of wrk, stalls of the machine, the checks of responses, and the report."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from bench import BenchmarkError, rounds, scenarios
from bench.data import ACCOUNTS, ACTIVE, INACTIVE, Data, fill
from bench.http_client import Request, Response, send
from bench.machine import choose_cores, compute_busy_seconds, find_file_system
from bench.report import BEGIN, END, format_report, format_table, write_result
from bench.rounds import Cell, Plan, Run
from bench.scenarios import SCENARIOS
from bench.stall_detector import (
    MAX_LOST_SECONDS,
    MeasuredRun,
    StallDetector,
    TimedRun,
    clip,
    compute_lost_seconds,
    read_intervals,
    repeat_if_disturbed,
)
from bench.wrk import Count, parse_output
from tests.bench.programs import run_program
from tests.harness import TIMEOUT, RunningService

pytestmark = pytest.mark.uncovered

PAGE = Path(__file__).parent.parent.parent / "docs/performance.md"

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


def test_the_warm_up_needs_no_response() -> None:
    assert parse_output(GOOD.replace("requests=8991", "requests=0"), min_requests=0).requests == 0


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


# Stalls


def run_with_losses(*milliseconds: float) -> tuple[MeasuredRun[int], list[float]]:
    """Repeat runs with these losses; return the chosen run and the reported losses."""
    losses = iter(milliseconds)
    numbers = iter(range(100))
    reported: list[float] = []
    chosen = repeat_if_disturbed(
        lambda: TimedRun(next(numbers), 0.0, 1.0), lambda _: next(losses) / 1000, reported.append
    )
    return chosen, reported


def test_an_undisturbed_run_is_not_repeated() -> None:
    assert run_with_losses(30) == (MeasuredRun(0, 0.030, 1), [])


def test_a_disturbed_run_is_repeated() -> None:
    chosen, reported = run_with_losses(31, 160, 0)
    assert chosen == MeasuredRun(2, 0.0, 3)
    assert not chosen.is_disturbed
    assert reported == [0.031, 0.160]


def test_the_best_of_three_disturbed_runs_counts() -> None:
    chosen, reported = run_with_losses(100, 50, 70, 0)
    assert (chosen.run, chosen.tries, chosen.is_disturbed) == (1, 3, True)
    assert len(reported) == 3


def test_with_priority_the_worst_core_counts() -> None:
    assert compute_lost_seconds([[(1.0, 1.25)], [(3.0, 3.5), (4.0, 4.25)]], any_core=True) == 0.75


def test_without_priority_only_common_stalls_count() -> None:
    assert compute_lost_seconds([[(1.0, 1.5), (2.0, 2.5)], [(1.25, 2.25), (5.0, 6.0)]], any_core=False) == 0.5
    assert compute_lost_seconds([[(1.0, 1.5)], []], any_core=False) == 0


def test_stalls_are_clipped_to_the_run() -> None:
    assert clip([(0.0, 1.0), (1.5, 2.5), (2.75, 4.0), (5.0, 6.0)], 2.0, 3.0) == [(2.0, 2.5), (2.75, 3.0)]


def test_an_incomplete_line_is_ignored(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("fifo\n10.0 0.5\n11.0 0.2")
    assert read_intervals(log) == [(10.0, 10.5)]


@pytest.mark.alone
def test_a_stall_is_detected(tmp_path: Path) -> None:
    cores = choose_cores()
    with StallDetector(cores, tmp_path) as detector:
        since = time.monotonic()
        for sleeper in detector.sleepers:
            sleeper.send_signal(signal.SIGSTOP)
        time.sleep(0.1)
        for sleeper in detector.sleepers:
            sleeper.send_signal(signal.SIGCONT)
        until = time.monotonic()
        while detector.get_lost_seconds(TimedRun(None, since, until)) <= MAX_LOST_SECONDS:
            assert time.monotonic() < until + 10


@pytest.mark.alone
def test_a_busy_core_is_not_a_stall(tmp_path: Path) -> None:
    with StallDetector(choose_cores(), tmp_path) as detector:
        loads = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
        try:
            deadline = time.monotonic() + TIMEOUT
            while repeat_if_disturbed(lambda: spin(0.5), detector.get_lost_seconds, lambda _: None).is_disturbed:
                assert time.monotonic() < deadline
        finally:
            for load in loads:
                load.kill()
                load.wait()


def spin(seconds: float) -> TimedRun[None]:
    since = time.monotonic()
    while time.monotonic() < since + seconds:
        pass
    return TimedRun(None, since, time.monotonic())


def test_a_dead_sleeper_is_an_error(tmp_path: Path) -> None:
    with StallDetector(choose_cores(), tmp_path) as detector:
        detector.sleepers[0].kill()
        detector.sleepers[0].wait()
        with pytest.raises(BenchmarkError, match="sleeper of the stall detection has ended"):
            detector.get_lost_seconds(TimedRun(None, 0, 1))


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


def test_the_data_has_100_accounts_with_100_active_listings(data: Data) -> None:
    connection = apsw.Connection(str(data.database), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        counts = connection.execute(
            "SELECT account_id, SUM(is_active), COUNT(*) FROM listings GROUP BY account_id"
        ).fetchall()
    finally:
        connection.close()
    assert [row[1:] for row in counts] == [(ACTIVE, ACTIVE + INACTIVE)] * ACCOUNTS
    assert data.rows == ACCOUNTS * (ACTIVE + INACTIVE)


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


def test_an_error_response_is_rejected(service: RunningService, data: Data) -> None:
    stranger = data._replace(owners=(data.owners[0]._replace(key="a-key-that-nobody-has"),))
    for scenario in SCENARIOS:
        with pytest.raises(BenchmarkError, match="401"):
            scenario.check(stranger, get_port(service))


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


def test_the_list_has_a_realistic_size(service: RunningService, data: Data) -> None:
    assert 50_000 < SCENARIOS[1].check(data, get_port(service)).size < 100_000


def test_the_requests_use_all_keys_and_active_listings(data: Data) -> None:
    for scenario in SCENARIOS:
        requests = scenario.requests(data)
        for begin in range(0, len(requests), ACCOUNTS):
            assert len({request.key for request in requests[begin : begin + ACCOUNTS]}) == ACCOUNTS
    paths = {request.path for request in SCENARIOS[0].requests(data)}
    assert paths == {f"{scenarios.PATH}/{number}" for owner in data.owners for number in owner.listings}


def test_the_reference_must_return_the_services_response() -> None:
    expected = response({"id": 1}, headers=b"date: Sat, 21 Nov 2026 10:00:00 GMT\r\na: 1\r\nb: 2\r\n")
    rounds.require_same(response({"id": 1}, headers=b"b: 2\r\na: 1\r\ndate: later\r\n"), expected)
    for other in (
        response({"id": 1}, headers=b"b: 2\r\n"),
        response({"id": 2}, headers=b"b: 2\r\na: 1\r\n"),
        response({"id": 1}, b"201 Created", b"b: 2\r\na: 1\r\n"),
    ):
        with pytest.raises(BenchmarkError, match="returned another response"):
            rounds.require_same(other, expected)


def test_responses_of_another_size_are_rejected() -> None:
    right = Response(b"H" * 98, b"B" * 900)
    rounds.require_size(Count(1000, 1.0, 1_000_000, 1, 1), right, 32)
    rounds.require_size(Count(1000, 1.0, 1_032_000, 1, 1), right, 32)
    for size in (900_000, 1_200_000):
        with pytest.raises(BenchmarkError, match="expected 1000"):
            rounds.require_size(Count(1000, 1.0, size, 1, 1), right, 32)


@pytest.mark.parametrize(("expected", "good"), [(12_000, True), (11_936, True), (11_935, False), (12_001, False)])
def test_creates_without_a_row_are_rejected(data: Data, expected: int, *, good: bool) -> None:
    if good:
        rounds.require_rows(data.database, expected, connections=32)
        return
    with pytest.raises(BenchmarkError, match="12000 listings are stored"):
        rounds.require_rows(data.database, expected, connections=32)


# The machine


def test_the_file_system_is_that_of_the_folder(tmp_path: Path) -> None:
    mounts = f"tmpfs {tmp_path} tmpfs rw 0 0\n/dev/root / ext4 rw 0 0\nproc /proc proc rw 0 0\n"
    assert find_file_system(tmp_path / "below", mounts) == "tmpfs"
    assert find_file_system(Path("/proc-of-another-name"), mounts) == "ext4"


def test_load_on_other_cores_is_ignored() -> None:
    stat = (
        "cpu  9 9 9 9 9 9 9 0 0 0\n"
        "cpu0 100 10 20 7777 888 30 40 5 0 0\n"
        "cpu1 1000 0 0 1 1 0 0 0 0 0\n"
        "cpu10 7 0 0 0 0 0 0 0 0 0\n"
    )
    tick = os.sysconf("SC_CLK_TCK")
    assert compute_busy_seconds((0,), stat) == 200 / tick
    assert compute_busy_seconds((0, 1), stat) == 1200 / tick


# The table


def build_run(rate: float, lost: float = 0.0, tries: int = 1, other_load: float = 0.0) -> MeasuredRun[Run]:
    return MeasuredRun(
        Run(rate, p50=1500, p99=4000, processor=25.04, peak_mebibytes=47.4, other_load=other_load), lost, tries
    )


CELL = Cell(
    "get one",
    32,
    [build_run(10_000), build_run(20_000), build_run(33_000)],
    [build_run(40_000), build_run(40_000), build_run(44_000)],
)


def test_a_row_has_medians_and_the_range_of_ratios() -> None:
    row = format_table([CELL]).splitlines()[-1]
    assert row == "| get one | 32 | 20,000 | 40,000 | 0.50 (0.25-0.75) | 1.50 | 4.00 | 4.00 | 25.0 | 25.0 | 47 | 0 |"


def test_a_row_counts_repeated_runs_and_marks_disturbed_ones() -> None:
    cell = CELL._replace(
        service=[build_run(10_000, tries=2), build_run(20_000, lost=0.045, tries=3), build_run(33_000)]
    )
    assert format_table([cell]).splitlines()[-1].endswith("| 3 * |")
    text = format_report([cell], Plan(SCENARIOS), {}, has_priority=True)
    assert "The worst of these lost 45 ms" in text
    assert "star" not in format_report([CELL], Plan(SCENARIOS), {}, has_priority=True)


def test_the_report_says_if_the_machine_was_busy() -> None:
    busy = CELL._replace(
        service=[build_run(10_000, other_load=0.5)] * 3, reference=[build_run(10_000, other_load=0.75)] * 3
    )
    assert "too busy for these numbers to count" in format_report([busy], Plan(SCENARIOS), {}, has_priority=True)
    assert "too busy" not in format_report([CELL], Plan(SCENARIOS), {}, has_priority=True)


def test_a_result_replaces_the_last_one(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text(f"before\n\n{BEGIN}\n\nthe last one\n\n{END}\n\nafter\n", "utf-8")
    write_result(page, "| first |\n")
    write_result(page, "| second |\n")
    assert page.read_text("utf-8") == f"before\n\n{BEGIN}\n\n| second |\n\n{END}\n\nafter\n"


def test_a_page_without_markers_is_not_changed(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text(f"{BEGIN}\n", "utf-8")
    with pytest.raises(BenchmarkError, match="must contain the lines"):
        write_result(page, "| first |\n")
    assert page.read_text("utf-8") == f"{BEGIN}\n"


def test_the_performance_page_has_the_markers() -> None:
    text = PAGE.read_text("utf-8")
    assert 0 < text.index(BEGIN) < text.index(END)


# The command


def test_missing_wrk_is_reported(tmp_path: Path) -> None:
    outcome = run_program("bench", "--quick", PATH=str(tmp_path))
    assert (outcome.returncode, outcome.stdout) == (1, "")
    assert outcome.stderr == ("bench: wrk, the load generator, is missing: install it with `apt-get install wrk`\n")


def test_a_quick_result_is_not_written() -> None:
    outcome = run_program("bench", "--quick", "--write")
    assert (outcome.returncode, outcome.stdout) == (2, "")
    assert "A quick result is not worth storing: leave out --quick or --write" in outcome.stderr


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
