"""Search, create, edit, pause, resume, delete and restore listings in the console."""

import asyncio
import re
from contextlib import suppress
from pathlib import Path

import pytest

from listings.domain import fields, tokenizer
from listings.domain.listings import AddStep, Batch
from listings.domain.model import Caller, NewListing, bucket_of
from tests.harness import MONTH, Harness
from tests.site.tab import Tab, create, form_values, list_titles, load_listing, open_console

PATH = "/console/listings"
LAMP = {"title": "Lamp", "content": "A lamp.", "type": "product", "price": "12.50", "price_type": "fixed"}


def sign_in_again(tab: Tab) -> None:
    """Start another session, while the token of the open form belongs to the earlier one."""
    token = tab.token
    tab.cookies.clear()
    tab.sign_in("alice@example.com").token = token


def test_the_form_suggests_regions_and_categories_for_the_type(alice: Tab) -> None:
    alice.get(f"{PATH}/new")
    assert alice.page.values("input", "list", name="category") == ["categories-product"]
    assert {"Bicycles", "Hospitality", "Hawke's Bay"} <= set(alice.page.values("option", "value"))
    invalid = alice.post(f"{PATH}/new", form_id="a", **LAMP | {"title": "", "type": "job"})
    assert invalid.page.values("input", "list", name="category") == ["categories-job"]


def test_an_account_without_listings_sees_how_to_start(harness: Harness, alice: Tab) -> None:
    assert "No listings yet" in alice.get(PATH).text
    text = open_console(harness, "new@example.com", months=0).get(PATH).text
    assert "Write your first listings now, and publish them when your Business plan has started." in text


def test_listings_are_found_by_status_terms_and_type_in_any_order(harness: Harness, alice: Tab) -> None:
    for title, price in (("Red bicycle", 30), ("Blue bicycle", 10), ("Lamp", 20)):
        create(harness, title=title, price=price, is_active=title != "Lamp")
    create(harness, title="Mowing", type="service")
    assert list_titles(alice.get(PATH)) == ["Mowing", "Lamp", "Blue bicycle", "Red bicycle"]
    assert list_titles(alice.get(f"{PATH}?status=inactive")) == ["Lamp"]
    assert list_titles(alice.get(f"{PATH}?q=BICYCLE&sort=price")) == ["Blue bicycle", "Red bicycle"]
    assert list_titles(alice.get(f"{PATH}?type=service")) == ["Mowing"]
    assert list_titles(alice.get(f"{PATH}?sort=title&status=nonsense&type=nonsense")) == sorted(list_titles(alice))
    assert "Nothing found" in alice.get(f"{PATH}?status=deleted").text
    assert "Enter a search term with letters or digits" in alice.get(f"{PATH}?q=%21").text


def test_titles_are_sorted_as_people_expect(harness: Harness, alice: Tab) -> None:
    titles = ["10 plates", "9 plates", "apple", "Banana", "éclair", "Otago", "Ōtaki", "Zebra", "🚲"]
    for title in titles[::-1]:
        create(harness, title=title)
    assert list_titles(alice.get(f"{PATH}?sort=title")) == titles


def test_titles_of_a_large_account_are_sorted_over_all_pages(harness: Harness, alice: Tab) -> None:
    account = harness.run(harness.services.accounts.find("alice@example.com"))
    words = ("apple", "Banana", "Ōtaki", "otago", "Zebra", "9 plates", "10 plates", "😀")
    titles = [f"{words[number % len(words)]} {number}" for number in range(1_050)]
    steps = [AddStep(NewListing(title=title, content="c"), "2026-11-21 10:00:00") for title in titles]
    batch = Batch(steps, atomic=True, dry_run=False, encode=str)
    harness.run(harness.store.run_batch(bucket_of(account.id), account.id, batch))
    shown = list_titles(alice.get(f"{PATH}?sort=title"))
    while following := alice.page.values("a", "href", rel="next"):
        shown += list_titles(alice.get(following[0] or ""))
    assert shown == sorted(titles, key=tokenizer.fold)


def test_the_most_viewed_listings_come_first(harness: Harness, alice: Tab) -> None:
    first = create(harness, title="Lamp")
    create(harness, title="Saw")
    assert list_titles(alice.get(f"{PATH}?sort=-views")) == ["Saw", "Lamp"]
    harness.run(harness.store.record_views(20_000, {first: [b"1" * 16]}))
    assert list_titles(alice.get(f"{PATH}?sort=-views")) == ["Lamp", "Saw"]
    assert "1 view" in alice.text


@pytest.mark.parametrize("sort", ["", "title", "-views", "price"])
def test_the_link_to_the_previous_page_leads_back(harness: Harness, alice: Tab, sort: str) -> None:
    for number in range(101):
        create(harness, title=f"Lamp {number:03}", price=number + 1)
    pages = [list_titles(alice.get(f"{PATH}?sort={sort}"))]
    for _ in range(2):
        (following,) = alice.page.values("a", "href", rel="next")
        pages.append(list_titles(alice.get(following or "")))
    assert [len(page) for page in pages] == [50, 50, 1]
    for page in pages[1::-1]:
        (previous,) = alice.page.values("a", "href", rel="prev")
        assert list_titles(alice.get(previous or "")) == page
    assert alice.page.values("a", "href", rel="prev") == []


def test_a_deletion_of_all_does_not_count_deleted_ones(harness: Harness, alice: Tab) -> None:
    create(harness, title="Lamp")
    gone = create(harness, title="Saw")
    alice.get(f"{PATH}/{gone}").post(f"{PATH}/{gone}/state", action="delete")
    alice.get(PATH).post(PATH, action="delete", all="1")
    assert "Delete 1 listing?" in alice.text


@pytest.mark.decision("G43")
def test_the_seller_s_own_id_is_found_exactly(harness: Harness, alice: Tab) -> None:
    create(harness, title="Bike 17", content="SKU-17 on the frame.", external_id="B")
    first = create(harness, title="Lamp", external_id="SKU-17", type="service")
    create(harness, title="Chair", external_id="***", is_active=False)
    create(harness, title="Sofa", external_id="x" * 255)
    assert list_titles(alice.get(f"{PATH}?q=SKU-17")) == ["Lamp", "Bike 17"]
    assert f'{first} · <span dir="auto">SKU-17</span>' in alice.reply.body.decode()
    assert list_titles(alice.get(f"{PATH}?q=sku-17")) == ["Bike 17"]
    assert list_titles(alice.get(f"{PATH}?q=SKU-17&type=product")) == ["Bike 17"]
    assert list_titles(alice.get(f"{PATH}?q=%2A%2A%2A&status=inactive")) == ["Chair"]
    assert "Enter a search term" not in alice.text
    assert list_titles(alice.get(f"{PATH}?q={'x' * 255}")) == ["Sofa"]
    assert "Nothing found" in alice.get(f"{PATH}?q=a%00").text
    alice.post(f"{PATH}/{first}/state", action="delete")
    assert list_titles(alice.get(f"{PATH}?q=SKU-17&status=deleted")) == ["Lamp"]


@pytest.mark.decision("G43")
def test_a_clash_of_own_ids_is_shown_at_the_field(harness: Harness, alice: Tab) -> None:
    holder, own = create(harness, external_id="A"), create(harness)
    error = f"Your own ID &#34;A&#34; belongs to listing {holder}: use another one, or change listing {holder} first."
    assert alice.post(f"{PATH}/new", **LAMP, external_id="A").reply.status == 400
    assert error in alice.reply.body.decode()
    edit = {"title": "Bicycle", "content": "Two wheels.", "type": "product", "price_type": "fixed"}
    for sent, status, stored in (("A", 400, None), (" B ", 303, "B"), ("", 303, None)):
        version = form_values(alice.get(f"{PATH}/{own}"))["version"]
        assert alice.post(f"{PATH}/{own}", **edit, version=version, external_id=sent).reply.status == status
        assert (error in alice.reply.body.decode()) is (status == 400)
        assert load_listing(harness, own).external_id == stored
    alice.post(f"{PATH}/{holder}/state", action="delete")
    again = create(harness, external_id="A")
    for path, action in ((f"{PATH}/{holder}/state", {}), (PATH, {"id": str(holder)})):
        text = alice.post(path, action="restore", **action).text
        assert f'Your own ID "A" belongs to listing {again}' in text
        assert "external_id" not in text


def test_a_page_of_large_listings_is_shown_in_any_order(harness: Harness, alice: Tab) -> None:
    for number in range(3):
        create(harness, title=f"Lamp {number}", content="\N{BUTTERFLY}" * 50_000, price=number)
    for sort in ("", "price", "-price"):
        assert len(list_titles(alice.get(f"{PATH}?sort={sort}"))) == 3


def count_connections(harness: Harness) -> int:
    """Return how often this process has the database open. SQLite keeps a closed file open while another is in use."""
    paths = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # of the listing itself
            paths.append(link.readlink())
    return paths.count(harness.settings.file)


async def read_pages(harness: Harness, ids: list[int], count: int) -> None:
    services = harness.services
    account = await services.accounts.find("alice@example.com")
    caller = Caller(0, account.id, bucket_of(account.id), None, None, None, None, "write")
    await asyncio.gather(*[services.listings.find_titles(caller, ids) for _ in range(count)])


@pytest.mark.usefixtures("alice")
def test_pages_of_large_listings_open_few_connections(harness: Harness) -> None:
    ids = [create(harness, content="\N{BUTTERFLY}" * 50_000) for _ in range(3)]
    before = count_connections(harness)
    harness.run(read_pages(harness, ids, 20))
    assert count_connections(harness) <= before + 2


def test_a_large_listing_with_the_external_id_is_shown_once(harness: Harness, alice: Tab) -> None:
    for number in range(3):
        create(harness, title=f"Lamp {number}", content="\N{BUTTERFLY}" * 50_000, external_id=f"{number}")
    create(harness, title="Lamp", external_id="lamp")
    assert list_titles(alice.get(f"{PATH}?q=lamp")) == ["Lamp", "Lamp 2", "Lamp 1", "Lamp 0"]


def test_counts_per_status_follow_edits(harness: Harness, alice: Tab) -> None:
    def counts() -> list[str]:
        return re.findall(r'class="count">(\d+)<', alice.get(PATH).reply.body.decode())

    ids = [create(harness) for _ in range(3)]
    assert counts() == counts() == ["3", "3", "0", "0"]
    alice.post(f"{PATH}/{ids[0]}/state", action="pause")
    alice.post(f"{PATH}/{ids[1]}/state", action="delete")
    assert counts() == ["3", "1", "1", "1"]
    for search in ("?q=zzzz", "?type=rental"):
        assert 'class="count"' not in alice.get(f"{PATH}{search}").reply.body.decode()


@pytest.mark.parametrize(
    "after", ["x", "W10=", "WzEsIDJd", "WyJ4IiwgMV0=", "WyJcdTAwMDAiLCAxXQ==", "WzFlOTksIDFd", "é"]
)
def test_an_invalid_cursor_is_ignored(harness: Harness, alice: Tab, after: str) -> None:
    create(harness)
    for sort in ("", "title", "price"):
        assert alice.get(f"{PATH}?sort={sort}&after={after}").reply.status == 200


def test_a_listing_is_created_with_all_fields_and_published(harness: Harness, alice: Tab) -> None:
    form = LAMP | {"category": "Lights", "region": "Otago", "district": "Dunedin", "location": "Princes Street"}
    form |= {"latitude": "-45.87", "longitude": "1.5e-05", "images": "https://x.example/1.jpg", "is_active": "true"}
    alice.get(f"{PATH}/new").post(f"{PATH}/new", form_id=form_values(alice)["form_id"], **form)
    assert "Listing created" in alice.follow().text
    listing = load_listing(harness, int(alice.page.values("form", "action")[1].split("/")[-2]))  # type: ignore[union-attr]
    assert (listing.title, listing.price_cents, listing.latitude, listing.is_active) == ("Lamp", 1250, -45.87, True)
    assert (listing.longitude, listing.images) == (0.000015, '["https://x.example/1.jpg"]')
    assert "Lamp" in Tab(harness).get(f"/listings/{listing.id}").text


def test_a_price_with_much_whitespace_is_rejected(alice: Tab) -> None:
    for price in (" " * 200_000 + "x", "$" + " " * 200_000 + "x", "1" + " " * 200_000 + "x"):
        alice.get(f"{PATH}/new").post(f"{PATH}/new", **LAMP | {"price": price})
        assert alice.reply.status == 400
        assert "Enter the price as a number" in alice.text


def test_errors_appear_at_their_fields_and_values_are_kept(alice: Tab) -> None:
    alice.get(f"{PATH}/new").post(f"{PATH}/new", **LAMP | {"title": " ", "price": "cheap", "latitude": "400"})
    assert alice.reply.status == 400
    for name, message in (("title", "Enter a title."), ("price", "Enter the price as a number, such as 450.")):
        assert alice.page.values("input", "aria-invalid", id=f"listing-{name}") == ["true"]
        assert message in alice.text
    links = [one for one in alice.page.values("a", "href") if one is not None and one.startswith("#listing-")]
    assert links == ["#listing-title", "#listing-price", "#listing-latitude"]
    assert alice.page.values("input", "value", id="listing-price") == ["cheap"]
    assert alice.page.values("input", "aria-invalid", id="listing-region") == []
    assert "No listings yet" in alice.get(PATH).text


def test_every_field_has_a_label_and_ids_are_unique(alice: Tab) -> None:
    page = alice.get(f"{PATH}/new").page
    ids = [one.attributes["id"] for one in page.elements if "id" in one.attributes]
    assert len(ids) == len(set(ids))
    labels = page.values("label", "for")
    assert {f"listing-{name}" for name in (*LAMP, "region", "latitude")} <= set(labels) <= set(ids)
    described = " ".join(filter(None, (one.attributes.get("aria-describedby") for one in page.elements))).split()
    assert set(described) <= set(ids)


def test_the_form_has_every_field_and_shows_each_selected_value(harness: Harness, alice: Tab) -> None:
    page = alice.get(f"{PATH}/{create(harness)}").page
    controls = [*page.all("input"), *page.all("textarea"), *page.all("select")]
    assert fields.FIELDS.keys() <= {one.attributes.get("name") for one in controls}
    selected = [one for one in page.all("option") if "selected" in one.attributes]
    assert len(selected) == len(page.all("select"))


def test_a_form_submitted_twice_creates_one_listing(alice: Tab) -> None:
    form_id = form_values(alice.get(f"{PATH}/new"))["form_id"]
    first = alice.post(f"{PATH}/new", form_id=form_id, **LAMP).reply.headers["location"]
    assert alice.post(f"{PATH}/new", form_id=form_id, **LAMP).reply.headers["location"] == first
    assert alice.post(f"{PATH}/new", form_id=form_id, **LAMP | {"title": "Another"}).reply.status == 409
    assert "its listing was created" in alice.text
    assert list_titles(alice.get(PATH)) == ["Lamp"]


def list_actions(tab: Tab) -> list[str | None]:
    return tab.page.values("button", "value", name="action")


def test_without_a_plan_listings_on_the_market_are_only_paused_and_deleted(harness: Harness, alice: Tab) -> None:
    listing_id = create(harness)
    harness.clock.advance(13 * MONTH)
    alice = Tab(harness).sign_in("alice@example.com").get("/console/account")
    assert list_actions(alice.get(PATH)) == ["pause", "delete"]
    assert list_actions(alice.get(f"{PATH}/{listing_id}")) == ["pause", "delete"]
    assert ("Save" in alice.page.texts, len(alice.page.values("fieldset", "disabled"))) == (False, 1)
    assert alice.page.values("a", "href", href=f"{PATH}/new?from={listing_id}") == []
    for path, fields_ in (
        (f"{PATH}/{listing_id}", LAMP),
        (f"{PATH}/{listing_id}/state", {"action": "resume"}),
    ):
        assert (alice.post(path, **fields_).reply.status, "under Plan" in alice.text) == (403, True)
    for action, left in (("pause", ["delete"]), ("delete", [])):
        assert alice.post(f"{PATH}/{listing_id}/state", action=action).reply.status == 303
        assert list_actions(alice.follow()) == left
        assert "not publish, change or restore them. See the plan" in alice.text
        assert "/console/activity/undo" not in alice.reply.body.decode()
    for path in ("/console/activity", f"{PATH}/{listing_id}/history"):
        assert "/console/activity/undo" not in alice.get(path).reply.body.decode()
        assert "you can’t undo changes. See the plan" in alice.text
    assert alice.post(f"{PATH}/{listing_id}/state", action="restore").reply.status == 403
    assert alice.post(PATH, action="restore", id=str(listing_id)).reply.status == 403
    assert load_listing(harness, listing_id).deleted_at is not None


def test_saving_stores_only_edited_fields(harness: Harness, alice: Tab) -> None:
    listing_id = create(harness, content="First.\nSecond.", price=5, images=["https://x.example/1.jpg"])
    before = load_listing(harness, listing_id)
    alice.get(f"{PATH}/{listing_id}")
    form = form_values(alice) | {
        "content": "First.\r\nSecond.",
        "images": "https://x.example/1.jpg",
        "type": "product",
        "price_type": "fixed",
        "is_active": "true",
    }
    del form["token"]
    assert "There were no changes to save" in alice.post(f"{PATH}/{listing_id}", **form).follow().text
    assert load_listing(harness, listing_id) == before
    alice.post(f"{PATH}/{listing_id}", **form | {"price": "7.25"})
    assert "Listing saved" in alice.follow().text
    after = load_listing(harness, listing_id)
    assert (after.price_cents, after.content, after.version) == (725, "First.\nSecond.", before.version + 1)
    assert "updated price of" in alice.get("/console/activity").text


def test_a_form_from_before_a_restore_overwrites_nothing(harness: Harness, alice: Tab) -> None:
    listing_id = create(harness, price=5)
    version = form_values(alice.get(f"{PATH}/{listing_id}"))["version"]
    form = {"title": "Bicycle", "content": "Two wheels.", "type": "product", "price_type": "fixed", "is_active": "true"}
    alice.post(f"{PATH}/{listing_id}", version=f"abcdef01{version}", **form, price="6")
    assert "changed elsewhere since you opened this form" in alice.text
    assert load_listing(harness, listing_id).price_cents == 500


def test_two_tabs_do_not_overwrite_each_other(harness: Harness, alice: Tab) -> None:
    listing_id = create(harness, price=5)
    version = form_values(alice.get(f"{PATH}/{listing_id}"))["version"]
    form = {"title": "Bicycle", "content": "Two wheels.", "type": "product", "price_type": "fixed", "is_active": "true"}
    alice.post(f"{PATH}/{listing_id}", version=version, **form, price="6")
    assert alice.reply.status == 303
    alice.post(f"{PATH}/{listing_id}", version=version, **form, price="6")  # the same form again
    assert alice.reply.status == 303
    alice.post(f"{PATH}/{listing_id}", version=version, **form | {"title": "My bicycle"}, price="5")
    assert (alice.reply.status, "was changed elsewhere" in alice.text) == (412, True)
    for row in ("Price 6.00 5", "Title Bicycle My bicycle"):
        assert row in alice.text
    assert alice.page.values("input", "value", id="listing-title") == ["My bicycle"]
    assert load_listing(harness, listing_id).title == "Bicycle"
    alice.post(
        f"{PATH}/{listing_id}", version=form_values(alice)["version"], **form | {"title": "My bicycle"}, price="5"
    )
    assert (load_listing(harness, listing_id).title, load_listing(harness, listing_id).price_cents) == (
        "My bicycle",
        500,
    )


def test_a_form_of_an_earlier_session_can_be_saved_again(harness: Harness, alice: Tab) -> None:
    listing_id = create(harness)
    for path in (f"{PATH}/new", f"{PATH}/{listing_id}"):
        form = {name: text for name, text in form_values(alice.get(path)).items() if name in {"form_id", "version"}}
        form |= LAMP | {"content": "A long text.", "is_active": "true"}
        sign_in_again(alice)
        assert alice.post(path, **form).reply.status == 403
        assert "You signed in again in the meantime, so nothing was saved. Save once more." in alice.text
        assert "A long text." in alice.text
        assert form.items() >= {name: form_values(alice)[name] for name in form.keys() & {"form_id", "version"}}.items()
        assert load_listing(harness, listing_id).title == "Bicycle"
        assert alice.post(path, **form).reply.status == 303
    assert list_titles(alice.get(PATH)) == ["Lamp", "Lamp"]


def test_a_form_of_an_earlier_session_overwrites_no_other_edit(harness: Harness, alice: Tab) -> None:
    listing_id = create(harness)
    path = f"{PATH}/{listing_id}"
    version = form_values(alice.get(path))["version"]
    alice.post(f"{path}/state", action="pause")
    sign_in_again(alice)
    assert alice.post(path, **LAMP, version=version).reply.status == 403
    assert alice.post(path, **LAMP, version=form_values(alice)["version"]).reply.status == 412
    assert load_listing(harness, listing_id).title == "Bicycle"


@pytest.mark.parametrize("version", ["", "x", "0", "-1", "99999999999999999999"])
def test_a_form_with_an_invalid_version_stores_nothing(harness: Harness, alice: Tab, version: str) -> None:
    listing_id = create(harness)
    assert alice.post(f"{PATH}/{listing_id}", version=version, **LAMP).reply.status == 412
    assert load_listing(harness, listing_id).title == "Bicycle"


def test_a_listing_of_another_account_is_not_found(harness: Harness, alice: Tab) -> None:
    open_console(harness, "bob@example.com")
    listing_id = create(harness, "bob@example.com", title="Bob's")
    for path in (str(listing_id), "1", "x", "99999999999999999999"):
        alice.get(f"{PATH}/{path}")
        assert (alice.reply.status, "You don't have this listing" in alice.text) == (404, True)
        assert alice.post(f"{PATH}/{path}", version="1", **LAMP).reply.status == 404
        assert alice.post(f"{PATH}/{path}/state", action="delete").reply.status == 404
    for action in ("delete", "restore"):
        assert alice.post(PATH, action=action, id=str(listing_id)).reply.status == 200
        assert f"1 listing could not be {action}d: Listing {listing_id} : This listing belongs to" in alice.text
    assert "Bob's" not in alice.text
    assert load_listing(harness, listing_id).is_active


def test_a_preview_shows_the_form_and_stores_nothing(harness: Harness, alice: Tab) -> None:
    listing_id = create(harness, price=20, images=["https://x.example/1.jpg"])
    stored = load_listing(harness, listing_id)
    form = {**form_values(alice.get(f"{PATH}/{listing_id}")), **LAMP, "images": "https://x.example/2.jpg"}
    for path in (f"{PATH}/{listing_id}", f"{PATH}/new"):
        shown = alice.post(f"{path}/preview", **form)
        assert shown.reply.status == 200
        assert shown.page.values("img", "src", width="1200") == ["https://x.example/2.jpg"]
        assert all(text in shown.text for text in ("Nothing is saved.", "Lamp", "$12.50", "A lamp."))
        assert shown.page.values("meta", "content", name="robots") == ["noindex"]
    assert load_listing(harness, listing_id) == stored
    assert list_titles(alice.get(PATH)) == ["Bicycle"]


def test_a_preview_of_an_invalid_form_shows_its_errors(harness: Harness, alice: Tab) -> None:
    listing_id = create(harness)
    for path in (f"{PATH}/{listing_id}", f"{PATH}/new"):
        shown = alice.post(f"{path}/preview", **LAMP | {"price": "cheap"})
        assert (shown.reply.status, "Please fix 1 field." in shown.text) == (400, True)
    open_console(harness, "bob@example.com")
    other = create(harness, "bob@example.com")
    assert alice.post(f"{PATH}/{other}/preview", **LAMP).reply.status == 404
    assert alice.post(f"{PATH}/new/preview", token="", **LAMP).reply.status == 403


def test_a_listing_is_paused_resumed_deleted_and_restored(harness: Harness, alice: Tab) -> None:
    listing_id = create(harness)
    path = f"{PATH}/{listing_id}"
    states = []
    for action in ("pause", "resume", "delete", "restore"):
        alice.get(path).post(f"{path}/state", action=action)
        alice.follow()
        listing = load_listing(harness, listing_id)
        states.append((listing.is_active, listing.deleted_at is not None))
    assert states == [(False, False), (True, False), (False, True), (False, False)]
    assert alice.post(f"{path}/state", action="explode").reply.status == 400


@pytest.mark.decision("G52")
def test_a_paused_listing_has_a_page_that_only_its_owner_sees(harness: Harness, alice: Tab) -> None:
    listing_id = create(harness, is_active=False)
    path = f"/listings/{listing_id}"
    assert "View page Resume" in alice.get(f"/console{path}").text
    assert path in alice.page.values("a", "href")
    assert "Paused: only you can see this page." in alice.get(path).text
    assert alice.page.values("meta", "content", name="robots") == ["noindex"]
    assert alice.reply.headers["cache-control"] == "private, no-cache"
    for visitor in (Tab(harness), open_console(harness, "bob@example.com")):
        assert visitor.get(path).reply.status == 404
    harness.run(harness.services.market.write_views())
    assert load_listing(harness, listing_id).view_count == 0


def test_text_for_a_listing_that_was_deleted_meanwhile_is_not_lost(harness: Harness, alice: Tab) -> None:
    listing_id = create(harness)
    alice.post(f"{PATH}/{listing_id}/state", action="delete")
    alice.post(f"{PATH}/{listing_id}", version="1", **LAMP | {"content": "Three long evenings of work."})
    assert alice.reply.status == 404
    assert "To keep the text below, restore the listing in another tab, then save again." in alice.text
    assert "Three long evenings of work." in alice.reply.body.decode()


def test_a_deleted_listing_shows_restore_instead_of_the_form(harness: Harness, alice: Tab) -> None:
    listing_id = create(harness)
    alice.post(f"{PATH}/{listing_id}/state", action="delete")
    alice.get(f"{PATH}/{listing_id}")
    assert "This listing is deleted" in alice.text
    alice.post(f"{PATH}/{listing_id}/state", action="pause")
    assert (alice.reply.status, "It is deleted. Restore it first." in alice.text) == (404, True)
    assert alice.page.all("input", name="version") == []
    assert alice.post(f"{PATH}/{listing_id}", version="2", **LAMP).reply.status == 404
    harness.run(harness.services.accounts.expire_plan("alice@example.com"))
    assert "Get an active plan and restore it" in alice.get(f"{PATH}/{listing_id}").text


def test_a_copy_of_a_listing_is_a_new_paused_one(harness: Harness, alice: Tab) -> None:
    original = create(harness, title="Lamp", price=5, external_id="A", category="Lights")
    alice.get(f"{PATH}/new?from={original}")
    values = form_values(alice)
    assert (values["title"], values["price"], values["category"], values["external_id"]) == (
        "Lamp",
        "5.00",
        "Lights",
        "",
    )
    assert 'name="is_active" value="true" checked' not in alice.reply.body.decode()
    open_console(harness, "bob@example.com")
    bobs = create(harness, "bob@example.com", title="Secret")
    assert "Secret" not in alice.get(f"{PATH}/new?from={bobs}").reply.body.decode()


def test_a_copy_of_a_listing_of_the_demo_has_its_pictures(harness: Harness, alice: Tab) -> None:
    images = ["/static/demo/table.webp", "https://x.example/1.jpg"]
    original = create(harness, images=images)
    copied = re.search(
        r"<textarea [^>]*images[^>]*>\s*([^<]+)</textarea>",
        alice.get(f"{PATH}/new?from={original}").reply.body.decode(),
    )
    assert copied is not None
    alice.post(f"{PATH}/new", **LAMP | {"images": copied[1]})
    assert load_listing(harness, original + 1024).images == (
        '["http://localhost:8000/static/demo/table.webp","https://x.example/1.jpg"]'
    )


def test_a_listing_that_is_not_deleted_is_not_restored(harness: Harness, alice: Tab) -> None:
    lamp = create(harness, title="Lamp")
    alice.get(f"{PATH}/{lamp}").post(f"{PATH}/{lamp}/state", action="restore")
    assert (alice.reply.status, "It is not deleted." in alice.text) == (400, True)
    alice.get(PATH).post(PATH, action="restore", id=str(lamp))
    assert "1 listing could not be restored: Lamp : It is not deleted." in alice.text
    assert "1 listing restored" not in alice.text


@pytest.mark.decision("G8")
def test_the_owner_does_not_count_as_a_visitor(harness: Harness, alice: Tab) -> None:
    listing_id = create(harness)
    bob = open_console(harness, "bob@example.com")
    for tab in (alice, alice):
        assert tab.get(f"/listings/{listing_id}").reply.status == 200
    harness.run(harness.services.market.write_views())
    assert load_listing(harness, listing_id).view_count == 0
    bob.get(f"/listings/{listing_id}")
    harness.run(harness.services.market.write_views())
    assert load_listing(harness, listing_id).view_count == 1


@pytest.mark.parametrize("path", [f"{PATH}/new", f"{PATH}/new/preview", f"{PATH}/1025", f"{PATH}/1025/preview"])
def test_the_page_of_an_error_is_not_much_larger_than_a_valid_form(harness: Harness, alice: Tab, path: str) -> None:
    assert create(harness) == 1025
    alice.get(f"{PATH}/new")
    page = alice.post(path, form_id="a", version="v1", **LAMP | {"content": "'" * 400_000, "region": "'" * 200_000})
    assert page.reply.status == 400
    assert "at most 100000 characters, got 400000" in page.text
    assert len(page.reply.body) < 1_500_000


@pytest.mark.parametrize("field", ["name", "email", "contact"])
def test_a_field_that_is_much_too_long_is_not_shown_whole(alice: Tab, field: str) -> None:
    alice.get("/console/account")
    page = alice.post(f"/console/account/{field}", **{field: "'" * 600_000})
    assert (page.reply.status, len(page.reply.body) < 200_000) == (400, True)
