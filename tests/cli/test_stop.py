"""An orderly stop: everything that was sent is answered, everything that was acknowledged is there."""

import http.client
import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import apsw
import pytest

from tests.cli.commands import DEADLINE, Program, Serving, demo_environment
from tests.cli.crowds import QUIET_SECONDS
from tests.http.raw import Connection, request

PATH = "/api/v1/listings"
_TURNED_AWAY = 0.2  # seconds after which who asks for a connection needn't wait: the kernel makes one at once
READINESS = request("GET", "/readyz")
QUIET = {"LISTINGS_RATE_LIMIT": "0", "LISTINGS_LOG_LEVEL": "error"}


def demo_key(folder: Path) -> str:
    return demo_environment(folder)["API_KEY"]


def stored_ids(folder: Path) -> set[int]:
    connection = apsw.Connection(f"{folder}/data/listings.db")
    try:
        return {int(str(row[0])) for row in connection.execute("SELECT id FROM listings").fetchall()}
    finally:
        connection.close()


class Writer(threading.Thread):
    """Creates listings on one connection until the service has gone; keeps what was acknowledged and what broke.

    A request that a machine at a standstill has kept back for too long is not counted as broken.
    """

    def __init__(self, base_url: str, key: str) -> None:
        super().__init__()
        self._address = base_url.removeprefix("http://")
        self._headers = {"X-API-Key": key, "Content-Type": "application/json"}
        self.acknowledged: list[int] = []
        self.broken: list[str] = []
        self._since = 0.0  # when it began to connect, or to ask what was answered last: the service counts from later

    def run(self) -> None:
        connection = http.client.HTTPConnection(self._address, timeout=_TURNED_AWAY)
        while self._connected(connection) and self._create(connection):
            pass
        connection.close()

    def _connected(self, connection: http.client.HTTPConnection) -> bool:
        try:
            if connection.sock is None:
                began = time.monotonic()
                connection.connect()
                connection.sock.settimeout(DEADLINE)  # type: ignore[attr-defined]  # it has one now
                self._since = began
        except (ConnectionRefusedError, TimeoutError):
            return False
        return True

    def _create(self, connection: http.client.HTTPConnection) -> bool:
        silent, began = float("inf"), time.monotonic()
        try:
            connection.request("POST", PATH, json.dumps({"title": "t", "content": "c"}), self._headers)
            silent = time.monotonic() - self._since
            self.acknowledged.append(json.loads(connection.getresponse().read())["id"])
        except (OSError, http.client.HTTPException) as error:
            if min(silent, time.monotonic() - self._since) < QUIET_SECONDS:
                self.broken.append(repr(error))
            return False
        self._since = began
        return True


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path, **QUIET)


def stop_under_load(program: Program, after: float, number: signal.Signals) -> int:
    """Returns how many writes were acknowledged: none, where the stop came before the writers."""
    with program.serve("--demo") as serving:
        writers = [Writer(serving.base_url, demo_key(program.folder)) for _ in range(8)]
        for writer in writers:
            writer.start()
        time.sleep(after)  # the moment of the stop is the test's own choice
        outcome = serving.stop(number)
        for writer in writers:
            writer.join(DEADLINE)
    assert outcome.code == 0, outcome
    assert [writer.broken for writer in writers] == [[]] * 8
    acknowledged = [listing for writer in writers for listing in writer.acknowledged]
    assert not list((program.folder / "data").glob("*-wal"))
    assert set(acknowledged) <= stored_ids(program.folder)
    return len(acknowledged)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stops_under_load_lose_no_answer_and_no_write(program: Program, number: signal.Signals) -> None:
    acknowledged = [stop_under_load(program, 0.02 + 0.013 * stop, number) for stop in range(25)]
    assert sum(acknowledged) > 25


def test_a_request_that_is_under_way_is_finished(program: Program) -> None:
    with program.serve("--demo") as serving:
        body = b'{"title": "Last", "content": "of all"}'
        head = request("POST", PATH, demo_key(program.folder), b"Content-Length: %d" % len(body))
        with Connection(serving).send(head, body[:10]) as connection:
            assert is_answering(serving)
            serving.process.send_signal(signal.SIGTERM)
            wait_until_refused(serving)
            answer = connection.send(body[10:]).read_response()
            assert (answer.status, answer.headers["connection"]) == (201, "close")
            assert connection.is_closed()
        assert serving.process.wait(DEADLINE) == 0
    assert answer.json()["id"] in stored_ids(program.folder)


@pytest.mark.slow
def test_a_request_that_never_ends_is_waited_for_ten_seconds_at_most(program: Program) -> None:
    with program.serve("--demo") as serving:
        head = request("POST", PATH, demo_key(program.folder), b"Content-Length: 100")
        with Connection(serving).send(head):
            assert is_answering(serving)
            started = time.monotonic()
            assert serving.stop().code == 0
            assert 9 < time.monotonic() - started < 25  # 30, which a body is given, if the stop had no bound of its own


def test_idle_connections_do_not_hold_the_stop(program: Program) -> None:
    with program.serve("--demo") as serving, Connection(serving) as other, Connection(serving) as connection:
        assert connection.send(request("GET", "/healthz")).read_response().status == 200
        other.socket.settimeout(DEADLINE)
        serving.process.send_signal(signal.SIGTERM)
        assert [each.socket.recv(1) for each in (other, connection)] == [b"", b""]  # after ten seconds they are reset
        assert serving.process.wait(DEADLINE) == 0


def test_readiness_is_over_when_the_stop_begins(program: Program) -> None:
    with program.serve("--demo") as serving:
        with Connection(serving) as watcher:
            assert watcher.send(READINESS).read_response().json() == {"status": "ready"}
            watcher.send(READINESS[:-2])  # which is under way, so that the stop waits for its end
            assert is_answering(serving)
            serving.process.send_signal(signal.SIGTERM)
            wait_until_refused(serving)
            answer = watcher.send(READINESS[-2:]).read_response()
            assert (answer.status, answer.json()) == (503, {"error": "The service is stopping"})
        assert serving.process.wait(DEADLINE) == 0


def test_a_second_signal_ends_at_once(program: Program) -> None:
    with program.serve("--demo") as serving:
        head = request("POST", PATH, demo_key(program.folder), b"Content-Length: 100")
        with Connection(serving).send(head):
            assert is_answering(serving)
            serving.process.send_signal(signal.SIGTERM)
            wait_until_refused(serving)
            assert serving.stop().code == 128 + signal.SIGTERM  # an orderly one, after ten seconds, ends with 0


def is_answering(serving: Serving) -> bool:
    """A request of another connection was answered, so those sent before have arrived."""
    return serving.http.get("/healthz").status_code == 200


def wait_until_refused(serving: Serving) -> None:
    """All processes of the service have begun to stop when nobody listens any more."""
    for _ in attempts():
        try:
            socket.create_connection(("127.0.0.1", urlsplit(serving.base_url).port), timeout=0.05).close()
        except TimeoutError:
            continue
        except ConnectionRefusedError:
            return
    raise AssertionError("it still listens")


def attempts() -> Iterator[None]:
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        yield
        time.sleep(0.01)
