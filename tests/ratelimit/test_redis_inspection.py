"""A look at Redis ends the connection that it made, however it ends."""

import time
from collections.abc import Callable, Iterator

import pytest

from listings.domain.errors import Unavailable
from listings.ratelimit import redis_inspection
from listings.ratelimit.redis_connection import Connection, Endpoint, connect
from tests.harness import TIMEOUT
from tests.redis_server import RedisServer


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


def require_alone(server: RedisServer) -> None:
    """The test's own connection is the only one."""
    with server.client() as client:
        end = time.monotonic() + TIMEOUT
        while len(client.client_list()) > 1:
            assert time.monotonic() < end, client.client_list()
            time.sleep(0.01)


def test_after_an_answer(server: RedisServer) -> None:
    assert redis_inspection.inspect(server.endpoint()).name.startswith(("Redis ", "Valkey "))
    require_alone(server)


def test_after_a_refusal(server: RedisServer) -> None:
    with server.client() as client:
        client.acl_setuser("alice", enabled=True, passwords=["+secret"], commands=["+time"])
    with pytest.raises(Unavailable, match="NOPERM") as refused:
        redis_inspection.inspect(server.endpoint(user="alice", password="secret"))
    require_alone(server)
    assert refused.traceback  # held until here, so that nothing was ended by the collection of garbage


def test_after_a_silence(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Connection] = []

    async def connect_slowly(endpoint: Endpoint, on_lost: Callable[[str], None]) -> Connection:
        made.append(await connect(endpoint, on_lost))
        time.sleep(0.1)  # noqa: ASYNC251 - the time for all ends well before that for an answer
        return made[0]

    monkeypatch.setattr(redis_inspection, "connect", connect_slowly)
    monkeypatch.setattr(redis_inspection, "_SECONDS", 1)
    while not made:  # on a machine that stands still a second may be over before the connection stands
        with server.frozen(), pytest.raises(Unavailable, match="no answer within 1 s"):
            redis_inspection.inspect(server.endpoint())
    assert made[0].lost
    require_alone(server)
