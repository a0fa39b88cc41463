"""Tests of the lines between supervisor and worker."""

import asyncio

import pytest

from listings.workers.protocol import Pong, Ready, decode_event, encode, read_line


@pytest.mark.parametrize(
    "rest", [b"", encode(Ready())[:-1], b'{"type":"rep', b"x" * 200], ids=["end", "a", "b", "long"]
)
def test_the_last_line_ends_with_the_connection(rest: bytes) -> None:
    async def read_all() -> list[bytes]:
        reader = asyncio.StreamReader(limit=100)
        reader.feed_data(encode(Pong()) + rest)
        reader.feed_eof()
        return [await read_line(reader), await read_line(reader)]

    first, last = asyncio.run(read_all())
    assert (decode_event(first), last) == (Pong(), b"")
