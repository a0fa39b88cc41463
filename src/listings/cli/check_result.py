"""The results of the checks of `listings doctor`, and the checks that both kinds of database share."""

import time
from typing import Literal, NamedTuple, TypeAlias

from listings.domain import timestamps
from listings.store.inspection import PlanRequests

Verdict: TypeAlias = Literal["ok", "warning", "fault"]
_MAX_FUTURE_SECONDS = 300


class Finding(NamedTuple):
    """The finding of a check. `advice` says how to fix a warning or fault."""

    verdict: Verdict
    found: str
    advice: str | None = None


class CheckResult(NamedTuple):
    """A finding with the name of its check."""

    check: str
    verdict: Verdict
    found: str
    advice: str | None = None


def ok(found: str) -> Finding:
    """Return the finding that nothing is wrong."""
    return Finding("ok", found)


def warning(found: str, advice: str) -> Finding:
    """Return a finding that does not stop the service."""
    return Finding("warning", found, advice)


def fault(found: str, advice: str) -> Finding:
    """Return a finding with which the service does not work, or is not safe."""
    return Finding("fault", found, advice)


def check_schema(mismatch: str | None, pending: int) -> Finding:
    """Check that the schema is this version's. The error message `mismatch` may end with `: advice`."""
    if mismatch is not None:
        found, _, advice = mismatch.rpartition(": ")
        if found:
            return fault(found, advice[0].upper() + advice[1:])
        return fault(mismatch, "Run the version of Listings that created it, or restore a backup")
    if pending:
        advice = "Run `listings migrate`, or start the service, which does the same"
        return warning(f"{pending} migrations are pending", advice)
    return ok("It is up to date")


def check_plan_requests(found: PlanRequests) -> Finding:
    """Check that no seller waits for an answer to a request for the plan."""
    if found.open == 0:
        return ok("There are none")
    text = f"{found.open} open, the oldest since {timestamps.format_timestamp(found.oldest or 0)}"
    return warning(text, "`listings account list --requests` shows them, and `listings account plan` answers one")


def check_stored_times(newest: int | None) -> Finding:
    """Check that the latest stored time is not in the future."""
    if newest is None:
        return ok("-")
    found, now = f"The latest is {timestamps.format_timestamp(newest)}", time.time()
    if newest <= now + _MAX_FUTURE_SECONDS:
        return ok(found)
    found = found.replace("latest", "latest stored time")
    advice = "Correct the machine's clock if it is wrong. If it was wrong before, this warning disappears with time"
    return warning(f"{found}, but the clock says {timestamps.format_timestamp(now)}", advice)
