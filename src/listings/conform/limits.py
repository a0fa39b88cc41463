"""The rate limit. These checks use up the key's requests for an hour, so they run only with --rate-limit."""

import time

from listings.conform.context import Context
from listings.conform.suite import Check
from listings.conform.verdicts import Blocked, Failed, Skipped

_SECTION = "Limits"
_ROW = "Request rate | 1000 requests per hour | each API key, all endpoints"
_LIMIT = 1000
_WINDOW_SECONDS = 3600
_ATTEMPTS = 3
_MAX_PER_HOUR = 2 * _LIMIT  # any hour may overlap two fixed windows


def _check_limit(context: Context) -> str:
    """Require that 1000 requests of the key succeed and that later ones are rejected.

    Servers may or may not count errors. So successes must not exceed the limit, and requests must not fall below it.
    """
    _require_option(context)
    session = context.session
    key = session.keys.own
    while session.successes[key] <= _MAX_PER_HOUR:
        if time.monotonic() > session.started_at + _WINDOW_SECONDS:
            raise Blocked(f"the hour ended after {session.requests[key]} requests")
        if not session.send("GET").succeeded:
            return _check_counts(session.requests[key] - 1, session.successes[key])
    seconds = round(time.monotonic() - session.started_at)
    raise Failed(f"{session.successes[key]} requests succeeded within {seconds} seconds, and none was rejected")


def _check_counts(sent: int, succeeded: int) -> str:
    """Return a remark. `sent` is the number of requests before the first rejected one."""
    if succeeded > _LIMIT:
        raise Blocked(
            f"{succeeded} requests succeeded, which is correct only if a fixed hour ended during the run: run it again"
        )
    if sent < _LIMIT:
        raise Blocked(f"rejected after {sent} requests: run it again with a key that was not used in the last hour")
    return f"rejected after {sent} requests, of which {succeeded} succeeded"


def _check_limit_on_create(context: Context) -> None:
    _require_used_up(context)
    for _ in range(_ATTEMPTS):  # one create may succeed because an old request leaves a sliding window just then
        if not context.session.send("POST", body=context.build_fields()).succeeded:
            return
        if context.session.send("GET").succeeded:
            return
    raise Failed(f"{_ATTEMPTS} times a create succeeded with the used-up key and a list request was then rejected")


def _check_limit_per_key(context: Context) -> None:
    """Require that another key still works."""
    _require_used_up(context)
    response = context.session.send("GET", by=context.other)
    if not response.succeeded:
        raise Failed(f"--key is used up, and {response.summary}")


def _require_used_up(context: Context) -> None:
    _require_option(context)
    if context.session.send("GET").succeeded:
        raise Blocked("the key is not used up")


def _require_option(context: Context) -> None:
    if not context.rate_limit:
        raise Skipped("give --rate-limit; it uses up the key's requests for an hour")


CHECKS = (
    Check("limit-1", _SECTION, _ROW, _check_limit),
    Check("limit-2", _SECTION, _ROW, _check_limit_on_create),
    Check("limit-3", _SECTION, _ROW, _check_limit_per_key),
)
