"""Answers that are sent together: when, to whom, and before what else."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from listings import wiring
from listings.http.connection import HttpConnection
from listings.http.write_buffer import AT_ONCE, MOST, WriteBuffer
from tests.harness import Harness
from tests.http.raw import request

HEALTH = request("GET", "/healthz")


class Line:
    """Stands in for a loop's transport: what was sent, in one piece for each call."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.sent.append(data)

    def writelines(self, data: tuple[bytes, bytes]) -> None:
        self.write(b"".join(data))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def write_eof(self) -> None:
        self.sent.append(b"EOF")

    def get_extra_info(self, _: str) -> None:
        return None

    def resume_reading(self) -> None:
        """Nothing is read."""

    pause_reading = resume_reading


def on_a_loop(scene: Callable[[WriteBuffer], Any]) -> None:
    async def run() -> None:
        await scene(WriteBuffer())

    asyncio.run(run())


def test_the_answers_of_a_turn_are_sent_when_all_of_them_are_made() -> None:
    async def scene(outbox: WriteBuffer) -> None:
        one, other = Line(), Line()
        for data, line in ((b"1", one), (b"2", other), (b"3", one)):
            outbox.put(line, data)
        assert (one.sent, other.sent) == ([], [])
        await asyncio.sleep(0)
        assert (one.sent, other.sent) == ([b"1", b"3"], [b"2"])
        await asyncio.sleep(0)
        assert len(one.sent) == 2

    on_a_loop(scene)


def test_after_an_answer_that_was_alone_in_its_turn_the_next_ones_wait_for_nothing() -> None:
    async def scene(outbox: WriteBuffer) -> None:
        line = Line()
        for span in (*AT_ONCE, *AT_ONCE):
            outbox.put(line, b"alone")
            await asyncio.sleep(0)
            line.sent.clear()
            for number in range(1, span + 1):
                outbox.put(line, b"at once")
                assert len(line.sent) == number
        line.sent.clear()
        outbox.put(line, b"waits")
        outbox.put(line, b"so does this")
        assert line.sent == []
        await asyncio.sleep(0)
        outbox.put(line, b"still together")
        assert line.sent == [b"waits", b"so does this"]

    on_a_loop(scene)


def test_the_last_of_many_was_not_alone_in_its_turn() -> None:
    async def scene(outbox: WriteBuffer) -> None:
        line = Line()
        for _ in range(MOST + 1):
            outbox.put(line, b"x")
        await asyncio.sleep(0)
        outbox.put(line, b"waits")
        assert line.sent == [b"x"] * (MOST + 1)

    on_a_loop(scene)


def test_a_client_whose_turns_are_always_as_long_is_found_out_all_the_same() -> None:
    async def scene(outbox: WriteBuffer) -> None:
        line = Line()
        outbox.put(line, b"alone")
        await asyncio.sleep(0)
        at_once = 0
        for _ in range(3):
            line.sent.clear()
            for _ in range(AT_ONCE[0] + 1):
                outbox.put(line, b"x")
            at_once = len(line.sent)
            await asyncio.sleep(0)
        assert at_once == MOST  # by the bound alone, not one by one
        line.sent.clear()
        outbox.put(line, b"waits")
        assert line.sent == []

    on_a_loop(scene)


def test_nobody_waits_for_more_than_a_few_others() -> None:
    async def scene(outbox: WriteBuffer) -> None:
        lines = [Line() for _ in range(MOST + 1)]
        for line in lines:
            outbox.put(line, b"x")
        assert [len(line.sent) for line in lines] == [1] * MOST + [0]
        await asyncio.sleep(0)
        assert lines[-1].sent == [b"x"]

    on_a_loop(scene)


def test_whoever_has_gone_gets_nothing_and_keeps_no_other_from_an_answer() -> None:
    async def scene(outbox: WriteBuffer) -> None:
        gone, there = Line(), Line()
        outbox.put(gone, b"x")
        outbox.put(there, b"x")
        gone.close()
        await asyncio.sleep(0)
        assert (gone.sent, there.sent) == ([], [b"x"])

    on_a_loop(scene)


def test_a_connection_that_takes_nothing_is_ended_and_keeps_no_other_from_an_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Ended(Line):
        def write(self, _: bytes) -> None:
            raise RuntimeError("Cannot call write() after write_eof()")

    async def scene(outbox: WriteBuffer) -> None:
        ended, there = Ended(), Line()
        outbox.put(ended, b"x")
        outbox.put(there, b"x")
        outbox.flush()
        assert (ended.closed, there.sent) == (True, [b"x"])

    on_a_loop(scene)
    assert "An answer could not be sent" in caplog.text


def test_a_long_body_goes_out_with_its_head() -> None:
    async def scene(outbox: WriteBuffer) -> None:
        line = Line()
        outbox.put(line, (b"head", b"body"))
        outbox.flush()
        assert line.sent == [b"headbody"]

    on_a_loop(scene)


ENDS: dict[str, Callable[[HttpConnection], object]] = {
    "the client has sent its last": HttpConnection.eof_received,
    "the client sends what is no HTTP": lambda connection: connection.data_received(b"?\r\n\r\n"),
    "it is closed": HttpConnection.close,
    "it has been idle for too long": lambda connection: connection.sweep(float("inf")),
    "the service stops": lambda connection: connection.end_quiet(float("inf"), 1),
    "more is written": lambda connection: connection.write(b"more"),
}


async def connected(harness: Harness) -> tuple[Any, Line]:
    """A connection without a network, and what it sends."""
    server = wiring.server(harness.service, harness.settings)
    server.config.load()
    connection: Any = server._protocol()  # noqa: SLF001 - as the server makes one for each client
    line = Line()
    connection.connection_made(line)
    return connection, line


@pytest.mark.parametrize("end", ENDS.values(), ids=list(ENDS))
def test_an_answer_that_waits_is_sent_before_anything_else_is_done_with_its_connection(
    tmp_path: Path, end: Callable[[HttpConnection], object]
) -> None:
    async def scene() -> bytes:
        connection, line = await connected(harness)
        connection.data_received(HEALTH)
        assert line.sent == []
        end(connection)
        return line.sent[0]

    with Harness(tmp_path) as harness:
        assert harness.run(scene()).endswith(b'{"status":"ok"}')


def test_a_connection_that_lingers_for_a_body_is_ended_behind_its_answer(tmp_path: Path) -> None:
    async def scene() -> list[bytes]:
        connection, line = await connected(harness)
        unfinished = request("POST", "/api/v1/listings", None, b"Connection: close", b"Content-Length: 9")
        connection.data_received(unfinished)
        return line.sent

    with Harness(tmp_path) as harness:
        answer, end = harness.run(scene())
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert end == b"EOF"
