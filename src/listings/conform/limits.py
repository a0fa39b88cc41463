"""The rate limit, which can only be seen by using up a key's hour: for operators who ask for it."""

import time

from listings.conform.context import Trial
from listings.conform.suite import Sheet
from listings.conform.verdicts import Broken, NotChecked, Prevented

SHEET = Sheet()
_SECTION = "Limits"
_ROW = "Request rate | 1000 requests per hour | each API key, all endpoints"
_LIMIT = 1000
_HOUR = 3600
_TRIES = 3
_MOST = 2 * _LIMIT  # in any hour, should that touch two hours of a fixed window


@SHEET.add("limit-1", _SECTION, _ROW)
def thousand_an_hour(trial: Trial) -> str:
    """A thousand requests of the key are served, and then they are refused.

    What counts as served is success alone, and as sent everything, so that a server may count errors or not.
    """
    _require_wish(trial)
    session = trial.session
    key = session.keys.own
    while session.served[key] <= _MOST:
        if time.monotonic() > session.begun + _HOUR:
            raise Prevented(f"the hour was over after {session.requests[key]} requests")
        if not session.ask("GET").succeeded:
            return _judged(session.requests[key] - 1, session.served[key])
    seconds = round(time.monotonic() - session.begun)
    raise Broken(
        f"{session.served[key]} requests were served within {seconds} seconds, and none of the last was refused"
    )


def _judged(sent: int, served: int) -> str:
    """`sent` counts what came before the first refusal."""
    if served > _LIMIT:
        raise Prevented(
            f"{served} requests were served, which is right only if a fixed hour ended meanwhile: run it again"
        )
    if sent < _LIMIT:
        raise Prevented(f"refused after {sent} requests: run it again with a key that was not used in the hour before")
    return f"refused after {sent} requests, of which {served} succeeded"


@SHEET.add("limit-2", _SECTION, _ROW)
def all_endpoints_are_limited(trial: Trial) -> None:
    """A key that is used up can't create either."""
    _require_used_up(trial)
    for _ in range(_TRIES):  # one success may be a request that was forgotten that very moment
        if not trial.session.ask("POST", body=trial.fields()).succeeded or trial.session.ask("GET").succeeded:
            return
    raise Broken(f"{_TRIES} times in turn the list was refused to the key that is used up, and a create was served")


@SHEET.add("limit-3", _SECTION, _ROW)
def each_key_has_its_own_limit(trial: Trial) -> None:
    """Another key is served while the first is used up."""
    _require_used_up(trial)
    shown = trial.session.ask("GET", by=trial.other)
    if not shown.succeeded:
        raise Broken(f"--key is used up, and {shown.told}")


def _require_used_up(trial: Trial) -> None:
    _require_wish(trial)
    if trial.session.ask("GET").succeeded:
        raise Prevented("the key is not used up")


def _require_wish(trial: Trial) -> None:
    if not trial.rate_limit:
        raise NotChecked("give --rate-limit; it uses up the key's requests for an hour")
