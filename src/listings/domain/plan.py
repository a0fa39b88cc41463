"""The terms of the Business plan."""

from typing import NamedTuple


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
