"""The pages that reset a forgotten password, with and without mail."""

import re
from pathlib import Path

import pytest

from tests.harness import Harness
from tests.mail_server import Mailbox, mail_flags
from tests.site.tab import PASSWORD, Tab, open_console, open_harness

DAY = 24 * 3600
NEW_PASSWORD = "green hills sleep 4"


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


def reset(harness: Harness, mailbox: Mailbox) -> Tab:
    """Reset alice's password in another browser, and return its next page."""
    harness.run(harness.services.mailer.send_due())
    tab = Tab(harness, "market.example")
    request_reset(tab, "alice@example.com")
    harness.run(harness.services.mailer.send_due())
    return tab.get(mailbox.link).post(mailbox.link, password=NEW_PASSWORD).follow()


def create_key(tab: Tab, name: str) -> str:
    tab.get("/console/keys").post("/console/keys", name=name)
    return tab.page.values("input", "value", id="secret")[0] or ""


@pytest.mark.decision("G25")
def test_a_reset_takes_an_unconfirmed_account_from_a_stranger(tmp_path: Path, mailbox: Mailbox) -> None:
    with open_harness(tmp_path, **mail_flags(mailbox)) as harness:
        open_console(harness)
        secret = create_key(Tab(harness, "market.example").sign_in("alice@example.com"), "Backdoor")
        harness.clock.advance(100 * DAY)
        for _ in range(16):
            harness.run(harness.services.activity.purge())
        operator = harness.run(harness.services.keys.create("alice@example.com", "Till"))
        tab = reset(harness, mailbox)
        assert "API keys that were created in the console before were revoked" in tab.text
        [row] = re.findall(r"Active keys.*?Never Never", tab.text)
        assert "Backdoor" not in row
        assert f"Till {operator.key.hint}" in row
        assert "Revoked and expired keys (1)" in tab.text
        statuses = [harness.fetch("GET", "/api/v1/listings", key=key).status for key in (secret, operator.secret)]
        assert statuses == [401, 200]
        assert "revoked the key Backdoor" in tab.get("/console/activity").text
        assert "Confirmed" in tab.get("/console/account").text


@pytest.mark.decision("G25")
def test_a_reset_of_a_confirmed_address_shows_the_active_keys(tmp_path: Path, mailbox: Mailbox) -> None:
    with open_harness(tmp_path, **mail_flags(mailbox)) as harness:
        open_console(harness)
        tab = Tab(harness, "market.example").sign_in("alice@example.com")
        harness.run(harness.services.mailer.send_due())
        tab.get("/console/account").post("/console/account/email/confirm")
        harness.run(harness.services.mailer.send_due())
        tab.get(mailbox.link).post(mailbox.link)
        secret = create_key(tab, "Till")
        other = reset(harness, mailbox)
        assert "The active API keys still work: open any that you do not know, and revoke it." in other.text
        assert f"Till {secret[:4]}…{secret[-4:]}" in other.text
        assert harness.fetch("GET", "/api/v1/listings", key=secret).status == 200
        other.get("/console/keys/1").post("/console/keys/1/revoke")
        assert harness.fetch("GET", "/api/v1/listings", key=secret).status == 401
