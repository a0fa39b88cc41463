"""Servers that do not respond as an HTTP server should."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeAlias

Behaviour: TypeAlias = Callable[[socket.socket, threading.Event], object]

_HTML = b"<!doctype html><title>Welcome</title>"


@contextmanager
def serve(behaviour: Behaviour) -> Iterator[str]:
    """Yield the base URL of a server that calls `behaviour` for each connection. The event is set at the end."""
    stop = threading.Event()

    def handle(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            behaviour(connection, stop)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threads.append(threading.Thread(target=handle, args=(listener.accept()[0],)))
                threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threads = [threading.Thread(target=accept)]
        threads[0].start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            stop.set()
            listener.shutdown(socket.SHUT_RDWR)
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def sends_html(connection: socket.socket, _: threading.Event) -> None:
    while connection.recv(65536):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(_HTML), _HTML))


def sends_control_characters(connection: socket.socket, _: threading.Event) -> None:
    """Send a terminal escape sequence."""
    while connection.recv(65536):
        connection.sendall(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 12\r\n\r\n\x1b]0;title\x07\r\n")


def closes_after_each_response(connection: socket.socket, _: threading.Event) -> None:
    """Close the connection without announcing it in a header."""
    connection.recv(65536)
    connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n{"listings": []}')


def never_responds(_: socket.socket, stop: threading.Event) -> None:
    """Keep the connection open."""
    stop.wait(20)


def sends_headers_byte_by_byte(connection: socket.socket, stop: threading.Event) -> None:
    """Send bytes without end, with short pauses."""
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while not stop.wait(0.02):
        connection.sendall(b"x")


def sends_body_byte_by_byte(connection: socket.socket, stop: threading.Event) -> None:
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    while not stop.wait(0.02):
        connection.sendall(b"x")


def closes(connection: socket.socket, _: threading.Event) -> None:
    connection.recv(65536)


def speaks_another_protocol(connection: socket.socket, _: threading.Event) -> None:
    connection.recv(65536)
    connection.sendall(b"220 mail.example ESMTP\r\n")


def ends_response_early(connection: socket.socket, _: threading.Event) -> None:
    """Send fewer bytes than Content-Length says."""
    connection.recv(65536)
    connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"listings": [')


class StopsRespondingAfter:
    """Sends an empty list for a number of requests, then nothing."""

    def __init__(self, requests: int) -> None:
        self.remaining = requests
        self.connections = 0

    def __call__(self, connection: socket.socket, stop: threading.Event) -> None:
        self.connections += 1
        while self.remaining and connection.recv(65536):
            self.remaining -= 1
            connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n{"listings": []}')
        stop.wait(20)
