"""The pages in a real browser: with and without scripts, in light and dark, on phones and desktops."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.site.accessibility import DESKTOP, PHONE, objections
from tests.site.browser import Stall, away_from_midnight, chromium, needs_chromium, pictures, stall, views, visit

pytestmark = [needs_chromium, pytest.mark.slow]

STUDIO: dict[str, Any] = {
    "title": "Sunny studio near the waterfront",
    "content": "One room with kitchenette.\n\nNo pets.",
    "type": "rental",
    "category": "Holiday homes",
    "price": 145,
    "price_type": "per_night",
    "location": "Oriental Bay",
    "region": "Wellington",
    "latitude": -41.2911,
    "longitude": 174.7946,
}
WIDTH_OF_PLACEHOLDER = """it => {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = getComputedStyle(it).font;
  return pen.measureText(it.placeholder).width;
}"""
LONG: dict[str, Any] = {"title": "W" * 255, "content": "x" * 3000, "location": "y" * 255, "region": "z" * 100}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def shown() -> Iterator[list[str]]:
    """The addresses of the studio's pictures."""
    with pictures() as address:
        yield [f"{address}1.gif", f"{address}2.gif"]


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stall]:
    with stall(tmp_path_factory.mktemp("market")) as market:
        market.service.service.clock = away_from_midnight()
        market.create(*({"title": f"Bicycle {number:02}", "price": number} for number in range(30)))
        yield market


@pytest.fixture(scope="module")
def pages(market: Stall, shown: list[str]) -> list[str]:
    """A path to each kind of page."""
    missing = {"images": ["https://elsewhere.example/1.gif"]}
    made = market.create(STUDIO | {"images": shown}, LONG, missing, {"is_active": False})
    listings = [f"/listings/{listing_id}" for listing_id in made]
    searches = ["/?q=bicycle&sort=price", "/?q=unicorn&region=Otago", "/?price_min=cheap", "/?q=bicycle&after=0-1"]
    return ["/", *searches, *listings, "/nothing"]


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_a_visitor_searches_pages_through_and_looks_at_a_listing(
    browser: Browser, market: Stall, shown: list[str], size: Any, *, scripts: bool
) -> None:
    (studio,) = market.create(STUDIO | {"images": shown})
    with visit(browser, market.base_url, java_script_enabled=scripts, viewport=size) as seen:
        page = seen.open("/")
        page.get_by_label("What are you looking for?").fill("bicycle")
        page.get_by_role("button", name="Search").click()
        expect(page.get_by_role("heading", name="Results for “bicycle”")).to_be_visible()
        first = page.locator(".card h3").all_inner_texts()
        page.get_by_role("link", name="Next page").click()
        page.wait_for_url(re.compile("after="))
        second = page.locator(".card h3").all_inner_texts()
        assert (len(first), set(first) & set(second)) == (24, set())
        if page.get_by_text("Filters").is_visible() and not page.get_by_label("Type").is_visible():
            page.get_by_text("Filters").click()
        page.get_by_label("What are you looking for?").fill("")
        page.get_by_label("Type").select_option("rental")
        if scripts:  # it is heeded already: a search that is still asked for would be lost with the page
            page.wait_for_url(re.compile(r"type=rental(?!.*after=)"))
        with page.expect_response(re.compile(r"type=rental")) as searched:
            page.get_by_role("button", name="Search").click()
        searched.value.finished()
        page.wait_for_url(re.compile(r"type=rental(?!.*after=)"))
        page.get_by_role("link", name="Sunny studio").first.click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Sunny studio near the waterfront")
        expect(page.get_by_text("$145 per night").first).to_be_visible()
        page.reload()
        assert seen.complaints == []
    assert views(market.service, studio) == 1


def test_a_changed_filter_is_heeded_at_once_where_scripts_run(browser: Browser, market: Stall) -> None:
    market.create(STUDIO)
    with visit(browser, market.base_url, viewport=DESKTOP) as seen:
        page = seen.open("/")
        page.evaluate("window.stays = true")
        page.get_by_label("Type").focus()
        page.get_by_label("Type").select_option("rental")
        expect(page.get_by_role("heading", name="Rentals", exact=True)).to_be_visible()
        assert urlsplit(page.url).query == "type=rental"
        assert page.evaluate("window.stays")
        assert page.evaluate("document.activeElement.id") == "type"
        expect(page.locator("#status")).to_have_text(re.compile(r"Rentals: \d+ listings on this page"))
        page.go_back()
        expect(page.get_by_role("heading", name="Latest listings")).to_be_visible()
        assert seen.complaints == []


def test_a_newer_search_takes_the_place_of_one_that_was_not_answered_yet(browser: Browser, market: Stall) -> None:
    with visit(browser, market.base_url, viewport=DESKTOP) as seen:
        page = seen.open("/")
        held: list[Route] = []
        page.route("**/*type=rental", lambda route: held.append(route))  # noqa: PLW0108 - it marks what it is given
        with page.expect_request(re.compile("type=rental$")):  # who is routed is told of when it is held
            page.get_by_label("Type").select_option("rental")
        with page.expect_event("requestfailed") as given_up:
            page.get_by_label("Type").select_option("job")
        assert urlsplit(given_up.value.url).query == "type=rental"
        expect(page.get_by_role("heading", name="Nothing found")).to_be_visible()
        assert (urlsplit(page.url).query, len(held), seen.complaints) == ("type=job", 1, [])


@pytest.mark.parametrize("has_htmx", [True, False])
def test_an_address_leaves_out_what_was_left_empty(browser: Browser, market: Stall, *, has_htmx: bool) -> None:
    with visit(browser, market.base_url, viewport=DESKTOP) as seen:
        if not has_htmx:
            seen.page.route("**/htmx.min.js", lambda route: route.abort())
        page = seen.open("/")
        page.get_by_label("What are you looking for?").fill("bicycle")
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile("q="))
        assert urlsplit(page.url).query == "q=bicycle"


def test_enter_in_an_empty_search_leaves_the_focus_where_it_is(browser: Browser, market: Stall) -> None:
    with visit(browser, market.base_url) as seen:
        page = seen.open("/?q=bicycle")
        page.get_by_label("What are you looking for?").fill("")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Latest listings")).to_be_visible()
        assert urlsplit(page.url).query == ""
        expect(page.get_by_label("What are you looking for?")).to_be_focused()


def test_a_search_whose_connection_fails_is_asked_for_as_a_page(browser: Browser, market: Stall) -> None:
    with visit(browser, market.base_url) as seen:
        page = seen.open("/")
        page.route("**/*q=bicycle", lambda route: route.abort() if route.request.resource_type == "xhr" else None)
        page.get_by_label("What are you looking for?").fill("bicycle")
        with page.expect_request(lambda request: request.is_navigation_request()) as asked:
            page.keyboard.press("Enter")
        assert urlsplit(asked.value.url).query == "q=bicycle"


def test_a_search_that_can_not_be_answered_shows_the_page_that_says_why(browser: Browser, tmp_path: Path) -> None:
    with stall(tmp_path) as market, visit(browser, market.base_url) as seen:
        page = seen.open("/")
        market.service.run(lambda service: service.store.close())
        page.get_by_label("What are you looking for?").fill("bicycle")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Back in a moment")).to_be_visible()
        assert urlsplit(page.url).query == "q=bicycle"


@pytest.mark.parametrize("address", ["/", "/?price_min=cheap"])
def test_what_can_not_be_understood_is_told_beside_its_field_until_it_is_mended(
    browser: Browser, market: Stall, address: str
) -> None:
    said = "Write the lowest price as a number of dollars, like 250."
    with visit(browser, market.base_url, viewport=DESKTOP) as seen:
        page = seen.open(address)
        field = page.get_by_label("From")
        for price, told in (("dear", said), ("10", ""), ("cheap", said)):
            field.fill(price)
            field.press("Tab")
            expect(page.get_by_role("group", name="Price in dollars").locator("#fault-price_min")).to_have_text(told)
            expect(field).to_have_accessible_description(told)
            expect(page.locator("[aria-invalid]")).to_have_count(1 if told else 0)
            expect(page.locator("#status")).to_have_text(told or re.compile("listings on this page"))
            expect(page.get_by_label("To", exact=True)).to_be_focused()


def test_what_a_search_has_found_is_shown_as_after_a_reload(browser: Browser, market: Stall) -> None:
    market.create({"title": "Kakapo"})
    with visit(browser, market.base_url, viewport=DESKTOP) as seen:
        page = seen.open("/")
        for words, shown, told in (
            ("kakapo", "Results for “kakapo”", "Results for “kakapo”: 1 listing on this page"),
            ("unicorn", "Nothing found", "Nothing found for “unicorn”"),
            ("", "Find it in Aotearoa", "Latest listings: 24 listings on this page"),
        ):
            page.get_by_label("What are you looking for?").fill(words)
            page.keyboard.press("Enter")
            expect(page.get_by_role("heading", name=shown)).to_be_visible()
            expect(page.locator("#status")).to_have_text(told)
            headings = page.locator("main :is(h1, h2, .groups, .empty)")
            found = headings.all_inner_texts()
            page.reload()
            assert headings.all_inner_texts() == found


def test_who_uses_the_keyboard_comes_to_the_content_first(browser: Browser, market: Stall) -> None:
    with visit(browser, market.base_url) as seen:
        page = seen.open("/")
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "content"


def test_nothing_comes_from_elsewhere_but_the_pictures_of_listings(
    browser: Browser, market: Stall, pages: list[str], shown: list[str]
) -> None:
    with visit(browser, market.base_url, viewport=DESKTOP) as seen:
        for path in pages:
            for picture in seen.open(path).locator(".gallery img").all():  # that a page has come, lazy ones don't tell
                expect(picture).to_have_js_property("complete", value=True)
        assert set(seen.elsewhere) == {*shown, "https://elsewhere.example/1.gif"}
        assert [said for said in seen.complaints if "Failed to load resource" not in said] == []


def test_a_picture_that_is_not_there_leaves_its_place_to_a_drawing(browser: Browser, market: Stall) -> None:
    (listing_id,) = market.create({"images": ["https://elsewhere.example/1.gif"]})
    with visit(browser, market.base_url) as seen:
        page = seen.open(f"/listings/{listing_id}")
        expect(page.locator(".gallery img")).to_have_css("opacity", "0")
        assert ".svg" in page.locator(".gallery .picture").evaluate("it => getComputedStyle(it).backgroundImage")


def test_the_focus_is_seen_on_a_listings_only_picture(browser: Browser, market: Stall, shown: list[str]) -> None:
    (listing_id,) = market.create({"images": shown[:1]})
    with visit(browser, market.base_url, reduced_motion="reduce") as seen:
        page = seen.open(f"/listings/{listing_id}")
        expect(page.locator(".gallery img")).to_have_js_property("complete", value=True)
        before = page.locator(".gallery").screenshot()
        page.get_by_role("link", name="For sale").focus()
        page.keyboard.press("Tab")
        expect(page.locator(".gallery a")).to_be_focused()
        assert page.locator(".gallery").screenshot() != before


def test_axe_finds_nothing_to_object_to_in_light_and_dark_on_phones_and_desktops(
    browser: Browser, market: Stall, pages: list[str]
) -> None:
    with visit(browser, market.base_url) as seen:
        found = [one for path in [*pages, "/docs"] for one in objections(seen.open(path), path)]
    assert found == []


def test_no_page_is_wider_than_the_screen(browser: Browser, market: Stall, pages: list[str]) -> None:
    with visit(browser, market.base_url) as seen:
        for path in pages:
            page = seen.open(path)
            for width in (320, 390, 768, 1280):
                page.set_viewport_size({"width": width, "height": 800})
                assert page.evaluate("document.documentElement.scrollWidth") <= width, (path, width)


def test_the_search_tells_on_a_small_phone_what_it_is_for(browser: Browser, market: Stall) -> None:
    with visit(browser, market.base_url, viewport={"width": 320, "height": 600}) as seen:
        field = seen.open("/").get_by_placeholder("Search listings")
        wide = field.evaluate("it => it.clientWidth - 2 * parseFloat(getComputedStyle(it).paddingLeft)")
        assert field.evaluate(WIDTH_OF_PLACEHOLDER) <= wide


def test_what_can_be_touched_is_as_large_as_a_finger(browser: Browser, market: Stall) -> None:
    with visit(browser, market.base_url, viewport=PHONE) as seen:
        page = seen.open("/?q=bicycle&type=product")
        for one in page.locator("header a:not(.skip), .search :is(button, input, select, summary), .more a").all():
            box = one.bounding_box()
            assert box is not None
            assert box["height"] >= 44, one.inner_text()
