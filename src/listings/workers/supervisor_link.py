"""A worker's connection to the supervisor."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Self

from listings.http.server import Server
from listings.telemetry.metrics import Metrics
from listings.workers import protocol

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
        reader, writer = await asyncio.open_unix_connection(sock=channel, limit=protocol.MAX_LINE_BYTES)
        try:
            yield cls(reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError, TimeoutError):  # the supervisor has ended, or does not read
                await asyncio.wait_for(writer.wait_closed(), _CLOSE_TIMEOUT_SECONDS)

    async def receive_begin(self) -> protocol.Begin | None:
        """Receive the first command, or None if the supervisor has ended."""
        line = await protocol.read_line(self._reader)
        command = protocol.decode_command(line) if line else None
        return command if isinstance(command, protocol.Begin) else None

    def send(self, event: protocol.Event) -> None:
        self._writer.write(protocol.encode(event))

    async def run_commands(self, server: Server, metrics: Metrics | None) -> None:
        """Execute the supervisor's commands. If the supervisor ends, stop the server, because nothing else would."""
        async with asyncio.TaskGroup() as tasks:
            report: asyncio.Task[None] | None = None
            while line := await protocol.read_line(self._reader):
                command = protocol.decode_command(line)
                if isinstance(command, protocol.Retire):
                    server.retire()
                elif isinstance(command, protocol.Stop):
                    server.stop()
                elif isinstance(command, protocol.Ping):
                    self.send(protocol.Pong())
                elif (
                    isinstance(command, protocol.RequestMetrics)
                    and metrics is not None
                    and (report is None or report.done())
                ):
                    report = tasks.create_task(self._report(metrics))  # pings must not wait for a busy thread pool
            server.stop()

    async def _report(self, metrics: Metrics) -> None:
        try:
            self.send(protocol.Report(await asyncio.to_thread(metrics.report)))
        except Exception:  # noqa: BLE001 - it must not end the worker's commands
            _log.exception("The metrics can't be reported")
