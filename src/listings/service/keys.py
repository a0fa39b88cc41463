"""API keys: create, find, rotate and revoke them."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from listings.domain import api_keys
from listings.domain.accounts import NewKey, Rotation, require_not_erased
from listings.domain.errors import Problem
from listings.domain.history import OPERATOR, Actor
from listings.domain.mail import NewMail
from listings.domain.model import Account, ApiKey, Caller, KeyAccess, is_plan_active
from listings.service.accounts import Accounts, validate_name
from listings.service.mail.composer import MailComposer
from listings.store.store import Store

_log = logging.getLogger(__name__)

INVALID_KEY_MESSAGE = (
    "A key must have 16 to 200 visible ASCII characters. If it begins with lst_, exactly 38 letters and digits must "
    "follow, with a valid checksum"
)


class IssuedKey(msgspec.Struct, frozen=True):
    """A new key with its secret. The secret is not stored, so it is shown only once."""

    secret: str
    key: ApiKey


@dataclass(eq=False)
class Keys:
    """Creates, rotates, revokes and lists API keys."""

    _store: Store
    _accounts: Accounts
    _clock: Callable[[], float]
    _composer: MailComposer

    async def create(
        self,
        reference: str,
        name: str,
        expires_at: int | None = None,
        secret: str | None = None,
        *,
        access: KeyAccess = "write",
    ) -> IssuedKey:
        """Create a key, or add an existing one if `secret` is given, such as a key of an older system.

        Raises Problem: account_not_found, plan_expired, account_disabled, invalid_request, key_taken.
        """
        account = await self._accounts.find(reference)
        _require_key_allowed(account, self._clock())
        require_future(expires_at, self._clock())
        secret = secret if secret is not None else api_keys.generate()
        return await self.add(account, name, secret, expires_at, access=access)

    async def add(
        self,
        account: Account,
        name: str,
        secret: str,
        expires_at: int | None = None,
        actor: int = OPERATOR,
        *,
        access: KeyAccess = "write",
    ) -> IssuedKey:
        """Add a key without checking the account's plan.

        Raises Problem: invalid_request, key_taken, account_disabled (the account is erased).
        """
        if not api_keys.is_well_formed(secret):
            raise Problem("invalid_request", INVALID_KEY_MESSAGE)
        if secret.startswith(api_keys.TEST_PREFIX) and account.test_of is None:
            raise Problem("invalid_request", f"Keys that begin with {api_keys.TEST_PREFIX} are those of test mode only")
        new = _build_key(account, validate_name(name), secret, int(self._clock()), expires_at, access)
        mail = self._compose_notice(account, new)
        key = await self._store.add_key(new, Actor(actor, new.created_at), mail)
        if key is None:
            raise Problem("key_taken", f"The key {new.hint} already exists")
        _log.info("Created key %d of account %d", key.id, key.account_id)
        return IssuedKey(secret, key)

    async def find(self, secret: str) -> Caller | None:
        """Return the key with this secret and its account, even if revoked or expired, or None if it is unknown."""
        return await self._store.find_caller(api_keys.digest(secret))

    async def get(self, key_id: int) -> ApiKey:
        """Return a key. Raises Problem("key_not_found")."""
        key = await self._store.get_key(key_id)
        if key is None:
            raise _key_not_found(key_id)
        return key

    async def list_of(self, account: Account) -> list[ApiKey]:
        """Return all keys of the account, including revoked and expired ones."""
        return await self._store.list_keys(account.id)

    async def list_active(self, account: Account) -> list[ApiKey]:
        """Return the keys of the account that are neither revoked nor expired."""
        return [key for key in await self.list_of(account) if not self.is_revoked_or_expired(key)]

    def is_revoked_or_expired(self, key: ApiKey) -> bool:
        return is_revoked_or_expired(key.revoked_at, key.expires_at, self._clock())

    async def list_successors(self, account: Account) -> dict[int, int]:
        """Return the ids of the keys that replaced rotated keys, by the id of the rotated key.

        Rotations are stored for a year and 90 days.
        """
        return await self._store.list_successors(account.id)

    async def rotate(self, key_id: int, grace_seconds: int, actor: int = OPERATOR) -> IssuedKey:
        """Replace a key with a new one of the same name, expiry and access.

        The old key expires `grace_seconds` from now, or at its own expiry if that is earlier.

        Raises Problem: key_not_found, key_ended (revoked, expired or already rotated), plan_expired, account_disabled.
        """
        now = int(self._clock())
        secret = api_keys.generate()

        def decide(old: ApiKey, account: Account, successor: int | None) -> Rotation:
            if account.test_of is not None:
                raise Problem("invalid_request", f"Key {old.id} is a test key: create another one instead")
            if is_revoked_or_expired(old.revoked_at, old.expires_at, now):
                advice = f"create a new one with `listings key create {old.account_id} --name NAME`"
                raise Problem("key_ended", f"Key {old.id} is revoked or has expired: {advice}")
            if successor is not None:  # a second successor would inherit the expiry that the first rotation set
                advice = "rotate that one, or create a new one"
                raise Problem("key_ended", f"Key {old.id} was already rotated to key {successor}: {advice}")
            _require_key_allowed(account, now)
            new = _build_key(account, old.name, secret, now, old.expires_at, old.access)
            grace_end = now + grace_seconds
            mail = self._compose_notice(account, new)
            return Rotation(new, grace_end if old.expires_at is None else min(grace_end, old.expires_at), mail)

        key = await self._store.rotate_key(key_id, decide, Actor(actor, now))
        if key is None:
            raise _key_not_found(key_id)
        _log.info("Rotated key %d of account %d to key %d", key_id, key.account_id, key.id)
        return IssuedKey(secret, key)

    async def revoke(self, key_id: int, actor: int = OPERATOR) -> ApiKey:
        """Revoke a key permanently. Revoking it again changes nothing. Raises Problem("key_not_found")."""
        now = int(self._clock())
        key = await self._store.revoke_key(key_id, now, Actor(actor, now))
        if key is None:
            raise _key_not_found(key_id)
        _log.info("Revoked key %d of account %d", key.id, key.account_id)
        return key

    def _compose_notice(self, account: Account, new: NewKey) -> NewMail | None:
        if account.test_of is not None:
            return None
        return self._composer.compose("key_created", account, name=new.name, hint=new.hint, access=new.access)


def _build_key(account: Account, name: str, secret: str, now: int, expires_at: int | None, access: KeyAccess) -> NewKey:
    return NewKey(
        account_id=account.id,
        name=name,
        digest=api_keys.digest(secret),
        hint=api_keys.mask(secret),
        created_at=now,
        expires_at=expires_at,
        access=access,
    )


def is_revoked_or_expired(revoked_at: int | None, expires_at: int | None, now: float) -> bool:
    """Return whether a key is revoked or has expired. At the time `expires_at` itself, it has expired."""
    return revoked_at is not None or (expires_at is not None and expires_at <= now)


def _require_key_allowed(account: Account, now: float) -> None:
    require_not_erased(account)
    if not is_plan_active(account.plan_expires_at, now):  # decision G25
        raise Problem(
            "plan_expired",
            f"{account.email} has no active Business plan, which a key requires: "
            f"extend it with `listings account plan {account.id} --months N`",
        )
    if account.disabled_at is not None:
        advice = f"enable it with `listings account enable {account.id}`"
        raise Problem("account_disabled", f"{account.email} is disabled and can't have a new key: {advice}")


def require_future(expires_at: int | None, now: float) -> None:
    """Raise Problem("invalid_request") if a new key would already be expired."""
    if expires_at is not None and expires_at <= now:
        raise Problem("invalid_request", "The expiry of a key must be in the future: choose a later day")


def _key_not_found(key_id: int) -> Problem:
    return Problem("key_not_found", f"There is no key with the id {key_id}")
