"""`listings serve --workers`: many processes are one service, whatever becomes of each of them."""

import json
import os
import pty
import re
import select
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from tests.cli.commands import DEADLINE, PROGRAM, Program, Serving, clean_environment, demo_environment
from tests.cli.crowds import PATH, Crowd, Worker, connections_to_each, until, workers_of
from tests.cli.test_stop import READINESS, attempts, demo_key, stored_ids, wait_until_refused
from tests.http.raw import Connection, request
from tests.telemetry.test_metrics import Scrape, find_metrics_url

QUIET = {"LISTINGS_RATE_LIMIT": "0", "LISTINGS_LOG_LEVEL": "error", "LISTINGS_WORKERS": "2"}
RELOADS = int(os.environ.get("LISTINGS_TEST_RELOADS", "2"))
GET = request("GET", "/healthz")
ADDRESS = "sqlite:///data/listings.db"


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path, **QUIET)


class Many(NamedTuple):
    """A service of two workers, for tests that leave it with two that answer."""

    serving: Serving
    said: "Said"
    address: Path  # the file that workers read the database's address from, when they start
    key: str

    @property
    def workers(self) -> set[Worker]:
        return workers_of(self.serving)

    def stored_ids(self) -> set[int]:
        return stored_ids(self.serving.folder)


@pytest.fixture(scope="module")
def one_of_many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Many]:
    folder = tmp_path_factory.mktemp("many")
    address = folder / "address"
    address.write_text(ADDRESS, "utf-8")
    with Program(folder, LISTINGS_DATABASE_URL_FILE=str(address), **QUIET).serve("--demo") as serving:
        yield Many(serving, Said(serving), address, demo_key(folder))
        serving.process.terminate()
        assert serving.process.wait(DEADLINE) == 0  # after all that it went through


@pytest.fixture
def many(one_of_many: Many) -> Many:
    """One service of two workers for all tests; both answer, whatever the test before has done to them."""
    with connections_to_each(one_of_many.serving):
        return one_of_many


class Said(threading.Thread):
    """Reads what a service writes to standard error, from now on."""

    def __init__(self, serving: Serving) -> None:
        super().__init__(daemon=True)
        assert serving.process.stderr is not None
        self._stream = serving.process.stderr
        self.lines: list[str] = []
        self._seen = 0
        self.start()

    def run(self) -> None:
        with suppress(ValueError):  # it is closed when the test has ended
            for line in self._stream:
                self.lines.append(line)

    def until(self, text: str, count: int = 1) -> list[str]:
        """The lines with this text since the last time, when there are so many."""
        until(lambda: sum(text in line for line in self.lines[self._seen :]) >= count)
        begin, self._seen = self._seen, len(self.lines)
        return [line for line in self.lines[begin : self._seen] if text in line]


def reload_and_wait(serving: Serving) -> None:
    """Return when every worker is another, and no old one is left."""
    old = workers_of(serving)
    serving.process.send_signal(signal.SIGHUP)
    until(lambda: not old & (new := workers_of(serving)) and len(new) == len(old))


def has_ended(connection: Connection) -> bool:
    """Whether the service is at the connection's other end no more."""
    try:
        connection.send(GET).read_response()
    except OSError:
        return True
    return False


# The start


def test_the_demo_is_announced_once_when_all_workers_answer(program: Program) -> None:
    with program.serve("--demo", "--workers", "3") as serving:
        assert len(workers_of(serving)) == 3
        assert sum(line.startswith("Listings answers at") for line in serving.lines) == 1
        with connections_to_each(serving, 3) as connections:
            for connection in (connection for of_one in connections for connection in of_one):
                assert connection.send(request("GET", "/readyz")).read_response().json() == {"status": "ready"}
        assert serving.status(demo_key(program.folder)) == 200


def test_one_worker_is_one_process(tmp_path: Path) -> None:
    with Program(tmp_path, LISTINGS_WORKERS="1").serve() as serving:
        assert workers_of(serving) == set()


def test_a_worker_that_can_not_start_ends_the_start_with_its_sentence(tmp_path: Path) -> None:
    """The database's address is in a pipe: the supervisor reads a good one, workers read a bad one."""
    pipe = tmp_path / "address"
    os.mkfifo(pipe)

    ended = threading.Event()

    def write() -> None:
        pipe.write_text(ADDRESS, "utf-8")
        until((tmp_path / "data").exists)
        while not ended.is_set():
            with suppress(BrokenPipeError):  # the reader had read enough
                pipe.write_text("nonsense", "utf-8")

    writing = threading.Thread(target=write, daemon=True)
    writing.start()
    program = Program(tmp_path, LISTINGS_DATABASE_URL_FILE=str(pipe))
    outcome = program.run("serve", "--port", "0", "--workers", "2")
    ended.set()
    os.close(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))  # lets go of a writer that waits for a reader
    writing.join(DEADLINE)
    assert outcome.sentence.startswith("LISTINGS_DATABASE_URL_FILE must be like sqlite:///")


def test_a_broken_worker_ends_the_start_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\nif 'listings.cli.worker' in sys.orig_argv: os._exit(3)\n", "utf-8"
    )
    outcome = Program(tmp_path, PYTHONPATH=str(tmp_path)).run("serve", "--port", "0", "--workers", "2")
    assert outcome.sentence == "A worker exited with code 3 during startup"


def test_a_taken_port_is_told_before_anything_is_made(tmp_path: Path, taken_port: str) -> None:
    outcome = Program(tmp_path).run("serve", "--workers", "2", "--port", taken_port)
    assert f"port {taken_port}" in outcome.sentence
    assert not list(tmp_path.iterdir())


# The work


def test_a_key_has_one_limit_over_all_workers(tmp_path: Path) -> None:
    program = Program(tmp_path, LISTINGS_LOG_LEVEL="error", LISTINGS_WORKERS="4")
    with program.serve("--demo") as serving:
        asked = request("GET", f"{PATH}?limit=1", demo_key(tmp_path))
        statuses: list[int] = []

        def fetch(count: int) -> None:
            with Connection(serving) as connection:
                statuses.extend(connection.send(asked).read_response().status for _ in range(count))

        counts = [1500 // 64 + (number < 1500 % 64) for number in range(64)]
        clients = [threading.Thread(target=fetch, args=(count,)) for count in counts]
        for client in clients:
            client.start()
        for client in clients:
            client.join(DEADLINE)
    assert Counter(statuses) == {200: 1000, 429: 500}


def test_what_is_created_on_all_workers_is_there_under_ids_of_its_own(many: Many) -> None:
    asked = request("POST", PATH, many.key, body=b'{"title": "Bicycle", "content": "Two wheels."}')
    created = []
    with connections_to_each(many.serving) as connections:
        one_each = [of_one[0] for of_one in connections]
        for _ in range(100):
            for connection in one_each:
                connection.send(asked)
            created += [connection.read_response().json()["id"] for connection in one_each]
    assert len(set(created)) == len(created) == 200
    assert set(created) <= many.stored_ids()


def test_lines_of_all_workers_stay_whole_and_name_their_process(tmp_path: Path) -> None:
    program = Program(tmp_path, LISTINGS_WORKERS="3", LISTINGS_RATE_LIMIT="0")
    with program.serve("--demo") as serving, Crowd(serving, demo_key(tmp_path), writers=0) as crowd:
        until(lambda: is_full(serving))  # nobody reads
        workers = {worker.pid for worker in workers_of(serving)}
        said = Said(serving)
        for _ in range(5):
            crowd.go_on()
        assert crowd.broken == []
        until(lambda: {json.loads(line)["pid"] for line in said.lines if "request" in line} == workers)
        until(lambda: len(said.lines) > 300)


def is_full(serving: Serving) -> bool:
    """Whether who writes to the standard error now must wait for a reader: no page of the pipe is left."""
    assert serving.process.stderr is not None
    pipe = os.open(f"/proc/self/fd/{serving.process.stderr.fileno()}", os.O_WRONLY | os.O_NONBLOCK)
    try:
        return not select.select([], [pipe], [], 0)[1]
    finally:
        os.close(pipe)


# An end that nobody asked for


def test_a_killed_worker_breaks_its_own_connections_alone_and_is_replaced(many: Many) -> None:
    with connections_to_each(many.serving) as connections:
        killed = min(many.workers)
        os.kill(killed.pid, signal.SIGKILL)
        until(lambda: not killed.is_there)
        (ended,) = [of_one for of_one in connections if has_ended(of_one[0])]
        assert all(map(has_ended, ended))
        (others,) = [of_one for of_one in connections if of_one is not ended]
        assert all(connection.send(GET).read_response().status == 200 for connection in others)
    (line,) = many.said.until("starting a replacement")
    assert f"Worker {killed.pid} was killed by SIGKILL" in line
    until(lambda: len(many.workers) == 2)
    with connections_to_each(many.serving):
        pass


def _log_of(serving: Serving) -> str:
    assert serving.process.stderr is not None
    return serving.process.stderr.readline()


def test_kills_under_load_break_no_more_than_one_request_of_a_client(many: Many) -> None:
    with Crowd(many.serving, many.key) as crowd:
        for _ in range(2):
            victim = min(many.workers)
            os.kill(victim.pid, signal.SIGKILL)
            many.said.until(f"Worker {victim.pid} was killed by SIGKILL")
            with connections_to_each(many.serving):
                crowd.go_on()
        broken = crowd.broken
        assert max(len(client.broken) for client in crowd.clients) <= 2
        crowd.go_on()
        assert crowd.broken == broken
    assert set(crowd.created) <= many.stored_ids()


def test_what_ends_right_at_its_start_is_tried_again_once_a_second(many: Many) -> None:
    many.address.write_text("nonsense", "utf-8")
    began = time.monotonic()
    os.kill(min(many.workers).pid, signal.SIGKILL)
    lines = many.said.until("A replacement could not start: LISTINGS_DATABASE_URL_FILE must be", 4)
    assert len(lines) <= 4 + (time.monotonic() - began)
    assert many.serving.http.get("/healthz").status_code == 200
    many.address.write_text(ADDRESS, "utf-8")
    with connections_to_each(many.serving):
        assert len(many.workers) == 2


def test_workers_end_in_order_when_their_supervisor_is_killed(program: Program) -> None:
    with program.serve("--demo") as serving:
        workers = workers_of(serving)
        with connections_to_each(serving) as connections:
            one_each = [of_one[0] for of_one in connections]
            begin_requests(serving, one_each)
            serving.process.kill()
            wait_until_refused(serving)
            created = end_requests(one_each)
        until(lambda: not any(worker.is_there for worker in workers))
    assert set(created) <= stored_ids(program.folder)
    assert not list((program.folder / "data").glob("*-wal"))


BODY = b'{"title": "Last", "content": "of all"}'


def begin_requests(serving: Serving, connections: list[Connection]) -> None:
    """A create on each, of which a part is still to come."""
    head = request("POST", PATH, demo_key(serving.folder), b"Content-Length: %d" % len(BODY))
    for connection in connections:
        assert connection.send(GET).read_response().status == 200
        connection.send(head, BODY[:10])


def end_requests(connections: list[Connection]) -> list[int]:
    """The ids of what was created, on connections that end with it."""
    answers = [connection.send(BODY[10:]).read_response() for connection in connections]
    assert [(answer.status, answer.headers["connection"]) for answer in answers] == [(201, "close")] * len(answers)
    assert all(connection.is_closed() for connection in connections)
    return [answer.json()["id"] for answer in answers]


# A reload


def test_reloads_under_load_break_nothing(many: Many) -> None:
    with Crowd(many.serving, many.key) as crowd:
        for _ in range(RELOADS):
            reload_and_wait(many.serving)
            crowd.go_on()
    assert crowd.broken == []
    assert set(crowd.created) <= many.stored_ids()
    assert len(set(crowd.created)) == len(crowd.created)


def test_a_reload_waits_for_clients_that_ask_now_and_then(many: Many) -> None:
    old = many.workers
    with connections_to_each(many.serving) as connections:
        asking = [of_one[0] for of_one in connections]
        for waiting in [other for of_one in connections for other in of_one[1:]]:
            waiting.socket.close()
        many.serving.process.send_signal(signal.SIGHUP)
        asked = time.monotonic()
        while asking and time.monotonic() - asked < 4:  # after five seconds without a request it would be quiet
            asked = time.monotonic()
            answers = [connection.send(request("GET", "/readyz")).read_response() for connection in asking]
            assert [answer.json() for answer in answers] == [{"status": "ready"}] * len(asking)
            ended = ["connection" in answer.headers for answer in answers]
            assert all(connection.is_closed() for connection, end in zip(asking, ended, strict=True) if end)
            asking = [connection for connection, end in zip(asking, ended, strict=True) if not end]
            time.sleep(0.7)  # longer than a stop would wait
    until(lambda: not old & many.workers)


def test_a_reload_waits_for_the_end_of_a_request(many: Many) -> None:
    old = many.workers
    with connections_to_each(many.serving) as connections:
        one_each = [of_one[0] for of_one in connections]
        begin_requests(many.serving, one_each)
        many.serving.process.send_signal(signal.SIGHUP)
        until(lambda: len(many.workers) == 3)
        health = httpx.get(f"{many.serving.base_url}/healthz", trust_env=False, timeout=DEADLINE)
        assert health.status_code == 200
        answers = [connection.send(BODY[10:]).read_response() for connection in one_each]
        assert [answer.status for answer in answers] == [201, 201]
    until(lambda: not old & many.workers)
    assert {answer.json()["id"] for answer in answers} <= many.stored_ids()


def test_a_reload_whose_worker_can_not_start_leaves_the_old_ones(many: Many) -> None:
    old = many.workers
    many.address.write_text("nonsense", "utf-8")
    many.serving.process.send_signal(signal.SIGHUP)
    (line,) = many.said.until("Reload aborted")
    assert "keeping the current workers: LISTINGS_DATABASE_URL_FILE must be" in line
    until(lambda: many.workers == old)
    with connections_to_each(many.serving) as connections:
        assert all(of_one[0].send(GET).read_response().status == 200 for of_one in connections)
    many.address.write_text(ADDRESS, "utf-8")


def test_a_stop_in_the_middle_of_a_reload_is_an_orderly_one(program: Program) -> None:
    with program.serve("--demo") as serving:
        with connections_to_each(serving) as connections:
            one_each = [of_one[0] for of_one in connections]
            begin_requests(serving, one_each)
            serving.process.send_signal(signal.SIGHUP)
            until(lambda: len(workers_of(serving)) == 3)
            serving.process.send_signal(signal.SIGTERM)
            wait_until_refused(serving)
            created = end_requests(one_each)
        outcome = serving.stop(signal.SIGCONT)
    assert (outcome.code, outcome.out) == (0, ""), outcome
    assert set(created) <= stored_ids(program.folder)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_terminal_that_is_closed_is_no_reload_but_a_stop(tmp_path: Path, workers: str) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execve(PROGRAM, [str(PROGRAM), "serve", "--port", "0", "--workers", workers], clean_environment())  # noqa: S606
    said = b""
    while b"Listings answers at" not in said:
        said += os.read(terminal, 4096)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    left = [file.stat().st_size for file in (tmp_path / "data").glob("*-wal")]
    assert not any(left)  # of two that have only read and close at the same instant, none is the last


def test_one_process_says_that_it_can_not_be_reloaded(tmp_path: Path) -> None:
    with Program(tmp_path).serve() as serving:
        serving.process.send_signal(signal.SIGHUP)
        assert "restart it, or set LISTINGS_WORKERS" in _log_of(serving)
        assert serving.http.get("/healthz").status_code == 200


# The stop


def test_a_worker_that_is_told_to_stop_turns_nobody_away_from_the_others(program: Program) -> None:
    with program.serve("--demo") as serving:
        told = next(iter(workers_of(serving)))
        os.kill(told.pid, signal.SIGTERM)
        until(lambda: not told.is_there and len(workers_of(serving)) == 2)
        for _ in range(20):
            with Connection(serving).send(request("GET", "/healthz")) as connection:
                assert connection.read_response().status == 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stops_under_load_lose_no_write_and_leave_nothing(program: Program, number: signal.Signals) -> None:
    with program.serve("--demo") as serving, Crowd(serving, demo_key(program.folder)) as crowd:
        workers = workers_of(serving)
        outcome = serving.stop(number)
        for client in crowd.clients:
            client.end()
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")
    assert not any(worker.is_there for worker in workers)
    assert {broken.split("(")[0] for broken in crowd.broken} <= {"ConnectionRefusedError"}
    assert set(crowd.created) <= stored_ids(program.folder)
    assert {file.name for file in (program.folder / "data").iterdir()} == {
        "demo.env",
        "listings.db",
        "listings.db.lock",
    }


def test_no_worker_is_ready_when_the_stop_begins(program: Program) -> None:
    with program.serve("--demo") as serving:
        with connections_to_each(serving) as connections:
            one_each = [of_one[0] for of_one in connections]
            for connection in one_each:
                assert connection.send(READINESS).read_response().json() == {"status": "ready"}
                connection.send(READINESS[:-2])  # which is under way, so that the stop waits for its end
            serving.process.send_signal(signal.SIGTERM)
            wait_until_refused(serving)
            answers = [connection.send(READINESS[-2:]).read_response() for connection in one_each]
            assert [(answer.status, answer.json()) for answer in answers] == [
                (503, {"error": "The service is stopping"})
            ] * 2
        assert serving.process.wait(DEADLINE) == 0


def test_a_second_signal_ends_all_at_once(program: Program) -> None:
    with program.serve("--demo") as serving:
        workers = workers_of(serving)
        with Connection(serving) as connection:
            begin_requests(serving, [connection])
            serving.process.send_signal(signal.SIGTERM)
            wait_until_refused(serving)
            assert serving.stop().code == 128 + signal.SIGTERM  # an orderly one, after ten seconds, ends with 0
        until(lambda: not any(worker.is_there for worker in workers))


# Metrics


def test_metrics_are_of_all_workers_and_no_counter_goes_back(tmp_path: Path) -> None:
    program = Program(tmp_path, LISTINGS_METRICS_ADDRESS="0", **QUIET)
    with program.serve() as serving:
        url = find_metrics_url(serving)

        def until_counted(total: int) -> Scrape:
            for _ in attempts():
                scrape = Scrape(url)
                if scrape.requests("GET", "/readyz", 200) >= total:
                    return scrape
            raise AssertionError(f"fewer than {total} are counted")

        def ask_each(total: int) -> Scrape:
            """Ten requests of each worker, and what is told then; one that is late to report is told of as before."""
            with connections_to_each(serving) as connections:
                for connection in [of_one[0] for of_one in connections] * 10:
                    assert connection.send(request("GET", "/readyz")).read_response().status == 200
                return until_counted(total)

        scrape = ask_each(20)
        assert scrape.requests("GET", "/readyz", 200) == 20
        assert (scrape("listings_workers"), scrape("listings_worker_deaths_total")) == (2, 0)
        assert scrape("listings_connections") >= 2
        assert scrape("listings_connections_max") == 20_000
        assert scrape("listings_database_bytes") == (tmp_path / "data/listings.db").stat().st_size
        os.kill(min(workers_of(serving)).pid, signal.SIGKILL)
        until(lambda: len(workers_of(serving)) == 2 and Scrape(url)("listings_worker_deaths_total") == 1)
        assert ask_each(40).requests("GET", "/readyz", 200) == 40
        readiness = httpx.get(f"{serving.base_url}/readyz", trust_env=False, timeout=DEADLINE)
        assert readiness.status_code == 200  # scraped after its worker
        reload_and_wait(serving)
        scrape = ask_each(61)
        assert scrape.requests("GET", "/readyz", 200) == 61
        assert scrape("listings_request_duration_seconds_count", route="/readyz") == 61
        assert scrape("listings_build_info", version=version_of(scrape)) == 1
        assert serving.stop().code == 0


def version_of(scrape: Scrape) -> str:
    found = re.search(r'listings_build_info\{version="([^"]+)"\}', scrape.text)
    assert found is not None
    return found[1]


# The console


def test_every_worker_shows_what_the_others_have_counted(many: Many) -> None:
    demo = demo_environment(many.serving.folder)
    cookie = signed_in(many.serving, "bob@demo.example", demo["CONSOLE_PASSWORD"])  # whom nobody else uses here
    with connections_to_each(many.serving) as connections:
        workers = [of_one[0] for of_one in connections]
        for worker in workers * 3:
            assert worker.send(request("GET", PATH, demo["OTHER_API_KEY"])).read_response().status == 200
        began = time.monotonic()
        until(lambda: [counted(worker, cookie) for worker in workers] == [6, 6])
        assert time.monotonic() - began < 30  # a minute, if it were stored only as often as that


def signed_in(serving: Serving, email: str, password: str) -> str:
    """The cookie of a seller."""
    headers = {"Accept": "text/html", "Sec-Fetch-Site": "same-origin"}
    with httpx.Client(base_url=serving.base_url, headers=headers, timeout=DEADLINE) as browser:
        token = re.search(r'name="token" value="(\w+)"', browser.get("/sign-in").text)
        assert token is not None
        entered = browser.post("/sign-in", data={"token": token[1], "email": email, "password": password})
        assert entered.status_code == 303
        return "; ".join(f"{name}={value}" for name, value in browser.cookies.items())


def counted(worker: Connection, cookie: str) -> int:
    """How many answers 200 the usage page of a worker tells."""
    headers = (b"Accept: text/html", b"Cookie: " + cookie.encode())
    page = worker.send(request("GET", "/console/usage", None, *headers)).read_response()
    assert page.status == 200
    found = re.search(r">200</span></th><td>OK</td><td class=\"right\">(\d+)<", page.body.decode())
    return int(found[1]) if found is not None else 0
