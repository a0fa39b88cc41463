"""A worker's connection to the supervisor."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Self

from listings.http.server import Server
from listings.telemetry.metrics import Metrics
from listings.workers.protocol import (
    MAX_LINE_BYTES,
    Begin,
    Event,
    Ping,
    Pong,
    Report,
    RequestMetrics,
    Retire,
    Stop,
    decode_command,
    encode,
    read_line,
)

_CLOSE_TIMEOUT_SECONDS = 1.0

_log = logging.getLogger(__name__)


class SupervisorLink:
    """Sends events to the supervisor and executes its commands."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Use `connect` instead."""
        self._reader = reader
        self._writer = writer

    @classmethod
    @asynccontextmanager
    async def connect(cls, channel: socket.socket) -> AsyncIterator[Self]:
        """Open the link on the worker's end of the socket pair. Pending events are sent at the end."""
        reader, writer = await asyncio.open_unix_connection(sock=channel, limit=MAX_LINE_BYTES)
        try:
            yield cls(reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError, TimeoutError):  # the supervisor has ended, or does not read
                await asyncio.wait_for(writer.wait_closed(), _CLOSE_TIMEOUT_SECONDS)

    async def receive_begin(self) -> Begin | None:
        """Receive the first command, or None if the supervisor has ended."""
        line = await read_line(self._reader)
        command = decode_command(line) if line else None
        return command if isinstance(command, Begin) else None

    def send(self, event: Event) -> None:
        self._writer.write(encode(event))

    async def run_commands(self, server: Server, metrics: Metrics | None) -> None:
        """Execute the supervisor's commands. If the supervisor ends, stop the server, because nothing else would."""
        async with asyncio.TaskGroup() as tasks:
            report: asyncio.Task[None] | None = None
            while line := await read_line(self._reader):
                command = decode_command(line)
                if isinstance(command, Retire):
                    server.retire()
                elif isinstance(command, Stop):
                    server.stop()
                elif isinstance(command, Ping):
                    self.send(Pong())
                elif isinstance(command, RequestMetrics) and metrics is not None and (report is None or report.done()):
                    report = tasks.create_task(self._report(metrics))  # pings must not wait for a busy thread pool
            server.stop()

    async def _report(self, metrics: Metrics) -> None:
        try:
            self.send(Report(await asyncio.to_thread(metrics.report)))
        except Exception:  # noqa: BLE001 - it must not end the worker's commands
            _log.exception("The metrics can't be reported")
