"""The rate limit as clients see it: headers, body and error (decision G29)."""

from collections.abc import Callable
from math import ceil

import msgspec

from listings.domain.errors import Problem
from listings.domain.rate_limiter import RateLimitDecision, RateLimiter
from listings.domain.timestamps import HOUR_SECONDS


class RateLimitHeaders:
    """Formats the limiter's decisions as headers. The constant parts are formatted only once."""

    def __init__(self, limiter: RateLimiter | None, clock: Callable[[], float]) -> None:
        """`clock` returns seconds since 1970."""
        self._clock = clock
        if limiter is None:
            return
        self._limit, self._window = limiter.limit, limiter.window
        name = "hour" if self._window == HOUR_SECONDS else "window"
        self._lines = (
            f'ratelimit-policy: "{name}";q={self._limit};w={self._window}\r\n'
            f"x-ratelimit-limit: {self._limit}\r\n"
            f'ratelimit: "{name}";r=%d;t=%d\r\n'
            "x-ratelimit-remaining: %d\r\n"
            "x-ratelimit-reset: %d\r\n"
        ).encode()

    def format(self, decision: RateLimitDecision | None) -> bytes:
        """Return the headers of an authenticated response; none if there is no limit."""
        if decision is None:
            return b""
        remaining, reset = decision.remaining, decision.reset
        return self._lines % (remaining, ceil(reset), remaining, ceil(self._clock() + reset))

    def build_problem(self, decision: RateLimitDecision) -> Problem:
        limit, wait = _format_count(self._limit, "request"), _format_count(ceil(decision.reset), "second")
        window = "hour" if self._window == HOUR_SECONDS else _format_count(self._window, "second")
        hint = "a batch of up to 100 writes counts as one request"
        return Problem("rate_limited", f"Rate limit of {limit} per {window} exceeded: try again in {wait}; {hint}")


def _format_count(number: int, unit: str) -> str:
    # Unlike on pages, digits have no separators.
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"


def advance(decision: RateLimitDecision, seconds: float) -> RateLimitDecision:
    """Return the decision of a request that was counted `seconds` ago, as its headers show it now."""
    return msgspec.structs.replace(decision, reset=max(0.0, decision.reset - seconds))


def build_body(limiter: RateLimiter | None, decision: RateLimitDecision | None, now: float) -> dict[str, int | None]:
    """Return the rate limit as a response body. All values are None if there is no limit."""
    if limiter is None or decision is None:
        return {"limit": None, "window": None, "remaining": None, "reset": None}
    reset = ceil(now + decision.reset)
    return {"limit": limiter.limit, "window": limiter.window, "remaining": decision.remaining, "reset": reset}
