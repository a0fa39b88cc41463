"""Whoever holds a connection is cut at the deadline, and the others do not notice."""

import fcntl
import json
import os
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from listings.http.connection import HttpConnection
from tests.cli.commands import Program, Serving, demo_environment
from tests.harness import TIMEOUT, RunningService
from tests.http.raw import Connection, request

pytestmark = pytest.mark.alone
ROOT = Path(__file__).parents[2]
MUCH_LATER = 9  # seconds, on a machine that stands still for some; nobody would be cut before ten if none were set
PATH = "/api/v1/listings"
# Until a client notices: one that drips does so with its next drop; a slow reader's time begins with full buffers.
DEADLINE = 6  # seconds
ARRIVALS = 5  # seconds; all of the thousand are there at once, and the first are cut before a good client ends
RATE = 1000  # requests a second of a good client
GRACE = {"slow_head": 0.5, "slow_body": 0.5, "silent": 0.2, "idle": 0.2, "slow_reader": 1.0}


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    folder = tmp_path_factory.mktemp("impatient")
    with RunningService(folder, header_timeout="1", body_timeout="1", idle_timeout="1", write_timeout="1") as service:
        yield service


def test_who_is_not_read_is_not_late(impatient: RunningService) -> None:
    key = impatient.cast().alice.key
    create = request("POST", PATH, key, body=b'{"title": "Waits", "content": "for its turn to be written"}')
    last = request("GET", "/healthz")
    with Path(f"{impatient.settings.file}.lock").open() as lock, Connection(impatient) as connection:
        fcntl.flock(lock, fcntl.LOCK_EX)
        connection.send(create + last + last[:20])
        time.sleep(2)  # twice the deadline of a head
        fcntl.flock(lock, fcntl.LOCK_UN)
        assert [connection.answer().status for _ in range(2)] == [201, 200]
        assert connection.send(last[20:]).answer().status == 200


@pytest.mark.decision("G31")
@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX-A: ", "headers took longer than 1 second"),
        (b"G", "headers took longer"),
        (
            b"POST /api/v1/listings HTTP/1.1\r\nHost: localhost\r\nX-API-Key: KEY\r\nContent-Length: 9\r\n\r\n{",
            "body took longer",
        ),
    ],
)
def test_a_slow_request_is_408(impatient: RunningService, sent: bytes, said: str) -> None:
    key = impatient.cast().alice.key
    started = time.monotonic()
    with Connection(impatient).send(sent.replace(b"KEY", key.encode())) as connection:
        answer = connection.answer()
        assert (answer.status, answer.headers["x-error-code"]) == (408, "request_timeout")
        assert said in answer.json()["error"]
        assert connection.is_closed()
    assert 1 <= time.monotonic() - started < MUCH_LATER


def test_a_slow_body_writes_nothing(impatient: RunningService) -> None:
    alice = impatient.cast().alice
    head = request("POST", PATH, alice.key, b"Content-Length: 100")
    with Connection(impatient).send(head + b'{"title": "t", "content": "c"}') as connection:
        assert connection.answer().status == 408
    with Connection(impatient).send(request("GET", PATH, alice.key)) as connection:
        assert connection.answer().json() == {"listings": []}


def test_who_says_nothing_is_cut_without_a_word(impatient: RunningService) -> None:
    started = time.monotonic()
    with Connection(impatient) as connection:
        assert connection.is_closed()
    assert 1 <= time.monotonic() - started < MUCH_LATER


def test_an_idle_connection_is_cut_after_its_time(impatient: RunningService) -> None:
    with Connection(impatient).send(request("GET", "/healthz")) as connection:
        assert connection.answer().status == 200
        started = time.monotonic()
        assert connection.is_closed()
    assert 0.9 <= time.monotonic() - started < MUCH_LATER


def test_a_slow_request_behind_a_good_one_is_408_in_its_turn(impatient: RunningService) -> None:
    with Connection(impatient).send(request("GET", "/healthz") + b"GET / HT") as connection:
        assert connection.answer().status == 200
        assert connection.answer().status == 408


def test_one_connection_too_many_is_503(tmp_path: Path) -> None:
    with RunningService(tmp_path, max_connections="20") as service:
        connections = [Connection(service).send(request("GET", "/healthz")) for _ in range(20)]
        assert {connection.answer().status for connection in connections} == {200}
        with Connection(service) as connection:
            answer = connection.answer()
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        for connection in connections:
            connection.socket.close()


def test_who_reads_nothing_is_cut(impatient: RunningService) -> None:
    alice = impatient.cast().alice
    body = b'{"title": "Large", "content": "%s"}' % (b"x" * 100_000)
    with Connection(impatient).send(request("POST", PATH, alice.key, body=body)) as connection:
        assert connection.answer().status == 201
    started = time.monotonic()
    with Connection(impatient, receive_buffer=4096).send(request("GET", PATH, alice.key) * 20) as connection:
        poll = select.poll()
        poll.register(connection.socket, 0)
        assert poll.poll(1000 * TIMEOUT) == [(connection.socket.fileno(), select.POLLERR | select.POLLHUP)]
    assert 1 <= time.monotonic() - started < MUCH_LATER


def test_a_refused_body_that_trickles_is_not_waited_for(
    impatient: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("listings.http.connection._DISCARD_SECONDS", 0.3)
    with Connection(impatient).send(request("POST", PATH, None, b"Content-Length: 100")) as connection:
        assert connection.answer().status == 401
        with suppress(OSError):  # where it is cut already
            connection.send(b"{")
        assert connection.is_closed()


def test_a_refused_body_that_breaks_ends_the_connection(impatient: RunningService) -> None:
    with Connection(impatient).send(request("POST", PATH, None, b"Transfer-Encoding: chunked")) as connection:
        assert connection.answer().status == 401
        assert connection.send(b"nonsense\r\n").is_closed()


def test_a_connection_that_cannot_be_looked_after_leaves_the_deadlines_of_the_others(
    impatient: RunningService, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sweep, failures = HttpConnection.sweep, iter([OSError("not connected")])

    def fail_once(protocol: HttpConnection, now: float) -> None:
        for failure in failures:
            raise failure
        sweep(protocol, now)

    monkeypatch.setattr(HttpConnection, "sweep", fail_once)
    with Connection(impatient) as connection:
        assert connection.is_closed()
    assert "could not be looked after" in caplog.text


class Timing(NamedTuple):
    """What a good client met."""

    took: list[float]  # milliseconds, in the order of the requests
    failed: int

    @property
    def p99(self) -> float:
        return slowest_hundredth(self.took)


def steady_client(serving: Serving, key: str, seconds: float = DEADLINE + 1.0, rate: int = RATE) -> Timing:
    """One connection, so many requests a second, each timed.

    So many, because a machine that stands still for some milliseconds some times a second, as one shared with
    others does, must not make up the slowest hundredth, whatever the service does. What is held up by the request
    before it waits from when it was due, for so would a client of its own.
    """
    took, failed, message = [], 0, request("GET", f"{PATH}/1", key)
    with Connection(serving) as connection:
        due = time.perf_counter()
        for _ in range(int(seconds * rate)):
            early = due - time.perf_counter()
            if early > 0:
                time.sleep(early)
            began = time.perf_counter() if early > 0 else due
            failed += connection.send(message).answer().status != 404
            took.append((time.perf_counter() - began) * 1000)
            due += 1 / rate
    return Timing(took, failed)


class Trial(NamedTuple):
    """A good client among a thousand who hold on to nothing and beside those who do, and how long these could."""

    undisturbed: Timing
    beside: Timing
    held: dict[str, list[float]]


def trial(serving: Serving, key: str) -> Trial:
    with busy_neighbour():
        undisturbed, _ = among_a_thousand(serving, key, "brisk")
        return Trial(undisturbed, *among_a_thousand(serving, key, "slow"))


def among_a_thousand(serving: Serving, key: str, manner: str) -> tuple[Timing, dict[str, list[float]]]:
    """What a good client meets, and how long each of the others lasted."""
    host, port = serving.base_url.removeprefix("http://").split(":")
    command = [sys.executable, "-m", "tests.http.slow_clients", host, port, key, "200", str(ARRIVALS), manner]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as others:
        timing = steady_client(serving, key)
        out, _ = others.communicate(timeout=TIMEOUT)
    return timing, json.loads(out)


@contextmanager
def busy_neighbour() -> Iterator[None]:
    """Keeps the clients' core, often the other half of the service's, as busy without slow clients as with them."""
    with subprocess.Popen([sys.executable, "-c", "import os; os.nice(19)\nwhile True: pass"]) as process:
        try:
            yield
        finally:
            process.kill()


@pytest.fixture
def cores() -> Iterator[set[int]]:
    """What this process may run on, which a test may bound and which is given back."""
    cores = os.sched_getaffinity(0)
    yield cores
    os.sched_setaffinity(0, cores)


@pytest.mark.timing
def test_a_thousand_who_hold_on_are_cut_and_a_good_client_does_not_notice(tmp_path: Path, cores: set[int]) -> None:
    bounds = ("HEADER_TIMEOUT", "BODY_TIMEOUT", "IDLE_TIMEOUT", "WRITE_TIMEOUT")
    settings = {f"LISTINGS_{name}": str(DEADLINE) for name in bounds}
    program = Program(tmp_path, **settings, LISTINGS_RATE_LIMIT="0", LISTINGS_LOG_LEVEL="error")
    trials: list[Trial] = []
    with program.serve("--demo") as serving:
        if len(cores) > 1:  # so that clients cost the service no time
            os.sched_setaffinity(serving.process.pid, {min(cores)})
            os.sched_setaffinity(0, cores - {min(cores)})
        key = demo_environment(tmp_path)["API_KEY"]
        large = {"title": "Large", "content": "x" * 30_000}  # so that a list is long enough to be read slowly
        assert serving.http.post(PATH, headers={"X-API-Key": key}, json=large).status_code == 201
        while len(trials) < 12 and not (within_twice(trials) and not late(trials)):
            trials.append(trial(serving, key))
    for seen in trials:
        assert (seen.undisturbed.failed, seen.beside.failed) == (0, 0)
        for kind, seconds in seen.held.items():
            assert len(seconds) == 200
            assert seconds[0] >= DEADLINE - 0.1, kind
    assert not late(trials)
    assert within_twice(trials), [(seen.undisturbed.p99, seen.beside.p99) for seen in trials]


@pytest.mark.timing
def test_to_come_and_go_costs_the_service_little_more_than_requests(tmp_path: Path, cores: set[int]) -> None:
    """By its processor's time, and on one core for both, so that neither other programs nor sleep come into it."""
    with Program(tmp_path, LISTINGS_RATE_LIMIT="0", LISTINGS_LOG_LEVEL="error").serve("--demo") as serving:
        clock = cpu_clock(serving.process.pid)
        for process in (0, serving.process.pid):
            os.sched_setaffinity(process, {min(cores)})

        def seconds(connections: int, requests: int) -> float:
            began = time.clock_gettime(clock)
            for _ in range(connections):
                with Connection(serving) as connection:
                    for _ in range(requests):
                        assert connection.send(request("GET", "/healthz")).answer().status == 200
            return time.clock_gettime(clock) - began

        rounds = [(seconds(200, 1), seconds(1, 200)) for _ in range(10)]
    coming, staying = map(min, zip(*rounds, strict=True))
    assert coming < 8 * staying


def cpu_clock(process: int) -> int:
    """The clock of a process's time on the processors: what clock_getcpuclockid(3) makes of its id on Linux."""
    return ~process << 3 | 2


def late(trials: list[Trial]) -> dict[str, float]:
    """The kinds whose last connection was ended too late in every trial, and how long it lasted at least."""
    longest = {kind: min(max(seen.held[kind]) for seen in trials) for kind in GRACE}
    return {kind: seconds for kind, seconds in longest.items() if seconds > DEADLINE + 1 + GRACE[kind]}


def within_twice(trials: list[Trial]) -> bool:
    """Whether a good client beside waits at most twice as long."""
    return bool(trials) and waited([it.beside for it in trials]) <= 2 * waited([it.undisturbed for it in trials])


def waited(timings: list[Timing]) -> float:
    """The slowest hundredth of a half second in milliseconds, as the median of all half seconds, each as in the trial
    that the machine disturbed least in it.

    A machine that others use, too, may be ten times slower in one minute than in the next, but seldom is it so in the
    same half second of every trial; whereas those who hold on do the same then each time.
    """
    half = RATE // 2
    halves = [[slowest_hundredth(it.took[at : at + half]) for at in range(0, len(it.took), half)] for it in timings]
    return statistics.median([min(trial[at] for trial in halves) for at in range(len(halves[0]))])


def slowest_hundredth(milliseconds: list[float]) -> float:
    return statistics.quantiles(milliseconds, n=100)[98]
