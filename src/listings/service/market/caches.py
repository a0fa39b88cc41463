"""Caches of the market that are valid for some seconds."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

import msgspec

from listings.domain.model import MarketQuery
from listings.search.results import Counts

T = TypeVar("T")

_COUNT_SECONDS = 10
_MAX_COUNTS = 64  # searches


class Cached(Generic[T]):
    """A value that is read again after some seconds, once for all callers that wait for it."""

    def __init__(self, clock: Callable[[], float], seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._value: tuple[float, T] | None = None
        self._reading: asyncio.Task[T] | None = None

    async def get(self, read: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the value, or raise what `read` raises."""
        if self._value is not None and 0 <= self._clock() - self._value[0] < self._seconds:
            return self._value[1]
        if self._reading is None:
            self._reading = asyncio.create_task(self._read(read))
            self._reading.add_done_callback(self._end)
        return await asyncio.shield(self._reading)  # the caller's visitor may go away

    async def _read(self, read: Callable[[], Coroutine[Any, Any, T]]) -> T:
        now = self._clock()
        value = await read()
        self._value = (now, value)
        return value

    def _end(self, reading: asyncio.Task[T]) -> None:
        self._reading = None
        if not reading.cancelled():
            reading.exception()  # asyncio logs an error that nobody waits for any more


class CountCache:
    """The counts of searches. They are valid for ten seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._counts: dict[MarketQuery, tuple[float, Counts]] = {}

    def find(self, query: MarketQuery) -> Counts | None:
        """Return the counts of a search, whatever its page, if they are valid."""
        since, counts = self._counts.get(_without_page(query), (0.0, None))
        return counts if 0 <= self._clock() - since < _COUNT_SECONDS else None

    def store(self, query: MarketQuery, counts: Counts) -> None:
        """Cache counts. If the cache is full, clear it first."""
        if len(self._counts) >= _MAX_COUNTS:
            self._counts.clear()
        if self.find(query) is None:
            self._counts[_without_page(query)] = (self._clock(), counts)


def _without_page(query: MarketQuery) -> MarketQuery:
    return msgspec.structs.replace(query, sort="newest", after=None, limit=0)
