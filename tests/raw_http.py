"""What may stand in a server's place, or between it and us."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class Wire:
    """Carries bytes to a server and back, until it is told to keep the answers, or cut."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._writers: list[asyncio.StreamWriter] = []
        self.keeps_answers = False
        self.keeps_answers_to = b""  # from the moment that this was sent
        self.carried = asyncio.Event()  # is set when an answer was kept
        self._is_cut = False

    def cut(self) -> None:
        """End every connection without a word, those that are just being made, too."""
        self._is_cut = True
        for writer in self._writers:
            writer.transport.abort()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self._writers.append(writer)
        try:
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
            self._writers.append(to_server)
            try:
                if not self._is_cut:
                    await asyncio.gather(self._copy(reader, to_server), self._copy(from_server, writer, answers=True))
            finally:
                to_server.transport.abort()
        finally:
            writer.transport.abort()

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, answers: bool = False) -> None:
        with suppress(OSError):
            while data := await source.read(65_536):
                if not answers and self.keeps_answers_to and self.keeps_answers_to in data:
                    self.keeps_answers = True
                if answers and self.keeps_answers:
                    self.carried.set()
                else:
                    sink.write(data)
            sink.transport.abort()


@asynccontextmanager
async def wire_to(port: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[tuple[Wire, int]]:
    """A wire to this port, and the port at which it begins."""
    wire = Wire(port)
    server = await asyncio.start_server(wire.carry, "127.0.0.1", 0, ssl=tls)
    try:
        yield wire, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        wire.cut()
        await asyncio.sleep(0)


@asynccontextmanager
async def always_answering(*answers: bytes) -> AsyncIterator[int]:
    """The port of something that answers these to whatever it is sent, and the last of them from then on."""

    writers: list[asyncio.StreamWriter] = []

    async def answer_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        left = list(answers)
        with suppress(OSError):
            while await reader.read(65_536):
                writer.write(left.pop(0) if len(left) > 1 else left[0])
        writer.transport.abort()

    server = await asyncio.start_server(answer_all, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0)
