"""The form with which a visitor reports a listing to the operator."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import Harness, Person
from tests.mail_server import Mailbox, create_alice, deliver, mail_flags
from tests.site.market import create
from tests.site.tab import Tab, open_harness

HELP = "help@market.example"

pytestmark = pytest.mark.decision("G58")


@pytest.fixture
def harness(tmp_path: Path, mailbox: Mailbox) -> Iterator[Harness]:
    with open_harness(tmp_path, **mail_flags(mailbox) | {"contact": HELP}) as harness:
        yield harness


@pytest.fixture
def alice(harness: Harness, mailbox: Mailbox) -> Person:
    return create_alice(harness, mailbox)


def test_a_report_reaches_the_operator_and_the_inbox(harness: Harness, alice: Person, mailbox: Mailbox) -> None:
    listing_id = create(harness, alice)
    path, tab = f"/listings/{listing_id}/report", Tab(harness, "market.example")
    assert path in tab.get(f"/listings/{listing_id}").page.values("a", "href", rel="nofollow")
    sent = tab.get(path).post(path, reason="fraud", text="Asks for <money>\nfirst")
    assert "We will look at the listing." in sent.text
    deliver(harness)
    assert mailbox.recipients == [HELP]
    assert mailbox.subjects == [f"Report of listing {listing_id}: It looks like fraud"]
    (report,) = harness.run(harness.services.listing_reports.list_open())
    assert (report.account_id, report.listing_id, report.reason) == (alice.account.id, listing_id, "fraud")
    assert "> Asks for <money>\r\n> first\r\n" in mailbox.text
    assert f"listings inbox --close {report.id}\r\n" in mailbox.text


@pytest.mark.parametrize(
    ("form", "problem"),
    [
        ({}, "Choose a reason."),
        ({"reason": "nice"}, "Choose a reason."),
        ({"reason": "other", "text": "x" * 501}, "A text must have at most 500 characters, got 501."),
    ],
)
def test_an_invalid_report_is_rejected(harness: Harness, alice: Person, form: dict[str, str], problem: str) -> None:
    path, tab = f"/listings/{create(harness, alice)}/report", Tab(harness, "market.example")
    assert tab.get(path).post(path, **form).reply.status == 400
    assert problem in tab.text
    assert harness.run(harness.services.listing_reports.list_open()) == []


def test_a_network_sends_five_reports_an_hour(harness: Harness, alice: Person) -> None:
    path, tab = f"/listings/{create(harness, alice)}/report", Tab(harness, "market.example")
    statuses = [tab.get(path).post(path, reason="other").reply.status for _ in range(6)]
    assert statuses == [200] * 5 + [429]
    harness.clock.advance(3600)
    assert tab.get(path).post(path, reason="other").reply.status == 200


def test_a_report_without_a_form_of_ours_is_rejected(harness: Harness, alice: Person) -> None:
    path, tab = f"/listings/{create(harness, alice)}/report", Tab(harness, "market.example")
    assert tab.get(path).post(path, token="x", reason="other").reply.status == 403
    assert harness.run(harness.services.listing_reports.list_open()) == []


def test_an_erased_account_has_no_reports(harness: Harness, alice: Person) -> None:
    path, tab = f"/listings/{create(harness, alice)}/report", Tab(harness, "market.example")
    tab.get(path).post(path, reason="other")
    harness.run(harness.services.accounts.erase(alice.account.email))
    assert harness.run(harness.services.listing_reports.list_open()) == []


def test_reports_end_after_90_days(harness: Harness, alice: Person) -> None:
    path, tab = f"/listings/{create(harness, alice)}/report", Tab(harness, "market.example")
    tab.get(path).post(path, reason="other")
    for days, number in ((89, 1), (3, 0)):
        harness.clock.advance(days * 86_400)
        harness.run(harness.services.messages.purge())
        assert len(harness.run(harness.services.listing_reports.list_open())) == number


@pytest.mark.parametrize("contact", ["", "https://market.example/help"])
def test_without_an_address_of_the_operator_there_is_no_link(tmp_path: Path, mailbox: Mailbox, contact: str) -> None:
    with open_harness(tmp_path / "b", **mail_flags(mailbox) | {"contact": contact}) as harness:
        listing_id = create(harness, create_alice(harness, mailbox))
        tab = Tab(harness, "market.example")
        assert "Report this listing" not in tab.get(f"/listings/{listing_id}").text
        assert tab.get(f"/listings/{listing_id}/report").reply.status == 404
