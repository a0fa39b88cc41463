"""Remind sellers by mail that their plan ends."""

from collections.abc import Callable

from listings.domain.accounts import ENDING_DAYS
from listings.domain.timestamps import DAY_SECONDS
from listings.service.mail.composer import MailComposer
from listings.store.store import Store

_DAYS = ((0, -7), (1, 0), (7, 1), (ENDING_DAYS, 7))
"""The first and the last day on which each reminder is sent, as days before the end of the plan.

-7: no reminder is sent more than seven days after the end, even if mail was off until then.
"""
_MAX_ACCOUNTS = 100  # in one query


class PlanReminders:
    """Queues an email 14, 7 and 1 days before the end of a plan, and one after it."""

    def __init__(self, store: Store, composer: MailComposer, clock: Callable[[], float]) -> None:
        self._store = store
        self._composer = composer
        self._clock = clock

    async def queue(self) -> None:
        """Queue the reminders that are due, once each. Several processes may do this."""
        now = int(self._clock())
        for days, last_day in _DAYS if self._composer.is_on else ():
            window = (now + last_day * DAY_SECONDS, now + days * DAY_SECONDS)
            while accounts := await self._store.list_accounts_to_remind(days, *window, _MAX_ACCOUNTS):
                for account in accounts:
                    plan_end = account.plan_expires_at or 0
                    mail = self._composer.compose("plan_reminder", account, plan_expires_at=str(plan_end))
                    await self._store.add_plan_reminder(account.id, plan_end, days, mail)
