"""Pipelined requests: their order, and how much is read ahead (RFC 9112, 9.3.2)."""

import asyncio
import fcntl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from listings.http.connection import protocol
from listings.http.connection.protocol import HttpConnection
from tests.conftest import Client
from tests.harness import TIMEOUT, RunningService
from tests.http.raw import Connection, assert_rejected, request

LISTINGS = "/api/v1/listings"


def test_pipelined_requests_get_responses_in_order(running: RunningService, alice: Client) -> None:
    ids = [alice.create(title=f"Number {number}") for number in range(20)]
    messages = [request("GET", f"{LISTINGS}/{listing}", alice.person.key) for listing in ids]
    with Connection(running).send(b"".join(messages)) as connection:
        assert [connection.read_response().json()["id"] for _ in ids] == ids


def test_many_pipelined_requests_get_responses_in_order(running: RunningService, alice: Client) -> None:
    # Some of them wait for the disk and some do not. Run recursively, they would exceed Python's stack.
    listing, titles = alice.create(title="0"), [str(number) for number in range(1, 301)]
    messages = []
    for title in titles:
        change = b'{"title": "%b"}' % title.encode()
        messages.append(request("PATCH", f"{LISTINGS}/{listing}", alice.person.key, body=change))
        messages += [request("GET", f"{LISTINGS}/{listing}", alice.person.key), request("GET", "/healthz")]
    with Connection(running).send(b"".join(messages)) as connection:
        responses = [connection.read_response().json() for _ in messages]
    assert [response["title"] for response in responses[1::3]] == titles
    assert all(response == {"status": "ok"} for response in responses[2::3])


def test_garbage_after_valid_requests_is_rejected_last(running: RunningService, alice: Client) -> None:
    body = b'{"title": "Pipelined", "content": "before the garbage"}'
    valid = [request("POST", LISTINGS, alice.person.key, body=body) for _ in range(5)]
    with Connection(running).send(b"".join(valid) + b"\x00garbage\r\n\r\n") as connection:
        assert [connection.read_response().status for _ in valid] == [201] * 5
        assert_rejected(connection.read_response(), 400, "malformed_request")
        assert connection.is_closed()


def test_a_broken_body_after_a_valid_request_is_rejected_in_order(running: RunningService, alice: Client) -> None:
    valid = request("POST", LISTINGS, alice.person.key, body=b'{"title": "Good", "content": "c"}')
    broken = request("POST", LISTINGS, alice.person.key, b"Transfer-Encoding: chunked")
    broken += b'21\r\n{"title": "Broken", "content": "c"}\r\nnonsense\r\n\r\n'
    with Connection(running).send(valid + broken) as connection:
        assert connection.read_response().status == 201
        assert_rejected(connection.read_response(), 400, "malformed_request")
    assert [listing["title"] for listing in alice.get().json()["listings"]] == ["Good"]


def test_a_request_after_connection_close_is_ignored(running: RunningService) -> None:
    last = request("GET", "/healthz", None, b"Connection: close")
    with Connection(running).send(last + request("GET", "/healthz")) as connection:
        assert connection.read_response().headers["connection"] == "close"
        assert connection.is_closed()


READ_BYTES = 256_000  # that uvloop reads at a time, at most


class PipelineCounter:
    """An application with empty responses that records the longest pipeline."""

    def __init__(self) -> None:
        self.max_waiting = 0

    async def serve(self, exchange: Any) -> None:
        self.max_waiting = max(self.max_waiting, len(exchange._connection.queued))  # noqa: SLF001 - this is under test
        await exchange.respond(200, b"content-length: 0\r\n", b"")


def send_pipeline(folder: Path, application: Any, message: bytes, count: int) -> None:
    with RunningService(folder) as service:
        service.replace_application(application)
        with Connection(service) as connection, ThreadPoolExecutor(1) as sender:
            sending = sender.submit(connection.socket.sendall, message * count)
            assert all(connection.read_response().status == 200 for _ in range(count))
            sending.result()


def test_reading_pauses_while_responses_are_pending(tmp_path: Path) -> None:
    message, counter = request("GET", "/", None, b"X-A: " + b"a" * 4000), PipelineCounter()
    send_pipeline(tmp_path, counter, message, 4000)
    assert 8 < counter.max_waiting <= 2 * READ_BYTES / len(message)


class SlowReader:
    """An application that waits after it has received a body. It records how many bytes are unparsed then."""

    def __init__(self) -> None:
        self.max_waiting = 0

    async def serve(self, exchange: Any) -> None:
        await exchange.receive()
        await asyncio.sleep(0.001)
        self.max_waiting = max(self.max_waiting, len(exchange._connection._unparsed))  # noqa: SLF001 - the measured value
        await exchange.respond(200, b"content-length: 0\r\n", b"")


def test_no_more_is_read_behind_a_body_that_is_complete(tmp_path: Path) -> None:
    message, reader = request("POST", "/", None, b"X-A: " + b"a" * 4000, body=b"1"), SlowReader()
    send_pipeline(tmp_path, reader, message, 500)
    assert READ_BYTES / 4 < reader.max_waiting <= 2 * READ_BYTES


CHUNKED = b"Transfer-Encoding: chunked"


def build_chunked(body: bytes) -> bytes:
    return request("POST", "/", None, CHUNKED) + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


@pytest.mark.parametrize("head", [b"", b"Connection: Upgrade\r\nUpgrade: x\r\n"], ids=["short", "upgrades"])
@pytest.mark.parametrize(
    "first",
    [b"", request("POST", "/", body=b"x" * 1500), build_chunked(b"x" * 1500)],
    ids=["alone", "after a body", "after chunks"],
)
def test_few_of_the_requests_in_one_read_are_queued(tmp_path: Path, head: bytes, first: bytes) -> None:
    message, count, application = b"GET / HTTP/1.1\r\nHost: a\r\n" + head + b"\r\n", 3000, PipelineCounter()
    with RunningService(tmp_path) as service:
        service.replace_application(application)
        with Connection(service).send(first + message * count) as connection:
            assert all(connection.read_response().status == 200 for _ in range(count + bool(first)))
    assert application.max_waiting <= 12 + 64 // len(message) + 1


class BodyReader:
    async def serve(self, exchange: Any) -> None:
        while (await exchange.receive()).get("more_body"):
            pass
        await exchange.respond(200, b"content-length: 0\r\n", b"")


LARGE_BODY = b"\r\n\r\n" * 50_000


@pytest.mark.as_written
@pytest.mark.parametrize(
    "message",
    [request("POST", "/", body=LARGE_BODY), build_chunked(b"x" * len(LARGE_BODY))],
    ids=["with its length", "chunked"],
)
def test_a_large_body_is_received_in_large_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, message: bytes
) -> None:
    sizes, receive_body = list[int](), HttpConnection.receive_body

    def record_size(connection: HttpConnection, part: bytes) -> None:
        sizes.append(len(part))
        receive_body(connection, part)

    monkeypatch.setattr(HttpConnection, "receive_body", record_size)
    with RunningService(tmp_path) as service:
        service.replace_application(BodyReader())
        with Connection(service).send(message) as connection:
            assert connection.read_response().status == 200
    assert sum(sizes) == len(LARGE_BODY)
    assert len(sizes) < 50


def test_a_long_poll_with_many_requests_behind_it_gets_all_responses(running: RunningService, alice: Client) -> None:
    waiting = request("GET", "/api/v1/changes?after=0&timeout=1", alice.person.key)
    with Connection(running).send(waiting + request("GET", "/healthz") * 5000) as connection:
        assert [connection.read_response().status for _ in range(5001)] == [200] * 5001


class HeldApplication:
    """An application that responds to /wait once it is released, and otherwise with a megabyte."""

    def __init__(self) -> None:
        self.has_queued, self.released = threading.Event(), threading.Event()

    async def serve(self, exchange: Any) -> None:
        body = b""
        if exchange.path == "/wait":
            while not exchange._connection.queued:  # noqa: ASYNC110, SLF001 - then it reads no more
                await asyncio.sleep(0.001)
            self.has_queued.set()
            await asyncio.to_thread(self.released.wait, TIMEOUT)
        else:
            body = b"x" * 1_000_000
        await exchange.respond(200, b"content-length: %d\r\n" % len(body), body)


def test_the_last_response_arrives_although_a_later_request_is_unread(tmp_path: Path) -> None:
    application = HeldApplication()
    with RunningService(tmp_path) as service:
        service.replace_application(application)
        with Connection(service, receive_buffer=4096) as connection:
            connection.send(request("GET", "/wait") + request("GET", "/", None, b"Connection: close"))
            assert application.has_queued.wait(TIMEOUT)
            connection.send(request("GET", "/"))
            application.released.set()
            assert connection.read_response().body == b""
            assert len(connection.read_response().body) == 1_000_000
            assert connection.is_closed()


class FailingApplication:
    async def serve(self, exchange: Any) -> None:
        raise RuntimeError(exchange.path)


@pytest.mark.as_written
def test_a_closed_connection_discards_waiting_requests_and_later_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "DISCARD_SECONDS", 0.5)
    messages = request("GET", "/") * 3000
    with RunningService(tmp_path) as service:
        service.replace_application(FailingApplication())
        with Connection(service).send(messages) as connection:
            assert connection.read_response().status == 500
            with suppress(OSError):
                connection.send(messages)
            end = time.monotonic() + TIMEOUT
            while service.connection_count:
                assert time.monotonic() < end
                time.sleep(0.05)


def test_waiting_requests_that_take_too_much_memory_are_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "_MAX_WAITING_BYTES", 180_000)
    with RunningService(tmp_path) as service, ExitStack() as stack:
        key = service.cast().alice.key
        small = request("POST", LISTINGS, key, body=b'{"title": "Waits", "content": "for the write lock"}')
        # TCP delivers this in one piece. Reading pauses after the head, so only a first part of more may be read.
        large = request("POST", LISTINGS, key, body=b'{"title": "Large", "content": "%b"}' % (b"x" * 20_000))
        lock = stack.enter_context(Path(f"{service.settings.file}.lock").open())
        fcntl.flock(lock, fcntl.LOCK_EX)
        connections = []
        for count in range(1, 11):
            connections.append(stack.enter_context(Connection(service)).send(small + large))
            end = time.monotonic() + TIMEOUT
            while service.count_waiting_bytes() < min(count, 7) * 20_000:
                assert time.monotonic() < end
        for _ in range(3):  # until the bytes that were sent before are received
            with Connection(service).send(request("GET", "/healthz")) as connection:
                assert connection.read_response().status == 200
        fcntl.flock(lock, fcntl.LOCK_UN)
        statuses = [[connection.read_response().status for _ in range(2)] for connection in connections]
        assert statuses == [[201, 201]] * 7 + [[201, 503]] * 3
        with Connection(service).send(small + large) as connection:
            assert [connection.read_response().status for _ in range(2)] == [201, 201]
        assert service.count_waiting_bytes() == 0
