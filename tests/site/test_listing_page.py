"""The page of a listing: content, metadata and views."""

import json
from pathlib import Path

import pytest

from listings.domain.errors import Problem
from listings.domain.fields import FIELDS
from tests.harness import Harness, Person
from tests.site.market import ParsedPage, create, get, get_page


def count_views(harness: Harness, listing_id: int) -> int:
    harness.run(harness.services.market.write_views())
    listing = harness.run(harness.store.get_listing(listing_id))
    assert listing is not None
    return listing.view_count


def test_the_page_shows_all_fields(harness: Harness, alice: Person) -> None:
    listing_id = create(
        harness, alice, title="Sunny studio", content="One room.\nNo pets.\n\nBy the sea.", type="rental",
        category="Holiday homes", price=145, price_type="per_night", location="Oriental Bay",
        district="Wellington City", region="Wellington", latitude=-41.2911, longitude=174.7946,
        images=["https://images.example/1.jpg", "2.jpg", "http://images.example/3.jpg"],
    )  # fmt: skip
    page = get_page(harness, f"/listings/{listing_id}")
    for text in ("$145 per night", "Oriental Bay, Wellington City, Wellington", "22 September 2026", str(listing_id)):
        assert text in page.text
    assert len(page.all("br")) == 2  # in the text and before the link to the map
    pictures = ["https://images.example/1.jpg", "http://images.example/3.jpg"]
    shown = [one.attributes for one in page.all("img", referrerpolicy="no-referrer", width="1200")]
    assert [one["src"] for one in shown] == pictures
    assert [one["alt"] for one in shown] == ["Sunny studio, picture 1 of 2", "Sunny studio, picture 2 of 2"]
    assert page.values("a", "href", rel="nofollow ugc noopener noreferrer") == pictures
    assert any("openstreetmap.org/?mlat=-41.29&mlon=174.79#" in str(link) for link in page.values("a", "href"))
    assert {"/?type=rental", "/?type=rental&category=Holiday+homes"} <= set(page.values("a", "href"))


_SHOWN_AS = {
    "images": "rimu-table-1.jpg",
    "price": "$1,250.50",
    "price_type": "negotiable",
    "latitude": "mlat=-41.29",
    "longitude": "mlon=174.78",
    "is_active": "",  # only active listings have a page
    "external_id": "",  # only its seller sees it
}


def test_no_field_but_the_external_id_is_missing_on_the_page(harness: Harness, alice: Person) -> None:
    listing_id = create(harness, alice, **{name: field.example for name, field in FIELDS.items()})
    html = get(harness, f"/listings/{listing_id}").body.decode()
    texts = {name: field.options.get(str(field.example), str(field.example)) for name, field in FIELDS.items()}
    assert [name for name, text in (texts | _SHOWN_AS).items() if text not in html] == []
    assert texts["external_id"] not in html


def test_the_page_has_open_graph_and_structured_data(harness: Harness, alice: Person) -> None:
    listing_id = create(harness, alice, title='"Moa" & <kiwi>', price=20, images=["https://images.example/1.jpg"])
    url = f"http://market.example/listings/{listing_id}"
    reply = get(harness, f"/listings/{listing_id}")
    page = ParsedPage(reply.body.decode())
    assert page.values("link", "href", rel="canonical") == [url]
    graph = {
        one.attributes["property"]: one.attributes["content"]
        for one in page.all("meta")
        if "property" in one.attributes
    }
    assert graph["og:title"] == '"Moa" & <kiwi>'
    assert (graph["og:url"], graph["og:image"]) == (url, "https://images.example/1.jpg")
    assert graph["og:description"] == "$20 · Two wheels."
    script = reply.body.decode().partition('<script type="application/ld+json">')[2].partition("</script>")[0]
    data = json.loads(script)
    assert (data["@type"], data["name"], data["url"]) == ("Product", '"Moa" & <kiwi>', url)


@pytest.mark.decision("G1")
@pytest.mark.parametrize("listing_type", FIELDS["type"].options)
@pytest.mark.parametrize(("setting", "shown"), [("off", True), ("on", False)])
def test_pages_round_coordinates_unless_the_setting_says_exact(
    tmp_path: Path, listing_type: str, setting: str, *, shown: bool
) -> None:
    with Harness(tmp_path, exact_locations=setting) as harness:
        fields = {"type": listing_type, "latitude": -41.29361, "longitude": -0.00421, "price": 1, "region": "Otago"}
        listing_id = create(harness, harness.person("alice"), **fields)
        html = get(harness, f"/listings/{listing_id}").body.decode()
    assert ("mlat=-41.29&amp;mlon=0#" in html) is shown
    assert ("mlat=-41.29361&amp;mlon=-0.00421#" in html) is not shown
    assert ("41.293" not in html and "0.0042" not in html) is shown
    if listing_type in {"rental", "job"}:
        geo = '"latitude":-41.29,"longitude":0.0' if shown else '"latitude":-41.29361,"longitude":-0.00421'
        assert geo in html


@pytest.mark.parametrize("segment", ["0", "1025", "abc", "-1", "01", "9" * 30, "1.0", "%D9%A1"])
def test_an_invalid_listing_id_is_not_found(harness: Harness, segment: str) -> None:
    page = get_page(harness, f"/listings/{segment}", 404)
    assert "Page not found" in page.text
    assert page.values("meta", "content", name="robots") == ["noindex"]


def test_a_paused_listing_is_404_and_a_deleted_one_410(harness: Harness, alice: Person) -> None:
    paused, deleted = create(harness, alice, is_active=False), create(harness, alice)
    harness.fetch("DELETE", f"/api/v1/listings/{deleted}", key=alice.key)
    assert "Page not found" in get_page(harness, f"/listings/{paused}", 404).text
    assert "This listing is no longer available" in get_page(harness, f"/listings/{deleted}", 410).text


def test_the_pictures_have_links_to_the_next_and_previous_one(harness: Harness, alice: Person) -> None:
    images = [f"https://images.example/{number}.jpg" for number in range(3)]
    page = get_page(harness, f"/listings/{create(harness, alice, images=images)}")
    assert page.values("a", "href", class_="turn next") == ["#picture-2", "#picture-3", "#picture-1"]
    assert page.values("a", "href", class_="turn previous") == ["#picture-3", "#picture-1", "#picture-2"]
    assert [one.attributes["id"] for one in page.all("li") if "id" in one.attributes] == [
        "picture-1", "picture-2", "picture-3",
    ]  # fmt: skip
    assert "2 / 3" in page.text


@pytest.mark.decision("G52")
def test_the_page_names_the_seller_and_links_to_other_listings(harness: Harness, alice: Person) -> None:
    first, second = create(harness, alice, title="Rimu table"), create(harness, alice, title="Kauri chair")
    page = get_page(harness, f"/listings/{first}")
    seller = f"/sellers/{alice.account.id}"
    assert {seller, f"/listings/{second}"} <= set(page.values("a", "href"))
    assert "Selling since September 2026" in page.text
    assert "Kauri chair" in get_page(harness, seller).text
    harness.fetch("DELETE", f"/api/v1/listings/{second}", key=alice.key)
    harness.index_market()
    assert f"/listings/{second}" not in get_page(harness, f"/listings/{first}").values("a", "href")


@pytest.mark.decision("G52")
def test_a_seller_without_listings_has_no_page(harness: Harness, alice: Person) -> None:
    create(harness, alice, is_active=False)
    for seller in (alice.account.id, 99, 0):
        get_page(harness, f"/sellers/{seller}", 404)
    listing_id = create(harness, alice)
    get_page(harness, f"/sellers/{alice.account.id}")
    assert "Page not found" not in get_page(harness, f"/listings/{listing_id}").text
    harness.run(harness.services.accounts.disable(alice.account.email))
    get_page(harness, f"/sellers/{alice.account.id}", 404)


def test_the_page_of_a_seller_turns(harness: Harness, alice: Person) -> None:
    for number in range(25):
        create(harness, alice, title=f"Listing {number}")
    page = get_page(harness, f"/sellers/{alice.account.id}")
    assert "25 listings" in page.text
    (url,) = page.values("a", "href", rel="next")
    assert "Listing 0" in get_page(harness, str(url)).texts


@pytest.mark.decision("G52")
@pytest.mark.parametrize(
    ("contact", "url"),
    [
        ("alice@shop.example", "mailto:alice@shop.example"),
        ("+64 (21) 555-0100", "tel:+64215550100"),
        ("+64 (0)21 555 0100", "tel:+64215550100"),
        ("(09) 379 1234", "tel:093791234"),
        ("https://shop.example/alice?a=b", "https://shop.example/alice?a=b"),
    ],
)
def test_the_page_shows_the_public_contact(harness: Harness, alice: Person, contact: str, url: str) -> None:
    path = f"/listings/{create(harness, alice)}"
    assert "This seller hasn’t shared any contact details." in get_page(harness, path).text
    harness.run(harness.services.accounts.set_public_contact(alice.account, f" {contact} "))
    for page in (get_page(harness, path), get_page(harness, f"/sellers/{alice.account.id}")):
        assert page.values("a", "href", rel="nofollow ugc noopener noreferrer") == [url]
        assert contact in page.text


@pytest.mark.decision("G52")
@pytest.mark.parametrize("contact", ["javascript:alert(1)", "call me", "a@b@c", "https://", "1" * 30, "x\n@y"])
def test_a_contact_of_another_kind_is_rejected(harness: Harness, alice: Person, contact: str) -> None:
    with pytest.raises(Problem, match="an email address, a phone number, or a URL"):
        harness.run(harness.services.accounts.set_public_contact(alice.account, contact))


def test_a_trailing_slash_redirects(harness: Harness, alice: Person) -> None:
    listing_id = create(harness, alice)
    reply = get(harness, f"/listings/{listing_id}/")
    assert (reply.status, reply.headers["location"]) == (308, f"/listings/{listing_id}")


@pytest.mark.decision("G8")
@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("HEAD", {}),
        ("GET", {"Sec_Purpose": "prefetch"}),
        ("GET", {"Sec_Purpose": "prefetch;prerender"}),
        ("GET", {"Purpose": "Prefetch"}),
        ("GET", {"User_Agent": "Googlebot/2.1"}),
    ],
)
def test_bots_and_prefetches_are_not_counted_as_views(
    harness: Harness, alice: Person, method: str, headers: dict[str, str]
) -> None:
    listing_id = create(harness, alice)
    assert get(harness, f"/listings/{listing_id}", method, **headers).status == 200
    assert count_views(harness, listing_id) == 0


def test_a_missing_page_is_not_counted_as_a_view(harness: Harness, alice: Person) -> None:
    listing_id = create(harness, alice, is_active=False)
    get_page(harness, f"/listings/{listing_id}", 404)
    assert count_views(harness, listing_id) == 0


def view(harness: Harness, *listings: int) -> None:
    for one in listings:
        harness.services.market.record_view(
            harness.run(harness.services.market.get_listing(one)), "192.0.2.1", "Mozilla/5.0"
        )
    harness.run(harness.services.market.write_views())


def test_a_closed_listing_shows_similar_ones(harness: Harness, alice: Person) -> None:
    gone, paused, *unseen = (create(harness, alice, title="Oak table", category="Furniture") for _ in range(4))
    create(harness, alice, title="Rimu table")
    create(harness, alice, title="Sofa", category="Furniture")
    view(harness, gone, paused)
    for one in (gone, unseen[0]):
        harness.fetch("DELETE", f"/api/v1/listings/{one}", key=alice.key)
    for one in (paused, unseen[1]):
        harness.fetch("PATCH", f"/api/v1/listings/{one}", key=alice.key, json={"is_active": False})
    harness.index_market()
    for listing_id, status in ((gone, 410), (paused, 404)):
        page = get_page(harness, f"/listings/{listing_id}", status)
        assert page.titles == ["Rimu table", "Sofa"]
    for listing_id, status in zip(unseen, (410, 404), strict=True):
        assert get_page(harness, f"/listings/{listing_id}", status).titles == []


def test_a_listing_that_the_operator_hides_shows_no_similar_ones(harness: Harness, alice: Person) -> None:
    bob = harness.person("bob")
    taken_down, disabled = create(harness, alice, title="Oak table"), create(harness, bob, title="Oak table")
    create(harness, alice, title="Rimu table")
    view(harness, taken_down, disabled)
    harness.run(harness.services.moderation.take_down(taken_down, "A copy", "ops"))
    harness.run(harness.services.accounts.disable(bob.account.email))
    harness.index_market()
    for one in (taken_down, disabled):
        assert get_page(harness, f"/listings/{one}", 404).titles == []


def test_the_page_of_a_seller_has_words_and_filters(harness: Harness, alice: Person) -> None:
    account = alice.account
    create(harness, alice, title="Saw", category="Tools"), create(harness, alice, title="Plane", category="Tools")
    create(harness, alice, title="Sofa", category="Furniture")
    create(harness, harness.person("bob"), title="Bob's saw", category="Tools")
    harness.run(harness.services.accounts.set_about(account, "Tools <b>and</b> more.\n\nPick up in Otago."))
    path = f"/sellers/{account.id}"
    assert "Tools <b>and</b> more. Pick up in Otago." in get_page(harness, path).text
    assert get_page(harness, path).titles == ["Sofa", "Plane", "Saw"]
    assert get_page(harness, f"{path}?q=saw").titles == ["Saw"]
    page = get_page(harness, f"{path}?category=Tools")
    assert page.titles == ["Plane", "Saw"]
    assert f"{path}?category=Tools&region=Otago" not in page.values("a", "href")
    assert path in page.values("a", "href", class_="chip clear")


def test_words_about_a_shop_are_limited(harness: Harness, alice: Person) -> None:
    with pytest.raises(Problem, match="at most 500 characters, got 501"):
        harness.run(harness.services.accounts.set_about(alice.account, "x" * 501))
