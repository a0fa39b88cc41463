"""The inspection of Redis closes its connection in every case."""

import time
from collections.abc import Callable

import pytest

from listings.domain.errors import Unavailable
from listings.ratelimit import redis_inspection
from listings.ratelimit.redis_connection import Connection, Endpoint, connect
from tests.harness import TIMEOUT
from tests.redis_server import RedisServer


def assert_disconnected(server: RedisServer) -> None:
    with server.client() as client:
        deadline = time.monotonic() + TIMEOUT
        while len(client.client_list()) > 1:
            assert time.monotonic() < deadline, client.client_list()
            time.sleep(0.01)


def test_the_connection_is_closed_after_a_response(server: RedisServer) -> None:
    assert redis_inspection.inspect(server.endpoint()).name.startswith(("Redis ", "Valkey "))
    assert_disconnected(server)


def test_the_connection_is_closed_after_an_error(server: RedisServer) -> None:
    with server.client() as client:
        client.acl_setuser("alice", enabled=True, passwords=["+secret"], commands=["+time"])
    with pytest.raises(Unavailable, match="NOPERM") as rejected:
        redis_inspection.inspect(server.endpoint(user="alice", password="secret"))
    assert_disconnected(server)
    assert rejected.traceback  # keeps the frames alive, so that garbage collection closes nothing


def test_the_connection_is_closed_after_a_timeout(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    connections: list[Connection] = []

    async def connect_slowly(endpoint: Endpoint, on_close: Callable[[str], None]) -> Connection:
        connections.append(await connect(endpoint, on_close))
        time.sleep(0.1)  # noqa: ASYNC251 - the total timeout must end before that of a reply
        return connections[0]

    monkeypatch.setattr(redis_inspection, "connect", connect_slowly)
    monkeypatch.setattr(redis_inspection, "_TIMEOUT_SECONDS", 1)
    while not connections:  # on a stalled machine, the second may be over before the connection is open
        with server.frozen(), pytest.raises(Unavailable, match="no response within 1 s"):
            redis_inspection.inspect(server.endpoint())
    assert connections[0].close_reason
    assert_disconnected(server)
