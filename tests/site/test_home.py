"""The home page of the market, and the results of its search: cards, filters and pages."""

import re
from pathlib import Path

import pytest

from tests.harness import Harness, Person
from tests.site.market import ParsedPage, create, get, get_page

ALL_TITLES = ["Listing job", "Listing plane", "Listing saw"]


def list_titles(page: ParsedPage) -> list[str]:
    links = page.values("a", "href", dir="auto")
    assert all(link is not None and re.fullmatch(r"/listings/\d+", link) for link in links)
    return page.titles


def test_a_card_shows_title_price_place_and_age(harness: Harness, alice: Person) -> None:
    listing_id = create(
        harness, alice, title="Rimu table", price=1250, price_type="negotiable", location="12 Cuba Street, Te Aro",
        region="Wellington", images=["https://images.example/1.jpg"],
    )  # fmt: skip
    harness.clock.advance(3 * 3600)
    page = get_page(harness, "/")
    assert page.values("a", "href", dir="auto") == [f"/listings/{listing_id}"]
    for text in ("Rimu table", "$1,250 negotiable", "Te Aro, Wellington", "3 h"):
        assert text in page.text
    (picture,) = page.all("img", width="400")
    assert "loading" not in picture.attributes  # it is in the first row
    assert picture.attributes["src"] == "https://images.example/1.jpg"
    assert picture.attributes["referrerpolicy"] == "no-referrer"


def test_a_card_without_a_place_begins_with_its_age(harness: Harness, alice: Person) -> None:
    create(harness, alice)
    assert re.search(rb'<p class="place">\s*<time', get(harness, "/").body)


def test_an_empty_market_invites_sellers(harness: Harness) -> None:
    page = get_page(harness, "/")
    assert "No listings yet" in page.text
    assert page.all("a", href="/docs", class_="button plain")


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("/?q=saw", ["Listing saw"]),
        ("/?category=Tools", ["Listing plane", "Listing saw"]),
        ("/?price_min=%24100&price_max=180", ["Listing saw"]),
        ("/?sort=-price", ["Listing saw", "Listing plane", "Listing job"]),
        ("/?type=nothing&sort=nothing&after=nothing&price_min=1&x=y", ALL_TITLES),
        ("/?q=%2A&region=Otago", ["Listing job", "Listing saw"]),
    ],
)  # fmt: skip
def test_a_search_finds_the_matching_listings(harness: Harness, alice: Person, url: str, found: list[str]) -> None:
    create(harness, alice, title="Listing saw", content="Steel.", category="Tools", region="Otago", price=180)
    create(harness, alice, title="Listing plane", category="Tools", region="Canterbury", price=40)
    create(harness, alice, title="Listing job", type="job", region="Otago", price=27)
    assert list_titles(get_page(harness, url)) == found


def test_the_page_of_a_row_shows_what_the_row_shows(harness: Harness, alice: Person) -> None:
    bob = harness.person("bob")
    for number in range(4):
        create(harness, alice if number % 2 else bob, title=f"Listing {number}", price=20)
    create(harness, alice, title="Listing without a price", price=0)
    [link] = {str(href) for href in get_page(harness, "/").values("a", "href") if "price_max=50" in str(href)}
    page = get_page(harness, link)
    assert list_titles(page) == [f"Listing {number}" for number in (3, 2, 1, 0)]
    assert "Up to $50" in page.texts


def test_the_search_form_keeps_its_values(harness: Harness, alice: Person) -> None:
    create(harness, alice, category="Tools", region="Otago")
    page = get_page(harness, "/?q=two&type=product&category=Tools&region=Elsewhere&price_min=1&price_max=2&sort=price")
    values = {one.attributes["name"]: one.attributes.get("value") for one in page.all("input")}
    filters = {"type": "product", "category": "Tools", "region": "Elsewhere"}
    assert values == {"q": "two", "price_min": "1", "price_max": "2", **filters}
    assert [one.attributes["value"] for one in page.all("option") if "selected" in one.attributes] == ["price"]
    assert page.values("a", "id", aria_current="true") == ["type-product", "category-Tools", "region-Elsewhere"]


def test_a_search_without_results_suggests_alternatives(harness: Harness, alice: Person) -> None:
    create(harness, alice)
    page = get_page(harness, "/?q=unicorn&region=Otago")
    assert "Nothing found for “unicorn”" in page.text
    assert {"/?q=unicorn", "/?sort=newest"} <= set(page.values("a", "href"))


def test_a_misspelt_word_is_corrected(harness: Harness) -> None:
    for name in ("bob", "charlie", "dave"):
        create(harness, harness.person(name), title="Guitar", region="Otago")
    page = get_page(harness, "/?q=gutiar&region=Otago")
    assert "Did you mean guitar ?" in page.text
    assert "/?q=guitar&region=Otago" in page.values("a", "href", dir="auto")
    page = get_page(harness, "/?q=gutiar+guitar&region=Otago")
    assert "These results are without gutiar . Did you mean guitar guitar ?" in page.text


def test_a_search_without_results_names_the_nearest_category(harness: Harness, alice: Person) -> None:
    for _ in range(3):
        create(harness, alice, title="Bicycle", category="Bikes", region="Otago")
    page = get_page(harness, "/?q=bicycle&region=Nelson")
    assert "The nearest category is Bikes ." in page.text
    assert "/?category=Bikes" in page.values("a", "href", dir="auto")


def test_words_that_no_listing_has_are_left_out(harness: Harness, alice: Person) -> None:
    create(harness, alice, title="Red bicycle")
    page = get_page(harness, "/?q=red+unicorn+bicycle")
    assert "No listing has all words" in page.text
    assert "These results are without unicorn ." in page.text
    assert list_titles(page) == ["Red bicycle"]


def test_found_words_are_marked_and_escaped(harness: Harness, alice: Person) -> None:
    create(harness, alice, title="<b>Bikes</b> & pumps", content="For sale.")
    create(harness, alice, title="Helmet", content=f"{'Soft and light. ' * 20}It fits <i>any</i> bicycle & rider.")
    body = get(harness, "/?q=bike").body.decode()
    assert "&lt;b&gt;<mark>Bikes</mark>&lt;/b&gt; &amp; pumps" in body
    assert "It fits &lt;i&gt;any&lt;/i&gt; <mark>bicycle</mark> &amp; rider." in body
    assert body.count('class="excerpt"') == 1


def test_results_are_counted_by_filter(harness: Harness, alice: Person) -> None:
    for kind, category in (("product", "Tools"), ("product", "Bikes"), ("product", "tool"), ("job", "Retail")):
        create(harness, alice, type=kind, category=category, region="Otago")
    page = get_page(harness, "/?type=product")
    assert "For sale 3 results" in page.text
    assert "All types For sale 3 Jobs 1 Category All categories Tools 2 Region All regions Otago 3" in page.text
    assert page.values("a", "href", id="category-Tools") == ["/?type=product&category=Tools"]
    assert "Tools 2 results" in get_page(harness, "/?category=TOOL").text
    assert page.values("a", "href", id="type-") == ["/?sort=newest"]


def test_each_part_of_a_search_can_be_removed(harness: Harness, alice: Person) -> None:
    create(harness, alice)
    page = get_page(harness, "/?q=wheels&type=product&price_max=1000.50&sort=price&after=0-1")
    assert [text for text in page.texts if text in {"“wheels”", "For sale", "Up to $1,000.50"}][-3:] == [
        *("“wheels”", "For sale", "Up to $1,000.50")
    ]
    assert page.values("a", "href", class_="chip") == [
        "/?type=product&price_max=1000.50&sort=price",
        "/?q=wheels&price_max=1000.50&sort=price",
        "/?q=wheels&type=product&sort=price",
    ]


def test_the_sort_order_does_not_count_as_a_filter(harness: Harness) -> None:
    harness.index_market()
    page = get_page(harness, "/?q=unicorn&sort=price")
    assert "or fewer filters" not in page.text
    assert "Search without filters" not in page.text
    assert "/?q=unicorn&sort=price" in get_page(harness, "/?q=unicorn&region=Otago&sort=price").values("a", "href")


@pytest.mark.parametrize(
    ("url", "field", "message"),
    [
        ("/?price_min=cheap", "price_min", "Enter the lowest price as a number, for example 250."),
        ("/?price_max=9,99", "price_max", "Enter the highest price as a number, for example 250."),
        ("/?q=%2A", "q", "Enter a search term with letters or digits."),
    ],
)
def test_an_invalid_value_is_reported_at_its_field(
    harness: Harness, alice: Person, url: str, field: str, message: str
) -> None:
    create(harness, alice, title="Listing")
    page = get_page(harness, url)
    (element,) = page.all("input", aria_invalid="true")
    assert (element.attributes["name"], element.attributes["aria-describedby"]) == (field, f"error-{field}")
    assert len(page.all("p", id=f"error-{field}")) == 1
    assert message in page.text
    assert page.all("li", class_="card")


def test_pages_repeat_and_skip_nothing_while_listings_are_added(harness: Harness, alice: Person) -> None:
    for number in range(50):
        create(harness, alice, title=f"Listing {number:02}", price=number // 10)
    for url in ("/?q=wheels&sort=newest", "/?sort=price"):
        seen: list[str] = []
        next_url: str | None = url
        while next_url is not None:
            page = get_page(harness, next_url)
            seen += list_titles(page)
            create(harness, alice, title="New", price=0)
            links = page.values("a", "href", rel="next")
            next_url = links[0] if links else None
            assert page.values("link", "href", rel="canonical") == [f"http://market.example{url}"]
        assert sorted(title for title in seen if title != "New") == [f"Listing {number:02}" for number in range(50)]


def test_the_previous_page_is_the_one_before(harness: Harness, alice: Person) -> None:
    for number in range(60):
        create(harness, alice, title=f"Listing {number:02}", price=number // 10)
    for url in ("/?q=wheels", "/?sort=price"):
        seen = [get_page(harness, url)]
        for _ in range(2):
            (link,) = seen[-1].values("a", "href", rel="next")
            seen.append(get_page(harness, str(link)))
        assert seen[0].values("a", "href", rel="prev") == []
        for page, earlier in ((seen[2], seen[1]), (seen[1], seen[0])):
            (link,) = page.values("a", "href", rel="prev")
            assert list_titles(get_page(harness, str(link))) == list_titles(earlier)


def test_the_page_after_the_last_one_links_back(harness: Harness, alice: Person) -> None:
    create(harness, alice)
    page = get_page(harness, "/?q=wheels&sort=newest&after=0-1")
    assert "You’ve reached the end" in page.text
    assert "/?q=wheels&sort=newest" in page.values("a", "href")


def test_text_searches_and_later_pages_are_not_indexed(harness: Harness) -> None:
    alice = harness.person("alice")
    fields = {"title": "Lamp", "content": "Bright.", "region": "Otago"}
    harness.fetch("POST", "/api/v1/listings", key=alice.key, json=fields)
    harness.index_market()
    for url in ("/?q=lamp", "/?region=Any+text+of+a+visitor", "/?price_min=cheap"):
        assert get_page(harness, url).values("meta", "content", name="robots") == ["noindex, follow"]
    for url in ("/?region=Otago", "/?region=otago"):
        page = get_page(harness, url)
        assert page.values("meta", "content", name="robots") == []
        assert [str(link).partition("?")[2] for link in page.values("link", "href", rel="canonical")] == [
            "region=Otago"
        ]


def test_pages_can_be_turned_off(tmp_path: Path) -> None:
    with Harness(tmp_path, site="off") as harness:
        reply = get(harness, "/")
        assert (reply.status, reply.json()) == (404, {"error": "Path not found: /docs lists all paths"})


@pytest.mark.parametrize(
    ("url", "status"),
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
def test_odd_urls_get_a_regular_response(harness: Harness, alice: Person, url: str, status: int) -> None:
    create(harness, alice, price=5)
    assert get(harness, url).status == status
