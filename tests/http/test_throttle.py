"""Pieces of large bodies pass in turn and, after a burst, at a limited rate."""

import asyncio
from pathlib import Path
from time import monotonic

from listings.http.throttle import Throttle
from tests.harness import RunningService
from tests.http.raw import PATH, Connection, request

BURST = 64


async def send(throttle: Throttle, count: int) -> float:
    """Send this many pieces; return the seconds it took."""
    began = monotonic()
    for _ in range(count):
        async with throttle.acquire(("api", 1)):
            await throttle.wait()
    return monotonic() - began


def test_pieces_after_a_burst_take_a_millisecond_each() -> None:
    assert asyncio.run(send(Throttle(), BURST + 100)) > 0.09


def test_the_pieces_of_a_burst_do_not_wait() -> None:
    assert min(asyncio.run(send(Throttle(), BURST)) for _ in range(5)) < BURST / 2 / 1000


def test_owners_take_turns_however_many_connections_they_have() -> None:
    turns = []

    async def take(owner: int, throttle: Throttle) -> None:
        for _ in range(2):
            async with throttle.acquire(("api", owner)):
                turns.append(owner)
                await throttle.wait()

    async def take_all() -> None:
        throttle = Throttle()
        await asyncio.gather(*(take(owner, throttle) for owner in (1, 1, 1, 2)))

    asyncio.run(take_all())
    assert turns[:4] == [1, 2, 1, 2]
    assert turns[4:] == [1] * 4


def test_a_large_piece_counts_whether_it_arrives_with_the_head_or_later(tmp_path: Path) -> None:
    with RunningService(tmp_path) as service:
        key, body = service.cast().alice.key, b'{"title": "Large", "content": "%b"}' % (b"x" * 60_000)
        with Connection(service).send(request("POST", PATH, key, body=body)) as connection:
            assert connection.read_response().status == 201
        before = service.count_large_pieces()
        head = request("POST", PATH, key, b"Expect: 100-continue", body=body).removesuffix(body)
        with Connection(service).send(head) as connection:
            assert connection.socket.recv(1024) == b"HTTP/1.1 100 Continue\r\n\r\n"
            assert connection.send(body).read_response().status == 201
        assert 0 < before < service.count_large_pieces()
