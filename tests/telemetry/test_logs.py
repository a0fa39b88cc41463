"""What is logged: one line a request, events, and never a secret."""

import asyncio
import io
import json
import logging
import os
import select
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from listings.api import app
from listings.telemetry import logs
from listings.telemetry.logs import RequestLine, RequestLog
from tests.harness import TIMEOUT, Harness, fetch


class Lines(io.BytesIO):
    """A stream whose lines can be waited for, and read after the log was closed."""

    def __init__(self) -> None:
        super().__init__()
        self._written = threading.Event()

    def flush(self) -> None:
        self._written.set()

    def wait(self) -> None:
        assert self._written.wait(TIMEOUT)

    def parsed(self) -> list[Any]:
        return [json.loads(line) for line in self.getvalue().splitlines()]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that stands still a second is nothing."""
    monkeypatch.setattr(logs, "_LAST_SECONDS", TIMEOUT)


@pytest.fixture
def lines() -> Lines:
    return Lines()


@pytest.fixture
def log(lines: Lines) -> Iterator[RequestLog]:
    log = RequestLog(lines)
    yield log
    log.close()


def send(harness: Harness, log: RequestLog, method: str, path: str, *headers: tuple[bytes, bytes]) -> None:
    harness.application._request_log = log  # noqa: SLF001 - the house is built without one
    harness.run(fetch(harness.application, method, path, list(headers), [b""]))


def test_a_line_tells_how_long_the_request_took_to_the_hundredth_of_a_millisecond(
    harness: Harness, log: RequestLog, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "perf_counter", iter([10.0, 10.123_456_7]).__next__)
    send(harness, log, "GET", "/healthz")
    log.close()
    assert lines.parsed()[0]["milliseconds"] == 123.46


def test_a_request_has_one_line_with_all_that_is_needed(harness: Harness, log: RequestLog, lines: Lines) -> None:
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
    (line,) = lines.parsed()
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


def test_no_line_holds_a_key_a_body_or_an_address(harness: Harness, log: RequestLog, lines: Lines) -> None:
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
def test_refusals_that_may_be_an_attack_are_warnings(status: int, level: str) -> None:
    assert logs.level_of(status) == level


def note(log: RequestLog, *statuses: int) -> None:
    async def note_all() -> None:
        for status in statuses:
            log.note(RequestLine(status=status))

    asyncio.run(note_all())


def test_a_higher_level_leaves_out_what_is_ordinary(lines: Lines) -> None:
    log = RequestLog(lines, logging.WARNING)
    note(log, 200, 403, 404, 500)
    log.close()
    assert [line["status"] for line in lines.parsed()] == [403, 500]


def test_lines_are_written_without_waiting_for_the_end(log: RequestLog, lines: Lines) -> None:
    async def note_and_wait() -> None:
        log.note(RequestLine(status=200))
        await asyncio.to_thread(lines.wait)

    asyncio.run(note_and_wait())
    assert len(lines.parsed()) == 1


def test_many_lines_are_written_at_once(log: RequestLog, lines: Lines) -> None:
    note(log, *[200] * 1_200)
    log.close()
    assert len(lines.parsed()) == 1_200


def test_on_a_terminal_a_line_is_for_people(lines: Lines) -> None:
    log = RequestLog(lines, as_json=False)
    line = RequestLine(status=403, method="GET", route="/r", milliseconds=0.5, account_id=1, key_id=2, code="not_owner")
    log._lines.append(line)  # noqa: SLF001 - without the time of day
    log.close()
    assert lines.getvalue() == b" [info   ] 403 GET /r not_owner  0.5 ms account 1 key 2  \n"


def test_a_stream_that_nobody_reads_holds_nothing_up() -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb", buffering=0) as stream:
        log = RequestLog(stream)
        note(log, *[200] * 200_000)
        assert log._batches.qsize() <= 100  # noqa: SLF001 - the bound of what waits
        os.close(reader)
        log.close()
    assert not [thread for thread in threading.enumerate() if thread is log._thread]  # noqa: SLF001


def test_a_stream_that_is_gone_is_no_fault(lines: Lines) -> None:
    log = RequestLog(lines)
    lines.close()
    note(log, 200)
    log.close()


def fail(secret: str) -> None:
    raise RuntimeError(f"of length {len(secret)}")


@pytest.mark.usefixtures("logging_kept")
@pytest.mark.parametrize("as_json", [True, False])
def test_events_and_failures_go_to_the_stream_without_local_variables(*, as_json: bool) -> None:
    stream = io.StringIO()
    logs.configure(stream, logging.INFO, as_json=as_json)
    try:
        fail(chr(97) + "-secret-of a local variable")
    except RuntimeError:
        logging.getLogger("listings.test").exception("Request %s failed", "r-1")
    written = stream.getvalue()
    assert "Request r-1 failed" in written
    assert "RuntimeError: of length 28" in written
    assert "a-secret" not in written
    if as_json:
        assert json.loads(written)["level"] == "error"


# Several processes on one stream


class Writes(io.BytesIO):
    """A stream that remembers what was written at once."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []

    def flush(self) -> None:
        if written := self.getvalue():
            self.pieces.append(written)
            self.seek(0)
            self.truncate()


@pytest.mark.parametrize("as_json", [True, False])
def test_many_lines_are_written_in_pieces_of_whole_lines_that_the_kernel_does_not_mix(*, as_json: bool) -> None:
    writes = Writes()
    log = RequestLog(writes, as_json=as_json, pid=4711)

    async def note() -> None:
        for number in range(400):
            log.note(RequestLine(request_id=f"{number:04}", route="/" + "x" * (number % 300)))
        log.flush()

    asyncio.run(note())
    log.close()
    assert len(writes.pieces) > 10
    assert all(len(piece) <= select.PIPE_BUF and piece.endswith(b"\n") for piece in writes.pieces)
    lines = b"".join(writes.pieces).splitlines()
    assert len(lines) == 400
    assert all(b"4711" in line and f"{number:04}".encode() in line for number, line in enumerate(lines))


def test_a_single_process_is_not_named(log: RequestLog, lines: Lines) -> None:
    async def note() -> None:
        log.note(RequestLine())
        log.flush()

    asyncio.run(note())
    lines.wait()
    assert "pid" not in lines.parsed()[0]


@pytest.mark.usefixtures("logging_kept")
def test_an_event_names_its_process_and_fits_into_one_write_however_deep_its_traceback() -> None:
    stream = io.StringIO()
    logs.configure(stream, logging.INFO, as_json=True, pid=4711)

    def fail(depth: int) -> None:
        if depth == 0:
            raise ValueError("the cause é" * 20)
        if depth % 2:  # one line that repeats would be left out
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


@pytest.mark.usefixtures("logging_kept")
def test_a_long_event_for_people_is_written_in_pieces_of_whole_lines() -> None:
    stream = Writes()
    text = io.TextIOWrapper(stream, encoding="utf-8", write_through=True)
    logs.configure(text, logging.INFO, as_json=False)
    logging.getLogger("listings").error("\n".join(f"line {number:04}" for number in range(1_000)))
    assert len(stream.pieces) > 2
    assert all(len(piece) <= select.PIPE_BUF and piece.endswith(b"\n") for piece in stream.pieces)
    assert b"".join(stream.pieces).count(b"line ") == 1_000
