"""Limit how fast pieces of large bodies are sent, because copying them at full speed delays all other requests."""

import asyncio
from time import monotonic

_INTERVAL_SECONDS = 0.001  # 64 MB/s; at full speed, p99 of other requests is three times as high
_BURST_SECONDS = 0.064  # 4 MiB are sent at full speed


class Pace:
    """The turns of all connections of an event loop to send a piece, one per iteration and, in the long run, per ms."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._due = 0.0

    async def __aenter__(self) -> None:
        """Wait for the turn."""
        await self._lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        """Give the turn to the next connection when it is due."""
        now = monotonic()
        self._due = max(self._due, now - _BURST_SECONDS) + _INTERVAL_SECONDS
        try:
            await asyncio.sleep(max(0.0, self._due - now))
        finally:
            self._lock.release()
