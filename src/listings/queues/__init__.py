"""A queue in which owners take turns, so that nobody waits for all requests of somebody else."""

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

from listings.domain.errors import Unavailable

_MAX_CALLERS_OF_OWNER = 250  # bodies of 64 KiB that wait with them take 16 MiB
_MAX_CALLERS_FACTOR = 10  # for all owners together


class FairQueue:
    """Lets callers in, of each owner in turn."""

    def __init__(
        self,
        pause: float | None = 0.0,
        *,
        slots: int = 1,
        slots_of_owner: int = 1,
        max_callers: float = _MAX_CALLERS_OF_OWNER,
        max_total: float = math.inf,
        seconds: float | None = None,
    ) -> None:
        """Unless `pause` is None, the event loop runs before each caller; one that waited sleeps for `pause` seconds.

        At most `slots` callers have their turn at the same time, and `slots_of_owner` of an owner. An owner may have
        `max_callers` callers, and all owners `max_total`. Each waits at most `seconds` for its turn.
        """
        self._pause = pause
        self._slots_of_owner = slots_of_owner
        self._max_callers = max_callers
        self._max_total = max_total
        self._seconds = seconds
        self._slots = asyncio.Semaphore(slots)
        self._locks: dict[Hashable, asyncio.Semaphore] = {}  # by owner: the callers whose turn is next have it
        self._callers: Counter[Hashable] = Counter()
        self._total = 0

    @asynccontextmanager
    async def acquire(self, owner: Hashable) -> AsyncIterator[None]:
        """Wait for a turn of the owner, which ends with the block. Raises Unavailable if too many callers wait."""
        limit = self._max_callers if self._total < self._max_callers * _MAX_CALLERS_FACTOR else 1
        if self._callers[owner] >= limit or self._total >= self._max_total:
            raise _build_error()
        is_contended = self._total > 0
        deadline = self._seconds and asyncio.get_running_loop().time() + self._seconds
        self._callers[owner] += 1
        self._total += 1
        own = self._locks.setdefault(owner, asyncio.Semaphore(self._slots_of_owner))
        try:
            async with _Slot(own, deadline), _Slot(self._slots, deadline):
                if self._pause is not None:
                    await asyncio.sleep(self._pause if is_contended else 0)
                yield
        finally:
            self._total -= 1
            self._callers[owner] -= 1
            if not self._callers[owner]:
                del self._callers[owner], self._locks[owner]


class _Slot:
    def __init__(self, semaphore: asyncio.Semaphore, deadline: float | None) -> None:
        self._semaphore = semaphore
        self._deadline = deadline  # on the event loop's clock

    async def __aenter__(self) -> None:
        if self._deadline is None or not self._semaphore.locked():
            await self._semaphore.acquire()
            return
        await asyncio.sleep(0)  # starts a task for a request that has none (see http/eager.py): a timeout needs it
        try:
            async with asyncio.timeout_at(self._deadline):
                await self._semaphore.acquire()
        except TimeoutError:
            raise _build_error() from None

    async def __aexit__(self, *_: object) -> None:
        self._semaphore.release()


def _build_error() -> Unavailable:
    return Unavailable("Too many requests are waiting: try again in a moment", for_visitors=True)
