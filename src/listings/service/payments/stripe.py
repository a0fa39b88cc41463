"""Payments with Stripe Checkout. Stripe reports each payment in a signed webhook event."""

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import msgspec
import stripe

from listings.domain.accounts import PlanTerms
from listings.domain.errors import Problem, Unavailable
from listings.domain.history import Payment
from listings.domain.model import MAX_ID, Account
from listings.service.payments.provider import MAX_MONTHS

_log = logging.getLogger(__name__)

_MAX_EVENT_AGE_SECONDS = 300
_TIMESTAMP, _SIGNATURE = re.compile(r"t=[0-9]{1,20}"), re.compile(r"v1=[0-9a-f]{64}")  # in Stripe-Signature
_TIMEOUTS_SECONDS = (1.0, 3.5)  # to connect, and to respond. Two attempts take 9.5 s; a stop gives requests 10 s
_MAX_THREADS = 4
_INVALID_EVENT = (ValueError, TypeError, AttributeError, RecursionError, msgspec.MsgspecError)  # for unexpected JSON
_PERMANENT = (stripe.InvalidRequestError, stripe.AuthenticationError, stripe.PermissionError)  # a wrong setting
_PAID_EVENTS = {"checkout.session.completed", "checkout.session.async_payment_succeeded"}

# https://docs.stripe.com/currencies: Stripe counts amounts in the currency's smallest unit, mostly a hundredth
_WITHOUT_DECIMALS = "bif clp djf gnf jpy kmf krw mga pyg rwf vnd vuv xaf xof xpf"
_UNSUPPORTED = {"bhd", "isk", "jod", "kwd", "omr", "tnd", "ugx"}  # three decimals, or two that must be zero


class StripeAccount(NamedTuple):
    """The secrets of a Stripe account, and the plan that sellers buy. `url` replaces Stripe's API server in tests."""

    secret_key: str
    webhook_secret: str
    plan: PlanTerms
    url: str = ""


class StripePayments:
    """A `PaymentProvider` with Stripe's library."""

    name = "stripe"

    def __init__(self, account: StripeAccount) -> None:
        """Raises Problem("invalid_setting") for a price that Stripe can't take."""
        self._account = account
        self._monthly_units = _convert_to_units(account.plan)
        self._threads = ThreadPoolExecutor(_MAX_THREADS, "listings-stripe")  # so that a slow Stripe delays nothing else
        self._client = stripe.StripeClient(
            account.secret_key,
            max_network_retries=1,
            http_client=stripe.RequestsClient(timeout=_TIMEOUTS_SECONDS),
            base_addresses={"api": account.url} if account.url else {},
        )

    async def start_checkout(self, account: Account, months: int, return_url: str) -> str:
        """Return the URL of a Stripe page. Stripe receives the account's id and email."""
        plan = self._account.plan
        product = {"name": "Listings Business plan, one month"}
        price = {"currency": plan.currency, "unit_amount": self._monthly_units, "product_data": product}
        parameters: Any = {
            "mode": "payment",
            "line_items": [{"quantity": months, "price_data": price}],
            "client_reference_id": str(account.id),
            "metadata": {"months": str(months), "amount": str(self._monthly_units * months), "currency": plan.currency},
            "customer_email": account.email,
            "invoice_creation": {"enabled": True},
            "adaptive_pricing": {"enabled": False},  # the amount must stay the one that was requested
            "success_url": return_url,
            "cancel_url": return_url,
        }
        create = partial(self._client.v1.checkout.sessions.create, parameters)
        return await self._fetch_url(create, "url", "The payment can't be started")

    async def find_invoice(self, invoice: str) -> str:
        return await self._fetch_url(
            partial(self._client.v1.invoices.retrieve, invoice), "hosted_invoice_url", "The invoice can't be shown"
        )

    async def _fetch_url(self, fetch: Callable[[], object], name: str, failure: str) -> str:
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._threads, fetch)
        except stripe.StripeError as error:
            is_permanent = isinstance(error, _PERMANENT)
            # The error's text may contain a part of the key.
            details = (type(error).__name__, error.http_status, error.code, error.request_id)
            level = logging.ERROR if is_permanent else logging.WARNING
            _log.log(level, "A request to Stripe failed: %s, status %s, code %s, request %s", *details)
            advice = "contact the operator of this service" if is_permanent else "try again in a minute"
            raise Unavailable(f"{failure} at the moment: {advice}", for_visitors=True) from error
        url = getattr(found, name, None)  # the library's objects lack the fields that were not sent
        if not url:
            raise Unavailable(f"{failure} at the moment: try again in a minute", for_visitors=True)
        return str(url)

    def check_headers(self, headers: Mapping[str, str]) -> None:
        parts = headers.get("stripe-signature", "").split(",")
        if not any(map(_TIMESTAMP.fullmatch, parts)) or not any(map(_SIGNATURE.fullmatch, parts)):
            raise Problem("payment_refused", "The event is not signed by Stripe")

    def handle_event(self, headers: Mapping[str, str], body: bytes) -> Payment | None:
        signature = headers.get("stripe-signature")
        try:
            self._client.construct_event(body, signature, self._account.webhook_secret, _MAX_EVENT_AGE_SECONDS)
            event = msgspec.json.decode(body, type=_Event)
        except stripe.SignatureVerificationError as error:
            _log.warning("Rejected a payment event: its signature is invalid or too old (%s)", type(error).__name__)
            raise Problem("payment_refused", "The event is not signed by Stripe, or is too old") from error
        except _INVALID_EVENT as failure:
            _log.warning("Rejected a payment event that can't be read: %s", type(failure).__name__)
            raise Problem("payment_refused", "The event does not have the expected fields") from failure
        if event.type not in _PAID_EVENTS or event.data.object.payment_status != "paid":
            return None
        return self._parse_checkout(event.data.object)

    def _parse_checkout(self, checkout: "_Checkout") -> Payment:
        account_id = _parse_number(checkout.client_reference_id, MAX_ID)
        metadata = checkout.metadata or {}  # as sent with the request; the price may have changed since
        months = _parse_number(metadata.get("months"), MAX_MONTHS)
        amount = _parse_number(metadata.get("amount"), MAX_ID)
        paid = (checkout.currency, checkout.amount_total)
        if not (account_id and months) or paid != (metadata.get("currency"), amount):
            _log.error("Checkout %s is paid, but not for a plan or not with the right amount", checkout.id)
            raise Problem("payment_refused", "The payment is not for a plan, or its amount is wrong")
        return Payment(self.name, checkout.id, account_id, months, checkout.invoice or "")


class _Checkout(msgspec.Struct):
    id: str = ""  # the objects of other events lack some fields
    payment_status: str | None = None
    client_reference_id: str | None = None
    metadata: dict[str, str] | None = None
    currency: str | None = None
    amount_total: int | None = None
    invoice: str | None = None


class _Data(msgspec.Struct):
    object: _Checkout


class _Event(msgspec.Struct):
    type: str
    data: _Data


def _convert_to_units(plan: PlanTerms) -> int:
    currency = plan.currency
    if currency in _UNSUPPORTED:
        raise Problem(
            "invalid_setting",
            f"LISTINGS_STRIPE_CURRENCY can't be {currency}: choose a currency with two decimals, or with none",
        )
    if currency not in _WITHOUT_DECIMALS.split():
        return plan.monthly_cents
    if plan.monthly_cents % 100:
        raise Problem("invalid_setting", f"LISTINGS_PLAN_PRICE must be a whole number, because {currency} has no cents")
    return plan.monthly_cents // 100


def _parse_number(text: object, maximum: int) -> int:
    if not isinstance(text, str) or not (text.isascii() and text.isdigit()) or len(text) > len(str(maximum)):
        return 0  # not a positive number
    return int(text) if int(text) <= maximum else 0
