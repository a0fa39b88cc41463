"""Keys in the console: shown once, rotated, revoked, and never made without the password (hardening line 28)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import Harness
from tests.site.console import PASSWORD, Tab, member, open_house

MINUTE, HOUR, DAY = 60, 3600, 24 * 3600


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with open_house(tmp_path) as harness:
        yield harness


def make(tab: Tab, **fields: str) -> str:
    """A key's secret, as the page shows it."""
    tab.get("/console/keys").post("/console/keys", **{"name": "Warehouse", "expires": "", **fields})
    assert tab.reply.status == 201, tab.text
    (secret,) = tab.page.values("input", "value", id="secret")
    return secret or ""


def once(tab: Tab) -> str:
    """What the form on the page is known by."""
    return tab.page.values("input", "value", name="once")[0] or ""


def chosen(tab: Tab) -> list[str | None]:
    return [one.attributes["value"] for one in tab.page.all("option") if "selected" in one.attributes]


def status_of(harness: Harness, secret: str) -> int:
    return harness.fetch("GET", "/api/v1/listings", key=secret).status


def test_a_key_is_shown_once_with_a_line_that_works(harness: Harness) -> None:
    tab = member(harness)
    secret = make(tab)
    assert f"curl http://localhost:8000/api/v1/listings -H 'X-API-Key: {secret}'" in tab.text
    assert tab.reply.headers["cache-control"] == "no-store"
    assert status_of(harness, secret) == 200
    tab.get("/console/keys")
    assert secret not in tab.reply.body.decode()
    assert f"{secret[:4]}…{secret[-4:]}" in tab.text
    assert "Warehouse" in tab.text


def test_a_key_expires_at_the_end_of_a_day_in_new_zealand(harness: Harness) -> None:
    tab = member(harness)
    secret = make(tab, expires="2026-09-30")
    assert "1 Oct 2026, 12:00 am" in tab.text
    harness.clock.now = 1_790_765_999.0  # 2026-09-30 23:59:59 in Auckland, UTC+13
    assert status_of(harness, secret) == 200
    harness.clock.advance(1)
    assert status_of(harness, secret) == 401


@pytest.mark.parametrize(
    ("name", "expires", "told"),
    [
        ("", "", "A name must have 1 to 200 printable characters"),
        ("Till", "tomorrow", "Write the day as year-month-day"),
        ("Till", "9999-12-31", "Write the day as year-month-day"),
        ("Till", "2020-01-01", "The expiry of a key must be in the future"),
    ],
)
def test_what_is_wrong_with_a_new_key_is_told_beside_what_was_written(
    harness: Harness, name: str, expires: str, told: str
) -> None:
    tab = member(harness).get("/console/keys").post("/console/keys", name=name, expires=expires)
    assert (tab.reply.status, told in tab.text) == (400, True)
    assert tab.page.values("input", "value", id="name") == [name]


def test_a_key_needs_a_current_plan(harness: Harness) -> None:
    tab = member(harness, months=0).get("/console/keys")
    assert "A key needs the Business plan" in tab.text
    assert tab.post("/console/keys", name="Till").reply.status == 403


@pytest.mark.decision("G25")
def test_after_15_minutes_a_key_asks_for_the_password_again(harness: Harness) -> None:
    tab = member(harness)
    harness.clock.advance(15 * MINUTE - 1)
    make(tab)
    harness.clock.advance(1)
    tab.get("/console/keys")
    assert tab.page.values("input", "autocomplete", id="password") == ["current-password"]
    assert tab.post("/console/keys", name="Till").reply.status == 403
    assert "Enter your password again" in tab.text
    assert tab.post("/console/keys", name="Till", password="wrong password").reply.status == 403
    assert tab.post("/console/keys/1/rotate", grace="0").reply.status == 403
    old = tab.cookies["listings_session"]
    make(tab, password=PASSWORD)
    assert tab.cookies["listings_session"] != old
    make(tab)


def test_a_password_that_was_given_once_more_holds_even_where_the_name_is_wrong(harness: Harness) -> None:
    tab = member(harness)
    harness.clock.advance(HOUR)
    tab.get("/console/keys").post("/console/keys", name="", password=PASSWORD)
    assert tab.reply.status == 400
    assert tab.page.all("input", id="password") == []
    assert tab.post("/console/keys", name="Till").reply.status == 201


def test_a_rotated_key_goes_on_as_long_as_was_chosen(harness: Harness) -> None:
    tab = member(harness)
    old = make(tab)
    key_id = harness.run(harness.service.find_key(old)).key_id  # type: ignore[union-attr]
    tab.get(f"/console/keys/{key_id}").post(f"/console/keys/{key_id}/rotate", grace="3600")
    (new,) = tab.page.values("input", "value", id="secret")
    assert "in 1 hour" in tab.text
    assert [status_of(harness, old), status_of(harness, new or "")] == [200, 200]
    harness.clock.advance(HOUR)
    assert [status_of(harness, old), status_of(harness, new or "")] == [401, 200]
    assert "Keys that have ended: 1" in tab.get("/console/keys").text


def test_a_key_that_was_rotated_at_once_has_ended(harness: Harness) -> None:
    tab = member(harness)
    make(tab)
    tab.get("/console/keys/1").post("/console/keys/1/rotate", grace="0")
    assert "The key before it has ended." in tab.text


def test_a_wrong_password_changes_no_choice_and_is_told_as_one(harness: Harness) -> None:
    tab = member(harness)
    make(tab)
    harness.clock.advance(HOUR)
    tab.get("/console/keys/1")
    assert chosen(tab) == ["86400"]
    tab.post("/console/keys/1/rotate", grace="0", password="wrong password")
    assert (tab.reply.status, chosen(tab)) == (403, ["0"])
    assert "The password is wrong." in tab.text
    assert "Wrong email" not in tab.text


def test_a_form_for_a_key_that_is_sent_twice_makes_one(harness: Harness) -> None:
    tab = member(harness).get("/console/keys")
    form = {"name": "Till", "once": once(tab)}
    assert tab.post("/console/keys", **form).reply.status == 201
    assert tab.post("/console/keys", **form).reply.status == 409
    assert "This form has already created its key" in tab.text
    assert tab.page.values("input", "value", id="name") == [""]
    assert len(harness.run(harness.service.list_keys(harness.run(harness.service.find_account("1"))))) == 1
    assert tab.post("/console/keys", name="Till", once=once(tab)).reply.status == 201


def test_a_form_whose_fault_was_mended_makes_its_key(harness: Harness) -> None:
    tab = member(harness).get("/console/keys")
    form = {"once": once(tab)}
    assert tab.post("/console/keys", name="", **form).reply.status == 400
    assert tab.post("/console/keys", name="Till", **form).reply.status == 201


def test_a_rotation_that_is_sent_twice_makes_one_key(harness: Harness) -> None:
    tab = member(harness)
    make(tab)
    form = {"grace": "0", "once": once(tab.get("/console/keys/1"))}
    assert tab.post("/console/keys/1/rotate", **form).reply.status == 201
    assert tab.post("/console/keys/1/rotate", **form).reply.status == 409
    assert "This form has already created its key" in tab.text
    assert tab.page.values("a", "href", href="/console/keys")
    assert len(harness.run(harness.service.list_keys(harness.run(harness.service.find_account("1"))))) == 2


def test_a_grace_that_is_not_offered_is_none(harness: Harness) -> None:
    tab = member(harness)
    old = make(tab)
    key_id = harness.run(harness.service.find_key(old)).key_id  # type: ignore[union-attr]
    tab.get("/console/keys").post(f"/console/keys/{key_id}/rotate", grace="99999999")
    assert (tab.reply.status, status_of(harness, old)) == (201, 401)


def test_a_revoked_key_is_over_at_once(harness: Harness) -> None:
    tab = member(harness)
    secret = make(tab)
    key_id = harness.run(harness.service.find_key(secret)).key_id  # type: ignore[union-attr]
    tab.get(f"/console/keys/{key_id}").post(f"/console/keys/{key_id}/revoke")
    assert "The key is revoked" in tab.follow().text
    assert status_of(harness, secret) == 401
    assert "rotate" not in tab.get(f"/console/keys/{key_id}").reply.body.decode()
    assert tab.post(f"/console/keys/{key_id}/rotate", grace="0").reply.status == 409


@pytest.mark.parametrize("path", ["/console/keys/{}", "/console/keys/x", "/console/keys/9999999999999999"])
def test_anothers_key_is_as_none(harness: Harness, path: str) -> None:
    bob = member(harness, "bob@example.com")
    secret = make(bob)
    key_id = harness.run(harness.service.find_key(secret)).key_id  # type: ignore[union-attr]
    path = path.format(key_id)
    alice = member(harness)
    assert alice.get(path).reply.status == 404
    assert alice.post(f"{path}/revoke").reply.status == 404
    assert alice.post(f"{path}/rotate", grace="0").reply.status == 404
    assert status_of(harness, secret) == 200


def test_a_list_of_keys_tells_what_each_was_asked_in_the_last_day(harness: Harness) -> None:
    tab = member(harness)
    secret = make(tab)
    for _ in range(3):
        status_of(harness, secret)
    text = tab.get("/console/keys").reply.body.decode()
    assert 'data-label="Last 24 hours">3</td>' in text
    assert "3 requests" in tab.get("/console/keys/1").text


def test_one_is_told_as_one(harness: Harness) -> None:
    tab = member(harness)
    status_of(harness, make(tab))
    text = tab.get("/console/keys/1").text
    assert "1 request " in text
    assert "It was used 1 time in" in text
