"""Listings in the console: found, made, edited, paused, closed, and come back."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from listings.domain import fields
from listings.domain.model import Listing
from tests.harness import MONTH, Harness
from tests.site.console import Tab, member, open_house

HERE = "/console/listings"
LAMP = {"title": "Lamp", "content": "A lamp.", "type": "product", "price": "12.50", "price_type": "fixed"}


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with open_house(tmp_path) as harness:
        yield harness


@pytest.fixture
def alice(harness: Harness) -> Tab:
    return member(harness)


async def _create(harness: Harness, email: str, given: dict[str, Any]) -> int:
    account = await harness.service.find_account(email)
    key = await harness.service.issue_key(email, "test")
    caller = await harness.service.find_key(key.secret)
    assert caller is not None
    assert caller.account_id == account.id
    new, _ = fields.parse_new_listing({"title": "Bicycle", "content": "Two wheels.", **given})
    return (await harness.service.create_listing(caller, new)).listing_id


def create(harness: Harness, email: str = "alice@example.com", **given: Any) -> int:
    return harness.run(_create(harness, email, given))


def stored(harness: Harness, listing_id: int) -> Listing:
    return harness.run(harness.service.find_listing(listing_id))


def shown(tab: Tab) -> dict[str, str]:
    """What the form on the page would send."""
    return {
        one.attributes["name"] or "": one.attributes.get("value") or ""
        for one in tab.page.all("input")
        if one.attributes.get("name") and one.attributes.get("type") != "checkbox"
    }


def sign_in_anew(tab: Tab) -> None:
    """As in another tab: the form on the page is of the session before."""
    token = tab.token
    tab.cookies.clear()
    tab.sign_in("alice@example.com").token = token


def titles(tab: Tab) -> list[str]:
    listed = tab.reply.body.decode().split("<tbody>")[-1].split("</tbody>")[0]
    return [part.split("</a>")[0] for part in listed.split('dir="auto">')[1:] if "</a>" in part]


# Found


def test_who_has_no_listing_reads_how_to_begin(harness: Harness, alice: Tab) -> None:
    assert "Nothing listed yet" in alice.get(HERE).text
    assert "This needs the Business plan" in member(harness, "new@example.com", months=0).get(HERE).text


def test_listings_are_found_by_state_words_and_type_in_any_order(harness: Harness, alice: Tab) -> None:
    for title, price in (("Red bicycle", 30), ("Blue bicycle", 10), ("Lamp", 20)):
        create(harness, title=title, price=price, is_active=title != "Lamp")
    create(harness, title="Mowing", type="service")
    assert titles(alice.get(HERE)) == ["Mowing", "Lamp", "Blue bicycle", "Red bicycle"]
    assert titles(alice.get(f"{HERE}?status=inactive")) == ["Lamp"]
    assert titles(alice.get(f"{HERE}?q=BICYCLE&sort=price")) == ["Blue bicycle", "Red bicycle"]
    assert titles(alice.get(f"{HERE}?type=service")) == ["Mowing"]
    assert titles(alice.get(f"{HERE}?sort=title&status=nonsense&type=nonsense")) == sorted(titles(alice))
    assert "Nothing here" in alice.get(f"{HERE}?status=deleted").text
    assert "Look for words of letters or digits" in alice.get(f"{HERE}?q=%21").text


def test_the_states_are_counted_and_counted_anew_after_an_edit(harness: Harness, alice: Tab) -> None:
    def counted() -> list[str]:
        return re.findall(r'class="count">(\d+)<', alice.get(HERE).reply.body.decode())

    ids = [create(harness) for _ in range(3)]
    assert counted() == counted() == ["3", "3", "0", "0"]
    alice.post(f"{HERE}/{ids[0]}/state", action="pause")
    alice.post(f"{HERE}/{ids[1]}/state", action="close")
    assert counted() == ["3", "1", "1", "1"]
    for search in ("?q=zzzz", "?type=rental"):
        assert 'class="count"' not in alice.get(f"{HERE}{search}").reply.body.decode()


def test_only_ones_own_are_found(harness: Harness, alice: Tab) -> None:
    member(harness, "bob@example.com")
    create(harness, "bob@example.com", title="Bob's")
    assert "Nothing listed yet" in alice.get(HERE).text


@pytest.mark.parametrize("sort", ["", "title", "-updated_at", "price"])
def test_pages_skip_and_repeat_nothing(harness: Harness, alice: Tab, sort: str) -> None:
    made = [f"Bicycle {number:03}" for number in range(120)]
    for title in made:
        create(harness, title=title, price=5)
    seen: list[str] = []
    path: str | None = f"{HERE}?sort={sort}"
    while path:
        seen += titles(alice.get(path))
        path = next(iter(alice.page.values("a", "href", rel="next")), None)
    assert sorted(seen) == made


@pytest.mark.parametrize(
    "after", ["x", "W10=", "WzEsIDJd", "WyJ4IiwgMV0=", "WyJcdTAwMDAiLCAxXQ==", "WzFlOTksIDFd", "é"]
)
def test_a_place_that_is_none_of_ours_is_the_beginning(harness: Harness, alice: Tab, after: str) -> None:
    create(harness)
    for sort in ("", "title", "price"):
        assert alice.get(f"{HERE}?sort={sort}&after={after}").reply.status == 200


# Made


def test_a_listing_is_made_with_every_field_and_is_on_the_market(harness: Harness, alice: Tab) -> None:
    given = LAMP | {"category": "Lights", "region": "Otago", "district": "Dunedin", "location": "Princes Street"}
    given |= {"latitude": "-45.87", "longitude": "170.5", "images": "https://x.example/1.jpg", "is_active": "true"}
    alice.get(f"{HERE}/new").post(f"{HERE}/new", once=shown(alice)["once"], **given)
    assert "The listing is created" in alice.follow().text
    made = stored(harness, int(alice.page.values("form", "action")[1].split("/")[-2]))  # type: ignore[union-attr]
    assert (made.title, made.price_cents, made.latitude, made.is_active) == ("Lamp", 1250, -45.87, True)
    assert made.images == '["https://x.example/1.jpg"]'
    assert "Lamp" in Tab(harness).get(f"/listings/{made.id}").text


def test_a_price_of_very_much_white_space_is_refused_like_any_other(alice: Tab) -> None:
    for price in (" " * 200_000 + "x", "$" + " " * 200_000 + "x", "1" + " " * 200_000 + "x"):
        alice.get(f"{HERE}/new").post(f"{HERE}/new", **LAMP | {"price": price})
        assert alice.reply.status == 400
        assert "Price must be a number" in alice.text


def test_faults_stand_at_their_fields_and_nothing_written_is_lost(alice: Tab) -> None:
    alice.get(f"{HERE}/new").post(f"{HERE}/new", **LAMP | {"title": " ", "price": "cheap", "latitude": "400"})
    assert alice.reply.status == 400
    for name, told in (("title", "Title is required and must not be blank."), ("price", "Price must be a number, got")):
        assert alice.page.values("input", "aria-invalid", id=f"listing-{name}") == ["true"]
        assert told in alice.text
    assert alice.page.values("input", "value", id="listing-price") == ["cheap"]
    assert alice.page.values("input", "aria-invalid", id="listing-region") == []
    assert "Nothing listed yet" in alice.get(HERE).text


def test_every_field_has_its_label_and_no_id_stands_twice(alice: Tab) -> None:
    page = alice.get(f"{HERE}/new").page
    ids = [one.attributes["id"] for one in page.elements if "id" in one.attributes]
    assert len(ids) == len(set(ids))
    labelled = page.values("label", "for")
    assert {f"listing-{name}" for name in (*LAMP, "region", "latitude")} <= set(labelled) <= set(ids)
    described = " ".join(filter(None, (one.attributes.get("aria-describedby") for one in page.elements))).split()
    assert set(described) <= set(ids)


def test_a_form_that_is_sent_twice_makes_one_listing(alice: Tab) -> None:
    once = shown(alice.get(f"{HERE}/new"))["once"]
    first = alice.post(f"{HERE}/new", once=once, **LAMP).reply.headers["location"]
    assert alice.post(f"{HERE}/new", once=once, **LAMP).reply.headers["location"] == first
    assert alice.post(f"{HERE}/new", once=once, **LAMP | {"title": "Another"}).reply.status == 409
    assert "its listing is created" in alice.text
    assert titles(alice.get(HERE)) == ["Lamp"]


def test_without_a_plan_one_closes_and_pauses_and_brings_nothing_to_the_market(harness: Harness, alice: Tab) -> None:
    listing_id = create(harness)
    harness.clock.advance(13 * MONTH)
    alice = Tab(harness).sign_in("alice@example.com").get("/console/account")
    assert "This needs the Business plan" in alice.get(f"{HERE}/new").text
    for path, fields_ in (
        (f"{HERE}/new", LAMP),
        (f"{HERE}/{listing_id}", LAMP),
        (f"{HERE}/{listing_id}/state", {"action": "resume"}),
    ):
        assert (alice.post(path, **fields_).reply.status, "under Plan" in alice.text) == (403, True)
    for action in ("pause", "close"):
        assert alice.post(f"{HERE}/{listing_id}/state", action=action).reply.status == 303
    assert alice.post(f"{HERE}/{listing_id}/state", action="restore").reply.status == 403
    assert alice.post(HERE, action="restore", id=str(listing_id)).reply.status == 403
    assert stored(harness, listing_id).deleted_at is not None


# Edited


def test_an_edit_stores_what_was_changed_alone(harness: Harness, alice: Tab) -> None:
    listing_id = create(harness, content="First.\nSecond.", price=5, images=["https://x.example/1.jpg"])
    before = stored(harness, listing_id)
    alice.get(f"{HERE}/{listing_id}")
    form = shown(alice) | {
        "content": "First.\r\nSecond.",
        "images": "https://x.example/1.jpg",
        "type": "product",
        "price_type": "fixed",
        "is_active": "true",
    }
    del form["token"]
    assert "Nothing was changed" in alice.post(f"{HERE}/{listing_id}", **form).follow().text
    assert stored(harness, listing_id) == before
    alice.post(f"{HERE}/{listing_id}", **form | {"price": "7.25"})
    assert "The listing is saved" in alice.follow().text
    after = stored(harness, listing_id)
    assert (after.price_cents, after.content, after.version) == (725, "First.\nSecond.", before.version + 1)
    assert "changed price of" in alice.get("/console/activity").text


def test_two_tabs_do_not_overwrite_each_other(harness: Harness, alice: Tab) -> None:
    listing_id = create(harness, price=5)
    version = shown(alice.get(f"{HERE}/{listing_id}"))["version"]
    form = {"title": "Bicycle", "content": "Two wheels.", "type": "product", "price_type": "fixed", "is_active": "true"}
    alice.post(f"{HERE}/{listing_id}", version=version, **form, price="6")
    assert alice.reply.status == 303
    alice.post(f"{HERE}/{listing_id}", version=version, **form | {"title": "My bicycle"}, price="5")
    assert (alice.reply.status, "was changed elsewhere" in alice.text) == (412, True)
    for told in ("Price 6.00 5", "Title Bicycle My bicycle"):
        assert told in alice.text
    assert alice.page.values("input", "value", id="listing-title") == ["My bicycle"]
    assert stored(harness, listing_id).title == "Bicycle"
    alice.post(f"{HERE}/{listing_id}", version=shown(alice)["version"], **form | {"title": "My bicycle"}, price="5")
    assert (stored(harness, listing_id).title, stored(harness, listing_id).price_cents) == ("My bicycle", 500)


def test_a_form_of_an_earlier_session_loses_nothing_and_is_saved_once_more(harness: Harness, alice: Tab) -> None:
    listing_id = create(harness)
    for path in (f"{HERE}/new", f"{HERE}/{listing_id}"):
        form = {name: text for name, text in shown(alice.get(path)).items() if name in {"once", "version"}}
        form |= LAMP | {"content": "Much was written.", "is_active": "true"}
        sign_in_anew(alice)
        assert alice.post(path, **form).reply.status == 403
        assert "You have signed in anew meanwhile, and nothing is stored: save once more." in alice.text
        assert "Much was written." in alice.text
        assert form.items() >= {name: shown(alice)[name] for name in form.keys() & {"once", "version"}}.items()
        assert stored(harness, listing_id).title == "Bicycle"
        assert alice.post(path, **form).reply.status == 303
    assert titles(alice.get(HERE)) == ["Lamp", "Lamp"]


def test_a_form_of_an_earlier_session_overwrites_no_edit_of_another(harness: Harness, alice: Tab) -> None:
    listing_id = create(harness)
    path = f"{HERE}/{listing_id}"
    version = shown(alice.get(path))["version"]
    alice.post(f"{path}/state", action="pause")
    sign_in_anew(alice)
    assert alice.post(path, **LAMP, version=version).reply.status == 403
    assert alice.post(path, **LAMP, version=shown(alice)["version"]).reply.status == 412
    assert stored(harness, listing_id).title == "Bicycle"


@pytest.mark.parametrize("version", ["", "x", "0", "-1", "99999999999999999999"])
def test_a_form_without_its_version_stores_nothing(harness: Harness, alice: Tab, version: str) -> None:
    listing_id = create(harness)
    assert alice.post(f"{HERE}/{listing_id}", version=version, **LAMP).reply.status == 412
    assert stored(harness, listing_id).title == "Bicycle"


def test_anothers_listing_is_as_none(harness: Harness, alice: Tab) -> None:
    member(harness, "bob@example.com")
    listing_id = create(harness, "bob@example.com", title="Bob's")
    for path in (str(listing_id), "1", "x", "99999999999999999999"):
        told = alice.get(f"{HERE}/{path}")
        assert (told.reply.status, "You have no such listing" in told.text) == (404, True)
        assert alice.post(f"{HERE}/{path}", version="1", **LAMP).reply.status == 404
        assert alice.post(f"{HERE}/{path}/state", action="close").reply.status == 404
    for action in ("close", "restore"):
        assert alice.post(HERE, action=action, id=str(listing_id)).reply.status == 200
        assert f"1 listing could not be {action}d: Number {listing_id} : This listing belongs to" in alice.text
    assert "Bob's" not in alice.text
    assert stored(harness, listing_id).is_active


# Paused, closed, and come back


def test_a_listing_is_paused_resumed_closed_and_restored(harness: Harness, alice: Tab) -> None:
    listing_id = create(harness)
    path = f"{HERE}/{listing_id}"
    states = []
    for action in ("pause", "resume", "close", "restore"):
        alice.get(path).post(f"{path}/state", action=action)
        alice.follow()
        listing = stored(harness, listing_id)
        states.append((listing.is_active, listing.deleted_at is not None))
    assert states == [(False, False), (True, False), (False, True), (False, False)]
    assert alice.post(f"{path}/state", action="explode").reply.status == 400


def test_a_closed_listing_shows_no_form_but_how_to_restore_it(harness: Harness, alice: Tab) -> None:
    listing_id = create(harness)
    alice.post(f"{HERE}/{listing_id}/state", action="close")
    alice.get(f"{HERE}/{listing_id}")
    assert "This listing is closed" in alice.text
    alice.post(f"{HERE}/{listing_id}/state", action="pause")
    assert (alice.reply.status, "It is closed: restore it first." in alice.text) == (404, True)
    assert alice.page.all("input", name="version") == []
    assert alice.post(f"{HERE}/{listing_id}", version="2", **LAMP).reply.status == 404


def test_many_are_changed_at_once(harness: Harness, alice: Tab) -> None:
    ids = [str(create(harness)) for _ in range(3)]
    for action, told in (("pause", "paused"), ("resume", "resumed"), ("close", "closed"), ("restore", "restored")):
        alice.get(HERE).post(HERE, action=action, id=ids[:2])
        assert f"2 listings are {told}" in alice.follow().text
    assert [stored(harness, int(one)).version for one in ids] == [5, 5, 1]
    alice.post(HERE, action="close", id=[ids[0], "1", "x"])
    assert "1 listing is closed. 1 listing could not be closed: Number 1 : Listing not found." in alice.text
    assert alice.post(HERE, action="close").reply.status == 400
    assert alice.post(HERE, action="explode", id=ids).reply.status == 400


def test_many_are_restored_in_one_write_and_each_refusal_is_told_by_name(harness: Harness, alice: Tab) -> None:
    lamp, chair = create(harness, title="Lamp"), create(harness, title="Chair")
    alice.get(HERE).post(HERE, action="close", id=[str(lamp), str(chair)])
    alice.post(HERE, action="restore", id=[str(lamp), "1", str(chair), "2"])
    assert "2 listings are restored. 2 listings could not be restored:" in alice.text
    for number in (1, 2):
        assert f"Number {number} : Listing not found." in alice.text
    assert [stored(harness, one).deleted_at for one in (lamp, chair)] == [None, None]
    assert "changed many listings at once: 2 restored" in alice.get("/console/activity").text
    alice.get(HERE).post(HERE, action="close", id=str(lamp))
    alice.post(HERE, action="pause", id=str(lamp))
    assert "1 listing could not be paused: Lamp : It is closed: restore it first." in alice.text
    alice.post(HERE, action="close", id=str(lamp))
    assert "1 listing could not be closed: Lamp : It is closed already." in alice.text
    assert "0 listings" not in alice.text


def test_what_is_not_closed_is_not_restored(harness: Harness, alice: Tab) -> None:
    lamp = create(harness, title="Lamp")
    alice.get(HERE).post(HERE, action="restore", id=str(lamp))
    assert "1 listing could not be restored: Lamp : It is not closed." in alice.text
    assert "is restored" not in alice.text


def test_after_many_are_changed_one_is_on_the_page_that_one_came_from(harness: Harness, alice: Tab) -> None:
    for number in range(60):
        create(harness, title=f"Lamp {number:02}", price=5)
    alice.get(f"{HERE}?sort=title")
    page = alice.page.values("a", "href", rel="next")[0] or ""
    ids = alice.get(page).page.values("input", "value", name="id")
    seen = titles(alice)
    form = {name: text for name, text in shown(alice).items() if name in {"q", "status", "type", "sort", "after"}}
    alice.post(HERE, action="pause", id=[ids[0] or ""], **form)
    assert alice.reply.headers["location"] == page
    assert "1 listing is paused." in alice.follow().text
    assert titles(alice) == seen
    alice.post(HERE, action="restore", id=[ids[0] or ""], **form)
    assert titles(alice) == seen


@pytest.mark.decision("G8")
def test_the_owner_does_not_count_as_a_visitor(harness: Harness, alice: Tab) -> None:
    listing_id = create(harness)
    bob = member(harness, "bob@example.com")
    for tab in (alice, alice):
        assert tab.get(f"/listings/{listing_id}").reply.status == 200
    harness.run(harness.service.write_views())
    assert stored(harness, listing_id).view_count == 0
    bob.get(f"/listings/{listing_id}")
    harness.run(harness.service.write_views())
    assert stored(harness, listing_id).view_count == 1
