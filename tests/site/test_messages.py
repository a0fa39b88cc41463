"""The form with which a buyer writes to a seller, and the seller's choice to get no messages."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from listings.domain.errors import Problem
from listings.domain.timestamps import DAY_SECONDS
from listings.service.mail.messages import suggest_email
from listings.site.context import SentMessages
from tests.harness import Harness, Person, RunningService, create_person, unused_port
from tests.mail_server import Mailbox, create_alice, deliver, mail_flags, read_text
from tests.site.accessibility import find_axe_violations
from tests.site.browser import chromium, needs_chromium, resize, visit
from tests.site.market import create
from tests.site.tab import Tab, form_values, open_console, open_harness

ANA = {"name": "Ana", "email": "ana@example.com", "text": "Is it <still> there?"}

pytestmark = pytest.mark.decision("G52")


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
    assert path in tab.get(f"/listings/{listing_id}").page.values("a", "href", rel="nofollow")
    invalid = tab.get(path).post(path, **ANA | {"email": "ana"})
    assert (invalid.reply.status, "Enter your email address" in invalid.text) == (400, True)
    assert ANA["text"] in invalid.text
    assert invalid.page.values("input", "aria-describedby") == ["problem email-hint"]
    sent = tab.post(path, **ANA)
    assert "Your message was sent. alice can reply to ana@example.com ." in sent.text
    assert alice.account.email not in sent.text
    assert sent.page.texts.count("Message sent · Bicycle · Listings") == 1
    deliver(harness)
    assert mailbox.recipients == [alice.account.email]
    assert "> Is it <still> there?" in mailbox.text
    assert "Your message was sent." not in tab.get(path).text


def test_a_buyer_corrects_a_mistyped_address(harness: Harness, alice: Person, mailbox: Mailbox) -> None:
    path = f"/listings/{create(harness, alice)}/message"
    sent = Tab(harness, "market.example").get(path).post(path, **ANA | {"email": "ana@gmial.com"})
    assert "Did you mean ana@gmail.com ?" in sent.text
    values = form_values(sent)
    assert (values["name"], values["email"]) == ("Ana", "ana@gmail.com")
    assert "Did you mean" not in sent.post(path, **ANA | values).text
    deliver(harness)
    assert {message["Reply-To"] for message in mailbox.messages} == {"Ana <ana@gmial.com>", "Ana <ana@gmail.com>"}


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("jean@gmial.com", "jean@gmail.com"),
        (" jean@GMAIL.CON ", "jean@gmail.com"),
        ("jean@hotmail.co", "jean@hotmail.com"),
        ("jean@xtra.co.n", "jean@xtra.co.nz"),
        ("jean@gmail.com", ""),
        ("jean@mail.example", ""),
        ("jean@gmx.de", ""),
        ("gmial.com", ""),
        ("", ""),
    ],
)
def test_near_misses_of_common_domains_are_pointed_out(typed: str, meant: str) -> None:
    assert suggest_email(typed) == meant


def test_a_confirmation_has_nothing_that_the_sender_typed(harness: Harness, alice: Person, mailbox: Mailbox) -> None:
    listing_id = create(harness, alice)
    path = f"/listings/{listing_id}/message"
    Tab(harness, "market.example").get(path).post(path, **ANA | {"copy": "on"})
    deliver(harness)
    (copy,) = (message for message in mailbox.messages if message["To"] == ANA["email"])
    assert copy["Subject"] == "Your message about: Bicycle"
    text = read_text(copy)
    assert f"/listings/{listing_id}" in text
    assert "Ana" not in text
    assert "still" not in text
    assert copy["Reply-To"] is None


def open_shop(harness: Harness) -> tuple[Tab, Person]:
    """Return the console of Alice, and her with a key."""
    open_console(harness)
    account = harness.run(harness.services.accounts.find("alice@example.com"))
    issued = harness.run(harness.services.keys.create("alice@example.com", "k"))
    return Tab(harness, "market.example").sign_in(account.email), Person(account, issued.secret, issued.key.id)


def test_a_seller_reads_messages_newest_first(harness: Harness) -> None:
    seller, alice = open_shop(harness)
    listing_id = create(harness, alice, title="Blue & <red> boat")
    path, tab = f"/listings/{listing_id}/message", Tab(harness, "market.example")
    for number in range(26):
        tab.cookies.clear()
        assert tab.get(path).post(path, **ANA | {"text": f"Number {number}.\nBye"}).reply.status == 200
        harness.clock.advance(60 * 10)
    seller.get("/console/messages")
    assert seller.text.index("Number 25. Bye") < seller.text.index("Number 1. Bye")
    assert "Ana about Blue & <red> boat" in seller.text
    assert "mailto:ana@example.com?subject=Re%3A%20Blue%20%26%20%3Cred%3E%20boat" in seller.page.values("a", "href")
    assert "Number 0." not in seller.text
    (older,) = filter(None, seller.page.values("a", "href", rel="next"))
    assert "Number 0. Bye" in seller.get(older).text
    assert "Messages 26 in the last 7 days; 0 in the 7 days before" in seller.get("/console").text
    assert "No more messages" in seller.get("/console/messages?before=1-0123456789abcdef").text


def test_messages_end_after_their_days(harness: Harness, alice: Person) -> None:
    path, tab = f"/listings/{create(harness, alice)}/message", Tab(harness, "market.example")
    tab.get(path).post(path, **ANA)
    for days, is_stored in ((89, True), (2, False)):
        harness.clock.advance(days * DAY_SECONDS)
        harness.run(harness.services.messages.purge())
        assert bool(harness.run(harness.services.messages.list_page(alice.account))) is is_stored


def test_messages_may_be_counted_only(tmp_path: Path, mailbox: Mailbox) -> None:
    with open_harness(tmp_path / "b", message_days="0", **mail_flags(mailbox)) as harness:
        seller, alice = open_shop(harness)
        path, tab = f"/listings/{create(harness, alice)}/message", Tab(harness, "market.example")
        tab.get(path).post(path, **ANA)
        assert harness.run(harness.services.messages.list_page(alice.account)) == []
        assert "Messages 1 in the last 7 days" in seller.get("/console").text
        assert "are sent to alice@example.com and not stored here" in seller.get("/console/messages").text


def test_a_form_that_is_sent_twice_sends_one_message(harness: Harness, alice: Person, mailbox: Mailbox) -> None:
    path = f"/listings/{create(harness, alice)}/message"
    tab = Tab(harness, "market.example").get(path)
    form_id = form_values(tab)["form_id"]
    for text in ("Hello", "Hello", "Hello again"):
        assert tab.post(path, **ANA | {"form_id": form_id, "text": text}).reply.status == 200
    deliver(harness)
    assert ["> Hello again" in read_text(message) for message in mailbox.messages] in ([False, True], [True, False])


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
    assert "Your message was sent." in tab.post(path, **ANA, subject="Buy now").text
    assert tab.get(path).post(path, **ANA, token="x").reply.status == 403
    deliver(harness)
    assert mailbox.messages == []


def test_too_many_messages_are_rejected_with_the_time_to_wait(harness: Harness, alice: Person) -> None:
    path = f"/listings/{create(harness, alice)}/message"
    tab = Tab(harness, "market.example").get(path)
    statuses = [tab.get(path).post(path, **ANA).reply.status for _ in range(11)]
    assert (statuses, tab.reply.headers["retry-after"]) == ([200] * 10 + [429], "3600")
    assert "Too many messages in the last hour: wait 60 minutes, then try again." in tab.text
    other = Tab(harness, "market.example").get(path)
    assert other.post(path, **ANA).reply.status == 200  # somebody else of the same network


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
    tab, alice = open_shop(harness)
    buyer, account = Tab(harness, "market.example"), alice.account
    page = f"/listings/{create(harness, alice)}"
    assert "Message the seller" not in tab.get(page).text  # it is her own
    tab.get("/console/account").post("/console/account/messages", messages="off").follow()
    assert "Buyers can no longer send you messages." in tab.text
    assert "Message the seller" not in buyer.get(page).text
    assert buyer.get(f"{page}/message").reply.status == 404
    tab.post("/console/account/messages", messages="on").follow()
    assert "Message the seller" in buyer.get(page).text
    assert "Message the seller" in buyer.get(f"/sellers/{account.id}").text
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


def test_a_buyer_writes_to_a_shop(harness: Harness, mailbox: Mailbox) -> None:
    tab, alice = open_shop(harness)
    create(harness, alice)
    path = f"/sellers/{alice.account.id}/message"
    buyer = Tab(harness, "market.example").get(path)
    buyer.post(path, name="Ana", email="ana@example.com", text="When do you open?")
    assert "Your message was sent." in buyer.text
    assert "Ana about your shop When do you open?" in tab.get("/console/messages").text
    deliver(harness)
    (text,) = (read_text(mail) for mail in mailbox.messages if mail["Subject"] == "Message about: Alice")
    assert 'wrote to you about your shop "Alice":' in text
    assert f"/sellers/{alice.account.id}\r\n" in text
    assert Tab(harness, "market.example").get("/sellers/99/message").reply.status == 404
