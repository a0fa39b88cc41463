"""A rate limiter in Redis that falls back to a local one while Redis is unavailable."""

import logging
import time
from collections.abc import Callable
from contextlib import suppress

from listings.domain.errors import Unavailable
from listings.domain.rate_limiter import REDIS_UNAVAILABLE, RateLimitDecision, RateLimiter
from listings.ratelimit.redis import RedisLimiter

_log = logging.getLogger(__name__)


class FallbackLimiter:
    """A `RateLimiter` that uses the shared limiter, or the local one while Redis is unavailable.

    Requests that the shared limiter accepts are also counted locally, so that a fallback does not start at zero.
    Requests that the local limiter accepts are not sent to Redis later. With `required`, there is no fallback: `hit`
    and `peek` raise Unavailable.
    """

    is_distributed = True

    def __init__(self, shared: RedisLimiter, local: RateLimiter, *, required: bool = False) -> None:
        """Both limiters have the same limit and window."""
        self.limit = shared.limit
        self.window = shared.window
        self._shared = shared
        self._local = local
        self._required = required
        self.on_local_hit: Callable[[], None] = lambda: None  # called for each hit without Redis
        self._unavailable_since: float | None = None
        shared.on_change = self._record_change

    @property
    def scope(self) -> str:
        if self._unavailable_since is None:
            return self._shared.scope
        return f"{'no process' if self._required else self._local.scope}, {REDIS_UNAVAILABLE}"

    @property
    def is_redis_unavailable(self) -> bool:
        """Whether Redis was unavailable at the last attempt to use it."""
        return self._unavailable_since is not None

    async def hit(self, key_id: int) -> RateLimitDecision:
        try:
            decision = await self._shared.hit(key_id)
        except Unavailable:
            self._raise_if_required()
            self.on_local_hit()
            return await self._local.hit(key_id)
        if decision.accepted:
            counting = self._local.hit(key_id)
            # If it has to wait for another process, it is cancelled: the count matters only if Redis fails later.
            with suppress(StopIteration, Unavailable):
                counting.send(None)
            counting.close()
        return decision

    async def peek(self, key_id: int) -> RateLimitDecision:
        try:
            return await self._shared.peek(key_id)
        except Unavailable:
            self._raise_if_required()
            return await self._local.peek(key_id)

    async def run_maintenance(self) -> None:
        """Run the maintenance of the local limiter. The shared one needs none."""
        await self._local.run_maintenance()

    async def check(self) -> None:
        try:
            await self._shared.check()
        except Unavailable:
            self._raise_if_required()
            await self._local.check()

    async def close(self) -> None:
        await self._shared.close()
        await self._local.close()

    def _raise_if_required(self) -> None:
        if self._required:
            raise Unavailable("The rate limit can't be counted: Redis is unavailable") from None

    def _record_change(self, error: str | None) -> None:
        if error is not None:
            self._unavailable_since = time.monotonic()
            level, consequence = logging.WARNING, f"only the requests of {self._local.scope} are counted"
            if self._required:
                level, consequence = logging.ERROR, "requests fail with 503, because LISTINGS_REDIS_REQUIRED is on"
            _log.log(level, "Redis is unavailable: %s. Until it is back, %s", error, consequence)
            return
        unavailable_since, self._unavailable_since = self._unavailable_since, None
        if unavailable_since is None:
            _log.info("Counting the requests of %s", self._shared.scope)
        else:
            seconds = time.monotonic() - unavailable_since
            _log.warning("Redis is back after %.0f s: counting the requests of %s", seconds, self._shared.scope)
