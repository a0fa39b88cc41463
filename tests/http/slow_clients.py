"""Slow and idle clients: `python -m tests.http.slow_clients HOST PORT KEY COUNT DEADLINE [ARRIVALS [fast]]`.

Opens COUNT connections of each kind (slow headers, slow bodies, silent, idle, slow readers) within ARRIVALS seconds.
Prints one line of JSON: for each kind, how many seconds its connections lasted, in ascending order. With "fast", the
clients send the same requests at the same times, but at full speed. A single epoll loop keeps the cost of the clients
low.

A slow reader whose responses are in the kernel's memory, because the service has sent it only small errors, does not
see that its connection was closed. So it reads shortly after the service's DEADLINE.
"""

import json
import os
import select
import socket
import sys
import time
from typing import NamedTuple

TIMEOUT = 30.0  # seconds
DRIP_INTERVAL = 0.4  # seconds
TICK = 0.01  # seconds
CLOSE_SECONDS = 0.8  # until a connection that has reached its deadline is closed


class Kind(NamedTuple):
    """The bytes a client sends first, the bytes it sends repeatedly, and whether it reads."""

    first: bytes
    repeated: bytes = b""
    reads: bool = True


def build_slow_kinds(host: str, key: str) -> dict[str, Kind]:
    head = f"Host: {host}\r\nX-API-Key: {key}\r\n".encode()
    listing = b"GET /api/v1/listings HTTP/1.1\r\n" + head
    return {
        "slow_head": Kind(listing, b"X-A: b\r\n"),
        "slow_body": Kind(b"POST /api/v1/listings HTTP/1.1\r\n" + head + b"Content-Length: 1000\r\n\r\n{", b" "),
        "silent": Kind(b""),
        "idle": Kind(b"GET /healthz HTTP/1.1\r\n" + head + b"\r\n"),
        "slow_reader": Kind((listing + b"\r\n") * 8, reads=False),
    }


def build_fast_kinds(host: str, key: str) -> dict[str, Kind]:
    """Return clients that send everything immediately, read the responses and leave."""
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
    """One connection, and the seconds it lasted."""

    def __init__(self, kind: Kind, address: tuple[str, int]) -> None:
        self.kind = kind
        self.socket = socket.socket()
        if not kind.reads:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.connect(address)
        self.socket.settimeout(0)
        self.started = time.monotonic()
        self.last_sent = self.started
        self.lasted: float | None = None
        self.send(kind.first)

    def send(self, data: bytes) -> None:
        try:
            self.socket.send(data)
        except OSError:
            self.end()

    def send_repeated(self, now: float) -> None:
        if self.kind.repeated and self.lasted is None and now - self.last_sent > DRIP_INTERVAL:
            self.last_sent = now
            self.send(self.kind.repeated)

    def read(self, events: int) -> None:
        """Handle received data, or the end of the connection."""
        try:
            if events & (select.EPOLLERR | select.EPOLLHUP) or self.socket.recv(65_536) == b"":
                self.end()
        except OSError:
            self.end()

    def end(self) -> None:
        if self.lasted is None:
            self.lasted = round(time.monotonic() - self.started, 2)
            self.socket.close()


def main(host: str, port: str, key: str, count: str, deadline: str, arrivals: str = "2", speed: str = "slow") -> None:
    chosen = build_fast_kinds(host, key) if speed == "fast" else build_slow_kinds(host, key)
    waiting = [(name, kind) for _ in range(int(count)) for name, kind in chosen.items()]
    clients: dict[int, Client] = {}
    names: dict[int, str] = {}
    poll, started_at = select.epoll(), time.monotonic()
    interval, reads_after = float(arrivals) / len(waiting), float(deadline) + CLOSE_SECONDS
    while waiting or (any(client.lasted is None for client in clients.values())):
        now = time.monotonic()
        if now - started_at > TIMEOUT:
            break
        while waiting and len(names) * interval < now - started_at:
            name, kind = waiting.pop(0)
            client = Client(kind, (host, int(port)))
            descriptor = client.socket.fileno()
            number = len(names)
            clients[number], names[number] = client, name
            if descriptor != -1:
                poll.register(descriptor, select.EPOLLIN if kind.reads else 0)
        by_descriptor = {client.socket.fileno(): client for client in clients.values() if client.lasted is None}
        for descriptor, events in poll.poll(TICK):
            by_descriptor[descriptor].read(events)
        for descriptor, client in by_descriptor.items():
            client.send_repeated(now)
            if not client.kind.reads and client.lasted is None and now - client.started > reads_after:
                poll.modify(descriptor, select.EPOLLIN)
    seconds: dict[str, list[float]] = {}
    for number, client in clients.items():
        seconds.setdefault(names[number], []).append(client.lasted if client.lasted is not None else TIMEOUT)
    print(json.dumps({name: sorted(lasted) for name, lasted in seconds.items()}))  # noqa: T201 - the test reads this


if __name__ == "__main__":
    os.nice(19)  # these clients must not take processor time from the service or the measured client
    main(*sys.argv[1:])
