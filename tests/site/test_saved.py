"""The listings that a visitor saves in a cookie."""

import pytest

from tests.harness import Harness, Person
from tests.site.market import ParsedPage, create, get
from tests.site.tab import Tab

pytestmark = pytest.mark.decision("G61")


def save(tab: Tab, listing_id: int, action: str = "save") -> ParsedPage:
    """Send the form of a listing's page, and return the page that follows."""
    return tab.post("/saved", id=str(listing_id), action=action).follow().page


def test_saved_listings_are_shown_the_last_one_first(harness: Harness, alice: Person) -> None:
    tab = Tab(harness, "market.example")
    saw, plane = create(harness, alice, title="Saw"), create(harness, alice, title="Plane")
    assert save(tab, plane).titles == ["Plane"]
    assert save(tab, saw).titles == ["Saw", "Plane"]
    assert save(tab, plane).titles == ["Plane", "Saw"]
    assert save(tab, plane, "remove").titles == ["Saw"]
    assert "Nothing saved yet" in save(tab, saw, "remove").text


def test_at_most_a_hundred_listings_are_saved(harness: Harness) -> None:
    tab = Tab(harness, "market.example")
    tab.cookies["listings_saved"] = ".".join(map(str, range(1, 101)))
    save(tab, 500)
    assert tab.cookies["listings_saved"] == ".".join(map(str, [500, *range(1, 100)]))


def test_a_listing_that_is_closed_can_be_removed(harness: Harness, alice: Person) -> None:
    tab = Tab(harness, "market.example")
    listing_id = create(harness, alice)
    save(tab, listing_id)
    harness.fetch("DELETE", f"/api/v1/listings/{listing_id}", key=alice.key)
    assert "1 saved listing is no longer on the market." in tab.get("/saved").text
    assert "Nothing saved yet" in save(tab, 0, "clean").text


@pytest.mark.parametrize("text", ["x", "1..2", "1" * 19, "'", "1,2"])
def test_an_invalid_cookie_is_ignored(harness: Harness, text: str) -> None:
    assert "Nothing saved yet" in get(harness, "/saved", cookie=f"listings_saved={text}").body.decode()


def test_other_pages_do_not_depend_on_the_cookie(harness: Harness, alice: Person) -> None:
    listing_id = create(harness, alice)
    for path in ("/", "/?q=bicycle", f"/listings/{listing_id}", f"/sellers/{alice.account.id}"):
        without, with_cookie = get(harness, path), get(harness, path, cookie=f"listings_saved={listing_id}")
        assert with_cookie.body == without.body


def test_a_form_of_another_site_saves_nothing(harness: Harness) -> None:
    reply = harness.fetch("POST", "/saved", headers={"Sec-Fetch-Site": "cross-site", "Accept": "text/html"})
    assert reply.status == 403
