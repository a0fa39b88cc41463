"""All console pages, on SQLite and on PostgreSQL."""

import asyncio
import re
from pathlib import Path

import pytest

from listings.domain.model import NewListing
from listings.service import Services
from tests.harness import Harness
from tests.site.console.test_drafts import make_reads_slow
from tests.site.tab import Tab, form_values, open_console, open_harness

STOCK = b"title,content,price\nLamp,A lamp.,12.50\n,No title,cheap\nChair,A chair.,30\n"


@pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)
def test_the_console_is_the_same_on_both_engines(tmp_path: Path, engine: str) -> None:
    assert engine
    with open_harness(tmp_path) as harness:
        tab = open_console(harness)
        key, listing_id = create_key_and_listing(tab)
        assert harness.fetch("GET", f"/api/v1/listings/{listing_id}", key=key).status == 200
        edit_listing(tab, listing_id)
        import_file(tab)
        change_all_that_match(tab, listing_id)
        undo_import(tab, listing_id)
        check_other_pages(harness, tab, key)


@pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)
def test_a_large_account_sees_what_needs_attention(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert engine
    with open_harness(tmp_path) as harness:
        tab = open_console(harness)
        harness.run(fill(harness.services, 5_000))
        make_reads_slow(monkeypatch)
        assert "Over 1,000 listings without a picture" in tab.get("/console").text
        assert "Publish 1 draft" in tab.text
        for show, count in (("no-picture", 50), ("no-price", 50), ("no-views", 0), ("drafts", 1)):
            page = tab.get(f"/console/listings?show={show}").page
            assert len(page.values("input", "value", name="id")) == count, show


async def fill(services: Services, count: int) -> None:
    """Create listings of Alice, the first one as a draft, and index them."""
    key = await services.keys.create("alice@example.com", "test")
    caller = await services.access.authenticate(key.secret)
    for start in range(0, count, 500):
        new = [NewListing(title="Lamp", content="c", is_active=bool(start + number)) for number in range(500)]
        await asyncio.gather(*(services.listings.create(caller, one) for one in new))
    while await services.market.index_accounts():
        pass


def create_key_and_listing(tab: Tab) -> tuple[str, str]:
    tab.get("/console/keys").post("/console/keys", name="Warehouse", form_id="once")
    (key,) = tab.page.values("input", "value", id="secret")
    assert tab.post("/console/keys", name="Warehouse", form_id="once").reply.status == 409
    tab.get("/console/listings/new")
    form = {"title": "Bowl", "content": "Kauri.", "type": "product", "price_type": "fixed", "is_active": "true"}
    tab.post("/console/listings/new", form_id="a", **form)
    found = re.search(r"/console/listings/(\d+)", tab.reply.headers["location"])
    assert found is not None
    return key or "", found[1]


def edit_listing(tab: Tab, listing_id: str) -> None:
    path = f"/console/listings/{listing_id}"
    form = {"title": "Bowl", "content": "Kauri.", "type": "product", "price_type": "fixed", "is_active": "true"}
    assert tab.post(path, version="1", price="60", **form).reply.status == 303
    assert tab.post(path, version="1", price="70", **form).reply.status == 412
    for action in ("pause", "resume", "delete", "restore"):
        assert tab.post(f"{path}/state", action=action).reply.status == 303
    for action in ("resume", "pause", "delete", "restore"):
        tab.get("/console/listings").post("/console/listings", action=action, id=listing_id)
        assert re.search(r"1 listing \w+\.", tab.follow().text)


def import_file(tab: Tab) -> None:
    tab.get("/console/import").upload("/console/import", "stock.csv", STOCK)
    form = {str(one.attributes["name"]): one.attributes["value"] or "" for one in tab.page.all("input", type="hidden")}
    tab.upload("/console/import/run", "", b"", **form)
    assert "Done: 2 created, 0 updated, 0 unchanged, 1 rejected." in tab.text
    assert tab.get("/console/export?format=csv").reply.body.count(b"\r\n") == 4


def change_all_that_match(tab: Tab, listing_id: str) -> None:
    form = {"action": "price", "mode": "percent", "amount": "10", "confirmed": "price percent 10", "all": "1"}
    version = form_values(tab.get(f"/console/listings/{listing_id}"))["version"]
    bowl = {"title": "Bowl", "content": "Kauri.", "type": "product", "price_type": "fixed", "external_id": "B-1"}
    tab.post(f"/console/listings/{listing_id}", version=version, price="60", **bowl)
    for _ in range(2):  # a form that is submitted twice takes effect once
        tab.post("/console/listings", **form, q="B-1", form_id="a")
        assert "The price of 1 listing was changed." in tab.follow().text
    assert form_values(tab.get(f"/console/listings/{listing_id}"))["price"] == "66.00"


def undo_import(tab: Tab, listing_id: str) -> None:
    links = tab.get("/console/activity").page.values("a", "href")
    (link,) = [link for link in links if link is not None and "undo?import=" in link]
    inputs = tab.get(link).page.all("input", type="hidden")
    form = {str(one.attributes["name"]): one.attributes["value"] or "" for one in inputs}
    tab.post("/console/activity/undo", **form, confirmed="on").follow()
    assert "Done: 2 listings changed, 0 conflicts." in tab.text
    assert "You restored it" in tab.get(f"/console/listings/{listing_id}/history").text
    assert tab.get("/console/activity/undo").reply.headers["location"] == "/console/activity"


def check_other_pages(harness: Harness, tab: Tab, key: str) -> None:
    harness.fetch("GET", "/api/v1/listings/99", key=key)
    harness.run(harness.services.usage.write())
    assert "200 OK 1 404 Not Found 1" in tab.get("/console/usage").text
    text = tab.get("/console/activity").text
    for sentence in (
        "You imported a file: 2 created",
        "You restored",
        "You created the key Warehouse",
        "You signed in",
    ):
        assert sentence in text
    for query in ("q=lamp", "sort=title", "sort=-price&status=inactive", "type=job", "sort=-updated_at"):
        assert tab.get(f"/console/listings?{query}").reply.status == 200
    assert tab.get("/console").reply.status == 200
    key_id = re.findall(r"/console/keys/(\d+)", tab.get("/console/keys").reply.body.decode())[0]
    assert tab.post(f"/console/keys/{key_id}/rotate", grace="0").reply.status == 201
    assert tab.post(f"/console/keys/{key_id}/revoke").reply.status == 303
    assert tab.get("/console/account").post("/console/account/sessions").reply.status == 303
    tab.get("/console").post("/sign-out")
    assert tab.get("/console").reply.status == 303
