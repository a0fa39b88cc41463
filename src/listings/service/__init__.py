"""The use cases of Listings and their rules. The rules of single fields are in `listings.domain.fields`.

The HTTP API, the pages and the command line all call this package. It depends on none of them, nor on a database
engine.
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
from listings.domain.model import Caller, is_plan_active
from listings.service.accounts import (
    INVALID_KEY_MESSAGE,
    IssuedKey,
    is_revoked_or_expired,
    validate_email,
    validate_name,
)
from listings.service.activity import Activity, ActivityPage
from listings.service.indexing import Pause, run_index_steps
from listings.service.listings import (
    DEFAULT_WRITE_OPTIONS,
    IDEMPOTENCY_SECONDS,
    EncodeResults,
    Listings,
    Page,
    WriteOptions,
    find_changes,
)
from listings.service.market import Market, MarketPage
from listings.service.members import Member, Members
from listings.service.passwords import Passwords
from listings.service.payments.manual import ManualPayments, PaymentProvider, Payments
from listings.service.usage import RequestCounts, Usage

__all__ = [
    "DEFAULT_WRITE_OPTIONS",
    "INVALID_KEY_MESSAGE",
    "ActivityPage",
    "EncodeResults",
    "InactiveKeyError",
    "IssuedKey",
    "MarketPage",
    "Member",
    "Page",
    "Service",
    "Usage",
    "WriteOptions",
    "find_changes",
    "validate_email",
    "validate_name",
]

_log = logging.getLogger(__name__)

_MAINTENANCE_SECONDS = 60
_MAX_CACHED_KEYS = 4096
_MARKET_SECONDS = 1
_INDEX_SECONDS = 1
_USAGE_SECONDS = 2  # normal delay until other processes show the requests that this one has counted


class InactiveKeyError(Problem):
    """The key is revoked or has expired. `caller` identifies it, so that the console can show its use."""

    def __init__(self, caller: Caller) -> None:
        super().__init__("invalid_api_key", "Invalid API key")
        self.caller = caller


class Service(Members, Listings, Market, RequestCounts, Activity, Payments):
    """All use cases, over one store, one rate limiter and one clock."""

    def __init__(  # noqa: PLR0913 - most are optional and keyword-only
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
        """Create the service.

        `limiter`: None means no rate limit. `clock` returns seconds since 1970. `sign_up_open`: whether anyone may
        create an account. `market_open`: whether listings are indexed for the public market. `payments`: None means
        that the operator takes payments. `pause` sleeps between maintenance tasks.
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
        self._well_formed: set[bytes] = set()  # digests of well-formed keys from earlier requests
        Market.__init__(self)

    def begin_shutdown(self) -> None:
        """Report the service as not ready."""
        self.stopping = True

    async def require_ready(self) -> None:
        """Raise Unavailable if the service is stopping or its store or rate limiter is unavailable."""
        if self.stopping:
            raise Unavailable("The service is stopping")
        try:
            await self.store.check()
            if self.limiter is not None:
                await self.limiter.check()
        except Problem as problem:
            raise Unavailable(problem.message) from problem

    # Callers

    async def authenticate(self, key: str | None) -> Caller:
        """Return the caller that owns the key.

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
            if caller is not None and not is_revoked_or_expired(caller.key_revoked_at, caller.key_expires_at, now):
                self._key_uses[caller.key_id] = int(now)
                return caller
            if caller is not None:
                _log.warning("Key %d is revoked or has expired", caller.key_id)
                raise InactiveKeyError(caller)
        raise Problem("invalid_api_key", "Invalid API key")

    def _is_well_formed(self, key: str, digest: bytes) -> bool:
        """Return whether a key is well formed, and cache it if so.

        Computing the checksum takes longer than the rest of the authentication.
        """
        if not api_keys.is_well_formed(key):
            return False
        if len(self._well_formed) >= _MAX_CACHED_KEYS:
            self._well_formed.clear()
        self._well_formed.add(digest)
        return True

    async def count_request(self, caller: Caller) -> RateLimitDecision | None:
        """Count a request of the caller's key and return the decision, or None if there is no rate limit."""
        return await self.limiter.hit(caller.key_id) if self.limiter is not None else None

    async def peek_rate_limit(self, caller: Caller) -> RateLimitDecision | None:
        """Return the state of the key's rate limit without counting a request, or None if there is no limit."""
        return await self.limiter.peek(caller.key_id) if self.limiter is not None else None

    def require_plan(self, caller: Caller) -> None:
        """Raise Problem: plan_expired (the account has no active Business plan), account_disabled."""
        if not is_plan_active(caller.plan_expires_at, self.clock()):
            raise Problem("plan_expired", "Business plan expired")
        if caller.account_disabled_at is not None:
            raise Problem("account_disabled", "This account is disabled")

    async def run_maintenance(self) -> None:
        """Run the background tasks until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(
                self._repeat(_MAINTENANCE_SECONDS, self.write_key_uses, self.write_usage, *self._list_purges())
            )
            group.create_task(self._repeat(_USAGE_SECONDS, self.write_usage_batch))
            group.create_task(self._repeat(_MARKET_SECONDS, self.write_views))
            group.create_task(self._repeat(_INDEX_SECONDS, self.index_accounts))
            if self.limiter is not None:
                group.create_task(self.limiter.run_maintenance())
            if self.market_open:
                group.create_task(self._repeat(_MARKET_SECONDS, self.index_market))

    async def _repeat(self, seconds: float, *jobs: Callable[[], Awaitable[object]]) -> None:
        """Pause and run the jobs, repeatedly, until cancelled.

        A cancelled job may raise another exception instead, so the loop checks for the cancellation.
        """
        task = cast("asyncio.Task[None]", asyncio.current_task())
        while not task.cancelling():
            await self.pause(seconds)
            for job in jobs:
                try:
                    await job()
                except Unavailable:
                    pass  # the next run tries again
                except Exception:  # noqa: BLE001 - a bug in one job must not stop the others
                    _log.exception("A maintenance job failed")

    async def index_accounts(self) -> int:
        """Add the listings of large accounts to the search index. Returns the number of listings added."""
        return await run_index_steps(self.store.index_accounts, self.pause)

    def _list_purges(self) -> tuple[Callable[[], Awaitable[object]], ...]:
        return self.purge_idempotency_records, self.purge_views, self.purge_sessions, self.purge_history

    async def purge_idempotency_records(self) -> None:
        """Delete the idempotency records older than a day (decision G36)."""
        with suppress(Unavailable):
            await self.store.purge_idempotency_records(int(self.clock()) - IDEMPOTENCY_SECONDS + 1)

    async def write_key_uses(self) -> None:
        """Store when each key was last used. Keep the times for the next call if the store is unavailable."""
        uses, self._key_uses = self._key_uses, {}
        try:
            if uses:
                await self.store.record_key_uses(uses)
        except Unavailable:
            self._key_uses = uses | self._key_uses
