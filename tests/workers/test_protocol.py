"""Tests of the lines between supervisor and worker."""

import asyncio
import socket
import sys
import threading
from typing import Any, cast

import pytest

from listings.domain.errors import Problem
from listings.telemetry.metrics import Family
from listings.workers.protocol import Event, Ping, Pong, Ready, Report, RequestMetrics, decode_event, encode, read_line
from listings.workers.supervisor_link import SupervisorLink
from listings.workers.worker import Worker
from tests.harness import TIMEOUT


@pytest.mark.parametrize(
    "rest", [b"", encode(Ready())[:-1], b'{"type":"rep', b"x" * 200], ids=["end", "a", "b", "long"]
)
def test_the_last_line_ends_with_the_connection(rest: bytes) -> None:
    async def read_all() -> list[bytes]:
        reader = asyncio.StreamReader(limit=100)
        reader.feed_data(encode(Pong()) + rest)
        reader.feed_eof()
        return [await read_line(reader), await read_line(reader)]

    first, last = asyncio.run(read_all())
    assert (decode_event(first), last) == (Pong(), b"")


NEWER_WORKER = """
import socket, sys
worker = socket.socket(fileno=int(sys.argv[1]))
worker.sendall(b'{"type": "unknown"}\\n{"type": "refused", "code": "unknown", "message": "the reason"}\\n')
"""


def test_a_worker_of_a_newer_version_may_send_unknown_events_and_codes(caplog: pytest.LogCaptureFixture) -> None:
    async def start() -> None:
        with socket.socket() as listener:
            worker = await Worker.start([sys.executable, "-c", NEWER_WORKER], {}, listener, lambda *_: None)
            await worker.wait_until_ready()

    with pytest.raises(Problem, match="the reason") as raised:
        asyncio.run(asyncio.wait_for(start(), TIMEOUT))
    assert raised.value.code == "unavailable"
    assert "sent an unknown event" in caplog.text


class StoppableServer:
    """A server that only records whether it was stopped."""

    def __init__(self) -> None:
        self.is_stopped = False

    def stop(self) -> None:
        self.is_stopped = True


class SlowMetrics:
    """Metrics whose first report waits for `may_report` and fails."""

    def __init__(self) -> None:
        self.may_report = threading.Event()
        self._reports = 0

    def report(self) -> list[Family]:
        self._reports += 1
        if self._reports == 1:
            self.may_report.wait(TIMEOUT)
            raise OSError("the disk fails")
        return []


def test_a_slow_or_failed_report_delays_no_ping(caplog: pytest.LogCaptureFixture) -> None:
    server, metrics = StoppableServer(), SlowMetrics()

    async def run_scenario() -> None:
        own_end, worker_end = socket.socketpair()
        reader, writer = await asyncio.open_unix_connection(sock=own_end)

        async def receive() -> Event:
            return decode_event(await read_line(reader))

        async with SupervisorLink.connect(worker_end) as link:
            commands = asyncio.create_task(link.run_commands(cast("Any", server), cast("Any", metrics)))
            writer.write(encode(RequestMetrics()) + encode(RequestMetrics()) + encode(Ping()))
            assert await receive() == Pong()
            metrics.may_report.set()
            while "The metrics can't be reported" not in caplog.text:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.01)
            writer.write(encode(RequestMetrics()))
            assert await receive() == Report([])
            writer.write(encode(Ping()))
            assert await receive() == Pong()
            writer.close()
            await commands

    asyncio.run(asyncio.wait_for(run_scenario(), TIMEOUT))
    assert server.is_stopped
    assert caplog.text.count("OSError: the disk fails") == 1
