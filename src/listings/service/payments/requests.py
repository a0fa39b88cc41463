"""Sellers' requests for the Business plan, which the operator answers if no payment provider is set up."""

import logging
from collections.abc import Callable
from typing import Protocol

from listings.contract.accounts import AccountStore, PlanRequest
from listings.contract.tasks import TaskStore
from listings.domain.model import Account
from listings.domain.timestamps import DAY_SECONDS, HOUR_SECONDS, format_timestamp
from listings.service.mail.composer import MailComposer

_log = logging.getLogger(__name__)

_MIN_SECONDS_BETWEEN_REPORTS = DAY_SECONDS - HOUR_SECONDS // 2  # half an hour of margin for clock corrections


class _Store(AccountStore, TaskStore, Protocol):
    pass


class PlanRequests:
    """Stores and reports requests for the plan. An account has at most one open request."""

    def __init__(self, store: _Store, clock: Callable[[], float], composer: MailComposer) -> None:
        self._store = store
        self._composer = composer
        self._clock = clock

    async def add(self, account: Account) -> None:
        """Request the plan for an account, and queue an email to the operator. A second request changes nothing."""
        mail = self._composer.compose_plan_request(account)
        if await self._store.add_plan_request(account.id, int(self._clock()), mail):
            _log.info("Account %d requests the Business plan", account.id)

    async def find(self, account: Account) -> int | None:
        """Return the Unix time of the account's open request, or None if there is none."""
        return await self._store.get_plan_request(account.id)

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
