"""Overview, usage, plan and activity pages, and the webhook of the payment provider."""

import gc
import hashlib
import hmac
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from jinja2.runtime import Context, Macro
from starlette.datastructures import FormData

from listings.queues import FairQueue
from listings.service.history.usage import Period
from listings.site.console import charts
from listings.site.presentation import format_size
from listings.store.sqlite import database
from tests.harness import Harness, Reply
from tests.harness import fetch as fetch_asgi
from tests.pictures import photo
from tests.service.test_market import BROWSER
from tests.service.test_payments import run_fake_stripe
from tests.site.console.test_drafts import make_reads_slow
from tests.site.console.test_on_engines import fill
from tests.site.tab import Tab, open_console, open_harness

HOUR, DAY = 3600, 24 * 3600


def issue_key(harness: Harness, email: str = "alice@example.com") -> str:
    return harness.run(harness.services.keys.create(email, "Warehouse")).secret


def issue_listings(harness: Harness, count: int) -> list[int]:
    """Create listings of Alice with 11 bytes of text each, and return their ids."""
    key = issue_key(harness)
    body = b'{"title": "Lamp", "content": "Brass"}'
    return [fetch(harness, key, method="POST", body=body).json()["id"] for _ in range(count)]


def fetch(harness: Harness, key: str, path: str = "", method: str = "GET", body: bytes = b"") -> Reply:
    return harness.fetch(method, f"/api/v1/listings{path}", key=key, body=body)


def test_what_a_page_used_does_not_wait_for_the_garbage_collector(harness: Harness) -> None:
    """Forms and rendered listings may be large, and full collections are rare."""
    tab = open_console(harness)
    tab.get("/console/listings/new")
    gc.collect()
    gc.disable()
    try:
        tab.post("/console/listings/new", content="x")
        tab.get("/console/usage")
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        assert not [one for one in gc.garbage if isinstance(one, Context | Macro | FormData)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def test_the_overview_leads_a_new_account_through_its_steps(harness: Harness) -> None:
    def steps() -> list[str]:
        return re.findall(r'<li class="(done|next|later)">', tab.get("/console").reply.body.decode())

    tab = open_console(harness, months=0)
    assert steps() == ["next", "next", "later"]
    harness.run(harness.services.accounts.extend_plan("alice@example.com", 1))
    assert steps() == ["done", "next", "next"]
    key = issue_key(harness)
    assert steps() == ["done", "next", "done"]
    fetch(harness, key, method="POST", body=b'{"title": "Lamp", "content": "A lamp."}')
    assert steps() == []
    assert "Warehouse" in tab.text


def test_the_overview_shows_limits_of_which_most_is_used(harness: Harness) -> None:
    tab = open_console(harness)
    issue_listings(harness, 4)
    assert "at most" not in tab.get("/console").text
    account = harness.run(harness.services.accounts.find("alice@example.com"))
    harness.run(harness.services.accounts.set_limits(account, (5, 50, None)))
    assert "at most 5 that are not deleted" in tab.get("/console").text
    assert "44 bytes of text, at most 50 bytes" in tab.text


def test_the_overview_shows_the_limit_of_pictures_if_most_is_used(harness: Harness, tmp_path: Path) -> None:
    tab = open_console(harness)
    account = harness.run(harness.services.accounts.find("alice@example.com"))
    (tmp_path / "photo.jpg").write_bytes(photo())
    picture, _ = harness.run(harness.services.pictures.add(account.id, tmp_path / "photo.jpg"))
    assert "of pictures" not in tab.get("/console").text
    harness.run(harness.services.pictures.set_limit(account.id, picture.size))
    size = format_size(picture.size)
    assert f"{size} of pictures, at most {size}" in tab.get("/console").text


def test_the_overview_links_to_listings_that_need_attention(harness: Harness) -> None:
    tab = open_console(harness)
    ids = issue_listings(harness, 2)
    assert "Needs your attention 2 listings without a picture 2 listings without a price" in tab.get("/console").text
    assert "not viewed" not in tab.text
    harness.clock.advance(31 * DAY)
    harness.services.market.record_view(harness.run(harness.services.market.get_listing(ids[0])), "192.0.2.1", BROWSER)
    harness.run(harness.services.market.write_views())
    tab.sign_in("alice@example.com").get("/console")
    assert "1 listing not viewed for 30 days" in tab.text
    (path,) = [url for url in tab.page.values("a", "href") if url is not None and "no-views" in url]
    assert tab.get(path or "").page.values("input", "value", name="id") == [str(ids[1])]


def test_hints_that_cannot_be_counted_are_left_out(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    tab = open_console(harness)
    harness.run(fill(harness.services, 500))
    make_reads_slow(monkeypatch)
    assert "499 listings without a picture" in tab.get("/console").text
    monkeypatch.setattr(harness.services.listings, "_large_pages", FairQueue(max_total=0))
    monkeypatch.setattr(database, "_STEPS_PER_CHECK", 1_000)  # the titles of the latest activity are still read
    assert tab.get("/console").reply.status == 200
    assert "Publish 1 draft" in tab.text
    assert "without a picture" not in tab.text


def test_the_overview_shows_views_of_30_days(harness: Harness) -> None:
    tab = open_console(harness)
    assert "No views yet." in tab.get("/console").text
    assert "API requests" not in tab.text
    (listing_id,) = issue_listings(harness, 1)
    for days, visitors in ((0, 3), (9, 2), (30, 1)):
        harness.clock.advance(days * DAY)
        for number in range(visitors):
            listing = harness.run(harness.services.market.get_listing(listing_id))
            harness.services.market.record_view(listing, f"192.0.2.{number}", BROWSER)
        harness.run(harness.services.market.write_views())
        if days == 9:
            tab.sign_in("alice@example.com").get("/console")
            assert "Views 2 in the last 7 days; 3 in the 7 days before" in tab.text
            assert "Views per day in the last 30 days: 5 in total" in tab.text
            assert "API requests 0 in the last 24 hours, with 1 key" in tab.text
    assert "Views per day in the last 30 days: 1 in total" in tab.sign_in("alice@example.com").get("/console").text


def test_the_overview_names_keys_that_have_reached_their_limit(tmp_path: Path) -> None:
    with open_harness(tmp_path, rate_limit="2") as harness:
        tab = open_console(harness)
        revoked, key = issue_key(harness), issue_key(harness)
        for one in (revoked, revoked, key):
            fetch(harness, one)
        harness.run(harness.services.keys.revoke(1))
        assert "has reached its limit" not in tab.get("/console").text
        fetch(harness, key)
        sentence = f"The key Warehouse ({key[:4]}…{key[-4:]}) has reached its limit of 2 requests per hour."
        assert f"{sentence} It can be used again in 60 minutes." in tab.get("/console").text
        harness.run(harness.services.accounts.set_plan("alice@example.com", None))
        assert "has reached its limit" not in tab.get("/console").text


def test_pages_show_the_effects_of_an_expired_plan(harness: Harness) -> None:
    tab = open_console(harness, months=1)
    key = issue_key(harness)
    listing_id = fetch(harness, key, method="POST", body=b'{"title": "Lamp", "content": "A lamp."}').json()["id"]
    paths = ("/console", "/console/keys", "/console/keys/1", f"/console/listings/{listing_id}")
    sentences = (
        "Your plan has ended, so requests with it fail with 403.",
        "so requests with these keys fail with 403.",
        "so requests with this key fail with 403.",
        "you can write up to 20 drafts, and pause or delete listings, but not publish, change or restore them.",
    )
    for path, sentence in zip(paths, sentences, strict=True):
        assert sentence not in tab.get(path).text
    harness.clock.advance(60 * DAY)
    tab.sign_in("alice@example.com")
    for path, sentence in zip(paths, sentences, strict=True):
        assert sentence in tab.get(path).text
        assert "/console/plan" in tab.page.values("a", "href", href="/console/plan")
    text = tab.get("/console").text
    assert "Renew the Business plan" in text
    assert "paused until you renew" in text
    assert re.findall(r'<li class="(done|next|later)">', tab.reply.body.decode()) == ["next", "done", "later"]


def test_usage_without_a_plan_links_to_the_plan(harness: Harness) -> None:
    tab = open_console(harness, months=0).get("/console/usage")
    assert "API keys need the Business plan" in tab.text
    assert "Create a key" not in tab.text


def test_error_pages_link_members_back_to_the_console(harness: Harness) -> None:
    tab = open_console(harness)
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
        assert ("Go back and send the form again." in tab.text) == (status == 405)
        first = back if path.startswith("/console") else "/"
        assert tab.page.values("a", "href", class_="button") == [first]
        assert {back, "/"} <= set(tab.page.values("a", "href"))
        assert tab.page.values("a", "href", href="/sign-in") == []
    tab.token = "x"
    for path, back in (("/console/plan", "/console/plan"), ("/console/keys/1/rotate", "/console/keys/1")):
        assert tab.post(path).reply.status == 403
        assert tab.page.values("a", "href", class_="button") == [back]


def test_error_pages_link_visitors_to_the_market(harness: Harness) -> None:
    tab = Tab(harness).get("/nothing")
    assert tab.page.values("a", "href", class_="button") == ["/"]
    assert tab.page.values("a", "href", href="/sign-in") == ["/sign-in"]


def test_an_unavailable_store_is_reported_as_a_page(harness: Harness) -> None:
    tab = open_console(harness)
    harness.run(harness.store.close())
    assert tab.get("/console/keys").reply.status == 503
    assert "We can't show this page right now. Try again in a minute." in tab.text
    assert tab.page.values("a", "href", class_="button") == ["/console"]


def test_usage_shows_hour_day_month_and_statuses(harness: Harness) -> None:
    tab = open_console(harness)
    key = issue_key(harness)
    for _ in range(3):
        fetch(harness, key)
    harness.clock.advance(10 * 60)
    rejected = fetch(harness, key, "/99?secret=1")
    text = tab.get("/console/usage").text
    assert "4 of 1,000" in text
    assert re.search(r"996 remaining\. The oldest request stops counting in \d+ minutes\.", text)
    assert re.search(r"200 OK 3 404 Not Found 1", text)
    why = r"Listing not found listing_not_found 404 GET /api/v1/listings/99 1 .{,40} Warehouse "
    assert re.search(why + rejected.headers["x-request-id"], text)
    assert "secret" not in text
    assert "22 Sep, 2 am 4 1" in text


def test_usage_can_be_limited_to_one_key(harness: Harness) -> None:
    tab = open_console(harness)
    first, second = issue_key(harness), issue_key(harness)
    for key, path in ((first, ""), (first, "/99"), (second, "/98")):
        fetch(harness, key, path)
    assert "listings/98" in tab.get("/console/usage?key=nonsense").text
    text = tab.get("/console/usage?key=1").text
    assert "200 OK 1 404 Not Found 1" in text
    assert "listings/98" not in text
    assert "Those of this key among the last 100 of your account." in text
    assert "limit per hour" in text
    issue_key(harness)
    assert "None of this key among the last 100" in tab.get("/console/usage?key=3").text


def test_an_exhausted_limit_shows_when_the_next_request_is_possible(tmp_path: Path) -> None:
    with open_harness(tmp_path, rate_limit="2") as harness:
        tab = open_console(harness)
        key = issue_key(harness)
        assert "No requests in the last hour" in tab.get("/console/usage").text
        assert [fetch(harness, key).status for _ in range(3)] == [200, 200, 429]
        assert "2 of 2 Limit reached. Next request in 60 minutes." in tab.get("/console/usage").text


def test_pages_show_the_configured_rate_limit(tmp_path: Path) -> None:
    with open_harness(tmp_path, rate_limit="2", rate_window="90") as harness:
        tab = open_console(harness)
        assert "Each key allows 2 requests per 90 seconds." in tab.get("/console").text
        assert "API keys, each allowing 2 requests per 90 seconds" in tab.get("/console/plan").text
        fetch(harness, issue_key(harness))
        usage = tab.get("/console/usage").text
        assert "Last 90 seconds" in usage
        assert "1 of 2" in usage
        assert "limit per hour" not in usage


def test_usage_without_a_rate_limit_says_so(tmp_path: Path) -> None:
    with open_harness(tmp_path, rate_limit="0") as harness:
        tab = open_console(harness)
        fetch(harness, issue_key(harness))
        assert "Requests are not limited" in tab.get("/console/usage").text
        assert "API keys, each allowing any number of requests" in tab.get("/console/plan").text


def test_an_unknown_status_is_counted(harness: Harness) -> None:
    tab = open_console(harness)
    caller = harness.run(harness.services.keys.find(issue_key(harness)))
    assert caller is not None
    harness.services.usage.record_response(caller, 299)
    assert "299 1" in tab.get("/console/usage").text


def test_usage_of_another_account_is_not_shown(harness: Harness) -> None:
    alice = open_console(harness)
    open_console(harness, "bob@example.com")
    fetch(harness, issue_key(harness, "bob@example.com"), "/98")
    text = alice.get("/console/usage").text
    assert "None. Rejected requests are shown here" in text
    assert "/98" not in text


def test_bar_heights_follow_requests_and_rejections() -> None:
    periods = [Period(0, {}), Period(HOUR, {200: 60, 429: 20}), Period(2 * HOUR, {200: 1})]
    chart = charts.build_chart(periods, lambda moment: f"hour {moment // HOUR}")
    assert (chart.scale, chart.total, chart.limit_y) == (80, 81, None)
    assert chart.ticks == ["hour 0", "hour 0", "hour 1", "hour 2", "hour 2"]
    assert [(bar.y, bar.height, bar.rejected) for bar in chart.bars] == [(160, 0, 0), (0, 160, 40), (155, 5, 0)]
    assert chart.bars[1].title == "hour 1: 80 requests, 20 rejected"
    assert chart.bars[2].title == "hour 2: 1 request"
    assert chart.rows == [("hour 2", 1, 0), ("hour 1", 80, 20), ("hour 0", 0, 0)]


@pytest.mark.parametrize(("largest", "scale"), [(0, 1), (1, 1), (7, 8), (9, 10), (80, 80), (81, 100), (4900, 5000)])
def test_the_scale_of_a_chart_is_a_round_number(largest: int, scale: int) -> None:
    assert charts.build_chart([Period(0, {200: largest} if largest else {})], str).scale == scale


def test_a_seller_requests_the_plan_from_the_operator(harness: Harness) -> None:
    tab = open_console(harness, months=0).get("/console/plan")
    assert "You don’t have a plan yet" in tab.text
    assert "listings account" not in tab.text
    for _ in range(2):
        assert "Your request was sent." in tab.post("/console/plan/request").follow().text
    assert "You requested the Business plan on 22 Sep 2026" in tab.text
    assert "Business Requested" in tab.text
    assert "/console/plan/request" not in tab.reply.body.decode()
    assert "Requested on 22 Sep 2026" in tab.get("/console").text
    harness.run(harness.services.accounts.extend_plan("alice@example.com", 1))
    assert "Active until 22 Oct 2026" in tab.get("/console/plan").text
    assert "and then extend your plan. Request an extension" in tab.text
    harness.clock.advance(60 * DAY)
    assert "Expired on 22 Oct 2026" in tab.sign_in("alice@example.com").get("/console/plan").text
    assert "/console/plan/request" in tab.reply.body.decode()


def test_a_declined_request_shows_the_reason_until_the_next_one(harness: Harness) -> None:
    tab = open_console(harness, months=0)
    tab.post("/console/plan/request")
    account = harness.run(harness.services.accounts.find("alice@example.com"))
    harness.run(harness.services.plan_requests.decline(account, "We only list <boats>."))
    reason = "On 22 Sep 2026 we declined your request of 22 Sep 2026 : We only list <boats>."
    assert "Business Declined" in tab.get("/console/plan").text
    assert reason in tab.text
    assert "We declined your request on 22 Sep 2026 . See why" in tab.get("/console").text
    assert "declined the request for the Business plan: We only list <boats>." in tab.text
    tab.get("/console/plan").post("/console/plan/request")
    assert "You requested the Business plan" in tab.get("/console/plan").text
    assert reason not in tab.text


def test_every_page_shows_that_the_plan_ends_soon_or_has_ended(harness: Harness) -> None:
    tab = open_console(harness, months=1)
    harness.clock.advance(5 * DAY)
    assert "plan ends" not in tab.sign_in("alice@example.com").get("/console/account").text
    for days, text in (
        (12, "Your Business plan ends in 13 days, on 22 Oct 2026. Renew your plan"),
        (12.5, "Your Business plan ends within a day, on 22 Oct 2026."),
        (
            1,
            "Your Business plan ended on 22 Oct 2026. Active listings stay visible, but your API keys no longer work.",
        ),
    ):
        harness.clock.advance(days * DAY)
        tab.sign_in("alice@example.com")
        for path in ("/console/account", "/console/listings"):
            assert text in tab.get(path).text
    harness.run(harness.services.accounts.set_plan("alice@example.com", None))
    assert "Your Business plan ended" not in tab.get("/console/account").text


def test_manual_payments_have_no_webhook(harness: Harness) -> None:
    for name in ("stripe", "manual", "x"):
        reply = harness.fetch("POST", f"/payments/{name}/webhook", body=b"{}", headers={"Accept": "text/html"})
        assert reply.status in {400, 404}


SECRET = "whsec_of_a_test"


@pytest.fixture
def stripe_harness(tmp_path: Path) -> Iterator[Harness]:
    flags = {"payment_provider": "stripe", "stripe_secret_key": "sk_test_x", "stripe_webhook_secret": SECRET}
    with open_harness(tmp_path, **flags) as harness:
        yield harness


def send_event(harness: Harness, event: dict[str, object], secret: str = SECRET) -> Reply:
    """Send an event as Stripe does: signed, without origin or cookie."""
    body = json.dumps(event).encode()
    moment = int(time.time())
    signature = hmac.new(secret.encode(), b"%d." % moment + body, hashlib.sha256).hexdigest()
    headers = {"Stripe-Signature": f"t={moment},v1={signature}", "Content-Type": "application/json"}
    return harness.fetch("POST", "/payments/stripe/webhook", body=body, headers=headers)


@pytest.mark.parametrize(("size", "status"), [(65_536, 400), (65_537, 413)])
@pytest.mark.parametrize("declares", [True, False])
def test_an_event_has_at_most_64_kib(stripe_harness: Harness, size: int, status: int, *, declares: bool) -> None:
    headers = [(b"host", b"localhost"), (b"stripe-signature", b"t=1,v1=" + b"0" * 64)]
    if declares:
        headers.append((b"content-length", b"%d" % size))
    chunks = [] if declares and status == 413 else [b"x" * 40_000, b"x" * (size - 40_000)]
    path = "/payments/stripe/webhook"
    reply = stripe_harness.run(
        fetch_asgi(stripe_harness.application, "POST", path, headers, chunks, complete=bool(chunks))
    )
    assert reply.status == status


def build_event(account_id: int, currency: str = "nzd", months: int = 2) -> dict[str, object]:
    checkout = {
        "id": "cs_1",
        "object": "checkout.session",
        "payment_status": "paid",
        "client_reference_id": str(account_id),
        "metadata": {"months": str(months), "amount": str(4_900 * months), "currency": "nzd"},
        "currency": currency,
        "amount_total": 4_900 * months,
    }
    return {"id": "evt_1", "object": "event", "type": "checkout.session.completed", "data": {"object": checkout}}


def test_a_payment_signed_by_stripe_extends_the_plan_once(stripe_harness: Harness) -> None:
    tab = open_console(stripe_harness, months=0)
    assert send_event(stripe_harness, build_event(1), "whsec_of_another").status == 400
    assert "You don’t have a plan yet" in tab.get("/console/plan").text
    assert "Your plan starts when you have paid. You pay once: nothing renews automatically." in tab.text
    for _ in range(2):
        reply = send_event(stripe_harness, build_event(1))
        assert (reply.status, reply.body) == (200, b"received\n")
    assert "Active until 22 Nov 2026" in tab.get("/console/plan").text
    assert "Extend your plan The new months start when your current plan ends." in tab.text
    assert "paid for 2 months of the Business plan" in tab.get("/console/activity").text


def test_a_single_month_is_shown_in_the_singular(stripe_harness: Harness) -> None:
    tab = open_console(stripe_harness, months=0)
    send_event(stripe_harness, build_event(1, months=1))
    assert "paid for 1 month of the Business plan" in tab.get("/console/activity").text


def test_an_invalid_plan_duration_is_rejected(stripe_harness: Harness) -> None:
    tab = open_console(stripe_harness).get("/console/plan")
    assert "12 months: 588 NZD" in tab.text
    assert "Pay by card" in tab.text
    assert tab.post("/console/plan", months="0").reply.status == 400
    assert "1 to 24 months" in tab.text
    assert tab.post("/console/plan", months="x").reply.status == 400


def test_renewing_leads_to_the_payment_page(harness: Harness) -> None:
    url = "https://checkout.stripe.example/c/pay/cs_1?a=1&b=2"
    tab = open_console(harness).get("/console/plan")
    with run_fake_stripe(200, {"id": "cs_1", "object": "checkout.session", "url": url}) as payments:
        harness.replace_services(payments=payments)
        tab.post("/console/plan", months="3")
    assert tab.reply.status == 200
    assert tab.page.values("a", "href", class_="button") == [url]
    assert tab.page.values("meta", "content", http_equiv="refresh") == [f"0; url={url}"]
    with run_fake_stripe(500, {}) as payments:
        harness.replace_services(payments=payments)
        tab.post("/console/plan", months="3")
    assert (tab.reply.status, "try again in a minute" in tab.text) == (503, True)


def test_activity_describes_every_kind_of_event(harness: Harness) -> None:
    tab = open_console(harness)
    key = issue_key(harness)
    listing_id = fetch(harness, key, method="POST", body=b'{"title": "Lamp", "content": "A lamp."}').json()["id"]
    fetch(harness, key, f"/{listing_id}", "PATCH", b'{"price": 5, "title": "Lamps"}')
    fetch(harness, key, f"/{listing_id}", "PATCH", b'{"external_id": "L-1"}')
    fetch(harness, key, f"/{listing_id}", "DELETE")
    harness.run(harness.services.moderation.delete(listing_id))
    harness.run(harness.services.accounts.rename("alice@example.com", "Alice's Attic"))
    for change in (harness.services.accounts.disable, harness.services.accounts.enable):
        harness.run(change("alice@example.com"))
    harness.run(harness.services.accounts.set_plan("alice@example.com", None))
    harness.run(harness.services.accounts.extend_plan("alice@example.com", 1))
    tab = tab.sign_in("alice@example.com").get("/console/account")
    tab.post(f"/console/listings/{listing_id}/state", action="restore")
    tab.post(f"/console/listings/{listing_id}/state", action="resume")
    fetch(harness, key, f"/{listing_id}", "PATCH", b'{"content": "Bright.", "is_active": false}')
    harness.fetch("POST", "/api/v1/changes/revert", key=key, json={"change": 2})
    text = tab.get("/console/activity").text
    key_name = f"Warehouse ({key[:4]}…{key[-4:]})"
    assert "updated description of “Lamp” and paused it" in tab.get("/console").text
    for sentence in (
        "You restored “Lamp”",
        "You resumed “Lamp”",
        "updated description of “Lamp” and paused it",
        f"{key_name} undid changes to 1 listing",
        f"{key_name} deleted “Lamp”",
        f"{key_name} updated price and title of “Lamp”",
        f"{key_name} updated your own ID of “Lamp”",
        f"{key_name} created “Lamp”",
        "The operator updated the account",
        "The operator disabled the account",
        "The operator enabled the account",
        "The operator removed the plan",
        f"The operator created the key {key_name}",
        "The operator set the plan to end on 22 Sep 2027",
        "You signed in",
        "You created the account",
    ):
        assert sentence in text, text


def test_older_activity_is_on_the_next_page(harness: Harness) -> None:
    tab = open_console(harness)
    key = issue_key(harness)
    for number in range(60):
        fetch(harness, key, method="POST", body=json.dumps({"title": f"Lamp {number}", "content": "x"}).encode())
    tab.get("/console/activity")
    first = re.findall(r"/console/listings/(\d+)", tab.reply.body.decode())
    (older,) = tab.page.values("a", "href", rel="next")
    tab.get(older or "")
    second = re.findall(r"/console/listings/(\d+)", tab.reply.body.decode())
    assert (len(first), len(second), set(first) & set(second)) == (50, 10, set())
    assert "You created the account" in tab.text
    for cursor in ("x", "1-2", "9-9-99999999999999999999", "1-0-1", "-1-0-1"):
        assert tab.get(f"/console/activity?before={cursor}").reply.status == 200


def test_texts_of_listings_are_escaped(harness: Harness) -> None:
    tab = open_console(harness)
    key = issue_key(harness)
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


@pytest.mark.decision("G52")
def test_a_seller_chooses_the_public_contact(harness: Harness) -> None:
    tab = open_console(harness)
    rejected = tab.get("/console/account").post("/console/account/contact", contact="call me")
    assert (rejected.reply.status, "Enter an email address, a phone number" in rejected.text) == (400, True)
    assert rejected.page.values("input", "value", name="contact", aria_invalid="true") == ["call me"]
    assert tab.post("/console/account/contact", contact="a\0b@c.nz").reply.status == 400
    tab.post("/console/account/contact", contact="021 555 0100").follow()
    assert "Contact saved." in tab.text
    assert tab.page.values("input", "value", name="contact") == ["021 555 0100"]
    assert "changed the public contact" in tab.get("/console/activity").text


@pytest.mark.decision("G52")
def test_a_seller_without_a_contact_is_told_at_a_listing(harness: Harness) -> None:
    tab = open_console(harness)
    body = b'{"title": "Lamp", "content": "A lamp."}'
    listing_id = fetch(harness, issue_key(harness), method="POST", body=body).json()["id"]
    assert "Buyers can’t contact you yet." in tab.get(f"/console/listings/{listing_id}").text
    tab.get("/console/account").post("/console/account/contact", contact="021 555 0100")
    assert "Buyers can’t contact you" not in tab.get(f"/console/listings/{listing_id}").text
