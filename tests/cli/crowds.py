"""Concurrent clients of a service, and its worker processes."""

import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Self, TypeVar

from tests.cli.commands import DEADLINE, Serving
from tests.http.raw import Connection, request
from tests.processes import has_ended, is_indexer
from tests.waiting import until

T = TypeVar("T")

PATH = "/api/v1/listings"
QUIET_SECONDS = 0.4  # during a stop, the service closes connections that are idle for half a second


class Client(threading.Thread):
    """Sends requests one after another until it is stopped, and records created listings and errors.

    A `steady` client uses persistent connections, any other client a new connection for each request. An error after
    a pause of QUIET_SECONDS is not recorded, since the machine may have been busy.
    """

    def __init__(self, base_url: str, key: str, method: str, *, steady: bool) -> None:
        super().__init__(daemon=True)
        self._address = base_url.removeprefix("http://")
        self._headers = {"X-API-Key": key, "Content-Type": "application/json"}
        self._method = method
        self._steady = steady
        self._stopped = threading.Event()
        self.responses = 0
        self.created: list[int] = []
        self.errors: list[str] = []
        self._since = 0.0  # the start of the connection or of the last request

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        connection = http.client.HTTPConnection(self._address, timeout=DEADLINE)
        while not self._stopped.is_set():
            self._send(connection)
            if not self._steady:
                connection.close()
        connection.close()

    def _send(self, connection: http.client.HTTPConnection) -> None:
        body = json.dumps({"title": "t", "content": "c"}) if self._method == "POST" else None
        path = PATH if self._method == "POST" else f"{PATH}?limit=1"
        quiet, started = float("inf"), time.monotonic()
        try:
            if connection.sock is None:
                self._since = float("inf")
                connection.connect()
                self._since = started
            connection.request(self._method, path, body, self._headers)
            quiet = time.monotonic() - self._since
            response = connection.getresponse()
            data = json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            if min(quiet, time.monotonic() - self._since) < QUIET_SECONDS:
                self.errors.append(repr(error))
            connection.close()
            return
        self._since = started
        self.responses += 1
        if response.status not in {200, 201}:
            self.errors.append(f"{response.status} {data}")
        elif self._method == "POST":
            self.created.append(data["id"])


class ClientGroup:
    """Several readers and writers, half of them steady."""

    def __init__(self, serving: Serving, key: str, readers: int = 4, writers: int = 4) -> None:
        self.clients = [
            Client(serving.base_url, key, method, steady=number % 2 == 0)
            for method, count in (("GET", readers), ("POST", writers))
            for number in range(count)
        ]

    def __enter__(self) -> Self:
        for client in self.clients:
            client.start()
        until(lambda: all(client.responses for client in self.clients))
        return self

    def __exit__(self, *_: object) -> None:
        for client in self.clients:
            client.stop()
        for client in self.clients:
            client.join(DEADLINE)

    @property
    def errors(self) -> list[str]:
        return [error for client in self.clients for error in client.errors]

    @property
    def created(self) -> list[int]:
        return [listing for client in self.clients for listing in client.created]

    def wait_for_responses(self) -> None:
        before = [client.responses for client in self.clients]
        until(lambda: all(client.responses >= old + 5 for client, old in zip(self.clients, before, strict=True)))


class Worker(NamedTuple):
    pid: int

    @property
    def is_running(self) -> bool:
        return not has_ended(self.pid)


def list_workers(serving: Serving) -> set[Worker]:
    """Return the current workers, including those that are starting or stopping."""
    tasks = Path(f"/proc/{serving.process.pid}/task").iterdir()
    pids = [int(pid) for task in tasks for pid in _children(task) if not is_indexer(int(pid), serving.process.pid)]
    return {worker for worker in map(Worker, pids) if worker.is_running}


def _children(task: Path) -> list[str]:
    """Return the child processes of a thread, which may end at any time."""
    try:
        return (task / "children").read_text("ascii").split()
    except (FileNotFoundError, ProcessLookupError):
        return []


@contextmanager
def connections_to_each(serving: Serving, count: int = 2) -> Iterator[list[list[Connection]]]:
    """Yield a list of connections for each of `count` workers. Each connection has sent GET /healthz once."""
    by_worker: dict[str, list[Connection]] = {}
    try:
        while len(by_worker) < count:
            connection = Connection(serving)
            response = connection.send(request("GET", "/healthz")).read_response()
            worker = response.headers["x-request-id"][:12]
            if worker in by_worker:
                time.sleep(0.01)  # leave the CPU to the worker that is starting
            by_worker.setdefault(worker, []).append(connection)
        yield list(by_worker.values())
    finally:
        for connection in [connection for of_worker in by_worker.values() for connection in of_worker]:
            connection.socket.close()
