"""HTTP over a socket, for requests and failures that no usual client has: blocking, and on an event loop."""

import asyncio
import json
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, Self

from tests.harness import TIMEOUT

PATH = "/api/v1/listings"
NOT_MODIFIED = 304  # has no body and no Content-Length


class RawResponse(NamedTuple):
    status: int
    headers: dict[str, str]  # by lower-case names
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class HasAddress(Protocol):
    @property
    def base_url(self) -> str: ...


class Connection:
    def __init__(self, service: HasAddress, receive_buffer: int | None = None) -> None:
        host, port = service.base_url.removeprefix("http://").split(":")
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(TIMEOUT)
        try:
            self.socket.connect((host, int(port)))
        except OSError:
            self.socket.close()
            raise
        self._received = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, *data: bytes) -> Self:
        for piece in data:
            self.socket.sendall(piece)
        return self

    def read_response(self) -> RawResponse:
        while b"\r\n\r\n" not in self._received:
            self._receive()
        head, self._received = self._received.split(b"\r\n\r\n", 1)
        status_line, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        status = int(status_line.split(" ")[1])
        length = int(headers["content-length"]) if status != NOT_MODIFIED else 0
        while len(self._received) < length:
            self._receive()
        body, self._received = self._received[:length], self._received[length:]
        return RawResponse(status, headers, body)

    def is_closed(self) -> bool:
        """Return whether the service closes the connection without sending another byte."""
        try:
            return not self._received and self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _receive(self) -> None:
        data = self.socket.recv(65_536)
        if not data:
            raise ConnectionError(f"the connection was closed after {self._received!r}")
        self._received += data


class ConnectionLostError(Exception):
    """The connection ended before the response: the request may or may not have been processed."""


class UnreachableError(ConnectionLostError):
    """The connection was rejected: the request was not sent."""


class AsyncConnection:
    """A persistent connection that reconnects after a loss. A lost response differs from an unreachable service."""

    def __init__(self, port: int, key: str) -> None:
        self.port = port
        self._key = key
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def fetch(
        self, method: str, path: str, data: object = None, headers: Mapping[str, str] | None = None
    ) -> RawResponse:
        """Send a request. Raise ConnectionLostError, or TimeoutError if there is no response at all."""
        body = b"" if data is None else json.dumps(data).encode()
        fields = {"Host": "localhost", "X-API-Key": self._key, "Content-Length": str(len(body)), **(headers or {})}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        return await self.send(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)

    async def send(self, request: bytes) -> RawResponse:
        try:
            async with asyncio.timeout(TIMEOUT):
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


async def read_response(reader: asyncio.StreamReader) -> RawResponse:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    status = int(head[0].split()[1])
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    length = 0 if status == NOT_MODIFIED else int(headers.get("content-length", "0"))
    return RawResponse(status, headers, await reader.readexactly(length))


def request(method: str, path: str, key: str | None = None, *headers: bytes, body: bytes = b"") -> bytes:
    """Build a well-formed request."""
    lines = [f"{method} {path} HTTP/1.1".encode(), b"Host: localhost", *headers]
    if key is not None:
        lines.append(b"X-API-Key: " + key.encode())
    if body:
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join([*lines, b"", body])


def assert_rejected(response: RawResponse, status: int, code: str) -> None:
    assert response.status == status
    assert list(response.json()) == ["error"]
    assert response.json()["error"]
    assert response.headers["content-type"] == "application/json; charset=utf-8"
    assert response.headers["x-error-code"] == code
    assert response.headers["x-request-id"]
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["connection"] == "close"
