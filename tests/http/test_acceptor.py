import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from listings.http.acceptor import Acceptor, drop_new_connections

BATCH_SIZE, CLIENTS = 16, 30


@pytest.fixture(params=["127.0.0.1", "::1"])
def listener(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with socket.create_server((request.param, 0), family=family) as server:
        yield server


def connect(listener: socket.socket) -> socket.socket:
    return socket.create_connection(listener.getsockname()[:2], timeout=0.2)


def test_new_connections_are_ignored_after_the_filter(listener: socket.socket) -> None:
    assert drop_new_connections(listener)
    with pytest.raises(TimeoutError):
        connect(listener)


def test_queued_connections_still_work_after_the_filter(listener: socket.socket) -> None:
    with connect(listener) as early, connect(listener) as other:
        other.send(b"before")
        assert drop_new_connections(listener)
        accepted = [listener.accept()[0] for _ in range(2)]
        listener.close()
        early.send(b"after")
        for connection, expected in zip(accepted, (b"after", b"before"), strict=True):
            with connection:
                assert connection.recv(16) == expected
                connection.send(b"response")
        assert (early.recv(16), other.recv(16)) == (b"response", b"response")


def test_an_ignored_client_reaches_the_next_listener(listener: socket.socket) -> None:
    assert drop_new_connections(listener)
    address = listener.getsockname()[:2]
    with socket.socket(listener.family) as client:
        client.setblocking(False)  # noqa: FBT003 - the socket module's own signature
        with pytest.raises(BlockingIOError):
            client.connect(address)
        listener.close()
        with socket.create_server(address, family=listener.family) as successor:
            successor.settimeout(120)
            successor.accept()[0].close()


@pytest.mark.parametrize(
    ("count_pieces", "sizes"),
    [(lambda _: 0, [16, 14]), (lambda accepted: accepted, [16, 2, 2, 2, 2, 2, 2, 2])],
    ids=["without bodies", "with large bodies"],
)
def test_fewer_connections_are_accepted_at_once_while_large_bodies_arrive(
    listener: socket.socket, count_pieces: Callable[[int], int], sizes: list[int]
) -> None:
    accepted: list[asyncio.StreamReaderProtocol] = []
    writers: list[asyncio.StreamWriter] = []

    def build() -> asyncio.StreamReaderProtocol:
        accepted.append(asyncio.StreamReaderProtocol(asyncio.StreamReader(), lambda _, writer: writers.append(writer)))
        return accepted[-1]

    async def accept() -> list[int]:
        found = []
        acceptor = Acceptor(build, lambda: CLIENTS, BATCH_SIZE, lambda: count_pieces(len(accepted)))
        acceptor.start([listener])
        while len(accepted) < CLIENTS:
            before = len(accepted)
            await asyncio.sleep(0)
            found += [len(accepted) - before] if len(accepted) > before else []
        acceptor.stop(accept_pending=False)
        await acceptor.finish()
        for writer in writers:
            writer.close()
            await writer.wait_closed()
        return found

    with ExitStack() as clients:
        for _ in range(CLIENTS):
            clients.enter_context(connect(listener))
        assert asyncio.run(accept()) == sizes
