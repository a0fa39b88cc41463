"""Payments by Stripe's Checkout: the seller pays on Stripe's page, and Stripe tells of it in a signed event."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import stripe

from listings.domain.errors import Problem, Unavailable
from listings.domain.model import Account
from listings.service.payments.manual import MONTHLY_CENTS, MOST_MONTHS, NextStep, PaidEvent

_log = logging.getLogger(__name__)

_TOLERANCE = 300  # seconds that an event may be old
_ANSWER_SECONDS = 10
_LARGEST_ID = 2**63 - 1
_NO_EVENT = (ValueError, TypeError, AttributeError, RecursionError, msgspec.MsgspecError)  # whatever JSON it is
_PAID = {"checkout.session.completed", "checkout.session.async_payment_succeeded"}


class StripeAccount(NamedTuple):
    """Whose account with Stripe it is, and in what money it sells; `address` is of another server than Stripe's."""

    secret_key: str
    webhook_secret: str
    currency: str
    address: str = ""


class StripePayments:
    """`listings.service.payments.manual.PaymentProvider` by Stripe's own library."""

    name = "stripe"

    def __init__(self, account: StripeAccount) -> None:
        """Asks nobody anything yet."""
        self._account = account
        self._client = stripe.StripeClient(
            account.secret_key,
            max_network_retries=1,
            http_client=stripe.RequestsClient(timeout=_ANSWER_SECONDS),
            base_addresses={"api": account.address} if account.address else {},
        )

    async def start_checkout(self, account: Account, months: int, return_address: str) -> NextStep:
        """A page of Stripe's, which learns the account's number and e-mail address."""
        parameters = self._parameters(account, months, return_address)
        try:
            session = await asyncio.to_thread(self._client.v1.checkout.sessions.create, parameters)
        except stripe.StripeError as error:
            _log.warning("Stripe has not begun a checkout: %s", type(error).__name__)
            raise Unavailable("The payment can't be begun at the moment: try again in a minute") from error
        address = getattr(session, "url", None)  # the library's objects lack what was not sent
        if not address:
            raise Unavailable("The payment can't be begun at the moment: try again in a minute")
        return NextStep(address=address)

    def handle_event(self, headers: Mapping[str, str], body: bytes) -> PaidEvent | None:
        """An event whose signature is good and at most five minutes old."""
        signature = headers.get("stripe-signature")
        try:
            self._client.construct_event(body, signature, self._account.webhook_secret, _TOLERANCE)
            event = msgspec.json.decode(body, type=_Event)
        except (*_NO_EVENT, stripe.SignatureVerificationError) as error:
            _log.warning("An event that is not Stripe's was refused: %s", type(error).__name__)
            raise Problem("payment_refused", "The event is not signed by Stripe, or is too old") from error
        if event.type not in _PAID or event.data.object.payment_status != "paid":
            return None
        return self._paid(event.data.object)

    def _parameters(self, account: Account, months: int, return_address: str) -> Any:  # noqa: ANN401 - the library's
        product = {"name": "Listings Business plan, one month"}
        price = {"currency": self._account.currency, "unit_amount": MONTHLY_CENTS, "product_data": product}
        return {
            "mode": "payment",
            "line_items": [{"quantity": months, "price_data": price}],
            "client_reference_id": str(account.id),
            "metadata": {"months": str(months)},
            "customer_email": account.email,
            "adaptive_pricing": {"enabled": False},  # what is paid is what was asked for
            "success_url": return_address,
            "cancel_url": return_address,
        }

    def _paid(self, checkout: "_Checkout") -> PaidEvent:
        """Raises Problem("payment_refused") unless it is a checkout of ours, paid in full."""
        account_id = _number(checkout.client_reference_id, _LARGEST_ID)
        months = _number((checkout.metadata or {}).get("months"), MOST_MONTHS)
        expected = (self._account.currency, MONTHLY_CENTS * months)
        if not (account_id and months) or (checkout.currency, checkout.amount_total) != expected:
            _log.error("Checkout %s is paid, but is none of ours or of another amount", checkout.id)
            raise Problem("payment_refused", "The payment is not for a plan, or is of another amount")
        return PaidEvent(checkout.id, account_id, months)


class _Checkout(msgspec.Struct):
    """What counts of a checkout; of any other object an event can be about, all is missing."""

    id: str = ""
    payment_status: str | None = None
    client_reference_id: str | None = None
    metadata: dict[str, str] | None = None
    currency: str | None = None
    amount_total: int | None = None


class _Data(msgspec.Struct):
    object: _Checkout


class _Event(msgspec.Struct):
    type: str
    data: _Data


def _number(text: object, most: int) -> int:
    """The whole number from 1 that a text is; 0 when it is none."""
    if not isinstance(text, str) or not (text.isascii() and text.isdigit()) or len(text) > len(str(most)):
        return 0
    return int(text) if int(text) <= most else 0
