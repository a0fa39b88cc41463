"""Test mode: an account of its own next to a live one, in which the API can be tried (decision G25)."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from listings.domain import api_keys
from listings.domain.account_limits import AccountLimits
from listings.domain.accounts import build_test_email, require_enabled, require_not_erased
from listings.domain.errors import Problem, Unavailable
from listings.domain.history import OPERATOR, Actor
from listings.domain.model import Account, KeyAccess, bucket_of, is_plan_active
from listings.domain.timestamps import DAY_SECONDS
from listings.service.accounts import Accounts
from listings.service.keys import IssuedKey, Keys, require_future
from listings.store.store import Store

_log = logging.getLogger(__name__)

LIMITS = AccountLimits(listings=1_000, text_bytes=10 * 1024 * 1024)
IDLE_DAYS = 30
_TASK_SECONDS = 6 * 3600
_ROWS = 1_000  # deleted in one transaction


@dataclass(eq=False)
class TestMode:
    """Creates, empties and finds test accounts."""

    _store: Store
    _accounts: Accounts
    _keys: Keys
    _clock: Callable[[], float]
    _trial_days: int  # from the confirmation of the email address on; 0: there is no trial

    async def find(self, account: Account) -> Account | None:
        """Return the test account of a live one, or None if it has none yet."""
        return await self._store.find_test_account(account.id)

    async def find_plan_end(self, account: Account) -> int | None:
        """Return when the plan of test mode ends: with that of the live account, or with the trial, if that is later.

        None: there was no plan.
        """
        test = await self.find(account)
        own = test.plan_expires_at if test is not None else None
        ends = (account.plan_expires_at, own if own is not None else await self._find_trial_end(account))
        return max((end for end in ends if end is not None), default=None)

    async def create_key(
        self,
        account: Account,
        name: str,
        expires_at: int | None = None,
        actor: int = OPERATOR,
        *,
        access: KeyAccess = "write",
    ) -> IssuedKey:
        """Create a test key, and with the first one the test account.

        Raises Problem: plan_expired (there is neither a plan nor a trial), account_disabled, invalid_request.
        """
        require_not_erased(account)
        require_enabled(account)
        if not is_plan_active(await self.find_plan_end(account), self._clock()):
            raise Problem("plan_expired", "Test keys need the Business plan or a trial")
        require_future(expires_at, self._clock())
        test = await self._ensure(account)
        return await self._keys.add(test, name, api_keys.generate(is_test=True), expires_at, actor, access=access)

    async def start_trial(self, account: Account) -> Account:
        """Start a trial now, and return the test account. Raises Problem: account_disabled, invalid_request."""
        if not self._trial_days:
            raise Problem("invalid_request", "There is no trial: LISTINGS_TRIAL_DAYS is 0")
        require_not_erased(account)
        end = int(self._clock()) + self._trial_days * DAY_SECONDS
        return await self._set_plan(await self._ensure(account), end)

    async def empty(self, test: Account) -> None:
        """Delete all listings and changes of a test account. Their ids are not used again."""
        partition = bucket_of(test.id), test.id
        while await self._accounts.delete_listings(test) or await self._store.forget_history(*partition, _ROWS):
            pass
        _log.info("Emptied the test account %d", test.id)

    async def empty_idle(self) -> None:
        """Empty the test accounts whose keys were not used for 30 days, in one of the processes."""
        now = int(self._clock())
        if not await self._store.claim_task("empty test accounts", now, _TASK_SECONDS):
            return
        for test in await self._store.list_idle_test_accounts(now - IDLE_DAYS * DAY_SECONDS):
            try:
                await self.empty(test)
            except Unavailable:
                return

    async def _ensure(self, account: Account) -> Account:
        trial_end, now = await self._find_trial_end(account), int(self._clock())
        test = await self._store.add_test_account(account, build_test_email(account.id), trial_end, now, LIMITS)
        return test if test.plan_expires_at is not None else await self._set_plan(test, trial_end)

    async def _set_plan(self, test: Account, end: int | None) -> Account:
        actor = Actor(OPERATOR, int(self._clock()))
        return await self._store.change_account(test.id, lambda _: {"plan_expires_at": end}, actor) or test

    async def _find_trial_end(self, account: Account) -> int | None:
        confirmed_at = await self._store.get_confirmation_time(account.id) if self._trial_days else None
        return None if confirmed_at is None else confirmed_at + self._trial_days * DAY_SECONDS
