"""Undo in the console, and what changed: activity, the history of a listing, preview and result."""

import re
from pathlib import Path

import pytest

from listings.domain.model import BUCKETS
from listings.domain.reverts import MAX_FIRST_LISTINGS
from listings.site.console.history import undo as undo_pages
from tests.harness import MONTH, Harness
from tests.site.console.test_transfer import preview, run_import
from tests.site.tab import Tab, create, form_values, load_listing, open_console, open_harness

ACTIVITY = "/console/activity"
UNDO = f"{ACTIVITY}/undo"
PATH = "/console/listings"
FORM = {"title": "Bicycle", "content": "Two wheels.", "type": "product", "price_type": "fixed", "is_active": "true"}


def find_undo_links(tab: Tab) -> list[str]:
    return [link for link in tab.page.values("a", "href") if link and link.startswith(f"{UNDO}?")]


def edit(tab: Tab, listing_id: int, **changed: str) -> None:
    version = form_values(tab.get(f"{PATH}/{listing_id}"))["version"]
    assert tab.post(f"{PATH}/{listing_id}", version=version, **FORM | changed).reply.status == 303


def undo(tab: Tab, **more: str) -> Tab:
    """Confirm the preview that is open, and return the result."""
    form = {name: value for name, value in form_values(tab).items() if name != "token"}
    return tab.post(UNDO, **form | more, confirmed="on").follow()


def import_rows(tab: Tab, count: int) -> None:
    lines = "".join(f"Bicycle,Two wheels.,sku-{number}\n" for number in range(count))
    run_import(preview(tab, f"title,content,external_id\n{lines}".encode()))


def test_the_notice_of_a_deletion_offers_undo(harness: Harness, alice: Tab) -> None:
    listing_id = create(harness)
    alice.get(PATH).post(f"{PATH}/{listing_id}/state", action="delete")
    (link,) = find_undo_links(alice.follow())
    assert "Bicycle will be restored" in alice.get(link).text
    assert load_listing(harness, listing_id).deleted_at is not None
    assert "Done: 1 listing changed, 0 conflicts." in undo(alice).text
    listing = load_listing(harness, listing_id)
    assert (listing.deleted_at, listing.is_active) == (None, True)
    (link,) = find_undo_links(alice)
    undo(alice.get(link))
    assert load_listing(harness, listing_id).deleted_at is not None


def test_a_notice_does_not_offer_to_undo_an_earlier_change(harness: Harness, alice: Tab) -> None:
    path = f"{PATH}/{create(harness, is_active=False)}"
    version = form_values(alice.get(path))["version"]
    alice.post(path, version=version, **{name: text for name, text in FORM.items() if name != "is_active"}, price="6")
    alice.post(f"{path}/state", action="pause").follow()
    assert "Listing paused." in alice.text
    assert find_undo_links(alice) == []
    alice.post(f"{path}/state", action="resume").follow()
    assert len(find_undo_links(alice)) == 1


def test_the_notice_of_a_bulk_change_offers_undo(harness: Harness, alice: Tab) -> None:
    ids = [str(create(harness)) for _ in range(2)]
    alice.get(PATH).post(PATH, action="pause", id=ids)
    (link,) = find_undo_links(alice.follow())
    assert "Listings to change 2 " in alice.get(link).text
    alice.get(PATH).post(PATH, action="delete", id=[ids[0], "1"])
    assert "1 listing deleted. Undo 1 listing could not be deleted" in alice.text
    assert len(find_undo_links(alice)) == 1


def test_a_bulk_action_is_one_line_and_one_undo(harness: Harness, alice: Tab) -> None:
    create(harness)
    import_rows(alice, 100)
    alice.get(PATH).post(PATH, action="price", mode="set", amount="10", all="1", confirmed="price set 10", form_id="a")
    assert "The prices of 101 listings were changed." in alice.follow().text
    (link,) = find_undo_links(alice)
    text = alice.get(ACTIVITY).text
    assert text.count("You set the price of 101 listings to $10") == 1
    assert "Listings to change 101 Conflicts 0" in alice.get(link).text
    undo(alice)
    assert "Done: 101 listings changed, 0 conflicts." in alice.text
    text = alice.get(ACTIVITY).text
    assert text.count("Undone") == 1
    assert link not in find_undo_links(alice)


def test_activity_shows_each_changed_field_and_offers_undo(harness: Harness, alice: Tab) -> None:
    listing_id = create(harness, price=5)
    edit(alice, listing_id, price="7.25", region="Otago")
    alice.get(ACTIVITY)
    assert "Price $5 $7.25" in alice.text
    assert "Updated Bicycle Changes of listing" in alice.text
    assert "Undo: You updated price and region of “Bicycle”" in alice.page.values("a", "aria-label")
    assert "Region (empty) Otago" in alice.text
    assert len(find_undo_links(alice)) == 2
    undo(alice.get(find_undo_links(alice)[0]))
    assert "You undid changes to 1 listing" in alice.get(ACTIVITY).text
    assert load_listing(harness, listing_id).price_cents == 500


def test_activity_shows_the_beginning_of_a_large_change(harness: Harness, alice: Tab) -> None:
    for letter in "xy":
        lines = "".join(f"Bicycle,{letter * 10_000},sku-{number}\n" for number in range(60))
        run_import(preview(alice, f"title,content,external_id\n{lines}".encode()))
    edit(alice, create(harness), price="6")
    alice.get(ACTIVITY)
    assert re.search("Description x+… y+… .* And 57 more listings", alice.text)
    assert "Price (empty) $6" in alice.text


def test_the_history_of_a_listing_has_its_changes(harness: Harness, alice: Tab) -> None:
    listing_id = create(harness)
    for price in range(1, 22):
        edit(alice, listing_id, price=str(price))
    alice.get(f"{PATH}/{listing_id}/history")
    assert "You updated it" in alice.text
    assert "Price $20 $21" in alice.text
    assert len(find_undo_links(alice)) == 20
    (older,) = alice.page.values("a", "href", rel="next")
    assert "created it" in alice.get(older or "").text
    bob = open_console(harness, "bob@example.com")
    assert bob.get(f"{PATH}/{listing_id}/history").reply.status == 404


def test_the_history_of_a_listing_shows_all_fields(harness: Harness, alice: Tab) -> None:
    listing_id = create(harness)
    texts = {"title": "Bike", "content": "Fast.", "category": "Sport", "location": "Te Aro", "region": "Otago"}
    edit(alice, listing_id, **texts, price="6", external_id="A")
    assert "And 1 more field." in alice.get(ACTIVITY).text
    alice.get(f"{PATH}/{listing_id}/history")
    assert "more field" not in alice.text
    for text in (*texts.values(), "$6", "A"):
        assert alice.page.texts.count(text) >= 1, text


@pytest.mark.parametrize(
    ("days", "sentence"), [("30", " Changed fields and Undo are available for 30 days."), ("90", ""), ("365", "")]
)
def test_activity_says_how_long_changes_are_stored_if_that_is_shorter(tmp_path: Path, days: str, sentence: str) -> None:
    with open_harness(tmp_path, change_days=days) as harness:
        alice = open_console(harness)
        assert f"Everything in the last 90 days.{sentence} You" in alice.get(ACTIVITY).text
        end = alice.get(f"{ACTIVITY}?before=0-0-0").text
        assert "Activity by you, your keys and the operator is shown here for 90 days." in end


def test_an_empty_history_says_how_long_changes_are_stored(tmp_path: Path) -> None:
    with open_harness(tmp_path, change_days="365") as harness:
        alice = open_console(harness)
        path = f"{PATH}/{create(harness)}/history"
        edit(alice, create(harness), price="6")
        assert "Changes are shown here for 365 days." in alice.get(f"{path}?before=1").text
        harness.run(harness.store.purge_changes(range(BUCKETS), int(harness.clock()) + 1, 100))
        assert "No changes in the last 365 days" in alice.get(path).text


def test_an_undone_import_keeps_what_was_edited_since(alice: Tab) -> None:
    import_rows(alice, 5)
    (link,) = find_undo_links(alice)
    (edited, *_) = re.findall(r'name="id" value="(\d+)"', alice.get(PATH).reply.body.decode())
    edit(alice, int(edited), price="9", external_id="sku-4")
    alice.get(link)
    assert re.search("Imported by you on 22 Sep 2026", alice.text)
    assert "Listings to change 4 Conflicts 1" in alice.text
    assert "Bicycle The whole listing Changed later" in alice.text
    undo(alice)
    assert "Done: 4 listings changed, 1 conflict." in alice.text
    assert "Bicycle The whole listing Changed later" in alice.text
    assert "You undid changes to 4 listings, with 1 conflict" in alice.get(ACTIVITY).text
    assert "And 1 more listing." in alice.text


@pytest.mark.decision("G43")
def test_a_conflict_names_the_listing_that_has_the_external_id(harness: Harness, alice: Tab) -> None:
    deleted = create(harness, external_id="A")
    alice.get(PATH).post(f"{PATH}/{deleted}/state", action="delete")
    (link,) = find_undo_links(alice.follow())
    holder = create(harness, external_id="A")
    assert f"Another listing now has this “Your own ID”: listing {holder}" in alice.get(link).text
    assert "This can’t be undone now The reasons are below." in alice.text


def test_later_changes_are_overwritten_if_the_box_is_checked(harness: Harness, alice: Tab) -> None:
    listing_id = create(harness, price=5)
    for price in ("6", "7"):
        edit(alice, listing_id, price=price)
    form = form_values(alice.get(f"{UNDO}?change=2"))
    assert "Bicycle Price Changed later" in alice.text
    assert "select “Overwrite later changes too”, then Preview" in alice.text
    assert alice.page.values("button", "name", name="confirmed") == []
    assert "Price $7 $5" in alice.post(UNDO, **form, overwrite="on").text
    undo(alice, overwrite="on")
    assert load_listing(harness, listing_id).price_cents == 500
    assert "You updated it with an undo" in alice.get(f"{PATH}/{listing_id}/history").text
    alice.get(f"{UNDO}?change=2")
    assert "Nothing to undo The listings are already as they were before." in alice.text
    assert "Nothing has been undone yet" not in alice.text


def test_a_large_undo_shows_its_progress(harness: Harness, alice: Tab) -> None:
    import_rows(alice, MAX_FIRST_LISTINGS + 10)
    undo(alice.get(find_undo_links(alice)[0]))
    (changed,) = re.findall(r"(\d+) listings changed so far\.", alice.text)
    assert 0 < int(changed) <= MAX_FIRST_LISTINGS  # whole change sets of the import
    harness.run(harness.services.reverts.run())
    (reload,) = alice.page.values("a", "href", class_="button plain")
    assert "Done: 210 listings changed, 0 conflicts." in alice.get(reload or "").text


@pytest.mark.decision("G55")
def test_an_undo_is_rejected_while_another_one_runs(harness: Harness, alice: Tab) -> None:
    import_rows(alice, MAX_FIRST_LISTINGS + 10)
    edit(alice, listing_id := create(harness), price="6")
    change, *_, import_ = find_undo_links(alice.get(ACTIVITY))
    (running,) = undo(alice.get(import_)).page.values("div", "hx-get", id="undo")
    form = form_values(alice.get(change))
    assert alice.post(UNDO, **form, confirmed="on").reply.status == 409
    assert "An undo is still running, and there can be only one at a time. Try again when it is finished." in alice.text
    assert load_listing(harness, listing_id).price_cents == 600
    assert alice.get(f"{UNDO}?revert={(running or '').rpartition('/')[2]}").reply.status == 409
    assert "An undo is still running" in alice.text
    harness.run(harness.services.reverts.run())
    undo(alice.post(UNDO, **form))
    assert "Done: 1 listing changed, 0 conflicts." in alice.text


def test_the_progress_of_an_undo_keeps_the_page_of_conflicts(
    harness: Harness, alice: Tab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undo_pages, "_SHOWN", 1)
    import_rows(alice, MAX_FIRST_LISTINGS + 10)
    (link,) = find_undo_links(alice)
    for listing_id in alice.get(PATH).page.values("input", "value", name="id")[:3]:
        edit(alice, int(listing_id or ""), price="9")
    undo(alice.get(link))
    (path,) = alice.page.values("div", "hx-get", id="undo")
    (polled,) = alice.get(f"{path}?after=1").page.values("div", "hx-get", id="undo")
    assert polled == f"{path}?after=1"
    harness.run(harness.services.reverts.run())
    polled_part = alice.get(polled or "").reply.body.decode().split('<div id="undo"')[1].split("</div>")[0]
    assert f'href="{path}" rel="prev">Previous page' in polled_part
    assert f'href="{path}?after=2&amp;trail=1" rel="next">Next page' in polled_part


def test_a_confirmation_sent_twice_undoes_once(harness: Harness, alice: Tab) -> None:
    listing_id = create(harness)
    edit(alice, listing_id, price="6")
    form = form_values(alice.get(f"{UNDO}?change=2"))
    first = alice.post(UNDO, **form, confirmed="on").reply.headers["location"]
    assert alice.post(UNDO, **form, confirmed="on", overwrite="on").reply.status == 409
    assert alice.post(UNDO, **form, confirmed="on").reply.headers["location"] == first
    assert load_listing(harness, listing_id).version == 3


def test_an_unknown_change_cannot_be_undone(harness: Harness, alice: Tab) -> None:
    create(harness)
    for query in ("?change=99", "?revert=1", "?key=1", "?import=x", "/99"):
        assert alice.get(f"{UNDO}{query}").reply.status == 404, query


def test_changes_of_another_account_are_not_found(harness: Harness, alice: Tab) -> None:
    edit(alice, create(harness), price="6")
    undo(alice.get(f"{UNDO}?change=2"))
    result = f"{UNDO}/{form_values(alice.get(UNDO + '?revert=1'))['revert']}"
    assert alice.get(result).reply.status == 200
    bob = open_console(harness, "bob@example.com")
    assert [bob.get(path).reply.status for path in (result, f"{UNDO}?change=2")] == [404, 404]


def test_undo_needs_a_plan(harness: Harness, alice: Tab) -> None:
    listing_id = create(harness)
    edit(alice, listing_id, price="6")
    harness.clock.advance(2 * MONTH)
    harness.run(harness.services.accounts.set_plan("alice@example.com", None))
    alice.sign_in("alice@example.com").get(f"{UNDO}?change=2")
    assert "Without an active plan, you can’t undo changes." in alice.text
    assert alice.post(UNDO, change="2", confirmed="on").reply.status == 403
    assert load_listing(harness, listing_id).price_cents == 600


def test_changes_that_are_no_longer_stored_are_not_offered(harness: Harness, alice: Tab) -> None:
    edit(alice, create(harness), price="6")
    harness.run(harness.store.purge_changes(range(1024), int(harness.clock()) + 1, 10))
    assert find_undo_links(alice.get(ACTIVITY)) == []
    assert alice.get(f"{UNDO}?change=2").reply.status == 404
    assert "no longer stored" in alice.text
