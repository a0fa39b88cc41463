"""The market in a browser: with and without JavaScript, in light and dark, on phones and desktops."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, Route, ViewportSize, expect

from bench.data import store_of
from tests.site.accessibility import DESKTOP, PHONE, find_axe_violations
from tests.site.browser import (
    HeldRequests,
    RunningMarket,
    needs_chromium,
    resize,
    run_market,
    serve_pictures,
    visit,
    wait_for_views,
)

pytestmark = [needs_chromium, pytest.mark.slow, pytest.mark.uncovered]

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
MEASURE_PLACEHOLDER = """it => {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = getComputedStyle(it).font;
  return pen.measureText(it.placeholder).width;
}"""
MEASURE_PICTURE = "it => Math.min(it.clientWidth, it.clientHeight)"  # of a square picture that fits its box
WATCH_SHIFTS = """window.shifts = [];
window.watcher = new PerformanceObserver(list => shifts.push(...list.getEntries()));
watcher.observe({ type: "layout-shift", buffered: true });"""
WAIT_FOR_PAINT = """() => new Promise(resolve => new PerformanceObserver(list => {
  if (list.getEntriesByName("first-contentful-paint").length) resolve();
}).observe({ type: "paint", buffered: true }))"""
SUM_SHIFTS = """async () => {
  await document.fonts.ready;
  for (let frames = 0; frames < 2; frames++) await new Promise(requestAnimationFrame);
  shifts.push(...watcher.takeRecords());
  return shifts.reduce((sum, it) => sum + it.value, 0);
}"""
GUIDES = [f"/docs/{name}" for name in ("errors", "sync", "quick-start", "rate-limit")]
LONG: dict[str, Any] = {"title": "W" * 255, "content": "x" * 3000, "location": "y" * 255, "region": "z" * 100}


@pytest.fixture(scope="module")
def picture_urls() -> Iterator[list[str]]:
    """URLs of the studio's pictures."""
    with serve_pictures() as url:
        yield [f"{url}1.gif", f"{url}2.gif"]


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMarket]:
    with run_market(tmp_path_factory.mktemp("market")) as market:
        market.create(*({"title": f"Bicycle {number:02}", "price": number} for number in range(30)))
        yield market


@pytest.fixture(scope="module")
def paths(market: RunningMarket, picture_urls: list[str]) -> list[str]:
    missing = {"images": ["https://elsewhere.example/1.gif"]}
    ids = market.create(STUDIO | {"images": picture_urls}, LONG, missing, {"is_active": False})
    listings = [f"/listings/{listing_id}" for listing_id in ids]
    searches = ["/?q=bicycle&sort=price", "/?q=bycicle&region=Otago", "/?price_min=cheap", "/?q=bicycle&after=0-1"]
    return ["/", "/?sort=newest", *searches, *listings, f"/sellers/{market.alice.account.id}", "/saved", "/nothing"]


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_a_visitor_searches_turns_pages_and_opens_a_listing(
    browser: Browser, market: RunningMarket, picture_urls: list[str], size: Any, *, scripts: bool
) -> None:
    (studio,) = market.create(STUDIO | {"images": picture_urls})
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
        page.get_by_role("link", name="Previous page").click()
        page.wait_for_url(re.compile("before="))
        expect(page.locator(".card h3")).to_have_text(first)
        page.get_by_role("link", name="Remove “bicycle”").click()
        expect(page.get_by_role("heading", name="All listings")).to_be_visible()
        if page.get_by_text("Filters").is_visible():
            page.get_by_text("Filters").click()
        page.get_by_role("link", name="Rentals").click()
        page.wait_for_url(re.compile(r"\?type=rental$"))
        if size == PHONE and scripts:
            page.get_by_role("button", name=re.compile(r"Show \d+ result")).click()
        page.get_by_role("link", name="Sunny studio").first.click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Sunny studio near the waterfront")
        expect(page.get_by_text("$145 per night").first).to_be_visible()
        page.reload()
        assert seen.console_messages == []
    assert wait_for_views(market.service, studio) == 1


def test_a_changed_filter_applies_immediately_with_scripts(browser: Browser, market: RunningMarket) -> None:
    market.create(STUDIO)
    with visit(browser, market.base_url, viewport=DESKTOP) as seen:
        page = seen.open("/?sort=newest")
        page.evaluate("window.stays = true")
        top = page.locator(".cards").evaluate("it => it.getBoundingClientRect().top")
        page.get_by_role("link", name="Rentals").click()
        expect(page.get_by_role("heading", name="Rentals", exact=True)).to_be_visible()
        page.wait_for_url(re.compile(r"\?type=rental$"))
        assert page.locator(".cards").evaluate("it => it.getBoundingClientRect().top") == top
        expect(page.locator("#type-rental")).to_be_focused()
        expect(page.locator("#status")).to_have_text(re.compile(r"Rentals \d+ results?"))
        page.get_by_label("Sort by").focus()
        page.get_by_label("Sort by").select_option("price")
        page.wait_for_url(re.compile(r"\?type=rental&sort=price$"))
        expect(page.locator("#sort")).to_be_focused()
        assert page.evaluate("window.stays")
        page.go_back()
        page.wait_for_url(re.compile(r"\?type=rental$"))
        expect(page.get_by_label("Sort by")).to_have_value("newest")
        assert seen.console_messages == []


def test_the_filters_stay_open_on_a_phone_while_they_are_used(browser: Browser, market: RunningMarket) -> None:
    with visit(browser, market.base_url, viewport=PHONE) as seen:
        page = seen.open("/?sort=newest")
        page.get_by_text("Filters").click()
        page.get_by_label("From").fill("5")
        page.get_by_label("From").press("Tab")
        page.wait_for_url(re.compile("price_min=5"))
        expect(page.get_by_label("To", exact=True)).to_be_focused()


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
def test_results_begin_in_the_first_screen_of_a_phone(
    browser: Browser, market: RunningMarket, *, scripts: bool
) -> None:
    with visit(browser, market.base_url, viewport=PHONE, java_script_enabled=scripts) as seen:
        page = seen.open("/?q=bicycle&type=product&price_min=1")
        box = page.locator(".card").first.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] < PHONE["height"]
        page.get_by_text("Filters (2)").click()
        page.get_by_label("To", exact=True).fill("20")
        page.mouse.click(200, 20)  # beside the sheet, which closes it
        expect(page.get_by_label("To", exact=True)).to_be_hidden()
        page.get_by_text("Filters (2)").click()
        page.get_by_label("To", exact=True).fill("20")
        page.get_by_role("button", name=re.compile(r"Show \d+ results")).click()
        page.wait_for_url(re.compile("price_max=20"))
        expect(page.get_by_label("To", exact=True)).to_be_hidden()


def test_a_listing_is_saved_on_its_page(browser: Browser, market: RunningMarket) -> None:
    (listing_id,) = market.create({"title": "Brass lamp"})
    with visit(browser, market.base_url, viewport=PHONE) as seen:
        page = seen.open(f"/listings/{listing_id}")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_role("button", name="Saved")).to_be_visible()
        page.reload()
        expect(page.get_by_role("button", name="Saved")).to_be_visible()
        expect(seen.open("/saved").get_by_role("link", name="Brass lamp")).to_be_visible()
        assert seen.console_messages == []


def test_the_results_of_a_filter_come_into_view(browser: Browser, market: RunningMarket) -> None:
    with visit(browser, market.base_url, viewport=PHONE) as seen:
        page = seen.open("/?sort=newest")
        page.get_by_text("Filters").click()
        page.get_by_role("link", name="For sale").click()
        page.get_by_role("button", name=re.compile(r"Show \d+ results")).click()
        expect(page.get_by_role("heading", name="For sale", exact=True)).to_be_in_viewport()
        page.get_by_role("link", name="Remove For sale").click()
        expect(page.get_by_role("heading", name="All listings")).to_be_in_viewport()


def test_the_results_have_the_focus_after_a_link_that_is_gone(browser: Browser, market: RunningMarket) -> None:
    with visit(browser, market.base_url, viewport=DESKTOP) as seen:
        page = seen.open("/?q=bicycle&type=product")
        for link, heading in (
            ("Next page", "Results for “bicycle”"),
            ("Remove “bicycle”", "For sale"),
            ("Remove For sale", "All listings"),
        ):
            page.get_by_role("link", name=link).press("Enter")
            expect(page.get_by_role("heading", name=heading, exact=True)).to_be_focused()
            assert page.evaluate("scrollY") == 0
        page.keyboard.press("Tab")
        expect(page.locator(".found :focus")).to_be_visible()


def test_a_price_of_six_digits_fits_its_field(browser: Browser, market: RunningMarket) -> None:
    with visit(browser, market.base_url) as seen:
        page = seen.open("/?price_min=888888&price_max=888888")
        for width in (320, 390, 480, 640, 1023, 1024):
            resize(page, width)
            if width < 1024:
                page.get_by_text("Filters (1)").click()
            for field in page.locator(".range input").all():
                assert field.evaluate("it => it.scrollWidth <= it.clientWidth"), width
            page.keyboard.press("Escape")


def test_place_and_age_take_one_line_of_a_card(browser: Browser, market: RunningMarket) -> None:
    market.create(LONG | {"title": "Brass telescope"})
    with visit(browser, market.base_url, viewport=PHONE) as seen:
        place = seen.open("/?q=telescope").locator(".card .place span")
        lines = place.evaluate("it => it.clientHeight / parseFloat(getComputedStyle(it).lineHeight)")
        assert round(lines) == 1


def test_scripts_stay_below_a_path_prefix(browser: Browser, tmp_path: Path) -> None:
    with run_market(tmp_path, base_url="http://other.example/shop") as market, visit(browser, market.base_url) as seen:
        market.create(STUDIO, {})
        page = seen.open("/?sort=newest")
        page.get_by_role("link", name="Rentals").click()
        expect(page.get_by_role("heading", name="Rentals", exact=True)).to_be_visible()
        assert page.url == f"{market.base_url}/?type=rental"
        page = seen.open("/docs")
        listing = page.locator("#listListings")
        expect(listing.locator(".sample code").first).to_contain_text(f'curl "{market.base_url}/api/v1/listings"')
        page.get_by_label("API key").fill(market.alice.key)
        listing.get_by_text("Try it").click()
        listing.get_by_role("button", name="Send").click()
        expect(listing.locator("output")).to_contain_text("GET /shop/api/v1/listings: 200")
        assert (seen.external_urls, seen.console_messages) == ([], [])


def sort_without_response(page: Page) -> HeldRequests:
    """Sort the results by price. Return the request."""
    held = HeldRequests(page, "**/*sort=price")
    page.get_by_label("Sort by").select_option("price")
    held.wait(1)
    return held


def test_a_newer_search_replaces_a_pending_one(browser: Browser, market: RunningMarket) -> None:
    with visit(browser, market.base_url, viewport=DESKTOP) as seen:
        page = seen.open("/?q=bicycle")
        held = sort_without_response(page)
        with page.expect_event("requestfailed") as cancelled:
            page.get_by_role("link", name="Remove “bicycle”").click()
        assert urlsplit(cancelled.value.url).query == "q=bicycle&sort=price"
        expect(page.get_by_role("heading", name="All listings")).to_be_visible()
        assert (urlsplit(page.url).query, seen.console_messages) == ("sort=newest", [])
        held.wait(1)


def test_text_that_is_typed_while_results_load_stays(browser: Browser, market: RunningMarket) -> None:
    with visit(browser, market.base_url, viewport=DESKTOP) as seen:
        page = seen.open("/?q=bicycle")
        held = sort_without_response(page)
        page.get_by_label("What are you looking for?").fill("bicycle pump")
        with page.expect_response(re.compile("sort=price$")):
            held.send_first()
        page.wait_for_url(re.compile("sort=price"))
        expect(page.get_by_label("What are you looking for?")).to_have_value("bicycle pump")
        expect(page.get_by_label("What are you looking for?")).to_be_focused()


@pytest.mark.parametrize("has_htmx", [True, False])
def test_the_url_of_a_search_omits_empty_fields(browser: Browser, market: RunningMarket, *, has_htmx: bool) -> None:
    with visit(browser, market.base_url, viewport=DESKTOP) as seen:
        if not has_htmx:
            seen.page.route("**/htmx.min.js", lambda route: route.abort())
        page = seen.open("/")
        page.get_by_label("What are you looking for?").fill("bicycle")
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile("q="))
        assert urlsplit(page.url).query == "q=bicycle"


def test_an_empty_search_returns_to_the_home_page(browser: Browser, market: RunningMarket) -> None:
    with visit(browser, market.base_url) as seen:
        page = seen.open("/?q=bicycle")
        page.get_by_label("What are you looking for?").fill("")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="All listings")).to_be_visible()
        assert urlsplit(page.url).query == "sort=newest"
        expect(page.get_by_label("What are you looking for?")).to_be_focused()


def test_a_search_with_a_failed_connection_loads_the_page(browser: Browser, market: RunningMarket) -> None:
    with visit(browser, market.base_url) as seen:
        page = seen.open("/?sort=newest")
        page.route("**/*q=bicycle", lambda route: route.abort() if route.request.resource_type == "xhr" else None)
        page.get_by_label("What are you looking for?").fill("bicycle")
        with page.expect_request(lambda request: request.is_navigation_request()) as navigation:
            page.keyboard.press("Enter")
        assert urlsplit(navigation.value.url).query == "q=bicycle"


def test_a_failed_search_shows_the_error_page(browser: Browser, tmp_path: Path) -> None:
    with run_market(tmp_path) as market, visit(browser, market.base_url) as seen:
        page = seen.open("/?sort=newest")
        market.service.run(lambda services: store_of(services).close())
        page.get_by_label("What are you looking for?").fill("bicycle")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Back in a moment")).to_be_visible()
        assert urlsplit(page.url).query == "q=bicycle"


@pytest.mark.parametrize("url", ["/?sort=newest", "/?price_min=cheap"])
def test_an_error_stays_at_its_field_until_corrected(browser: Browser, market: RunningMarket, url: str) -> None:
    error = "Enter the lowest price as a number, for example 250."
    with visit(browser, market.base_url, viewport=DESKTOP) as seen:
        page = seen.open(url)
        field = page.get_by_label("From")
        for price, message in (("dear", error), ("10", ""), ("cheap", error)):
            field.fill(price)
            field.press("Tab")
            expect(page.get_by_role("group", name="Price (NZD)").locator("#error-price_min")).to_have_text(message)
            expect(field).to_have_accessible_description(message)
            expect(page.locator("[aria-invalid]")).to_have_count(1 if message else 0)
            expect(page.locator("#status")).to_have_text(re.compile(f"^{message}.*All listings .*results"))
            expect(page.get_by_label("To", exact=True)).to_be_focused()


def test_live_results_equal_those_after_a_reload(browser: Browser, market: RunningMarket) -> None:
    market.create({"title": "Kakapo"})
    with visit(browser, market.base_url, viewport=DESKTOP) as seen:
        page = seen.open("/?sort=newest")
        for terms, heading, status in (
            ("kakapo", "Results for “kakapo”", "Results for “kakapo” 1 result"),
            ("unicorn", "Nothing found", "Results for “unicorn” No results"),
            ("", "All listings", re.compile(r"^All listings \d+ results$")),
        ):
            page.get_by_label("What are you looking for?").fill(terms)
            page.keyboard.press("Enter")
            expect(page.get_by_role("heading", name=heading)).to_be_visible()
            expect(page.locator("#status")).to_have_text(status)
            headings = page.locator("main :is(h1, h2, .total, .chips, .facets, .empty)")
            live = headings.all_inner_texts()
            page.reload()
            assert headings.all_inner_texts() == live


def test_the_skip_link_is_first_in_the_tab_order(browser: Browser, market: RunningMarket) -> None:
    with visit(browser, market.base_url) as seen:
        page = seen.open("/")
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("#content")).to_be_focused()


def test_only_pictures_are_loaded_from_other_hosts(
    browser: Browser, market: RunningMarket, paths: list[str], picture_urls: list[str]
) -> None:
    with visit(browser, market.base_url, viewport=DESKTOP) as seen:
        for path in paths:
            for picture in seen.open(path).locator(".gallery img").all():  # lazy images load after the page
                expect(picture).to_have_js_property("complete", value=True)
        assert set(seen.external_urls) == {*picture_urls, "https://elsewhere.example/1.gif"}
        assert [text for text in seen.console_messages if "Failed to load resource" not in text] == []


def test_a_missing_picture_is_replaced_by_a_drawing(browser: Browser, market: RunningMarket) -> None:
    (listing_id,) = market.create({"images": ["https://elsewhere.example/1.gif"]})
    with visit(browser, market.base_url) as seen:
        page = seen.open(f"/listings/{listing_id}")
        expect(page.locator(".gallery img")).to_have_css("opacity", "0")
        assert ".svg" in page.locator(".gallery .picture").evaluate("it => getComputedStyle(it, '::before').maskImage")


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
def test_a_gallery_turns_by_mouse_and_keyboard(
    browser: Browser, market: RunningMarket, picture_urls: list[str], *, scripts: bool
) -> None:
    (listing_id,) = market.create({"images": picture_urls * 2})
    with visit(browser, market.base_url, reduced_motion="reduce", java_script_enabled=scripts) as seen:
        page = seen.open(f"/listings/{listing_id}")
        third = page.get_by_text("3 / 4")
        expect(third).not_to_be_in_viewport()
        page.get_by_role("link", name="Show picture 3").click()
        expect(third).to_be_in_viewport()
        page.locator("#picture-3").get_by_label("Previous picture").click()
        expect(third).not_to_be_in_viewport()
        expect(page.get_by_text("2 / 4")).to_be_in_viewport()
        page.locator("#picture-2").get_by_label("Next picture").focus()
        page.keyboard.press("ArrowRight" if scripts else "Enter")
        expect(third).to_be_in_viewport()
        if scripts:
            expect(page.locator(".thumbnails [aria-current]")).to_have_attribute("href", "#picture-3")
            page.keyboard.press("Shift+ArrowRight")  # the browser's, as with Alt
            expect(third).to_be_in_viewport()
        assert seen.console_messages == []


def test_a_picture_is_enlarged_on_the_page(browser: Browser, market: RunningMarket, picture_urls: list[str]) -> None:
    (listing_id,) = market.create({"images": picture_urls})
    with visit(browser, market.base_url) as seen:
        page = seen.open(f"/listings/{listing_id}")
        page.locator("#picture-1 .enlarge").click()
        large = page.get_by_role("dialog").get_by_role("img", name="picture 1 of 2")
        expect(large).to_be_visible()
        assert list(find_axe_violations(page, "an enlarged picture")) == []
        page.keyboard.press("Escape")
        expect(large).to_be_hidden()
        assert seen.console_messages == []


def test_an_enlarged_gallery_turns_and_returns_to_its_place(
    browser: Browser, market: RunningMarket, picture_urls: list[str]
) -> None:
    (listing_id,) = market.create({"images": picture_urls * 2})
    with visit(browser, market.base_url, reduced_motion="reduce", viewport=DESKTOP) as seen:
        page = seen.open(f"/listings/{listing_id}")
        height = page.evaluate("document.documentElement.scrollHeight")
        page.get_by_role("link", name="Show picture 2").click()
        page.locator("#picture-2 .enlarge").click()
        viewer = page.get_by_role("dialog")
        for key, number in (("ArrowRight", 3), ("ArrowRight", 4), ("ArrowRight", 1), ("ArrowLeft", 4)):
            page.keyboard.press(key)
            expect(viewer.get_by_text(f"{number} / 4")).to_be_in_viewport()
            expect(viewer.get_by_role("status")).to_have_text(f"Bicycle, picture {number} of 4")
        assert page.evaluate("document.documentElement.scrollHeight") == height
        viewer.locator("#picture-4").get_by_label("Previous picture").click()
        viewer.get_by_role("button", name="Close").click()
        expect(viewer).to_be_hidden()
        expect(page.locator(".main #picture-3 .enlarge")).to_be_focused()
        expect(page.get_by_text("3 / 4")).to_be_in_viewport()
        assert seen.console_messages == []


def test_pictures_that_fail_leave_the_gallery(browser: Browser, market: RunningMarket, picture_urls: list[str]) -> None:
    first, second = picture_urls
    lost = "https://elsewhere.example/{}.gif"
    (listing_id,) = market.create({"images": [lost.format(1), first, lost.format(2), second, lost.format(3)]})
    with visit(browser, market.base_url, reduced_motion="reduce") as seen:
        page = seen.open(f"/listings/{listing_id}")
        expect(page.locator(".gallery .counter")).to_have_text(["1 / 2", "2 / 2"])
        names = [f"Bicycle, picture {number} of 2" for number in (1, 2)]
        assert [one.get_attribute("alt") for one in page.locator(".gallery img").all()] == names
        page.get_by_role("link", name="Show picture 2").click()
        expect(page.get_by_text("2 / 2")).to_be_in_viewport()
        page.locator("#picture-4").get_by_label("Next picture").click()
        expect(page.get_by_text("1 / 2")).to_be_in_viewport()


def test_a_gallery_with_one_working_picture_has_no_controls(
    browser: Browser, market: RunningMarket, picture_urls: list[str]
) -> None:
    (listing_id,) = market.create({"images": ["https://elsewhere.example/1.gif", picture_urls[0]]})
    with visit(browser, market.base_url) as seen:
        page = seen.open(f"/listings/{listing_id}")
        expect(page.get_by_role("img", name="Bicycle", exact=True)).to_be_visible()
        expect(page.locator(".turn, .counter, .thumbnails")).to_have_count(0)


@pytest.mark.parametrize("width", [320, 390, 768, 1024, 1280, 1440, 1920])
def test_the_frame_of_a_gallery_fits_a_photo(
    browser: Browser, market: RunningMarket, picture_urls: list[str], width: int
) -> None:
    (listing_id,) = market.create({"images": picture_urls})
    with visit(browser, market.base_url, viewport={"width": width, "height": 900}) as seen:
        frame = seen.open(f"/listings/{listing_id}").locator("#picture-1 .picture").bounding_box()
        assert frame is not None
        assert abs(frame["width"] * 3 - frame["height"] * 4) <= 4


@pytest.mark.parametrize("size", [(320, 568), (844, 390), (1280, 720), (1920, 1080)])
def test_an_enlarged_picture_is_not_smaller_than_in_the_gallery(
    browser: Browser, market: RunningMarket, picture_urls: list[str], size: tuple[int, int]
) -> None:
    (listing_id,) = market.create({"images": picture_urls[:1]})
    with visit(browser, market.base_url, viewport={"width": size[0], "height": size[1]}) as seen:
        page = seen.open(f"/listings/{listing_id}")
        small = page.locator(".gallery img").evaluate(MEASURE_PICTURE)
        page.locator(".gallery .enlarge").click()
        large = page.locator(".viewer img")
        assert large.evaluate(MEASURE_PICTURE) >= small
        assert large.bounding_box() == {"x": 0, "y": 0, "width": size[0], "height": size[1]}
        large.click()
        expect(large).to_be_hidden()


def test_without_permission_the_link_of_a_listing_is_selected(browser: Browser, market: RunningMarket) -> None:
    (listing_id,) = market.create(STUDIO)
    with visit(browser, market.base_url) as seen:
        page = seen.open(f"/listings/{listing_id}")
        page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error()); }")
        page.get_by_role("button", name="Copy link").click()
        expect(page.get_by_label("Link to copy")).to_be_focused()
        assert page.evaluate("getSelection().toString()") == f"{market.base_url}/listings/{listing_id}"
        assert seen.console_messages == []


def test_the_link_of_a_listing_is_copied(browser: Browser, market: RunningMarket) -> None:
    (listing_id,) = market.create(STUDIO)
    with visit(browser, market.base_url, permissions=["clipboard-read", "clipboard-write"]) as seen:
        page = seen.open(f"/listings/{listing_id}")
        page.get_by_role("button", name="Copy link").click()
        expect(page.get_by_role("button", name="Link copied")).to_be_visible()
        expect(page.locator(".share").get_by_role("status")).to_have_text("Link copied")
        assert page.evaluate("navigator.clipboard.readText()") == f"{market.base_url}/listings/{listing_id}"


def test_a_listing_is_shared_with_its_link(browser: Browser, market: RunningMarket) -> None:
    (listing_id,) = market.create(STUDIO)
    with visit(browser, market.base_url) as seen:
        seen.page.add_init_script("navigator.share = async (data) => { window.shared = data; }")
        page = seen.open(f"/listings/{listing_id}")
        page.get_by_role("button", name="Share").click()
        shared = page.evaluate("window.shared")
        assert shared == {"title": page.title(), "url": f"{market.base_url}/listings/{listing_id}"}
        assert seen.console_messages == []


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
def test_a_buyer_reveals_the_contact_of_a_seller(browser: Browser, market: RunningMarket, *, scripts: bool) -> None:
    bob = market.service.cast().bob
    market.service.run(lambda services: services.accounts.set_public_contact(bob.account, "021 555 0100"))
    (listing_id,) = market._replace(alice=bob).create(STUDIO)
    with visit(browser, market.base_url, viewport=PHONE, java_script_enabled=scripts) as seen:
        page = seen.open(f"/listings/{listing_id}")
        contact = page.get_by_role("link", name="021 555 0100")
        expect(contact).to_be_hidden()
        page.get_by_text("Show phone number").click()
        expect(contact).to_be_visible()
        expect(contact).to_have_attribute("href", "tel:0215550100")
        assert seen.console_messages == []


def test_the_focus_is_visible_on_a_single_picture(
    browser: Browser, market: RunningMarket, picture_urls: list[str]
) -> None:
    (listing_id,) = market.create({"images": picture_urls[:1]})
    with visit(browser, market.base_url, reduced_motion="reduce") as seen:
        page = seen.open(f"/listings/{listing_id}")
        expect(page.locator(".gallery img")).to_have_js_property("complete", value=True)
        before = page.locator(".gallery").screenshot()
        page.get_by_role("link", name="For sale").focus()
        page.keyboard.press("Tab")
        expect(page.locator(".gallery .enlarge")).to_be_focused()
        assert page.locator(".gallery").screenshot() != before


def test_market_pages_are_accessible(browser: Browser, market: RunningMarket, paths: list[str]) -> None:
    with visit(browser, market.base_url) as seen:
        found = [one for path in [*paths, "/docs", *GUIDES[:2]] for one in find_axe_violations(seen.open(path), path)]
    assert found == []


def test_no_page_is_wider_than_the_screen(browser: Browser, market: RunningMarket, paths: list[str]) -> None:
    with visit(browser, market.base_url) as seen:
        for path in [*paths, "/docs", *GUIDES]:
            page = seen.open(path)
            for width in (320, 390, 768, 1280, 1920):
                resize(page, width)
                assert page.evaluate("document.documentElement.scrollWidth") <= width, (path, width)


def continue_after_first_paint(route: Route) -> None:
    route.request.frame.evaluate(WAIT_FOR_PAINT)
    route.continue_()


@pytest.mark.parametrize("late", ["site.js", "inter.woff2"])
@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_pages_do_not_move_while_they_load(
    browser: Browser, market: RunningMarket, paths: list[str], size: ViewportSize, late: str
) -> None:
    with visit(browser, market.base_url, viewport=size) as seen:
        seen.page.add_init_script(WATCH_SHIFTS)
        seen.page.route(f"**/{late}", continue_after_first_paint)
        moved = {path: seen.open(path).evaluate(SUM_SHIFTS) for path in paths}
        assert {path: shift for path, shift in moved.items() if shift > 0.01} == {}
        seen.page.evaluate("document.body.style.paddingTop = '200px'")
        assert seen.page.evaluate(SUM_SHIFTS) > 0.01


def test_the_search_placeholder_fits_a_small_phone(browser: Browser, market: RunningMarket) -> None:
    with visit(browser, market.base_url, viewport={"width": 320, "height": 600}) as seen:
        field = seen.open("/").get_by_placeholder("Search listings")
        width = field.evaluate("it => it.clientWidth - 2 * parseFloat(getComputedStyle(it).paddingLeft)")
        assert field.evaluate(MEASURE_PLACEHOLDER) <= width


def test_touch_targets_are_large_enough(browser: Browser, market: RunningMarket) -> None:
    with visit(browser, market.base_url, viewport=PHONE) as seen:
        page = seen.open("/?q=bicycle&type=product")
        page.get_by_text("Filters").click()
        controls = "button, input:not([type=hidden]), select, summary, .chip, .facets a, .more a"
        for one in page.locator(f"header a:visible, .results :is({controls})").all():
            box = one.bounding_box()
            assert box is not None
            assert box["height"] >= 44, one.inner_text()
