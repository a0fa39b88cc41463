"""The market's home: what is listed, the search, and its pages."""

import re
from pathlib import Path

import pytest

from tests.harness import Harness, Person
from tests.site.market import Reading, create, get, read

EVERY = ["Listing job", "Listing plane", "Listing saw"]


@pytest.fixture
def alice(harness: Harness) -> Person:
    return harness.person("alice")


def titles(reading: Reading) -> list[str]:
    links = reading.values("a", "href", dir="auto")
    assert all(link is not None and re.fullmatch(r"/listings/\d+", link) for link in links)
    return [text for text in reading.texts if text.startswith("Listing ")]


def test_a_card_tells_title_price_place_and_age(harness: Harness, alice: Person) -> None:
    listing_id = create(
        harness, alice, title="Rimu table", price=1250, price_type="negotiable", location="12 Cuba Street, Te Aro",
        region="Wellington", images=["https://images.example/1.jpg"],
    )  # fmt: skip
    harness.clock.advance(3 * 3600)
    reading = read(harness, "/")
    assert reading.values("a", "href", dir="auto") == [f"/listings/{listing_id}"]
    for text in ("Rimu table", "$1,250 , negotiable", "Te Aro, Wellington", "3 hours ago"):
        assert text in reading.text
    (picture,) = reading.all("img", loading="lazy")
    assert picture.attributes["src"] == "https://images.example/1.jpg"
    assert picture.attributes["referrerpolicy"] == "no-referrer"


def test_a_picture_that_is_not_of_the_web_is_not_shown(harness: Harness, alice: Person) -> None:
    create(harness, alice, images=["pictures/1.jpg"])
    assert read(harness, "/").all("img", loading="lazy") == []


def test_what_is_paused_or_closed_is_not_shown(harness: Harness, alice: Person) -> None:
    create(harness, alice, title="Listing A", is_active=False)
    closed = create(harness, alice, title="Listing B")
    harness.fetch("DELETE", f"/api/v1/listings/{closed}", key=alice.key)
    harness.run(harness.service.index_market())
    assert "Nothing is listed yet" in read(harness, "/").text


def test_an_empty_market_tells_how_something_gets_there(harness: Harness) -> None:
    reading = read(harness, "/")
    assert "Nothing is listed yet" in reading.text
    assert reading.all("a", href="/docs", class_="button")


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("/?q=saw", ["Listing saw"]),
        ("/?q=SAW+steel", ["Listing saw"]),
        ("/?type=job", ["Listing job"]),
        ("/?category=Tools", ["Listing plane", "Listing saw"]),
        ("/?region=Otago", ["Listing job", "Listing saw"]),
        ("/?price_min=%24100&price_max=180", ["Listing saw"]),
        ("/?sort=price", ["Listing job", "Listing plane", "Listing saw"]),
        ("/?sort=-price", ["Listing saw", "Listing plane", "Listing job"]),
        ("/?q=&type=&category=&region=&price_min=&price_max=&sort=newest", EVERY),
        ("/?type=nothing&sort=nothing&after=nothing&x=y", EVERY),
    ],
)  # fmt: skip
def test_a_search_finds_what_it_asks_for(harness: Harness, alice: Person, address: str, found: list[str]) -> None:
    create(harness, alice, title="Listing saw", content="Steel.", category="Tools", region="Otago", price=180)
    create(harness, alice, title="Listing plane", category="Tools", region="Canterbury", price=40)
    create(harness, alice, title="Listing job", type="job", region="Otago", price=27)
    assert titles(read(harness, address)) == found


def test_the_form_keeps_what_was_filled_in(harness: Harness, alice: Person) -> None:
    create(harness, alice, category="Tools", region="Otago")
    reading = read(harness, "/?q=two&type=product&category=Tools&region=Elsewhere&price_min=1&price_max=2&sort=price")
    filled = {one.attributes["name"]: one.attributes.get("value") for one in reading.all("input")}
    assert filled == {"q": "two", "price_min": "1", "price_max": "2"}
    chosen = [one.attributes["value"] for one in reading.all("option") if "selected" in one.attributes]
    assert chosen == ["product", "Tools", "Elsewhere", "price"]
    assert "open" in reading.all("details")[0].attributes


def test_nothing_found_tells_what_to_try(harness: Harness, alice: Person) -> None:
    create(harness, alice)
    reading = read(harness, "/?q=unicorn&region=Otago")
    assert "Nothing found for “unicorn”" in reading.text
    assert {"/?q=unicorn", "/"} <= set(reading.values("a", "href"))


def test_an_order_is_no_filter_that_could_be_left_out(harness: Harness) -> None:
    reading = read(harness, "/?q=unicorn&sort=price")
    assert "or fewer filters" not in reading.text
    assert "Search without filters" not in reading.text
    assert "open" in reading.all("details")[0].attributes
    assert "/?q=unicorn&sort=price" in read(harness, "/?q=unicorn&region=Otago&sort=price").values("a", "href")


@pytest.mark.parametrize(
    ("address", "field", "said"),
    [
        ("/?price_min=cheap", "price_min", "Write the lowest price as a number of dollars, like 250."),
        ("/?price_min=9&price_max=8", "price_max", "The highest price is below the lowest."),
        ("/?q=%2A", "q", "Look for words of letters or digits."),
    ],
)
def test_what_can_not_be_understood_is_told_beside_its_field(
    harness: Harness, alice: Person, address: str, field: str, said: str
) -> None:
    create(harness, alice)
    reading = read(harness, address)
    (entry,) = reading.all("input", aria_invalid="true")
    assert (entry.attributes["name"], entry.attributes["aria-describedby"]) == (field, f"fault-{field}")
    assert len(reading.all("p", id=f"fault-{field}")) == 1
    assert said in reading.text
    assert titles(reading) == []


def test_pages_repeat_and_skip_nothing_while_others_list(harness: Harness, alice: Person) -> None:
    for number in range(50):
        create(harness, alice, title=f"Listing {number:02}", price=number // 10)
    for address in ("/?q=wheels", "/?sort=price"):
        seen: list[str] = []
        following: str | None = address
        while following is not None:
            reading = read(harness, following)
            seen += titles(reading)
            create(harness, alice, title="New", price=0)
            links = reading.values("a", "href", rel="next")
            following = links[0] if links else None
            assert reading.values("link", "href", rel="canonical") == [f"http://market.example{address}"]
        assert sorted(title for title in seen if title != "New") == [f"Listing {number:02}" for number in range(50)]


def test_behind_the_last_page_is_a_way_back(harness: Harness, alice: Person) -> None:
    create(harness, alice)
    reading = read(harness, "/?q=wheels&after=0-1")
    assert "That was all" in reading.text
    assert "/?q=wheels" in reading.values("a", "href")


def test_searches_by_words_and_later_pages_are_not_for_search_engines(harness: Harness) -> None:
    assert read(harness, "/?q=a").values("meta", "content", name="robots") == ["noindex, follow"]
    assert read(harness, "/?region=Otago").values("meta", "content", name="robots") == []


def test_a_store_that_can_not_answer_is_told_as_a_moment_to_wait(harness: Harness) -> None:
    harness.run(harness.service.store.close())
    reply = get(harness, "/")
    assert (reply.status, reply.headers["retry-after"]) == (503, "1")
    assert "Back in a moment" in Reading(reply.body.decode()).text
    assert reply.headers["cache-control"] == "no-store"


def test_without_the_setting_there_are_no_pages(tmp_path: Path) -> None:
    with Harness(tmp_path, site="off") as harness:
        reply = get(harness, "/")
        assert (reply.status, reply.json()) == (404, {"error": "Path not found: /docs lists all paths"})


@pytest.mark.parametrize(
    ("address", "status"),
    [
        *((f"/?sort={sort}&after=99999999999-999999999999999999", 200) for sort in ("newest", "price", "-price")),
        ("/?sort=price&after=99999999999-9&q=wheels&price_min=1", 200),
        ("/?q=%00", 200),
        ("/?q=%ED%A0%80&region=%FF", 200),
        ("/?region=%00&category=" + "%F0%9F%90%88" * 300, 200),
        ("/?q=AND+OR+NOT+NEAR(%22a%22)*", 200),
        ("/?q=" + "%CC%81" * 300, 200),
        ("/?" + "q=a&" * 900, 200),
        ("//", 404),
        ("/%2e%2e/", 404),
        ("/listings/1%2f2", 404),
        ("/listings/%00", 404),
        ("/sitemaps/184467440737095.xml", 200),
        ("/sitemaps/184467440737096.xml", 404),
    ],
)
def test_no_address_is_too_odd_to_be_answered(harness: Harness, alice: Person, address: str, status: int) -> None:
    create(harness, alice, price=5)
    assert get(harness, address).status == status
