"""An HTTP server that sends prepared bytes, for responses that the service never sends by itself."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.harness import TIMEOUT


def build_response(status: int, body: bytes = b"{}", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}", "connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class ScriptedServer:
    """Sends one response to each connection, in their order, and records the requests. b"" closes at once."""

    def __init__(self, responses: list[bytes]) -> None:
        self.requests: list[bytes] = []
        self._responses = responses
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(20)
        self.base_url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._work, daemon=True)

    def _work(self) -> None:
        for response in self._responses:
            connection, _ = self._listener.accept()
            with connection:
                connection.settimeout(TIMEOUT)
                self.requests.append(self._receive(connection))
                connection.sendall(response)

    def _receive(self, connection: socket.socket) -> bytes:
        received = b""
        while b"\r\n\r\n" not in received:
            received += connection.recv(65536)
        head, _, body = received.partition(b"\r\n\r\n")
        sizes = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        size = int(sizes[0].partition(b":")[2]) if sizes else 0
        while len(body) < size:
            body += connection.recv(65536)
        return head + b"\r\n\r\n" + body


@contextmanager
def serve(*responses: bytes) -> Iterator[ScriptedServer]:
    server = ScriptedServer(list(responses))
    server._thread.start()  # noqa: SLF001 - same module
    yield server
    server._thread.join(20)  # noqa: SLF001
    assert not server._thread.is_alive()  # noqa: SLF001
    server._listener.close()  # noqa: SLF001
