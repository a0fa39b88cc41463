"""The form with which a buyer writes to a seller, and the seller's choice to get no messages."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from listings.domain.errors import Problem
from listings.site.message import SentMessages
from tests.harness import Harness, Person, RunningService, create_person, unused_port
from tests.mail_server import Mailbox, create_alice, deliver, mail_flags, run_mail_server
from tests.site.accessibility import find_axe_violations
from tests.site.browser import chromium, needs_chromium, resize, visit
from tests.site.market import create
from tests.site.tab import Tab, form_values, open_console, open_harness

ANA = {"name": "Ana", "email": "ana@example.com", "text": "Is it <still> there?"}

pytestmark = pytest.mark.decision("G52")


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    with run_mail_server() as mailbox:
        yield mailbox


@pytest.fixture
def harness(tmp_path: Path, mailbox: Mailbox, engine: str) -> Iterator[Harness]:
    assert engine
    with open_harness(tmp_path, **mail_flags(mailbox)) as harness:
        yield harness


@pytest.fixture
def alice(harness: Harness, mailbox: Mailbox) -> Person:
    return create_alice(harness, mailbox)


@pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)
def test_a_buyer_writes_to_the_seller_of_a_listing(harness: Harness, alice: Person, mailbox: Mailbox) -> None:
    listing_id = create(harness, alice)
    path, tab = f"/listings/{listing_id}/message", Tab(harness, "market.example")
    assert tab.get(f"/listings/{listing_id}").page.values("a", "href", rel="nofollow") == [path]
    invalid = tab.get(path).post(path, **ANA | {"email": "ana"})
    assert (invalid.reply.status, "Enter your email address" in invalid.text) == (400, True)
    assert ANA["text"] in invalid.text
    assert invalid.page.values("input", "aria-describedby") == ["problem email-hint"]
    sent = tab.post(path, **ANA).follow()
    assert "Your message was sent." in sent.text
    assert alice.account.email not in sent.text
    assert sent.page.texts.count("Message sent · Bicycle · Listings") == 1
    deliver(harness)
    assert mailbox.recipients == [alice.account.email]
    assert "> Is it <still> there?" in mailbox.text
    assert "Your message was sent." not in tab.get(path).text


def test_a_form_that_is_sent_twice_sends_one_message(harness: Harness, alice: Person, mailbox: Mailbox) -> None:
    path = f"/listings/{create(harness, alice)}/message"
    tab = Tab(harness, "market.example").get(path)
    form_id = form_values(tab)["form_id"]
    for text in ("Hello", "Hello", "Hello again"):
        assert tab.post(path, **ANA | {"form_id": form_id, "text": text}).reply.status == 303
    deliver(harness)
    assert ["> Hello again" in message.get_content() for message in mailbox.messages] in ([False, True], [True, False])


def test_a_form_whose_message_failed_can_be_sent_again() -> None:
    outcomes = [Problem("too_many_attempts", "Wait"), None]

    async def send() -> None:
        await asyncio.sleep(0)
        if (problem := outcomes.pop(0)) is not None:
            raise problem

    async def send_three_times() -> list[BaseException | None]:
        sent = SentMessages()
        both = await asyncio.gather(*(sent.send_once(b"x", send) for _ in range(2)), return_exceptions=True)
        await sent.send_once(b"x", send)
        return both

    first, second = asyncio.run(send_three_times())
    assert isinstance(first, Problem)
    assert (first is second, outcomes) == (True, [])


def test_a_program_or_a_foreign_form_sends_nothing(harness: Harness, alice: Person, mailbox: Mailbox) -> None:
    path = f"/listings/{create(harness, alice)}/message"
    tab = Tab(harness, "market.example").get(path)
    assert "Your message was sent." in tab.post(path, **ANA, subject="Buy now").follow().text
    assert tab.post(path, **ANA, token="x").reply.status == 403
    deliver(harness)
    assert mailbox.messages == []


def test_too_many_messages_are_rejected_with_the_time_to_wait(harness: Harness, alice: Person) -> None:
    path = f"/listings/{create(harness, alice)}/message"
    tab = Tab(harness, "market.example").get(path)
    statuses = [tab.post(path, **ANA).reply.status for _ in range(6)]
    assert (statuses, tab.reply.headers["retry-after"]) == ([303] * 5 + [429], "3600")
    assert "Too many messages in the last hour: wait 60 minutes, then try again." in tab.text


def test_a_buyer_is_told_if_the_message_can_not_be_stored(harness: Harness, alice: Person, tmp_path: Path) -> None:
    path = f"/listings/{create(harness, alice)}/message"
    tab = Tab(harness, "market.example").get(path)
    database = tmp_path / "listings.db"
    away = database.rename(tmp_path / "away")
    assert tab.post(path, **ANA).reply.status == 503
    away.rename(database)
    assert "Your message may not have been sent. Try again in a few minutes." in tab.text
    assert ANA["text"] in tab.text


def test_a_seller_turns_messages_off_and_on(harness: Harness) -> None:
    open_console(harness)
    tab, buyer = Tab(harness, "market.example").sign_in("alice@example.com"), Tab(harness, "market.example")
    account = harness.run(harness.services.accounts.find("alice@example.com"))
    issued = harness.run(harness.services.keys.create("alice@example.com", "k"))
    page = f"/listings/{create(harness, Person(account, issued.secret, issued.key.id))}"
    assert "Message the seller" not in tab.get(page).text  # it is her own
    tab.get("/console/account").post("/console/account/messages", messages="off").follow()
    assert "Buyers can no longer send you messages." in tab.text
    assert "Message the seller" not in buyer.get(page).text
    assert buyer.get(f"{page}/message").reply.status == 404
    tab.post("/console/account/messages", messages="on").follow()
    assert "Message the seller" in buyer.get(page).text
    assert "To message this seller, open one of the listings." in buyer.get(f"/sellers/{account.id}").text
    assert "turned messages from buyers off" in tab.get("/console/activity").text


def test_without_mail_no_page_offers_messages(tmp_path: Path) -> None:
    with open_harness(tmp_path / "b") as harness:
        page = f"/listings/{create(harness, harness.person('alice'))}"
        assert "Message the seller" not in Tab(harness).get(page).text
        assert Tab(harness).get(f"{page}/message").reply.status == 404
        assert "messages" not in open_console(harness).get("/console/account").text


@needs_chromium
@pytest.mark.slow
@pytest.mark.uncovered
def test_the_form_is_accessible_and_works_in_a_browser(tmp_path: Path, mailbox: Mailbox) -> None:
    with unused_port() as port:
        pass
    flags: dict[str, Any] = {**mail_flags(mailbox), "port": str(port), "base_url": f"http://127.0.0.1:{port}"}
    with RunningService(tmp_path, **flags) as service, chromium() as browser, visit(browser, service.base_url) as seen:
        alice = service.run(lambda services: create_person(services, "alice", 1e6))
        url, body = f"{service.base_url}/api/v1/listings", {"title": "Lamp", "content": "A lamp."}
        listing_id = httpx2.post(url, json=body, headers={"X-Api-Key": alice.key}).json()["id"]
        found = list(find_axe_violations(seen.open(f"/listings/{listing_id}"), "listing"))
        seen.page.get_by_role("link", name="Message the seller").click()
        seen.page.get_by_role("button", name="Send message").wait_for()
        resize(seen.page, 320)
        assert seen.page.evaluate("document.documentElement.scrollWidth") == 320
        found += find_axe_violations(seen.page, "message")
        for label, value in (("Your name", "Ana"), ("Your email", "ana@example.com"), ("Message", "Hello")):
            seen.page.get_by_label(label, exact=True).fill(value)
        seen.page.get_by_role("button", name="Send message").click()
        seen.page.get_by_text("Your message was sent.").wait_for()
        assert [*found, *find_axe_violations(seen.page, "sent")] == []
