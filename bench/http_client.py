"""A minimal HTTP client that returns the exact bytes of a response."""

import json
import re
import socket
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from bench import BenchmarkError

_TIMEOUT_SECONDS = 10.0
_LENGTH = re.compile(rb"^content-length: *(\d+)\r?$", re.IGNORECASE | re.MULTILINE)
_DATE = re.compile(rb"^date: [^\r]*\r\n", re.IGNORECASE | re.MULTILINE)


class Request(NamedTuple):
    """A request; `body` is JSON or empty, `header` an additional header line or empty."""

    method: str
    path: str
    key: str
    body: str = ""
    header: str = ""

    def format_for_wrk(self) -> str:
        """Return the request as a line for `load.lua`."""
        return f"{self.method}\t{self.path}\t{self.key}\t{self.header}\t{self.body}\n"

    def encode(self) -> bytes:
        """Return the bytes of the request."""
        lines = [f"{self.method} {self.path} HTTP/1.1", "Host: 127.0.0.1", f"X-API-Key: {self.key}"]
        body = self.body.encode()
        if self.header:
            lines.append(self.header)
        if body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        return "\r\n".join([*lines, "", ""]).encode() + body


class Response(NamedTuple):
    """A response: the status line and headers, each ended by CR LF, and the body."""

    head: bytes
    body: bytes

    @property
    def status(self) -> int:
        return int(self.head.split(b" ", 2)[1])

    @property
    def size(self) -> int:
        """Return the size of the response in bytes, with the empty line."""
        return len(self.head) + 2 + len(self.body)

    def get_header(self, name: str) -> str:
        """Return the value of a header, which must be there."""
        found = re.search(rf"^{name}: *([^\r]*)\r$", self.head.decode("latin-1"), re.IGNORECASE | re.MULTILINE)
        if found is None:
            raise BenchmarkError(f"The response has no {name}: {self.head!r}")
        return found[1]

    def json(self) -> Any:  # noqa: ANN401 - JSON of any shape
        """Parse the body; return None if it is not JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None

    def header_lines(self) -> list[bytes]:
        """Return the sorted header lines without the date, which changes every second."""
        return sorted(_DATE.sub(b"", self.head).split(b"\r\n")[1:])


def send(port: int, request: Request) -> Response:
    """Send a request on a new connection. Raise BenchmarkError if the response is incomplete."""
    try:
        with socket.create_connection(("127.0.0.1", port), _TIMEOUT_SECONDS) as connection:
            connection.sendall(request.encode())
            return _read(connection)
    except (OSError, ValueError) as error:
        raise BenchmarkError(f"{request.method} {request.path} failed: {error}") from None


def send_all(port: int, requests: Iterable[Request]) -> Iterator[Response]:
    """Send requests one after the other on one connection. Raise BenchmarkError if a response is incomplete."""
    try:
        with socket.create_connection(("127.0.0.1", port), _TIMEOUT_SECONDS) as connection:
            for request in requests:
                connection.sendall(request.encode())
                yield _read(connection)
    except (OSError, ValueError) as error:
        raise BenchmarkError(f"The connection failed: {error}") from None


def _read(connection: socket.socket) -> Response:
    received = b""
    while b"\r\n\r\n" not in received:
        received += _receive(connection)
    head, _, body = received.partition(b"\r\n\r\n")
    if head.startswith(b"HTTP/1.1 304"):
        return Response(head + b"\r\n", b"")
    length = _LENGTH.search(head)
    if length is None:
        raise ValueError("the response has no Content-Length")
    while len(body) < int(length[1]):
        body += _receive(connection)
    return Response(head + b"\r\n", body)


def _receive(connection: socket.socket) -> bytes:
    received = connection.recv(1 << 18)
    if not received:
        raise ValueError("the connection closed before the end of the response")
    return received
