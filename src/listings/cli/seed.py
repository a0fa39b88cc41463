"""Seed files: accounts and keys that the service creates before it opens its port.

    {"accounts": [{"name": "Alice", "email": "alice@example.com", "plan_expires_at": "2027-01-31", "keys": ["…"]}]}

Applying a file twice has no further effect. An account is identified by its keys, or else by its email address, because
its owner can change the address. `plan_expires_at` is a date, which may be in the past, or null for no plan. Without
`plan_expires_at` the plan does not change. A read-only key is `{"key": "…", "access": "read"}`.
"""

import logging
from pathlib import Path

import msgspec

from listings.domain import api_keys, timestamps
from listings.domain.accounts import is_erased
from listings.domain.errors import Problem
from listings.domain.model import Account, Caller, KeyAccess
from listings.service import Services
from listings.service.accounts import validate_email, validate_name
from listings.service.keys import INVALID_KEY_MESSAGE

_log = logging.getLogger(__name__)


class SeedKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One key of an account. A string in the file is the key of one with write access."""

    key: str
    access: KeyAccess = "write"


class SeedAccount(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One account of a seed file."""

    name: str
    email: str
    plan_expires_at: str | msgspec.UnsetType | None = msgspec.UNSET
    keys: tuple[str | SeedKey, ...] = ()

    def list_keys(self) -> list[SeedKey]:
        return [SeedKey(key) if isinstance(key, str) else key for key in self.keys]

    def plan_end(self, current: int | None) -> int | None:
        """Return the new end of a plan that currently ends at `current`."""
        if self.plan_expires_at is None:
            return None
        return current if self.plan_expires_at is msgspec.UNSET else timestamps.parse_timestamp(self.plan_expires_at)


class Seed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a seed file."""

    accounts: tuple[SeedAccount, ...]


def read(path: Path) -> Seed:
    """Read and validate a seed file. Raises Problem("invalid_setting")."""
    try:
        seed = msgspec.json.decode(path.read_bytes(), type=Seed)
        _validate(seed)
    except (OSError, ValueError, Problem) as error:
        raise Problem("invalid_setting", f"The seed file {path} can't be used: {error}") from None
    return seed


async def apply(services: Services, seed: Seed) -> None:
    """Create missing accounts and keys, and update names and plans.

    Raises Problem before any change if the keys of an entry belong to two accounts, or one has another access.
    """
    found = [await _find_account(services, wanted) for wanted in seed.accounts]
    first: dict[int, int] = {}  # the number of an account's first entry
    for number, (wanted, (account, obstacle)) in enumerate(zip(seed.accounts, found, strict=True), 1):
        if obstacle:
            _log.warning("Skipped account number %d of the seed file: %s", number, obstacle)
        elif account is not None and (other := first.setdefault(account.id, number)) != number:
            same = f"it is account {account.id}, as is account number {other}"
            _log.warning("Skipped account number %d of the seed file: %s", number, same)
        else:
            await _apply(services, wanted, account, number)


async def _apply(services: Services, wanted: SeedAccount, account: Account | None, number: int) -> None:
    account = await _create_or_update(services, wanted, account)
    if account.email != validate_email(wanted.email):
        _log.warning("Account number %d of the seed file is account %d, whose email has changed", number, account.id)
    for key in wanted.list_keys():
        if await services.keys.find(key.key) is None:
            await _add_key(services, wanted, account, key)


async def _add_key(services: Services, wanted: SeedAccount, account: Account, key: SeedKey) -> None:
    try:
        await services.keys.add(account, "seed", key.key, access=key.access)
    except Problem as problem:
        caller = await services.keys.find(key.key) if problem.code == "key_taken" else None
        if caller is None:
            raise
        _require_same_key(wanted, account, key, caller)  # another process created it at that moment


async def ensure_account(services: Services, wanted: SeedAccount) -> Account:
    """Create the account with the email, or update its name and plan, and return it."""
    return await _create_or_update(services, wanted, await _find(services, wanted.email))


async def _create_or_update(services: Services, wanted: SeedAccount, account: Account | None) -> Account:
    if account is None:
        try:
            return await services.accounts.add(wanted.name, wanted.email, wanted.plan_end(None))
        except Problem as problem:
            if problem.code != "email_taken":
                raise
        account = await services.accounts.find(wanted.email)  # another process created it at that moment
    if account.name != wanted.name:
        account = await services.accounts.rename(account.email, wanted.name)
    end = wanted.plan_end(account.plan_expires_at)
    return account if end == account.plan_expires_at else await services.accounts.set_plan(account.email, end)


async def _find(services: Services, email: str) -> Account | None:
    try:
        return await services.accounts.find(email)
    except Problem as problem:
        if problem.code != "account_not_found":
            raise
        return None


async def _find_account(services: Services, wanted: SeedAccount) -> tuple[Account | None, str]:
    # Returns why the entry must be skipped, too: changes that sellers make must not keep the service from starting.
    account = None
    for key in wanted.list_keys():
        caller = await services.keys.find(key.key)
        if caller is not None:
            account = account or await services.accounts.find(str(caller.account_id))
            _require_same_key(wanted, account, key, caller)
    named = await _find(services, wanted.email)
    if account is None:
        return named, ""
    if is_erased(account):
        return account, f"account {account.id} is erased"
    if named is not None and named.id != account.id:
        return account, f"its key belongs to account {account.id}, and its email to account {named.id}"
    return account, ""


def _require_same_key(wanted: SeedAccount, account: Account, key: SeedKey, caller: Caller) -> None:
    name = f"The key {api_keys.mask(key.key)} of the seed file"
    if caller.account_id != account.id:
        raise Problem("key_taken", f"{name} does not belong to the account of the other keys of {wanted.email}")
    if caller.key_access != key.access:
        advice = "the access of a key can't be changed, so revoke it and use another key"
        raise Problem("key_taken", f"{name} is a {caller.key_access} key already: {advice}")


def _validate(seed: Seed) -> None:
    emails = [validate_email(wanted.email) for wanted in seed.accounts]
    secrets = [key.key for wanted in seed.accounts for key in wanted.list_keys()]
    if len(set(emails)) < len(emails):
        raise ValueError("an email address appears twice")
    if len(set(secrets)) < len(secrets):
        raise ValueError("a key appears twice")
    for wanted in seed.accounts:
        validate_name(wanted.name)
        wanted.plan_end(None)
    for number, secret in enumerate(secrets, 1):
        if not api_keys.is_well_formed(secret):
            raise ValueError(f"key number {number} is not a valid key. {INVALID_KEY_MESSAGE}")
