"""A lock that lets the event loop run between two long steps."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class YieldingLock:
    """A lock that lets the event loop run before each holder. For steps that take a millisecond or longer."""

    def __init__(self, pause: float = 0.0) -> None:
        """A caller that had to wait for the lock then sleeps for `pause` seconds while it holds the lock."""
        self._pause = pause
        self._lock = asyncio.Lock()
        self._callers = 0  # that hold the lock or wait for it; `_lock.locked()` is False while a waiter is woken

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[None]:
        """Acquire the lock, and let the event loop run."""
        is_contended = self._callers > 0
        self._callers += 1
        try:
            async with self._lock:
                await asyncio.sleep(self._pause if is_contended else 0)
                yield
        finally:
            self._callers -= 1
