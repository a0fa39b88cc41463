"""Many clients of a service at once, and the processes that it consists of."""

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Self, TypeVar

from tests.cli.commands import DEADLINE, Serving
from tests.http.raw import Connection, request

T = TypeVar("T")

PATH = "/api/v1/listings"
QUIET_SECONDS = 0.4  # a client that says nothing for longer may be given up by a stop: it allows half a second


class Client(threading.Thread):
    """Sends one request after the other until told to stop; keeps what was created and what broke.

    `steady`: on connections that it keeps until the service ends them; else on a new one each time. A request that a
    machine at a standstill has kept back for too long is not counted as broken.
    """

    def __init__(self, base_url: str, key: str, method: str, *, steady: bool) -> None:
        super().__init__(daemon=True)
        self._address = base_url.removeprefix("http://")
        self._headers = {"X-API-Key": key, "Content-Type": "application/json"}
        self._method = method
        self._steady = steady
        self._ended = threading.Event()
        self.answered = 0
        self.created: list[int] = []
        self.broken: list[str] = []
        self._since = 0.0  # when it began to connect, or to ask what was answered last: the service counts from later

    def end(self) -> None:
        self._ended.set()

    def run(self) -> None:
        connection = http.client.HTTPConnection(self._address, timeout=DEADLINE)
        while not self._ended.is_set():
            self._ask(connection)
            if not self._steady:
                connection.close()
        connection.close()

    def _ask(self, connection: http.client.HTTPConnection) -> None:
        body = json.dumps({"title": "t", "content": "c"}) if self._method == "POST" else None
        path = PATH if self._method == "POST" else f"{PATH}?limit=1"
        silent, began = float("inf"), time.monotonic()
        try:
            if connection.sock is None:
                self._since = float("inf")
                connection.connect()
                self._since = began
            connection.request(self._method, path, body, self._headers)
            silent = time.monotonic() - self._since
            answer = connection.getresponse()
            data = json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            if min(silent, time.monotonic() - self._since) < QUIET_SECONDS:
                self.broken.append(repr(error))
            connection.close()
            return
        self._since = began
        self.answered += 1
        if answer.status not in {200, 201}:
            self.broken.append(f"{answer.status} {data}")
        elif self._method == "POST":
            self.created.append(data["id"])


class Crowd:
    """Readers and writers, half of them steady."""

    def __init__(self, serving: Serving, key: str, readers: int = 4, writers: int = 4) -> None:
        self.clients = [
            Client(serving.base_url, key, method, steady=number % 2 == 0)
            for method, count in (("GET", readers), ("POST", writers))
            for number in range(count)
        ]

    def __enter__(self) -> Self:
        for client in self.clients:
            client.start()
        until(lambda: all(client.answered for client in self.clients))
        return self

    def __exit__(self, *_: object) -> None:
        for client in self.clients:
            client.end()
        for client in self.clients:
            client.join(DEADLINE)

    @property
    def broken(self) -> list[str]:
        return [broken for client in self.clients for broken in client.broken]

    @property
    def created(self) -> list[int]:
        return [listing for client in self.clients for listing in client.created]

    def go_on(self) -> None:
        """Return when each client has had another five answers."""
        before = [client.answered for client in self.clients]
        until(lambda: all(client.answered >= old + 5 for client, old in zip(self.clients, before, strict=True)))


class Worker(NamedTuple):
    """One process of the service that answers."""

    pid: int

    @property
    def is_there(self) -> bool:
        return Path(f"/proc/{self.pid}").exists() and self._state() != "Z"

    def _state(self) -> str:
        try:
            return Path(f"/proc/{self.pid}/stat").read_text("ascii").rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return "Z"


def workers_of(serving: Serving) -> set[Worker]:
    """The workers that there are now, those included that begin or end."""
    tasks = Path(f"/proc/{serving.process.pid}/task").iterdir()
    pids = [int(pid) for task in tasks for pid in _children(task)]
    return {worker for worker in map(Worker, pids) if worker.is_there}


def _children(task: Path) -> list[str]:
    """Of one thread, which may end any time."""
    try:
        return (task / "children").read_text("ascii").split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def until(is_so: Callable[[], T]) -> T:
    """Wait until something is so, which must be soon; returns what it is."""
    deadline = time.monotonic() + DEADLINE
    while not (found := is_so()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


@contextmanager
def connections_to_each(serving: Serving, count: int = 2) -> Iterator[list[list[Connection]]]:
    """Connections to so many workers, by the worker: one at least to each. On each, GET /healthz was asked once."""
    found: dict[str, list[Connection]] = {}
    try:
        while len(found) < count:
            connection = Connection(serving)
            answer = connection.send(request("GET", "/healthz")).read_response()
            worker = answer.headers["x-request-id"][:12]
            if worker in found:
                time.sleep(0.01)  # the one that is missing needs the core to begin
            found.setdefault(worker, []).append(connection)
        yield list(found.values())
    finally:
        for connection in [connection for of_one in found.values() for connection in of_one]:
            connection.socket.close()
