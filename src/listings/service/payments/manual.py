"""The interface of payment providers, manual payments, and the use cases of payments."""

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from listings.contract.history import Payment
from listings.contract.store import Store
from listings.domain.errors import Problem
from listings.domain.model import Account
from listings.service.accounts import add_months

_log = logging.getLogger(__name__)

MONTHLY_CENTS = 4_900
MAX_MONTHS = 24


class NextStep(NamedTuple):
    """The next step of a payment: open a URL, or follow an instruction. One of the two is empty."""

    url: str = ""
    text: str = ""


class PaidEvent(NamedTuple):
    """A confirmed payment for a number of months. A provider may report the same `payment_id` several times."""

    payment_id: str
    account_id: int
    months: int


class PaymentProvider(Protocol):
    """A service that takes payments from sellers."""

    @property
    def name(self) -> str:
        """The name that is stored with its payments."""

    async def start_checkout(self, account: Account, months: int, return_url: str) -> NextStep:
        """Start a payment for a number of months. The seller returns to `return_url`. Raises Unavailable."""

    def handle_event(self, headers: Mapping[str, str], body: bytes) -> PaidEvent | None:
        """Parse an event of the provider. Return None if it does not report a payment.

        The names of `headers` are in lower case. Raises Problem("payment_refused") if the event is not from the
        provider, is too old, or is not for a plan.
        """


class ManualPayments:
    """Payments that the operator takes. The operator extends the plan with a command."""

    name = "manual"

    async def start_checkout(self, account: Account, months: int, return_url: str) -> NextStep:  # noqa: ARG002 - no page to return from
        command = f"listings account plan {account.id} --months {months}"
        return NextStep(text=f"Ask the operator to take the payment and extend the plan with `{command}`.")

    def handle_event(self, headers: Mapping[str, str], body: bytes) -> PaidEvent | None:  # noqa: ARG002 - no event is accepted
        raise Problem("payment_refused", "This service takes no payments")


class Payments:
    """The use cases of payments."""

    store: Store
    clock: Callable[[], float]
    payments: PaymentProvider

    async def start_checkout(self, account: Account, months: int, return_url: str) -> NextStep:
        """Start a payment for 1 to 24 months. Raises Problem("invalid_request"), Unavailable."""
        if not 1 <= months <= MAX_MONTHS:
            raise Problem("invalid_request", f"A plan can be extended by 1 to {MAX_MONTHS} months, got {months}")
        return await self.payments.start_checkout(account, months, return_url)

    async def receive_payment(self, headers: Mapping[str, str], body: bytes) -> None:
        """Extend the plan that an event reports as paid, once per payment. Raises Problem("payment_refused")."""
        paid = self.payments.handle_event(headers, body)
        if paid is None:
            return
        now = self.clock()

        def decide(account: Account) -> int:
            return add_months(max(now, account.plan_expires_at or 0), paid.months)

        payment = Payment(self.payments.name, paid.payment_id, paid.account_id, paid.months)
        account = await self.store.add_payment(payment, decide, int(now))
        if account is None:
            _log.error("Payment %s is for the unknown account %d", paid.payment_id, paid.account_id)
            raise Problem("payment_refused", "The payment is for an unknown account")
        _log.info("Received payment %s for account %d", paid.payment_id, account.id)
