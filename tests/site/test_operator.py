"""The operator's page: who may open it, its code, and what it lists and does."""

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyotp import TOTP
from starlette.datastructures import FormData

from listings.domain.audience import ListingReport
from listings.domain.errors import Problem
from listings.domain.fields import parse_new_listing
from listings.domain.mail import NewMail
from listings.service import Services
from listings.site.console.operator import answer_request
from listings.telemetry import logs
from tests.harness import Harness, RunningService
from tests.site.accessibility import find_axe_violations
from tests.site.browser import chromium, needs_chromium, resize, visit
from tests.site.market import get
from tests.site.tab import PASSWORD, Tab, create, open_console, open_harness

PATH = "/operator"
ALICE, BOB = "alice@example.com", "bob@example.com"
HALF_MINUTE = 30

pytestmark = pytest.mark.decision("G59")


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with open_harness(tmp_path, operator_page="on") as harness:
        yield harness


@pytest.fixture
def secret(harness: Harness, alice: Tab) -> str:  # noqa: ARG001 - alice has an account
    """The secret of alice's second factor."""
    return harness.run(harness.services.operators.add(ALICE)).secret


@pytest.fixture
def alice(harness: Harness) -> Tab:
    return open_console(harness)


@pytest.fixture
def operator(harness: Harness, alice: Tab, secret: str) -> Tab:
    assert enter_code(harness, alice, secret).reply.status == 303
    return alice.follow()


def make_code(harness: Harness, secret: str, steps: int = 0) -> str:
    """Return the code of the current half minute, or of one that is `steps` later."""
    return TOTP(secret).generate_otp(int(harness.clock()) // HALF_MINUTE + steps)


def enter_code(harness: Harness, tab: Tab, secret: str, steps: int = 0) -> Tab:
    return tab.get(PATH).post(f"{PATH}/code", code=make_code(harness, secret, steps))


def report(harness: Harness, listing_id: int, account_id: int = 1) -> ListingReport:
    one = ListingReport("abcd1234", account_id, listing_id, "fraud", "Asks for <money> first", int(harness.clock()))
    harness.run(harness.store.add_listing_report(one, None))
    return one


def test_without_the_setting_there_is_no_page(tmp_path: Path) -> None:
    with open_harness(tmp_path) as harness:
        tab = open_console(harness)
        harness.run(harness.services.operators.add(ALICE))
        unknown = harness.fetch("GET", "/unknown")
        for path in (PATH, f"{PATH}/code", f"{PATH}/plan", f"{PATH}/takedown"):
            assert tab.get(path).reply.status == 404
            assert tab.post(path).reply.status == 404
            assert harness.fetch("GET", path).body == unknown.body


@pytest.mark.usefixtures("alice")
def test_a_visitor_signs_in_first(harness: Harness) -> None:
    tab = Tab(harness).get(PATH)
    assert tab.reply.headers["location"] == "/sign-in?next=%2Foperator"
    tab.follow().post("/sign-in", email=ALICE, password=PASSWORD, next=PATH)
    assert tab.reply.headers["location"] == PATH


def test_it_does_not_exist_for_others(harness: Harness, operator: Tab) -> None:
    assert operator.get(PATH).reply.status == 200
    bob = open_console(harness, BOB)
    assert bob.get(PATH).reply.status == 404
    assert "We can't find that page" in bob.text
    for path in ("code", "plan", "report", "takedown", "lift"):
        assert bob.post(f"{PATH}/{path}", code="123456", listing="1025", reason="x").reply.status == 404
        assert "Enter your code" not in bob.text


def test_nothing_is_done_without_a_code(harness: Harness, alice: Tab, secret: str) -> None:
    assert secret
    listing_id = create(harness)
    assert "Enter your code" in alice.get(PATH).text
    assert "Enter your code" in alice.post(f"{PATH}/takedown", listing=str(listing_id), reason="x").text
    assert harness.run(harness.services.moderation.find_takedown(listing_id)) is None


def test_a_form_needs_its_token(harness: Harness, operator: Tab) -> None:
    listing_id = create(harness)
    form = {"listing": str(listing_id), "reason": "x", "token": "forged"}
    assert operator.post(f"{PATH}/takedown", **form).reply.status == 403
    assert harness.run(harness.services.moderation.find_takedown(listing_id)) is None


def test_a_code_works_once(harness: Harness, operator: Tab, secret: str) -> None:
    assert "Plan requests" in operator.text
    other = Tab(harness).sign_in(ALICE)
    assert enter_code(harness, other, secret).reply.status == 403
    assert "The code is wrong or was used before" in other.text
    harness.clock.advance(HALF_MINUTE)
    assert enter_code(harness, other, secret).reply.status == 303
    assert "Plan requests" in operator.get(PATH).text


@pytest.mark.parametrize(("steps", "status"), [(-2, 403), (-1, 303), (1, 303), (2, 403)])
def test_a_code_may_be_half_a_minute_off(harness: Harness, alice: Tab, secret: str, steps: int, status: int) -> None:
    assert enter_code(harness, alice, secret, steps).reply.status == status


@pytest.mark.parametrize("code", ["", "12345", "abcdef", "\N{ARABIC-INDIC DIGIT ONE}" * 6])
def test_anything_else_is_no_code(alice: Tab, secret: str, code: str) -> None:
    assert secret
    assert alice.get(PATH).post(f"{PATH}/code", code=code).reply.status == 403


def test_spaces_in_a_code_do_not_matter(harness: Harness, alice: Tab, secret: str) -> None:
    code = make_code(harness, secret)
    assert alice.get(PATH).post(f"{PATH}/code", code=f" {code[:3]} {code[3:]}").reply.status == 303


def test_an_operator_has_ten_attempts_in_15_minutes(harness: Harness, alice: Tab, secret: str) -> None:
    wrong = str((int(make_code(harness, secret)) + 1) % 10**6).zfill(6)
    statuses = [alice.get(PATH).post(f"{PATH}/code", code=wrong).reply.status for _ in range(10)]
    assert statuses == [403] * 10
    assert enter_code(harness, Tab(harness).sign_in(ALICE), secret).reply.status == 429
    harness.clock.advance(15 * 60 + 1)
    assert enter_code(harness, Tab(harness).sign_in(ALICE), secret).reply.status == 303


def test_a_code_needs_a_password_of_the_last_15_minutes(harness: Harness, alice: Tab, secret: str) -> None:
    harness.clock.advance(15 * 60)
    assert enter_code(harness, alice, secret).reply.status == 403
    assert "Enter your password again" in alice.text
    assert "Confirm your password" in alice.text
    code = make_code(harness, secret)
    assert alice.post(f"{PATH}/code", code=code, password="wrong rivers 7").reply.status == 403
    assert alice.post(f"{PATH}/code", code=code, password=PASSWORD).reply.status == 303


def test_a_session_as_an_operator_lasts_12_hours(harness: Harness, operator: Tab) -> None:
    harness.clock.advance(12 * 3600 - 1)
    assert "Plan requests" in operator.get(PATH).text
    harness.clock.advance(1)
    assert "Enter your code" in operator.get(PATH).text
    assert operator.get("/console").reply.status == 200


def test_a_removed_operator_is_out_immediately(harness: Harness, operator: Tab) -> None:
    harness.run(harness.services.operators.remove(ALICE))
    assert operator.get(PATH).reply.status == 404
    with pytest.raises(Problem, match="is not an operator"):
        harness.run(harness.services.operators.remove(ALICE))


def request_plan(harness: Harness) -> str:
    """Let bob request the plan, and return the id of his account."""
    open_console(harness, BOB, months=0).get("/console/plan").post("/console/plan/request")
    return str(harness.run(harness.services.accounts.find(BOB)).id)


def test_a_plan_is_started_once(harness: Harness, operator: Tab) -> None:
    account = request_plan(harness)
    assert BOB in operator.get(PATH).text
    for values in ({"account": account, "months": "25"}, {"account": "99", "months": "1"}, {"months": "1"}):
        assert operator.post(f"{PATH}/plan", **values).reply.status == 400
    operator.post(f"{PATH}/plan", account=account, months="1")
    assert "The plan is active." in operator.follow().text
    assert "No open requests" in operator.text
    end = harness.run(harness.services.accounts.find(BOB)).plan_expires_at
    assert operator.post(f"{PATH}/plan", account=account, months="1").reply.status == 400
    assert "already answered" in operator.text
    assert harness.run(harness.services.accounts.find(BOB)).plan_expires_at == end


def test_a_request_is_declined_with_a_reason(harness: Harness, operator: Tab) -> None:
    account = request_plan(harness)
    operator.get(PATH).post(f"{PATH}/plan", account=account, action="decline", reason="Tell us more")
    assert "The request is declined." in operator.follow().text
    tab = Tab(harness).sign_in(BOB)
    assert "Tell us more" in tab.get("/console/plan").text


def test_of_two_answers_to_a_request_one_fails(harness: Harness) -> None:
    form = FormData({"account": request_plan(harness), "action": "decline", "reason": "Tell us more"})

    async def decline_twice() -> list[str | BaseException]:
        answers = (answer_request(harness.services, form, ALICE) for _ in range(2))
        return await asyncio.gather(*answers, return_exceptions=True)

    assert {str(one) for one in harness.run(decline_twice())} == {
        "plan-declined",
        "This request is already answered",
    }


def test_a_report_is_closed(harness: Harness, operator: Tab) -> None:
    one = report(harness, create(harness, title="Red bicycle"))
    assert "Red bicycle" in operator.get(PATH).text
    assert "Asks for <money> first" in operator.text
    operator.post(f"{PATH}/report", report=one.id)
    assert "No open reports" in operator.follow().text
    assert operator.post(f"{PATH}/report", report=one.id).reply.status == 400


def test_a_reported_listing_is_taken_down_and_lifted(harness: Harness, operator: Tab) -> None:
    listing_id = create(harness, title="Red bicycle")
    form = {"listing": str(listing_id), "report": report(harness, listing_id).id}
    assert operator.get(PATH).post(f"{PATH}/takedown", **form, reason=" ").reply.status == 400
    operator.post(f"{PATH}/takedown", **form, reason="A <copy>")
    assert "No open reports" in operator.follow().text
    assert "A <copy>" in operator.text
    assert f", by {ALICE}" in operator.text
    assert get(harness, f"/listings/{listing_id}").status == 404
    operator.post(f"{PATH}/lift", listing=str(listing_id))
    assert "no longer taken down" in operator.follow().text
    assert get(harness, f"/listings/{listing_id}").status == 200


def test_a_report_of_a_listing_that_is_taken_down_is_closed(harness: Harness, operator: Tab) -> None:
    listing_id = create(harness)
    form = {"listing": str(listing_id), "report": report(harness, listing_id).id, "reason": "A copy"}
    harness.run(harness.services.moderation.take_down(listing_id, "First", "ops"))
    assert operator.get(PATH).post(f"{PATH}/takedown", **form).reply.status == 303
    assert "No open reports" in operator.follow().text
    assert "First" in operator.text


@pytest.mark.parametrize("listing", ["", "x", "1025", "9" * 30])
def test_an_unknown_listing_is_named(operator: Tab, listing: str) -> None:
    for path in ("takedown", "lift"):
        assert operator.get(PATH).post(f"{PATH}/{path}", listing=listing, reason="x").reply.status in {400, 404}


def test_unsent_mail_is_listed(harness: Harness, operator: Tab) -> None:
    mail = NewMail("m", "plan_started", BOB, 1, "{}", int(harness.clock()))
    harness.run(harness.store.add_mail(mail))
    harness.run(harness.store.postpone_mail("m", None))
    assert f"Plan started to {BOB}" in operator.get(PATH).text
    assert "can’t be sent again" in operator.text


@pytest.mark.usefixtures("restore_logging")
def test_everything_is_logged_with_the_operator(harness: Harness, operator: Tab) -> None:
    listing_id, account, stream = create(harness), request_plan(harness), io.BytesIO()
    one = report(harness, listing_id)
    logs.configure(stream, logging.INFO, as_json=True)
    with logs.write_in_thread():
        operator.post(f"{PATH}/takedown", listing=str(listing_id), reason="x")
        operator.post(f"{PATH}/lift", listing=str(listing_id))
        operator.post(f"{PATH}/report", report=one.id)
        operator.post(f"{PATH}/plan", account=account, months="2")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["event"], line["operator"]) for line in lines] == [
        (f"Took down listing {listing_id} of account 1", ALICE),
        (f"Lifted the takedown of listing {listing_id} of account 1", ALICE),
        ("Closed a report", ALICE),
        (f"Extended the plan of account {account} by months: 2", ALICE),
    ]


def test_a_plan_that_was_changed_meanwhile_is_not_extended(harness: Harness) -> None:
    open_console(harness, BOB, months=0)
    seen = harness.run(harness.services.accounts.find(BOB))
    harness.run(harness.services.accounts.extend_plan(BOB, 1, seen))
    with pytest.raises(Problem, match="The plan was changed meanwhile"):
        harness.run(harness.services.accounts.extend_plan(BOB, 1, seen))


async def prepare(services: Services) -> str:
    """Create alice with a report of each kind in her inbox, and return the secret of her second factor."""
    await services.sessions.sign_up("Alice", ALICE, PASSWORD, "192.0.2.1")
    alice = await services.accounts.extend_plan(ALICE, 12)
    bob = await services.accounts.add("Bob's Bicycles", BOB, None)
    await services.plan_requests.add(bob)
    now, listing_id = int(services.clock()), 0
    for number in range(2):
        new, _ = parse_new_listing({"title": f"Red bicycle {number}", "content": "Two wheels."})
        key = await services.keys.find((await services.keys.create(ALICE, f"key {number}")).secret)
        assert key is not None
        listing_id = (await services.listings.create(key, new)).listing_id
        report = ListingReport(f"abcd123{number}", alice.id, listing_id, "fraud", "Asks for money first", now)
        await services.revisions.add_listing_report(report, None)
    await services.moderation.take_down(listing_id, "It is a copy of another listing", ALICE)
    await services.revisions.add_mail(NewMail("m", "plan_started", BOB, bob.id, "{}", now))
    await services.revisions.postpone_mail("m", None)
    return (await services.operators.add(ALICE)).secret


@needs_chromium
@pytest.mark.slow
@pytest.mark.uncovered
def test_the_page_is_accessible_and_works_in_a_browser(tmp_path: Path) -> None:
    with (
        RunningService(tmp_path, sign_up="on", operator_page="on") as service,
        chromium() as browser,
        visit(browser, service.base_url, java_script_enabled=False) as plain,
        visit(browser, service.base_url) as seen,
    ):
        secret = service.run(prepare)
        page = seen.open(f"/sign-in?next={PATH}")
        page.get_by_label("Email").fill(ALICE)
        page.get_by_label("Password", exact=True).fill(PASSWORD)
        page.get_by_role("main").get_by_role("button", name="Sign in").click()
        page.get_by_label("Code").wait_for()
        found = list(find_axe_violations(page, "code"))
        page.get_by_label("Code").fill(TOTP(secret).now())
        page.get_by_role("button", name="Continue").click()
        page.get_by_text("Plan requests").wait_for()
        for summary in page.locator("details > summary").all():
            summary.click()
        found += find_axe_violations(page, "inbox")
        assert found == []
        resize(page, 320)
        assert page.evaluate("document.documentElement.scrollWidth") == 320
        assert plain.console_messages == seen.console_messages == []
        for one in page.context.cookies():
            plain.page.context.add_cookies([{"name": one["name"], "value": one["value"], "url": service.base_url}])
        plain.open(PATH).get_by_role("button", name="Show it again").click()
        plain.page.get_by_text("The listing is no longer taken down.").wait_for()
