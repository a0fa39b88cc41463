"""The limiter that machines share, with one of this machine for as long as that is away."""

import logging
import time
from collections.abc import Callable
from contextlib import suppress

from listings.contract.rate_limiter import RateLimitDecision, RateLimiter
from listings.domain.errors import Unavailable
from listings.ratelimit.redis import RedisLimiter

_log = logging.getLogger(__name__)


class FallbackLimiter:
    """`listings.contract.rate_limiter.RateLimiter`: the shared limiter decides, or the local one while that is away.

    What the shared one accepts is noted in the local one too, so that the local one begins with what this machine
    has accepted, and not with a new hour. What the local one accepts is not told to the shared one later. With
    `required`, nobody steps in: `hit` and `peek` raise Unavailable.
    """

    is_shared = True

    def __init__(
        self,
        shared: RedisLimiter,
        local: RateLimiter,
        *,
        required: bool = False,
        on_local: Callable[[], None] = lambda: None,
    ) -> None:
        """Both have one limit and one window. `on_local` is told of each request that the local one counts alone."""
        self.limit = shared.limit
        self.window = shared.window
        self._shared = shared
        self._local = local
        self._required = required
        self._on_local = on_local
        self._away_since: float | None = None
        shared.on_change = self._note_change

    @property
    def scope(self) -> str:
        """Who counts together now."""
        if self._away_since is None:
            return self._shared.scope
        return "nobody, since Redis is away" if self._required else f"{self._local.scope}, since Redis is away"

    @property
    def is_away(self) -> bool:
        """Whether the shared limiter was away when it was last needed."""
        return self._away_since is not None

    async def hit(self, key_id: int) -> RateLimitDecision:
        """Count one request. Raises Unavailable as the local one does, or where the shared one is required."""
        try:
            verdict = await self._shared.hit(key_id)
        except Unavailable:
            self._require_local()
            self._on_local()
            return await self._local.hit(key_id)
        if verdict.accepted:
            with suppress(Unavailable):  # it is needed only if Redis goes away
                await self._local.hit(key_id)
        return verdict

    async def peek(self, key_id: int) -> RateLimitDecision:
        """Count nothing. Raises Unavailable as `hit` does."""
        try:
            return await self._shared.peek(key_id)
        except Unavailable:
            self._require_local()
            return await self._local.peek(key_id)

    async def run_maintenance(self) -> None:
        """What the local one has to do; the shared one looks after itself."""
        await self._local.run_maintenance()

    async def check(self) -> None:
        """Raises Unavailable unless one of them counts, or the shared one where it is required."""
        try:
            await self._shared.check()
        except Unavailable:
            self._require_local()
            await self._local.check()

    async def close(self) -> None:
        """Give back what both hold."""
        await self._shared.close()
        await self._local.close()

    def _require_local(self) -> None:
        if self._required:
            raise Unavailable("The rate limit can't be counted: Redis is away") from None

    def _note_change(self, trouble: str | None) -> None:
        if trouble is not None:
            self._away_since = time.monotonic()
            level = logging.ERROR if self._required else logging.WARNING
            _log.log(level, "Redis is away: %s. Until it is back, %s", trouble, self._consequence())
            return
        away_since, self._away_since = self._away_since, None
        if away_since is None:
            _log.info("The rate limit is counted over %s", self._shared.scope)
        else:
            away = time.monotonic() - away_since
            _log.warning("Redis is back after %.0f s: the rate limit is counted over %s", away, self._shared.scope)

    def _consequence(self) -> str:
        if self._required:
            return "requests are answered 503, as LISTINGS_REDIS_REQUIRED asks for"
        return f"the rate limit is counted over {self._local.scope}"
