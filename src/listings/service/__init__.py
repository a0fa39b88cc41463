"""The use cases, and every rule that is not about a single field.

The HTTP interface, the pages and the command line all come through here; nothing here knows of any of them, or
of an engine.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import cast

from listings.contract.rate_limiter import RateLimitDecision, RateLimiter
from listings.contract.store import Store
from listings.domain import api_keys
from listings.domain.errors import Problem, Unavailable
from listings.domain.model import Caller, is_current
from listings.service.accounts import WRONG_KEY, IssuedKey, checked_email, checked_name, has_ended
from listings.service.activity import Activity, ActivityPage
from listings.service.indexing import Pause, index
from listings.service.listings import ANY_TERMS, CLAIM_SECONDS, Listings, Page, Record, WriteOptions, difference
from listings.service.market import Market, MarketPage
from listings.service.members import Member, Members
from listings.service.passwords import Passwords
from listings.service.payments.manual import ManualPayments, PaymentProvider, Payments
from listings.service.usage import RequestCounts, Usage

__all__ = [
    "ANY_TERMS",
    "WRONG_KEY",
    "ActivityPage",
    "EndedKey",
    "IssuedKey",
    "MarketPage",
    "Member",
    "Page",
    "Record",
    "Service",
    "Usage",
    "WriteOptions",
    "checked_email",
    "checked_name",
    "difference",
]

_log = logging.getLogger(__name__)

_UPKEEP_SECONDS = 60
_MOST_REMEMBERED = 4096
_MARKET_SECONDS = 1
_INDEX_SECONDS = 1
_USAGE_SECONDS = 2  # until what one process has counted is shown by the others, unless there is much of it


class EndedKey(Problem):
    """A key that is revoked or has expired; its owner may see that somebody still uses it."""

    def __init__(self, caller: Caller) -> None:
        super().__init__("invalid_api_key", "Invalid API key")
        self.caller = caller


class Service(Members, Listings, Market, RequestCounts, Activity, Payments):
    """All use cases over one store, one limiter (None: no limit), one clock (seconds since 1970), one way to wait."""

    def __init__(  # noqa: PLR0913 - all but the first two are optional, and the last ones by name
        self,
        store: Store,
        limiter: RateLimiter | None,
        clock: Callable[[], float] = time.time,
        *,
        sign_up_open: bool = False,
        market_open: bool = True,
        payments: PaymentProvider | None = None,
        pause: Pause = asyncio.sleep,
    ) -> None:
        """`sign_up_open`: whether anybody may open an account; `market_open`: whether the market is kept up to date.

        `payments` None: the operator takes them. `pause` waits for so many seconds between what is done by itself.
        """
        self.store = store
        self.limiter = limiter
        self.clock = clock
        self.pause = pause
        self.sign_up_open = sign_up_open
        self.market_open = market_open
        self.payments = payments if payments is not None else ManualPayments()
        self.passwords = Passwords()
        self._begin_counting()
        self.stopping = False
        self._key_uses: dict[int, int] = {}
        self._well_formed: set[bytes] = set()  # digests of keys that were asked with
        Market.__init__(self)

    def begin_shutdown(self) -> None:
        """Report the service as not ready from now on."""
        self.stopping = True

    async def require_ready(self) -> None:
        """Raises Unavailable unless the service can do its work and is not about to stop."""
        if self.stopping:
            raise Unavailable("The service is stopping")
        try:
            await self.store.check()
            if self.limiter is not None:
                await self.limiter.check()
        except Problem as problem:
            raise Unavailable(problem.message) from problem

    # A caller

    async def authenticate(self, key: str | None) -> Caller:
        """The caller behind a key.

        Raises Problem: api_key_required (no key), invalid_api_key (unknown, malformed, revoked or expired).
        """
        if not key:
            raise Problem("api_key_required", "API key is required")
        digest = api_keys.digest(key)
        if digest in self._well_formed or self._is_well_formed(key, digest):
            caller = await self.store.find_caller(digest)
            now = self.clock()
            if not self._hour_begins <= now < self._hour_ends:
                self._begin_hour(now)
            if caller is not None and not has_ended(caller.key_revoked_at, caller.key_expires_at, now):
                self._key_uses[caller.key_id] = int(now)
                return caller
            if caller is not None:
                _log.warning("Key %d is revoked or has expired", caller.key_id)
                raise EndedKey(caller)
        raise Problem("invalid_api_key", "Invalid API key")

    def _is_well_formed(self, key: str, digest: bytes) -> bool:
        """Remembers those that are: to check one takes longer than all the rest that is asked of a known key."""
        if not api_keys.is_well_formed(key):
            return False
        if len(self._well_formed) >= _MOST_REMEMBERED:
            self._well_formed.clear()
        self._well_formed.add(digest)
        return True

    async def count_request(self, caller: Caller) -> RateLimitDecision | None:
        """Count a request on the caller's key; None when there is no limit. The caller of this refuses (429)."""
        return await self.limiter.hit(caller.key_id) if self.limiter is not None else None

    async def peek_rate_limit(self, caller: Caller) -> RateLimitDecision | None:
        """What is left of the key's requests, without counting one; None when there is no limit."""
        return await self.limiter.peek(caller.key_id) if self.limiter is not None else None

    def require_plan(self, caller: Caller) -> None:
        """Raises Problem: plan_expired (the account has no current Business plan), account_disabled."""
        if not is_current(caller.plan_expires_at, self.clock()):
            raise Problem("plan_expired", "Business plan expired")
        if caller.account_disabled_at is not None:
            raise Problem("account_disabled", "This account is disabled")

    async def run_maintenance(self) -> None:
        """What is to be done beside the requests, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._repeat(_UPKEEP_SECONDS, self.write_key_uses, self.write_usage, *self._forgetting()))
            group.create_task(self._repeat(_USAGE_SECONDS, self.write_some_usage))
            group.create_task(self._repeat(_MARKET_SECONDS, self.write_views))
            group.create_task(self._repeat(_INDEX_SECONDS, self.index_accounts))
            if self.limiter is not None:
                group.create_task(self.limiter.run_maintenance())
            if self.market_open:
                group.create_task(self._repeat(_MARKET_SECONDS, self.index_market))

    async def _repeat(self, seconds: float, *works: Callable[[], Awaitable[object]]) -> None:
        """Do some work again and again, with a pause before each time, until cancelled.

        Work that is cancelled may fail instead of ending: it is not done again then.
        """
        task = cast("asyncio.Task[None]", asyncio.current_task())
        while not task.cancelling():
            await self.pause(seconds)
            for work in works:
                try:
                    await work()
                except Unavailable:
                    pass  # the next time
                except Exception:  # noqa: BLE001 - a fault of one part ends no other
                    _log.exception("A part of the upkeep failed")

    async def index_accounts(self) -> int:
        """Bring accounts that have become large into the indexes of searches; returns how many listings that were."""
        return await index(self.store.index_accounts, self.pause)

    def _forgetting(self) -> tuple[Callable[[], Awaitable[object]], ...]:
        """What removes what is too old."""
        return self.purge_idempotency_records, self.purge_views, self.purge_sessions, self.purge_history

    async def purge_idempotency_records(self) -> None:
        """Remove what was kept of writes with an Idempotency-Key a day ago (decision G36)."""
        with suppress(Unavailable):
            await self.store.purge_idempotency_records(int(self.clock()) - CLAIM_SECONDS + 1)

    async def write_key_uses(self) -> None:
        """Store when keys were last used; while the store can't take it, it is kept for the next time."""
        uses, self._key_uses = self._key_uses, {}
        try:
            if uses:
                await self.store.record_key_uses(uses)
        except Unavailable:
            self._key_uses = uses | self._key_uses
