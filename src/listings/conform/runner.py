"""Run every check once, in order, then delete the listings that the run created."""

from collections.abc import Callable, Sequence
from contextlib import closing
from types import ModuleType

from listings.conform import answers, authentication, creating, deleting, limits, reading, records, updating
from listings.conform.client import Address, Client
from listings.conform.context import Context
from listings.conform.session import Keys, Session
from listings.conform.verdicts import Blocked, Failed, Result
from listings.domain.errors import Problem

SUBJECTS = (reading, records, creating, updating, deleting, authentication, answers)
_REJECTED = {401, 403}


def run(
    address: Address, keys: Keys, report: Callable[[str], None], *, rate_limit: bool = False, timeout: float = 10
) -> list[Result]:
    """Return the result of every check.

    `timeout` is in seconds, for each response. `report` is called with a sentence about the run's listings, even after
    an error. Raises Problem if the server can't be reached or rejects the key.
    """
    with closing(Client(address, timeout)) as client:
        session = Session(client, keys)
        _choose_header(session)
        context = Context(session, rate_limit=rate_limit)
        try:
            results = _run_checks(SUBJECTS, context)
        finally:
            report(session.clean_up())
        session.stops_at_rate_limit = False
        try:
            return results + _run_checks((limits,), context)
        finally:
            if session.has_listings:
                report(session.clean_up())


def _run_checks(subjects: Sequence[ModuleType], context: Context) -> list[Result]:
    return [check.run(context) for subject in subjects for check in subject.CHECKS]


def _choose_header(session: Session) -> None:
    """Find the header in which the server accepts the key. Raises Problem."""
    rejected = []
    try:
        for by in (session.by_header, session.by_bearer):
            session.own = by
            rejected.append(session.send("GET"))
            if rejected[-1].status not in _REJECTED:
                return
    except (Failed, Blocked) as error:
        raise Problem("unavailable", f"No check could run: {error}") from None
    summaries = "; ".join(response.summary for response in rejected)
    raise Problem("unavailable", f"No check could run, because the server rejects --key in both headers: {summaries}")
