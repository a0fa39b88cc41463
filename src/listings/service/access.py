"""Authenticate callers, and check their rate limit and plan."""

import logging
from collections.abc import Callable

from listings.domain import api_keys, timestamps
from listings.domain.accounts import PlanTerms
from listings.domain.errors import Problem, Unavailable
from listings.domain.model import Caller, is_plan_active
from listings.domain.rate_limiter import RateLimitDecision, RateLimiter
from listings.service.keys import is_revoked_or_expired
from listings.store.store import Store

_log = logging.getLogger(__name__)

_MAX_CACHED_KEYS = 4096


class InactiveKeyError(Problem):
    """The key is revoked or has expired. The rejected request is recorded for `caller`."""

    def __init__(self, caller: Caller) -> None:
        super().__init__("invalid_api_key", "Invalid API key")
        self.caller = caller


def require_write_access(caller: Caller) -> None:
    """Raise Problem("key_not_allowed") if the key is read-only (decision G44)."""
    if caller.key_access != "write":
        raise Problem("key_not_allowed", "This key is read-only: send GET or HEAD, or use a key with write access")


class Access:
    """The checks of every request with an API key."""

    def __init__(self, store: Store, limiter: RateLimiter | None, clock: Callable[[], float], plan: PlanTerms) -> None:
        self._store = store
        self._limiter = limiter
        self._clock = clock
        self._plan = plan
        self._key_uses: dict[int, int] = {}
        # Digests of well-formed keys: computing a checksum takes longer than the rest of the authentication.
        self._well_formed: set[bytes] = set()

    async def authenticate(self, key: str | None) -> Caller:
        """Return the key and the state of its account.

        Raises Problem: api_key_required (no key), invalid_api_key (unknown, malformed, revoked or expired).
        """
        if not key:
            raise Problem("api_key_required", "API key is required")
        digest = api_keys.digest(key)
        if digest in self._well_formed or self._is_well_formed(key, digest):
            caller = await self._store.find_caller(digest)
            now = self._clock()
            if caller is not None and not is_revoked_or_expired(caller.key_revoked_at, caller.key_expires_at, now):
                self._key_uses[caller.key_id] = int(now)
                return caller
            if caller is not None:
                _log.warning("Key %d is revoked or has expired", caller.key_id)
                raise InactiveKeyError(caller)
        defect = api_keys.describe_defect(key)
        raise Problem("invalid_api_key", f"Invalid API key: {defect}" if defect else "Invalid API key")

    def _is_well_formed(self, key: str, digest: bytes) -> bool:
        if not api_keys.is_well_formed(key):
            return False
        if len(self._well_formed) >= _MAX_CACHED_KEYS:
            self._well_formed.clear()
        self._well_formed.add(digest)
        return True

    async def count_request(self, caller: Caller) -> RateLimitDecision | None:
        """Count a request of the caller's key and return the decision, or None if there is no rate limit."""
        return await self._limiter.hit(caller.key_id) if self._limiter is not None else None

    async def peek_rate_limit(self, caller: Caller) -> RateLimitDecision | None:
        """Return the state of the key's rate limit without counting a request, or None if there is no limit."""
        return await self._limiter.peek(caller.key_id) if self._limiter is not None else None

    def require_plan(self, caller: Caller) -> None:
        """Raise Problem: plan_expired (the account has no active Business plan), account_disabled."""
        if not is_plan_active(caller.plan_expires_at, self._clock()):
            message = "A current Business plan is required"
            if caller.plan_expires_at is not None:
                day = timestamps.to_local(caller.plan_expires_at).date()  # as in the console and in mails
                renew = f"; renew at {self._plan.console_url}/plan" if self._plan.console_url else ""
                message = f"Business plan expired on {day}{renew}"
            raise Problem("plan_expired", message)
        if caller.account_disabled_at is not None:
            raise Problem("account_disabled", "This account is disabled")

    async def write_key_uses(self) -> None:
        """Store when each key was last used. Keep the times for the next call if the store is unavailable."""
        uses, self._key_uses = self._key_uses, {}
        try:
            if uses:
                await self._store.record_key_uses(uses)
        except Unavailable:
            self._key_uses = uses | self._key_uses
