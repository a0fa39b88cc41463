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
from listings.domain.model import Account, ApiKey, Caller, is_current

_log = logging.getLogger(__name__)

_LONGEST_NAME = 200
_LONGEST_EMAIL = 254  # RFC 5321, 4.5.3.1.3
_PAGE = 500
_ERASED_EMAIL = re.compile(r"erased-[0-9]+@[0-9a-f]{16}\.invalid")


class IssuedKey(msgspec.Struct, frozen=True):
    """A new key with its secret, which is told this once."""

    secret: str
    key: ApiKey


class Accounts:
    """The use cases of accounts, over a store and a clock."""

    store: Store
    clock: Callable[[], float]

    # Accounts and plans

    async def add_account(self, name: str, email: str, plan_expires_at: int | None) -> Account:
        """Open an account; e-mail addresses are kept in lower case. Raises Problem: invalid_request, email_taken."""
        email = checked_email(email)
        account = await self.store.add_account(checked_name(name), email, plan_expires_at, int(self.clock()))
        if account is None:
            raise Problem("email_taken", f"An account with the e-mail address {email} exists already")
        return account

    async def find_account(self, reference: str) -> Account:
        """The account of an id or an e-mail address. Raises Problem("account_not_found")."""
        account = None
        if "@" in reference and reference.isprintable():
            account = await self.store.find_account(reference.strip().lower())
        elif reference.isascii() and reference.isdigit() and len(reference) <= 18:  # noqa: PLR2004 - below 2**63
            account = await self.store.get_account(int(reference))
        return _known(account, reference)

    async def list_accounts(self) -> AsyncIterator[Account]:
        """All accounts in the order of their ids, read in pages."""
        page = await self.store.page_accounts(0, _PAGE)
        while page:
            for account in page:
                yield account
            page = await self.store.page_accounts(page[-1].id, _PAGE)

    async def disable_account(self, reference: str) -> Account:
        """Refuse all of an account's keys until it is enabled, and end its sessions for good.

        One that is disabled keeps its first time.
        """
        now = int(self.clock())
        account = await self._change_account(
            reference, lambda found: {} if found.disabled_at is not None else {"disabled_at": now}
        )
        await self.store.end_sessions(account.id)
        _log.info("Account %d is disabled", account.id)
        return account

    async def enable_account(self, reference: str) -> Account:
        """Let an account's keys work again, and its owner sign in."""
        account = await self._change_account(reference, lambda _: {"disabled_at": None})
        _log.info("Account %d is enabled", account.id)
        return account

    async def set_plan(self, reference: str, plan_expires_at: int | None) -> Account:
        """Let the Business plan end at a moment, past ones included; None takes the plan away."""
        return await self._change_account(reference, lambda _: {"plan_expires_at": plan_expires_at})

    async def extend_plan(self, reference: str, months: int) -> Account:
        """Add calendar months to the later of now and the plan's present end."""
        now = self.clock()

        def decide(account: Account) -> AccountChange:
            return {"plan_expires_at": months_later(max(now, account.plan_expires_at or 0), months)}

        return await self._change_account(reference, decide)

    async def expire_plan(self, reference: str) -> Account:
        """End the plan now; one that has ended, or was never there, stays as it is."""
        now = int(self.clock())

        def decide(account: Account) -> AccountChange:
            return {"plan_expires_at": now} if is_current(account.plan_expires_at, now) else {}

        return await self._change_account(reference, decide)

    async def rename_account(self, reference: str, name: str) -> Account:
        """Give an account another name."""
        name = checked_name(name)
        return await self._change_account(reference, lambda _: {"name": name})

    async def _change_account(self, reference: str, decide: Callable[[Account], AccountChange]) -> Account:
        account = await self.find_account(reference)

        def decide_unless_erased(found: Account) -> AccountChange:
            require_kept(found)
            return decide(found)

        changed = await self.store.change_account(account.id, decide_unless_erased, self._operator())
        return _known(changed, reference)

    def _operator(self) -> Actor:
        return Actor(OPERATOR, int(self.clock()))

    # Keys

    async def issue_key(self, reference: str, name: str, expires_at: int | None = None) -> IssuedKey:
        """Make a key. Raises Problem: account_not_found, plan_expired, account_disabled, invalid_request."""
        return await self.register_key(reference, name, api_keys.make(), expires_at)

    async def register_key(self, reference: str, name: str, secret: str, expires_at: int | None = None) -> IssuedKey:
        """Take over a key of an older system. Raises Problem as `issue_key` does, and key_taken."""
        account = await self.find_account(reference)
        _require_key_right(account, self.clock())
        require_future(expires_at, self.clock())
        return await self.adopt_key(account, name, secret, expires_at)

    async def adopt_key(
        self, account: Account, name: str, secret: str, expires_at: int | None = None, actor: int = OPERATOR
    ) -> IssuedKey:
        """Take over a key whatever the plan is, to set a service up. Raises Problem: invalid_request, key_taken."""
        if not api_keys.is_well_formed(secret):
            raise Problem("invalid_request", WRONG_KEY)
        new = _new_key(account, checked_name(name), secret, int(self.clock()), expires_at)
        key = await self.store.add_key(new, Actor(actor, new.created_at))
        if key is None:
            raise Problem("key_taken", f"The key {new.hint} is known already")
        _log.info("Key %d of account %d is issued", key.id, key.account_id)
        return IssuedKey(secret, key)

    async def make_key(self, account: Account, name: str, expires_at: int | None, actor: int) -> IssuedKey:
        """Make a key on somebody's behalf whose right to it is known. Raises Problem("invalid_request")."""
        return await self.adopt_key(account, name, api_keys.make(), expires_at, actor)

    async def find_key(self, secret: str) -> Caller | None:
        """The key of this secret with its account, revoked and expired ones included."""
        return await self.store.find_caller(api_keys.digest(secret))

    async def list_keys(self, account: Account) -> list[ApiKey]:
        """All keys that the account ever had."""
        return await self.store.list_keys(account.id)

    def has_key_ended(self, key: ApiKey) -> bool:
        """Whether a key is revoked or has expired."""
        return has_ended(key.revoked_at, key.expires_at, self.clock())

    async def rotate_key(self, key_id: int, grace: int, actor: int = OPERATOR) -> IssuedKey:
        """Make a key of the same name and expiry; the old one ends `grace` seconds from now, or sooner by itself.

        Raises Problem: key_not_found, key_ended (revoked, expired or rotated already), plan_expired, account_disabled.
        """
        now = int(self.clock())
        secret = api_keys.make()

        def decide(old: ApiKey, account: Account, successor: int | None) -> Rotation:
            if has_ended(old.revoked_at, old.expires_at, now):
                again = f"make a new one with `listings key create {account.id} --name NAME`"
                raise Problem("key_ended", f"Key {key_id} is revoked or has expired: {again}")
            if successor is not None:  # the new one would end with the old one's grace
                made = f"Key {key_id} was rotated already, into key {successor}"
                raise Problem("key_ended", f"{made}: rotate that one, or make a new one")
            _require_key_right(account, now)
            new = _new_key(account, old.name, secret, now, old.expires_at)
            ends = now + grace
            return Rotation(new, ends if old.expires_at is None else min(ends, old.expires_at))

        key = await self.store.rotate_key(key_id, decide, Actor(actor, now))
        if key is None:
            raise _no_key(key_id)
        _log.info("Key %d of account %d is issued in place of key %d", key.id, key.account_id, key_id)
        return IssuedKey(secret, key)

    async def revoke_key(self, key_id: int, actor: int = OPERATOR) -> ApiKey:
        """End a key at once and for good; a revoked one stays as it is. Raises Problem("key_not_found")."""
        now = int(self.clock())
        key = await self.store.revoke_key(key_id, now, Actor(actor, now))
        if key is None:
            raise _no_key(key_id)
        _log.info("Key %d of account %d is revoked", key.id, key.account_id)
        return key


WRONG_KEY = (
    "A key has 16 to 200 visible ASCII characters, and one that begins with lst_ "
    "has 42 letters and digits with a right checksum"
)


def has_ended(revoked_at: int | None, expires_at: int | None, now: float) -> bool:
    """Whether a key is revoked or has expired; it is good until just before its expiry."""
    return revoked_at is not None or (expires_at is not None and expires_at <= now)


def _require_key_right(account: Account, now: float) -> None:
    """Raises Problem unless the account may get a key (decision G25)."""
    require_kept(account)
    if not is_current(account.plan_expires_at, now):
        raise Problem(
            "plan_expired",
            f"{account.email} has no current Business plan, which a key needs: "
            f"extend it with `listings account plan {account.id} --months N`",
        )
    if account.disabled_at is not None:
        again = f"enable it with `listings account enable {account.id}`"
        raise Problem("account_disabled", f"{account.email} is disabled and gets no key: {again}")


def require_future(expires_at: int | None, now: float) -> None:
    """Raises Problem("invalid_request") for a key that would never work."""
    if expires_at is not None and expires_at <= now:
        raise Problem("invalid_request", "A key expires in the future: choose a later day")


def erased_email(account_id: int) -> str:
    """The address of an account that is erased, which nobody else has had or will have."""
    return f"erased-{account_id}@{secrets.token_hex(8)}.invalid"


def is_erased(account: Account) -> bool:
    """Whether everything about a person was taken from an account, which is for good."""
    return account.disabled_at is not None and _ERASED_EMAIL.fullmatch(account.email) is not None


def require_kept(account: Account) -> None:
    """Raises Problem("account_disabled") for an account that is erased."""
    if is_erased(account):
        raise Problem("account_disabled", f"Account {account.id} is erased")


def _new_key(account: Account, name: str, secret: str, now: int, expires_at: int | None) -> NewKey:
    return NewKey(
        account_id=account.id,
        name=name,
        digest=api_keys.digest(secret),
        hint=api_keys.mask(secret),
        created_at=now,
        expires_at=expires_at,
    )


def _no_key(key_id: int) -> Problem:
    return Problem("key_not_found", f"There is no key with the id {key_id}")


def _known(account: Account | None, reference: str) -> Account:
    if account is None:
        raise Problem("account_not_found", f"There is no account {reference}")
    return account


def months_later(moment: float, months: int) -> int:
    """Calendar months behind a moment. Raises Problem("invalid_request") beyond the year 9999."""
    try:
        return timestamps.add_months(moment, months)
    except ValueError as error:
        raise Problem("invalid_request", str(error)) from None


def checked_name(name: str) -> str:
    """A name of an account or a key, as it is. Raises Problem("invalid_request") for what can't be one."""
    if not 0 < len(name) <= _LONGEST_NAME or name.isspace() or not name.isprintable():
        raise Problem("invalid_request", f"A name has 1 to {_LONGEST_NAME} printable characters, got {name[:40]!r}")
    return name


def checked_email(email: str) -> str:
    """An e-mail address in lower case. Raises Problem("invalid_request") for what can't be one."""
    email = email.strip().lower()
    local, _, domain = email.rpartition("@")
    if not (local and domain) or len(email) > _LONGEST_EMAIL or not email.isprintable() or " " in email:
        raise Problem("invalid_request", f"{email[:40]!r} is not an e-mail address")
    return email
