"""Whatever somebody stores in a listing, no page runs it: known kinds of stored scripts, in every field.

The policy that would stop most of them is switched off here, so that the pages have to hold by themselves.
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
from listings.service import Service
from tests.harness import Harness, Person
from tests.site.browser import Stall, Visit, chromium, needs_chromium, stall, visit
from tests.site.console import PASSWORD, member, open_house
from tests.site.market import Reading, create, get

PAYLOADS: list[str] = [
    json.loads(line) for line in Path(__file__).with_name("xss_payloads.txt").read_text("utf-8").splitlines()
]
LENGTHS = {"title": 255, "content": 100_000, "location": 255, "category": 100, "region": 100, "district": 100}
PICTURES = "https://images.example/"
AT_ONCE = 50
FOREIGN = r"""(document) => [...document.querySelectorAll("*")].filter(one =>
    [...one.attributes].some(it => /^(on|style$|srcdoc$|formaction$)/i.test(it.name)
        || /^(href|src|action|xlink:href|data)$/i.test(it.name) && !/^(https?:\/\/|[/#])/.test(it.value))
    || /^(iframe|object|embed|base|style|frame|math|template|video|audio)$/i.test(one.localName)
    || one.localName === "script" && !one.src.startsWith(origin + "/static/") && one.type !== "application/ld+json"
).map(one => one.outerHTML)"""
READ = """async (paths) => Promise.all(paths.map(async (path) => {
    const answer = await fetch(path);
    const frame = document.createElement("iframe");
    frame.srcdoc = await answer.text();
    await new Promise((loaded) => { frame.onload = loaded; document.body.append(frame); });
    const inner = frame.contentDocument;
    const read = {
        title: inner.querySelector("h1").textContent, foreign: (FOREIGN)(inner), ran: frame.contentWindow.__xss ?? null,
        place: inner.location.href,
    };
    frame.remove();
    return read;
}))""".replace("FOREIGN", FOREIGN)


def listing_of(payload: str) -> dict[str, Any]:
    """The payload in every field that has room for it, and in the address of a picture."""
    texts = {name: payload for name, most in LENGTHS.items() if len(payload) <= most}
    address = re.sub(r"[\s\x00-\x1f\\]", "", payload)
    return texts | {"images": [PICTURES + address, f"{PICTURES}1.png#{address}"]}


def test_there_are_enough_of_them_and_each_is_another() -> None:
    assert len(set(PAYLOADS)) == len(PAYLOADS) >= 223


@pytest.mark.parametrize("field", ["q", "region", "price_min"])
def test_nothing_in_a_search_adds_an_element_to_the_page(harness: Harness, field: str) -> None:
    """By an HTML parser, since an address has room for one at a time."""
    plain = [one.name for one in Reading(get(harness, f"/?{field}=words").body.decode()).elements]
    for payload in PAYLOADS:
        reading = Reading(get(harness, f"/?{field}={quote(payload)}").body.decode())
        added = [one.name for one in reading.elements if one.name not in {"p", "div", "h2", "a"}]
        assert added == [name for name in plain if name not in {"p", "div", "h2", "a"}], payload
        assert not {key for one in reading.elements for key in one.attributes if key.startswith("on") or key == "style"}


def test_nothing_in_a_listing_adds_an_element_to_its_form(tmp_path: Path) -> None:
    with open_house(tmp_path) as harness:
        tab = member(harness)
        account = harness.run(harness.service.find_account("alice@example.com"))
        alice = Person(account, harness.run(harness.service.issue_key("alice@example.com", "test")).secret, 0)
        path = "/console/listings/{}"
        plain = [one.name for one in tab.get(path.format(create(harness, alice))).page.elements]
        for payload in PAYLOADS:
            reading = tab.get(path.format(create(harness, alice, **listing_of(payload)))).page
            assert [one.name for one in reading.elements] == plain, payload
            assert not {
                key for one in reading.elements for key in one.attributes if key.startswith("on") or key == "style"
            }


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stall]:
    with stall(tmp_path_factory.mktemp("market")) as market:
        yield market


def require_nothing_ran(seen: Visit, page: Page) -> None:
    assert page.evaluate("window.__xss") is None
    assert page.evaluate(f"({FOREIGN})(document)") == []
    assert seen.dialogs == []
    assert {url for url in seen.elsewhere if not url.startswith(PICTURES)} == set()
    assert page.url.startswith(page.evaluate("origin"))


@needs_chromium
@pytest.mark.slow
def test_none_of_them_runs_in_a_browser(browser: Browser, market: Stall) -> None:
    ids = market.create(*map(listing_of, PAYLOADS))
    with visit(browser, market.base_url, bypass_csp=True) as seen:
        page, path, cards = seen.page, "/", 0
        while path:
            seen.open(path)
            cards += page.locator(".card").count()
            require_nothing_ran(seen, page)
            following = page.locator("a[rel=next]")
            path = str(following.get_attribute("href")) if following.count() else ""
        assert cards == len(PAYLOADS)
        seen.open("/nothing")
        for begin in range(0, len(ids), AT_ONCE):
            paths = [f"/listings/{listing_id}" for listing_id in ids[begin : begin + AT_ONCE]]
            for told, payload in zip(page.evaluate(READ, paths), PAYLOADS[begin:], strict=False):
                assert told == {"title": payload, "foreign": [], "ran": None, "place": "about:srcdoc"}
            require_nothing_ran(seen, page)


@needs_chromium
@pytest.mark.slow
def test_none_of_them_runs_in_the_console_either(browser: Browser, market: Stall) -> None:
    """In the table and in the account's own words; a name has to be printable."""
    market.create(*map(listing_of, PAYLOADS))
    names = [payload for payload in PAYLOADS if payload.isprintable() and 0 < len(payload) <= 200]
    token = market.service.run(lambda service: let_in(service, market.alice, names))
    with visit(browser, market.base_url, bypass_csp=True) as seen:
        seen.page.context.add_cookies([{"name": "listings_session", "value": token, "url": market.base_url}])
        page, path = seen.page, "/console/listings"
        while path:
            seen.open(path)
            require_nothing_ran(seen, page)
            following = page.locator("a[rel=next]")
            path = str(following.get_attribute("href")) if following.count() else ""
        for path in ("/console", "/console/keys", "/console/activity", "/console/usage", "/console/account"):
            seen.open(path)
            require_nothing_ran(seen, page)


async def let_in(service: Service, person: Person, names: list[str]) -> str:
    """A session of somebody whose account and keys are called like that."""
    for name in names:
        await service.add_key(person.account, name, api_keys.generate())
    await service.rename_account(str(person.account.id), names[0])
    return await service.accept_invitation(await service.invite(str(person.account.id)), PASSWORD, names[1])


@needs_chromium
@pytest.mark.slow
def test_this_test_sees_a_script_that_runs(browser: Browser, market: Stall) -> None:
    with visit(browser, market.base_url, bypass_csp=True) as seen:
        page = seen.open("/")
        page.evaluate("document.body.innerHTML += '<img src=x onerror=window.__xss=1>'")
        page.wait_for_function("window.__xss === 1")
        assert page.evaluate(f"({FOREIGN})(document)") != []
