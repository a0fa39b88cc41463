"""Raw bytes over a socket, for requests that no HTTP client would send."""

import json
import socket
from typing import Any, NamedTuple, Protocol, Self

from tests.harness import TIMEOUT

NOT_MODIFIED = 304  # has no body and no Content-Length


class RawResponse(NamedTuple):
    """A response as received."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class HasAddress(Protocol):
    """A running service."""

    @property
    def base_url(self) -> str: ...


class Connection:
    """One connection to the service."""

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
        """Return the next response on the connection."""
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
