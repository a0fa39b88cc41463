"""Limit how fast pieces of large bodies are sent, because copying them at full speed delays all other requests."""

import asyncio
import math
from contextlib import AbstractAsyncContextManager
from time import monotonic

from listings.http.asgi import Owner
from listings.queues import FairQueue

_INTERVAL_SECONDS = 0.001  # 64 MB/s; at full speed, p99 of other requests is three times as high
_BURST_SECONDS = 0.064  # 4 MiB are sent at full speed


class Throttle:
    """Lets one connection of the event loop at a time send a piece, on average at most one per millisecond."""

    def __init__(self) -> None:
        self._queue = FairQueue(None, max_callers=math.inf)
        self._due = 0.0

    def acquire(self, owner: Owner) -> AbstractAsyncContextManager[None]:
        """Acquire the right to send a piece. Each owner holds at most one place in the queue."""
        return self._queue.acquire(owner)

    async def wait(self) -> None:
        """Wait until another piece may be sent. Call it after a piece was sent, while you hold the right."""
        now = monotonic()
        self._due = max(self._due, now - _BURST_SECONDS) + _INTERVAL_SECONDS
        await asyncio.sleep(max(0.0, self._due - now))
