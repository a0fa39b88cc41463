"""`listings serve --workers`: several processes act as one service, even if one of them ends."""

import json
import os
import pty
import re
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import httpx2
import pytest

from tests.cli.commands import DEADLINE, PROGRAM, Outcome, Program, Serving, clean_environment, demo_environment
from tests.cli.crowds import PATH, ClientGroup, Worker, connections_to_each, list_workers
from tests.cli.test_memory_tuning import MAX_RESERVED, read_reserved_bytes
from tests.cli.test_stop import READINESS, attempts, stored_ids, wait_until_refused
from tests.http.raw import Connection, request
from tests.telemetry.test_metrics import Scrape, find_metrics_url
from tests.waiting import until

pytestmark = pytest.mark.covers_programs

QUIET = {"LISTINGS_RATE_LIMIT": "0", "LISTINGS_LOG_LEVEL": "error", "LISTINGS_WORKERS": "2"}
RELOADS = int(os.environ.get("LISTINGS_TEST_RELOADS", "2"))
GET = request("GET", "/healthz")
DATABASE_URL = "sqlite:///data/listings.db"


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path, **QUIET)


def demo_key(folder: Path) -> str:
    return demo_environment(folder)["API_KEY"]


class Many(NamedTuple):
    """A service with two workers, for tests that leave two working ones."""

    serving: Serving
    log: "Log"
    url_file: Path  # the file from which workers read the database URL when they start
    key: str

    @property
    def workers(self) -> set[Worker]:
        return list_workers(self.serving)

    def stored_ids(self) -> set[int]:
        return stored_ids(self.serving.folder)


@pytest.fixture(scope="module")
def one_of_many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Many]:
    folder = tmp_path_factory.mktemp("many")
    url_file = folder / "url"
    url_file.write_text(DATABASE_URL, "utf-8")
    with Program(folder, LISTINGS_DATABASE_URL_FILE=str(url_file), **QUIET).serve("--demo") as serving:
        yield Many(serving, Log(serving), url_file, demo_key(folder))
        serving.process.terminate()
        assert serving.process.wait(DEADLINE) == 0


@pytest.fixture
def many(one_of_many: Many) -> Many:
    """The shared service with two workers, when both of them respond."""
    with connections_to_each(one_of_many.serving):
        return one_of_many


class Log(threading.Thread):
    """Reads the standard error of a service in the background."""

    def __init__(self, serving: Serving) -> None:
        super().__init__(daemon=True)
        assert serving.process.stderr is not None
        self._stream = serving.process.stderr
        self.lines: list[str] = []
        self._seen = 0
        self.start()

    def run(self) -> None:
        with suppress(ValueError):  # closed at the end of the test
            for line in self._stream:
                self.lines.append(line)

    def until(self, text: str, count: int = 1) -> list[str]:
        """Wait until `count` new lines contain the text, and return them."""
        until(lambda: sum(text in line for line in self.lines[self._seen :]) >= count)
        start, self._seen = self._seen, len(self.lines)
        return [line for line in self.lines[start : self._seen] if text in line]


def reload_and_wait(serving: Serving) -> None:
    """Reload the service and wait until all old workers are replaced."""
    old = list_workers(serving)
    serving.process.send_signal(signal.SIGHUP)
    until(lambda: not old & (new := list_workers(serving)) and len(new) == len(old))


def is_broken(connection: Connection) -> bool:
    try:
        connection.send(GET).read_response()
    except OSError:
        return True
    return False


def test_idle_workers_reserve_few_addresses(many: Many) -> None:
    assert all(read_reserved_bytes(worker.pid) < MAX_RESERVED for worker in many.workers)


def test_the_demo_is_announced_when_all_workers_respond(program: Program) -> None:
    with program.serve("--demo", "--workers", "3") as serving:
        assert len(list_workers(serving)) == 3
        assert sum(line.startswith("Listings is running at") for line in serving.lines) == 1
        with connections_to_each(serving, 3) as connections:
            for connection in (connection for of_worker in connections for connection in of_worker):
                assert connection.send(request("GET", "/readyz")).read_response().json() == {"status": "ready"}
        assert serving.status(demo_key(program.folder)) == 200


def test_one_worker_is_one_process(tmp_path: Path) -> None:
    with Program(tmp_path, LISTINGS_WORKERS="1").serve() as serving:
        assert list_workers(serving) == set()


def test_a_worker_that_cannot_start_prevents_the_start(tmp_path: Path) -> None:
    """The database URL is in a pipe: the supervisor reads a valid one, workers read an invalid one."""
    pipe = tmp_path / "url"
    os.mkfifo(pipe)

    stopped = threading.Event()

    def write() -> None:
        pipe.write_text(DATABASE_URL, "utf-8")
        until((tmp_path / "data").exists)
        while not stopped.is_set():
            with suppress(BrokenPipeError):  # the reader closed the pipe
                pipe.write_text("invalid", "utf-8")

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    program = Program(tmp_path, LISTINGS_DATABASE_URL_FILE=str(pipe))
    outcome = program.run("serve", "--port", "0", "--workers", "2")
    stopped.set()
    os.close(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))  # unblocks a writer that waits for a reader
    writer.join(DEADLINE)
    assert outcome.error_message.startswith("LISTINGS_DATABASE_URL_FILE must be like sqlite:///")


def test_a_crashing_worker_prevents_the_start(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\nif 'listings.cli.worker' in sys.orig_argv: os._exit(3)\n", "utf-8"
    )
    outcome = Program(tmp_path, PYTHONPATH=str(tmp_path)).run("serve", "--port", "0", "--workers", "2")
    assert outcome.error_message == "A worker exited with code 3 during startup"


def test_a_port_in_use_is_reported_before_any_change(tmp_path: Path, taken_port: str) -> None:
    outcome = Program(tmp_path).run("serve", "--workers", "2", "--port", taken_port)
    assert f"port {taken_port}" in outcome.error_message
    assert not list(tmp_path.iterdir())


def test_listings_created_by_all_workers_have_unique_ids(many: Many) -> None:
    message = request("POST", PATH, many.key, body=b'{"title": "Bicycle", "content": "Two wheels."}')
    created = []
    with connections_to_each(many.serving) as connections:
        one_each = [of_worker[0] for of_worker in connections]
        for _ in range(100):
            for connection in one_each:
                connection.send(message)
            created += [connection.read_response().json()["id"] for connection in one_each]
    assert len(set(created)) == len(created) == 200
    assert set(created) <= many.stored_ids()


def test_log_lines_of_workers_are_complete_and_have_a_pid(tmp_path: Path, key: str) -> None:
    program = Program(tmp_path, LISTINGS_WORKERS="3", LISTINGS_RATE_LIMIT="0")
    with program.serve() as serving, ClientGroup(serving, key, writers=0) as clients:
        until(lambda: is_full(serving))  # the pipe has no reader yet
        workers = {worker.pid for worker in list_workers(serving)}
        log = Log(serving)
        for _ in range(5):
            clients.wait_for_responses()
        assert clients.errors == []
        until(lambda: {json.loads(line)["pid"] for line in log.lines if "request" in line} == workers)
        until(lambda: len(log.lines) > 300)


def is_full(serving: Serving) -> bool:
    """Return whether the pipe of standard error is full, so that a writer must wait."""
    assert serving.process.stderr is not None
    pipe = os.open(f"/proc/self/fd/{serving.process.stderr.fileno()}", os.O_WRONLY | os.O_NONBLOCK)
    try:
        return not select.select([], [pipe], [], 0)[1]
    finally:
        os.close(pipe)


def test_a_killed_worker_loses_only_its_connections_and_is_replaced(many: Many) -> None:
    with connections_to_each(many.serving) as connections:
        killed = min(many.workers)
        os.kill(killed.pid, signal.SIGKILL)
        until(lambda: not killed.is_running)
        (broken,) = [of_worker for of_worker in connections if is_broken(of_worker[0])]
        assert all(map(is_broken, broken))
        (others,) = [of_worker for of_worker in connections if of_worker is not broken]
        assert all(connection.send(GET).read_response().status == 200 for connection in others)
    (line,) = many.log.until("starting a replacement")
    assert f"Worker {killed.pid} was killed by SIGKILL" in line
    until(lambda: len(many.workers) == 2)
    with connections_to_each(many.serving):
        pass


def _read_log_line(serving: Serving) -> str:
    assert serving.process.stderr is not None
    return serving.process.stderr.readline()


@pytest.mark.slow
def test_a_worker_that_cannot_start_is_retried_once_a_second(many: Many) -> None:
    many.url_file.write_text("invalid", "utf-8")
    started = time.monotonic()
    os.kill(min(many.workers).pid, signal.SIGKILL)
    lines = many.log.until("A worker could not start; trying again: LISTINGS_DATABASE_URL_FILE must be", 3)
    assert len(lines) <= 3 + (time.monotonic() - started)
    assert many.serving.http.get("/healthz").status_code == 200
    many.url_file.write_text(DATABASE_URL, "utf-8")
    with connections_to_each(many.serving):
        assert len(many.workers) == 2


def test_workers_stop_gracefully_when_the_supervisor_is_killed(program: Program, key: str) -> None:
    with program.serve() as serving:
        workers = list_workers(serving)
        with connections_to_each(serving) as connections:
            one_each = [of_worker[0] for of_worker in connections]
            begin_requests(key, one_each)
            serving.process.kill()
            wait_until_refused(serving)
            for worker in workers:
                os.kill(worker.pid, signal.SIGTERM)  # only a second signal would end them immediately
            created = end_requests(one_each)
        until(lambda: not any(worker.is_running for worker in workers))
    assert set(created) <= stored_ids(program.folder)
    assert not list((program.folder / "data").glob("*-wal"))


BODY = b'{"title": "Last", "content": "of all"}'


def begin_requests(key: str, connections: list[Connection]) -> None:
    head = request("POST", PATH, key, b"Content-Length: %d" % len(BODY))
    for connection in connections:
        assert connection.send(GET).read_response().status == 200
        connection.send(head, BODY[:10])


def end_requests(connections: list[Connection]) -> list[int]:
    """Complete the creates and return the ids. The service closes the connections after them."""
    responses = [connection.send(BODY[10:]).read_response() for connection in connections]
    assert [(response.status, response.headers["connection"]) for response in responses] == [(201, "close")] * len(
        responses
    )
    assert all(connection.is_closed() for connection in connections)
    return [response.json()["id"] for response in responses]


@pytest.mark.uncovered
def test_reloads_under_load_fail_no_request(many: Many) -> None:
    with ClientGroup(many.serving, many.key) as clients:
        for _ in range(RELOADS):
            reload_and_wait(many.serving)
            clients.wait_for_responses()
    assert clients.errors == []
    assert set(clients.created) <= many.stored_ids()
    assert len(set(clients.created)) == len(clients.created)


def test_a_reload_waits_for_clients_with_occasional_requests(many: Many) -> None:
    old = many.workers
    with connections_to_each(many.serving) as connections:
        active = [of_worker[0] for of_worker in connections]
        for idle in [other for of_worker in connections for other in of_worker[1:]]:
            idle.socket.close()
        many.serving.process.send_signal(signal.SIGHUP)
        sent = time.monotonic()
        while active and time.monotonic() - sent < 4:  # after five idle seconds the service may close a connection
            sent = time.monotonic()
            responses = [connection.send(request("GET", "/readyz")).read_response() for connection in active]
            assert [response.json() for response in responses] == [{"status": "ready"}] * len(active)
            closing = ["connection" in response.headers for response in responses]
            assert all(connection.is_closed() for connection, close in zip(active, closing, strict=True) if close)
            active = [connection for connection, close in zip(active, closing, strict=True) if not close]
            time.sleep(0.7)  # longer than a stop waits
    until(lambda: not old & many.workers)


def test_a_reload_waits_for_requests_in_progress(many: Many) -> None:
    old = many.workers
    with connections_to_each(many.serving) as connections:
        one_each = [of_worker[0] for of_worker in connections]
        begin_requests(many.key, one_each)
        many.serving.process.send_signal(signal.SIGHUP)
        until(lambda: len(many.workers) == 3)
        health = httpx2.get(f"{many.serving.base_url}/healthz", trust_env=False, timeout=DEADLINE)
        assert health.status_code == 200
        responses = [connection.send(BODY[10:]).read_response() for connection in one_each]
        assert [response.status for response in responses] == [201, 201]
    until(lambda: not old & many.workers)
    assert {response.json()["id"] for response in responses} <= many.stored_ids()


def reload_by_command(serving: Serving) -> Outcome:
    return Program(serving.folder).run("reload", str(serving.process.pid))


def test_the_command_waits_until_all_workers_are_replaced(many: Many) -> None:
    old = many.workers
    assert reload_by_command(many.serving) == Outcome(0, "", "Reloaded\n")
    assert not old & many.workers
    assert len(many.workers) == 2


def test_only_a_service_with_the_same_settings_is_reloaded(many: Many) -> None:
    for pid in (os.getpid(), 2**22 + 1):
        outcome = Program(many.serving.folder).run("reload", str(pid))
        message = f"No service with these settings has the process ID {pid}: use that of `listings serve`"
        assert outcome == Outcome(1, "", f"listings: {message}\n")


def test_a_failed_reload_keeps_the_old_workers(many: Many) -> None:
    old = many.workers
    many.url_file.write_text("invalid", "utf-8")
    outcome = reload_by_command(many.serving)
    assert outcome.code == 1
    assert outcome.err.startswith("listings: The service was not reloaded: LISTINGS_DATABASE_URL_FILE must be")
    (line,) = many.log.until("Reload aborted")
    assert "keeping the current workers: LISTINGS_DATABASE_URL_FILE must be" in line
    until(lambda: many.workers == old)
    with connections_to_each(many.serving) as connections:
        assert all(of_worker[0].send(GET).read_response().status == 200 for of_worker in connections)
    many.url_file.write_text(DATABASE_URL, "utf-8")


def stop_during_a_reload(serving: Serving) -> None:
    serving.process.send_signal(signal.SIGHUP)
    until(lambda: len(list_workers(serving)) == 3)
    serving.process.send_signal(signal.SIGTERM)


def signal_all_processes(serving: Serving) -> None:
    for worker in list_workers(serving):
        os.kill(worker.pid, signal.SIGTERM)
    serving.process.send_signal(signal.SIGTERM)


@pytest.mark.parametrize("stop", [stop_during_a_reload, signal_all_processes])
def test_a_stop_interrupts_no_request(program: Program, key: str, stop: Callable[[Serving], None]) -> None:
    with program.serve() as serving:
        with connections_to_each(serving) as connections:
            one_each = [of_worker[0] for of_worker in connections]
            begin_requests(key, one_each)
            stop(serving)
            wait_until_refused(serving)
            created = end_requests(one_each)
        outcome = serving.stop(signal.SIGCONT)
    assert (outcome.code, outcome.out) == (0, ""), outcome
    assert set(created) <= stored_ids(program.folder)


class Announced(NamedTuple):
    """A running service, known by its announcement."""

    base_url: str


def fork_service(folder: Path, workers: str) -> tuple[int, int]:
    """Start a service on a terminal. Return its process ID and the terminal."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execve(PROGRAM, [str(PROGRAM), "serve", "--port", "0", "--workers", workers], clean_environment())  # noqa: S606
    return pid, terminal


def read_base_url(terminal: int) -> str:
    output = b""
    while (match := re.search(rb"Listings is running at (http://[^\s,]+),", output)) is None:
        output += os.read(terminal, 4096)
    return match[1].decode()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_closed_terminal_stops_the_service(tmp_path: Path, workers: str) -> None:
    pid, terminal = fork_service(tmp_path, workers)
    read_base_url(terminal)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    sizes = [file.stat().st_size for file in (tmp_path / "data").glob("*-wal")]
    assert not any(sizes)  # if both workers close at the same time, an empty WAL may remain


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_signal_after_the_terminal_was_closed_interrupts_no_request(tmp_path: Path, workers: str) -> None:
    pid, terminal = fork_service(tmp_path, workers)
    service = Announced(read_base_url(terminal))
    with Connection(service) as connection:
        connection.send(GET).read_response()
        connection.send(READINESS[:-2])  # incomplete, so that the stop waits for it
        os.close(terminal)
        wait_until_refused(service)
        os.kill(pid, signal.SIGTERM)
        assert connection.send(READINESS[-2:]).read_response().json() == {"error": "The service is stopping"}
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_single_process_logs_that_it_cannot_reload(tmp_path: Path) -> None:
    with Program(tmp_path).serve() as serving:
        outcome = reload_by_command(serving)
        assert (outcome.code, "restart it, or set LISTINGS_WORKERS" in outcome.err) == (1, True)
        assert "restart it, or set LISTINGS_WORKERS" in _read_log_line(serving)
        assert serving.http.get("/healthz").status_code == 200


def test_a_stopped_worker_does_not_affect_the_others(program: Program) -> None:
    with program.serve() as serving:
        stopped = next(iter(list_workers(serving)))
        os.kill(stopped.pid, signal.SIGTERM)
        until(lambda: not stopped.is_running and len(list_workers(serving)) == 2)
        for _ in range(20):
            with Connection(serving).send(request("GET", "/healthz")) as connection:
                assert connection.read_response().status == 200


@pytest.mark.uncovered
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stops_under_load_lose_no_write_and_leave_no_files(program: Program, key: str, number: signal.Signals) -> None:
    with program.serve() as serving, ClientGroup(serving, key) as clients:
        workers = list_workers(serving)
        outcome = serving.stop(number)
        for client in clients.clients:
            client.stop()
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")
    assert not any(worker.is_running for worker in workers)
    assert {error.split("(")[0] for error in clients.errors} <= {"ConnectionRefusedError"}
    assert set(clients.created) <= stored_ids(program.folder)
    left = {file.name for file in (program.folder / "data").iterdir()} - {"listings.db.search"}
    assert left == {"listings.db", "listings.db.lock", "media"}


def test_no_worker_is_ready_during_the_stop(program: Program) -> None:
    with program.serve() as serving:
        with connections_to_each(serving) as connections:
            one_each = [of_worker[0] for of_worker in connections]
            for connection in one_each:
                assert connection.send(READINESS).read_response().json() == {"status": "ready"}
                connection.send(READINESS[:-2])  # incomplete, so that the stop waits for it
            serving.process.send_signal(signal.SIGTERM)
            wait_until_refused(serving)
            responses = [connection.send(READINESS[-2:]).read_response() for connection in one_each]
            assert [(response.status, response.json()) for response in responses] == [
                (503, {"error": "The service is stopping"})
            ] * 2
        assert serving.process.wait(DEADLINE) == 0


def test_a_second_signal_ends_all_processes_immediately(program: Program, key: str) -> None:
    with program.serve() as serving:
        workers = list_workers(serving)
        with Connection(serving) as connection:
            begin_requests(key, [connection])
            serving.process.send_signal(signal.SIGTERM)
            wait_until_refused(serving)
            assert serving.stop().code == 128 + signal.SIGTERM  # a graceful stop takes ten seconds and exits with 0
        until(lambda: not any(worker.is_running for worker in workers))


def test_metrics_cover_all_workers_and_counters_never_decrease(tmp_path: Path) -> None:
    program = Program(tmp_path, LISTINGS_METRICS_ADDRESS="0", **QUIET)
    with program.serve() as serving:
        url = find_metrics_url(serving)

        def wait_for_count(total: int) -> Scrape:
            for _ in attempts():
                scrape = Scrape(url)
                if scrape.requests("GET", "/readyz", 200) >= total:
                    return scrape
            raise AssertionError(f"fewer than {total} requests are counted")

        def request_each(total: int) -> Scrape:
            """Send ten requests to each worker, and scrape until `total` requests are counted."""
            with connections_to_each(serving) as connections:
                for connection in [of_worker[0] for of_worker in connections] * 10:
                    assert connection.send(request("GET", "/readyz")).read_response().status == 200
                return wait_for_count(total)

        scrape = request_each(20)
        assert scrape.requests("GET", "/readyz", 200) == 20
        assert (scrape("listings_workers"), scrape("listings_worker_deaths_total")) == (2, 0)
        assert scrape("listings_connections") >= 2
        assert scrape("listings_connections_max") == 20_000
        assert scrape("listings_database_bytes") == (tmp_path / "data/listings.db").stat().st_size
        os.kill(min(list_workers(serving)).pid, signal.SIGKILL)
        until(lambda: len(list_workers(serving)) == 2 and Scrape(url)("listings_worker_deaths_total") == 1)
        assert request_each(40).requests("GET", "/readyz", 200) == 40
        readiness = httpx2.get(f"{serving.base_url}/readyz", trust_env=False, timeout=DEADLINE)
        assert readiness.status_code == 200  # counted in the next scrape
        reload_and_wait(serving)
        scrape = request_each(61)
        assert scrape.requests("GET", "/readyz", 200) == 61
        assert scrape("listings_request_duration_seconds_count", route="/readyz") == 61
        assert scrape("listings_build_info", version=find_version(scrape)) == 1
        assert serving.stop().code == 0


def find_version(scrape: Scrape) -> str:
    match = re.search(r'listings_build_info\{version="([^"]+)"\}', scrape.text)
    assert match is not None
    return match[1]


def test_every_worker_shows_the_counts_of_the_others(many: Many) -> None:
    demo = demo_environment(many.serving.folder)
    cookie = sign_in(many.serving, "bob@demo.example", demo["CONSOLE_PASSWORD"])  # no other test uses this account
    with connections_to_each(many.serving) as connections:
        workers = [of_worker[0] for of_worker in connections]
        before = read_count(workers[0], cookie)
        for worker in workers * 3:
            assert worker.send(request("GET", PATH, demo["OTHER_API_KEY"])).read_response().status == 200
        started = time.monotonic()
        until(lambda: [read_count(worker, cookie) for worker in workers] == [before + 6] * 2)
        assert time.monotonic() - started < 30  # counts of few keys are stored every two seconds


def sign_in(serving: Serving, email: str, password: str) -> str:
    headers = {"Accept": "text/html", "Sec-Fetch-Site": "same-origin"}
    with httpx2.Client(base_url=serving.base_url, headers=headers, timeout=DEADLINE) as browser:
        token = re.search(r'name="token" value="(\w+)"', browser.get("/sign-in").text)
        assert token is not None
        entered = browser.post("/sign-in", data={"token": token[1], "email": email, "password": password})
        assert entered.status_code == 303
        return "; ".join(f"{name}={value}" for name, value in browser.cookies.items())


def read_count(worker: Connection, cookie: str) -> int:
    """Return the number of 200 responses on the usage page of a worker."""
    headers = (b"Accept: text/html", b"Cookie: " + cookie.encode())
    page = worker.send(request("GET", "/console/usage", None, *headers)).read_response()
    assert page.status == 200
    match = re.search(r">200</span></th><td>OK</td><td class=\"right\">([\d,]+)<", page.body.decode())
    return int(match[1].replace(",", "")) if match is not None else 0
