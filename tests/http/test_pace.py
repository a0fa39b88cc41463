"""Pieces of large bodies are sent in turn and, after a burst, at a limited rate."""

import asyncio
from time import monotonic

from listings.http.pace import Pace

BURST = 64


async def send(pace: Pace, count: int) -> float:
    """Take this many turns; return the seconds it took."""
    began = monotonic()
    for _ in range(count):
        async with pace:
            pass
    return monotonic() - began


def test_pieces_after_a_burst_take_a_millisecond_each() -> None:
    assert asyncio.run(send(Pace(), BURST + 100)) > 0.09


def test_the_pieces_of_a_burst_do_not_wait() -> None:
    assert min(asyncio.run(send(Pace(), BURST)) for _ in range(5)) < BURST / 2 / 1000


def test_clients_take_turns() -> None:
    turns = []

    async def take(client: str, pace: Pace) -> None:
        for _ in range(3):
            async with pace:
                turns.append(client)

    async def take_both() -> None:
        pace = Pace()
        await asyncio.gather(take("alice", pace), take("bob", pace))

    asyncio.run(take_both())
    assert turns == ["alice", "bob"] * 3
