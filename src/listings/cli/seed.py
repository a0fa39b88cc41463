"""Seed files: accounts and keys that a service makes sure of before it opens its port.

    {"accounts": [{"name": "Alice", "email": "alice@example.com", "plan_expires_at": "2027-01-31", "keys": ["…"]}]}

Applying one twice changes nothing more. Accounts are told apart by their e-mail addresses. `plan_expires_at` is a
date as everywhere, past ones included, or null for no plan; left out, the plan stays as it is.
"""

from pathlib import Path

import msgspec

from listings.domain import api_keys, timestamps
from listings.domain.errors import Problem
from listings.domain.model import Account
from listings.service import INVALID_KEY_MESSAGE, Service, validate_email, validate_name

KEY_NAME = "seed"


class SeedAccount(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One account of a seed file."""

    name: str
    email: str
    plan_expires_at: str | msgspec.UnsetType | None = msgspec.UNSET
    keys: tuple[str, ...] = ()

    def plan_end(self, present: int | None) -> int | None:
        """When the plan is to end, given when it ends now."""
        if self.plan_expires_at is None:
            return None
        return present if self.plan_expires_at is msgspec.UNSET else timestamps.parse_timestamp(self.plan_expires_at)


class Seed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A seed file."""

    accounts: tuple[SeedAccount, ...]


def read(path: Path) -> Seed:
    """The checked content of a seed file. Raises Problem("invalid_setting")."""
    try:
        seed = msgspec.json.decode(path.read_bytes(), type=Seed)
        _check(seed)
    except (OSError, ValueError, Problem) as error:
        raise Problem("invalid_setting", f"The seed file {path} can't be used: {error}") from None
    return seed


async def apply(service: Service, seed: Seed) -> None:
    """Make sure of every account and key. Raises Problem, before anything is written, for another account's key."""
    for wanted in seed.accounts:
        for secret in wanted.keys:
            await _require_free(service, wanted, secret)
    for wanted in seed.accounts:
        account = await ensure_account(service, wanted)
        for secret in wanted.keys:
            if await service.find_key(secret) is None:
                await service.add_key(account, KEY_NAME, secret)


async def ensure_account(service: Service, wanted: SeedAccount) -> Account:
    """The account with the name and the plan that are wanted."""
    account = await _find(service, wanted.email)
    if account is None:
        return await service.add_account(wanted.name, wanted.email, wanted.plan_end(None))
    if account.name != wanted.name:
        account = await service.rename_account(account.email, wanted.name)
    end = wanted.plan_end(account.plan_expires_at)
    return account if end == account.plan_expires_at else await service.set_plan(account.email, end)


async def _find(service: Service, email: str) -> Account | None:
    try:
        return await service.find_account(email)
    except Problem as problem:
        if problem.code != "account_not_found":
            raise
        return None


async def _require_free(service: Service, wanted: SeedAccount, secret: str) -> None:
    present = await service.find_key(secret)
    account = await _find(service, wanted.email)
    if present is not None and (account is None or present.account_id != account.id):
        raise Problem(
            "key_taken", f"The seed's key {api_keys.mask(secret)} belongs to another account than {wanted.email}"
        )


def _check(seed: Seed) -> None:
    """Raises ValueError or Problem for what msgspec's types don't tell."""
    emails = [validate_email(wanted.email) for wanted in seed.accounts]
    secrets = [secret for wanted in seed.accounts for secret in wanted.keys]
    if len(set(emails)) < len(emails):
        raise ValueError("an e-mail address stands in it twice")
    if len(set(secrets)) < len(secrets):
        raise ValueError("a key stands in it twice")
    for wanted in seed.accounts:
        validate_name(wanted.name)
        wanted.plan_end(None)
    for number, secret in enumerate(secrets, 1):
        if not api_keys.is_well_formed(secret):
            raise ValueError(f"its key number {number} is no key. {INVALID_KEY_MESSAGE}")
