"""The rate limiter's contract."""

from typing import Protocol

import msgspec


class RateLimitDecision(msgspec.Struct, frozen=True, gc=False):
    """A limiter's answer.

    `left`: how many more requests would be accepted at once. `reset`: seconds until the oldest request that
    counts leaves the window; for a refused request, until one is accepted again.
    """

    accepted: bool
    left: int
    reset: float


class RateLimiter(Protocol):
    """An exact sliding log (decision G28).

    A request is refused if, and only if, `limit` requests of its key were accepted in the `window` seconds before
    it; one accepted exactly `window` seconds ago counts no more. Each limiter reads its own clock, since one that
    is shared must read it under its lock.
    """

    @property
    def limit(self) -> int:
        """Requests per window and key, at least 1."""

    @property
    def window(self) -> int:
        """Seconds."""

    @property
    def is_shared(self) -> bool:
        """Whether it was set up to count over machines."""

    @property
    def scope(self) -> str:
        """Whose requests are counted together at the moment, such as "this machine"."""

    async def hit(self, key_id: int) -> RateLimitDecision:
        """Count one request in one atomic step; a refused one does not count. May raise Unavailable."""

    async def peek(self, key_id: int) -> RateLimitDecision:
        """What `hit` would answer now, without counting. May raise Unavailable."""

    async def run_maintenance(self) -> None:
        """What is to be done beside the requests, until cancelled; returns where that is nothing."""

    async def check(self) -> None:
        """Raises Unavailable unless requests can be counted."""

    async def close(self) -> None:
        """Give back what is held."""
