"""Let other requests run between two long steps of requests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """The turns of steps that take the event loop a millisecond or longer."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def take(self) -> AsyncIterator[None]:
        """Wait until a step may run, so that the event loop runs between two of them."""
        async with self._lock:
            await asyncio.sleep(0)
            yield
