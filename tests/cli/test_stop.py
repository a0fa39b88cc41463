"""Graceful shutdown: every request gets a response, and every acknowledged write is stored."""

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

from tests.cli.commands import DEADLINE, Program, Serving
from tests.cli.crowds import QUIET_SECONDS
from tests.http.raw import Connection, HasAddress, request

pytestmark = pytest.mark.uncovered

PATH = "/api/v1/listings"
_CONNECT_TIMEOUT = 0.2  # seconds; the kernel accepts a connection immediately while the service listens
READINESS = request("GET", "/readyz")
QUIET = {"LISTINGS_RATE_LIMIT": "0", "LISTINGS_LOG_LEVEL": "error"}


def stored_ids(folder: Path) -> set[int]:
    connection = apsw.Connection(f"{folder}/data/listings.db")
    try:
        return {int(str(row[0])) for row in connection.execute("SELECT id FROM listings").fetchall()}
    finally:
        connection.close()


class Writer(threading.Thread):
    """Creates listings on one connection until the service stops, and records acknowledged listings and errors.

    An error after a pause of QUIET_SECONDS is not recorded, since the machine may have been busy.
    """

    def __init__(self, base_url: str, key: str) -> None:
        super().__init__()
        self._address = base_url.removeprefix("http://")
        self._headers = {"X-API-Key": key, "Content-Type": "application/json"}
        self.acknowledged: list[int] = []
        self.errors: list[str] = []
        self._since = 0.0  # the start of the connection or of the last request

    def run(self) -> None:
        connection = http.client.HTTPConnection(self._address, timeout=_CONNECT_TIMEOUT)
        while self._connect(connection) and self._create(connection):
            pass
        connection.close()

    def _connect(self, connection: http.client.HTTPConnection) -> bool:
        try:
            if connection.sock is None:
                started = time.monotonic()
                connection.connect()
                connection.sock.settimeout(DEADLINE)  # type: ignore[attr-defined]  # it is connected
                self._since = started
        except (ConnectionRefusedError, TimeoutError):
            return False
        return True

    def _create(self, connection: http.client.HTTPConnection) -> bool:
        quiet, started = float("inf"), time.monotonic()
        try:
            connection.request("POST", PATH, json.dumps({"title": "t", "content": "c"}), self._headers)
            quiet = time.monotonic() - self._since
            self.acknowledged.append(json.loads(connection.getresponse().read())["id"])
        except (OSError, http.client.HTTPException) as error:
            if min(quiet, time.monotonic() - self._since) < QUIET_SECONDS:
                self.errors.append(repr(error))
            return False
        self._since = started
        return True


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path, **QUIET)


def stop_under_load(program: Program, key: str, after: float) -> int:
    """Stop the service after a time and return the number of acknowledged writes, which may be 0."""
    with program.serve() as serving:
        writers = [Writer(serving.base_url, key) for _ in range(8)]
        for writer in writers:
            writer.start()
        time.sleep(after)  # the test varies the moment of the stop
        outcome = serving.stop()
        for writer in writers:
            writer.join(DEADLINE)
    assert outcome.code == 0, outcome
    assert [writer.errors for writer in writers] == [[]] * 8
    acknowledged = [listing for writer in writers for listing in writer.acknowledged]
    assert not list((program.folder / "data").glob("*-wal"))
    assert set(acknowledged) <= stored_ids(program.folder)
    return len(acknowledged)


@pytest.mark.slow
def test_stops_under_load_lose_no_response_and_no_write(program: Program, key: str) -> None:
    acknowledged = [stop_under_load(program, key, 0.02 + 0.026 * stop) for stop in range(12)]
    assert sum(acknowledged) > 12


def test_a_request_in_progress_is_completed(program: Program, key: str) -> None:
    with program.serve() as serving:
        body = b'{"title": "Last", "content": "of all"}'
        head = request("POST", PATH, key, b"Content-Length: %d" % len(body))
        with Connection(serving).send(head, body[:10]) as connection:
            assert is_responding(serving)
            serving.process.send_signal(signal.SIGTERM)
            wait_until_refused(serving)
            response = connection.send(body[10:]).read_response()
            assert (response.status, response.headers["connection"]) == (201, "close")
            assert connection.is_closed()
        assert serving.process.wait(DEADLINE) == 0
    assert response.json()["id"] in stored_ids(program.folder)


@pytest.mark.slow
def test_a_stop_waits_at_most_ten_seconds_for_a_request(program: Program, key: str) -> None:
    with program.serve() as serving:
        head = request("POST", PATH, key, b"Content-Length: 100")
        with Connection(serving).send(head):
            assert is_responding(serving)
            started = time.monotonic()
            assert serving.stop().code == 0
            assert (
                9 < time.monotonic() - started < 25
            )  # without a limit for the stop, the body timeout of 30 seconds would apply


def test_idle_connections_do_not_delay_the_stop(program: Program) -> None:
    with program.serve() as serving, Connection(serving) as other, Connection(serving) as connection:
        assert connection.send(request("GET", "/healthz")).read_response().status == 200
        other.socket.settimeout(DEADLINE)
        serving.process.send_signal(signal.SIGTERM)
        assert [each.socket.recv(1) for each in (other, connection)] == [
            b"",
            b"",
        ]  # they would be reset after ten seconds
        assert serving.process.wait(DEADLINE) == 0


def test_the_service_is_not_ready_during_the_stop(program: Program) -> None:
    with program.serve() as serving:
        with Connection(serving) as watcher:
            assert watcher.send(READINESS).read_response().json() == {"status": "ready"}
            watcher.send(READINESS[:-2])  # incomplete, so that the stop waits for it
            assert is_responding(serving)
            serving.process.send_signal(signal.SIGTERM)
            wait_until_refused(serving)
            response = watcher.send(READINESS[-2:]).read_response()
            assert (response.status, response.json()) == (503, {"error": "The service is stopping"})
        assert serving.process.wait(DEADLINE) == 0


def test_a_second_signal_ends_immediately(program: Program, key: str) -> None:
    with program.serve() as serving:
        head = request("POST", PATH, key, b"Content-Length: 100")
        with Connection(serving).send(head):
            assert is_responding(serving)
            serving.process.send_signal(signal.SIGTERM)
            wait_until_refused(serving)
            assert serving.stop().code == 128 + signal.SIGTERM  # a graceful stop takes ten seconds and exits with 0


def is_responding(serving: Serving) -> bool:
    """Return whether another request gets a response; requests sent before it have then arrived."""
    return serving.http.get("/healthz").status_code == 200


def wait_until_refused(serving: HasAddress) -> None:
    """Wait until the port is closed: all processes of the service are then stopping."""
    for _ in attempts():
        try:
            socket.create_connection(("127.0.0.1", urlsplit(serving.base_url).port), timeout=0.05).close()
        except TimeoutError:
            continue
        except ConnectionRefusedError:
            return
    raise AssertionError("the port is still open")


def attempts() -> Iterator[None]:
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        yield
        time.sleep(0.01)
