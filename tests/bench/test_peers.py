"""Test the comparison with peers."""

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

from bench import BenchmarkError, servers
from bench.data import Data, Owner, add_expired_account, fill
from bench.http_client import Request, Response, send
from bench.machine import choose_cores, list_processes
from bench.peers import candidates, comparison, contract, definitions, installation, plot, table
from bench.peers.candidates import Candidate, Kind, StartOptions
from bench.peers.comparison import Cell
from bench.peers.definitions import PEERS, SOURCES, Peer
from bench.rounds import Plan, Run
from bench.scenarios import SCENARIOS
from bench.servers import Server
from bench.stall_detector import MeasuredRun

pytestmark = pytest.mark.uncovered

PROJECT_FOLDER = Path(__file__).parent.parent.parent
PAGE = PROJECT_FOLDER / "docs/performance.md"

# The table


def run(rate: float) -> MeasuredRun[Run]:
    return MeasuredRun(Run(rate, p50=1500, p99=4000, processor=25.04, peak_mebibytes=47.4, other_load=0.0), 0.0)


def fail_to_start(_: StartOptions) -> Any:
    raise AssertionError


def candidate(name: str, kind: Kind, *, creates: bool = True) -> Candidate:
    return Candidate(name, kind, Data(Path("none"), (), 0), "", fail_to_start, creates)


CANDIDATES = (
    candidate("Listings", "service"),
    candidate("Slow & Sons", "peer"),
    candidate("Quick", "peer"),
    candidate("constant", "limit"),
    candidate("file", "limit", creates=False),
)
RATES = {
    "Listings": [run(3000), run(6000), run(9000)],
    "Slow & Sons": [run(9000), run(100), run(200)],
    "Quick": [run(1000), run(2000), run(4000)],
    "constant": [run(20_000)] * 3,
}
CELL = Cell("create", 32, RATES)
PLAN = Plan(SCENARIOS, connections=(1, 32), rounds=3)


def test_the_fastest_peer_has_the_highest_median() -> None:
    assert CELL.find_fastest(table.list_peer_names(CANDIDATES)) == "Quick"
    assert CELL.find_fastest(set()) is None


def test_a_ratio_is_the_median_of_the_rounds_ratios() -> None:
    assert CELL.compute_ratio("Listings", "Quick") == 3.0
    assert CELL.compute_ratio("Slow & Sons", "Quick") == 0.05


def test_a_row_has_medians_and_the_ratio_to_the_fastest_peer() -> None:
    rows = table.format_table([CELL], table.list_peer_names(CANDIDATES)).splitlines()
    assert rows[2] == "| create | 32 | Listings | 6,000 | 3.00 | 1.50 | 4.00 | 25.0 | 47 | 0 |"
    assert [row.split(" | ")[2:5] for row in rows[3:]] == [
        ["Slow & Sons", "200", "0.05"],
        ["Quick", "2,000", "1.00"],
        ["constant", "20,000", "10.00"],
    ]


def test_without_peers_a_row_has_no_ratio() -> None:
    rows = table.format_table([CELL], set()).splitlines()
    assert rows[2].split(" | ")[4] == "no peer"


def test_a_missing_peer_is_listed_with_the_reason() -> None:
    text = table.format_report([CELL], CANDIDATES, PLAN, {}, {"Rival": "npm is missing"}, has_priority=True)
    assert "\nNot measured: Rival, because npm is missing.\n" in text


# The rounds


def test_the_order_of_candidates_varies() -> None:
    orders = [comparison.order_candidates(CANDIDATES, number) for number in range(len(CANDIDATES))]
    assert all(set(order) == set(CANDIDATES) for order in orders)
    assert len({order[0].name for order in orders}) > 1
    assert len({order.index(CANDIDATES[0]) for order in orders}) > 1


def test_unsupported_runs_are_not_counted() -> None:
    everything = PLAN.rounds * len(PLAN.connections) * len(SCENARIOS) * len(CANDIDATES)
    assert comparison.count_runs(PLAN, CANDIDATES) == everything - PLAN.rounds * len(PLAN.connections)


# The plot


def test_the_plot_has_a_bar_per_run_and_escapes_names() -> None:
    cells = [CELL, Cell("get one", 32, {**RATES, "file": [run(50_000)]}), Cell("create", 1, RATES)]
    root = ET.fromstring(plot.draw_plot(cells, CANDIDATES))  # noqa: S314 - our own
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("Slow & Sons") == 2
    assert texts.count("not supported") == 2
    assert "50,000" in texts
    legend, bars = 3, 4 + 5 + 4
    kinds = [element.get("class") for element in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert len([kind for kind in kinds if kind in {"service", "peer", "limit"}]) == legend + bars


def test_bars_stay_within_their_column() -> None:
    cells = [Cell(scenario.name, 1, RATES) for scenario in SCENARIOS]
    root = ET.fromstring(plot.draw_plot(cells, CANDIDATES))  # noqa: S314 - our own
    bars = [(float(bar.get("x", 0)), float(bar.get("width", 0))) for bar in root.iter() if bar.get("height") == "15"]
    ends = {x: max(left + width for left, width in bars if left == x) for x, _ in bars}
    assert len(ends) == len(SCENARIOS)
    lefts = sorted(ends)
    assert all(ends[left] < after for left, after in zip(lefts, [*lefts[1:], 1000], strict=True))


# Installation


@pytest.mark.parametrize("peer", PEERS, ids=[peer.name for peer in PEERS])
def test_every_peer_pins_the_packages_it_reports(peer: Peer) -> None:
    found = definitions.read_pinned_versions(peer.source / peer.lock)
    assert peer.versions() == ", ".join(f"{name} {found[name]}" for name in peer.packages)
    assert all(found.values())


def test_the_locks_have_hashes_and_no_urls() -> None:
    for peer in PEERS:
        text = (peer.source / peer.lock).read_text("utf-8")
        assert "sha512-" in text or "--hash=sha256:" in text
        assert '"resolved"' not in text
        assert "index-url" not in text
        assert "find-links" not in text


def test_peers_are_no_dependencies_of_the_project() -> None:
    ours = definitions.read_pinned_versions(PROJECT_FOLDER / "requirements" / "runtime.txt")
    assert not {"fastapi", "sqlalchemy", "aiosqlite", "django", "djangorestframework", "gunicorn"} & set(ours)


def build_test_peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *install: tuple[str, ...]) -> Peer:
    """Build a peer whose source is a lock and a file."""
    monkeypatch.setattr(definitions, "SOURCES", tmp_path / "sources")
    monkeypatch.setattr(definitions, "HOMES", tmp_path / "homes")
    peer = PEERS[0]._replace(name="stand-in", title="Stand-in", install=install)
    peer.source.mkdir(parents=True)
    (peer.source / peer.lock).write_text("thing==1.0 \\\n")
    (peer.source / "code.py").write_text("1\n")
    return peer


def test_a_peer_is_installed_once_and_its_source_is_updated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = build_test_peer(tmp_path, monkeypatch, ("sh", "-c", "mkdir -p .venv && echo x >> .venv/times"))
    messages: list[str] = []
    for text in ("1\n", "2\n"):
        (peer.source / "code.py").write_text(text)
        assert installation.install_all((peer,), messages.append) == ((peer,), {})
        assert (peer.home / "code.py").read_text() == text
    assert (peer.home / ".venv" / "times").read_text() == "x\n"
    assert len(messages) == 1
    (peer.source / peer.lock).write_text("thing==2.0 \\\n")
    installation.install(peer, messages.append)
    assert len(messages) == 2


def test_a_failed_installation_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = build_test_peer(tmp_path, monkeypatch, ("sh", "-c", "echo 'ERROR: no such package'; echo; exit 1"))
    installed, missing = installation.install_all((peer,), lambda _: None)
    assert installed == ()
    assert missing == {"Stand-in": "`sh -c echo 'ERROR: no such package'; echo; exit 1` failed: ERROR: no such package"}


def test_a_missing_program_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = build_test_peer(tmp_path, monkeypatch, ("no-such-program",))
    _, missing = installation.install_all((peer,), lambda _: None)
    assert missing["Stand-in"].startswith("no-such-program failed: ")


# Checks of responses


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Candidate:
    filled = fill(tmp_path_factory.mktemp("filled") / "listings.db")
    return candidates.build_service(filled, add_expired_account(filled.database))


@pytest.fixture(scope="module")
def records(service: Candidate, tmp_path_factory: pytest.TempPathFactory) -> contract.Records:
    return contract.fetch_records(service, tmp_path_factory.mktemp("records"), choose_cores()[0])


@pytest.fixture(scope="module")
def server(service: Candidate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The service. Its limit suffices for all wrong peers, most of which are rejected before the last check."""
    start = StartOptions(tmp_path_factory.mktemp("server"), choose_cores()[0], Response(b"", b""), contract.WINDOW)
    with service.run(start) as server:
        yield server


def test_the_service_passes_the_checks(service: Candidate, records: contract.Records, tmp_path: Path) -> None:
    contract.require_contract(service, records, tmp_path, choose_cores()[0])


Change = Callable[[Request, Response], Response]


@contextmanager
def run_proxy(change: Change, target: Server) -> Iterator[Server]:
    """Run a proxy that changes the responses of a server."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.forward("")

        def do_POST(self) -> None:
            self.forward(self.rfile.read(int(self.headers["Content-Length"])).decode())

        def forward(self, body: str) -> None:
            request = Request(self.command, self.path, self.headers["X-API-Key"].strip(), body)
            response = change(request, send(target.port, request))
            self.send_response(response.status)
            self.send_header("Content-Length", str(len(response.body)))
            self.end_headers()
            self.wfile.write(response.body)

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


def change_status(response: Response, status: int) -> Response:
    return response._replace(head=b"HTTP/1.1 %d x\r\n" % status)


def change_record(response: Response, **values: object) -> Response:
    content = response.json()
    return response._replace(body=json.dumps({**content, **values}).encode()) if "title" in content else response


def remove_field(response: Response, name: str) -> Response:
    return response._replace(body=json.dumps({k: v for k, v in response.json().items() if k != name}).encode())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda _, response: change_status(response, 403) if response.status == 401 else response,
            "no key must get",
        ),
        (
            lambda _, response: change_status(response, 200) if response.status == 403 else response,
            "an expired plan must get",
        ),
        (
            lambda _, response: change_status(response, 404) if b"another account" in response.body else response,
            "another account's listing must get 403",
        ),
        (
            lambda _, response: change_status(response, 403) if response.status == 404 else response,
            "does not exist must get",
        ),
        (
            lambda _, response: change_status(response, 422) if response.status == 400 else response,
            "the body { must get",
        ),
        (lambda _, response: change_record(response, code=1) if response.status == 200 else response, "the listing"),
        (lambda _, response: change_record(response, price="12.00"), "the listing"),
        (
            lambda _, response: (
                response._replace(body=b'{"listings":[]}') if b'"listings"' in response.body else response
            ),
            "the list of 100",
        ),
        (
            lambda _, response: remove_field(response, "message") if response.status == 201 else response,
            "a create must get",
        ),
        (
            lambda _, response: change_record(response, title="Raft") if b"Two seats" in response.body else response,
            "a new listing must get",
        ),
        (
            lambda _, response: (
                change_record(response, created_at="2026-11-21T10:00:00Z")
                if b"Two seats" in response.body
                else response
            ),
            "times must be YYYY-MM-DD HH:MM:SS",
        ),
        (
            lambda _, response: change_status(response, 200) if response.status == 429 else response,
            "request 1001 of an hour",
        ),
    ],
    ids=[
        *("403 for no key", "expired plan accepted", "404 for another's", "403 for nothing", "422", "extra field"),
        *("price as string", "empty list", "no message", "wrong title", "wrong time format", "no limit"),
    ],
)
def test_a_peer_with_a_wrong_response_is_rejected(
    service: Candidate, server: Server, records: contract.Records, tmp_path: Path, change: Change, message: str
) -> None:
    peer = Candidate("Rival", "peer", service.data, service.expired, lambda _: run_proxy(change, server))
    with pytest.raises(BenchmarkError, match=f"^Rival: .*{message}"):
        contract.require_contract(peer, records, tmp_path, choose_cores()[0])


def test_a_limit_repeats_the_services_response() -> None:
    expected = Response(b"HTTP/1.1 200 OK\r\ndate: now\r\netag: 1\r\ncontent-length: 2\r\n", b"{}")
    right = Response(b"HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 2\r\nEtag: 1\r\n", b"{}")
    candidates.require_same_response(right, expected)
    for wrong in (change_status(right, 201), right._replace(body=b"[]"), right._replace(head=b"HTTP/1.1 200 OK\r\n")):
        with pytest.raises(BenchmarkError, match="differs from the service's"):
            candidates.require_same_response(wrong, expected)


def test_nginx_adds_the_other_headers() -> None:
    response = Response(
        b'HTTP/1.1 200 OK\r\ndate: now\r\ncontent-length: 2\r\netag: "v1"\r\ncontent-type: a\r\n', b"{}"
    )
    assert candidates.format_directives(response) == "add_header etag '\"v1\"';"


def test_a_peer_may_have_its_own_keys() -> None:
    owners = (Owner("a", (1,)), Owner("b", (2,)))
    assert candidates.replace_keys(owners, {}) == owners
    assert candidates.replace_keys(owners, {"2": "new"}) == (owners[0], Owner("new", (2,)))


# Servers


def test_all_processes_of_a_server_are_measured_and_stopped(tmp_path: Path) -> None:
    core, port = choose_cores()[1], servers.find_free_port()
    script = (
        "import http.server, os, sys\n"
        "server = http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), http.server.BaseHTTPRequestHandler)\n"
        "os.fork()\n"
        "server.serve_forever()\n"
    )
    before = os.sched_getaffinity(0)
    with servers.run_server([sys.executable, "-c", script, str(port)], {}, tmp_path, core, port=port) as server:
        while len(pids := list_processes(server.process.pid)) < 2:
            assert server.process.poll() is None
        assert [os.sched_getaffinity(pid) for pid in pids] == [{core}, {core}]
        assert server.peak_mebibytes() > 2
        assert server.get_processor_seconds() > 0
    assert os.sched_getaffinity(0) == before
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{pid}/exe").exists() for pid in pids):
        assert time.monotonic() < deadline


def test_a_server_that_does_not_start_is_reported(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no luck today')"]
    with (
        pytest.raises(BenchmarkError, match="The server does not start: no luck today"),
        servers.run_server(command, {}, tmp_path, choose_cores()[0], port=servers.find_free_port()),
    ):
        pass


# The page and the command


def test_the_page_has_the_markers() -> None:
    text = PAGE.read_text("utf-8")
    assert 0 < text.index(table.BEGIN) < text.index(table.END)


def test_the_page_names_every_peer() -> None:
    text = PAGE.read_text("utf-8")
    assert all(f"bench/peers/{name}" in text for name in [*(peer.name for peer in PEERS), "nginx"])
    assert all(name in text for name in table.NOT_MEASURED)
    assert (SOURCES / "nginx" / "nginx.conf").is_file()


def test_a_quick_result_is_not_written() -> None:
    command = [sys.executable, "-m", "bench.peers", "--quick", "--write"]
    outcome = subprocess.run(command, cwd=PROJECT_FOLDER, capture_output=True, text=True, check=False)
    assert (outcome.returncode, outcome.stdout) == (2, "")
    assert "A quick result is not worth storing: leave out --quick or --write" in outcome.stderr
