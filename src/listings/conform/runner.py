"""A run: every check once, in order, and then no listing of it is left."""

from collections.abc import Callable, Sequence
from contextlib import closing
from types import ModuleType

from listings.conform import answers, authentication, creating, deleting, limits, reading, records, updating
from listings.conform.client import Address, Client
from listings.conform.context import Trial
from listings.conform.session import CleanUp, Keys, Session
from listings.conform.verdicts import Broken, Prevented, Result
from listings.domain.errors import Problem

SUBJECTS = (reading, records, creating, updating, deleting, authentication, answers)
_REFUSED = {401, 403}


def run(
    address: Address, keys: Keys, tell: Callable[[str], None], *, rate_limit: bool = False, timeout: float = 10
) -> list[Result]:
    """The verdict on every sentence; `timeout` is in seconds and for each answer.

    Raises Problem when the server can't be reached or refuses the key. `tell` hears what became of the listings that
    the run made, however it ends.
    """
    with closing(Client(address, timeout)) as client:
        session = Session(client, keys)
        _open(session)
        trial = Trial(session, rate_limit=rate_limit)
        try:
            found = _verdicts(SUBJECTS, trial)
        finally:
            tell(_sentence_on(session.clean_up()))
        session.obeys_limits = False
        try:
            return found + _verdicts((limits,), trial)
        finally:
            if session.has_listings:
                tell(_sentence_on(session.clean_up()))


def _verdicts(subjects: Sequence[ModuleType], trial: Trial) -> list[Result]:
    return [check.verdict_on(trial) for subject in subjects for check in subject.SHEET.checks]


def _open(session: Session) -> None:
    """Find a header in which the server takes the key. Raises Problem."""
    refused = []
    try:
        for by in (session.by_header, session.by_bearer):
            session.own = by
            refused.append(session.ask("GET"))
            if refused[-1].status not in _REFUSED:
                return
    except (Broken, Prevented) as reason:
        raise Problem("unavailable", f"Nothing could be checked: {reason}") from None
    told = "; ".join(answer.told for answer in refused)
    raise Problem("unavailable", f"Nothing could be checked, since --key is refused in both headers: {told}")


def _sentence_on(cleaned: CleanUp) -> str:
    if not cleaned.made:
        return "The run made no listing."
    if not cleaned.left:
        return f"The run made {cleaned.made} listings and deleted them again."
    return f"The run made {cleaned.made} listings, of which these could not be deleted: {', '.join(cleaned.left)}."
