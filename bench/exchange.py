"""One request over a connection of its own, answered as the very bytes that came."""

import json
import re
import socket
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from bench import RejectedRequest

_SECONDS = 10.0
_LENGTH = re.compile(rb"^content-length: *(\d+)\r?$", re.IGNORECASE | re.MULTILINE)
_DATE = re.compile(rb"^date: [^\r]*\r\n", re.IGNORECASE | re.MULTILINE)


class Request(NamedTuple):
    """A request of the benchmark; `body` is JSON or nothing."""

    method: str
    path: str
    key: str
    body: str = ""

    def line(self) -> str:
        """The request as `load.lua` reads it."""
        return f"{self.method}\t{self.path}\t{self.key}\t{self.body}\n"

    def wire(self) -> bytes:
        """The request as it is sent."""
        lines = [f"{self.method} {self.path} HTTP/1.1", "Host: 127.0.0.1", f"X-API-Key: {self.key}"]
        body = self.body.encode()
        if body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        return "\r\n".join([*lines, "", ""]).encode() + body


class Answer(NamedTuple):
    """An answer: status line and header lines, each ended with CR LF, and the body."""

    head: bytes
    body: bytes

    @property
    def status(self) -> int:
        """The status."""
        return int(self.head.split(b" ", 2)[1])

    @property
    def size(self) -> int:
        """Bytes of the whole answer, with the empty line."""
        return len(self.head) + 2 + len(self.body)

    def json(self) -> Any:  # noqa: ANN401 - of any shape
        """The body's content; None for what is no JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None

    def header_lines(self) -> list[bytes]:
        """The header lines, sorted, without the date, which is another with every second."""
        return sorted(_DATE.sub(b"", self.head).split(b"\r\n")[1:])


def exchange(port: int, request: Request) -> Answer:
    """Send a request to this machine. Raises Refusal when no whole answer comes."""
    try:
        with socket.create_connection(("127.0.0.1", port), _SECONDS) as connection:
            connection.sendall(request.wire())
            return _read(connection)
    except (OSError, ValueError) as error:
        raise RejectedRequest(f"{request.method} {request.path} is not answered: {error}") from None


def converse(port: int, requests: Iterable[Request]) -> Iterator[Answer]:
    """Send requests to this machine, each when the last one is answered, over one connection. Raises Refusal."""
    try:
        with socket.create_connection(("127.0.0.1", port), _SECONDS) as connection:
            for request in requests:
                connection.sendall(request.wire())
                yield _read(connection)
    except (OSError, ValueError) as error:
        raise RejectedRequest(f"A conversation breaks off: {error}") from None


def _read(connection: socket.socket) -> Answer:
    received = b""
    while b"\r\n\r\n" not in received:
        received += _more(connection)
    head, _, body = received.partition(b"\r\n\r\n")
    length = _LENGTH.search(head)
    if length is None:
        raise ValueError("the answer tells no Content-Length")
    while len(body) < int(length[1]):
        body += _more(connection)
    return Answer(head + b"\r\n", body)


def _more(connection: socket.socket) -> bytes:
    received = connection.recv(1 << 18)
    if not received:
        raise ValueError("the connection closed before the end of the answer")
    return received
