"""Let other requests run between two long steps of requests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_PAUSE_SECONDS = 0.003  # between two of many steps, so that they take at most half of the event loop's time


class Turns:
    """The turns of steps that take the event loop a millisecond or longer."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def take(self) -> AsyncIterator[None]:
        """Wait until a step may run, so that the event loop runs between two of them."""
        is_contended = self._lock.locked()
        async with self._lock:
            await asyncio.sleep(_PAUSE_SECONDS if is_contended else 0)
            yield
