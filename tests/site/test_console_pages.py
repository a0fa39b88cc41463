"""What the console tells: overview, usage, plan, activity; and what a payment provider tells it."""

import hashlib
import hmac
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from listings.service.usage import Period
from listings.site.console import charts
from tests.harness import Harness, Reply
from tests.service.test_payments import run_fake_stripe
from tests.site.console import Tab, member, open_house

HOUR, DAY = 3600, 24 * 3600


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with open_house(tmp_path) as harness:
        yield harness


def key_of(harness: Harness, email: str = "alice@example.com") -> str:
    return harness.run(harness.service.issue_key(email, "Warehouse")).secret


def fetch(harness: Harness, key: str, path: str = "", method: str = "GET", body: bytes = b"") -> Reply:
    return harness.fetch(method, f"/api/v1/listings{path}", key=key, body=body)


# Overview


def test_a_new_account_is_led_from_step_to_step(harness: Harness) -> None:
    def steps() -> list[str]:
        return re.findall(r'<li class="(done|next|later)">', tab.get("/console").reply.body.decode())

    tab = member(harness, months=0)
    assert steps() == ["next", "later", "later"]
    harness.run(harness.service.extend_plan("alice@example.com", 1))
    assert steps() == ["done", "next", "next"]
    key = key_of(harness)
    assert steps() == ["done", "done", "next"]
    fetch(harness, key, method="POST", body=b'{"title": "Lamp", "content": "A lamp."}')
    assert steps() == []
    assert "Warehouse" in tab.text


def test_where_a_plan_has_ended_each_page_tells_what_waits_for_it(harness: Harness) -> None:
    tab = member(harness, months=1)
    key = key_of(harness)
    listing_id = fetch(harness, key, method="POST", body=b'{"title": "Lamp", "content": "A lamp."}').json()["id"]
    waits = "are answered 403 until you have a plan again"
    paths = ("/console", "/console/keys", "/console/keys/1", f"/console/listings/{listing_id}")
    told = ("until you have a plan again", waits, waits, "save, resume and restore none")
    for path, sentence in zip(paths, told, strict=True):
        assert sentence not in tab.get(path).text
    harness.clock.advance(60 * DAY)
    tab.sign_in("alice@example.com")
    for path, sentence in zip(paths, told, strict=True):
        assert sentence in tab.get(path).text
        assert "/console/plan" in tab.page.values("a", "href", href="/console/plan")
    text = tab.get("/console").text
    assert "Renew the Business plan" in text
    assert "that can be used" not in text
    assert re.findall(r'<li class="(done|next|later)">', tab.reply.body.decode()) == ["next", "later", "done"]


def test_without_a_plan_usage_leads_to_the_plan_and_not_to_a_key(harness: Harness) -> None:
    tab = member(harness, months=0).get("/console/usage")
    assert "A key needs the Business plan" in tab.text
    assert "Make a key" not in tab.text


# What is refused


def test_a_page_that_refuses_knows_who_is_signed_in_and_leads_back_to_the_console(harness: Harness) -> None:
    tab = member(harness)
    for path, status, back in (
        ("/nothing", 404, "/console"),
        ("/console/nothing", 404, "/console"),
        ("/console/keys/99", 404, "/console/keys"),
        ("/console/keys/1/rotate", 405, "/console/keys/1"),
        ("/console/account/password", 405, "/console/account"),
        ("/console/import/run", 405, "/console/import"),
        ("/sign-out", 405, "/console"),
    ):
        assert tab.get(path).reply.status == status, path
        assert tab.page.values("a", "href", class_="button") == [back]
        assert tab.page.values("a", "href", href="/sign-in") == []
    tab.token = "x"
    for path, back in (("/console/plan", "/console/plan"), ("/console/keys/1/rotate", "/console/keys/1")):
        assert tab.post(path).reply.status == 403
        assert tab.page.values("a", "href", class_="button") == [back]


def test_a_page_that_refuses_a_stranger_leads_to_what_is_for_sale(harness: Harness) -> None:
    tab = Tab(harness).get("/nothing")
    assert tab.page.values("a", "href", class_="button") == ["/"]
    assert tab.page.values("a", "href", href="/sign-in") == ["/sign-in"]


def test_a_page_tells_that_the_store_is_away_though_it_can_ask_nobody_who_is_signed_in(harness: Harness) -> None:
    tab = member(harness)
    harness.run(harness.service.store.close())
    assert tab.get("/console/keys").reply.status == 503
    assert tab.page.values("a", "href", class_="button") == ["/console"]


# Usage


def test_usage_tells_the_hour_the_day_the_month_and_each_status(harness: Harness) -> None:
    tab = member(harness)
    key = key_of(harness)
    for _ in range(3):
        fetch(harness, key)
    harness.clock.advance(10 * 60)
    refused = fetch(harness, key, "/99?secret=1")
    text = tab.get("/console/usage").text
    assert "4 of 1,000" in text
    assert re.search(r"996 left; the first of those used is free again in \d+ minutes", text)
    assert re.search(r"200 OK 3 404 Not Found 1", text)
    assert f"404 listing_not_found GET /api/v1/listings/99 Warehouse {refused.headers['x-request-id']}" in text
    assert "secret" not in text
    assert "22 Sep, 2 am 4 1" in text


def test_an_hour_that_is_used_up_tells_when_it_goes_on(tmp_path: Path) -> None:
    with open_house(tmp_path, rate_limit="2") as harness:
        tab = member(harness)
        key = key_of(harness)
        assert "Nothing was asked in the last hour" in tab.get("/console/usage").text
        assert [fetch(harness, key).status for _ in range(3)] == [200, 200, 429]
        assert "2 of 2 Used up: the next request is accepted in 60 minutes" in tab.get("/console/usage").text


def test_without_a_limit_there_is_no_hour(tmp_path: Path) -> None:
    with open_house(tmp_path, rate_limit="0") as harness:
        tab = member(harness)
        fetch(harness, key_of(harness))
        assert "There is no limit to how much a key may ask here" in tab.get("/console/usage").text


def test_a_status_that_has_no_name_is_told_all_the_same(harness: Harness) -> None:
    tab = member(harness)
    caller = harness.run(harness.service.find_key(key_of(harness)))
    assert caller is not None
    harness.service.record_response(caller, 299)
    assert "299 1" in tab.get("/console/usage").text


def test_usage_of_another_account_is_not_shown(harness: Harness) -> None:
    alice = member(harness)
    member(harness, "bob@example.com")
    fetch(harness, key_of(harness, "bob@example.com"), "/98")
    text = alice.get("/console/usage").text
    assert "None. When a request is refused" in text
    assert "/98" not in text


def test_bars_are_as_high_as_their_numbers_and_refused_ones_stand_on_top() -> None:
    periods = [Period(0, {}), Period(HOUR, {200: 60, 429: 20}), Period(2 * HOUR, {200: 1})]
    chart = charts.chart_of(periods, lambda moment: f"hour {moment // HOUR}")
    assert (chart.most, chart.total, chart.first, chart.last) == (80, 81, "hour 0", "hour 2")
    assert [(bar.y, bar.height, bar.refused) for bar in chart.bars] == [(160, 0, 0), (0, 160, 40), (158, 2, 0)]
    assert chart.bars[1].title == "hour 1: 80 requests, 20 refused"
    assert chart.bars[2].title == "hour 2: 1 request"
    assert chart.rows == [("hour 2", 1, 0), ("hour 1", 80, 20), ("hour 0", 0, 0)]


@pytest.mark.parametrize(("most", "line"), [(0, 1), (1, 1), (7, 8), (9, 10), (80, 80), (81, 100), (4900, 5000)])
def test_the_line_above_all_bars_is_a_round_number(most: int, line: int) -> None:
    assert charts.chart_of([Period(0, {200: most} if most else {})], str).most == line


# Plan


def test_where_the_operator_takes_the_money_the_plan_tells_how(harness: Harness) -> None:
    tab = member(harness, months=0).get("/console/plan")
    assert "You have none yet" in tab.text
    assert "listings account plan 1 --months 1" in tab.text
    harness.run(harness.service.extend_plan("alice@example.com", 1))
    assert "It holds until 22 Oct 2026" in tab.get("/console/plan").text
    harness.clock.advance(60 * DAY)
    assert "It ended on 22 Oct 2026" in tab.sign_in("alice@example.com").get("/console/plan").text


def test_nobody_tells_of_payments_where_the_operator_takes_them(harness: Harness) -> None:
    for name in ("stripe", "manual", "x"):
        reply = harness.fetch("POST", f"/payments/{name}/webhook", body=b"{}", headers={"Accept": "text/html"})
        assert reply.status in {400, 404}


SECRET = "whsec_of_a_test"


@pytest.fixture
def paid_house(tmp_path: Path) -> Iterator[Harness]:
    flags = {"payment_provider": "stripe", "stripe_secret_key": "sk_test_x", "stripe_webhook_secret": SECRET}
    with open_house(tmp_path, **flags) as harness:
        yield harness


def tell(harness: Harness, event: dict[str, object], secret: str = SECRET) -> Reply:
    """As Stripe sends it: signed, from no page, without a cookie."""
    body = json.dumps(event).encode()
    moment = int(time.time())
    signature = hmac.new(secret.encode(), b"%d." % moment + body, hashlib.sha256).hexdigest()
    headers = {"Stripe-Signature": f"t={moment},v1={signature}", "Content-Type": "application/json"}
    return harness.fetch("POST", "/payments/stripe/webhook", body=body, headers=headers)


def paid(account_id: int, currency: str = "nzd", months: int = 2) -> dict[str, object]:
    checkout = {
        "id": "cs_1",
        "object": "checkout.session",
        "payment_status": "paid",
        "client_reference_id": str(account_id),
        "metadata": {"months": str(months)},
        "currency": currency,
        "amount_total": 4_900 * months,
    }
    return {"id": "evt_1", "object": "event", "type": "checkout.session.completed", "data": {"object": checkout}}


def test_a_payment_that_stripe_signs_extends_the_plan_once(paid_house: Harness) -> None:
    tab = member(paid_house, months=0)
    assert tell(paid_house, paid(1), "whsec_of_another").status == 400
    assert "You have none yet" in tab.get("/console/plan").text
    for _ in range(2):
        reply = tell(paid_house, paid(1))
        assert (reply.status, reply.body) == (200, b"received\n")
    assert "It holds until 22 Nov 2026" in tab.get("/console/plan").text
    assert "paid for 2 months of the Business plan" in tab.get("/console/activity").text


def test_one_month_is_told_as_one(paid_house: Harness) -> None:
    tab = member(paid_house, months=0)
    tell(paid_house, paid(1, months=1))
    assert "paid for 1 month of the Business plan" in tab.get("/console/activity").text


def test_a_plan_is_paid_by_a_button_and_a_wrong_choice_is_told(paid_house: Harness) -> None:
    tab = member(paid_house).get("/console/plan")
    assert "12 months: $588" in tab.text
    assert "Pay by card" in tab.text
    assert tab.post("/console/plan", months="0").reply.status == 400
    assert "1 to 24 months" in tab.text
    assert tab.post("/console/plan", months="x").reply.status == 400


def test_from_the_button_one_comes_to_the_payment_by_a_link_and_without_a_click(harness: Harness) -> None:
    address = "https://checkout.stripe.example/c/pay/cs_1?a=1&b=2"
    tab = member(harness).get("/console/plan")
    with run_fake_stripe(200, {"id": "cs_1", "object": "checkout.session", "url": address}) as payments:
        harness.service.payments = payments
        tab.post("/console/plan", months="3")
    assert tab.reply.status == 200
    assert tab.page.values("a", "href", class_="button") == [address]
    assert tab.page.values("meta", "content", http_equiv="refresh") == [f"0; url={address}"]
    with run_fake_stripe(500, {}) as payments:
        harness.service.payments = payments
        tab.post("/console/plan", months="3")
    assert (tab.reply.status, "try again in a minute" in tab.text) == (503, True)


# Activity


def test_activity_tells_who_did_what(harness: Harness) -> None:
    tab = member(harness)
    key = key_of(harness)
    listing_id = fetch(harness, key, method="POST", body=b'{"title": "Lamp", "content": "A lamp."}').json()["id"]
    fetch(harness, key, f"/{listing_id}", "PATCH", b'{"price": 5, "title": "Lamps"}')
    fetch(harness, key, f"/{listing_id}", "DELETE")
    harness.run(harness.service.delete_for_owner(listing_id))
    harness.run(harness.service.rename_account("alice@example.com", "Alice's Attic"))
    for change in (harness.service.disable_account, harness.service.enable_account):
        harness.run(change("alice@example.com"))
    harness.run(harness.service.set_plan("alice@example.com", None))
    harness.run(harness.service.extend_plan("alice@example.com", 1))
    tab = tab.sign_in("alice@example.com").get("/console/account")
    tab.post(f"/console/listings/{listing_id}/state", action="restore")
    tab.post(f"/console/listings/{listing_id}/state", action="resume")
    fetch(harness, key, f"/{listing_id}", "PATCH", b'{"content": "Bright.", "is_active": false}')
    text = tab.get("/console/activity").text
    hint = f"{key[:4]}…{key[-4:]}"
    for told in (
        f"You restored listing {listing_id}",
        f"You paused or resumed listing {listing_id}",
        f"changed description of, and paused or resumed, listing {listing_id}",
        f"Warehouse ({hint}) closed listing {listing_id}",
        f"Warehouse ({hint}) changed price, title of listing {listing_id}",
        f"Warehouse ({hint}) created listing {listing_id}",
        "The operator changed the account",
        "The operator disabled the account",
        "The operator enabled the account",
        "The operator took the plan away",
        f"The operator made the key Warehouse ({hint})",
        "The operator set the plan to end on 22 Sep 2027",
        "You signed in",
        "You opened the account",
    ):
        assert told in text, text


def test_older_activity_is_a_page_away(harness: Harness) -> None:
    tab = member(harness)
    key = key_of(harness)
    for number in range(60):
        fetch(harness, key, method="POST", body=json.dumps({"title": f"Lamp {number}", "content": "x"}).encode())
    tab.get("/console/activity")
    first = re.findall(r"/console/listings/(\d+)", tab.reply.body.decode())
    (older,) = tab.page.values("a", "href", rel="next")
    tab.get(older or "")
    second = re.findall(r"/console/listings/(\d+)", tab.reply.body.decode())
    assert (len(first), len(second), set(first) & set(second)) == (50, 10, set())
    assert "You opened the account" in tab.text
    for place in ("x", "1-2", "9-9-99999999999999999999", "1-0-1", "-1-0-1"):
        assert tab.get(f"/console/activity?before={place}").reply.status == 200


def test_texts_of_others_are_texts_here_too(harness: Harness) -> None:
    tab = member(harness)
    key = key_of(harness)
    evil = "<script>alert(1)</script>"
    fetch(harness, key, method="POST", body=json.dumps({"title": evil, "content": evil, "category": evil}).encode())
    (listing_id,) = re.findall(r'name="id" value="(\d+)"', tab.get("/console/listings").reply.body.decode())
    for path in (
        "/console/listings",
        f"/console/listings/{listing_id}",
        f"/console/listings?q={evil}",
        "/console/activity",
    ):
        body = tab.get(path).reply.body.decode()
        assert (tab.reply.status, "<script>alert" in body) == (200, False)
