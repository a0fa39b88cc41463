"""Clients that hold their connections: `python -m tests.http.slow_clients HOST PORT KEY COUNT [ARRIVALS [brisk]]`.

COUNT each of slow heads, slow bodies, silent, idle and slow-reading ones, who come within ARRIVALS seconds. Prints, as
one line of JSON, for each kind the seconds after which its connections were ended, shortest first. One loop over one
epoll, so that they cost the machine little beside what they cost the service. Brisk ones ask for the same at the same
times, but hold on to nothing.
"""

import json
import os
import select
import socket
import sys
import time
from typing import NamedTuple

TIMEOUT = 30.0  # seconds
DRIP = 0.4  # seconds
TICK = 0.01  # seconds


class Kind(NamedTuple):
    """What such a client sends at first and, again and again, later; and whether it reads."""

    first: bytes
    again: bytes = b""
    reads: bool = True


def kinds(host: str, key: str) -> dict[str, Kind]:
    head = f"Host: {host}\r\nX-API-Key: {key}\r\n".encode()
    listing = b"GET /api/v1/listings HTTP/1.1\r\n" + head
    return {
        "slow_head": Kind(listing, b"X-A: b\r\n"),
        "slow_body": Kind(b"POST /api/v1/listings HTTP/1.1\r\n" + head + b"Content-Length: 1000\r\n\r\n{", b" "),
        "silent": Kind(b""),
        "idle": Kind(b"GET /healthz HTTP/1.1\r\n" + head + b"\r\n"),
        "slow_reader": Kind((listing + b"\r\n") * 8, reads=False),
    }


def brisk(host: str, key: str) -> dict[str, Kind]:
    """Each sends all at once, reads all and leaves."""
    head = f"Host: {host}\r\nX-API-Key: {key}\r\n".encode()
    listing, last = b"GET /api/v1/listings HTTP/1.1\r\n" + head, b"Connection: close\r\n\r\n"
    health = b"GET /healthz HTTP/1.1\r\n" + head + last
    return {
        "slow_head": Kind(listing + last),
        "slow_body": Kind(b"POST /api/v1/listings HTTP/1.1\r\n" + head + b"Content-Length: 2\r\n" + last + b"{}"),
        "silent": Kind(health),
        "idle": Kind(health),
        "slow_reader": Kind((listing + b"\r\n") * 7 + listing + last),
    }


class Client:
    """One connection, and how long it lasted."""

    def __init__(self, kind: Kind, address: tuple[str, int]) -> None:
        self.kind = kind
        self.socket = socket.socket()
        if not kind.reads:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.connect(address)
        self.socket.settimeout(0)
        self.started = time.monotonic()
        self.dripped = self.started
        self.lasted: float | None = None
        self.send(kind.first)

    def send(self, data: bytes) -> None:
        try:
            self.socket.send(data)
        except OSError:
            self.end()

    def drip(self, now: float) -> None:
        if self.kind.again and self.lasted is None and now - self.dripped > DRIP:
            self.dripped = now
            self.send(self.kind.again)

    def look(self, events: int) -> None:
        """Something has come, or the end."""
        try:
            if events & (select.EPOLLERR | select.EPOLLHUP) or self.socket.recv(65_536) == b"":
                self.end()
        except OSError:
            self.end()

    def end(self) -> None:
        if self.lasted is None:
            self.lasted = round(time.monotonic() - self.started, 2)
            self.socket.close()


def main(host: str, port: str, key: str, count: str, arrivals: str = "2", manner: str = "slow") -> None:
    chosen = brisk(host, key) if manner == "brisk" else kinds(host, key)
    waiting = [(name, kind) for _ in range(int(count)) for name, kind in chosen.items()]
    clients: dict[int, Client] = {}
    names: dict[int, str] = {}
    poll, began = select.epoll(), time.monotonic()
    every = float(arrivals) / len(waiting)
    while waiting or (any(client.lasted is None for client in clients.values())):
        now = time.monotonic()
        if now - began > TIMEOUT:
            break
        while waiting and len(names) * every < now - began:
            name, kind = waiting.pop(0)
            client = Client(kind, (host, int(port)))
            descriptor = client.socket.fileno()
            number = len(names)
            clients[number], names[number] = client, name
            if descriptor != -1:
                poll.register(descriptor, select.EPOLLIN if kind.reads else 0)
        by_descriptor = {client.socket.fileno(): client for client in clients.values() if client.lasted is None}
        for descriptor, events in poll.poll(TICK):
            by_descriptor[descriptor].look(events)
        for client in by_descriptor.values():
            client.drip(now)
    seconds: dict[str, list[float]] = {}
    for number, client in clients.items():
        seconds.setdefault(names[number], []).append(client.lasted if client.lasted is not None else TIMEOUT)
    print(json.dumps({name: sorted(lasted) for name, lasted in seconds.items()}))  # noqa: T201 - what the test reads


if __name__ == "__main__":
    os.nice(19)  # they are meant to be elsewhere: their own work must not hold up the service's or the good client's
    main(*sys.argv[1:])
