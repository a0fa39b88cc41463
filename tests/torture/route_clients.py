"""Clients that read nothing: `python -m tests.torture.route_clients < JSON`.

The line of JSON has the `port`, the `requests` (start, filling, and how often it is repeated) that clients send in
turn, the number of clients (`count`), and how many bytes at the end of its request each client holds back (`held`): it
sends one of them every second. Prints "connected" when all have connected. When the input ends, prints one line of
JSON: the number of clients by the status of the first response, 0 for those without one, and leaves.
"""

import json
import resource
import select
import socket
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import cycle, islice

_RECEIVE_BUFFER_BYTES = 2048
_PIECE_BYTES = 64 * 1024
_CONNECTIONS_PER_STEP = 20
_STATUS_BYTES = 16


class Client:
    def __init__(self, port: int, request: tuple[bytes, memoryview], held: int) -> None:
        self._start, self._filling = request
        self._length = len(self._start) + len(self._filling)
        self._sent, self._end = 0, self._length - held
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
        self.socket.connect(("127.0.0.1", port))
        self.socket.settimeout(0)

    def send(self) -> bool:
        """Send as much as possible. Return whether there is more to send now."""
        with suppress(OSError):
            while self._sent < self._end:
                self._sent += self.socket.send(self._read_next())
        return self._sent < self._end

    def send_held(self) -> None:
        """Send one of the bytes that are held back."""
        if self._sent == self._end < self._length:
            self._end += 1
            self.send()

    def _read_next(self) -> memoryview:
        if self._sent < len(self._start):
            return memoryview(self._start)[self._sent : self._end]
        offset = self._sent - len(self._start)
        return self._filling[offset : min(offset + _PIECE_BYTES, self._end - len(self._start))]

    def get_status(self) -> int:
        """Return the status of the first response, or 0 without one."""
        with suppress(OSError, ValueError, IndexError):
            return int(self.socket.recv(_STATUS_BYTES, socket.MSG_PEEK).split()[1])
        return 0


def main(port: int, requests: Sequence[tuple[str, str, int]], count: int, held: int) -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    longest = max(filled for _, _, filled in requests)
    fillings = {fill: memoryview(fill.encode("latin-1") * longest) for _, fill, _ in requests}
    encoded = [(start.encode("latin-1"), fillings[fill][:filled]) for start, fill, filled in requests]
    waiting, clients = list(islice(cycle(encoded), count)), {}
    poll, drip_at = select.epoll(), time.monotonic()
    poll.register(sys.stdin.fileno(), select.EPOLLIN)
    while True:
        for request in waiting[:_CONNECTIONS_PER_STEP]:
            client = Client(port, request, held)
            clients[client.socket.fileno()] = client
            poll.register(client.socket.fileno(), select.EPOLLOUT)
        if waiting and len(waiting) <= _CONNECTIONS_PER_STEP:
            print("connected", flush=True)  # noqa: T201 - the instrument reads this
        del waiting[:_CONNECTIONS_PER_STEP]
        for descriptor, _ in poll.poll(0 if waiting else 0.1):
            if descriptor == sys.stdin.fileno():
                print(json.dumps(Counter(client.get_status() for client in clients.values())))  # noqa: T201 - as above
                return
            if not clients[descriptor].send():
                poll.unregister(descriptor)
        if held and time.monotonic() > drip_at + 1:
            drip_at = time.monotonic()
            for client in clients.values():
                client.send_held()


if __name__ == "__main__":
    main(**json.loads(sys.stdin.readline()))
