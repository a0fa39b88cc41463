"""Payments for the Business plan."""

import logging
from collections.abc import Callable, Mapping

from listings.contract.history import HistoryStore
from listings.domain.errors import Problem, Unavailable
from listings.domain.model import Account
from listings.service.accounts import compute_plan_end
from listings.service.payments.provider import MAX_MONTHS, PaymentProvider

_log = logging.getLogger(__name__)


class Payments:
    """Starts checkouts, and extends plans when they are paid."""

    def __init__(self, store: HistoryStore, provider: PaymentProvider, clock: Callable[[], float]) -> None:
        self._store = store
        self._provider = provider
        self._clock = clock

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

    async def receive(self, headers: Mapping[str, str], body: bytes) -> None:
        """Extend the plan that an event reports as paid, once per payment.

        The plan of a disabled account is extended too, but the payment is logged as an error, so that it is refunded. A
        payment with which the plan would end after the year 9999 is logged as well, and extends nothing.

        Raises Problem("payment_refused"), or Unavailable.
        """
        payment = self._provider.handle_event(headers, body)
        if payment is None:
            return
        now = self._clock()
        try:
            added = await self._store.add_payment(
                payment, lambda found: compute_plan_end(found, payment.months, now), int(now)
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
