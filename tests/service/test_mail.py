"""Mail: the queue, attempts, and the texts of notices, with a real SMTP server."""

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from listings.domain.errors import Problem
from listings.domain.mail import NewMail
from listings.domain.model import Account
from listings.service import mail as service_mail
from listings.service.mail import smtp
from listings.service.mail.html import write_html
from listings.wiring import build_mail_server
from tests.certificates import create_certificate
from tests.harness import Harness, RunningService, cheap_passwords, load_test_settings, unused_port
from tests.mail_server import Mailbox, deliver, mail_flags, read_text, run_mail_server
from tests.waiting import until

HOUR, DAY = 3600, 24 * 3600
PASSWORD = "wide rivers run 7"
ALICE = "alice@example.com"

pytestmark = pytest.mark.decision("G49")


@contextmanager
def open_harness(folder: Path, mailbox: Mailbox, **flags: str) -> Iterator[Harness]:
    with cheap_passwords(), Harness(folder, sign_up="on", **{**mail_flags(mailbox), **flags}) as harness:
        yield harness


@pytest.fixture
def harness(tmp_path: Path, mailbox: Mailbox) -> Iterator[Harness]:
    with open_harness(tmp_path, mailbox) as harness:
        yield harness


def request_reset(harness: Harness, email: str = ALICE) -> None:
    harness.run(harness.services.sessions.request_reset(email, "192.0.2.1"))


def add_alice(harness: Harness) -> None:
    harness.run(harness.services.accounts.add("Alice", ALICE, None))


def queue_reset(harness: Harness) -> None:
    add_alice(harness)
    request_reset(harness)


def set_plan_without_mail(harness: Harness, seconds: int) -> None:
    """Set the end of Alice's plan, in seconds from now, without a mail."""
    account, end = harness.run(harness.services.accounts.find(ALICE)), int(harness.clock()) + seconds
    harness.run(harness.services.accounts.change_own(account, {"plan_expires_at": end}))


def test_a_mail_has_the_headers_of_automatic_mail(tmp_path: Path, mailbox: Mailbox) -> None:
    with open_harness(tmp_path, mailbox, market_name="Tāone") as harness:
        queue_reset(harness)
        deliver(harness)
        deliver(harness)
    [message] = mailbox.messages
    assert mailbox.recipients == [ALICE]
    assert (message["From"], message["To"]) == ("Tāone <no-reply@market.example>", ALICE)
    assert message["Auto-Submitted"] == "auto-generated"
    assert message["Message-ID"].endswith("@market.example>")


def test_a_refused_mail_is_sent_again_with_growing_pauses(
    harness: Harness, mailbox: Mailbox, caplog: pytest.LogCaptureFixture
) -> None:
    queue_reset(harness)
    mailbox.refusals = ["451 alice@example.com is busy"] * 2
    for seconds in (0, 59, 1, 119, 1):
        assert mailbox.messages == []
        harness.clock.advance(seconds)
        deliver(harness)
    assert len(mailbox.messages) == 1
    assert "next attempt in 60 s: SMTPDataError 451" in caplog.text
    assert ALICE not in caplog.text


def test_a_mail_is_given_up_after_three_days(
    harness: Harness, mailbox: Mailbox, caplog: pytest.LogCaptureFixture
) -> None:
    queue_reset(harness)
    mailbox.refusals = ["451 busy"] * 100
    for _ in range(3 * 24 + 1):
        deliver(harness)
        harness.clock.advance(HOUR)
    assert "Gave up on mail" in caplog.text
    mailbox.refusals = []
    harness.clock.advance(30 * DAY)
    deliver(harness)
    assert mailbox.messages == []


def test_a_mail_that_waited_for_three_days_is_not_sent(harness: Harness, mailbox: Mailbox) -> None:
    queue_reset(harness)
    harness.clock.advance(3 * DAY + 1)
    deliver(harness)
    assert mailbox.messages == []


def test_a_mail_that_the_server_rejects_is_given_up_immediately(
    harness: Harness, mailbox: Mailbox, caplog: pytest.LogCaptureFixture
) -> None:
    queue_reset(harness)
    mailbox.refusals = ["554 no"]
    deliver(harness)
    assert "at attempt 1: SMTPDataError 554" in caplog.text


def test_the_log_says_why_a_server_is_unreachable(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    queue_reset(harness)
    server = harness.services.mailer._server  # noqa: SLF001 - of the settings
    assert server is not None
    harness.services.mailer._server = server._replace(port=1)  # noqa: SLF001
    deliver(harness)
    assert "SMTPConnectError Error connecting to 127.0.0.1 on port 1" in caplog.text
    assert ALICE not in caplog.text


def test_an_unexpected_error_of_one_mail_does_not_stop_the_others(
    harness: Harness, mailbox: Mailbox, caplog: pytest.LogCaptureFixture
) -> None:
    add_alice(harness)
    broken = NewMail("m", "key_created", ALICE, None, "[]", int(harness.clock()) - 1)
    harness.run(harness.store.add_mail(broken))
    request_reset(harness)
    deliver(harness)
    assert mailbox.subjects == ["Set a new password"]
    assert "Mail m (key_created) failed unexpectedly" in caplog.text
    assert "next attempt in 60 s: AttributeError" in caplog.text


def test_mail_waits_while_the_server_is_unreachable(tmp_path: Path) -> None:
    with unused_port() as port:
        nowhere = Mailbox()
        nowhere.url = f"smtp://127.0.0.1:{port}"
        with open_harness(tmp_path, nowhere) as harness:
            queue_reset(harness)
            deliver(harness)
    with run_mail_server() as mailbox, open_harness(tmp_path, mailbox) as harness:
        harness.clock.advance(HOUR)
        deliver(harness)
        assert mailbox.subjects == ["Set a new password"]


def test_a_running_service_sends_mail_by_itself(tmp_path: Path, mailbox: Mailbox) -> None:
    flags: dict[str, Any] = {**mail_flags(mailbox)}
    with RunningService(tmp_path, **flags) as service:
        service.run(lambda services: services.accounts.add("Alice", ALICE, None))
        service.run(lambda services: services.sessions.request_reset(ALICE, "192.0.2.1"))
        assert until(lambda: bool(mailbox.messages))


async def stop_while_sending(harness: Harness, mailbox: Mailbox, command: str) -> float:
    """Cancel the sending of mail once the server has received a command. Return the seconds that this takes."""
    task = asyncio.create_task(harness.services.mailer.send_due())
    assert await asyncio.to_thread(until, lambda: command in mailbox.received)
    started = monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return monotonic() - started


def test_a_stop_waits_briefly_for_the_mail_that_is_being_sent(harness: Harness, mailbox: Mailbox) -> None:
    queue_reset(harness)
    request_reset(harness)
    mailbox.delays["DATA"] = 0.5
    harness.run(stop_while_sending(harness, mailbox, "DATA"))
    assert len(mailbox.messages) == 1  # the other one is not claimed
    mailbox.delays["DATA"] = 0
    deliver(harness)
    harness.clock.advance(HOUR)
    deliver(harness)
    assert len({message["Message-ID"] for message in mailbox.messages}) == len(mailbox.messages) == 2


def test_a_mail_that_a_stop_interrupts_before_its_text_is_due_immediately(
    harness: Harness, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_mail, "STOP_SECONDS", 0.1)
    queue_reset(harness)
    mailbox.delays["RCPT"] = 20
    assert harness.run(stop_while_sending(harness, mailbox, "RCPT")) < 10
    mailbox.delays["RCPT"] = 0
    deliver(harness)
    assert len(mailbox.messages) == 1


def test_a_mail_whose_text_was_sent_is_not_sent_again_at_each_restart(
    harness: Harness, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_mail, "STOP_SECONDS", 0.1)
    queue_reset(harness)
    mailbox.delays["DATA"] = 20
    assert harness.run(stop_while_sending(harness, mailbox, "DATA")) < 10
    for _ in range(2):
        harness.clock.advance(100)
        deliver(harness)
    assert len(mailbox.messages) == 1
    mailbox.delays["DATA"] = 0
    harness.clock.advance(100)  # nobody knows whether the server accepted it
    deliver(harness)
    assert len({message["Message-ID"] for message in mailbox.messages}) == 1
    assert len(mailbox.messages) == 2


def test_a_server_may_take_longer_for_a_text_than_for_a_command(
    harness: Harness, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smtp, "TIMEOUT_SECONDS", 1)
    queue_reset(harness)
    mailbox.delays["DATA"] = 1.5
    deliver(harness)
    harness.clock.advance(HOUR)
    deliver(harness)
    assert len(mailbox.messages) == 1


def test_a_server_that_does_not_answer_delays_others_less_than_the_claim(
    harness: Harness, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("listings.service.mail.smtp.MAX_SECONDS", 1)
    queue_reset(harness)
    mailbox.delays["DATA"] = 20
    started = monotonic()
    deliver(harness)
    assert monotonic() - started < 10
    assert "next attempt in 60 s: TimeoutError" in caplog.text


def test_an_accepted_mail_is_not_sent_again_after_a_stop(
    harness: Harness, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_mail, "STOP_SECONDS", 0.1)
    queue_reset(harness)
    mailbox.delays["QUIT"] = 20
    assert harness.run(stop_while_sending(harness, mailbox, "QUIT")) < 10
    harness.clock.advance(HOUR)
    deliver(harness)
    assert len(mailbox.messages) == 1


def test_mail_is_sent_over_tls_with_a_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = create_certificate(tmp_path, "localhost")
    with run_mail_server(certificate) as mailbox, open_harness(tmp_path, mailbox) as harness:
        queue_reset(harness)
        deliver(harness)
        assert mailbox.messages == []  # the certificate is not trusted
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
        harness.clock.advance(HOUR)
        deliver(harness)
        assert mailbox.subjects == ["Set a new password"]


def test_a_reset_link_sets_the_password_once_within_an_hour(harness: Harness, mailbox: Mailbox) -> None:
    add_alice(harness)
    invitations = harness.services.invitations
    request_reset(harness)
    deliver(harness)
    old_token = mailbox.link.removeprefix("/invitations/")
    harness.clock.advance(HOUR)
    with pytest.raises(Problem, match="was used or has expired"):
        harness.run(invitations.find(old_token))
    request_reset(harness)
    deliver(harness)
    token = mailbox.link.removeprefix("/invitations/")
    assert harness.run(invitations.accept(token, PASSWORD))
    with pytest.raises(Problem, match="was used or has expired"):
        harness.run(invitations.find(token))


def test_a_reset_keeps_the_operators_invitation(harness: Harness) -> None:
    add_alice(harness)
    invitation = harness.run(harness.services.invitations.create(ALICE))
    request_reset(harness)
    deliver(harness)
    assert harness.run(harness.services.invitations.find(invitation)).email == ALICE


def test_an_address_that_no_header_can_contain_is_given_up(
    harness: Harness, mailbox: Mailbox, caplog: pytest.LogCaptureFixture
) -> None:
    address = "alice@example.com,mallory@example.com"
    harness.run(harness.services.accounts.add("Alice", address, None))
    request_reset(harness, address)
    deliver(harness)
    assert mailbox.messages == []
    assert "Gave up on mail" in caplog.text


def test_nobody_is_mailed_at_an_unknown_or_disabled_address(harness: Harness, mailbox: Mailbox) -> None:
    add_alice(harness)
    harness.run(harness.services.accounts.disable(ALICE))
    request_reset(harness)
    request_reset(harness, "nobody@example.com")
    deliver(harness)
    assert mailbox.messages == []


def test_resets_are_limited_for_each_address(harness: Harness) -> None:
    for _ in range(3):
        request_reset(harness)
    with pytest.raises(Problem) as caught:
        request_reset(harness)
    assert caught.value.code == "too_many_attempts"


def test_owners_get_mail_about_new_keys_and_new_devices(harness: Harness, mailbox: Mailbox) -> None:
    services = harness.services
    device = "d" * 43
    harness.run(services.sessions.sign_up("Alice", ALICE, PASSWORD, "192.0.2.1", device=device))
    harness.run(services.accounts.extend_plan(ALICE, 1))
    harness.run(services.sessions.sign_in(ALICE, PASSWORD, "192.0.2.1", device=device))
    deliver(harness)
    assert sorted(mailbox.subjects) == ["Confirm your email address", "Your Business plan is active until 22 Oct 2026"]
    assert "Alice" not in mailbox.text  # anybody can sign up with her address
    harness.run(services.sessions.sign_in(ALICE, PASSWORD, "192.0.2.1", device="e" * 43))
    key = harness.run(services.keys.create(ALICE, "Warehouse"))
    harness.run(services.keys.rotate(key.key.id, 0))
    deliver(harness)
    notices = ["A new device signed in to your account", *["A new API key was created"] * 2]
    assert sorted(mailbox.subjects[2:]) == sorted(notices)
    assert sum('"Warehouse"' in read_text(message) for message in mailbox.messages) == 2
    assert key.secret not in mailbox.text


@pytest.mark.decision("G44")
def test_the_mail_about_a_new_key_says_if_it_is_read_only(harness: Harness, mailbox: Mailbox) -> None:
    add_alice(harness)
    services = harness.services
    set_plan_without_mail(harness, DAY)
    harness.run(services.keys.create(ALICE, "Till"))
    key = harness.run(services.keys.create(ALICE, "Shop", access="read"))
    harness.run(services.keys.rotate(key.key.id, 0))
    deliver(harness)
    first_words = sorted(read_text(message).split("\r\n")[2].partition(" (")[0] for message in mailbox.messages)
    assert first_words == ['The API key "Till"', *['The read-only API key "Shop"'] * 2]


def test_owners_get_mail_about_a_changed_password(harness: Harness, mailbox: Mailbox) -> None:
    sessions, invitations = harness.services.sessions, harness.services.invitations
    add_alice(harness)
    harness.run(invitations.accept(harness.run(invitations.create(ALICE)), PASSWORD))
    deliver(harness)
    assert mailbox.subjects == []  # it is her first password
    member = harness.run(sessions.find_member(harness.run(sessions.sign_in(ALICE, PASSWORD, "192.0.2.1"))))
    assert member is not None
    harness.run(sessions.change_password(member, PASSWORD, PASSWORD[::-1]))
    harness.run(invitations.accept(harness.run(invitations.create(ALICE)), PASSWORD))
    deliver(harness)
    assert mailbox.subjects.count("Your password was changed") == 2
    assert sum("https://market.example/reset-password" in read_text(it) for it in mailbox.messages) == 2


def test_the_operator_gets_mail_about_a_request_for_the_plan(harness: Harness, mailbox: Mailbox) -> None:
    add_alice(harness)
    account = harness.run(harness.services.accounts.find(ALICE))
    for _ in range(2):
        harness.run(harness.services.plan_requests.add(account))
    deliver(harness)
    assert mailbox.recipients == ["help@market.example"]
    assert f"listings account plan {account.id} --months 1" in mailbox.text


def test_sellers_are_reminded_once_at_each_time_before_the_end_of_the_plan(harness: Harness, mailbox: Mailbox) -> None:
    add_alice(harness)
    end = int(harness.clock()) + 30 * DAY
    set_plan_without_mail(harness, 30 * DAY)
    for _ in range(40 * 4):
        harness.run(harness.services.plan_reminders.queue())
        deliver(harness)
        harness.clock.advance(DAY // 4)
    sent = [parsedate_to_datetime(message["Date"]).timestamp() for message in mailbox.messages]
    assert [(end - moment) / DAY for moment in sent] == [14, 7, 1, 0]
    assert mailbox.subjects[-2:] == ["Your Business plan ends on 22 Oct 2026", "Your Business plan has ended"]


def test_a_renewed_plan_cancels_its_queued_reminder(harness: Harness, mailbox: Mailbox) -> None:
    add_alice(harness)
    harness.run(harness.services.accounts.set_plan(ALICE, int(harness.clock()) + DAY))
    harness.run(harness.services.plan_reminders.queue())
    harness.run(harness.services.accounts.extend_plan(ALICE, 1))
    deliver(harness)
    assert mailbox.subjects == ["Your Business plan is active until 23 Oct 2026"]


def confirm(harness: Harness) -> None:
    """Confirm the address of Alice, as if she had opened the link."""
    account, now = harness.run(harness.services.accounts.find(ALICE)), int(harness.clock())
    mail = NewMail("c", "confirm_email", ALICE, account.id, "{}", now)
    harness.run(harness.store.add_mail(mail))
    harness.run(harness.store.add_email_token(account.id, mail, b"d" * 32, now, now + 60))
    harness.run(harness.store.confirm_email(b"d" * 32, now))


def test_a_mail_to_a_confirmed_address_greets_by_name(harness: Harness, mailbox: Mailbox) -> None:
    queue_reset(harness)
    deliver(harness)
    assert mailbox.text.startswith("Hello,\r\n\r\nSomeone, probably you")
    assert mailbox.text.endswith("\r\n\r\nListings\r\nhttps://market.example\r\n")
    confirm(harness)
    request_reset(harness)
    deliver(harness)
    assert mailbox.text.startswith("Hello Alice,\r\n\r\n")


def test_the_html_of_a_mail_has_its_text_and_links(harness: Harness, mailbox: Mailbox) -> None:
    add_alice(harness)
    harness.run(harness.services.accounts.extend_plan(ALICE, 1))
    deliver(harness)
    html = read_text(mailbox.messages[-1], "html")
    url = "https://market.example/console/listings/new"
    assert f'<p>Create a listing:<br><a href="{url}">{url}</a></p>' in html
    assert '<p>Listings<br><a href="https://market.example">https://market.example</a></p>' in html
    assert not re.search(r"(?:src|url)\W+https?:", html)


def test_what_a_person_wrote_becomes_neither_a_link_nor_markup() -> None:
    text = "About <b>https://market.example.evil/x & https://market.example@evil/:\n\n> <script>\n>\n> https://market.example/x"
    html = write_html("S <b>", text, "https://market.example")
    body = html.partition("<main>")[2]
    assert "&lt;b&gt;https://market.example.evil/x &amp; https://market.example@evil/" in body
    assert "<blockquote>&lt;script&gt;<br>\n<br>\nhttps://market.example/x</blockquote>" in body
    assert "<a " not in body
    assert "<title>S &lt;b&gt;</title>" in html


def request_plan(harness: Harness, mailbox: Mailbox) -> Account:
    """Request the plan for Alice, and drop the mail to the operator."""
    add_alice(harness)
    account: Account = harness.run(harness.services.accounts.find(ALICE))
    harness.run(harness.services.plan_requests.add(account))
    deliver(harness)
    mailbox.messages.clear()
    return account


def test_a_seller_is_told_that_the_plan_started(harness: Harness, mailbox: Mailbox) -> None:
    request_plan(harness, mailbox)
    harness.run(harness.services.accounts.extend_plan(ALICE, 3))
    deliver(harness)
    (message,) = mailbox.messages
    assert message["To"] == ALICE
    text = read_text(message)
    assert "active until 22 Dec 2026. 3 months, 147 NZD.\r\n" in text
    assert "https://market.example/console/listings/new" in text


@pytest.mark.parametrize("change", ["shorten", "remove", "expire"])
def test_an_end_of_the_plan_is_no_start(harness: Harness, mailbox: Mailbox, change: str) -> None:
    add_alice(harness)
    accounts, now = harness.services.accounts, int(harness.clock())
    set_plan_without_mail(harness, 2 * DAY)
    if change == "expire":
        harness.run(accounts.expire_plan(ALICE))
    else:
        harness.run(accounts.set_plan(ALICE, now + DAY if change == "shorten" else None))
    deliver(harness)
    assert mailbox.messages == []


def test_a_seller_reads_why_a_request_was_declined(harness: Harness, mailbox: Mailbox) -> None:
    account = request_plan(harness, mailbox)
    assert harness.run(harness.services.plan_requests.decline(account, " We only list\nboats. "))
    deliver(harness)
    assert mailbox.subjects == ["We can't start your Business plan"]
    assert "plan.\r\n\r\nWe only list boats.\r\n" in mailbox.text
    assert not harness.run(harness.services.plan_requests.decline(account, "Again"))
    with pytest.raises(Problem, match="at most 500 printable characters"):
        harness.run(harness.services.plan_requests.decline(account, "x" * 501))


def test_an_erased_account_leaves_no_address_in_the_queue(harness: Harness, mailbox: Mailbox) -> None:
    add_alice(harness)
    account = harness.run(harness.services.accounts.find(ALICE))
    request_reset(harness)
    harness.run(harness.services.plan_requests.add(account))
    harness.run(harness.services.accounts.erase(ALICE))
    harness.run(harness.services.accounts.add("Mallory", ALICE, None))
    deliver(harness)
    assert mailbox.messages == []


@pytest.mark.parametrize("missing", ["mail_from", "base_url"])
def test_mail_needs_a_sender_and_a_public_url(tmp_path: Path, missing: str) -> None:
    mailbox = Mailbox()
    mailbox.url = "smtps://u:p@smtp.example"
    settings = load_test_settings(tmp_path, **mail_flags(mailbox) | {missing: ""})
    with pytest.raises(Problem, match=f"LISTINGS_{missing.upper()}"):
        build_mail_server(settings)
