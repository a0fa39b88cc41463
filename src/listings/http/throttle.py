"""Limit how fast pieces of large bodies pass, because copying them at full speed delays all other requests."""

import asyncio
import math
from contextlib import AbstractAsyncContextManager
from time import monotonic

from listings.http.asgi import Owner
from listings.queues import FairQueue

_INTERVAL_SECONDS = 0.001  # 64 MB/s are sent; at full speed, p99 of other requests is three times as high
_BURST_SECONDS = 0.064  # 4 MiB are sent at full speed


class Throttle:
    """Lets one connection of the event loop at a time pass a piece, on average at most one per millisecond."""

    def __init__(self) -> None:
        self._queue = FairQueue(None, max_callers=math.inf)
        self._due = 0.0
        self.passed = 0  # how many pieces

    def acquire(self, owner: Owner) -> AbstractAsyncContextManager[None]:
        """Acquire the right to pass a piece. Each owner holds at most one place in the queue."""
        return self._queue.acquire(owner)

    async def wait(self) -> None:
        """Wait until another piece may pass. Call it after a piece passed, while you hold the right."""
        await asyncio.sleep(max(0.0, self.count()))

    def count(self) -> float:
        """Count a piece that passed. Return after how many seconds another one may pass; negative: it may now."""
        self.passed += 1
        now = monotonic()
        self._due = max(self._due, now - _BURST_SECONDS) + _INTERVAL_SECONDS
        return self._due - now
