"""Clients that send expensive requests: `python -m tests.torture.expensive_clients < JSON`.

The JSON has a `port`, a list of `requests`, and how many clients send them in turn (`count`), each on a connection of
its own. If `seconds` is not 0, no client reads before that time, and then all leave. Otherwise, each reads its response
as fast as it can. With `holds_last_byte`, all clients send the last bytes of their requests at the same moment. Prints
one line of JSON: index of the request, status (0 for a response that was cut) and SHA-256 digest of each body.
"""

import hashlib
import json
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

_RECEIVE_BUFFER_BYTES = 4096
_TIMEOUT_SECONDS = 120.0
_UPLOAD_SECONDS = 0.03  # between two uploads of 2 MB: about half of a gigabit a second
_SECONDS_UNTIL_LAST_BYTE = 0.5


def connect(port: int, data: bytes, *, reads: bool) -> socket.socket:
    """Send bytes on a new connection."""
    client = socket.socket()
    if not reads:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
    client.settimeout(_TIMEOUT_SECONDS)
    client.connect(("127.0.0.1", port))
    client.sendall(data)
    return client


def read(client: socket.socket) -> tuple[int, str]:
    """Return the status and the digest of the body, or 0 if the response is incomplete."""
    digest, buffer, size = hashlib.sha256(), bytearray(256 * 1024), 0
    with client, suppress(OSError), client.makefile("rb") as stream:
        status = int((stream.readline().split() or [b"", b"0"])[1])
        length = 0
        while line := stream.readline().strip():
            if line.lower().startswith(b"content-length:"):
                length = int(line.split()[1])
        while count := stream.readinto(buffer):
            digest.update(memoryview(buffer)[:count])
            size += count
        return status if size == length or not length else 0, digest.hexdigest()
    return 0, ""


def main(port: int, requests: list[str], count: int, seconds: float, *, holds_last_byte: bool) -> None:
    chosen = [number % len(requests) for number in range(count)]
    data = [request.encode("latin-1") for request in requests]
    end = -1 if holds_last_byte else None
    clients = []
    for number in chosen:
        clients.append(connect(port, data[number][:end], reads=not seconds))
        time.sleep(_UPLOAD_SECONDS if holds_last_byte else 0)
    if holds_last_byte:
        time.sleep(_SECONDS_UNTIL_LAST_BYTE)
        for client, number in zip(clients, chosen, strict=True):
            client.send(data[number][-1:])
    if seconds:
        time.sleep(seconds)
        return
    with ThreadPoolExecutor(len(clients)) as pool:
        results = pool.map(read, clients)
        print(json.dumps([(number, *result) for number, result in zip(chosen, results, strict=True)]))  # noqa: T201 - the instrument reads this


if __name__ == "__main__":
    main(**json.load(sys.stdin))
