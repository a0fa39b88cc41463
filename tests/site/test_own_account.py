"""The account page: name, email with and without mail, and closing the account."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from listings.domain.errors import Problem
from tests.harness import Harness
from tests.mail_server import Mailbox, deliver, mail_flags
from tests.site.tab import PASSWORD, Tab, open_console, open_harness

PATH, NEW = "/console/account", "alice@new.example"


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with open_harness(tmp_path) as harness:
        yield harness


@pytest.fixture
def mailing(tmp_path: Path, mailbox: Mailbox) -> Iterator[Harness]:
    with open_harness(tmp_path, **mail_flags(mailbox)) as harness:
        yield harness


def open_mailing_console(harness: Harness, mailbox: Mailbox) -> Tab:
    """Return alice's tab, after the mail about her sign-up and sign-in was sent."""
    open_console(harness)
    tab = Tab(harness, "market.example").sign_in("alice@example.com").get(PATH)
    deliver(harness)
    mailbox.messages.clear()
    mailbox.recipients.clear()
    return tab


def exists(harness: Harness, email: str) -> bool:
    try:
        harness.run(harness.services.accounts.find(email))
    except Problem:
        return False
    return True


def try_taken_email(tab: Tab) -> list[int]:
    fields = {"email": "bob@example.com", "password": PASSWORD}
    return [tab.post(f"{PATH}/email", **fields).reply.status for _ in range(6)]


def test_a_seller_changes_the_name(harness: Harness) -> None:
    tab = open_console(harness)
    assert "A name must have" in tab.post(f"{PATH}/name", name=" ").text
    assert "Name saved." in tab.post(f"{PATH}/name", name="Alice & Co").follow().text
    assert "Alice & Co" in tab.text
    assert "You updated the account" in tab.get("/console/activity").text


def test_without_mail_the_email_changes_immediately(harness: Harness) -> None:
    open_console(harness, "bob@example.com")
    tab = open_console(harness)
    assert tab.post(f"{PATH}/email", email=NEW, password="wrong password").reply.status == 403
    assert tab.page.values("input", "value", id="email") == [NEW]
    assert tab.page.values("input", "id", aria_invalid="true") == ["email-password"]
    assert tab.post(f"{PATH}/email", email="bob@example.com", password=PASSWORD).reply.status == 409
    assert tab.page.values("input", "id", aria_invalid="true") == ["email"]
    assert "Email saved." in tab.post(f"{PATH}/email", email=NEW, password=PASSWORD).follow().text
    assert "You changed the email of the account" in tab.get("/console/activity").text
    assert Tab(harness).sign_in(NEW).reply.status == 303


def test_a_seller_can_try_five_emails_of_others_in_an_hour(harness: Harness) -> None:
    open_console(harness, "bob@example.com")
    assert try_taken_email(open_console(harness)) == [409] * 5 + [429]


def test_with_mail_a_seller_can_try_five_emails_of_others_in_an_hour(mailing: Harness, mailbox: Mailbox) -> None:
    open_console(mailing, "bob@example.com")
    assert try_taken_email(open_mailing_console(mailing, mailbox)) == [409] * 5 + [429]


def test_with_mail_the_email_changes_when_its_owner_confirms_it(mailing: Harness, mailbox: Mailbox) -> None:
    tab = open_mailing_console(mailing, mailbox)
    assert "A link was sent" in tab.post(f"{PATH}/email", email=NEW, password=PASSWORD).follow().text
    deliver(mailing)
    assert mailbox.recipients[-1] == NEW
    visitor, link = Tab(mailing, "market.example"), mailbox.link
    assert f"Is {NEW} the email address of the account Alice" in visitor.get(link).text
    assert not exists(mailing, NEW)
    assert visitor.post(link, token="x").reply.status == 403
    visitor.get(link).post(link)
    assert exists(mailing, NEW)
    assert visitor.get(link).reply.status == 404
    assert visitor.page.values("a", "href", class_="button") == ["/console/account"]
    assert "Confirmed" in tab.get(PATH).text
    deliver(mailing)
    assert mailbox.recipients[-1] == "alice@example.com"
    assert f"is now {NEW}" in mailbox.text


def test_a_new_seller_learns_of_the_mail_that_confirms_the_email(mailing: Harness) -> None:
    tab = Tab(mailing, "market.example").get("/sign-up")
    tab.post("/sign-up", name="Rata", email="rata@example.com", password=PASSWORD)
    assert "We sent a link to your email" in tab.follow().text


def test_the_email_of_an_account_can_be_confirmed_later(mailing: Harness, mailbox: Mailbox) -> None:
    tab = open_mailing_console(mailing, mailbox)
    tab.post(f"{PATH}/email/confirm")
    deliver(mailing)
    tab.get(mailbox.link).post(mailbox.link)
    assert "Your email is confirmed." in tab.follow().text
    assert "Send a link to confirm" not in tab.text
    for _ in range(4):
        assert tab.post(f"{PATH}/email/confirm").reply.status == 303
    assert tab.post(f"{PATH}/email/confirm").reply.status == 429


def test_with_mail_the_present_email_gets_a_link_too(mailing: Harness, mailbox: Mailbox) -> None:
    tab = open_mailing_console(mailing, mailbox)
    tab.post(f"{PATH}/email", email="alice@example.com", password=PASSWORD)
    assert "A link was sent" in tab.follow().text
    deliver(mailing)
    tab.get(mailbox.link).post(mailbox.link)
    assert "Your email is confirmed." in tab.follow().text


def test_an_address_that_was_taken_meanwhile_is_not_confirmed(mailing: Harness, mailbox: Mailbox) -> None:
    tab = open_mailing_console(mailing, mailbox)
    tab.post(f"{PATH}/email", email=NEW, password=PASSWORD)
    deliver(mailing)
    link = mailbox.link
    mailing.run(mailing.services.accounts.add("Mallory", NEW, None))
    assert tab.get(link).post(link).reply.status == 409


def test_both_pages_say_that_the_texts_of_listings_are_deleted(harness: Harness) -> None:
    tab = open_console(harness)
    for path in (PATH, f"{PATH}/close"):
        assert "texts and image URLs" in tab.get(path).text
    assert "Export as JSON Lines" in tab.text


def test_a_closed_account_is_erased_in_the_background(harness: Harness) -> None:
    tab = open_console(harness)
    account = harness.run(harness.services.accounts.find("alice@example.com"))
    assert tab.get(f"{PATH}/close").page.values("a", "href", href="/console/export?format=csv")
    for email, password, wrong in (("alice", PASSWORD, "email"), ("alice@example.com", "wrong password", "password")):
        assert tab.post(f"{PATH}/close", email=email, password=password).reply.status in {400, 403}
        assert tab.page.values("input", "id", aria_invalid="true") == [wrong]
        assert tab.page.values("input", "value", id="email") == [email]
    tab.post(f"{PATH}/close", email="alice@example.com", password=PASSWORD)
    assert "Your account is closed." in tab.follow().text
    assert tab.get("/console").reply.headers["location"].startswith("/sign-in")
    assert harness.run(harness.services.accounts.find(str(account.id))).disabled_at is not None
    assert "You closed this account. It is being erased" in tab.sign_in("alice@example.com", PASSWORD).text
    harness.run(harness.services.own_account.erase_closed())
    assert harness.run(harness.services.accounts.find(str(account.id))).name == f"Erased account {account.id}"
    assert not exists(harness, "alice@example.com")
