import socket
import sys
from collections.abc import Iterator

import pytest

from listings.http.acceptor import reject_new_connections

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the filter is Linux's")


@pytest.fixture(params=["127.0.0.1", "::1"])
def listener(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with socket.create_server((request.param, 0), family=family) as it:
        yield it


def connect(listener: socket.socket) -> socket.socket:
    return socket.create_connection(listener.getsockname()[:2], timeout=0.2)


def test_who_comes_after_others_were_turned_away_is_not_connected(listener: socket.socket) -> None:
    assert reject_new_connections(listener)
    with pytest.raises(TimeoutError):
        connect(listener)


def test_who_was_there_before_is_taken_in_and_talked_to(listener: socket.socket) -> None:
    with connect(listener) as early, connect(listener) as other:
        other.send(b"before")
        assert reject_new_connections(listener)
        taken = [listener.accept()[0] for _ in range(2)]
        listener.close()
        early.send(b"after")
        for connection, heard in zip(taken, (b"after", b"before"), strict=True):
            with connection:
                assert connection.recv(16) == heard
                connection.send(b"answer")
        assert (early.recv(16), other.recv(16)) == (b"answer", b"answer")


def test_who_was_turned_away_is_refused_when_the_socket_is_closed_or_reaches_the_next_that_listens_there(
    listener: socket.socket,
) -> None:
    assert reject_new_connections(listener)
    address = listener.getsockname()[:2]
    with socket.socket(listener.family) as client:
        client.setblocking(False)  # noqa: FBT003 - the socket module's own signature
        with pytest.raises(BlockingIOError):
            client.connect(address)
        listener.close()
        with socket.create_server(address, family=listener.family) as following:
            following.settimeout(120)
            following.accept()[0].close()
