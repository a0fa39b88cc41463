"""The terms of the Business plan, and checks for disabled and erased accounts."""

import re
import secrets
from typing import NamedTuple

from listings.domain.errors import Problem
from listings.domain.model import Account

ENDING_DAYS = 14  # days in which the end of a plan is "soon"
PLAN_ENDED = "Your Business plan ended on {}. Active listings stay visible, but your API keys no longer work"
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


DEFAULT_PLAN = PlanTerms()


def build_erased_email(account_id: int) -> str:
    """Return a unique placeholder for the email of an erased account."""
    return f"erased-{account_id}@{secrets.token_hex(8)}.invalid"


def is_erased_email(email: str) -> bool:
    """Return whether an email in lower case is a placeholder of an erased account."""
    return _ERASED_EMAIL.fullmatch(email) is not None


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
