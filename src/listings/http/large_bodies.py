"""Large request bodies: their memory, the order in which they are decoded, and how many values they may have."""

import asyncio
import sys

from listings.domain.errors import Problem, Unavailable
from listings.http.byte_budget import ByteBudget
from listings.http.yielding_lock import YieldingLock

LARGE_BODY_BYTES = 64 * 1024
"""A body of at most this size is decoded within 2 ms, whatever it contains."""
MAX_VALUES = 20_000
"""The limit for a large body. Without it, 2 MiB can hold a million values, which take up to 100 ms to decode."""

_PIECE_BYTES = 64 * 1024
# The decoder rejects deeper nesting: it accepts at most 9,999 levels up to Python 3.13, and 27,452 on 3.14.
_MAX_DEPTH = 10_000 if sys.version_info < (3, 14) else 30_000


class LargeBodies:
    """The large request bodies of all clients."""

    def __init__(self) -> None:
        self._bytes = ByteBudget()
        self._lock = YieldingLock()

    def reserve(self, owner: int, size: int) -> None:
        """Reserve memory for a body of an API key. Raises Unavailable if this key or all keys together use too much."""
        if not self._bytes.has_room(owner):
            raise Unavailable("Too many large request bodies are being received: send fewer at the same time")
        self._bytes.change(owner, size)

    def release(self, owner: int, size: int) -> None:
        self._bytes.change(owner, -size)

    async def wait_and_check(self, body: bytes) -> None:
        """Wait until this body may be decoded, and check its number of values.

        Raises Problem("invalid_request") if it has too many values.
        """
        async with self._lock.acquire():
            if _has_many_separators(body):
                await _check_values(body)


def _has_many_separators(body: bytes) -> bool:
    """Return whether a body may have too many values. Separators in strings are counted, too."""
    count = 0
    for start in range(0, len(body), _PIECE_BYTES):
        count += _count_separators(body[start : start + _PIECE_BYTES])
        if count >= MAX_VALUES:
            return True
    return False


async def _check_values(body: bytes) -> None:
    """Count the separators outside of strings, in pieces."""
    await asyncio.sleep(0)
    text = body.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in body else body
    count = depth = in_string = 0
    for start in range(0, len(text), _PIECE_BYTES):
        await asyncio.sleep(0)
        parts = text[start : start + _PIECE_BYTES].split(b'"')
        outside = b"".join(parts[in_string::2])
        in_string ^= (len(parts) - 1) % 2
        count += _count_separators(outside)
        depth += outside.count(b"[") + outside.count(b"{") - outside.count(b"]") - outside.count(b"}")
        if depth > _MAX_DEPTH:
            return
        if count >= MAX_VALUES:
            raise Problem("invalid_request", f"The body must have at most {MAX_VALUES} values")


def _count_separators(text: bytes) -> int:
    """Count opening brackets and braces, and commas.

    This is the number of array elements and object fields, and one more for each empty array or object.
    """
    return text.count(b"[") + text.count(b"{") + text.count(b",")
