"""API keys that members create, rotate and revoke in the console."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from listings.domain import api_keys
from listings.domain.errors import Problem
from listings.domain.history import CONSOLE
from listings.domain.listings import Batch
from listings.domain.members import AttemptLimit
from listings.domain.model import Account, ApiKey, KeyAccess, bucket_of, is_plan_active
from listings.domain.timestamps import DAY_SECONDS
from listings.service.accounts import validate_name
from listings.service.keys import IssuedKey, Keys, require_future
from listings.service.listings.steps import WriteOptions, build_idempotency_record
from listings.service.members.attempts import MAX_SECONDS, Attempts, build_limit
from listings.service.members.sessions import Member, Sessions
from listings.service.test_mode import TestMode
from listings.service.tokens import hash_token
from listings.store.store import Store

_MAX_KEYS = 20  # active ones
_MAX_NEW_KEYS = 20  # in an hour: each key has a rate limit of its own
_MAX_GRACE_SECONDS = 365 * DAY_SECONDS


@dataclass(eq=False)
class MemberKeys:
    """Creates, rotates and revokes a member's own API keys."""

    _store: Store
    _attempts: Attempts
    _keys: Keys
    _sessions: Sessions
    _clock: Callable[[], float]
    _test_mode: TestMode
    # By account, in this process. A lock is held while keys are counted and one is added.
    _locks: WeakValueDictionary[int, asyncio.Lock] = field(default_factory=WeakValueDictionary, init=False)

    async def create(
        self,
        member: Member,
        name: str,
        expires_at: int | None = None,
        form_id: str = "",
        *,
        access: KeyAccess = "write",
        is_test: bool = False,
    ) -> IssuedKey:
        """Create a key for the member's account, which needs an active plan, or for its test account.

        `form_id` prevents a form that is sent twice from creating two keys.

        Raises Problem: confirmation_required (the password was confirmed more than 15 minutes ago), plan_expired,
        too_many_keys, invalid_request, account_disabled, and those of `_use_form`.
        """
        account = await self._test_mode.find(member.account) if is_test else member.account
        plan_end = await self._test_mode.find_plan_end(member.account) if is_test else member.account.plan_expires_at
        self._require_allowed(member, plan_end)
        name = validate_name(name)
        require_future(expires_at, self._clock())
        async with self._lock(member):
            if account is not None:
                await self._require_room(account)
            await self._use_form(member, form_id)
            if is_test:
                return await self._test_mode.create_key(member.account, name, expires_at, CONSOLE, access=access)
            return await self._keys.add(member.account, name, api_keys.generate(), expires_at, CONSOLE, access=access)

    async def rotate(self, member: Member, key_id: int, grace_seconds: int, form_id: str = "") -> IssuedKey:
        """Replace a key of the account with a new one. The old key expires at most `grace_seconds` from now.

        `form_id` is as for `create`. Raises Problem: confirmation_required, plan_expired, key_not_found, key_ended,
        too_many_keys (until it expires, the old key counts too), invalid_request, account_disabled, and those of
        `_use_form`.
        """
        self._require_allowed(member, member.account.plan_expires_at)
        if not 0 <= grace_seconds <= _MAX_GRACE_SECONDS:
            raise Problem("invalid_request", "The old key may stay valid for at most a year")
        await self._find(member, key_id)
        async with self._lock(member):
            if grace_seconds:
                await self._require_room(
                    member.account, "revoke one first, or let the old one stop working immediately"
                )
            await self._use_form(member, form_id)
            try:
                return await self._keys.rotate(key_id, grace_seconds, CONSOLE)
            except Problem as problem:
                if problem.code != "key_ended":
                    raise
                await self._attempts.undo([_limit_of(member)])
                message = "This key is revoked, has expired or was already rotated: create a new one"
                raise Problem("key_ended", message) from problem

    async def revoke(self, member: Member, key_id: int) -> ApiKey:
        """Revoke a key of the account permanently. Raises Problem("key_not_found")."""
        await self._find(member, key_id)
        return await self._keys.revoke(key_id, CONSOLE)

    def _lock(self, member: Member) -> asyncio.Lock:
        return self._locks.setdefault(member.account.id, asyncio.Lock())

    def _require_allowed(self, member: Member, plan_end: int | None) -> None:
        if not is_plan_active(plan_end, self._clock()):
            raise Problem("plan_expired", "You need an active Business plan to create a key: renew your plan first")
        if not self._sessions.is_confirmed(member):
            raise Problem("confirmation_required", "Enter your password again to create a key")

    async def _require_room(self, account: Account, advice: str = "revoke one first") -> None:
        if len(await self._keys.list_active(account)) >= _MAX_KEYS:  # decision G25
            raise Problem("too_many_keys", f"An account can have at most {_MAX_KEYS} active keys: {advice}")

    async def _use_form(self, member: Member, form_id: str) -> None:
        options = WriteOptions(idempotency_key=f"console key {form_id}", digest=hash_token(form_id))
        record = build_idempotency_record(options, int(self._clock()))
        empty = Batch((), atomic=False, dry_run=False, encode=str)
        partition = bucket_of(member.account.id), member.account.id
        if form_id and isinstance(await self._store.run_batch(*partition, empty, record), str):
            message = "This form was already sent: look at your keys first. A key that was created can't be shown again"
            raise Problem("idempotency_key_reused", message)
        await self._attempts.count([_limit_of(member)], "new keys in the last hour")

    async def _find(self, member: Member, key_id: int) -> ApiKey:
        test = await self._test_mode.find(member.account)
        keys = await self._keys.list_of(member.account)
        for key in keys + (await self._keys.list_of(test) if test is not None else []):
            if key.id == key_id:
                return key
        raise Problem("key_not_found", f"You have no key with the id {key_id}")


def _limit_of(member: Member) -> AttemptLimit:
    return build_limit(_MAX_NEW_KEYS, "new key", str(member.account.id), MAX_SECONDS)
