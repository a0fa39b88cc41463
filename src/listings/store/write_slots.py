"""Limit the writes of an account that run at a time, so that those of others need not wait for all of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from listings.domain.errors import Unavailable


class WriteSlots:
    """The slots of one event loop."""

    def __init__(self, seconds: float, max_of_account: int, max_of_all: int) -> None:
        """`seconds` is how long a write waits at most."""
        self._seconds = seconds
        self._max_of_account = max_of_account
        self._all = asyncio.Semaphore(max_of_all)
        self._buckets: dict[int, _BucketSlots] = {}

    @asynccontextmanager
    async def take(self, bucket: int) -> AsyncIterator[None]:
        """Wait for a slot of a bucket, whose accounts share its slots. Raises Unavailable after the timeout."""
        own = self._buckets.setdefault(bucket, _BucketSlots(self._max_of_account))
        own.users += 1
        try:
            async with _Slot(own.slots, self._seconds), _Slot(self._all, self._seconds):
                yield
        finally:
            own.users -= 1
            if not own.users:
                del self._buckets[bucket]


class _BucketSlots:
    """The slots of a bucket, and the number of its writes."""

    def __init__(self, max_slots: int) -> None:
        self.slots = asyncio.Semaphore(max_slots)
        self.users = 0


class _Slot:
    """A semaphore that is acquired within a time limit."""

    def __init__(self, semaphore: asyncio.Semaphore, seconds: float) -> None:
        self._semaphore = semaphore
        self._seconds = seconds

    async def __aenter__(self) -> None:
        if not self._semaphore.locked():
            await self._semaphore.acquire()  # without waiting
            return
        await asyncio.sleep(0)  # a request that was run without a task gets one, which a timeout needs
        try:
            async with asyncio.timeout(self._seconds):
                await self._semaphore.acquire()
        except TimeoutError:
            raise Unavailable("The database is busy: too many writes are waiting") from None

    async def __aexit__(self, *_: object) -> None:
        self._semaphore.release()
