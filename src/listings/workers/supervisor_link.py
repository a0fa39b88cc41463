"""A worker's connection to the supervisor."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol, Self

from listings.domain.errors import Problem
from listings.telemetry.metrics import Metrics
from listings.workers.protocol import (
    MAX_LINE_BYTES,
    Begin,
    Event,
    Failed,
    Ping,
    Pong,
    Ready,
    Report,
    RequestMetrics,
    Retire,
    decode_command,
    encode,
)


class Stoppable(Protocol):
    """The server of a worker. Its methods run on the event loop."""

    def stop(self) -> None:
        """Stop gracefully."""

    def retire(self) -> None:
        """Stop gracefully, with more time, because other workers keep running."""


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

    async def receive_begin(self) -> Begin | None:
        """Receive the first command, or None if the supervisor has ended."""
        line = await self._reader.readline()
        command = decode_command(line) if line else None
        return command if isinstance(command, Begin) else None

    def send_ready(self) -> None:
        """Report that the worker accepts connections."""
        self._send(Ready())

    def send_failure(self, problem: Problem) -> None:
        """Report the problem because of which the worker exits."""
        self._send(Failed(problem.code, problem.message))

    def send_report(self, metrics: Metrics) -> None:
        """Send the metrics, for the last time before the worker exits."""
        self._send(Report(metrics.report()))

    async def run_commands(self, server: Stoppable, metrics: Metrics | None) -> None:
        """Execute the supervisor's commands. If the supervisor ends, stop the server, because nothing else would."""
        while line := await self._read_line():
            command = decode_command(line)
            if isinstance(command, Retire):
                server.retire()
            elif isinstance(command, Ping):
                self._send(Pong())
            elif isinstance(command, RequestMetrics) and metrics is not None:
                self._send(Report(await asyncio.to_thread(metrics.report)))
        server.stop()

    async def _read_line(self) -> bytes:
        try:
            return await self._reader.readline()
        except ConnectionError:
            return b""

    def _send(self, event: Event) -> None:
        self._writer.write(encode(event))
