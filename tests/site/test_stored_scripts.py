"""Stored cross-site scripting: known payloads in every field of a listing, of which none may run.

The Content-Security-Policy is off in these tests, because it would hide missing escaping.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page

from listings.domain import api_keys
from listings.service import Services
from tests.harness import Harness, Person
from tests.site.browser import RunningMarket, Visit, needs_chromium, run_market, visit
from tests.site.market import ParsedPage, create, get
from tests.site.tab import PASSWORD, open_console, open_harness

PAYLOADS: list[str] = [
    json.loads(line) for line in Path(__file__).with_name("xss_payloads.txt").read_text("utf-8").splitlines()
]
LENGTHS = {"title": 255, "content": 100_000, "location": 255, "category": 100, "region": 100, "district": 100}
PICTURES = "https://images.example/"
BATCH_SIZE = 50
FIND_FOREIGN_ELEMENTS = r"""(document) => [...document.querySelectorAll("*")].filter(one =>
    [...one.attributes].some(it => /^(on|style$|srcdoc$|formaction$)/i.test(it.name)
        || /^(href|src|action|xlink:href|data)$/i.test(it.name) && !/^(https?:\/\/|[/#])/.test(it.value))
    || /^(iframe|object|embed|base|style|frame|math|template|video|audio)$/i.test(one.localName)
    || one.localName === "script" && !one.src.startsWith(origin + "/static/") && one.type !== "application/ld+json"
).map(one => one.outerHTML)"""
OPEN_IN_FRAMES = """async (paths) => Promise.all(paths.map(async (path) => {
    const response = await fetch(path);
    const frame = document.createElement("iframe");
    frame.srcdoc = await response.text();
    await new Promise((loaded) => { frame.onload = loaded; document.body.append(frame); });
    const inner = frame.contentDocument;
    const result = {
        title: inner.querySelector("h1").textContent, foreign: (FIND_FOREIGN_ELEMENTS)(inner),
        ran: frame.contentWindow.__xss ?? null,
        url: inner.location.href,
    };
    frame.remove();
    return result;
}))""".replace("FIND_FOREIGN_ELEMENTS", FIND_FOREIGN_ELEMENTS)


def build_listing(payload: str) -> dict[str, Any]:
    """Return fields with the payload wherever it fits, also in image URLs."""
    texts = {name: payload for name, max_length in LENGTHS.items() if len(payload) <= max_length}
    url_part = re.sub(r"[\s\x00-\x1f\\]", "", payload)
    return texts | {"images": [PICTURES + url_part, f"{PICTURES}1.png#{url_part}"]}


def test_there_are_at_least_223_different_payloads() -> None:
    assert len(set(PAYLOADS)) == len(PAYLOADS) >= 223


@pytest.mark.parametrize("field", ["q", "region", "price_min"])
def test_payloads_in_a_search_add_no_elements(harness: Harness, field: str) -> None:
    expected = [one.name for one in ParsedPage(get(harness, f"/?{field}=words").body.decode()).elements]
    for payload in PAYLOADS:
        page = ParsedPage(get(harness, f"/?{field}={quote(payload)}").body.decode())
        added = [one.name for one in page.elements if one.name not in {"p", "div", "h2", "a"}]
        assert added == [name for name in expected if name not in {"p", "div", "h2", "a"}], payload
        assert not {key for one in page.elements for key in one.attributes if key.startswith("on") or key == "style"}


def test_payloads_in_a_listing_add_no_elements_to_its_form(tmp_path: Path) -> None:
    with open_harness(tmp_path) as harness:
        tab = open_console(harness)
        account = harness.run(harness.services.accounts.find("alice@example.com"))
        alice = Person(account, harness.run(harness.services.keys.create("alice@example.com", "test")).secret, 0)
        path = "/console/listings/{}"
        expected = [one.name for one in tab.get(path.format(create(harness, alice))).page.elements]
        for payload in PAYLOADS:
            own_id = {"external_id": payload} if payload.isprintable() and 0 < len(payload) <= 255 else {}
            page = tab.get(path.format(create(harness, alice, **build_listing(payload), **own_id))).page
            assert [one.name for one in page.elements] == expected, payload
            assert not {
                key for one in page.elements for key in one.attributes if key.startswith("on") or key == "style"
            }


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMarket]:
    with run_market(tmp_path_factory.mktemp("market")) as market:
        yield market


def assert_nothing_ran(seen: Visit, page: Page) -> None:
    assert page.evaluate("window.__xss") is None
    assert page.evaluate(f"({FIND_FOREIGN_ELEMENTS})(document)") == []
    assert seen.dialogs == []
    assert {url for url in seen.external_urls if not url.startswith(PICTURES)} == set()
    assert page.url.startswith(page.evaluate("origin"))


@needs_chromium
@pytest.mark.slow
@pytest.mark.uncovered
def test_payloads_do_not_run_on_the_market(browser: Browser, market: RunningMarket) -> None:
    ids = market.create(*map(build_listing, PAYLOADS))
    with visit(browser, market.base_url, bypass_csp=True) as seen:
        page, path, cards = seen.page, "/?sort=newest", 0
        while path:
            seen.open(path)
            cards += page.locator(".card").count()
            assert_nothing_ran(seen, page)
            next_link = page.locator("a[rel=next]")
            path = str(next_link.get_attribute("href")) if next_link.count() else ""
        assert cards == len(PAYLOADS)
        seen.open("/nothing")
        for start in range(0, len(ids), BATCH_SIZE):
            paths = [f"/listings/{listing_id}" for listing_id in ids[start : start + BATCH_SIZE]]
            for result, payload in zip(page.evaluate(OPEN_IN_FRAMES, paths), PAYLOADS[start:], strict=False):
                assert result == {"title": payload, "foreign": [], "ran": None, "url": "about:srcdoc"}
            assert_nothing_ran(seen, page)


@needs_chromium
@pytest.mark.slow
@pytest.mark.uncovered
def test_payloads_do_not_run_in_the_console(browser: Browser, market: RunningMarket) -> None:
    """Payloads in the listings, and in the names of account and keys, which must be printable."""
    market.create(*map(build_listing, PAYLOADS))
    names = [payload for payload in PAYLOADS if payload.isprintable() and 0 < len(payload) <= 200]
    token = market.service.run(lambda services: sign_in_as(services, market.alice, names))
    with visit(browser, market.base_url, bypass_csp=True) as seen:
        seen.page.context.add_cookies([{"name": "listings_session", "value": token, "url": market.base_url}])
        page, path = seen.page, "/console/listings"
        while path:
            seen.open(path)
            assert_nothing_ran(seen, page)
            next_link = page.locator("a[rel=next]")
            path = str(next_link.get_attribute("href")) if next_link.count() else ""
        undo = "/console/activity/undo?change=1"
        for path in ("/console", "/console/keys", "/console/activity", undo, "/console/usage", "/console/account"):
            seen.open(path)
            assert_nothing_ran(seen, page)


async def sign_in_as(services: Services, person: Person, names: list[str]) -> str:
    for name in names:
        await services.keys.add(person.account, name, api_keys.generate())
    await services.accounts.rename(str(person.account.id), names[0])
    return await services.invitations.accept(
        await services.invitations.create(str(person.account.id)), PASSWORD, names[1]
    )


@needs_chromium
@pytest.mark.slow
@pytest.mark.uncovered
def test_a_script_that_runs_is_detected(browser: Browser, market: RunningMarket) -> None:
    with visit(browser, market.base_url, bypass_csp=True) as seen:
        page = seen.open("/")
        page.evaluate("document.body.innerHTML += '<img src=x onerror=window.__xss=1>'")
        page.wait_for_function("window.__xss === 1")
        assert page.evaluate(f"({FIND_FOREIGN_ELEMENTS})(document)") != []
