"""The rate limit as a client sees it (decision G29)."""

from collections.abc import Callable
from math import ceil

from listings.api.wire import Headers
from listings.contract import RateLimiter, Verdict
from listings.errors import Problem

_HOUR = 3600


class LimitHeaders:
    """Turns a limiter's verdicts into headers; what never changes of them is made once."""

    def __init__(self, limiter: RateLimiter | None, clock: Callable[[], float]) -> None:
        """`clock` tells seconds since 1970."""
        self._clock = clock
        if limiter is None:
            return
        self._limit, self._window = limiter.limit, limiter.window
        self._name = b'"hour"' if self._window == _HOUR else b'"window"'
        self._policy: Headers = [
            (b"ratelimit-policy", b"%s;q=%d;w=%d" % (self._name, self._limit, self._window)),
            (b"x-ratelimit-limit", b"%d" % self._limit),
        ]

    def headers(self, verdict: Verdict | None) -> Headers:
        """On every authenticated answer; none where there is no limit."""
        if verdict is None:
            return []
        return [
            *self._policy,
            (b"ratelimit", b"%s;r=%d;t=%d" % (self._name, verdict.left, ceil(verdict.reset))),
            (b"x-ratelimit-remaining", b"%d" % verdict.left),
            (b"x-ratelimit-reset", b"%d" % ceil(self._clock() + verdict.reset)),
        ]

    def refusal(self, verdict: Verdict) -> Problem:
        """What a request beyond the limit is told."""
        window = "hour" if self._window == _HOUR else f"{self._window} seconds"
        return Problem(
            "rate_limited",
            f"At most {self._limit} requests per {window} and key: try again in {ceil(verdict.reset)} seconds",
        )
