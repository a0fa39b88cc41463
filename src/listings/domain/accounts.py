"""The terms of the Business plan, and checks for disabled and erased accounts."""

import re
import secrets
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

import msgspec

from listings.domain.errors import Problem
from listings.domain.mail import NewMail
from listings.domain.model import Account, ApiKey, KeyAccess

ENDING_DAYS = 14  # days in which the end of a plan is "soon"
PLAN_ENDED = "Your Business plan ended on {}. Active listings stay visible, but your API keys no longer work"
_TEST_EMAIL = re.compile(r"test-of-[0-9]+@[0-9a-f]{16}\.invalid")
_ERASED_EMAIL = re.compile(r"erased-[0-9]+@[0-9a-f]{16}\.invalid")


class PlanTerms(NamedTuple):
    """The price of the Business plan, and where sellers renew it.

    `console_url` has no slash at the end. It is a path if the public URL is unknown, and empty without a console.
    """

    monthly_cents: int = 4_900
    currency: str = "nzd"  # in lower case
    console_url: str = "/console"

    def format_price(self, months: int = 1) -> str:
        """Return the price of some months, such as "49 NZD" or "49.50 NZD"."""
        cents = self.monthly_cents * months
        amount = f"{cents / 100:,.2f}" if cents % 100 else f"{cents // 100:,}"
        return f"{amount} {self.currency.upper()}"

    def describe(self, months: int) -> str:
        """Return a text such as "3 months, 147 NZD"."""
        return f"{months} {'month' if months == 1 else 'months'}, {self.format_price(months)}"


DEFAULT_PLAN = PlanTerms()


def build_erased_email(account_id: int) -> str:
    """Return a unique placeholder for the email of an erased account."""
    return f"erased-{account_id}@{secrets.token_hex(8)}.invalid"


def build_test_email(live_id: int) -> str:
    """Return a unique placeholder for the email of the test account of a live account."""
    return f"test-of-{live_id}@{secrets.token_hex(8)}.invalid"


def is_erased_email(email: str) -> bool:
    """Return whether an email in lower case is a placeholder of an erased account."""
    return _ERASED_EMAIL.fullmatch(email) is not None


def is_test_email(email: str) -> bool:
    """Return whether an email in lower case is a placeholder of a test account."""
    return _TEST_EMAIL.fullmatch(email) is not None


def is_erased(account: Account) -> bool:
    """Return whether the personal data of an account was erased, which is permanent."""
    return account.disabled_at is not None and is_erased_email(account.email)


def require_not_erased(account: Account) -> None:
    """Raise Problem("account_disabled") if the account is erased."""
    if is_erased(account):
        raise Problem("account_disabled", f"Account {account.id} is erased")


def require_enabled(account: Account) -> None:
    """Raise Problem("account_disabled") if the account is disabled, or was closed by its owner."""
    if account.disabled_at is not None:
        raise Problem("account_disabled", "This account is disabled")


AccountChange: TypeAlias = Mapping[str, str | int | None]
"""New values for fields of an account, such as `name`. Contains only the fields to change."""


class NewKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key to be stored, without its secret. Times are Unix times in seconds."""

    account_id: int
    name: str
    digest: bytes
    hint: str
    created_at: int
    expires_at: int | None = None
    access: KeyAccess = "write"


class Rotation(NamedTuple):
    """The key that replaces another one, the Unix time at which the old key expires, and an email about it."""

    new: NewKey
    old_expires_at: int
    mail: NewMail | None = None


class PlanRequestState(NamedTuple):
    """When a seller requested the plan, and when and why the operator declined it. The times are Unix times."""

    requested_at: int
    declined_at: int | None = None  # None: the request is open
    reason: str = ""


class PlanRequest(NamedTuple):
    """A seller's request for the Business plan. `requested_at` is a Unix time in seconds."""

    account: Account
    requested_at: int


DecideRotation: TypeAlias = Callable[[ApiKey, Account, int | None], Rotation]
"""Receives a key, its account, and the id of the key that already replaced it (None if none is known)."""
