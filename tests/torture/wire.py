"""A client that knows when it does not know: an answer, or none."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

PATH = "/api/v1/listings"
LONGEST = 60.0  # seconds: what takes longer hangs
_NO_BODY = 304

Data: TypeAlias = dict[str, Any]


class LostError(Exception):
    """The connection ended before an answer: the request was done, or it was not."""


class UnreachableError(LostError):
    """Nobody listens: the request was not even sent."""


class Answer(NamedTuple):
    """What came."""

    status: int
    headers: dict[str, str]  # by lower-case names
    body: bytes

    def json(self) -> Data:
        data: Data = json.loads(self.body)
        return data


class Line:
    """A connection that is kept, and made anew after it was lost."""

    def __init__(self, port: int, key: str) -> None:
        self._port = port
        self._key = key
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def fetch(
        self, method: str, path: str, data: object = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Raises LostError; TimeoutError when nothing comes at all."""
        body = b"" if data is None else json.dumps(data).encode()
        fields = {"Host": "localhost", "X-API-Key": self._key, "Content-Length": str(len(body)), **(headers or {})}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        return await self.send(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)

    async def send(self, request: bytes) -> Answer:
        """The answer to what is one request."""
        try:
            async with asyncio.timeout(LONGEST):
                reader, writer = await self._connected()
                writer.write(request)
                answer = await answer_of(reader)
        except (OSError, EOFError, ValueError) as error:
            self.close()
            if isinstance(error, TimeoutError):
                raise
            raise LostError(repr(error)) from error
        except asyncio.CancelledError:
            self.close()
            raise
        if answer.headers.get("connection") == "close":
            self.close()
        return answer

    async def begin(self, request: bytes) -> None:
        """Send bytes, and hang up without an answer."""
        try:
            with suppress(OSError, LostError):
                _, writer = await self._connected()
                writer.write(request)
                await writer.drain()
        finally:
            self.close()

    def close(self) -> None:
        """End the connection, if there is one."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None:
            try:
                self._streams = await asyncio.open_connection("127.0.0.1", self._port)
            except ConnectionError as error:
                raise UnreachableError(repr(error)) from error
        return self._streams


async def answer_of(reader: asyncio.StreamReader) -> Answer:
    """The next one."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    status = int(head[0].split()[1])
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    length = 0 if status == _NO_BODY else int(headers.get("content-length", "0"))
    return Answer(status, headers, await reader.readexactly(length))
