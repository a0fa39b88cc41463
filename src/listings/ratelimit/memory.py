"""Exact sliding-window log in the memory of one process."""

import time
from collections import deque
from collections.abc import Callable

from listings.domain.rate_limiter import RateLimitDecision

_MIN_SWEEP_KEYS = 1024


class MemoryLimiter:
    """A `RateLimiter` for one event loop. It stores the times of at most `limit` accepted requests per key."""

    is_distributed = False
    scope = "this process"

    def __init__(self, limit: int, window: int, clock: Callable[[], float] = time.monotonic) -> None:
        """`window` is in seconds. `clock` must be monotonic."""
        self.limit = limit
        self.window = window
        self._clock = clock
        self.logs: dict[int, deque[float]] = {}  # by key
        self._sweep_at = _MIN_SWEEP_KEYS

    async def hit(self, key_id: int) -> RateLimitDecision:
        now = self._clock()
        log = self.logs.get(key_id)
        if log is None:
            if len(self.logs) >= self._sweep_at:
                start = now - self.window
                self.logs = {key: log for key, log in self.logs.items() if log and log[-1] > start}
                self._sweep_at = max(_MIN_SWEEP_KEYS, 2 * len(self.logs))
            log = self.logs[key_id] = deque()
        self._remove_expired(log, now)
        accepted = len(log) < self.limit
        if accepted:
            log.append(now)
        return RateLimitDecision(accepted, self.limit - len(log), log[0] + self.window - now)

    async def peek(self, key_id: int) -> RateLimitDecision:
        now = self._clock()
        log = self.logs.get(key_id, deque())
        self._remove_expired(log, now)
        return RateLimitDecision(
            len(log) < self.limit, self.limit - len(log), log[0] + self.window - now if log else 0.0
        )

    def list_ages(self, key_id: int) -> list[float]:
        """Return the seconds since each logged request of the key, including expired ones, oldest first."""
        now = self._clock()
        return [now - moment for moment in self.logs.get(key_id, ())]

    def _remove_expired(self, log: deque[float], now: float) -> None:
        while log and log[0] <= now - self.window:
            log.popleft()

    async def run_maintenance(self) -> None:
        """Do nothing."""

    async def check(self) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""
