"""Paying for a plan: what a provider of payments does, and the one that is there without any."""

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from listings.contract.history import Payment
from listings.contract.store import Store
from listings.domain.errors import Problem
from listings.domain.model import Account
from listings.service.accounts import months_later

_log = logging.getLogger(__name__)

MONTHLY_CENTS = 4_900
MOST_MONTHS = 24


class NextStep(NamedTuple):
    """What a seller does next to pay: go to an address, or do as a text says; the other one is empty."""

    address: str = ""
    text: str = ""


class PaidEvent(NamedTuple):
    """That an account has paid for months. `payment_id` is the payment's own: a provider may tell of it many times."""

    payment_id: str
    account_id: int
    months: int


class PaymentProvider(Protocol):
    """Somebody who takes the sellers' money."""

    @property
    def name(self) -> str:
        """By which its payments are told from another's."""

    async def start_checkout(self, account: Account, months: int, return_address: str) -> NextStep:
        """Let a seller pay for months, and come back to an address of ours. Raises Unavailable."""

    def handle_event(self, headers: Mapping[str, str], body: bytes) -> PaidEvent | None:
        """What the provider tells of a payment; None when it is about something else.

        `headers` have names in lower case. Raises Problem("payment_refused") for what isn't the provider's, is too old,
        or is not about what was sold.
        """


class ManualPayments:
    """The operator takes the money, and extends plans by hand."""

    name = "manual"

    async def start_checkout(self, account: Account, months: int, return_address: str) -> NextStep:  # noqa: ARG002 - there is no other page to come back from
        """How that is done."""
        command = f"listings account plan {account.id} --months {months}"
        return NextStep(text=f"Ask the operator, who takes the payment and extends the plan with `{command}`.")

    def handle_event(self, headers: Mapping[str, str], body: bytes) -> PaidEvent | None:  # noqa: ARG002 - nobody is believed
        """Nobody tells of payments."""
        raise Problem("payment_refused", "Payments are not taken here")


class Payments:
    """The use cases of payments, over a store, a clock and a provider."""

    store: Store
    clock: Callable[[], float]
    payments: PaymentProvider

    async def start_checkout(self, account: Account, months: int, return_address: str) -> NextStep:
        """Let a seller pay for 1 to 24 months. Raises Problem("invalid_request"), Unavailable."""
        if not 1 <= months <= MOST_MONTHS:
            raise Problem("invalid_request", f"A plan is extended by 1 to {MOST_MONTHS} months, got {months}")
        return await self.payments.start_checkout(account, months, return_address)

    async def receive_payment(self, headers: Mapping[str, str], body: bytes) -> None:
        """Extend a plan as a provider's event tells, once for each payment. Raises Problem("payment_refused")."""
        paid = self.payments.handle_event(headers, body)
        if paid is None:
            return
        now = self.clock()

        def decide(account: Account) -> int:
            return months_later(max(now, account.plan_expires_at or 0), paid.months)

        payment = Payment(self.payments.name, paid.payment_id, paid.account_id, paid.months)
        account = await self.store.add_payment(payment, decide, int(now))
        if account is None:
            _log.error("Payment %s is for account %d, which is not there", paid.payment_id, paid.account_id)
            raise Problem("payment_refused", "The payment is for an account that is not there")
        _log.info("Payment %s for account %d is received", paid.payment_id, account.id)
