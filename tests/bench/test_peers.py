"""The benchmark beside the peers compares like with like, and refuses whoever answers wrongly."""

import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from bench import RejectedRequest, servers
from bench.data import Data, Owner, add_expired, fill
from bench.exchange import Answer, Request, exchange
from bench.machine import family, two_cores
from bench.peers import contenders, contest, contract, installing, plot, roster, table
from bench.peers.contenders import Contender, Kind, Start
from bench.peers.contest import Cell
from bench.peers.roster import PEERS, SOURCES, Peer
from bench.rounds import Plan, Run
from bench.scenarios import SCENARIOS
from bench.servers import Server
from bench.witness import Watched

HOME = Path(__file__).parent.parent.parent
PAGE = HOME / "docs/performance.md"

# Picking the fastest peer


def run(rate: float) -> Watched[Run]:
    return Watched(Run(rate, p50=1500, p99=4000, processor=25.04, peak_mebibytes=47.4, foreign=0.0), 0.0)


def nobody(_: Start) -> Any:
    raise AssertionError


def contender(name: str, kind: Kind, *, creates: bool = True) -> Contender:
    return Contender(name, kind, Data(Path("none"), (), 0), "", nobody, creates)


FIELD = (
    contender("Listings", "service"),
    contender("Slow & Sons", "peer"),
    contender("Quick", "peer"),
    contender("constant", "limit"),
    contender("file", "limit", creates=False),
)
RATES = {
    "Listings": [run(3000), run(6000), run(9000)],
    "Slow & Sons": [run(9000), run(100), run(200)],
    "Quick": [run(1000), run(2000), run(4000)],
    "constant": [run(20_000)] * 3,
}
CELL = Cell("create", 32, RATES)
PLAN = Plan(SCENARIOS, connections=(1, 32), rounds=3)


def test_the_fastest_peer_is_the_one_of_the_highest_median_and_never_a_limit_or_the_service() -> None:
    assert CELL.fastest(table.peers_of(FIELD)) == "Quick"
    assert CELL.fastest(set()) is None


def test_a_ratio_is_the_median_of_the_ratios_of_each_round() -> None:
    assert CELL.ratio("Listings", "Quick") == 3.0
    assert CELL.ratio("Slow & Sons", "Quick") == 0.05


def test_a_row_tells_medians_and_the_ratio_to_the_fastest_peer() -> None:
    rows = table.table([CELL], table.peers_of(FIELD)).splitlines()
    assert rows[2] == "| create | 32 | Listings | 6,000 | 3.00 | 1.50 | 4.00 | 25.0 | 47 | 0 |"
    assert [row.split(" | ")[2:5] for row in rows[3:]] == [
        ["Slow & Sons", "200", "0.05"],
        ["Quick", "2,000", "1.00"],
        ["constant", "20,000", "10.00"],
    ]


def test_without_a_peer_there_is_no_ratio() -> None:
    rows = table.table([CELL], set()).splitlines()
    assert rows[2].split(" | ")[4] == "no peer"


def test_a_peer_that_is_not_there_is_named_with_its_reason() -> None:
    text = table.report([CELL], FIELD, PLAN, {}, {"Rival": "npm is missing"}, goes_first=True)
    assert "\nNot measured: Rival, because npm is missing.\n" in text


# The rounds


def test_each_contender_takes_each_turn() -> None:
    orders = [contest.in_turn(FIELD, number) for number in range(len(FIELD))]
    assert all(set(order) == set(FIELD) for order in orders)
    assert len({order[0].name for order in orders}) > 1
    assert len({order.index(FIELD[0]) for order in orders}) > 1


def test_runs_that_a_limit_can_not_do_are_not_counted() -> None:
    everything = PLAN.rounds * len(PLAN.connections) * len(SCENARIOS) * len(FIELD)
    assert contest.runs_of(PLAN, FIELD) == everything - PLAN.rounds * len(PLAN.connections)


# The plot


def test_the_plot_is_a_picture_with_a_bar_for_each_run_and_escaped_names() -> None:
    cells = [CELL, Cell("get one", 32, {**RATES, "file": [run(50_000)]}), Cell("create", 1, RATES)]
    root = ET.fromstring(plot.plot(cells, FIELD))  # noqa: S314 - our own
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("Slow & Sons") == 2
    assert texts.count("not supported") == 2
    assert "50,000" in texts
    legend, bars = 3, 4 + 5 + 4
    kinds = [element.get("class") for element in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert len([kind for kind in kinds if kind in {"service", "peer", "limit"}]) == legend + bars


def test_bars_stay_within_their_column() -> None:
    cells = [Cell(scenario.name, 1, RATES) for scenario in SCENARIOS]
    root = ET.fromstring(plot.plot(cells, FIELD))  # noqa: S314 - our own
    bars = [(float(bar.get("x", 0)), float(bar.get("width", 0))) for bar in root.iter() if bar.get("height") == "15"]
    ends = {x: max(left + width for left, width in bars if left == x) for x, _ in bars}
    assert len(ends) == len(SCENARIOS)
    lefts = sorted(ends)
    assert all(ends[left] < after for left, after in zip(lefts, [*lefts[1:], 1000], strict=True))


# What is installed


@pytest.mark.parametrize("peer", PEERS, ids=[peer.name for peer in PEERS])
def test_every_peer_pins_what_it_tells_the_versions_of(peer: Peer) -> None:
    found = roster.pinned(peer.source / peer.lock)
    assert peer.versions() == ", ".join(f"{name} {found[name]}" for name in peer.packages)
    assert all(found.values())


def test_the_locks_hold_hashes_and_no_address() -> None:
    for peer in PEERS:
        text = (peer.source / peer.lock).read_text("utf-8")
        assert "sha512-" in text or "--hash=sha256:" in text
        assert '"resolved"' not in text
        assert "index-url" not in text
        assert "find-links" not in text


def test_the_peers_packages_are_none_of_the_projects() -> None:
    ours = roster.pinned(HOME / "requirements" / "runtime.txt")
    assert not {"fastapi", "sqlalchemy", "aiosqlite", "django", "djangorestframework", "gunicorn"} & set(ours)


def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *install: tuple[str, ...]) -> Peer:
    """A peer of our own whose source is a lock and a file."""
    monkeypatch.setattr(roster, "SOURCES", tmp_path / "sources")
    monkeypatch.setattr(roster, "HOMES", tmp_path / "homes")
    peer = PEERS[0]._replace(name="stand-in", title="Stand-in", install=install)
    peer.source.mkdir(parents=True)
    (peer.source / peer.lock).write_text("thing==1.0 \\\n")
    (peer.source / "code.py").write_text("1\n")
    return peer


def test_a_peer_is_installed_once_and_its_source_is_always_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = stand_in(tmp_path, monkeypatch, ("sh", "-c", "mkdir -p .venv && echo x >> .venv/times"))
    told: list[str] = []
    for text in ("1\n", "2\n"):
        (peer.source / "code.py").write_text(text)
        assert installing.installed((peer,), told.append) == ((peer,), {})
        assert (peer.home / "code.py").read_text() == text
    assert (peer.home / ".venv" / "times").read_text() == "x\n"
    assert len(told) == 1
    (peer.source / peer.lock).write_text("thing==2.0 \\\n")
    installing.install(peer, told.append)
    assert len(told) == 2


def test_a_peer_that_can_not_be_installed_is_left_out_with_what_was_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = stand_in(tmp_path, monkeypatch, ("sh", "-c", "echo 'ERROR: no such package'; echo; exit 1"))
    there, missing = installing.installed((peer,), lambda _: None)
    assert there == ()
    assert missing == {"Stand-in": "`sh -c echo 'ERROR: no such package'; echo; exit 1` fails: ERROR: no such package"}


def test_a_program_that_is_missing_leaves_a_peer_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = stand_in(tmp_path, monkeypatch, ("no-such-program",))
    _, missing = installing.installed((peer,), lambda _: None)
    assert missing["Stand-in"].startswith("no-such-program fails: ")


# Right answers


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Contender:
    filled = fill(tmp_path_factory.mktemp("filled") / "listings.db")
    return contenders.service(filled, add_expired(filled.database))


@pytest.fixture(scope="module")
def records(service: Contender, tmp_path_factory: pytest.TempPathFactory) -> contract.Records:
    return contract.records_of(service, tmp_path_factory.mktemp("records"), two_cores()[0])


def test_the_service_keeps_the_contract(service: Contender, records: contract.Records, tmp_path: Path) -> None:
    contract.require_contract(service, records, tmp_path, two_cores()[0])


Change = Callable[[Request, Answer], Answer]


@contextmanager
def changed(change: Change, target: Server) -> Iterator[Server]:
    """A server that asks another one and changes its answers: a peer that is nearly right."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.pass_on("")

        def do_POST(self) -> None:
            self.pass_on(self.rfile.read(int(self.headers["Content-Length"])).decode())

        def pass_on(self, body: str) -> None:
            request = Request(self.command, self.path, self.headers["X-API-Key"].strip(), body)
            answer = change(request, exchange(target.port, request))
            self.send_response(answer.status)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield Server(target.process, server.server_port)
        finally:
            server.shutdown()
            thread.join()


def with_status(answer: Answer, status: int) -> Answer:
    return answer._replace(head=b"HTTP/1.1 %d x\r\n" % status)


def with_record(answer: Answer, **values: object) -> Answer:
    content = answer.json()
    return answer._replace(body=json.dumps({**content, **values}).encode()) if "title" in content else answer


def without(answer: Answer, name: str) -> Answer:
    return answer._replace(body=json.dumps({k: v for k, v in answer.json().items() if k != name}).encode())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda _, answer: with_status(answer, 403) if answer.status == 401 else answer, "no key is to be answered"),
        (lambda _, answer: with_status(answer, 200) if answer.status == 403 else answer, "an expired plan is to be"),
        (
            lambda _, answer: with_status(answer, 404) if b"another account" in answer.body else answer,
            "another account's listing is to be answered with 403",
        ),
        (lambda _, answer: with_status(answer, 403) if answer.status == 404 else answer, "does not exist is to be"),
        (lambda _, answer: with_status(answer, 422) if answer.status == 400 else answer, "the body { is to be"),
        (lambda _, answer: with_record(answer, code=1) if answer.status == 200 else answer, "the listing"),
        (lambda _, answer: with_record(answer, price="12.00"), "the listing"),
        (
            lambda _, answer: answer._replace(body=b'{"listings":[]}') if b'"listings"' in answer.body else answer,
            "the list of 100",
        ),
        (lambda _, answer: without(answer, "message") if answer.status == 201 else answer, "a create is to be"),
        (
            lambda _, answer: with_record(answer, title="Raft") if b"Two seats" in answer.body else answer,
            "a new listing is to be",
        ),
        (
            lambda _, answer: (
                with_record(answer, created_at="2026-11-21T10:00:00Z") if b"Two seats" in answer.body else answer
            ),
            "times are YYYY-MM-DD HH:MM:SS",
        ),
        (lambda _, answer: with_status(answer, 200) if answer.status == 429 else answer, "request 1001 of an hour"),
    ],
    ids=[
        *("403 for no key", "no look at the plan", "404 for another's", "403 for nothing", "422", "a field more"),
        *("a price as text", "an empty list", "no message", "another title", "another time", "no limit"),
    ],
)
def test_a_peer_that_answers_wrongly_is_not_measured(
    service: Contender, records: contract.Records, tmp_path: Path, change: Change, told: str
) -> None:
    @contextmanager
    def running(start: Start) -> Iterator[Server]:
        with service.running(start) as server, changed(change, server) as peer:
            yield peer

    peer = Contender("Rival", "peer", service.data, service.expired, running)
    with pytest.raises(RejectedRequest, match=f"^Rival: .*{told}"):
        contract.require_contract(peer, records, tmp_path, two_cores()[0])


def test_a_limit_repeats_the_services_answer_and_may_add_headers() -> None:
    wanted = Answer(b"HTTP/1.1 200 OK\r\ndate: now\r\netag: 1\r\ncontent-length: 2\r\n", b"{}")
    right = Answer(b"HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 2\r\nEtag: 1\r\n", b"{}")
    contenders.require_repeated(right, wanted)
    for wrong in (with_status(right, 201), right._replace(body=b"[]"), right._replace(head=b"HTTP/1.1 200 OK\r\n")):
        with pytest.raises(RejectedRequest, match="does not repeat the service's answer"):
            contenders.require_repeated(wrong, wanted)


def test_nginx_is_told_all_headers_but_its_own() -> None:
    answer = Answer(b'HTTP/1.1 200 OK\r\ndate: now\r\ncontent-length: 2\r\netag: "v1"\r\ncontent-type: a\r\n', b"{}")
    assert contenders.directives(answer) == "add_header etag '\"v1\"';"


def test_a_peer_may_have_keys_of_its_own() -> None:
    owners = (Owner("a", (1,)), Owner("b", (2,)))
    assert contenders.with_keys(owners, {}) == owners
    assert contenders.with_keys(owners, {"2": "new"}) == (owners[0], Owner("new", (2,)))


# Servers of many processes


def test_a_server_is_all_of_its_processes_on_its_core_and_none_outlives_it(tmp_path: Path) -> None:
    core, port = two_cores()[1], servers.free_port()
    script = (
        "import http.server, os, sys\n"
        "server = http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), http.server.BaseHTTPRequestHandler)\n"
        "os.fork()\n"
        "server.serve_forever()\n"
    )
    before = os.sched_getaffinity(0)
    with servers.started([sys.executable, "-c", script, str(port)], {}, tmp_path, core, port=port) as server:
        while len(pids := family(server.process.pid)) < 2:
            assert server.process.poll() is None
        assert [os.sched_getaffinity(pid) for pid in pids] == [{core}, {core}]
        assert server.peak_mebibytes() > 2
        assert server.processor_seconds() > 0
    assert os.sched_getaffinity(0) == before
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{pid}/exe").exists() for pid in pids):
        assert time.monotonic() < deadline


def test_a_server_that_does_not_start_is_told_with_its_last_word(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no luck today')"]
    with (
        pytest.raises(RejectedRequest, match="A server does not start: no luck today"),
        servers.started(command, {}, tmp_path, two_cores()[0], port=servers.free_port()),
    ):
        pass


# The page, the program


def test_the_page_has_a_place_for_the_result() -> None:
    text = PAGE.read_text("utf-8")
    assert 0 < text.index(table.BEGIN) < text.index(table.END)


def test_every_peer_and_whoever_is_left_out_is_told_on_the_page() -> None:
    text = PAGE.read_text("utf-8")
    assert all(f"bench/peers/{name}" in text for name in [*(peer.name for peer in PEERS), "nginx"])
    assert all(name in text for name in table.NOT_MEASURED)
    assert (SOURCES / "nginx" / "nginx.conf").is_file()


def test_a_quick_result_is_not_kept() -> None:
    command = [sys.executable, "-m", "bench.peers", "--quick", "--write"]
    outcome = subprocess.run(command, cwd=HOME, capture_output=True, text=True, check=False)
    assert (outcome.returncode, outcome.stdout) == (2, "")
    assert "A quick result is not worth keeping: leave out --quick or --write" in outcome.stderr
