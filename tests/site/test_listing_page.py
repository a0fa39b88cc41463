"""The page of one listing: what it tells people and programs, and how it is counted."""

import json

import pytest

from tests.harness import Harness, Person
from tests.site.market import PAGE, Reading, create, get, read


@pytest.fixture
def alice(harness: Harness) -> Person:
    return harness.person("alice")


def views(harness: Harness, listing_id: int) -> int:
    harness.run(harness.service.write_views())
    listing = harness.run(harness.service.store.get_listing(listing_id))
    assert listing is not None
    return listing.view_count


def test_it_tells_all_that_is_known(harness: Harness, alice: Person) -> None:
    listing_id = create(
        harness, alice, title="Sunny studio", content="One room.\nNo pets.\n\nBy the sea.", type="rental",
        category="Holiday homes", price=145, price_type="per_night", location="Oriental Bay",
        district="Wellington City", region="Wellington", latitude=-41.2911, longitude=174.7946,
        images=["https://images.example/1.jpg", "2.jpg", "http://images.example/3.jpg"],
    )  # fmt: skip
    reading = read(harness, f"/listings/{listing_id}")
    for text in ("$145 per night", "Oriental Bay, Wellington City, Wellington", "22 September 2026", str(listing_id)):
        assert text in reading.text
    assert len(reading.all("br")) == 2  # in the text, and before the link to the map
    pictures = ["https://images.example/1.jpg", "http://images.example/3.jpg"]
    shown = [one.attributes for one in reading.all("img", referrerpolicy="no-referrer")]
    assert [one["src"] for one in shown] == pictures
    assert [one["alt"] for one in shown] == ["Picture 1 of 2: Sunny studio", "Picture 2 of 2: Sunny studio"]
    assert reading.values("a", "href", rel="nofollow ugc noopener noreferrer") == pictures
    assert any("openstreetmap.org/?mlat=-41.29110" in str(link) for link in reading.values("a", "href"))
    assert {"/?type=rental", "/?type=rental&category=Holiday+homes"} <= set(reading.values("a", "href"))


def test_it_tells_programs_the_same(harness: Harness, alice: Person) -> None:
    listing_id = create(harness, alice, title='"Moa" & <kiwi>', price=20, images=["https://images.example/1.jpg"])
    address = f"http://market.example/listings/{listing_id}"
    reply = get(harness, f"/listings/{listing_id}")
    reading = Reading(reply.body.decode())
    assert reading.values("link", "href", rel="canonical") == [address]
    graph = {
        one.attributes["property"]: one.attributes["content"]
        for one in reading.all("meta")
        if "property" in one.attributes
    }
    assert graph["og:title"] == '"Moa" & <kiwi>'
    assert (graph["og:url"], graph["og:image"]) == (address, "https://images.example/1.jpg")
    assert graph["og:description"] == "$20.00 · Two wheels."
    script = reply.body.decode().partition('<script type="application/ld+json">')[2].partition("</script>")[0]
    data = json.loads(script)
    assert (data["@type"], data["name"], data["url"]) == ("Product", '"Moa" & <kiwi>', address)


@pytest.mark.parametrize("segment", ["0", "1025", "abc", "-1", "01", "9" * 30, "1.0", "%D9%A1"])
def test_what_is_no_listing_is_not_found(harness: Harness, segment: str) -> None:
    reading = read(harness, f"/listings/{segment}", 404)
    assert "Page not found" in reading.text
    assert reading.values("meta", "content", name="robots") == ["noindex"]


def test_what_is_paused_is_not_found_and_what_is_closed_is_gone(harness: Harness, alice: Person) -> None:
    paused, closed = create(harness, alice, is_active=False), create(harness, alice)
    harness.fetch("DELETE", f"/api/v1/listings/{closed}", key=alice.key)
    assert "Page not found" in read(harness, f"/listings/{paused}", 404).text
    assert "This listing is gone" in read(harness, f"/listings/{closed}", 410).text


def test_an_account_that_is_disabled_shows_nothing_and_one_without_a_plan_all(harness: Harness, alice: Person) -> None:
    charlie = harness.person("charlie", plan_ends_in=-1)
    hidden, shown = create(harness, alice), create(harness, charlie)
    harness.run(harness.service.disable_account(alice.account.email))
    read(harness, f"/listings/{hidden}", 404)
    read(harness, f"/listings/{shown}")


def test_a_slash_behind_it_leads_to_the_one_address(harness: Harness, alice: Person) -> None:
    listing_id = create(harness, alice)
    reply = get(harness, f"/listings/{listing_id}/")
    assert (reply.status, reply.headers["location"]) == (308, f"/listings/{listing_id}")


@pytest.mark.decision("G8")
def test_a_visitor_counts_once_a_day_and_another_counts_too(harness: Harness, alice: Person) -> None:
    listing_id = create(harness, alice)
    for _ in range(3):
        get(harness, f"/listings/{listing_id}")
    assert views(harness, listing_id) == 1
    harness.fetch("GET", f"/listings/{listing_id}", headers=PAGE, client="198.51.100.7")
    assert views(harness, listing_id) == 2
    harness.clock.advance(24 * 3600)
    get(harness, f"/listings/{listing_id}")
    assert views(harness, listing_id) == 3


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
def test_what_nobody_looks_at_counts_nothing(
    harness: Harness, alice: Person, method: str, headers: dict[str, str]
) -> None:
    listing_id = create(harness, alice)
    assert get(harness, f"/listings/{listing_id}", method, **headers).status == 200
    assert views(harness, listing_id) == 0


def test_what_is_refused_counts_nothing(harness: Harness, alice: Person) -> None:
    listing_id = create(harness, alice, is_active=False)
    read(harness, f"/listings/{listing_id}", 404)
    assert views(harness, listing_id) == 0
