"""The rate limit as a client sees it (decision G29)."""

from collections.abc import Callable
from math import ceil

from listings.contract.rate_limiter import RateLimitDecision, RateLimiter
from listings.domain.errors import Problem

_HOUR = 3600


class LimitHeaders:
    """Turns a limiter's verdicts into headers; what never changes of them is made once."""

    def __init__(self, limiter: RateLimiter | None, clock: Callable[[], float]) -> None:
        """`clock` tells seconds since 1970."""
        self._clock = clock
        if limiter is None:
            return
        self._limit, self._window = limiter.limit, limiter.window
        name = "hour" if self._window == _HOUR else "window"
        self._lines = (
            f'ratelimit-policy: "{name}";q={self._limit};w={self._window}\r\n'
            f"x-ratelimit-limit: {self._limit}\r\n"
            f'ratelimit: "{name}";r=%d;t=%d\r\n'
            "x-ratelimit-remaining: %d\r\n"
            "x-ratelimit-reset: %d\r\n"
        ).encode()

    def headers(self, verdict: RateLimitDecision | None) -> bytes:
        """On every authenticated answer; none where there is no limit."""
        if verdict is None:
            return b""
        left, reset = verdict.left, verdict.reset
        return self._lines % (left, ceil(reset), left, ceil(self._clock() + reset))

    def refusal(self, verdict: RateLimitDecision) -> Problem:
        """What a request beyond the limit is told."""
        window = "hour" if self._window == _HOUR else f"{self._window} seconds"
        return Problem(
            "rate_limited",
            f"At most {self._limit} requests per {window} and key: try again in {ceil(verdict.reset)} seconds",
        )


def content_of(limiter: RateLimiter | None, verdict: RateLimitDecision | None, now: float) -> dict[str, int | None]:
    """The same as the body of an answer; nulls where there is no limit."""
    if limiter is None or verdict is None:
        return {"limit": None, "window": None, "remaining": None, "reset": None}
    reset = ceil(now + verdict.reset)
    return {"limit": limiter.limit, "window": limiter.window, "remaining": verdict.left, "reset": reset}
