"""Servers that do not answer as a server should."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeAlias

Behaviour: TypeAlias = Callable[[socket.socket, threading.Event], object]

_HTML = b"<!doctype html><title>Welcome</title>"


@contextmanager
def server_that(behaves: Behaviour) -> Iterator[str]:
    """The base address of a server that treats each connection so; the event tells it to end."""
    over = threading.Event()

    def treat(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            behaves(connection, over)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threads.append(threading.Thread(target=treat, args=(listener.accept()[0],)))
                threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threads = [threading.Thread(target=accept)]
        threads[0].start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            over.set()
            listener.shutdown(socket.SHUT_RDWR)
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def answers_html(connection: socket.socket, _: threading.Event) -> None:
    """A web page for everything, over a connection that is kept."""
    while connection.recv(65536):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(_HTML), _HTML))


def refuses_with_control_characters(connection: socket.socket, _: threading.Event) -> None:
    """What a terminal would obey, over a connection that is kept."""
    while connection.recv(65536):
        connection.sendall(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 12\r\n\r\n\x1b]0;title\x07\r\n")


def closes_after_each_answer(connection: socket.socket, _: threading.Event) -> None:
    """And does not announce it."""
    connection.recv(65536)
    connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n{"listings": []}')


def never_answers(_: socket.socket, over: threading.Event) -> None:
    """The connection stays open."""
    over.wait(20)


def answers_a_byte_at_a_time(connection: socket.socket, over: threading.Event) -> None:
    """It never stops, and no single wait is long."""
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while not over.wait(0.02):
        connection.sendall(b"x")


def sends_its_body_a_byte_at_a_time(connection: socket.socket, over: threading.Event) -> None:
    """As above, after the headers."""
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    while not over.wait(0.02):
        connection.sendall(b"x")


def closes(connection: socket.socket, _: threading.Event) -> None:
    """It reads the request and hangs up."""
    connection.recv(65536)


def speaks_something_else(connection: socket.socket, _: threading.Event) -> None:
    """Not HTTP."""
    connection.recv(65536)
    connection.sendall(b"220 mail.example ESMTP\r\n")


def ends_its_answer_early(connection: socket.socket, _: threading.Event) -> None:
    """Fewer bytes than were announced."""
    connection.recv(65536)
    connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"listings": [')


class StopsAnsweringAfter:
    """An empty list for a number of requests, then silence."""

    def __init__(self, requests: int) -> None:
        self.left = requests
        self.connections = 0

    def __call__(self, connection: socket.socket, over: threading.Event) -> None:
        self.connections += 1
        while self.left and connection.recv(65536):
            self.left -= 1
            connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n{"listings": []}')
        over.wait(20)
