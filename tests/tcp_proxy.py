"""A TCP proxy that can withhold responses, and a server with fixed responses."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class TcpProxy:
    """Forwards connections to a server until told to withhold the responses, or to close."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._writers: list[asyncio.StreamWriter] = []
        self.withholds_responses = False
        self.withhold_after = b""  # withhold responses once a client has sent this
        self.withheld = asyncio.Event()  # set when a response was withheld
        self._is_closed = False

    def close(self) -> None:
        """Abort all connections, including those that are being opened."""
        self._is_closed = True
        for writer in self._writers:
            writer.transport.abort()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        try:
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
            self._writers.append(to_server)
            try:
                if not self._is_closed:
                    await asyncio.gather(self._copy(reader, to_server), self._copy(from_server, writer, responses=True))
            finally:
                to_server.transport.abort()
        finally:
            writer.transport.abort()

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, responses: bool = False) -> None:
        with suppress(OSError):
            while data := await source.read(65_536):
                if not responses and self.withhold_after and self.withhold_after in data:
                    self.withholds_responses = True
                if responses and self.withholds_responses:
                    self.withheld.set()
                else:
                    sink.write(data)
            sink.transport.abort()


@asynccontextmanager
async def run_tcp_proxy(port: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[tuple[TcpProxy, int]]:
    """Run a proxy for this port; yield it with its own port."""
    proxy = TcpProxy(port)
    server = await asyncio.start_server(proxy.handle, "127.0.0.1", 0, ssl=tls)
    try:
        yield proxy, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        proxy.close()
        await asyncio.sleep(0)


@asynccontextmanager
async def run_fixed_responder(*responses: bytes) -> AsyncIterator[int]:
    """Run a server that sends these responses in turn, and then repeats the last one; yield its port."""

    writers: list[asyncio.StreamWriter] = []

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        remaining = list(responses)
        with suppress(OSError):
            while await reader.read(65_536):
                writer.write(remaining.pop(0) if len(remaining) > 1 else remaining[0])
        writer.transport.abort()

    server = await asyncio.start_server(respond, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0)
