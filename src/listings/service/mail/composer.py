"""Compose the emails that a use case queues in its own transaction."""

import secrets
from collections.abc import Callable

import msgspec

from listings.domain.audience import ListingReport
from listings.domain.mail import MailKind, NewMail
from listings.domain.model import Account


class MailComposer:
    """Composes emails if mail is on. The methods return None if it is off."""

    def __init__(self, clock: Callable[[], float], *, is_on: bool, operator: str) -> None:
        """`operator` is the operator's address, or empty if there is none."""
        self.is_on = is_on
        self._operator = operator
        self._clock = clock

    def compose(self, kind: MailKind, account: Account, recipient: str = "", **detail: str) -> NewMail | None:
        """Return an email to the owner of an account, by default at the account's address."""
        return self._build(kind, recipient or account.email, account.id, detail)

    def compose_to_address(self, kind: MailKind, address: str) -> NewMail | None:
        """Return an email to an address. The account with this address is looked up when the email is sent."""
        return self._build(kind, address, None, {})

    def compose_plan_request(self, account: Account) -> NewMail | None:
        """Return the mail that asks the operator for an account's plan, or None if the operator has no address."""
        return self._build("plan_request", self._operator, account.id, {}) if self._operator else None

    @property
    def has_operator(self) -> bool:
        """Whether mail reaches the operator."""
        return self.is_on and bool(self._operator)

    def compose_listing_report(self, report: ListingReport, reason: str) -> NewMail | None:
        """Return the mail that tells the operator about a listing, or None if the operator has no address."""
        detail = {"id": report.id, "listing": str(report.listing_id), "reason": reason, "text": report.text}
        return self._build("listing_report", self._operator, report.account_id, detail) if self._operator else None

    def compose_plan_started(self, account: Account, amount: str) -> NewMail | None:
        """Return the email about a plan that was started or extended, or None for a test account.

        `amount` is such as "3 months, 147 NZD", or empty.
        """
        if account.test_of is not None:
            return None
        return self.compose("plan_started", account, plan_expires_at=str(account.plan_expires_at), amount=amount)

    def _build(self, kind: MailKind, recipient: str, account_id: int | None, detail: dict[str, str]) -> NewMail | None:
        if not self.is_on:
            return None
        encoded = msgspec.json.encode(detail).decode()
        return NewMail(secrets.token_hex(16), kind, recipient, account_id, encoded, int(self._clock()))
