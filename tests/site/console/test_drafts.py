"""Drafts: listings that a seller writes before the plan starts."""

from asyncio import gather
from pathlib import Path
from urllib.parse import urlencode

import pytest

from listings.site.console import overview
from listings.store.sqlite import database
from listings.store.sqlite.store import SqliteStore
from tests.harness import Harness, fetch
from tests.mail_server import create_alice, deliver, mail_flags, read_text, run_mail_server
from tests.site.market import get
from tests.site.tab import FORM_HEADERS, Tab, create, open_console, open_harness

pytestmark = pytest.mark.decision("G62")

NEW = "/console/listings/new"
FORM = {"title": "Lamp", "content": "Bright.", "type": "product", "price_type": "fixed", "is_active": "true"}


def draft(tab: Tab, number: int = 1) -> int:
    tab.get(NEW).post(NEW, form_id=f"draft{number}", **FORM)
    return int(tab.reply.headers["location"].rpartition("/")[2])


def test_a_draft_is_written_without_a_plan_and_only_its_owner_sees_it(harness: Harness) -> None:
    tab = open_console(harness, months=0)
    listing_id = draft(tab)
    path = f"/console/listings/{listing_id}"
    assert "Draft saved." in tab.follow().text
    assert "Resume" not in tab.text
    tab.post(path, version=tab.page.values("input", "value", name="version")[0] or "", **FORM | {"title": "Red lamp"})
    assert "Listing saved." in tab.follow().text
    assert tab.get(f"/listings/{listing_id}").reply.status == 200
    assert get(harness, f"/listings/{listing_id}").status == 404


def test_nothing_is_published_without_a_plan(harness: Harness) -> None:
    tab = open_console(harness, months=0)
    path = f"/console/listings/{draft(tab)}"
    tab.get(path).post(f"{path}/state", action="resume")
    assert tab.reply.status == 403
    tab.get("/console/listings").post("/console/listings", action="resume", all="1", show="drafts")
    assert tab.reply.status == 403
    assert "Paused" in tab.get(path).text


def test_there_are_at_most_20_drafts(harness: Harness) -> None:
    tab = open_console(harness, months=0)
    for number in range(20):
        draft(tab, number)
    assert "Creating listings needs the Business plan" in tab.get(NEW).text
    assert tab.post(NEW, form_id="more", **FORM).reply.status == 403
    assert "Without a Business plan, you can have 20 listings." in tab.text


def test_forms_that_are_sent_together_keep_to_20_drafts(harness: Harness) -> None:
    tab = open_console(harness, months=0)
    for number in range(15):
        draft(tab, number)
    tab.get(NEW)
    cookie = "; ".join(f"{name}={value}" for name, value in tab.cookies.items())
    headers = [
        (name.encode(), value.encode()) for name, value in {**FORM_HEADERS, "host": tab.host, "cookie": cookie}.items()
    ]

    async def send_together() -> list[int]:
        bodies = (urlencode({"token": tab.token, "form_id": f"more{n}", **FORM}).encode() for n in range(20))
        sent = (fetch(harness.application, "POST", NEW, headers, [body]) for body in bodies)
        return sorted(reply.status for reply in await gather(*sent))

    assert harness.run(send_together()) == [303] * 5 + [403] * 15


def test_listings_on_the_market_cannot_be_edited_without_a_plan(harness: Harness) -> None:
    tab = open_console(harness)
    path = f"/console/listings/{create(harness)}"
    harness.run(harness.services.accounts.expire_plan("alice@example.com"))
    version = tab.get(path).page.values("input", "value", name="version")[0] or ""
    assert tab.post(path, version=version, **FORM).reply.status == 403


def test_drafts_are_published_by_the_seller_when_the_plan_starts(harness: Harness) -> None:
    tab = open_console(harness, months=0)
    ids = [draft(tab, number) for number in range(3)]
    assert "Publish 3 drafts" not in tab.get("/console").text
    harness.run(harness.services.accounts.extend_plan("alice@example.com", 1))
    harness.index_market()
    assert all(get(harness, f"/listings/{one}").status == 404 for one in ids)
    assert "Publish 3 drafts" in tab.get("/console").text
    tab.post("/console/listings", action="resume", all="1", show="drafts")
    assert "Resume 3 listings?" in tab.text
    names = ("form_id", "below", "confirmed")
    fields = {name: (tab.page.values("input", "value", name=name) or [""])[0] or "" for name in names}
    confirmed = fields | {"confirmed": "resume"}
    tab.post("/console/listings", action="resume", all="1", show="drafts", **confirmed)
    assert "3 listings resumed" in tab.follow().text
    assert all(get(harness, f"/listings/{one}").status == 200 for one in ids)
    assert "drafts" not in tab.get("/console").text


def test_the_number_of_many_drafts_is_not_stated(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    async def count(*_: object) -> int:
        return 1_001

    monkeypatch.setattr(overview, "_count", count)
    text = open_console(harness).get("/console").text
    assert "More than 1,000 drafts not on the market" in text
    assert "Publish more than 1,000 drafts" in text


def test_the_mail_about_the_plan_offers_to_publish_drafts(tmp_path: Path) -> None:
    with run_mail_server() as mailbox, open_harness(tmp_path / "mail", **mail_flags(mailbox)) as harness:
        alice = create_alice(harness, mailbox)
        create(harness, alice.account.email, is_active=False)
        harness.run(harness.services.accounts.extend_plan(alice.account.email, 1))
        deliver(harness)
        (text,) = (read_text(mail) for mail in mailbox.messages if "plan is active" in mail["Subject"])
        assert "Publish 1 draft:\r\nhttps://market.example/console/listings?show=drafts\r\n" in text


@pytest.mark.parametrize("works", [True, False])
def test_the_mail_about_the_plan_does_not_depend_on_its_count(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    works: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    with run_mail_server() as mailbox, open_harness(tmp_path / "mail", **mail_flags(mailbox)) as harness:
        alice = create_alice(harness, mailbox)
        create(harness, alice.account.email, is_active=False)
        make_reads_slow(monkeypatch)
        if not works:
            assert isinstance(harness.store, SqliteStore)
            harness.run(harness.store._database.snapshots.close())  # noqa: SLF001 - as when the service stops
        harness.run(harness.services.accounts.extend_plan(alice.account.email, 1))
        deliver(harness)
        (text,) = (read_text(mail) for mail in mailbox.messages if "plan is active" in mail["Subject"])
        assert ("Publish 1 draft" in text) is works


def make_reads_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave all lists in SQLite to the thread that reads large ones."""
    for name in ("_MAX_READ_SECONDS", "_SHORT_READ_SECONDS", "_MAX_WAIT_SECONDS"):
        monkeypatch.setattr(database, name, -1.0)
    monkeypatch.setattr(database, "_STEPS_PER_CHECK", 1)
