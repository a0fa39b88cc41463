"""All pages below the path prefix of LISTINGS_BASE_URL (decision G19)."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.routing import compile_path

from listings.domain.mail import NewMail
from listings.domain.reverts import RevertRequest
from listings.service.tokens import create_token, hash_token
from listings.site import assets, market
from listings.site.app import CONSOLE_ROUTES
from tests.harness import Harness, Person, Reply
from tests.site.console.test_sign_in import parse_cookies
from tests.site.market import ParsedPage, create
from tests.site.tab import PASSWORD, Tab, open_harness

HOST = "example.com"
BASE_URL = f"https://{HOST}/shop"
EMAIL = "alice@example.com"
LINKS = ("href", "src", "action", "hx-get", "data-path", "content")
SITEMAPS = ("application/xml", "text/plain")
OK, SEE_OTHER, UNAUTHORIZED, NOT_FOUND, METHOD_NOT_ALLOWED = 200, 303, 401, 404, 405


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    with open_harness(tmp_path_factory.mktemp("prefix"), base_url=f"{BASE_URL}/") as harness:
        yield harness


@pytest.fixture(scope="module")
def seller(harness: Harness) -> Tab:
    tab = Tab(harness, HOST).get("/shop/sign-up")
    tab.post("/shop/sign-up", name="Alice", email=EMAIL, password=PASSWORD)
    account = harness.run(harness.services.accounts.extend_plan(EMAIL, 12))
    issued = harness.run(harness.services.keys.create(EMAIL, "test"))
    alice = Person(account, issued.secret, issued.key.id)
    for number in range(51):
        create(harness, alice, title=f"Bicycle {number}", category="Bikes", price=1)
    create(harness, alice, is_active=False)
    harness.run(harness.services.reverts.start(account.id, RevertRequest("change", 52), alice.key_id))
    return tab


class Crawler:
    def __init__(self, *tabs: Tab) -> None:
        self._tabs = tabs
        self.replies: dict[str, Reply] = {}

    def visit(self, *paths: str) -> None:
        waiting = list(paths)
        while waiting:
            path = waiting.pop()
            if path not in self.replies:
                self.replies[path] = reply = self._fetch(path)
                assert reply.status in {OK, SEE_OTHER, UNAUTHORIZED, METHOD_NOT_ALLOWED}, (path, reply)
                waiting += find_own_links(reply)

    def _fetch(self, path: str) -> Reply:
        """Request a page with the first tab that it does not redirect."""
        replies = [tab.get(path).reply for tab in self._tabs]
        return next((reply for reply in replies if reply.status == OK), replies[0])


def find_own_links(reply: Reply) -> Iterator[str]:
    """Yield the paths to which a response links, without fragments. All are below the prefix."""
    for link in list_links(reply):
        if link.startswith(("/", f"https://{HOST}")):
            path = link.removeprefix(f"https://{HOST}").partition("#")[0]
            assert re.match("/shop(?:[/?]|$)", path), link
            yield path.replace("{id}", "1025")


def list_links(reply: Reply) -> list[str]:
    text = reply.body.decode(errors="replace")  # a font or an icon
    kind = reply.headers.get("content-type", "").partition(";")[0]
    if kind == "text/html":
        elements = ParsedPage(text).elements
        return [link for one in elements for name in LINKS if (link := one.attributes.get(name)) is not None]
    if "location" in reply.headers:
        return [reply.headers["location"]]
    return re.findall("(?:<loc>|^Sitemap: )(.*?)(?:</loc>|$)", text, re.MULTILINE) if kind in SITEMAPS else []


@pytest.mark.decision("G19")
def test_every_link_stays_below_the_prefix_and_works(harness: Harness, seller: Tab) -> None:
    crawler = Crawler(seller, Tab(harness, HOST))
    token = harness.run(harness.services.invitations.create(EMAIL))
    confirmation, now = create_token(), int(harness.clock())
    mail = NewMail("mail1", "confirm_email", EMAIL, 1, "{}", now)
    harness.run(harness.store.add_mail(mail))
    harness.run(harness.store.add_email_token(1, mail, hash_token(confirmation), now, now + 60))
    crawler.visit("/shop", "/shop/console", "/shop/docs", "/shop/robots.txt")
    crawler.visit(f"/shop/invitations/{token}", f"/shop/confirm-email/{confirmation}")
    shown = [path.removeprefix("/shop") for path, reply in crawler.replies.items() if reply.status == OK]
    routes = [*market.ROUTES, *CONSOLE_ROUTES, *assets.ROUTES]
    pages = [compile_path(route.path)[0] for route in routes if "GET" in (route.methods or ())]
    pages.remove(compile_path("/console/plan/invoices/{id}")[0])  # it leads to the payment provider
    pages.remove(compile_path("/static/demo/{name}")[0])  # only listings of the demo have it
    assert not [page for page in pages if not any(page.match(path.partition("?")[0] or "/") for path in shown)]
    assert {"/openapi.json", "/docs/reference.js"} <= set(shown)
    assert {path.partition("?")[0] for path in shown if "after=" in path} == {*("/", "/console/listings", "/sellers/1")}


@pytest.mark.usefixtures("seller")
def test_redirects_stay_below_the_prefix(harness: Harness) -> None:
    visitor = Tab(harness, HOST)
    assert (
        visitor.get("/shop/console/keys?a=b").reply.headers["location"]
        == "/shop/sign-in?next=%2Fconsole%2Fkeys%3Fa%3Db"
    )
    visitor.follow().post("/shop/sign-in", email=EMAIL, password=PASSWORD, next="/console/keys?a=b")
    assert visitor.reply.headers["location"] == "/shop/console/keys?a=b"
    assert visitor.follow().get("/shop/console/?a").reply.headers["location"] == "/shop/console?a"
    visitor.get("/shop/console/listings/new")
    form = {"title": "Bowl", "content": "Kauri.", "type": "product", "price_type": "fixed", "is_active": "true"}
    visitor.post("/shop/console/listings/new", form_id="a", **form)
    assert re.fullmatch("/shop/console/listings/[0-9]+", visitor.reply.headers["location"])
    assert "Listing created." in visitor.follow().text
    assert visitor.post("/shop/sign-out").reply.headers["location"] == "/shop/sign-in"


@pytest.mark.usefixtures("seller")
def test_the_cookies_belong_to_the_prefix(harness: Harness) -> None:
    tab = Tab(harness, HOST).get("/shop/sign-in").post("/shop/sign-in", email=EMAIL, password=PASSWORD)
    cookies = dict(parse_cookies(tab))
    assert set(cookies) == {f"__Secure-listings{name}.shop" for name in ("", "-device", "-form")}
    assert all({"path=/shop", "secure", "httponly", "samesite=lax"} <= attributes for attributes in cookies.values())
    *_, (name, attributes) = parse_cookies(tab.follow().post("/shop/sign-out"))
    assert (name, {"path=/shop", "max-age=0"} & attributes) == ("__Secure-listings.shop", {"path=/shop", "max-age=0"})


def test_services_below_each_other_have_cookies_of_their_own(tmp_path: Path) -> None:
    names = set()
    for prefix in ("", "/shop", "/shop/test"):
        with open_harness(tmp_path / prefix.replace("/", "-"), base_url=f"http://localhost{prefix}") as harness:
            names |= {name for name, _ in parse_cookies(Tab(harness).get(f"{prefix}/sign-in"))}
    assert names == {"listings_form", "listings_form.shop", "listings_form.shop.test"}


@pytest.mark.usefixtures("seller")
def test_forms_are_accepted_from_the_host_of_the_base_url(harness: Harness) -> None:
    tab = Tab(harness, "10.0.0.1:8000").get("/shop/sign-in")
    headers = {"content-type": "application/x-www-form-urlencoded", "origin": f"https://{HOST}"}
    assert tab.post("/shop/sign-in", headers, email=EMAIL, password=PASSWORD).reply.status == SEE_OTHER


def test_search_engines_get_urls_with_the_prefix(seller: Tab) -> None:
    robots = seller.get("/shop/robots.txt").reply.body.decode().splitlines()
    assert {"Disallow: /shop/api/", "Disallow: /shop/console", f"Sitemap: {BASE_URL}/sitemap.xml"} <= set(robots)
    (path,) = re.findall(f"{BASE_URL}(/listings/[0-9]+)", seller.get("/shop/sitemaps/1.xml").reply.body.decode())[:1]
    page = seller.get(f"/shop{path}").page
    assert page.values("link", "href", rel="canonical") == [f"{BASE_URL}{path}"]
    (data,) = (json.loads(text) for text in page.texts if text.startswith('{"@context"'))
    assert data["url"] == f"{BASE_URL}{path}"


def test_an_error_page_links_to_the_market_below_the_prefix(harness: Harness) -> None:
    tab = Tab(harness, HOST).get("/shop/nothing")
    assert tab.reply.status == NOT_FOUND
    assert "/shop/" in tab.page.values("a", "href", class_="button")
    assert Tab(harness, HOST).get("/nothing").reply.headers["content-type"] == "application/json; charset=utf-8"
