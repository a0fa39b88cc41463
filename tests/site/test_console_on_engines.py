"""The console on SQLite and on PostgreSQL: a seller's way through all of its pages."""

import re
from pathlib import Path

import pytest

from tests.harness import Harness
from tests.site.console import Tab, member, open_house

STOCK = b"title,content,price\nLamp,A lamp.,12.50\n,No title,cheap\nChair,A chair.,30\n"


@pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)
def test_the_console_is_the_same_on_both_engines(tmp_path: Path, engine: str) -> None:
    assert engine
    with open_house(tmp_path) as harness:
        tab = member(harness)
        key, listing_id = made(tab)
        assert harness.fetch("GET", f"/api/v1/listings/{listing_id}", key=key).status == 200
        edited(tab, listing_id)
        imported(tab)
        looked_at(harness, tab, key)


def made(tab: Tab) -> tuple[str, str]:
    """A key and a listing."""
    tab.get("/console/keys").post("/console/keys", name="Warehouse", once="once")
    (key,) = tab.page.values("input", "value", id="secret")
    assert tab.post("/console/keys", name="Warehouse", once="once").reply.status == 409
    tab.get("/console/listings/new")
    given = {"title": "Bowl", "content": "Kauri.", "type": "product", "price_type": "fixed", "is_active": "true"}
    tab.post("/console/listings/new", once="once", **given)
    found = re.search(r"/console/listings/(\d+)", tab.reply.headers["location"])
    assert found is not None
    return key or "", found[1]


def edited(tab: Tab, listing_id: str) -> None:
    path = f"/console/listings/{listing_id}"
    given = {"title": "Bowl", "content": "Kauri.", "type": "product", "price_type": "fixed", "is_active": "true"}
    assert tab.post(path, version="1", price="60", **given).reply.status == 303
    assert tab.post(path, version="1", price="70", **given).reply.status == 412
    for action in ("pause", "resume", "close", "restore"):
        assert tab.post(f"{path}/state", action=action).reply.status == 303
    for action in ("resume", "pause", "close", "restore"):
        tab.get("/console/listings").post("/console/listings", action=action, id=listing_id)
        assert "1 listing is" in tab.follow().text


def imported(tab: Tab) -> None:
    tab.get("/console/import").upload("/console/import", "stock.csv", STOCK)
    kept = {str(one.attributes["name"]): one.attributes["value"] or "" for one in tab.page.all("input", type="hidden")}
    tab.upload("/console/import/run", "", b"", **kept)
    assert "Done: 2 created, 0 changed, 0 as they were, 1 refused." in tab.text
    assert tab.get("/console/export?format=csv").reply.body.count(b"\r\n") == 4


def looked_at(harness: Harness, tab: Tab, key: str) -> None:
    harness.fetch("GET", "/api/v1/listings/99", key=key)
    harness.run(harness.service.write_usage())
    assert "200 OK 1 404 Not Found 1" in tab.get("/console/usage").text
    text = tab.get("/console/activity").text
    for told in ("You imported a file: 2 created", "You restored", "You made the key Warehouse", "You signed in"):
        assert told in text
    for query in ("q=lamp", "sort=title", "sort=-price&status=inactive", "type=job", "sort=-updated_at"):
        assert tab.get(f"/console/listings?{query}").reply.status == 200
    assert tab.get("/console").reply.status == 200
    key_id = re.findall(r"/console/keys/(\d+)", tab.get("/console/keys").reply.body.decode())[0]
    assert tab.post(f"/console/keys/{key_id}/rotate", grace="0").reply.status == 201
    assert tab.post(f"/console/keys/{key_id}/revoke").reply.status == 303
    assert tab.get("/console/account").post("/console/account/sessions").reply.status == 303
    tab.get("/console").post("/sign-out")
    assert tab.get("/console").reply.status == 303
