"""The pages that reset a forgotten password, with and without mail."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mail_server import Mailbox, mail_flags, run_mail_server
from tests.site.tab import PASSWORD, Tab, open_console, open_harness

NEW_PASSWORD = "green hills sleep 4"


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    with run_mail_server() as mailbox:
        yield mailbox


def request_reset(tab: Tab, email: str) -> str:
    return tab.get("/reset-password").post("/reset-password", email=email).text


def test_a_forgotten_password_is_replaced_by_mail(tmp_path: Path, mailbox: Mailbox) -> None:
    with open_harness(tmp_path, **mail_flags(mailbox)) as harness:
        open_console(harness)
        harness.run(harness.services.mailer.send_due())  # about the sign-in
        tab = Tab(harness, "market.example")
        assert tab.get("/sign-in").page.values("a", "href", href="/reset-password")
        known, unknown = (request_reset(tab, email) for email in ("alice@example.com", "bobby@example.com"))
        assert unknown == known.replace("alice", "bobby")
        harness.run(harness.services.mailer.send_due())
        assert mailbox.recipients[-1] == "alice@example.com"
        tab.get(mailbox.link).post(mailbox.link, password=NEW_PASSWORD)
        assert tab.reply.headers["location"] == "/console"
        assert "Password saved. All other devices were signed out." in tab.follow().text
        assert tab.get(mailbox.link).reply.status == 404
        assert "/reset-password" in tab.page.values("a", "href", class_="button")
        assert Tab(harness, "market.example").sign_in("alice@example.com", PASSWORD).reply.status == 403
        assert Tab(harness, "market.example").sign_in("alice@example.com", NEW_PASSWORD).reply.status == 303


def test_an_invalid_or_foreign_form_sends_nothing(tmp_path: Path, mailbox: Mailbox) -> None:
    with open_harness(tmp_path, **mail_flags(mailbox)) as harness:
        open_console(harness)
        harness.run(harness.services.mailer.send_due())
        mailbox.messages.clear()
        tab = Tab(harness, "market.example").get("/reset-password")
        assert "is not an email address" in tab.post("/reset-password", email="alice").text
        assert tab.post("/reset-password", email="alice@example.com", token="x").reply.status == 403
        harness.run(harness.services.mailer.send_due())
        assert mailbox.messages == []


def test_without_mail_the_page_shows_whom_to_ask(tmp_path: Path) -> None:
    with open_harness(tmp_path, contact="help@market.example") as harness:
        tab = Tab(harness).get("/reset-password")
        assert "Ask its operator for a link" in tab.text
        assert tab.page.values("a", "href", href="mailto:help@market.example")
        assert "Send link" not in tab.text
        assert tab.post("/reset-password", email="alice@example.com").reply.status == 404
