"""Request bodies: where they wait until they are complete, the memory of large ones, and how many values they have."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import IO

from listings.domain.errors import Problem, Unavailable
from listings.http.asgi import PIECE_BYTES
from listings.http.body_files import BodyFile, BodyFolder
from listings.http.byte_budget import ByteBudget, Owner
from listings.queues import FairQueue

LARGE_BODY_BYTES = 64 * 1024
"""Any body of at most this size is decoded within 2 ms."""
MAX_VALUES = 20_000
"""The limit for a large body. Without it, 2 MiB can hold a million values, which take up to 100 ms to decode."""

_MAX_INCOMPLETE_BYTES = 8 * 1024 * 1024  # in memory; beyond that, small bodies are written to files, too
_BUFFER_BYTES = 4096  # in memory although the rest is in a file: not each byte of a slow client is written by itself
# The decoder rejects deeper nesting: it accepts at most 9,999 levels up to Python 3.13, and 27,452 on 3.14.
_MAX_DEPTH = 10_000 if sys.version_info < (3, 14) else 30_000


class LargeBodies:
    """The request bodies of all clients of the API, or of the pages."""

    def __init__(self, folder: BodyFolder, weight: int = 1) -> None:
        """`weight`: how many times its bytes a complete body needs in memory. Without room, it waits."""
        self.folder = folder
        self.incomplete_bytes = 0  # in memory
        self._weight = weight
        self._budget = ByteBudget()
        self._released = asyncio.Event()
        self.queue = FairQueue()  # of large bodies that are about to be decoded

    def has_room(self, owner: Owner, size: int) -> bool:
        """Return whether an owner may use this much more memory. The first body of an owner may be of any size."""
        return self._budget.has_room(owner, size * self._weight)

    def reserve(self, owner: Owner, size: int) -> None:
        """Count bytes in memory, or with a negative size, subtract them."""
        self._budget.change(owner, size * self._weight)
        if size < 0:
            self._released.set()
            self._released = asyncio.Event()

    async def wait_for_room(self, owner: Owner, size: int) -> None:
        while not self.has_room(owner, size):
            await self._released.wait()
        self.reserve(owner, size)

    async def read(self, body: "ReceivedBody") -> bytes:
        """Return a complete body once it may be decoded.

        Raises Unavailable, or Problem("invalid_request") if a large body has too many values.
        """
        await body.finish_receiving()
        if body.length <= LARGE_BODY_BYTES:
            return b"".join([piece async for piece in body.read_pieces()])
        async with body.take_turn():
            data = b"".join([piece async for piece in body.read_pieces()])
            if _has_many_separators(data):
                await _check_values(data)
        return data


class ReceivedBody(BodyFile):
    """A request body: in memory while it is small, in a file while it is large and incomplete, or waits for memory."""

    def __init__(self, bodies: LargeBodies, owner: Owner, part: tuple[bytes, bool] = (b"", True)) -> None:
        """`part`: the bytes that have arrived, and whether more will follow."""
        super().__init__(bodies.folder, owner)
        self.length = 0
        self._limit: tuple[int, Problem] | None = None
        self._more = True
        self._bodies = bodies
        self._incomplete_bytes = 0  # those that `bodies` includes
        self._reserved = 0
        self.add(part)

    @property
    def is_complete(self) -> bool:
        return not self._more

    def set_limit(self, max_bytes: int, too_large: Problem) -> None:
        """Raise the problem if the body is larger than that, now or later."""
        self._limit = max_bytes, too_large
        self.add((b"", self._more))

    def set_owner(self, owner: Owner) -> None:
        """Count the file for another owner. Raises Unavailable if there is no room for it."""
        if owner != self.owner:
            self._folder.reserve(owner, self.size, self._files)
            self._folder.release(self.owner, self.size, self._files)
            self.owner = owner

    def add(self, part: tuple[bytes, bool]) -> None:
        """Add bytes, and whether more will follow. Raises the problem of the limit if the body is too large."""
        chunk, self._more = part
        self.length += len(chunk)
        if self._limit is not None and self.length > self._limit[0]:
            raise self._limit[1]
        self._buffer += chunk
        self._count(len(self._buffer))

    async def needs_more(self) -> bool:
        """Return whether the body is incomplete, after writing what may not wait in memory. Raises Unavailable."""
        is_full = self._bodies.incomplete_bytes > _MAX_INCOMPLETE_BYTES
        max_bytes = _BUFFER_BYTES if is_full or self._file is not None else LARGE_BODY_BYTES
        if (self._more or is_full) and len(self._buffer) > max_bytes:
            await self._flush()
            self._count(0)
        return self._more

    async def finish_receiving(self) -> None:
        """Wait until the body, which is complete, may be in memory. Raises Unavailable."""
        if self.length > LARGE_BODY_BYTES:
            if self._buffer and not self._bodies.has_room(self.owner, self.length):
                await self._flush()
            await self._bodies.wait_for_room(self.owner, self.length)
            self._reserved += self.length

    async def read_pieces(self) -> AsyncIterator[bytes]:
        """Yield the body, once."""
        last, self._buffer, offset = bytes(self._buffer), bytearray(), 0
        self._count(0)
        while offset < self.size:
            piece = await self.read(offset, PIECE_BYTES)
            offset += len(piece)
            yield piece
        yield last

    def take_turn(self) -> AbstractAsyncContextManager[None]:
        """Wait for the owner's turn to decode a large body, which takes several times its size for a moment."""
        return self._bodies.queue.acquire(self.owner)

    def reserve(self, size: int) -> None:
        """Reserve more memory until the request is processed, or less. Raises Unavailable if there is no room."""
        if size > 0 and not self._bodies.has_room(self.owner, size):
            raise Unavailable("Too many large forms are being processed. Try again in a moment", for_visitors=True)
        self._bodies.reserve(self.owner, size)
        self._reserved += size

    def release(self) -> None:
        super().release()
        self._count(0)
        self.release_memory()

    def release_memory(self) -> None:
        """Release the memory of a body that has been processed, although its file is not released yet."""
        if self._reserved:
            self._bodies.reserve(self.owner, -self._reserved)
            self._reserved = 0

    def _count(self, size: int) -> None:
        self._bodies.incomplete_bytes += size - self._incomplete_bytes
        self._incomplete_bytes = size


class Upload(ReceivedBody):
    """A body that is always in a file, and counts as one from its beginning."""

    def __init__(self, bodies: LargeBodies, owner: Owner, part: tuple[bytes, bool]) -> None:
        """Raise Unavailable if too many uploads are being received."""
        bodies.folder.reserve(owner, 0, 1)
        super().__init__(bodies, owner, part)
        self._files = 1

    async def finish_upload(self) -> IO[bytes]:
        """Write the rest of the body, which is complete, and return the file. Raises Unavailable."""
        await self._flush()
        self._count(0)
        return self._open()


def _has_many_separators(body: bytes) -> bool:
    count = 0  # with those in strings
    for start in range(0, len(body), PIECE_BYTES):
        count += _count_separators(body[start : start + PIECE_BYTES])
        if count >= MAX_VALUES:
            return True
    return False


async def _check_values(body: bytes) -> None:
    await asyncio.sleep(0)
    # Without escaped quotes, each quote begins or ends a string.
    text = body.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in body else body
    count = depth = in_string = 0
    for start in range(0, len(text), PIECE_BYTES):
        await asyncio.sleep(0)
        parts = text[start : start + PIECE_BYTES].split(b'"')
        outside = b"".join(parts[in_string::2])
        in_string ^= (len(parts) - 1) % 2
        count += _count_separators(outside)
        depth += outside.count(b"[") + outside.count(b"{") - outside.count(b"]") - outside.count(b"}")
        if depth > _MAX_DEPTH:
            return
        if count >= MAX_VALUES:
            raise Problem("invalid_request", f"The body must have at most {MAX_VALUES} values")


def _count_separators(text: bytes) -> int:
    # The number of array elements and object fields, and one more for each empty array or object.
    return text.count(b"[") + text.count(b"{") + text.count(b",")
