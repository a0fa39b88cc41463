"""The guard tells when an answer has become more expensive, and counts the same each time."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench import RejectedRequest, callgrind, servers
from bench.data import ACTIVE, Data, Owner, fill
from bench.exchange import Answer, Request, converse
from bench.guard import KEPT, TOLERANCE, Comparison, Count, judge, measures
from bench.machine import two_cores
from bench.scenarios import SCENARIOS

HOME = Path(__file__).parent.parent.parent
ANSWER = Answer(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n", b"{}")


@pytest.mark.parametrize(
    ("found", "dearer", "cheaper"),
    [(2.0, False, False), (2.19, False, False), (2.21, True, False), (1.81, False, False), (1.79, False, True)],
)
def test_only_what_grows_by_more_than_is_tolerated_is_too_expensive(
    found: float, *, dearer: bool, cheaper: bool
) -> None:
    assert TOLERANCE == 0.1
    (verdict,) = judge({"create": found}, {"create": 2.0, "get one": 1.0})
    assert (verdict.dearer, verdict.cheaper) == (dearer, cheaper)


def test_a_verdict_is_a_line() -> None:
    assert Comparison("create", 2.1, 2.0).line() == "create: 2.10 times the constant body, kept 2.00, +5.0 %"
    assert Comparison("create", 3.0, 2.0).line().endswith("+50.0 %: more than 10 % dearer")
    assert Comparison("create", 1.0, 2.0).line().endswith("keep it with `make bench-check ARGS=--write`")
    assert Comparison("create", 1.0, None).line() == "create: 1.00 times the constant body; none is kept"


def test_a_scenario_that_none_is_kept_for_does_not_fail() -> None:
    assert not judge({"new": 9.0}, {})[0].dearer


def test_a_count_is_a_multiple_of_the_constant_bodys() -> None:
    assert Count(300.0, 150.0).multiple == 2.0


def test_each_scenario_has_its_measure() -> None:
    kept = json.loads(KEPT.read_text("utf-8"))
    assert list(kept) == list(measures())
    assert {scenario.name for scenario in SCENARIOS} <= kept.keys()
    assert all(multiple > 0 for multiple in kept.values())


def test_the_total_of_a_dump_is_read() -> None:
    assert callgrind.read_total("events: Ir\nsummary: 1234\n\nfn=x\n1 2\ntotals: 1234\n") == 1234
    assert callgrind.read_total("events: Ir\n\nfn=x\n1 2\ntotals: 77\n") == 77
    with pytest.raises(RejectedRequest, match="callgrind has counted nothing"):
        callgrind.read_total("events: Ir\n")


def test_no_request_that_is_counted_was_sent_before() -> None:
    requests = [Request("GET", f"/{number}", "key") for number in range(1_000)]
    warm_up, *counted = callgrind.in_parts(requests)
    sent = [request for part in (warm_up, *counted) for request in part]
    assert sent == requests[: len(sent)]
    assert {len(part) for part in counted} == {callgrind.REQUESTS}
    assert len(warm_up) > callgrind.REQUESTS


def test_requests_go_over_one_connection(tmp_path: Path) -> None:
    with servers.reference(ANSWER, tmp_path, two_cores()[0]) as server:
        answers = list(converse(server.port, [Request("GET", "/", "key")] * 5))
    assert [answer.body for answer in answers] == [b"{}"] * 5


def test_without_valgrind_it_says_how_to_get_it(tmp_path: Path) -> None:
    outcome = subprocess.run(
        [sys.executable, "-m", "bench.guard"],
        cwd=HOME,
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (outcome.returncode, outcome.stdout) == (1, "")
    assert outcome.stderr == (
        "bench: valgrind, which counts instructions, is missing: install it with `apt-get install valgrind`\n"
    )


def test_what_is_asked_again_is_one_request_of_those_that_read() -> None:
    listings = tuple(range(ACTIVE))
    filled = Data(HOME, (Owner("key", listings), Owner("other", listings)), 0)
    again = {name: row.requests(filled) for name, row in measures().items() if name.endswith(", again")}
    assert [len(requests) for requests in again.values()] == [1, 1]
    assert again["list of 100, again"] == [Request("GET", "/api/v1/listings", "key")]


@pytest.mark.timing
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_the_services_instructions_are_the_same_each_time(tmp_path: Path) -> None:
    filled = fill(tmp_path / "filled.db")
    requests = measures()["get one"].requests(filled)
    alone, under = {"LISTINGS_SITE": "off"}, callgrind.under(tmp_path)
    with servers.service(filled.database, tmp_path, two_cores()[0], settings=alone, under=under) as server:
        first, second = (callgrind.instructions(server, part, tmp_path) for part in (requests[:2000], requests[2000:]))
    assert first == pytest.approx(second, rel=0.03)


@pytest.mark.timing
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_instructions_are_the_same_each_time_and_an_error_is_not_counted(tmp_path: Path) -> None:
    requests = [Request("GET", "/", "key")]
    with servers.reference(ANSWER, tmp_path, two_cores()[0], under=callgrind.under(tmp_path)) as server:
        first, second = (callgrind.instructions(server, requests, tmp_path) for _ in range(2))
    assert first == pytest.approx(second, rel=0.03)
    assert 20_000 < first < 1_000_000
    wrong = ANSWER._replace(head=ANSWER.head.replace(b"200 OK", b"404 Not Found"))
    with servers.reference(wrong, tmp_path, two_cores()[0]) as server, pytest.raises(RejectedRequest, match="404"):
        callgrind.instructions(server, requests, tmp_path)
