"""Payments: the manual way, and Stripe's, whose events are signed here as Stripe does; nothing leaves this machine."""

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
from listings.domain.errors import Problem, Unavailable
from listings.service.payments.stripe import StripeAccount, StripePayments
from tests.harness import Harness, Person, unused_port

SECRET = "whsec_of_the_tests"
BACK = "https://market.example/console/plan"


class Till:
    """A house that takes payments by Stripe, and an account that pays."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.alice: Person = harness.person("alice", plan_ends_in=-1)

    def event(self, *, kind: str = "checkout.session.completed", **changes: Any) -> bytes:
        checkout = {
            "id": "cs_1",
            "object": "checkout.session",
            "payment_status": "paid",
            "client_reference_id": str(self.alice.account.id),
            "metadata": {"months": "2"},
            "currency": "nzd",
            "amount_total": 9_800,
        }
        event = {"id": "evt_1", "object": "event", "type": kind, "data": {"object": checkout | changes}}
        return json.dumps(event).encode()

    def receive(self, body: bytes, **headers: str) -> None:
        self.harness.run(self.harness.service.receive_payment(headers or signed(body), body))

    def refusal(self, body: bytes, **headers: str) -> str:
        with pytest.raises(Problem) as caught:
            self.receive(body, **headers)
        assert caught.value.code == "payment_refused"
        return caught.value.message

    @property
    def paid_until(self) -> int:
        account = self.harness.run(self.harness.service.find_account(str(self.alice.account.id)))
        assert account.plan_expires_at is not None
        return account.plan_expires_at


def signed(body: bytes, secret: str = SECRET, moment: float | None = None) -> dict[str, str]:
    at = int(time.time() if moment is None else moment)
    return {"stripe-signature": WebhookSignature.generate_signature_header(body.decode(), secret, at)}


@pytest.fixture
def till(tmp_path: Path) -> Iterator[Till]:
    settings = {"payment_provider": "stripe", "stripe_secret_key": "sk_test", "stripe_webhook_secret": SECRET}
    with Harness(tmp_path, **settings) as harness:
        yield Till(harness)


def test_a_paid_checkout_extends_the_plan_from_now_by_its_months(till: Till) -> None:
    till.receive(till.event())
    assert till.paid_until == timestamps.add_months(till.harness.clock.now, 2)
    status = till.harness.fetch("GET", "/api/v1/listings", key=till.alice.key).status
    assert status == 200


def test_a_plan_that_holds_is_extended_from_its_end(till: Till) -> None:
    till.receive(till.event())
    first = till.paid_until
    till.receive(till.event(id="cs_2", metadata={"months": "1"}, amount_total=4_900))
    assert till.paid_until == timestamps.add_months(first, 1)


def test_an_event_that_comes_again_changes_nothing(till: Till) -> None:
    till.receive(till.event())
    end = till.paid_until
    till.harness.clock.advance(3600)
    till.receive(till.event())
    till.receive(till.event(kind="checkout.session.async_payment_succeeded"))
    assert till.paid_until == end


def test_a_tampered_event_is_refused(till: Till) -> None:
    body = till.event()
    before = till.paid_until
    header = signed(body)
    assert "not signed" in till.refusal(body.replace(b'"2"', b'"9"'), **header)
    assert "not signed" in till.refusal(body, **signed(body, "whsec_other"))
    for value in ("", "t=1", "v1=00", f"t={int(time.time())},v1=00", "nonsense"):
        assert "not signed" in till.refusal(body, **{"stripe-signature": value})
    assert "not signed" in till.refusal(body, other="header")
    assert till.paid_until == before


def test_an_old_event_is_refused(till: Till) -> None:
    body = till.event()
    assert "too old" in till.refusal(body, **signed(body, moment=time.time() - 400))
    till.receive(body, **signed(body, moment=time.time() - 200))


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"type": 5}', b"\xff", b'{"type":"checkout.session.completed"}'])
def test_what_is_signed_and_still_no_event_is_refused(till: Till, body: bytes) -> None:
    text = body.decode("utf-8", "replace")
    header = WebhookSignature.generate_signature_header(text, SECRET, int(time.time()))
    till.refusal(body, **{"stripe-signature": header})


@pytest.mark.parametrize(
    "changes",
    [
        {"amount_total": 9_799},
        {"amount_total": None},
        {"currency": "usd"},
        {"metadata": {"months": "3"}},
        {"metadata": {"months": "0"}, "amount_total": 0},
        {"metadata": {"months": "25"}, "amount_total": 25 * 4_900},
        {"metadata": {"months": "x"}},
        {"metadata": {}},
        {"metadata": None},
        {"client_reference_id": None},
        {"client_reference_id": "0"},
        {"client_reference_id": "-1"},
        {"client_reference_id": "9" * 30},
    ],
    ids=str,
)
def test_a_checkout_of_another_kind_or_amount_is_refused(till: Till, changes: dict[str, Any]) -> None:
    before = till.paid_until
    assert "not for a plan" in till.refusal(till.event(**changes))
    assert till.paid_until == before


def test_a_payment_for_an_account_that_is_not_there_is_refused(till: Till) -> None:
    assert "not there" in till.refusal(till.event(client_reference_id="999"))


@pytest.mark.parametrize(
    ("kind", "status"),
    [("checkout.session.completed", "unpaid"), ("checkout.session.expired", "paid"), ("other", "paid")],
)
def test_other_events_change_nothing(till: Till, kind: str, status: str) -> None:
    before = till.paid_until
    till.receive(till.event(kind=kind, payment_status=status))
    assert till.paid_until == before


# Beginning


class Stripe(BaseHTTPRequestHandler):
    """As much of Stripe as begins a checkout."""

    asked: ClassVar[list[tuple[str, dict[str, list[str]], str]]] = []
    answer: ClassVar[tuple[int, dict[str, Any]]] = (200, {})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        self.asked.append((self.path, parse_qs(body), self.headers["authorization"]))
        status, content = self.answer
        text = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def stripe_at_hand(status: int, content: dict[str, Any]) -> Iterator[StripePayments]:
    Stripe.asked.clear()
    Stripe.answer = (status, content)
    with HTTPServer(("127.0.0.1", 0), Stripe) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield payments_at(f"http://127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()
            thread.join()


def payments_at(address: str) -> StripePayments:
    return StripePayments(StripeAccount("sk_test", SECRET, "nzd", address))


def test_a_checkout_is_begun_with_stripe_for_49_dollars_a_month(harness: Harness) -> None:
    alice = harness.person("alice").account
    session = {"id": "cs_1", "object": "checkout.session", "url": "https://checkout.stripe.example/c/pay/cs_1"}
    with stripe_at_hand(200, session) as payments:
        harness.service.payments = payments
        step = harness.run(harness.service.start_checkout(alice, 3, BACK))
    assert step == ("https://checkout.stripe.example/c/pay/cs_1", "")
    ((path, form, authorization),) = Stripe.asked
    assert (path, authorization) == ("/v1/checkout/sessions", "Bearer sk_test")
    assert {name: values[0] for name, values in form.items()} == {
        "mode": "payment",
        "line_items[0][quantity]": "3",
        "line_items[0][price_data][currency]": "nzd",
        "line_items[0][price_data][unit_amount]": "4900",
        "line_items[0][price_data][product_data][name]": "Listings Business plan, one month",
        "client_reference_id": str(alice.id),
        "metadata[months]": "3",
        "customer_email": alice.email,
        "adaptive_pricing[enabled]": "false",
        "success_url": BACK,
        "cancel_url": BACK,
    }


def test_a_stripe_that_refuses_or_is_away_is_told_without_its_words(harness: Harness) -> None:
    alice = harness.person("alice").account
    unwilling = stripe_at_hand(401, {"error": {"message": "Invalid API Key provided: sk_test"}})
    with unwilling as payments, pytest.raises(Unavailable) as refused:
        harness.run(payments.start_checkout(alice, 1, BACK))
    silent = stripe_at_hand(200, {"id": "cs_1", "object": "checkout.session"})
    with silent as payments, pytest.raises(Unavailable):
        harness.run(payments.start_checkout(alice, 1, BACK))
    with unused_port() as port, pytest.raises(Unavailable) as away:
        harness.run(payments_at(f"http://127.0.0.1:{port}").start_checkout(alice, 1, BACK))
    assert refused.value.message == away.value.message
    assert "sk_test" not in refused.value.message


@pytest.mark.parametrize("months", [0, -1, 25])
def test_a_plan_is_paid_for_one_to_24_months(harness: Harness, months: int) -> None:
    with pytest.raises(Problem, match="1 to 24 months"):
        harness.run(harness.service.start_checkout(harness.person("alice").account, months, BACK))


# By hand


def test_by_default_the_operator_takes_the_payment(harness: Harness) -> None:
    alice = harness.person("alice").account
    step = harness.run(harness.service.start_checkout(alice, 2, BACK))
    assert step.address == ""
    assert f"`listings account plan {alice.id} --months 2`" in step.text


def test_without_a_provider_nobody_is_believed(harness: Harness) -> None:
    with pytest.raises(Problem, match="not taken here"):
        harness.run(harness.service.receive_payment({}, b"{}"))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({}, "needs LISTINGS_STRIPE_SECRET_KEY: set it"),
        ({"stripe_secret_key": "sk_test"}, "needs LISTINGS_STRIPE_WEBHOOK_SECRET: set it"),
    ],
)
def test_stripe_needs_its_secrets(tmp_path: Path, settings: dict[str, str], sentence: str) -> None:
    with pytest.raises(Problem, match=sentence) as caught, Harness(tmp_path, payment_provider="stripe", **settings):
        pytest.fail("it was opened")
    assert caught.value.code == "invalid_setting"
