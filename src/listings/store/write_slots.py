"""Limit how many writes of a bucket run at a time, so that no account has to wait for all writes of another one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from listings.domain.errors import Unavailable


class WriteSlots:
    """The slots of one event loop."""

    def __init__(self, seconds: float, max_per_bucket: int, max_total: int) -> None:
        """`seconds`: how long a write waits at most. The accounts of a bucket share `max_per_bucket` slots."""
        self._seconds = seconds
        self._max_per_bucket = max_per_bucket
        self._all = asyncio.Semaphore(max_total)
        self._buckets: dict[int, _BucketSlots] = {}

    @asynccontextmanager
    async def take(self, bucket: int) -> AsyncIterator[None]:
        """Wait for a slot of the bucket and for one of the total. Raises Unavailable after the timeout."""
        deadline = asyncio.get_running_loop().time() + self._seconds
        own = self._buckets.setdefault(bucket, _BucketSlots(self._max_per_bucket))
        own.users += 1
        try:
            async with _Slot(own.slots, deadline), _Slot(self._all, deadline):
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
    """Acquires a semaphore, for which it waits until a deadline, which is a time of the event loop."""

    def __init__(self, semaphore: asyncio.Semaphore, deadline: float) -> None:
        self._semaphore = semaphore
        self._deadline = deadline

    async def __aenter__(self) -> None:
        if not self._semaphore.locked():
            await self._semaphore.acquire()  # without waiting
            return
        await asyncio.sleep(0)  # starts a task for a request that has none (see http/eager.py): a timeout needs it
        try:
            async with asyncio.timeout_at(self._deadline):
                await self._semaphore.acquire()
        except TimeoutError:
            raise Unavailable("The database is busy: too many writes are waiting") from None

    async def __aexit__(self, *_: object) -> None:
        self._semaphore.release()
