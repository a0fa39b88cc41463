"""Memory for responses: every large response needs room, wherever it waits until its last byte is sent."""

import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from listings.domain.errors import Unavailable
from listings.http import byte_budget
from listings.http.asgi import SHARED
from listings.http.connection import unsent
from tests.harness import RunningService
from tests.http.raw import Connection, request
from tests.waiting import until

MIB = 1024 * 1024
PIECE = 64 * 1024
LATE = (f"/api/2/whole/200/{MIB}", f"/console/1/whole/200/{2 * MIB}")
SHARED_BODY = b"x" * MIB


class OwnedApplication:
    """Responds to /OWNERS/ID/HOW/STATUS/SIZE: `HOW` is whole, asgi, or pieces."""

    async def serve(self, exchange: Any) -> None:
        _, owners, key, how, status, size = exchange.path.split("/")
        exchange.set_owner((owners, int(key)) if owners != "shared" else SHARED)
        try:
            await self._respond(exchange, how, int(status), int(size))
        except Unavailable:
            await self._respond(exchange, how, 503, 0)

    async def _respond(self, exchange: Any, how: str, status: int, size: int) -> None:
        body = SHARED_BODY if exchange.path.startswith("/shared") else b"x" * size
        if how == "whole":
            sent = b"" if exchange.method == "HEAD" else body
            await exchange.respond(status, b"content-length: %d\r\n" % size, sent)
            return
        headers = [(b"content-length", b"%d" % size)]
        await exchange.send({"type": "http.response.start", "status": status, "headers": headers})
        length = PIECE if how == "pieces" else max(1, size)
        for start in range(0, max(1, size), length):
            more = start + length < size
            await exchange.send({"type": "http.response.body", "body": body[start : start + length], "more_body": more})


@pytest.fixture
def service(tmp_path: Path) -> Iterator[RunningService]:
    with RunningService(tmp_path) as service:
        service.replace_application(OwnedApplication())
        yield service


class Unread:
    def __init__(self, service: RunningService, stack: ExitStack) -> None:
        self._service, self._stack = service, stack

    def get(self, path: str, count: int = 1, method: str = "GET") -> list[int]:
        """Open `count` connections and request the path once on each. Return the statuses."""
        statuses = []
        for _ in range(count):
            connection = self._stack.enter_context(Connection(self._service, receive_buffer=4096))
            connection.send(request(method, path))
            statuses.append(int(peek(connection).split(b" ")[1]))
        return statuses


@pytest.fixture
def unread(service: RunningService) -> Iterator[Unread]:
    with ExitStack() as stack:
        yield Unread(service, stack)


@pytest.mark.parametrize("how", ["whole", "asgi"])
def test_an_owner_may_leave_eight_mebibytes_unread(unread: Unread, how: str) -> None:
    statuses = unread.get(f"/console/7/{how}/200/{MIB // 4 - 1024}", 34)
    assert statuses == [200] * 32 + [503] * 2  # although the kernel has some of the bytes


@pytest.mark.parametrize(
    "path",
    [
        f"/console/8/asgi/200/{MIB}",  # another account
        f"/api/7/asgi/200/{MIB}",  # another class
        "/console/7/asgi/200/16000",  # small
        f"/console/7/asgi/500/{MIB}",  # an error
    ],
)
def test_an_owner_without_room_does_not_affect(unread: Unread, path: str) -> None:
    assert unread.get(f"/console/7/asgi/200/{MIB}", 10)[-1] == 503
    assert unread.get(path) == [200 if "/500/" not in path else 500]


@pytest.mark.parametrize("how", ["whole", "asgi"])
def test_a_response_without_a_body_needs_no_room(unread: Unread, how: str) -> None:
    assert unread.get(f"/api/7/{how}/200/{MIB}", 20, method="HEAD") == [200] * 20
    assert unread.get(f"/api/7/{how}/200/{MIB}") == [200]


def test_a_body_in_pieces_takes_the_room_of_a_piece(unread: Unread) -> None:
    assert unread.get(f"/console/7/pieces/200/{MIB}", 40) == [200] * 40


@pytest.mark.parametrize("how", ["whole", "asgi"])
def test_a_shared_body_needs_no_room(unread: Unread, how: str) -> None:
    assert unread.get(f"/shared/0/{how}/200/{MIB}", 60) == [200] * 60
    assert unread.get(f"/visitors/1/{how}/200/{MIB}") == [200]


def test_a_response_that_waits_for_an_earlier_one_takes_room(service: RunningService, unread: Unread) -> None:
    path = f"/api/7/whole/200/{3 * MIB}"
    with Connection(service, receive_buffer=4096) as connection:
        connection.send(request("GET", path) * 2)
        assert peek(connection) == b"HTTP/1.1 200"
        assert unread.get(path) == [503]
        assert len(connection.read_response().body) == 3 * MIB
        assert len(connection.read_response().body) == 3 * MIB
    assert unread.get(path) == [200]


def test_unsent_bytes_remain_those_of_their_owner(service: RunningService, unread: Unread) -> None:
    with Connection(service, receive_buffer=4096) as connection:
        connection.send(request("GET", f"/api/7/whole/200/{7 * MIB}") + request("GET", "/api/8/whole/200/10"))
        assert peek(connection) == b"HTTP/1.1 200"
        assert unread.get(f"/api/7/whole/200/{2 * MIB}") == [503]
        assert unread.get(f"/api/8/whole/200/{6 * MIB}", 2) == [200, 503]


def test_room_returns_when_the_client_leaves(service: RunningService) -> None:
    with ExitStack() as stack:
        assert Unread(service, stack).get(f"/api/7/whole/200/{5 * MIB}", 2) == [200, 503]
    with ExitStack() as stack:
        until(lambda: Unread(service, stack).get(f"/api/7/whole/200/{5 * MIB}") == [200])


@pytest.mark.as_written
def test_only_owners_with_the_average_or_more_are_hurried(
    service: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client of an owner with fewer bytes, or of another class, can pause."""
    monkeypatch.setattr(byte_budget, "_MAX_BYTES", 3 * MIB)
    monkeypatch.setattr(unsent, "_HURRIED_SECONDS", 0.2)
    with ExitStack() as stack:
        connections = [stack.enter_context(Connection(service, receive_buffer=4096)) for _ in range(3)]
        for connection, path in zip(connections, (f"/api/1/whole/200/{7 * MIB}", *LATE), strict=True):
            connection.send(request("GET", path))
        until(lambda: is_reset(connections[0]))
        assert [len(connection.read_response().body) for connection in connections[1:]] == [MIB, 2 * MIB]


def peek(connection: Connection) -> bytes:
    """Return the status line's beginning, which remains unread."""
    return connection.socket.recv(12, socket.MSG_PEEK | socket.MSG_WAITALL)


def is_reset(connection: Connection) -> bool:
    """Return whether the service has dropped the connection, without reading what it sent."""
    poll = select.poll()
    poll.register(connection.socket, select.POLLHUP)
    return bool(poll.poll(0))
