"""Limit the sessions that writes use, so that the slow writes of one account leave sessions to others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from listings.domain.errors import Unavailable
from listings.store.postgres.pool import PoolLimits

_MAX_OF_ACCOUNT = 2  # one holds the lock of the account's state, and the next one begins meanwhile
_RESERVED_FOR_READS = 2


class WriteTurns:
    """The turns of one event loop."""

    def __init__(self, limits: PoolLimits) -> None:
        self._seconds = limits.seconds
        count = max(1, limits.sessions - _RESERVED_FOR_READS)
        self._all = asyncio.Semaphore(count)
        self._max_of_account = max(1, min(_MAX_OF_ACCOUNT, count // 2))
        self._accounts: dict[int, _Account] = {}

    @asynccontextmanager
    async def take(self, bucket: int) -> AsyncIterator[None]:
        """Wait for a turn of an account, which is known by its bucket. Raises Unavailable after the timeout."""
        account = self._accounts.setdefault(bucket, _Account(self._max_of_account))
        account.users += 1
        try:
            async with _Turn(account.turns, self._seconds), _Turn(self._all, self._seconds):
                yield
        finally:
            account.users -= 1
            if not account.users:
                del self._accounts[bucket]


class _Account:
    """The turns of an account, and the number of its writes."""

    def __init__(self, max_turns: int) -> None:
        self.turns = asyncio.Semaphore(max_turns)
        self.users = 0


class _Turn:
    """A semaphore that is acquired within a time limit."""

    def __init__(self, semaphore: asyncio.Semaphore, seconds: float) -> None:
        self._semaphore = semaphore
        self._seconds = seconds

    async def __aenter__(self) -> None:
        if not self._semaphore.locked():
            await self._semaphore.acquire()  # without waiting
            return
        try:
            await asyncio.wait_for(self._semaphore.acquire(), self._seconds)
        except TimeoutError:
            raise Unavailable("The database is busy: too many writes are waiting") from None

    async def __aexit__(self, *_: object) -> None:
        self._semaphore.release()
