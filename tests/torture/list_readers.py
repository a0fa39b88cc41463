"""Clients that request lists: `python -m tests.torture.list_readers PORT KEY COUNT SECONDS [PATH...]`.

Each of COUNT connections sends one request, for the paths in turn. With SECONDS, no client reads before that time, and
then all leave. Without (0), each reads its response as fast as it can. Prints one line of JSON: path, status (0 for a
response that was cut) and SHA-256 digest of each body.
"""

import hashlib
import json
import os
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import cycle, islice

_RECEIVE_BUFFER_BYTES = 4096
_TIMEOUT_SECONDS = 120.0


def connect(port: int, key: str, path: str, *, reads: bool) -> socket.socket:
    """Send a request for a list on a new connection."""
    client = socket.socket()
    if not reads:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
    client.settimeout(_TIMEOUT_SECONDS)
    client.connect(("127.0.0.1", port))
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {key}\r\nConnection: close\r\n\r\n".encode())
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
        return status if size == length else 0, digest.hexdigest()
    return 0, ""


def main(port: str, key: str, count: str, seconds: str, *paths: str) -> None:
    held = float(seconds)
    chosen = list(islice(cycle(paths or ["/api/v1/listings"]), int(count)))
    clients = [connect(int(port), key, path, reads=not held) for path in chosen]
    if held:
        time.sleep(held)
        return
    with ThreadPoolExecutor(len(clients)) as pool:
        results = pool.map(read, clients)
        print(json.dumps([(path, *result) for path, result in zip(chosen, results, strict=True)]))  # noqa: T201 - the instrument reads this


if __name__ == "__main__":
    os.nice(19)  # these clients must not take processor time from the service or the measured client
    main(*sys.argv[1:])
