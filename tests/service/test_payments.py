"""Manual and Stripe payments. The tests sign their events as Stripe does, and connect only to this machine."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs

import pytest
from stripe import WebhookSignature

from listings.domain import timestamps
from listings.domain.accounts import DEFAULT_PLAN, PlanTerms
from listings.domain.errors import Problem, Unavailable
from listings.domain.history import Payment
from listings.service.payments.stripe import StripeAccount, StripePayments
from tests.harness import START, TIMEOUT, Harness, Person, unused_port

SECRET = "whsec_of_the_tests"
RETURN_URL = "https://market.example/console/plan"


def build_metadata(months: int, monthly: int = 4_900) -> dict[str, str]:
    return {"months": str(months), "amount": str(months * monthly), "currency": "nzd"}


class Shop:
    """A harness that takes Stripe payments, and an account that pays."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.read_bodies = 0
        self.alice: Person = harness.person("alice", plan_ends_in=-1)

    def build_event(self, *, kind: str = "checkout.session.completed", **changes: Any) -> bytes:
        checkout = {
            "id": "cs_1",
            "object": "checkout.session",
            "payment_status": "paid",
            "client_reference_id": str(self.alice.account.id),
            "metadata": build_metadata(2),
            "currency": "nzd",
            "amount_total": 9_800,
        }
        event = {"id": "evt_1", "object": "event", "type": kind, "data": {"object": checkout | changes}}
        return json.dumps(event).encode()

    def receive(self, body: bytes, **headers: str) -> None:
        async def read() -> bytes:
            self.read_bodies += 1
            return body

        self.harness.run(self.harness.services.payments.receive(headers or sign(body), read))

    def reject(self, body: bytes, **headers: str) -> str:
        with pytest.raises(Problem) as caught:
            self.receive(body, **headers)
        assert caught.value.code == "payment_refused"
        return caught.value.message

    @property
    def paid_until(self) -> int:
        account = self.harness.run(self.harness.services.accounts.find(str(self.alice.account.id)))
        assert account.plan_expires_at is not None
        return account.plan_expires_at


def sign(body: bytes, secret: str = SECRET, timestamp: float | None = None) -> dict[str, str]:
    seconds = int(time.time() if timestamp is None else timestamp)
    return {"stripe-signature": WebhookSignature.generate_signature_header(body.decode(), secret, seconds)}


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    settings = {"payment_provider": "stripe", "stripe_secret_key": "sk_test", "stripe_webhook_secret": SECRET}
    with Harness(tmp_path, **settings) as harness:
        yield Shop(harness)


def test_a_paid_checkout_extends_an_expired_plan_from_now(shop: Shop) -> None:
    shop.receive(shop.build_event())
    assert shop.paid_until == timestamps.add_months(shop.harness.clock.now, 2)
    status = shop.harness.fetch("GET", "/api/v1/listings", key=shop.alice.key).status
    assert status == 200


def test_an_active_plan_is_extended_from_its_end(shop: Shop) -> None:
    shop.receive(shop.build_event())
    first = shop.paid_until
    shop.receive(shop.build_event(id="cs_2", metadata=build_metadata(1), amount_total=4_900))
    assert shop.paid_until == timestamps.add_months(first, 1)


def test_a_checkout_that_was_started_at_another_price_is_accepted(shop: Shop) -> None:
    shop.receive(shop.build_event(metadata=build_metadata(2, monthly=3_900), amount_total=7_800))
    assert shop.paid_until == timestamps.add_months(shop.harness.clock.now, 2)


def test_a_repeated_event_changes_nothing(shop: Shop) -> None:
    shop.receive(shop.build_event())
    end = shop.paid_until
    shop.harness.clock.advance(3600)
    shop.receive(shop.build_event())
    shop.receive(shop.build_event(kind="checkout.session.async_payment_succeeded"))
    assert shop.paid_until == end


def test_a_tampered_event_is_rejected(shop: Shop) -> None:
    body = shop.build_event()
    before = shop.paid_until
    header = sign(body)
    assert "not signed" in shop.reject(body.replace(b'"2"', b'"9"'), **header)
    assert "not signed" in shop.reject(body, **sign(body, "whsec_other"))
    assert (shop.read_bodies, shop.paid_until) == (2, before)


SIGNATURE = "v1=" + "0" * 64


@pytest.mark.parametrize(
    "value", ["", "t=1", SIGNATURE, "t=1,v1=00", f"t=x,{SIGNATURE}", f"t=,{SIGNATURE}", f"t=1,{SIGNATURE}0", "nonsense"]
)
def test_an_event_without_a_valid_header_is_rejected_before_it_is_read(shop: Shop, value: str) -> None:
    before = shop.paid_until
    assert "not signed" in shop.reject(shop.build_event(), **{"stripe-signature": value})
    assert "not signed" in shop.reject(shop.build_event(), other="header")
    assert (shop.read_bodies, shop.paid_until) == (0, before)


def test_an_event_may_have_other_signatures_too(shop: Shop) -> None:
    body, before = shop.build_event(), shop.paid_until
    shop.receive(body, **{"stripe-signature": f"v0=x,{SIGNATURE},{sign(body)['stripe-signature']}"})
    assert shop.paid_until > before


def test_an_old_event_is_rejected(shop: Shop) -> None:
    body = shop.build_event()
    assert "too old" in shop.reject(body, **sign(body, timestamp=time.time() - 400))
    shop.receive(body, **sign(body, timestamp=time.time() - 200))


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"type": 5}', b"\xff", b'{"type":"checkout.session.completed"}'])
def test_a_signed_body_that_is_not_an_event_is_rejected(shop: Shop, body: bytes) -> None:
    text = body.decode("utf-8", "replace")
    header = WebhookSignature.generate_signature_header(text, SECRET, int(time.time()))
    assert "not signed" not in shop.reject(body, **{"stripe-signature": header})


@pytest.mark.parametrize(
    "changes",
    [
        {"amount_total": 9_799},
        {"amount_total": None},
        {"currency": "usd"},
        {"metadata": build_metadata(3)},
        {"metadata": build_metadata(0), "amount_total": 0},
        {"metadata": build_metadata(25), "amount_total": 25 * 4_900},
        {"metadata": build_metadata(2) | {"months": "x"}},
        {"metadata": build_metadata(2) | {"amount": "x"}},
        {"metadata": {"months": "2"}},
        {"metadata": {}},
        {"metadata": None},
        {"client_reference_id": None},
        {"client_reference_id": "0"},
        {"client_reference_id": "-1"},
        {"client_reference_id": "9" * 30},
    ],
    ids=str,
)
def test_a_checkout_not_for_a_plan_is_rejected(shop: Shop, changes: dict[str, Any]) -> None:
    before = shop.paid_until
    assert "not for a plan" in shop.reject(shop.build_event(**changes))
    assert shop.paid_until == before


def test_a_payment_for_an_unknown_account_is_rejected(shop: Shop) -> None:
    assert "unknown account" in shop.reject(shop.build_event(client_reference_id="999"))


def test_a_payment_for_a_disabled_account_is_logged(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    shop.receive(shop.build_event(id="cs_0"))
    shop.harness.run(shop.harness.services.accounts.disable(shop.alice.account.email))
    shop.receive(shop.build_event())
    shop.receive(shop.build_event(id="cs_0"))  # again
    assert caplog.messages == ["Payment cs_1 is for the disabled account 1: refund it"]


def test_a_plan_cannot_be_extended_beyond_the_year_9999(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    services, email = shop.harness.services, shop.alice.account.email
    account = shop.harness.run(services.accounts.set_plan(email, timestamps.parse_timestamp("9999-12-31")))
    with pytest.raises(Problem, match="after the year 9999"):
        shop.harness.run(services.payments.start_checkout(account, 1, RETURN_URL))
    assert "after the year 9999" in shop.reject(shop.build_event())
    assert caplog.messages == ["Payment cs_1 can't extend account 1: refund it"]


def test_a_repeated_event_is_not_to_be_refunded(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    services, email = shop.harness.services, shop.alice.account.email
    shop.harness.run(services.accounts.set_plan(email, timestamps.parse_timestamp("9999-09-15")))
    for _ in range(2):
        shop.receive(shop.build_event())
    assert not any("refund" in message for message in caplog.messages)


def test_a_payment_during_an_outage_is_not_to_be_refunded(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    shop.harness.run(shop.harness.store.close())
    with pytest.raises(Unavailable):
        shop.receive(shop.build_event())
    assert not any("refund" in message for message in caplog.messages)
    shop.harness.run(shop.harness.store.open())


@pytest.mark.parametrize(
    ("kind", "status"),
    [("checkout.session.completed", "unpaid"), ("checkout.session.expired", "paid"), ("other", "paid")],
)
def test_other_events_change_nothing(shop: Shop, kind: str, status: str) -> None:
    before = shop.paid_until
    shop.receive(shop.build_event(kind=kind, payment_status=status))
    assert shop.paid_until == before


class FakeStripe(BaseHTTPRequestHandler):
    requests: ClassVar[list[tuple[str, dict[str, list[str]], str]]] = []
    response: ClassVar[tuple[int, dict[str, Any]]] = (200, {})
    is_released: ClassVar[threading.Event] = threading.Event()

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"] or 0)).decode()
        self.requests.append((self.path, parse_qs(body), self.headers["authorization"]))
        self.is_released.wait(TIMEOUT)
        status, content = self.response
        text = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.send_header("request-id", "req_1")
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def run_fake_stripe(
    status: int, content: dict[str, Any], plan: PlanTerms = DEFAULT_PLAN, *, hangs: bool = False
) -> Iterator[StripePayments]:
    FakeStripe.requests.clear()
    if not hangs:
        FakeStripe.is_released.set()
    FakeStripe.response = (status, content)
    with HTTPServer(("127.0.0.1", 0), FakeStripe) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield create_payments(f"http://127.0.0.1:{server.server_port}", plan)
        finally:
            FakeStripe.is_released.set()
            server.shutdown()
            thread.join()
            FakeStripe.is_released.clear()


def create_payments(url: str, plan: PlanTerms = DEFAULT_PLAN) -> StripePayments:
    return StripePayments(StripeAccount("sk_test", SECRET, plan, url))


def test_a_stripe_checkout_costs_49_dollars_a_month(harness: Harness) -> None:
    alice = harness.person("alice").account
    session = {"id": "cs_1", "object": "checkout.session", "url": "https://checkout.stripe.example/c/pay/cs_1"}
    with run_fake_stripe(200, session) as payments:
        harness.replace_services(payments=payments)
        url = harness.run(harness.services.payments.start_checkout(alice, 3, RETURN_URL))
    assert url == "https://checkout.stripe.example/c/pay/cs_1"
    ((path, form, authorization),) = FakeStripe.requests
    assert (path, authorization) == ("/v1/checkout/sessions", "Bearer sk_test")
    assert {name: values[0] for name, values in form.items()} == {
        "mode": "payment",
        "line_items[0][quantity]": "3",
        "line_items[0][price_data][currency]": "nzd",
        "line_items[0][price_data][unit_amount]": "4900",
        "line_items[0][price_data][product_data][name]": "Listings Business plan, one month",
        "client_reference_id": str(alice.id),
        "metadata[months]": "3",
        "metadata[amount]": "14700",
        "metadata[currency]": "nzd",
        "customer_email": alice.email,
        "adaptive_pricing[enabled]": "false",
        "invoice_creation[enabled]": "true",
        "success_url": RETURN_URL,
        "cancel_url": RETURN_URL,
    }


def test_a_currency_without_cents_is_charged_in_whole_units(harness: Harness) -> None:
    alice = harness.person("alice").account
    session = {"id": "cs_1", "object": "checkout.session", "url": "https://checkout.stripe.example/c/pay/cs_1"}
    with run_fake_stripe(200, session, PlanTerms(500_000, "jpy")) as payments:
        harness.run(payments.start_checkout(alice, 1, RETURN_URL))
        body: dict[str, Any] = {"id": "cs_1", "payment_status": "paid", "client_reference_id": "1"}
        body |= {"metadata": {"months": "2", "amount": "10000", "currency": "jpy"}}
        checkout = body | {"currency": "jpy", "amount_total": 10_000}
        event = json.dumps({"type": "checkout.session.completed", "data": {"object": checkout}}).encode()
        paid = payments.handle_event(sign(event), event)
    ((_, form, _),) = FakeStripe.requests
    assert form["line_items[0][price_data][unit_amount]"] == ["5000"]
    assert paid == Payment("stripe", "cs_1", 1, 2)


@pytest.mark.parametrize(("cents", "currency"), [(4_950, "jpy"), (4_900, "kwd")])
def test_a_price_that_stripe_cannot_take_is_rejected(cents: int, currency: str) -> None:
    with pytest.raises(Problem, match=currency) as caught:
        create_payments("", PlanTerms(cents, currency))
    assert caught.value.code == "invalid_setting"


def test_errors_of_stripe_are_reported_without_their_text(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    alice = harness.person("alice").account
    error = {"code": "amount_too_small", "message": "Amount must be at least 50 cents, sk_test"}
    with run_fake_stripe(400, {"error": error}) as payments, pytest.raises(Unavailable) as rejected:
        harness.run(payments.start_checkout(alice, 1, RETURN_URL))
    assert rejected.value.message.endswith("contact the operator of this service")
    assert caplog.records[-1].levelname == "ERROR"
    assert "status 400, code amount_too_small, request req_1" in caplog.messages[-1]
    assert "sk_test" not in caplog.text + rejected.value.message
    incomplete = run_fake_stripe(200, {"id": "cs_1", "object": "checkout.session"})
    with incomplete as payments, pytest.raises(Unavailable):
        harness.run(payments.start_checkout(alice, 1, RETURN_URL))
    with unused_port() as port, pytest.raises(Unavailable) as unreachable:
        harness.run(create_payments(f"http://127.0.0.1:{port}").start_checkout(alice, 1, RETURN_URL))
    assert unreachable.value.message.endswith("try again in a minute")
    assert caplog.records[-1].levelname == "WARNING"


def test_a_stripe_that_hangs_delays_no_other_thread(harness: Harness) -> None:
    alice = harness.person("alice").account

    async def run_beside_checkouts() -> None:
        checkouts = [asyncio.ensure_future(payments.start_checkout(alice, 1, RETURN_URL)) for _ in range(50)]
        while not FakeStripe.requests:  # noqa: ASYNC110 - another thread appends to it
            await asyncio.sleep(0.001)
        assert await asyncio.wait_for(asyncio.to_thread(int), TIMEOUT) == 0
        assert not any(checkout.done() for checkout in checkouts)
        FakeStripe.is_released.set()
        await asyncio.gather(*checkouts, return_exceptions=True)

    with run_fake_stripe(200, {}, hangs=True) as payments:
        harness.run(run_beside_checkouts())


@pytest.mark.parametrize("months", [0, -1, 25])
def test_a_payment_is_for_1_to_24_months(harness: Harness, months: int) -> None:
    with pytest.raises(Problem, match="1 to 24 months"):
        harness.run(harness.services.payments.start_checkout(harness.person("alice").account, months, RETURN_URL))


def test_by_default_there_is_no_checkout(harness: Harness) -> None:
    alice = harness.person("alice").account
    with pytest.raises(Problem, match="takes no payments"):
        harness.run(harness.services.payments.start_checkout(alice, 2, RETURN_URL))


@pytest.mark.decision("G50")
def test_requests_are_listed_until_they_are_answered(harness: Harness) -> None:
    services, cast = harness.services, harness.cast()
    for account in (cast.charlie.account, cast.alice.account, cast.bob.account, cast.charlie.account):
        harness.run(services.plan_requests.add(account))
        harness.clock.advance(1)
    found = harness.run(services.plan_requests.list_open())
    assert [(it.account, it.requested_at - START) for it in found] == [
        (cast.charlie.account, 0),
        (cast.alice.account, 1),
        (cast.bob.account, 2),
    ]
    harness.run(services.accounts.extend_plan(str(cast.charlie.account.id), 1))
    harness.run(services.plan_requests.decline(cast.bob.account, "Closed"))
    assert [it.account.id for it in harness.run(services.plan_requests.list_open())] == [cast.alice.account.id]
    harness.run(services.accounts.erase(str(cast.alice.account.id)))
    assert harness.run(services.plan_requests.list_open()) == []


def test_open_requests_are_logged_once_a_day(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    report = harness.services.plan_requests.report
    harness.run(report())
    assert caplog.messages == []
    harness.run(harness.services.plan_requests.add(harness.person("alice").account))
    for _ in range(71):
        harness.run(report())
        harness.clock.advance(3600)
    reports = [text for text in caplog.messages if "Open requests" in text]
    assert len(reports) == 2
    assert "plan: 1, the oldest since 2026-09-21 14:13:20" in reports[0]


def test_without_a_provider_events_are_rejected(harness: Harness) -> None:
    with pytest.raises(Problem, match="takes no payments"):
        harness.run(harness.services.payments.receive({}, lambda: pytest.fail("the event was read")))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "needs LISTINGS_STRIPE_SECRET_KEY: set it"),
        ({"stripe_secret_key": "sk_test"}, "needs LISTINGS_STRIPE_WEBHOOK_SECRET: set it"),
    ],
)
def test_stripe_needs_its_secrets(tmp_path: Path, settings: dict[str, str], message: str) -> None:
    with pytest.raises(Problem, match=message) as caught, Harness(tmp_path, payment_provider="stripe", **settings):
        pytest.fail("the service started")
    assert caught.value.code == "invalid_setting"


def test_the_invoice_of_a_payment_is_found_at_stripe(shop: Shop) -> None:
    shop.receive(shop.build_event(invoice="in_1"))
    shop.receive(shop.build_event(id="cs_2"))
    payments, alice = shop.harness.services.payments, shop.alice.account
    assert [one.payment_id for one, _ in shop.harness.run(payments.list_invoiced(alice))] == ["cs_1"]
    with pytest.raises(Problem, match="There is no such invoice"):
        shop.harness.run(payments.find_invoice(shop.harness.person("bob").account, "cs_1"))
    invoice = {"id": "in_1", "object": "invoice", "hosted_invoice_url": "https://invoice.stripe.example/i/1"}
    with run_fake_stripe(200, invoice) as stripe:
        assert shop.harness.run(stripe.find_invoice("in_1")) == "https://invoice.stripe.example/i/1"
