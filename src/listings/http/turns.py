"""Let the event loop run between two long steps."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """The turns of steps that take the event loop a millisecond or longer."""

    def __init__(self, pause: float = 0.0) -> None:
        """`pause` is the time in seconds before a step that had to wait for another one."""
        self._pause = pause
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def take(self) -> AsyncIterator[None]:
        """Wait until a step may run, so that the event loop runs between two of them."""
        is_contended = self._lock.locked()
        async with self._lock:
            await asyncio.sleep(self._pause if is_contended else 0)
            yield
