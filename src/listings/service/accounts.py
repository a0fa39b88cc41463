"""Accounts, their plans and their keys."""

import logging
import re
import secrets
from collections.abc import AsyncIterator, Callable

import msgspec

from listings.contract.accounts import AccountChange, NewKey, Rotation
from listings.contract.history import OPERATOR, Actor
from listings.contract.store import Store
from listings.domain import api_keys, timestamps
from listings.domain.errors import Problem
from listings.domain.model import Account, ApiKey, Caller, is_plan_active

_log = logging.getLogger(__name__)

_MAX_NAME_LENGTH = 200
_MAX_EMAIL_LENGTH = 254  # RFC 5321, 4.5.3.1.3
_PAGE_SIZE = 500
_ERASED_EMAIL = re.compile(r"erased-[0-9]+@[0-9a-f]{16}\.invalid")


class IssuedKey(msgspec.Struct, frozen=True):
    """A new key with its secret. The secret is not stored, so it is shown only once."""

    secret: str
    key: ApiKey


class Accounts:
    """The use cases of accounts and API keys."""

    store: Store
    clock: Callable[[], float]

    # Accounts and plans

    async def add_account(self, name: str, email: str, plan_expires_at: int | None) -> Account:
        """Create an account. Its email is stored in lower case. Raises Problem: invalid_request, email_taken."""
        email = validate_email(email)
        account = await self.store.add_account(validate_name(name), email, plan_expires_at, int(self.clock()))
        if account is None:
            raise Problem("email_taken", f"An account with the email {email} already exists")
        return account

    async def find_account(self, reference: str) -> Account:
        """Return the account with an id or an email. Raises Problem("account_not_found")."""
        account = None
        if "@" in reference and reference.isprintable():
            account = await self.store.find_account(reference.strip().lower())
        elif reference.isascii() and reference.isdigit() and len(reference) <= 18:  # noqa: PLR2004 - below 2**63
            account = await self.store.get_account(int(reference))
        return _require_account(account, reference)

    async def list_accounts(self) -> AsyncIterator[Account]:
        """Yield all accounts by ascending id."""
        page = await self.store.page_accounts(0, _PAGE_SIZE)
        while page:
            for account in page:
                yield account
            page = await self.store.page_accounts(page[-1].id, _PAGE_SIZE)

    async def disable_account(self, reference: str) -> Account:
        """Disable an account: reject its keys until it is enabled, and end its sessions permanently.

        Disabling it again does not change `disabled_at`.
        """
        now = int(self.clock())
        account = await self._change_account(
            reference, lambda found: {} if found.disabled_at is not None else {"disabled_at": now}
        )
        await self.store.end_sessions(account.id)
        _log.info("Disabled account %d", account.id)
        return account

    async def enable_account(self, reference: str) -> Account:
        """Enable an account, so that its keys work and its owner can sign in."""
        account = await self._change_account(reference, lambda _: {"disabled_at": None})
        _log.info("Enabled account %d", account.id)
        return account

    async def set_plan(self, reference: str, plan_expires_at: int | None) -> Account:
        """Set the end of the Business plan, which may be in the past. None removes the plan."""
        return await self._change_account(reference, lambda _: {"plan_expires_at": plan_expires_at})

    async def extend_plan(self, reference: str, months: int) -> Account:
        """Extend the plan by calendar months, from its end or from now, whichever is later."""
        now = self.clock()

        def decide(account: Account) -> AccountChange:
            return {"plan_expires_at": add_months(max(now, account.plan_expires_at or 0), months)}

        return await self._change_account(reference, decide)

    async def expire_plan(self, reference: str) -> Account:
        """End an active plan now. An expired or missing plan does not change."""
        now = int(self.clock())

        def decide(account: Account) -> AccountChange:
            return {"plan_expires_at": now} if is_plan_active(account.plan_expires_at, now) else {}

        return await self._change_account(reference, decide)

    async def rename_account(self, reference: str, name: str) -> Account:
        """Change the name of an account."""
        name = validate_name(name)
        return await self._change_account(reference, lambda _: {"name": name})

    async def _change_account(self, reference: str, decide: Callable[[Account], AccountChange]) -> Account:
        account = await self.find_account(reference)

        def decide_unless_erased(found: Account) -> AccountChange:
            require_not_erased(found)
            return decide(found)

        changed = await self.store.change_account(account.id, decide_unless_erased, self._operator_actor())
        return _require_account(changed, reference)

    def _operator_actor(self) -> Actor:
        return Actor(OPERATOR, int(self.clock()))

    # Keys

    async def issue_key(self, reference: str, name: str, expires_at: int | None = None) -> IssuedKey:
        """Create a key. Raises Problem: account_not_found, plan_expired, account_disabled, invalid_request."""
        return await self.import_key(reference, name, api_keys.generate(), expires_at)

    async def import_key(self, reference: str, name: str, secret: str, expires_at: int | None = None) -> IssuedKey:
        """Add an existing key, such as one of an older system. Raises Problem like `issue_key`, and key_taken."""
        account = await self.find_account(reference)
        _require_key_allowed(account, self.clock())
        require_future(expires_at, self.clock())
        return await self.add_key(account, name, secret, expires_at)

    async def add_key(
        self, account: Account, name: str, secret: str, expires_at: int | None = None, actor: int = OPERATOR
    ) -> IssuedKey:
        """Add a key without checking the account's plan. Raises Problem: invalid_request, key_taken."""
        if not api_keys.is_well_formed(secret):
            raise Problem("invalid_request", INVALID_KEY_MESSAGE)
        new = _build_new_key(account, validate_name(name), secret, int(self.clock()), expires_at)
        key = await self.store.add_key(new, Actor(actor, new.created_at))
        if key is None:
            raise Problem("key_taken", f"The key {new.hint} already exists")
        _log.info("Created key %d of account %d", key.id, key.account_id)
        return IssuedKey(secret, key)

    async def find_key(self, secret: str) -> Caller | None:
        """Return the key with this secret and its account, even if revoked or expired, or None if it is unknown."""
        return await self.store.find_caller(api_keys.digest(secret))

    async def list_keys(self, account: Account) -> list[ApiKey]:
        """Return all keys of the account, including revoked and expired ones."""
        return await self.store.list_keys(account.id)

    def is_key_revoked_or_expired(self, key: ApiKey) -> bool:
        """Return whether a key is revoked or has expired."""
        return is_revoked_or_expired(key.revoked_at, key.expires_at, self.clock())

    async def rotate_key(self, key_id: int, grace_seconds: int, actor: int = OPERATOR) -> IssuedKey:
        """Replace a key with a new one of the same name and expiry.

        The old key expires `grace_seconds` from now, or at its own expiry if that is earlier.

        Raises Problem: key_not_found, key_ended (revoked, expired or already rotated), plan_expired, account_disabled.
        """
        now = int(self.clock())
        secret = api_keys.generate()

        def decide(old: ApiKey, account: Account, successor: int | None) -> Rotation:
            if is_revoked_or_expired(old.revoked_at, old.expires_at, now):
                advice = f"create a new one with `listings key create {account.id} --name NAME`"
                raise Problem("key_ended", f"Key {key_id} is revoked or has expired: {advice}")
            if successor is not None:  # a second successor would inherit the expiry that the first rotation set
                raise Problem(
                    "key_ended",
                    f"Key {key_id} was already rotated to key {successor}: rotate that one, or create a new one",
                )
            _require_key_allowed(account, now)
            new = _build_new_key(account, old.name, secret, now, old.expires_at)
            grace_end = now + grace_seconds
            return Rotation(new, grace_end if old.expires_at is None else min(grace_end, old.expires_at))

        key = await self.store.rotate_key(key_id, decide, Actor(actor, now))
        if key is None:
            raise _key_not_found(key_id)
        _log.info("Rotated key %d of account %d to key %d", key_id, key.account_id, key.id)
        return IssuedKey(secret, key)

    async def revoke_key(self, key_id: int, actor: int = OPERATOR) -> ApiKey:
        """Revoke a key permanently. Revoking it again changes nothing. Raises Problem("key_not_found")."""
        now = int(self.clock())
        key = await self.store.revoke_key(key_id, now, Actor(actor, now))
        if key is None:
            raise _key_not_found(key_id)
        _log.info("Revoked key %d of account %d", key.id, key.account_id)
        return key


INVALID_KEY_MESSAGE = (
    "A key must have 16 to 200 visible ASCII characters; one that begins with lst_ must have 38 more letters and "
    "digits, with a valid checksum"
)


def is_revoked_or_expired(revoked_at: int | None, expires_at: int | None, now: float) -> bool:
    """Return whether a key is revoked or has expired. It expires at `expires_at`."""
    return revoked_at is not None or (expires_at is not None and expires_at <= now)


def _require_key_allowed(account: Account, now: float) -> None:
    """Raise Problem unless the account may have a new key (decision G25)."""
    require_not_erased(account)
    if not is_plan_active(account.plan_expires_at, now):
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


def build_erased_email(account_id: int) -> str:
    """Return a unique placeholder for the email of an erased account."""
    return f"erased-{account_id}@{secrets.token_hex(8)}.invalid"


def is_erased(account: Account) -> bool:
    """Return whether the personal data of an account was erased, which is permanent."""
    return account.disabled_at is not None and _ERASED_EMAIL.fullmatch(account.email) is not None


def require_not_erased(account: Account) -> None:
    """Raise Problem("account_disabled") if the account is erased."""
    if is_erased(account):
        raise Problem("account_disabled", f"Account {account.id} is erased")


def _build_new_key(account: Account, name: str, secret: str, now: int, expires_at: int | None) -> NewKey:
    return NewKey(
        account_id=account.id,
        name=name,
        digest=api_keys.digest(secret),
        hint=api_keys.mask(secret),
        created_at=now,
        expires_at=expires_at,
    )


def _key_not_found(key_id: int) -> Problem:
    return Problem("key_not_found", f"There is no key with the id {key_id}")


def _require_account(account: Account | None, reference: str) -> Account:
    if account is None:
        raise Problem("account_not_found", f"There is no account {reference}")
    return account


def add_months(seconds: float, months: int) -> int:
    """Return the time `months` calendar months later. Raises Problem("invalid_request") after the year 9999."""
    try:
        return timestamps.add_months(seconds, months)
    except ValueError as error:
        raise Problem("invalid_request", str(error)) from None


def validate_name(name: str) -> str:
    """Return the name of an account or a key unchanged. Raises Problem("invalid_request") if it is invalid."""
    if not 0 < len(name) <= _MAX_NAME_LENGTH or name.isspace() or not name.isprintable():
        raise Problem(
            "invalid_request", f"A name must have 1 to {_MAX_NAME_LENGTH} printable characters, got {name[:40]!r}"
        )
    return name


def validate_email(email: str) -> str:
    """Return an email address in lower case. Raises Problem("invalid_request") if it is invalid."""
    email = email.strip().lower()
    local, _, domain = email.rpartition("@")
    if not (local and domain) or len(email) > _MAX_EMAIL_LENGTH or not email.isprintable() or " " in email:
        raise Problem("invalid_request", f"{email[:40]!r} is not an email address")
    return email
