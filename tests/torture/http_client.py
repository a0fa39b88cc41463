"""An HTTP client that distinguishes a lost response from an unreachable service."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

PATH = "/api/v1/listings"
TIMEOUT_SECONDS = 60.0
_NO_BODY = 304

Data: TypeAlias = dict[str, Any]


class ConnectionLostError(Exception):
    """The connection ended before the response: the request may or may not have been processed."""


class UnreachableError(ConnectionLostError):
    """The connection was rejected: the request was not sent."""


class Response(NamedTuple):
    """An HTTP response."""

    status: int
    headers: dict[str, str]  # by lower-case names
    body: bytes

    def json(self) -> Data:
        data: Data = json.loads(self.body)
        return data


class Connection:
    """A persistent connection that reconnects after a loss."""

    def __init__(self, port: int, key: str) -> None:
        self.port = port
        self._key = key
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def fetch(
        self, method: str, path: str, data: object = None, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Send a request. Raise ConnectionLostError, or TimeoutError if there is no response at all."""
        body = b"" if data is None else json.dumps(data).encode()
        fields = {"Host": "localhost", "X-API-Key": self._key, "Content-Length": str(len(body)), **(headers or {})}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        return await self.send(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)

    async def send(self, request: bytes) -> Response:
        """Send the bytes of one request and return its response."""
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                reader, writer = await self._connect()
                writer.write(request)
                response = await read_response(reader)
        except (OSError, EOFError, ValueError) as error:
            self.close()
            if isinstance(error, TimeoutError):
                raise
            raise ConnectionLostError(repr(error)) from error
        except asyncio.CancelledError:
            self.close()
            raise
        if response.headers.get("connection") == "close":
            self.close()
        return response

    async def send_and_abort(self, request: bytes) -> None:
        """Send bytes and close the connection without reading a response."""
        try:
            with suppress(OSError, ConnectionLostError):
                _, writer = await self._connect()
                writer.write(request)
                await writer.drain()
        finally:
            self.close()

    def close(self) -> None:
        """Close the connection, if it is open."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None:
            try:
                self._streams = await asyncio.open_connection("127.0.0.1", self.port)
            except ConnectionError as error:
                raise UnreachableError(repr(error)) from error
        return self._streams


async def read_response(reader: asyncio.StreamReader) -> Response:
    """Read the next response."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    status = int(head[0].split()[1])
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    length = 0 if status == _NO_BODY else int(headers.get("content-length", "0"))
    return Response(status, headers, await reader.readexactly(length))
