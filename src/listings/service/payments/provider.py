"""The interface of payment providers, and the default one."""

from collections.abc import Mapping
from typing import Protocol

from listings.domain.errors import Problem
from listings.domain.history import Payment
from listings.domain.model import Account

MAX_MONTHS = 24


class PaymentProvider(Protocol):
    """A service that takes payments from sellers."""

    @property
    def name(self) -> str:
        """The name that is stored with its payments."""

    async def start_checkout(self, account: Account, months: int, return_url: str) -> str:
        """Start a payment for a number of months and return the URL of its page.

        The seller returns to `return_url`. Raises Problem("payment_refused"), Unavailable.
        """

    async def find_invoice(self, invoice: str) -> str:
        """Return the URL of the page of an invoice. Raises Problem("payment_refused"), Unavailable."""

    def check_headers(self, headers: Mapping[str, str]) -> None:
        """Raise Problem("payment_refused") if an event can't be from the provider, whatever its body."""

    def handle_event(self, headers: Mapping[str, str], body: bytes) -> Payment | None:
        """Parse an event of the provider. Return None if it does not report a payment.

        The names of `headers` are in lower case. Raises Problem("payment_refused") if the event is not from the
        provider, is too old, or is not for a plan.
        """


class ManualPayments:
    """Payments that the operator collects. Sellers request the plan (`listings.service.payments.requests`)."""

    name = "manual"

    async def start_checkout(self, account: Account, months: int, return_url: str) -> str:  # noqa: ARG002 - no checkout
        raise _takes_no_payments()

    async def find_invoice(self, invoice: str) -> str:  # noqa: ARG002 - there are none
        raise _takes_no_payments()

    def check_headers(self, headers: Mapping[str, str]) -> None:  # noqa: ARG002 - no event is accepted
        raise _takes_no_payments()

    def handle_event(self, headers: Mapping[str, str], body: bytes) -> Payment | None:  # noqa: ARG002 - as above
        raise _takes_no_payments()


def _takes_no_payments() -> Problem:
    return Problem("payment_refused", "This service takes no payments")
