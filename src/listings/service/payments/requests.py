"""Sellers' requests for the Business plan, which the operator answers if no payment provider is set up."""

import logging
from collections.abc import Callable

from listings.domain.accounts import PlanRequest, PlanRequestState
from listings.domain.history import OPERATOR, Actor
from listings.domain.model import Account
from listings.domain.timestamps import DAY_SECONDS, HOUR_SECONDS, format_timestamp
from listings.service.accounts import validate_reason
from listings.service.mail.composer import MailComposer
from listings.store.store import Store

_log = logging.getLogger(__name__)

_MIN_SECONDS_BETWEEN_REPORTS = DAY_SECONDS - HOUR_SECONDS // 2  # half an hour of margin for clock corrections


class PlanRequests:
    """Stores and reports requests for the plan. An account has at most one open request."""

    def __init__(self, store: Store, clock: Callable[[], float], composer: MailComposer) -> None:
        self._store = store
        self._composer = composer
        self._clock = clock

    async def add(self, account: Account) -> None:
        """Request the plan for an account, and queue an email to the operator. A second request changes nothing."""
        mail = self._composer.compose_plan_request(account)
        if await self._store.add_plan_request(account.id, int(self._clock()), mail):
            _log.info("Account %d requests the Business plan", account.id)

    async def find(self, account: Account) -> PlanRequestState | None:
        """Return the account's last request, unless the plan was started or extended after it."""
        return await self._store.get_plan_request(account.id)

    async def find_open(self, account: Account) -> int | None:
        """Return the Unix time of the account's open request, or None if there is none."""
        found = await self.find(account)
        return None if found is None or found.declined_at is not None else found.requested_at

    async def decline(self, account: Account, reason: str) -> bool:
        """Decline the account's open request, and queue an email with the reason. Return False if none is open.

        Raises Problem("invalid_request") for a reason that is too long.
        """
        reason = validate_reason(reason)
        mail = self._composer.compose("plan_declined", account, reason=reason)
        actor = Actor(OPERATOR, int(self._clock()))
        is_open = await self._store.decline_plan_request(account.id, reason, actor, mail)
        if is_open:
            _log.info("Declined the request of account %d for the Business plan", account.id)
        return is_open

    async def list_open(self) -> list[PlanRequest]:
        """Return the open requests, oldest first."""
        return await self._store.list_plan_requests()

    async def report(self) -> None:
        """Log the number of open requests once a day, in one of the processes."""
        if not await self._store.claim_task("report plan requests", int(self._clock()), _MIN_SECONDS_BETWEEN_REPORTS):
            return
        if found := await self._store.list_plan_requests():
            oldest = format_timestamp(found[0].requested_at)
            _log.warning(
                "Open requests for the Business plan: %d, the oldest since %s (listings account list --requests)",
                len(found),
                oldest,
            )
