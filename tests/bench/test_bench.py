"""The benchmark tells the truth: what wrk counted, what the machine disturbed, and that right answers were measured."""

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

from bench import RejectedRequest, rounds, scenarios
from bench.data import ACCOUNTS, ACTIVE, INACTIVE, Data, fill
from bench.exchange import Answer, Request, exchange
from bench.machine import busy_seconds, file_system, two_cores
from bench.report import BEGIN, END, report, table, write
from bench.rounds import Cell, Plan, Run
from bench.scenarios import SCENARIOS
from bench.witness import MOST_LOST, Timed, Watched, Witness, lost, read_stretches, watch, within
from bench.wrk import Count, parse
from tests.bench.programs import run_program
from tests.harness import TIMEOUT, RunningService

PAGE = Path(__file__).parent.parent.parent / "docs/performance.md"

# What wrk has counted

GOOD = """\
Running 1s test @ http://127.0.0.1:45379/
  1 threads and 32 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     3.53ms    1.46ms  16.72ms   87.33%
    Req/Sec     9.03k     1.35k   10.88k    80.00%
  8991 requests in 1.00s, 9.24MB read
Requests/sec:   8971.54
Transfer/sec:      9.22MB
COUNTED requests=8991 microseconds=1002169 bytes=9690298 p50=3012 p99=14918 refused=0 broken=0
"""


def test_what_wrk_counted_is_read() -> None:
    count = parse(GOOD)
    assert count == Count(8991, 1.002169, 9_690_298, 3012, 14918)
    assert count.rate == pytest.approx(8971.54, abs=0.01)


def test_a_slow_server_may_answer_nothing_while_it_warms_up() -> None:
    assert parse(GOOD.replace("requests=8991", "requests=0"), least=0).requests == 0


@pytest.mark.parametrize(
    ("output", "told"),
    [
        (GOOD.replace("Requests/sec", "  Non-2xx or 3xx responses: 7\nRequests/sec"), "Non-2xx or 3xx responses: 7"),
        (
            GOOD.replace("Requests/sec", "  Socket errors: connect 0, read 3, write 0, timeout 0\nRequests/sec"),
            "Socket errors: connect 0, read 3",
        ),
        (GOOD.replace("refused=0", "refused=7"), "7 refused, 0 broken"),
        (GOOD.replace("broken=0", "broken=3"), "0 refused, 3 broken"),
        (GOOD.replace("requests=8991", "requests=0"), "Not one request was answered"),
        ("unable to connect to 127.0.0.1:1 Connection refused\n", "wrk has counted nothing: unable to connect"),
        (GOOD.partition("COUNTED")[0], "wrk has counted nothing"),
    ],
    ids=["wrk says non-2xx", "wrk says socket errors", "refused", "broken", "no answer", "no server", "no count"],
)
def test_a_run_with_anything_but_successes_has_no_result(output: str, told: str) -> None:
    with pytest.raises(RejectedRequest, match=told):
        parse(output)


# The witness


def runs_that_lose(*milliseconds: float) -> tuple[Watched[int], list[float]]:
    """The run that is kept of a row of runs that lose so much, and what those set aside have lost."""
    losses = iter(milliseconds)
    numbers = iter(range(100))
    said: list[float] = []
    kept = watch(lambda: Timed(next(numbers), 0.0, 1.0), lambda _: next(losses) / 1000, said.append)
    return kept, said


def test_an_undisturbed_run_is_kept_at_once() -> None:
    assert runs_that_lose(30) == (Watched(0, 0.030, 1), [])


def test_a_disturbed_run_is_set_aside_and_repeated() -> None:
    kept, said = runs_that_lose(31, 160, 0)
    assert kept == Watched(2, 0.0, 3)
    assert not kept.disturbed
    assert said == [0.031, 0.160]


def test_of_three_disturbed_runs_the_least_is_taken_and_known_as_disturbed() -> None:
    kept, said = runs_that_lose(100, 50, 70, 0)
    assert (kept.run, kept.tries, kept.disturbed) == (1, 3, True)
    assert len(said) == 3


def test_sleepers_that_go_first_count_each_by_itself() -> None:
    assert lost([[(1.0, 1.25)], [(3.0, 3.5), (4.0, 4.25)]], any_core=True) == 0.75


def test_of_sleepers_that_load_can_delay_only_what_both_lost_at_once_counts() -> None:
    assert lost([[(1.0, 1.5), (2.0, 2.5)], [(1.25, 2.25), (5.0, 6.0)]], any_core=False) == 0.5
    assert lost([[(1.0, 1.5)], []], any_core=False) == 0


def test_only_what_was_lost_during_the_run_counts() -> None:
    assert within([(0.0, 1.0), (1.5, 2.5), (2.75, 4.0), (5.0, 6.0)], 2.0, 3.0) == [(2.0, 2.5), (2.75, 3.0)]


def test_a_line_that_is_not_whole_yet_is_left_for_later(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.write_text("fifo\n10.0 0.5\n11.0 0.2")
    assert read_stretches(notes) == [(10.0, 10.5)]


@pytest.mark.alone
def test_a_core_that_stands_still_is_seen(tmp_path: Path) -> None:
    cores = two_cores()
    with Witness(cores, tmp_path) as witness:
        since = time.monotonic()
        for sleeper in witness.sleepers:
            sleeper.send_signal(signal.SIGSTOP)
        time.sleep(0.1)
        for sleeper in witness.sleepers:
            sleeper.send_signal(signal.SIGCONT)
        until = time.monotonic()
        while witness.lost(Timed(None, since, until)) <= MOST_LOST:
            assert time.monotonic() < until + 10


@pytest.mark.alone
def test_a_busy_core_is_no_standstill(tmp_path: Path) -> None:
    with Witness(two_cores(), tmp_path) as witness:
        loads = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
        try:
            deadline = time.monotonic() + TIMEOUT
            while watch(lambda: spin(0.5), witness.lost, lambda _: None).disturbed:  # by the host
                assert time.monotonic() < deadline
        finally:
            for load in loads:
                load.kill()
                load.wait()


def spin(seconds: float) -> Timed[None]:
    since = time.monotonic()
    while time.monotonic() < since + seconds:
        pass
    return Timed(None, since, time.monotonic())


def test_a_witness_that_has_died_is_no_witness(tmp_path: Path) -> None:
    with Witness(two_cores(), tmp_path) as witness:
        witness.sleepers[0].kill()
        witness.sleepers[0].wait()
        with pytest.raises(RejectedRequest, match="sleeper of the witness has ended"):
            witness.lost(Timed(None, 0, 1))


# Right answers


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    return fill(tmp_path_factory.mktemp("filled") / "listings.db")


@pytest.fixture
def running(data: Data, tmp_path: Path) -> Iterator[RunningService]:
    """The service on a copy of the data."""
    shutil.copyfile(data.database, tmp_path / "listings.db")
    with RunningService(tmp_path) as service:
        yield service


def port_of(running: RunningService) -> int:
    return int(running.base_url.rpartition(":")[2])


def change(running: RunningService, data: Data, **values: object) -> None:
    """Change the first owner's newest listing behind the benchmark's back."""
    owner = data.owners[0]
    request = Request("PATCH", f"{scenarios.PATH}/{owner.listings[-1]}", owner.key, json.dumps(values))
    assert exchange(port_of(running), request).status == 200


def test_the_data_are_a_hundred_accounts_with_a_hundred_active_listings(data: Data) -> None:
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
def test_the_service_answers_rightly(running: RunningService, data: Data, scenario: scenarios.Scenario) -> None:
    answer = scenario.check(data, port_of(running))
    assert answer.status == (201 if scenario.creates else 200)


@pytest.mark.parametrize(
    ("scenario", "values", "told"),
    [
        (SCENARIOS[0], {"title": "Another"}, "its title is"),
        (SCENARIOS[0], {"price": 17}, "its price is"),
        (SCENARIOS[1], {"title": "Another"}, "each has its title"),
        (SCENARIOS[1], {"is_active": False}, "the 100 active listings come newest first"),
    ],
    ids=["a title", "a price", "a title in the list", "a list without one"],
)
def test_a_wrong_answer_is_not_measured(
    running: RunningService, data: Data, scenario: scenarios.Scenario, values: dict[str, object], told: str
) -> None:
    change(running, data, **values)
    with pytest.raises(RejectedRequest, match=told):
        scenario.check(data, port_of(running))


def test_an_error_is_not_measured(running: RunningService, data: Data) -> None:
    stranger = data._replace(owners=(data.owners[0]._replace(key="a-key-that-nobody-has"),))
    for scenario in SCENARIOS:
        with pytest.raises(RejectedRequest, match="401"):
            scenario.check(stranger, port_of(running))


def answer(body: object, status: bytes = b"200 OK", headers: bytes = b"") -> Answer:
    return Answer(b"HTTP/1.1 " + status + b"\r\n" + headers, json.dumps(body).encode())


@pytest.mark.parametrize(
    "wrong",
    [
        answer({"id": 1025, "message": "listing created"}),
        answer({"message": "listing created"}, b"201 Created"),
        answer({"id": 1025}, b"201 Created"),
        answer([], b"201 Created"),
        Answer(b"HTTP/1.1 201 Created\r\n", b"{"),
    ],
    ids=["another status", "no id", "no message", "a list", "no JSON"],
)
def test_a_create_that_is_none_is_not_measured(wrong: Answer) -> None:
    with pytest.raises(RejectedRequest, match="answers wrongly"):
        scenarios.require_created(wrong)


def test_the_lists_answer_is_as_large_as_a_real_one(running: RunningService, data: Data) -> None:
    assert 50_000 < SCENARIOS[1].check(data, port_of(running)).size < 100_000


def test_the_requests_go_round_all_keys_and_all_active_listings(data: Data) -> None:
    for scenario in SCENARIOS:
        asked = scenario.requests(data)
        for begin in range(0, len(asked), ACCOUNTS):
            assert len({request.key for request in asked[begin : begin + ACCOUNTS]}) == ACCOUNTS
    paths = {request.path for request in SCENARIOS[0].requests(data)}
    assert paths == {f"{scenarios.PATH}/{number}" for owner in data.owners for number in owner.listings}


def test_the_reference_must_give_the_services_answer() -> None:
    wanted = answer({"id": 1}, headers=b"date: Sat, 21 Nov 2026 10:00:00 GMT\r\na: 1\r\nb: 2\r\n")
    rounds.require_same(answer({"id": 1}, headers=b"b: 2\r\na: 1\r\ndate: later\r\n"), wanted)
    for other in (
        answer({"id": 1}, headers=b"b: 2\r\n"),
        answer({"id": 2}, headers=b"b: 2\r\na: 1\r\n"),
        answer({"id": 1}, b"201 Created", b"b: 2\r\na: 1\r\n"),
    ):
        with pytest.raises(RejectedRequest, match="does not give the service's answer"):
            rounds.require_same(other, wanted)


def test_answers_that_are_smaller_or_larger_than_a_right_one_are_no_result() -> None:
    right = Answer(b"H" * 98, b"B" * 900)
    rounds.require_size(Count(1000, 1.0, 1_000_000, 1, 1), right, 32)
    rounds.require_size(Count(1000, 1.0, 1_032_000, 1, 1), right, 32)
    for size in (900_000, 1_200_000):
        with pytest.raises(RejectedRequest, match="where a right one has 1000"):
            rounds.require_size(Count(1000, 1.0, size, 1, 1), right, 32)


@pytest.mark.parametrize(("wanted", "good"), [(12_000, True), (11_936, True), (11_935, False), (12_001, False)])
def test_creates_that_left_no_row_are_no_result(data: Data, wanted: int, *, good: bool) -> None:
    if good:
        rounds.require_rows(data.database, wanted, connections=32)
        return
    with pytest.raises(RejectedRequest, match="12000 listings are stored"):
        rounds.require_rows(data.database, wanted, connections=32)


# The machine


def test_the_file_system_is_that_of_the_folder(tmp_path: Path) -> None:
    mounts = f"tmpfs {tmp_path} tmpfs rw 0 0\n/dev/root / ext4 rw 0 0\nproc /proc proc rw 0 0\n"
    assert file_system(tmp_path / "below", mounts) == "tmpfs"
    assert file_system(Path("/proc-of-another-name"), mounts) == "ext4"


def test_work_on_other_cores_does_not_count() -> None:
    stat = (
        "cpu  9 9 9 9 9 9 9 0 0 0\n"
        "cpu0 100 10 20 7777 888 30 40 5 0 0\n"
        "cpu1 1000 0 0 1 1 0 0 0 0 0\n"
        "cpu10 7 0 0 0 0 0 0 0 0 0\n"
    )
    tick = os.sysconf("SC_CLK_TCK")
    assert busy_seconds((0,), stat) == 200 / tick
    assert busy_seconds((0, 1), stat) == 1200 / tick


# The table


def kept(rate: float, lost: float = 0.0, tries: int = 1, foreign: float = 0.0) -> Watched[Run]:
    return Watched(Run(rate, p50=1500, p99=4000, processor=25.04, peak_mebibytes=47.4, foreign=foreign), lost, tries)


CELL = Cell("get one", 32, [kept(10_000), kept(20_000), kept(33_000)], [kept(40_000), kept(40_000), kept(44_000)])


def test_a_row_tells_medians_and_the_spread_of_the_rounds_ratios() -> None:
    row = table([CELL]).splitlines()[-1]
    assert row == "| get one | 32 | 20,000 | 40,000 | 0.50 (0.25-0.75) | 1.50 | 4.00 | 4.00 | 25.0 | 25.0 | 47 | 0 |"


def test_runs_that_were_set_aside_are_told_and_a_disturbed_one_has_a_star() -> None:
    cell = CELL._replace(service=[kept(10_000, tries=2), kept(20_000, lost=0.045, tries=3), kept(33_000)])
    assert table([cell]).splitlines()[-1].endswith("| 3 * |")
    text = report([cell], Plan(SCENARIOS), {}, goes_first=True)
    assert "The worst of these lost 45 ms" in text
    assert "star" not in report([CELL], Plan(SCENARIOS), {}, goes_first=True)


def test_a_machine_that_had_other_things_to_do_is_told() -> None:
    busy = CELL._replace(service=[kept(10_000, foreign=0.5)] * 3, reference=[kept(10_000, foreign=0.75)] * 3)
    assert "too busy for these numbers to count" in report([busy], Plan(SCENARIOS), {}, goes_first=True)
    assert "too busy" not in report([CELL], Plan(SCENARIOS), {}, goes_first=True)


def test_the_result_takes_the_place_of_the_last_one(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text(f"before\n\n{BEGIN}\n\nthe last one\n\n{END}\n\nafter\n", "utf-8")
    write(page, "| first |\n")
    write(page, "| second |\n")
    assert page.read_text("utf-8") == f"before\n\n{BEGIN}\n\n| second |\n\n{END}\n\nafter\n"


def test_a_page_without_a_place_for_the_result_stays_as_it_is(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text(f"{BEGIN}\n", "utf-8")
    with pytest.raises(RejectedRequest, match="no place for the result"):
        write(page, "| first |\n")
    assert page.read_text("utf-8") == f"{BEGIN}\n"


def test_the_page_about_performance_has_a_place_for_the_result() -> None:
    text = PAGE.read_text("utf-8")
    assert 0 < text.index(BEGIN) < text.index(END)


# All of it


def test_without_wrk_it_says_how_to_get_it(tmp_path: Path) -> None:
    outcome = run_program("bench", "--quick", PATH=str(tmp_path))
    assert (outcome.returncode, outcome.stdout) == (1, "")
    assert outcome.stderr == (
        "bench: wrk, the client of the benchmark, is missing: install it with `apt-get install wrk`\n"
    )


def test_a_quick_result_is_not_kept() -> None:
    outcome = run_program("bench", "--quick", "--write")
    assert (outcome.returncode, outcome.stdout) == (2, "")
    assert "A quick result is not worth keeping: leave out --quick or --write" in outcome.stderr


@pytest.mark.timing
@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")
def test_a_short_run_measures_creates_and_leaves_nothing_behind(tmp_path: Path) -> None:
    options = ["--rounds", "1", "--seconds", "1", "--connections", "4", "--scenario", "create"]
    outcome = run_program("bench", *options, "--folder", str(tmp_path))
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stderr.startswith("2 runs: about 8 seconds, at most 24 ")
    (row,) = (line for line in outcome.stdout.splitlines() if line.startswith("| create |"))
    rate, constant = (int(cell.replace(",", "")) for cell in row.split("|")[3:5])
    assert rate > 0
    assert constant > 0
    assert not list(tmp_path.iterdir())
