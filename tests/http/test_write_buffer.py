"""Buffered responses: when they are sent, and in which order."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from listings import wiring
from listings.http.connection.protocol import HttpConnection
from listings.http.connection.write_buffer import MAX_BUFFERED, UNBUFFERED_RUNS, WriteBuffer
from tests.harness import Harness
from tests.http.raw import request

HEALTH = request("GET", "/healthz")
SILENT: list[socket.socket] = []


@pytest.fixture(scope="module", autouse=True)
def _silent_sockets() -> Iterator[None]:
    SILENT[:] = socket.socketpair()
    yield
    for end in SILENT:
        end.close()


class FakeTransport:
    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.closed = False

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.sent.append(data)

    def writelines(self, data: tuple[bytes, bytes]) -> None:
        self.write(b"".join(data))

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def write_eof(self) -> None:
        self.sent.append(b"EOF")

    def get_extra_info(self, _: str) -> socket.socket:
        return SILENT[0]

    def resume_reading(self) -> None:
        """Do nothing."""

    pause_reading = resume_reading


def run_on_a_loop(scenario: Callable[[WriteBuffer], Any]) -> None:
    async def run() -> None:
        await scenario(WriteBuffer())

    asyncio.run(run())


def test_responses_are_sent_at_the_end_of_the_iteration() -> None:
    async def scenario(buffer: WriteBuffer) -> None:
        one, other = FakeTransport(), FakeTransport()
        for data, transport in ((b"1", one), (b"2", other), (b"3", one)):
            buffer.put(transport, data)
        assert (one.sent, other.sent) == ([], [])
        await asyncio.sleep(0)
        assert (one.sent, other.sent) == ([b"1", b"3"], [b"2"])
        await asyncio.sleep(0)
        assert len(one.sent) == 2

    run_on_a_loop(scenario)


def test_after_a_single_response_the_next_ones_are_not_buffered() -> None:
    async def scenario(buffer: WriteBuffer) -> None:
        transport = FakeTransport()
        for length in (*UNBUFFERED_RUNS, *UNBUFFERED_RUNS):
            buffer.put(transport, b"alone")
            await asyncio.sleep(0)
            transport.sent.clear()
            for number in range(1, length + 1):
                buffer.put(transport, b"direct")
                assert len(transport.sent) == number
        transport.sent.clear()
        buffer.put(transport, b"waits")
        buffer.put(transport, b"so does this")
        assert transport.sent == []
        await asyncio.sleep(0)
        buffer.put(transport, b"still together")
        assert transport.sent == [b"waits", b"so does this"]

    run_on_a_loop(scenario)


def test_the_last_of_many_responses_is_not_a_single_one() -> None:
    async def scenario(buffer: WriteBuffer) -> None:
        transport = FakeTransport()
        for _ in range(MAX_BUFFERED + 1):
            buffer.put(transport, b"x")
        await asyncio.sleep(0)
        buffer.put(transport, b"waits")
        assert transport.sent == [b"x"] * (MAX_BUFFERED + 1)

    run_on_a_loop(scenario)


def test_iterations_of_constant_length_are_still_buffered() -> None:
    async def scenario(buffer: WriteBuffer) -> None:
        transport = FakeTransport()
        buffer.put(transport, b"alone")
        await asyncio.sleep(0)
        sent = 0
        for _ in range(3):
            transport.sent.clear()
            for _ in range(UNBUFFERED_RUNS[0] + 1):
                buffer.put(transport, b"x")
            sent = len(transport.sent)
            await asyncio.sleep(0)
        assert sent == MAX_BUFFERED  # only a full buffer is sent early, not each response
        transport.sent.clear()
        buffer.put(transport, b"waits")
        assert transport.sent == []

    run_on_a_loop(scenario)


def test_a_full_buffer_is_sent_immediately() -> None:
    async def scenario(buffer: WriteBuffer) -> None:
        transports = [FakeTransport() for _ in range(MAX_BUFFERED + 1)]
        for transport in transports:
            buffer.put(transport, b"x")
        assert [len(transport.sent) for transport in transports] == [1] * MAX_BUFFERED + [0]
        await asyncio.sleep(0)
        assert transports[-1].sent == [b"x"]

    run_on_a_loop(scenario)


def test_a_closed_connection_does_not_affect_others() -> None:
    async def scenario(buffer: WriteBuffer) -> None:
        gone, open_one = FakeTransport(), FakeTransport()
        buffer.put(gone, b"x")
        buffer.put(open_one, b"x")
        gone.close()
        await asyncio.sleep(0)
        assert (gone.sent, open_one.sent) == ([], [b"x"])

    run_on_a_loop(scenario)


def test_a_failing_connection_is_closed_and_does_not_affect_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Failing(FakeTransport):
        def write(self, _: bytes) -> None:
            raise RuntimeError("Cannot call write() after write_eof()")

    async def scenario(buffer: WriteBuffer) -> None:
        failing, open_one = Failing(), FakeTransport()
        buffer.put(failing, b"x")
        buffer.put(open_one, b"x")
        buffer.flush()
        assert (failing.closed, open_one.sent) == (True, [b"x"])

    run_on_a_loop(scenario)
    assert "Sending a response failed" in caplog.text


def test_a_large_body_is_sent_with_its_head() -> None:
    async def scenario(buffer: WriteBuffer) -> None:
        transport = FakeTransport()
        buffer.put(transport, (b"head", b"body"))
        buffer.flush()
        assert transport.sent == [b"headbody"]

    run_on_a_loop(scenario)


ENDS: dict[str, Callable[[HttpConnection], object]] = {
    "the client shuts down its side": HttpConnection.eof_received,
    "the client sends invalid HTTP": lambda connection: connection.data_received(b"?\r\n\r\n"),
    "the connection is closed": HttpConnection.close,
    "the idle timeout expires": lambda connection: connection.sweep(float("inf")),
    "the service shuts down": lambda connection: connection.close_if_idle(float("inf"), 1),
    "more data is written": lambda connection: connection.write(b"more"),
}


async def connect(harness: Harness) -> tuple[Any, FakeTransport]:
    """Return a connection without a network, and its transport."""
    server = wiring.build_server(harness.services, harness.settings)
    server.config.load()
    await server.on_tick(0)  # sets the date
    connection: Any = server._build_protocol()  # noqa: SLF001 - as the server does for each client
    transport = FakeTransport()
    connection.connection_made(transport)
    return connection, transport


@pytest.mark.parametrize("end", ENDS.values(), ids=list(ENDS))
def test_a_buffered_response_is_sent_before_anything_else(
    tmp_path: Path, end: Callable[[HttpConnection], object]
) -> None:
    async def scenario() -> bytes:
        connection, transport = await connect(harness)
        connection.data_received(HEALTH)
        assert transport.sent == []
        end(connection)
        return transport.sent[0]

    with Harness(tmp_path) as harness:
        assert harness.run(scenario()).endswith(b'{"status":"ok"}')


@pytest.mark.parametrize("path", ["/healthz", "/openapi.json"])
def test_all_bytes_of_a_response_count_as_written(tmp_path: Path, path: str) -> None:
    async def scenario() -> tuple[int, int]:
        connection, transport = await connect(harness)
        connection.data_received(request("GET", path))
        connection.write_buffer.flush()
        return connection._written_bytes, len(b"".join(transport.sent))  # noqa: SLF001 - the measured value

    with Harness(tmp_path) as harness:
        counted, sent = harness.run(scenario())
    assert counted == sent > 200


def test_a_lingering_connection_is_shut_down_after_its_response(tmp_path: Path) -> None:
    async def scenario() -> list[bytes]:
        connection, transport = await connect(harness)
        unfinished = request("POST", "/api/v1/listings", None, b"Connection: close", b"Content-Length: 9")
        connection.data_received(unfinished)
        return transport.sent

    with Harness(tmp_path) as harness:
        response, end = harness.run(scenario())
    assert response.startswith(b"HTTP/1.1 401 ")
    assert end == b"EOF"
