"""Rate limiters, and their decisions."""

from typing import Protocol

import msgspec

REDIS_UNAVAILABLE = "because Redis is unavailable"
"""What `RateLimiter.scope` ends with while Redis is unavailable."""


class RateLimitDecision(msgspec.Struct, frozen=True, gc=False):
    """The decision on one request.

    `remaining` is the number of requests that would be accepted now. `reset` is the number of seconds until the oldest
    counted request leaves the window. For a rejected request, that is when the next one can be accepted.
    """

    accepted: bool
    remaining: int
    reset: float


class RateLimiter(Protocol):
    """An exact sliding-window log (decision G28).

    A request is rejected if, and only if, `limit` requests with its key were accepted in the `window` seconds before
    it. A request accepted exactly `window` seconds ago is no longer counted. No method takes the time: a
    shared limiter must read the clock under its lock.
    """

    @property
    def limit(self) -> int:
        """Requests per window and key, at least 1."""

    @property
    def window(self) -> int:
        """Length of the window in seconds."""

    @property
    def is_distributed(self) -> bool:
        """Whether the limiter is configured to count across machines."""

    @property
    def scope(self) -> str:
        """The processes whose requests are currently counted together, such as "this machine"."""

    async def hit(self, key_id: int) -> RateLimitDecision:
        """Count a request in one atomic step. Rejected requests are not counted. May raise Unavailable."""

    async def peek(self, key_id: int) -> RateLimitDecision:
        """Return the key's current state without counting a request. May raise Unavailable."""

    async def run_maintenance(self) -> None:
        """Run background work until cancelled. Return immediately if there is none."""

    async def check(self) -> None:
        """Raise Unavailable if requests can't be counted, or if the disk has no room for some of them."""

    async def close(self) -> None:
        """Release files and connections."""
