"""Failures of the application, and connections during a start and a stop."""

import asyncio
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from listings import wiring
from listings.domain.errors import Problem
from listings.http.server import bind_socket, format_base_url
from tests.harness import TIMEOUT, Harness, RunningService
from tests.http.raw import Connection, assert_rejected, request

LISTINGS = "/api/v1/listings"


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    class Failing:
        async def serve(self, exchange: Any) -> None:
            if exchange.path in {"/half", "/ended"}:
                headers = [(b"content-length", b"9")]
                await exchange.send({"type": "http.response.start", "status": 200, "headers": headers})
                await exchange.send({"type": "http.response.body", "body": b"half", "more_body": True})
            if exchange.path == "/begun":
                await exchange.send({"type": "http.response.start", "status": 200, "headers": []})
            if exchange.path in {"/ended", "/silent", "/begun"}:
                return
            if exchange.path == "/responded":
                await exchange.respond(200, b"content-length: 0\r\n", b"")
            raise RuntimeError("not handled by the application")

    with RunningService(tmp_path_factory.mktemp("failing")) as service:
        service.replace_application(Failing())
        yield service


def test_an_unhandled_failure_is_500_and_logged(failing: RunningService, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        with Connection(failing).send(request("GET", "/healthz")) as connection:
            assert_rejected(connection.read_response(), 500, "internal_error")
            assert connection.is_closed()
    assert caplog.text.count("The application failed") == 3


@pytest.mark.parametrize("path", ["/half", "/ended"])
def test_a_failure_during_a_response_closes_the_connection(failing: RunningService, path: str) -> None:
    with Connection(failing).send(request("GET", path)) as connection, pytest.raises(ConnectionError):
        connection.read_response()


@pytest.mark.parametrize("path", ["/silent", "/begun"])
def test_a_request_without_any_part_of_a_body_is_500(failing: RunningService, path: str) -> None:
    with Connection(failing).send(request("GET", path)) as connection:
        assert_rejected(connection.read_response(), 500, "internal_error")
        assert connection.is_closed()


def test_a_failure_after_a_response_is_logged(failing: RunningService, caplog: pytest.LogCaptureFixture) -> None:
    with Connection(failing).send(request("GET", "/responded") * 2) as connection:
        assert [connection.read_response().status for _ in range(2)] == [200] * 2
        assert connection.send(request("GET", "/responded")).read_response().status == 200
    assert caplog.text.count("The application failed") == 3


class BodyReadAfterTheClientLeft:
    """A body whose second piece arrives only after the connection was closed."""

    size = 2

    def __init__(self, exchange: Any) -> None:
        self._exchange = exchange

    async def read(self, offset: int, _: int) -> bytes:
        if offset:
            await self._exchange.wait_for_close()
            await asyncio.sleep(0)  # until the transport is closed
        return b"x"


def test_a_client_that_leaves_during_a_large_response_is_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    done = threading.Event()

    class SendingSlowly:
        async def serve(self, exchange: Any) -> None:
            await exchange.respond_from(200, b"content-length: 2\r\n", BodyReadAfterTheClientLeft(exchange))
            done.set()

    with RunningService(tmp_path) as service:
        service.replace_application(SendingSlowly())
        with Connection(service) as connection:
            connection.send(request("GET", LISTINGS))
            assert connection.socket.recv(1000)
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset on close
        assert done.wait(TIMEOUT)
    assert not caplog.records


def count_iterations_to_accept(running: RunningService, connections: int) -> int:
    """Return how many loop iterations the service needs to accept connections that are queued."""
    with ExitStack() as clients:

        async def accept(_: Any) -> int:
            for _ in range(connections):
                clients.enter_context(Connection(running))  # this blocks the loop
            iterations = 0
            while running.connection_count < connections:
                await asyncio.sleep(0)
                iterations += 1
            return iterations

        return running.run(accept)


def test_queued_connections_are_accepted_in_batches(running: RunningService) -> None:
    assert count_iterations_to_accept(running, 60) < 30


class BlockingConnection:
    """A fake connection. After its first check it blocks the loop; at the second it disappears."""

    def __init__(self, connections: set[Any]) -> None:
        self._connections = connections
        self.blocked_until = 0.0
        self.checked_again = 0.0

    def close_if_idle(self, *_: float) -> None:
        if not self.blocked_until:
            asyncio.get_running_loop().call_later(0.001, self._block)  # while the server waits for the second check
        else:
            self.checked_again = time.monotonic()
            self._connections.discard(self)

    def _block(self) -> None:
        time.sleep(0.3)
        self.blocked_until = time.monotonic()

    def ignore(self, *_: float) -> None:
        """Do nothing."""

    stop = drop = sweep = ignore


class DatedConnection(BlockingConnection):
    """A fake connection. After its first check the date is old; at the second it disappears."""

    def __init__(self, state: Any) -> None:
        super().__init__(state.connections)
        self._state = state
        self.dates: list[bytes] = []

    def close_if_idle(self, *_: float) -> None:
        self.dates.append(self._state.default_headers[0][1])
        self._state.default_headers = [(b"date", b"old")]
        if len(self.dates) == 2:
            self._connections.discard(self)


def test_responses_during_a_shutdown_have_the_current_date(tmp_path: Path) -> None:
    with RunningService(tmp_path) as service:
        state = service._server.server_state  # noqa: SLF001 - adds a fake connection
        connection: Any = DatedConnection(state)
        state.connections.add(connection)
    assert b"old" not in connection.dates


def test_responses_have_a_date_from_the_start(tmp_path: Path) -> None:
    headers: list[tuple[bytes, bytes]] = []

    async def scenario() -> None:
        def stop() -> None:
            headers.extend(server.server_state.default_headers)
            server.stop()

        server = wiring.build_server(harness.services, harness.settings, on_start=stop)
        with bind_socket("127.0.0.1", 0) as listener:
            await server.serve([listener])

    with Harness(tmp_path) as harness:
        harness.run(scenario())
    assert [name for name, _ in headers] == [b"date"]


def test_an_address_that_another_program_took_meanwhile_is_named(tmp_path: Path) -> None:
    async def scenario() -> None:
        with bind_socket("127.0.0.1", 0) as listener, bind_socket("127.0.0.1", listener.getsockname()[1]) as other:
            other.listen()
            message = rf"^Can't listen on {format_base_url(other)}: Address already in use\. Choose another"
            with pytest.raises(Problem, match=message):
                await wiring.build_server(harness.services, harness.settings).serve([listener])

    with Harness(tmp_path) as harness:
        harness.run(scenario())


def test_shutdown_reads_first_after_the_loop_was_blocked(tmp_path: Path) -> None:
    with RunningService(tmp_path) as service:
        connections: set[Any] = service._server.server_state.connections  # noqa: SLF001 - adds a fake connection
        connection = BlockingConnection(connections)
        connections.add(connection)
    assert connection.checked_again - connection.blocked_until > 0.015  # it waits 20 ms again, to read first


class LateReader:
    """An application that begins to read the body once it is released."""

    def __init__(self) -> None:
        self.started, self.released, self.received = threading.Event(), threading.Event(), threading.Event()
        self.message: Any = None

    async def serve(self, exchange: Any) -> None:
        self.started.set()
        await asyncio.to_thread(self.released.wait, TIMEOUT)
        try:
            self.message = await exchange.receive()
        finally:
            self.received.set()


def test_no_100_continue_follows_the_rejection_of_the_body(tmp_path: Path) -> None:
    application = LateReader()
    with RunningService(tmp_path) as service:
        service.replace_application(application)
        head = request("POST", "/", None, b"Transfer-Encoding: chunked", b"Expect: 100-continue")
        with Connection(service).send(head) as connection:
            assert application.started.wait(TIMEOUT)
            assert connection.send(b"not a size\r\n").read_response().status == 400
            application.released.set()
            assert application.received.wait(TIMEOUT)
    assert application.message == {"type": "http.disconnect"}
