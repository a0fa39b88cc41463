"""The log: one line per request, events, and never a secret."""

import asyncio
import io
import json
import logging
import os
import re
import select
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from listings.api import app
from listings.telemetry import logs
from listings.telemetry.logs import RequestLine, RequestLog
from tests.harness import TIMEOUT, Harness, fetch


class Lines(io.BytesIO):
    """A stream that signals a write and keeps its lines."""

    def __init__(self) -> None:
        super().__init__()
        self._written = threading.Event()

    def write(self, data: Any) -> int:
        written = super().write(data)
        self._written.set()
        return written

    def wait(self) -> None:
        assert self._written.wait(TIMEOUT)

    def parse(self) -> list[Any]:
        return [json.loads(line) for line in self.getvalue().splitlines()]


@pytest.fixture(autouse=True)
def long_close_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take longer than a second to write the last lines."""
    monkeypatch.setattr(logs, "_CLOSE_TIMEOUT_SECONDS", TIMEOUT)


@pytest.fixture
def lines() -> Lines:
    return Lines()


@pytest.fixture
def log(lines: Lines) -> Iterator[RequestLog]:
    log = RequestLog(lines)
    yield log
    log.close()


def send(harness: Harness, log: RequestLog, method: str, path: str, *headers: tuple[bytes, bytes]) -> None:
    harness.application._request_log = log  # noqa: SLF001 - the harness has none
    harness.run(fetch(harness.application, method, path, list(headers), [b""]))


def test_a_line_has_the_duration_to_a_hundredth_of_a_millisecond(
    harness: Harness, log: RequestLog, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "perf_counter", iter([10.0, 10.123_456_7]).__next__)
    send(harness, log, "GET", "/healthz")
    log.close()
    assert lines.parse()[0]["milliseconds"] == 123.46


def test_a_request_has_one_line_with_its_fields(harness: Harness, log: RequestLog, lines: Lines) -> None:
    alice = harness.person("alice")
    send(
        harness,
        log,
        "GET",
        "/api/v1/listings/1025?secret=1",
        (b"x-api-key", alice.key.encode()),
        (b"x-request-id", b"r-1"),
    )
    log.close()
    (line,) = lines.parse()
    assert line.pop("milliseconds") >= 0
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "level": "info",
        "event": "request",
        "method": "GET",
        "route": "/api/v1/listings/{id}",
        "status": 404,
        "account_id": alice.account.id,
        "key_id": alice.key_id,
        "request_id": "r-1",
        "code": "listing_not_found",
    }


def test_no_line_contains_a_key_a_body_or_a_url(harness: Harness, log: RequestLog, lines: Lines) -> None:
    alice, charlie = harness.person("alice"), harness.person("charlie", -1)
    for key in (alice.key, charlie.key, "an-unknown-key-of-somebody"):
        send(harness, log, "GET", "/api/v1/listings/777777777777777", (b"authorization", b"Bearer " + key.encode()))
    log.close()
    written = lines.getvalue().decode()
    for secret in (alice.key, charlie.key, "an-unknown-key", "777777777777777", alice.account.email):
        assert secret not in written


@pytest.mark.parametrize(
    ("status", "level"),
    [(200, "info"), (404, "info"), (401, "warning"), (403, "warning"), (429, "warning"), (503, "error")],
)
def test_rejections_that_may_be_an_attack_are_warnings(status: int, level: str) -> None:
    assert logs.get_level(status) == level


def record(log: RequestLog, *statuses: int) -> None:
    async def record_all() -> None:
        for status in statuses:
            log.record(RequestLine(status=status))

    asyncio.run(record_all())


def test_a_higher_level_omits_ordinary_lines(lines: Lines) -> None:
    log = RequestLog(lines, logging.WARNING)
    record(log, 200, 403, 404, 500)
    log.close()
    assert [line["status"] for line in lines.parse()] == [403, 500]


def test_lines_are_written_before_the_log_is_closed(log: RequestLog, lines: Lines) -> None:
    async def record_and_wait() -> None:
        log.record(RequestLine(status=200))
        await asyncio.to_thread(lines.wait)

    asyncio.run(record_and_wait())
    assert len(lines.parse()) == 1


def test_no_line_is_lost_in_a_burst(log: RequestLog, lines: Lines) -> None:
    record(log, *[200] * 1_200)
    log.close()
    assert len(lines.parse()) == 1_200


def test_a_line_can_be_written_as_text(lines: Lines) -> None:
    log = RequestLog(lines, as_json=False)
    line = RequestLine(status=403, method="GET", route="/r", milliseconds=0.5, account_id=1, key_id=2, code="not_owner")
    log._lines.append(line)  # noqa: SLF001 - avoids the timestamp
    log.close()
    assert lines.getvalue() == b" [info   ] 403 GET /r not_owner  0.5 ms account 1 key 2  \n"


def test_a_blocked_stream_does_not_block_requests() -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb", buffering=0) as stream:
        log = RequestLog(stream)
        record(log, *[200] * 200_000)
        assert log._batches.qsize() <= 100  # noqa: SLF001 - the queue is bounded
        os.close(reader)
        log.close()
    assert not [thread for thread in threading.enumerate() if thread is log._thread]  # noqa: SLF001


@pytest.mark.usefixtures("restore_logging")
def test_a_blocked_stream_does_not_block_events() -> None:
    reader, writer = os.pipe()
    chunks: list[bytes] = []
    drain = threading.Thread(target=lambda: chunks.extend(iter(lambda: os.read(reader, 65_536), b"")))
    with os.fdopen(writer, "wb", buffering=0) as stream:
        logs.configure(stream, logging.INFO, as_json=True)
        with logs.write_in_thread():
            for number in range(20_000):  # more than the pipe and the queue can hold
                logging.getLogger("listings").warning("Event %s", number)
            drain.start()
    drain.join()
    os.close(reader)
    events = [json.loads(line)["event"] for line in b"".join(chunks).splitlines()]
    assert events[0] == "Event 0"
    assert 10_000 <= len(events) < 20_000


class CountedWrites(io.FileIO):
    """A file that counts the calls of `write`."""

    writes = 0

    def write(self, data: Any) -> int | None:  # type: ignore[override]  # typeshed leaves out None
        self.writes += 1
        return super().write(data)


@pytest.mark.usefixtures("restore_logging")
def test_an_event_waits_for_room_in_a_pipe_that_does_not_block() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    chunks: list[bytes] = []
    with CountedWrites(writer, "wb") as stream:
        logs.configure(stream, logging.INFO, as_json=True)
        while stream.write(bytes(select.PIPE_BUF)) is not None:
            pass
        stream.writes = 0
        thread = threading.Thread(target=logging.getLogger("listings").warning, args=("The last",))
        thread.start()
        while not stream.writes:
            time.sleep(0.001)
        drain = threading.Thread(target=lambda: chunks.extend(iter(lambda: os.read(reader, 65_536), b"")))
        drain.start()
        thread.join()
    drain.join()
    os.close(reader)
    assert stream.writes <= 3
    assert json.loads(b"".join(chunks).strip(b"\0"))["event"] == "The last"


@pytest.mark.usefixtures("restore_logging")
def test_events_written_in_a_thread_are_complete_and_in_order() -> None:
    stream = io.BytesIO()
    logs.configure(stream, logging.INFO, as_json=True)
    with logs.write_in_thread():
        for number in range(100):
            logging.getLogger("listings").info("Event %s", number)
    events = [json.loads(line)["event"] for line in stream.getvalue().splitlines()]
    assert events == [f"Event {number}" for number in range(100)]


@pytest.mark.usefixtures("restore_logging")
def test_events_and_requests_start_with_the_same_fields(log: RequestLog, lines: Lines) -> None:
    logs.configure(lines, logging.INFO, as_json=True)
    logging.getLogger("listings").info("Started")
    record(log, 200)
    log.close()
    assert [list(line)[:3] for line in lines.parse()] == [["timestamp", "level", "event"]] * 2
    assert {len(line["timestamp"]) for line in lines.parse()} == {len("2026-11-21T06:54:32Z")}


@pytest.mark.usefixtures("restore_logging")
def test_an_event_names_its_logger_operator_and_process() -> None:
    text, encoded = io.BytesIO(), io.BytesIO()
    for stream in (text, encoded):
        logs.configure(stream, logging.INFO, as_json=stream is encoded, pid=7)
        with logs.bind_operator("joe"):
            logging.getLogger("listings.x").warning("Key %d é", 5)
    line = text.getvalue().decode()
    assert re.fullmatch(r"[-\dT:]{19}Z \[warning\] listings\.x: Key 5 é  operator joe  pid 7\n", line), line
    event = json.loads(encoded.getvalue())
    del event["timestamp"]
    assert event == {"level": "warning", "event": "Key 5 é", "operator": "joe", "logger": "listings.x", "pid": 7}


def test_a_closed_stream_is_not_an_error(lines: Lines) -> None:
    log = RequestLog(lines)
    lines.close()
    record(log, 200)
    log.close()


def fail(secret: str) -> None:
    raise RuntimeError(f"of length {len(secret)}")


@pytest.mark.usefixtures("restore_logging")
@pytest.mark.parametrize("as_json", [True, False])
def test_events_have_no_local_variables_in_their_traceback(*, as_json: bool) -> None:
    stream = io.BytesIO()
    logs.configure(stream, logging.INFO, as_json=as_json)
    try:
        fail(chr(97) + "-secret-of a local variable")
    except RuntimeError:
        logging.getLogger("listings.test").exception("Request %s failed", "r-1")
    written = stream.getvalue().decode()
    assert "Request r-1 failed" in written
    assert "RuntimeError: of length 28" in written
    assert "a-secret" not in written
    if as_json:
        assert json.loads(written)["level"] == "error"


class Writes(io.BytesIO):
    """A stream that keeps the bytes of each write."""

    def __init__(self) -> None:
        super().__init__()
        self.chunks: list[bytes] = []

    def write(self, data: Any) -> int:
        self.chunks.append(bytes(data))
        return len(data)


@pytest.mark.parametrize("as_json", [True, False])
def test_many_lines_are_written_in_atomic_chunks_of_whole_lines(*, as_json: bool) -> None:
    writes = Writes()
    log = RequestLog(writes, as_json=as_json, pid=4711)

    async def record_lines() -> None:
        for number in range(400):
            log.record(RequestLine(request_id=f"{number:04}", route="/" + "x" * (number % 300)))
        log.flush()

    asyncio.run(record_lines())
    log.close()
    assert len(writes.chunks) > 10
    assert all(len(chunk) <= select.PIPE_BUF and chunk.endswith(b"\n") for chunk in writes.chunks)
    lines = b"".join(writes.chunks).splitlines()
    assert len(lines) == 400
    assert all(b"4711" in line and f"{number:04}".encode() in line for number, line in enumerate(lines))


def test_a_single_process_logs_no_pid(log: RequestLog, lines: Lines) -> None:
    async def record_lines() -> None:
        log.record(RequestLine())
        log.flush()

    asyncio.run(record_lines())
    lines.wait()
    assert "pid" not in lines.parse()[0]


@pytest.mark.usefixtures("restore_logging")
def test_an_event_has_its_pid_and_fits_in_one_atomic_write() -> None:
    stream = io.BytesIO()
    logs.configure(stream, logging.INFO, as_json=True, pid=4711)

    def fail(depth: int) -> None:
        if depth == 0:
            raise ValueError("the cause é" * 20)
        if depth % 2:  # Python omits a line that repeats
            fail(depth - 1)
        else:
            fail(depth - 1)

    try:
        fail(60)
    except ValueError:
        logging.getLogger("listings").exception("It failed")
    (line,) = stream.getvalue().splitlines()
    assert select.PIPE_BUF * 0.9 < len(line) < select.PIPE_BUF
    event = json.loads(line)
    assert (event["pid"], event["event"]) == (4711, "It failed")
    assert event["exception"].endswith("the cause é")


@pytest.mark.usefixtures("restore_logging")
def test_a_long_text_event_is_written_in_chunks_of_whole_lines() -> None:
    stream = Writes()
    logs.configure(stream, logging.INFO, as_json=False)
    logging.getLogger("listings").error("\n".join(f"line {number:04}" for number in range(1_000)))
    assert len(stream.chunks) > 2
    assert all(len(chunk) <= select.PIPE_BUF and chunk.endswith(b"\n") for chunk in stream.chunks)
    assert b"".join(stream.chunks).count(b"line ") == 1_000
