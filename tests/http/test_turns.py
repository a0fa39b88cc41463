"""Many requests at once: those of others run between them."""

import asyncio
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from listings.http.asgi import Owner
from listings.http.turns import Turns
from tests.harness import TIMEOUT, RunningService
from tests.http.raw import Connection, request

LONG_SECONDS = 0.003  # a turn is over after 2 ms
ALICE, BOB = ("api", 1), ("api", 2)


class Clock:
    """A clock that only requests and pauses move, however busy the machine is."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds

    def move(self, seconds: float) -> None:
        self.seconds += seconds


class Request(NamedTuple):
    """A request that takes long, on a connection of its own."""

    owner: Owner
    clock: Clock
    finished: list[object]
    body_bytes: int = 0

    def run_ready(self) -> None:
        self.clock.move(LONG_SECONDS)
        self.finished.append(self.owner)


async def run_all(owners: Sequence[Owner]) -> list[object]:
    """Return the owners in the order in which their requests run, if all are ready in one iteration, and a callback."""
    clock, order = Clock(), list[object]()
    turns = Turns(clock)
    for owner in owners:
        turns.run(Request(owner, clock, order))
    asyncio.get_running_loop().call_soon(order.append, "callback")
    for _ in owners:  # each iteration runs at least one of them
        await asyncio.sleep(0)
    return order


def test_owners_take_turns_after_the_first_requests() -> None:
    order = asyncio.run(run_all([*[ALICE] * 4, BOB]))
    assert order == [ALICE, ALICE, "callback", BOB, ALICE, ALICE]


def test_classes_of_owners_take_turns() -> None:
    others: list[Owner] = [("visitors", f"192.0.2.{number}") for number in range(3)]
    order = asyncio.run(run_all([ALICE, *others, BOB]))
    assert order == [ALICE, others[0], "callback", BOB, *others[1:]]


async def count_finished(connections: Sequence[int], pause: float) -> list[int]:
    """Return how many of alice's requests have run after each arrived, which is followed by a pause of so many seconds.

    `connections` is the number of the connection of each request.
    """
    clock, finished, counts = Clock(), list[object](), list[int]()
    turns = Turns(clock)
    requests = {number: Request(ALICE, clock, finished) for number in connections}
    for number in connections:
        turns.run(requests[number])
        counts.append(len(finished))
        clock.move(pause)
        await asyncio.sleep(0)
    return counts


def test_a_request_runs_at_once_after_a_pause() -> None:
    assert asyncio.run(count_finished([1, 2, 3, 4], 0.001)) == [1, 2, 3, 4]
    assert asyncio.run(count_finished([1, 2, 3, 4], 0)) == [1, 1, 3, 3]  # the second waits


def test_requests_of_one_connection_run_at_once() -> None:
    assert asyncio.run(count_finished([1, 1, 1, 1], 0)) == [1, 2, 3, 4]


def test_a_request_does_not_wait_if_many_bytes_of_bodies_do() -> None:
    async def run() -> list[int]:
        clock, finished, counts = Clock(), list[object](), list[int]()
        turns = Turns(clock)
        for number, size in enumerate([3 << 20, 3 << 20, 3 << 20, 3 << 20, 0]):  # the second and third wait
            turns.run(Request(("api", number), clock, finished, size))
            counts.append(len(finished))
        return counts

    assert asyncio.run(run()) == [1, 1, 1, 2, 2]


class BusyApplication:
    """An application whose requests take long. The first one lasts until it is released."""

    def __init__(self) -> None:
        self.has_begun, self.released = threading.Event(), threading.Event()
        self.paths: list[str] = []

    async def serve(self, exchange: Any) -> None:
        exchange.set_owner(("api", exchange.path))
        if exchange.path == "/first":
            self.has_begun.set()
            self.released.wait(TIMEOUT)
        end = time.perf_counter() + LONG_SECONDS
        while time.perf_counter() < end:
            pass
        self.paths.append(exchange.path)
        await exchange.respond(200, b"content-length: 0\r\n", b"")


@pytest.mark.alone  # a thread that does not get the processor for 0.5 ms looks idle
def test_a_request_does_not_wait_for_all_earlier_ones_of_others(tmp_path: Path) -> None:
    application = BusyApplication()
    with RunningService(tmp_path) as service, ExitStack() as stack:
        service.replace_application(application)
        connections = [stack.enter_context(Connection(service)) for _ in range(20)]
        paths = [*["/alice"] * 19, "/bob"]
        for connection, path in zip(connections, paths, strict=True):  # so that the owners are known
            connection.send(request("GET", path)).read_response()
        with Connection(service).send(request("GET", "/first")):
            assert application.has_begun.wait(TIMEOUT)
            for connection, path in zip(connections, paths, strict=True):
                connection.send(request("GET", path) * 2)
            application.released.set()
            for connection in connections * 2:
                connection.read_response()
    order = application.paths[21:]
    assert order.count("/bob") == 2
    assert order.index("/bob") <= 4  # two requests of a connection run together, and the first one may not wait
