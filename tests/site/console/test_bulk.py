"""Bulk changes of listings in the console: state and price, selected or all that match."""

from typing import Any

import pytest

from listings.domain.errors import Unavailable
from listings.domain.listings import IdempotencyRecord
from listings.site.console.listings import bulk
from tests.harness import Harness
from tests.site.tab import Tab, create, form_values, list_titles, load_listing, open_console

PATH = "/console/listings"


def test_selected_listings_are_changed_together(harness: Harness, alice: Tab) -> None:
    ids = [str(create(harness)) for _ in range(3)]
    for action, done in (("pause", "paused"), ("resume", "resumed"), ("delete", "deleted"), ("restore", "restored")):
        alice.get(PATH).post(PATH, action=action, id=ids[:2])
        assert f"2 listings {done}." in alice.follow().text
    assert [load_listing(harness, int(one)).version for one in ids] == [5, 5, 1]
    alice.post(PATH, action="delete", id=[ids[0], "1", "x"])
    assert "1 listing deleted. Undo 1 listing could not be deleted: Listing 1 : Listing not found." in alice.text
    assert alice.post(PATH, action="delete").reply.status == 400
    assert alice.post(PATH, action="explode", id=ids).reply.status == 400
    assert "Unknown action" in alice.text


def test_a_bulk_change_says_how_many_listings_were_so_already(harness: Harness, alice: Tab) -> None:
    ids = [str(create(harness, is_active=number > 0)) for number in range(3)]
    alice.get(PATH).post(PATH, action="pause", id=ids)
    assert "2 listings paused. 1 was already paused." in alice.follow().text


def confirm(tab: Tab, **more: Any) -> Tab:
    """Submit the confirmation page that is open."""
    (confirmed,) = tab.page.values("button", "value", name="confirmed")
    return tab.post(PATH, confirmed=confirmed or "", **form_values(tab) | more)


def test_all_listings_that_match_are_changed_after_a_confirmation(harness: Harness, alice: Tab) -> None:
    ids = [create(harness, title=f"Lamp {number}") for number in range(120)]
    chair = create(harness, title="Chair")
    open_console(harness, "bob@example.com")
    bobs = create(harness, "bob@example.com", title="Lamp")
    alice.get(f"{PATH}?q=lamp").post(PATH, action="delete", all="1", **form_values(alice))
    assert "Delete 120 listings?" in alice.text
    assert load_listing(harness, ids[0]).deleted_at is None
    confirm(alice)
    assert "120 listings deleted." in alice.follow().text
    assert all(load_listing(harness, one).deleted_at for one in ids)
    assert [load_listing(harness, one).deleted_at for one in (chair, bobs)] == [None, None]


@pytest.mark.decision("G43")
def test_all_that_match_include_the_listing_with_the_external_id(harness: Harness, alice: Tab) -> None:
    lamp = create(harness, title="Lamp", external_id="SKU-1")
    ids = [create(harness, title="Bicycle SKU-1", external_id=f"{number}") for number in range(51)]
    chair = create(harness, title="Chair", external_id="SKU-2")
    form = form_values(alice.get(f"{PATH}?q=SKU-1"))
    alice.post(PATH, action="delete", all="1", **form)
    for text in ("Delete 52 listings?", "The first 10", "Lamp"):
        assert text in alice.text
    confirm(alice)
    assert "52 listings deleted." in alice.follow().text
    assert all(load_listing(harness, one).deleted_at for one in (lamp, *ids))
    assert load_listing(harness, chair).deleted_at is None


@pytest.mark.decision("G43")
def test_a_listing_with_the_external_id_in_its_title_counts_once(harness: Harness, alice: Tab) -> None:
    create(harness, title="Lamp SKU-1", external_id="SKU-1")
    alice.get(PATH).post(PATH, action="pause", all="1", q="SKU-1")
    assert "Pause 1 listing?" in alice.text
    assert alice.text.count("Lamp SKU-1") == 1
    confirm(alice)
    assert "1 listing paused." in alice.follow().text


def fail_third_slice(harness: Harness, patch: pytest.MonkeyPatch) -> None:
    """Change two listings in each slice, and let the third one fail."""
    run_batch: Any = harness.store.run_batch

    async def fail(bucket: int, account_id: int, batch: Any, idempotency: IdempotencyRecord, actor: Any) -> Any:
        if idempotency.key.endswith(" 2"):
            raise Unavailable("The database can't be reached")
        return await run_batch(bucket, account_id, batch, idempotency, actor)

    patch.setattr(bulk, "MAX_SELECTED", 2)
    patch.setattr(harness.store, "run_batch", fail)


def test_a_bulk_change_sent_again_changes_what_had_failed(
    harness: Harness, alice: Tab, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [create(harness) for _ in range(5)]
    sent = {"action": "pause", "status": "active", "all": "1", "confirmed": "pause", "form_id": "a"}
    with monkeypatch.context() as patch:
        fail_third_slice(harness, patch)
        assert alice.post(PATH, **sent).reply.status == 503
        assert sum(load_listing(harness, one).is_active for one in ids) == 1
    monkeypatch.setattr(bulk, "MAX_SELECTED", 2)
    for _ in range(2):
        assert "5 listings paused." in alice.post(PATH, **sent).follow().text
        assert sum(load_listing(harness, one).is_active for one in ids) == 0


def test_a_failed_bulk_change_shows_what_was_changed(
    harness: Harness, alice: Tab, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(5):
        create(harness)
    fail_third_slice(harness, monkeypatch)
    alice.post(PATH, action="pause", all="1", confirmed="pause", form_id="a")
    assert (alice.reply.status, "The database" in alice.text) == (503, False)
    assert "your changes may not have been saved" in alice.text
    assert "4 listings paused. Undo The change was not completed." in alice.text
    assert '?group=%236">Undo</a>' in alice.reply.body.decode()


def test_a_percentage_sent_again_is_applied_once_to_each_listing(
    harness: Harness, alice: Tab, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [create(harness, price=10) for _ in range(5)]
    sent = {"action": "price", "mode": "percent", "amount": "10", "all": "1", "form_id": "a"}
    with monkeypatch.context() as patch:
        fail_third_slice(harness, patch)
        alice.post(PATH, confirmed="price percent 10", **sent)
    monkeypatch.setattr(bulk, "MAX_SELECTED", 2)
    later = create(harness, price=10)  # moves the others to other slices of a new search
    alice.post(PATH, confirmed="price percent 10", **sent)
    assert "The prices of 5 listings were changed." in alice.follow().text
    assert [load_listing(harness, one).price_cents for one in (*ids, later)] == [1100] * 5 + [1000]


def test_prices_are_changed_by_a_percentage_after_a_preview(harness: Harness, alice: Tab) -> None:
    ids = [create(harness, price=price) for price in (19.99, 0, 0.01)]
    alice.get(PATH).post(PATH, action="price", id=[str(one) for one in ids], form_id="a")
    alice.post(
        PATH, action="price", id=[str(one) for one in ids], form_id="a", mode="set", amount="-10%\N{NO-BREAK SPACE}"
    )
    assert "$19.99 $17.99" in " ".join(alice.text.split())
    assert load_listing(harness, ids[0]).price_cents == 1999
    sent: dict[str, Any] = {
        "id": [str(one) for one in ids],
        "mode": "percent",
        "amount": "-10%",
        "action": "price",
        "form_id": "a",
    }
    for _ in range(2):  # a form that is submitted twice takes effect once
        alice.post(PATH, confirmed="price percent -10%", **sent)
        assert "The price of 1 listing was changed. 2 stayed the same." in alice.follow().text
    assert [load_listing(harness, one).price_cents for one in ids] == [1799, 0, 1]


def test_a_preview_without_an_amount_has_an_error_at_the_field(harness: Harness, alice: Tab) -> None:
    sent = {"action": "price", "id": str(create(harness))}
    assert alice.get(PATH).post(PATH, **sent).page.values("input", "aria-invalid", id="amount") == []
    alice.post(PATH, mode="percent", amount="", **sent)
    assert alice.page.values("input", "aria-invalid", id="amount") == ["true"]
    assert alice.page.text.count("Enter an amount, such as -10 or 19.90.") == 2


def test_the_preview_of_prices_says_which_listings_are_deleted(harness: Harness, alice: Tab) -> None:
    lamp, chair = create(harness, title="Lamp", price=5), create(harness, title="Chair", price=5)
    alice.get(PATH).post(PATH, action="delete", id=str(lamp))
    sent: dict[str, Any] = {"action": "price", "mode": "percent", "amount": "10"}
    for selected in ({"id": [str(chair), str(lamp)]}, {"all": "1"}):
        assert "Chair $5 $5.50 Lamp $5 It is deleted. Restore it first" in alice.post(PATH, **sent, **selected).text
        assert alice.page.values("button", "value", name="confirmed") == ["price percent 10"]
    alice.post(PATH, **sent, id=str(lamp))  # there is nothing to confirm
    assert alice.page.values("button", "value", name="confirmed") == []


def test_prices_are_set_for_all_selected_listings(harness: Harness, alice: Tab) -> None:
    ids = [create(harness, price=price) for price in (5, 0)]
    form: dict[str, Any] = {"action": "price", "id": [str(one) for one in ids], "mode": "set", "amount": "$1,250.50"}
    alice.get(PATH).post(PATH, confirmed="price set 5", **form)  # another price than the one that was previewed
    assert "This is not the change that you have previewed." in alice.text
    assert [load_listing(harness, one).version for one in ids] == [1, 1]
    alice.post(PATH, confirmed="price set $1,250.50", **form)
    assert "The prices of 2 listings were changed." in alice.follow().text
    assert [load_listing(harness, one).price_cents for one in ids] == [125_050, 125_050]


def test_a_form_of_prices_is_not_sent_again_with_another_amount(harness: Harness, alice: Tab) -> None:
    listing_id = create(harness, price=10)
    for selected in ({"all": "1", "form_id": "a"}, {"id": str(listing_id), "form_id": "b"}):
        sent = {"action": "price", "mode": "set", **selected}
        alice.get(PATH).post(PATH, **sent, amount="20", confirmed="price set 20")
        alice.post(PATH, **sent, amount="30", confirmed="price set 30")
        assert (alice.reply.status, "already submitted with another change. Select the" in alice.text) == (409, True)
        assert "not completed" not in alice.text
    assert load_listing(harness, listing_id).price_cents == 2000


def test_an_invalid_price_change_stores_nothing(harness: Harness, alice: Tab) -> None:
    listing_id = create(harness, price=900_000_000)
    form = {"action": "price", "id": str(listing_id)}
    alice.get(PATH)
    for mode, amount, message in (
        ("set", "cheap", 'The price must be a number, got "cheap"'),
        ("set", "-1", "The price must be from 0 to"),
        ("percent", "-100", "Enter a percentage from -99 to 1000"),
        ("percent", " ", "Enter an amount, such as"),
        ("set", "", "Enter an amount, such as"),
        ("percent", "ten", "Enter a percentage, such as -10 or 2.5"),
        ("percent", "NaN", "Enter a percentage, such as -10 or 2.5"),
    ):
        alice.post(PATH, mode=mode, amount=amount, confirmed=f"price {mode} {amount}", **form)
        assert message in alice.text
        assert alice.reply.status == 400
    alice.post(PATH, mode="percent", amount="50", confirmed="price percent 50", **form)
    assert "could not be updated: Bicycle : Its price would be $1,350,000,000, which is too high." in alice.text
    assert load_listing(harness, listing_id).version == 1


def test_a_bulk_restore_lists_each_failure_by_title(harness: Harness, alice: Tab) -> None:
    lamp, chair = create(harness, title="Lamp"), create(harness, title="Chair")
    alice.get(PATH).post(PATH, action="delete", id=[str(lamp), str(chair)])
    alice.post(PATH, action="restore", id=[str(lamp), "1", str(chair), "2"])
    assert "2 listings restored. Undo 2 listings could not be restored:" in alice.text
    for number in (1, 2):
        assert f"Listing {number} : Listing not found." in alice.text
    assert [load_listing(harness, one).deleted_at for one in (lamp, chair)] == [None, None]
    assert "restored 2 listings" in alice.get("/console/activity").text
    alice.get(PATH).post(PATH, action="delete", id=str(lamp))
    alice.post(PATH, action="pause", id=str(lamp))
    assert "1 listing could not be paused: Lamp : It is deleted. Restore it first." in alice.text
    alice.post(PATH, action="delete", id=str(lamp))
    assert "1 listing could not be deleted: Lamp : It is already deleted." in alice.text
    assert "0 listings" not in alice.text


def test_a_bulk_change_returns_to_the_same_page(harness: Harness, alice: Tab) -> None:
    for number in range(60):
        create(harness, title=f"Lamp {number:02}", price=5)
    alice.get(f"{PATH}?sort=title")
    page = alice.page.values("a", "href", rel="next")[0] or ""
    ids = alice.get(page).page.values("input", "value", name="id")
    seen = list_titles(alice)
    form = {name: text for name, text in form_values(alice).items() if name in {"q", "status", "type", "sort", "after"}}
    alice.post(PATH, action="pause", id=[ids[0] or ""], **form)
    assert alice.reply.headers["location"] == page
    assert "1 listing paused." in alice.follow().text
    assert list_titles(alice) == seen
    alice.post(PATH, action="restore", id=[ids[0] or ""], **form)
    assert list_titles(alice) == seen


def test_more_listings_than_the_limit_are_changed_in_parts(
    harness: Harness, alice: Tab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "MAX_MATCHING", 2)
    ids = [create(harness, title=f"Lamp {number}", price=10) for number in range(5)]
    alice.get(f"{PATH}?q=lamp").post(PATH, action="price", all="1", **form_values(alice))
    change = {"mode": "percent", "amount": "10"}
    alice.post(PATH, **form_values(alice) | change)
    for _ in range(2):
        confirm(alice, **change)
        assert "The prices of 2 listings were changed." in alice.text
        assert "More listings match your search. To change them, too, confirm once more." in alice.text
    confirm(alice, **change)
    assert "The price of 1 listing was changed." in alice.follow().text
    assert [load_listing(harness, one).price_cents for one in ids] == [1100] * 5
