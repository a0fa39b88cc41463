"""The supervisor as a worker sees it."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol, Self

from listings.domain.errors import Problem
from listings.telemetry.metrics import Metrics
from listings.workers.protocol import LONGEST, Ask, Begin, News, Ready, Refused, Report, Retire, line_of, order_of


class Work(Protocol):
    """What a worker runs. On the event loop."""

    def stop(self) -> None:
        """Stop in order."""

    def retire(self) -> None:
        """Stop in order, without haste: others go on."""


class Overseer:
    """Tells the supervisor how this worker fares, and heeds what it says."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Made by `connected`."""
        self._reader = reader
        self._writer = writer

    @classmethod
    @asynccontextmanager
    async def connected(cls, channel: socket.socket) -> AsyncIterator[Self]:
        """`channel` is the worker's end of the pair; all that was told is sent at the end."""
        reader, writer = await asyncio.open_unix_connection(sock=channel, limit=LONGEST)
        try:
            yield cls(reader, writer)
        finally:
            writer.close()

    async def first_word(self) -> Begin | None:
        """What the worker is to do; None when the supervisor has ended already."""
        line = await self._reader.readline()
        order = order_of(line) if line else None
        return order if isinstance(order, Begin) else None

    def tell_ready(self) -> None:
        """The worker accepts connections."""
        self._tell(Ready())

    def refuse(self, problem: Problem) -> None:
        """The worker can't do its work, and ends."""
        self._tell(Refused(problem.code, problem.message))

    def report(self, metrics: Metrics) -> None:
        """What the worker has counted; to be told once more at its end."""
        self._tell(Report(metrics.report()))

    async def heed(self, work: Work, metrics: Metrics | None) -> None:
        """Do as the supervisor says, until it has ended: then stop, since nobody else would see to it."""
        while line := await self._next_line():
            order = order_of(line)
            if isinstance(order, Retire):
                work.retire()
            elif isinstance(order, Ask) and metrics is not None:
                self._tell(Report(await asyncio.to_thread(metrics.report)))
        work.stop()

    async def _next_line(self) -> bytes:
        try:
            return await self._reader.readline()
        except ConnectionError:
            return b""

    def _tell(self, news: News) -> None:
        self._writer.write(line_of(news))
