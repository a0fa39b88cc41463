"""Payments for the Business plan."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from listings.domain.accounts import PlanTerms
from listings.domain.errors import Problem, Unavailable
from listings.domain.history import Payment
from listings.domain.model import Account
from listings.service.accounts import compute_plan_end
from listings.service.mail.composer import MailComposer
from listings.service.payments.provider import MAX_MONTHS, PaymentProvider
from listings.store.store import Store

_MAX_LISTED = 100

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Payments:
    """Starts checkouts, and extends plans when they are paid."""

    _store: Store
    _provider: PaymentProvider
    _clock: Callable[[], float]
    _composer: MailComposer
    _plan: PlanTerms

    @property
    def provider_name(self) -> str:
        return self._provider.name

    async def start_checkout(self, account: Account, months: int, return_url: str) -> str:
        """Start a payment for 1 to 24 months and return the URL of its page.

        Raises Problem: invalid_request (also if the plan would end after the year 9999), payment_refused. Raises
        Unavailable.
        """
        if not 1 <= months <= MAX_MONTHS:
            raise Problem("invalid_request", f"A plan can be extended by 1 to {MAX_MONTHS} months, got {months}")
        compute_plan_end(account, months, self._clock())
        return await self._provider.start_checkout(account, months, return_url)

    async def list_invoiced(self, account: Account) -> list[tuple[Payment, int]]:
        """Return the account's latest payments that have invoices, each with the Unix time of its receipt."""
        found = await self._store.list_payments(account.id, _MAX_LISTED)
        return [one for one in found if one[0].invoice and one[0].provider == self._provider.name]

    async def find_invoice(self, account: Account, payment_id: str) -> str:
        """Return the URL of the invoice of a payment. Raises Problem("path_not_found"), Unavailable."""
        for payment, _ in await self.list_invoiced(account):
            if payment.payment_id == payment_id:
                return await self._provider.find_invoice(payment.invoice)
        raise Problem("path_not_found", "There is no such invoice")

    async def receive(self, headers: Mapping[str, str], read_body: Callable[[], Awaitable[bytes]]) -> None:
        """Extend the plan that an event reports as paid, once per payment.

        The plan of a disabled account is extended too, but the payment is logged as an error, so that it is refunded. A
        payment with which the plan would end after the year 9999 is logged as well, and extends nothing.

        Raises Problem("payment_refused"), or Unavailable.
        """
        self._provider.check_headers(headers)
        payment = self._provider.handle_event(headers, await read_body())
        if payment is None:
            return
        now, amount = self._clock(), f"Paid: {self._plan.describe(payment.months)}"
        try:
            added = await self._store.add_payment(
                payment,
                lambda found: compute_plan_end(found, payment.months, now),
                int(now),
                lambda account: self._composer.compose_plan_started(account, amount),
            )
        except Unavailable:
            raise
        except Problem as problem:  # of `compute_plan_end`
            _log.error("Payment %s can't extend account %d: refund it", payment.payment_id, payment.account_id)
            raise Problem("payment_refused", problem.message) from None
        if added is None:
            _log.error("Payment %s is for the unknown account %d", payment.payment_id, payment.account_id)
            raise Problem("payment_refused", "The payment is for an unknown account")
        if not added.is_new:
            return
        account = added.account
        if account.disabled_at is not None:
            _log.error("Payment %s is for the disabled account %d: refund it", payment.payment_id, account.id)
            return
        _log.info("Received payment %s for account %d", payment.payment_id, account.id)
