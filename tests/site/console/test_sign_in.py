"""Sign-up, sign-in, sign-out, invitations and sessions (hardening lines 5, 8 and 28)."""

import re
from asyncio import gather
from http.cookies import SimpleCookie
from pathlib import Path
from time import perf_counter
from urllib.parse import urlencode

import pytest

from listings.domain import fields
from listings.site.app import CONSOLE_ROUTES
from tests.harness import Harness, fetch
from tests.site.tab import FORM_HEADERS, PASSWORD, Tab, form_values, load_listing, open_console, open_harness

PAGES = (
    *("/console", "/console/keys", "/console/usage", "/console/plan", "/console/listings", "/console/listings/new"),
    *("/console/import", "/console/export", "/console/activity", "/console/account"),
)
FORM_PATHS = (
    *(
        "/console/keys",
        "/console/keys/1/rotate",
        "/console/keys/1/revoke",
        "/console/test-mode",
        "/console/plan",
        "/console/listings",
    ),
    *("/console/plan/request", "/console/account/name", "/console/account/email", "/console/account/email/confirm"),
    *("/console/account/close", "/console/activity/undo"),
    *(
        "/console/listings/new",
        "/console/listings/new/preview",
        "/console/listings/1025/preview",
        "/console/pictures",
        "/console/import",
    ),
    *("/console/listings/1025", "/console/listings/1025/state"),
    *(
        "/console/import/pictures",
        "/console/import/run",
        "/console/import/rejected",
        "/console/account/contact",
        "/console/account/messages",
        "/console/account/about",
        "/console/account/password",
        "/console/account/session",
        "/console/account/sessions",
    ),
    "/sign-out",
)
KEPT_FORM_PATHS = ("/console/listings/new", "/console/listings/1025")


def sign_up(tab: Tab, **fields: str) -> Tab:
    tab.get("/sign-up")
    return tab.post("/sign-up", **{"name": "Alice", "email": "alice@example.com", "password": PASSWORD, **fields})


async def create_listing(harness: Harness) -> None:
    key = await harness.services.keys.create("alice@example.com", "test")
    caller = await harness.services.keys.find(key.secret)
    assert caller is not None
    new, _ = fields.parse_new_listing({"title": "Bicycle", "content": "Two wheels."})
    assert (await harness.services.listings.create(caller, new)).listing_id == 1025


def test_signing_up_leads_to_the_console_without_a_plan(harness: Harness) -> None:
    tab = sign_up(Tab(harness))
    assert tab.reply.headers["location"] == "/console"
    assert "Your account is ready" in tab.follow().text
    assert "Your account is ready" not in tab.get("/console").text
    assert "Subscribe to the Business plan" in tab.text
    account = harness.run(harness.services.accounts.find("alice@example.com"))
    assert account.plan_expires_at is None


@pytest.mark.parametrize(
    ("entered", "described"),
    [
        ({"name": "\0'password'"}, "problem"),
        ({"email": "my name"}, "problem"),
        ({"password": "short"}, "problem password-hint"),
    ],
)
def test_only_the_invalid_field_of_a_sign_up_is_marked(
    harness: Harness, entered: dict[str, str], described: str
) -> None:
    page = sign_up(Tab(harness), **entered).page
    assert page.values("input", "name", aria_invalid="true") == list(entered)
    assert page.values("input", "aria-describedby", aria_invalid="true") == [described]


def test_an_invalid_sign_up_shows_the_error_and_keeps_values(harness: Harness) -> None:
    tab = sign_up(Tab(harness), password="short")
    assert tab.reply.status == 400
    assert "A password must have at least 10 characters, got 5" in tab.text
    assert tab.page.values("input", "value", name="email") == ["alice@example.com"]
    assert "short" not in tab.reply.body.decode()
    assert sign_up(Tab(harness)).reply.status == 303
    assert sign_up(Tab(harness)).reply.status == 409


def test_sign_up_can_be_closed(tmp_path: Path) -> None:
    with open_harness(tmp_path, sign_up="off") as harness:
        assert Tab(harness).get("/sign-up").reply.status == 403
        assert "/sign-up" not in Tab(harness).get("/sign-in").reply.body.decode()
        tab = Tab(harness).get("/sign-in")
        assert tab.post("/sign-up", name="A", email="a@example.com", password=PASSWORD).reply.status == 403


def test_signing_in_leads_to_the_requested_page(harness: Harness) -> None:
    sign_up(Tab(harness))
    tab = Tab(harness).get("/console/listings?q=~chair*")
    sign_in_url = tab.reply.headers["location"]
    assert sign_in_url == "/sign-in?next=%2Fconsole%2Flistings%3Fq%3D~chair%2A"
    tab.follow()
    (next_page,) = tab.page.values("input", "value", name="next")
    tab.post("/sign-in", email="Alice@Example.com ", password=PASSWORD, next=next_page or "")
    assert tab.reply.headers["location"] == "/console/listings?q=~chair*"
    assert tab.get(sign_in_url).reply.headers["location"] == "/console/listings?q=~chair*"
    assert tab.get("/sign-in?next=//evil.example").reply.headers["location"] == "/console"
    token = tab.cookies["listings_session"]
    tab.follow().post("/sign-out")
    assert tab.reply.headers["location"] == "/sign-in"
    assert "listings_session" not in tab.cookies
    tab.cookies["listings_session"] = token
    assert tab.get("/console").reply.headers["location"].startswith("/sign-in")


def test_signing_in_never_redirects_to_another_site(harness: Harness) -> None:
    sign_up(Tab(harness))
    for next_page in (
        "https://evil.example/console",
        "//evil.example",
        "/console/\\evil",
        "/sign-out",
        "/console.evil",
    ):
        tab = Tab(harness).get("/sign-in")
        tab.post("/sign-in", email="alice@example.com", password=PASSWORD, next=next_page)
        assert tab.reply.headers["location"] == "/console"


def parse_cookie(tab: Tab) -> tuple[str, set[str]]:
    """Return name and attributes of the last cookie in the last response."""
    return parse_cookies(tab)[-1]


def parse_cookies(tab: Tab) -> list[tuple[str, set[str]]]:
    return [parse_set_cookie(text) for text in tab.reply.cookies]


def parse_set_cookie(text: str) -> tuple[str, set[str]]:
    ((name, _),) = SimpleCookie(text).items()
    return name, {part.strip().lower() for part in text.split(";")[1:]}


def test_cookies_on_localhost_are_http_only(harness: Harness) -> None:
    name, attributes = parse_cookie(Tab(harness).get("/sign-in"))
    assert (name, attributes) == ("listings_form", {"httponly", "path=/", "samesite=lax"})
    name, attributes = parse_cookie(sign_up(Tab(harness)))
    assert (name, attributes) == ("listings_session", {"httponly", "path=/", "samesite=lax", "max-age=2592000"})


def test_cookies_over_tls_are_bound_to_the_host(tmp_path: Path) -> None:
    with open_harness(tmp_path, base_url="https://market.example") as harness:
        name, attributes = parse_cookie(Tab(harness, "market.example").get("/sign-in"))
        assert (name, attributes) == ("__Host-listings-form", {"httponly", "path=/", "samesite=lax", "secure"})
        cookies = dict(parse_cookies(sign_up(Tab(harness, "market.example"))))
        assert cookies["__Host-listings"] == attributes | {"max-age=2592000"}
        assert cookies["__Host-listings-device"] == attributes | {"max-age=31536000"}


def test_sign_in_is_rejected_over_plain_http(harness: Harness) -> None:
    for host in ("market.example", "192.168.1.5:8000", "localhost.evil.example", "[2001:db8::1]"):
        tab = Tab(harness, host).get("/sign-in")
        assert (tab.reply.status, "Open this page with https" in tab.text) == (403, True)
        assert Tab(harness, host).post("/sign-in", email="a@b", password=PASSWORD).reply.status == 403


def test_sign_in_over_http_is_allowed_on_localhost(harness: Harness) -> None:
    for host in ("localhost", "127.0.0.1:8000", "[::1]:8000", "shop.localhost:80"):
        assert Tab(harness, host).get("/sign-in").reply.status == 200


def test_signing_in_starts_a_new_session_and_ends_the_old_one(harness: Harness) -> None:
    tab = sign_up(Tab(harness))
    first = tab.cookies["listings_session"]
    other = Tab(harness)
    other.get("/sign-in")
    other.cookies["listings_session"] = first
    other.post("/sign-in", email="alice@example.com", password=PASSWORD)
    assert len(first) == 43
    assert other.cookies["listings_session"] != first
    assert tab.get("/console").reply.status == 303
    assert other.get("/console").reply.status == 200


def test_console_pages_need_a_session_and_are_not_cached(harness: Harness) -> None:
    tab = open_console(harness)
    for path in PAGES:
        assert Tab(harness).get(path).reply.headers["location"].startswith("/sign-in?next=%2Fconsole"), path
        assert (tab.get(path).reply.status, tab.reply.headers["cache-control"]) == (200, "no-store"), path


def test_an_export_after_the_session_leads_to_the_page_of_exports(harness: Harness) -> None:
    reply = Tab(harness).get("/console/export?format=csv").reply
    assert (reply.status, reply.headers["location"]) == (303, "/sign-in?next=%2Fconsole%2Fimport")
    links = [one.attributes for one in open_console(harness).get("/console/import").page.all("a")]
    assert not any("download" in attributes for attributes in links)  # it would save the sign-in page


def test_a_head_request_of_a_visitor_is_not_a_lost_form(harness: Harness) -> None:
    reply = harness.fetch("HEAD", "/console", headers={"Host": "localhost", "Accept": "text/html"})
    assert (reply.status, reply.headers["location"]) == (303, "/sign-in?next=%2Fconsole")
    assert "set-cookie" not in reply.headers


@pytest.mark.decision("G25")
def test_no_api_key_opens_the_console(harness: Harness) -> None:
    alice = harness.person("alice")
    tab = Tab(harness)
    tab.cookies["listings_session"] = alice.key
    for path in PAGES:
        for headers in ({"X-API-Key": alice.key}, {"Authorization": f"Bearer {alice.key}"}):
            assert Tab(harness).get(path, **headers).reply.status == 303, path
        assert tab.get(path).reply.status == 303, path


def test_forms_need_the_sessions_token_and_our_origin(harness: Harness) -> None:
    tab = open_console(harness)
    harness.run(create_listing(harness))
    token, of_visitor = tab.token, Tab(harness).get("/sign-in").token
    of_another = open_console(harness, "bob@example.com").token
    assert len({token, of_visitor, of_another}) == 3
    for path in FORM_PATHS:
        for wrong in ("", "x", of_visitor, of_another):
            assert tab.post(path, token=wrong).reply.status == 403, path
        for headers in ({}, {"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
            content_type = {"content-type": FORM_HEADERS["content-type"]}
            assert tab.post(path, content_type | headers, token=token).reply.status == 403, path
    assert tab.get("/console").reply.status == 200
    assert harness.run(harness.services.moderation.get(1025)).version == 1


def test_a_form_of_a_visitor_redirects_to_sign_in(harness: Harness) -> None:
    for path in set(FORM_PATHS[:-1]) - set(KEPT_FORM_PATHS):
        page = re.sub(
            "/(rotate|revoke|state|preview|run|rejected|contact|messages|about|password|request|name|email|email/confirm|sessions?|test-mode|pictures)$",
            "",
            path,
        )
        tab = Tab(harness).post(path)
        assert tab.reply.headers["location"] == f"/sign-in?{urlencode({'next': page})}"
        tab.follow()
        assert "You were signed out. Sign in, check whether your change was saved" in tab.text
        assert tab.page.values("p", "class", role="status") == ["notice"]
        assert tab.page.values("input", "value", name="next") == [page]
        assert "You were signed out" not in tab.get("/sign-in").text
    assert Tab(harness).post("/sign-out").reply.headers["location"] == "/sign-in"


def test_the_form_of_a_listing_is_kept_until_the_seller_has_signed_in(harness: Harness) -> None:
    tab, again = open_console(harness), Tab(harness)
    form = form_values(tab.get("/console/listings/new")) | {"title": "Rātā", "content": 'Two\r\n"lines" <b>'}
    form |= {"type": "product", "price_type": "fixed"}
    del tab.cookies["listings_session"]
    tab.post("/console/listings/new", **form)
    sent = form_values(tab)
    assert sent | {"token": ""} == form | {"token": ""}
    assert "this page keeps your text" in tab.post("/console/listings/new", **sent).text
    again.sign_in("alice@example.com")
    tab.cookies["listings_session"] = again.cookies["listings_session"]
    tab.post("/console/listings/new", **sent)
    assert (tab.reply.status, "Save once more" in tab.text) == (403, True)
    assert tab.post("/console/listings/new", **sent | {"token": tab.token}).reply.status == 303
    listing = load_listing(harness, 1025)
    assert (listing.title, listing.content) == ("Rātā", 'Two\n"lines" <b>')


def test_a_form_that_is_too_large_to_be_kept_leads_to_the_sign_in_page(harness: Harness) -> None:
    tab = Tab(harness).post("/console/listings/new", content="x" * 70_000)
    assert tab.reply.headers["location"] == "/sign-in?next=%2Fconsole%2Flistings%2Fnew"


def test_an_expired_form_links_to_its_page(harness: Harness) -> None:
    tab = open_console(harness)
    tab.post("/console/account/name", name="Rata", token="x")
    assert (tab.reply.status, tab.page.texts.count("Your form was not accepted")) == (403, 1)
    assert "/console/account" in tab.page.values("a", "href", class_="button")
    foreign = Tab(harness).post("/sign-in", FORM_HEADERS | {"sec-fetch-site": "cross-site"})
    assert foreign.page.values("a", "href", class_="button") == ["/sign-in"]


def test_all_routes_with_forms_are_covered() -> None:
    signed_out = {"/sign-in", "/sign-up", "/reset-password", "/confirm-email/{token}", "/invitations/{token}"}
    covered = {re.sub(r"/\d+", "/{id}", path) for path in FORM_PATHS} | signed_out
    with_forms = {route.path for route in CONSOLE_ROUTES if "POST" in (route.methods or ())}
    assert with_forms - covered == {"/payments/{provider}/webhook"}


def test_the_sign_in_form_needs_the_browsers_own_token(harness: Harness) -> None:
    sign_up(Tab(harness))
    stranger = Tab(harness).get("/sign-in").token
    tab = Tab(harness).get("/sign-in")
    entry = {"email": "alice@example.com", "password": PASSWORD}
    assert tab.post("/sign-in", **entry, token=stranger).reply.status == 403
    tab.get("/sign-in")
    tab.cookies.clear()
    assert tab.post("/sign-in", **entry).reply.status == 403


def test_a_second_sign_in_tab_leads_to_the_console(harness: Harness) -> None:
    sign_up(Tab(harness))
    tab = Tab(harness).get("/sign-in?next=/console/keys")
    stale = tab.token
    entry = {"email": "alice@example.com", "password": PASSWORD, "next": "/console/keys"}
    assert tab.post("/sign-in", **entry).reply.status == 303
    session = tab.cookies["listings_session"]
    tab.post("/sign-in", **entry, token=stale)
    assert (tab.reply.status, tab.reply.headers["location"]) == (303, "/console/keys")
    assert tab.cookies["listings_session"] == session


def test_an_expired_sign_in_form_is_shown_again(harness: Harness) -> None:
    sign_up(Tab(harness))
    tab = Tab(harness).get("/sign-in")
    tab.cookies.clear()
    tab.post("/sign-in", email="alice@example.com", password=PASSWORD)
    assert (tab.reply.status, "This form has expired" in tab.text) == (403, True)
    assert tab.page.values("input", "value", id="email") == ["alice@example.com"]
    assert tab.post("/sign-in", email="alice@example.com", password=PASSWORD).reply.status == 303


def test_a_notice_is_shown_once_and_not_from_the_url(harness: Harness) -> None:
    tab = open_console(harness)
    assert "Password changed" not in tab.get("/console/keys?done=password").text
    tab.get("/console/account").post("/console/account/sessions")
    assert parse_cookie(tab) == ("listings_done", {"httponly", "path=/", "samesite=lax", "max-age=60"})
    assert tab.reply.headers["location"] == "/console/account"
    assert "All other devices were signed out" in tab.follow().text
    assert "All other devices were signed out" not in tab.get("/console/account").text
    for invented in ("nothing", "x" * 50, "<b>"):
        tab.cookies["listings_done"] = invented
        assert tab.get("/console").reply.status == 200


def test_a_form_of_a_visitor_has_at_most_64_kib(harness: Harness) -> None:
    tab = Tab(harness).sign_in("a" * 65_536)
    assert (tab.reply.status, "The limit is 64 kB" in tab.text) == (413, True)
    assert Tab(harness).sign_in("a" * 65_000).reply.status == 403


def test_a_form_of_a_visitor_has_at_most_300_fields(harness: Harness) -> None:
    tab = Tab(harness).get("/sign-in").post("/sign-in", email=["x"] * 299)
    assert tab.reply.status == 403  # the number is accepted, and the password is wrong
    tab.post("/sign-in", email=["x"] * 300)
    assert (tab.reply.status, "A form must have at most 300 fields." in tab.text) == (400, True)


def test_a_flood_of_sign_ins_leaves_time_for_other_requests(harness: Harness) -> None:
    tab = Tab(harness).get("/sign-in")
    cookie = f"listings_form={tab.cookies['listings_form']}".encode()
    headers = [(b"host", b"localhost"), (b"sec-fetch-site", b"same-origin"), (b"cookie", cookie)]
    body = f"email=a&token={tab.token}".encode()

    async def sign_in_twenty_times() -> float:
        start = perf_counter()
        sign_ins = (fetch(harness.application, "POST", "/sign-in", headers, [body]) for _ in range(20))
        assert {reply.status for reply in await gather(*sign_ins)} == {403, 429}
        return perf_counter() - start

    assert harness.run(sign_in_twenty_times()) >= 20 * 0.002


def test_an_unreadable_form_is_rejected(harness: Harness) -> None:
    tab = open_console(harness)
    headers = {"content-type": "multipart/form-data", "sec-fetch-site": "same-origin"}
    assert tab.post("/console/listings", headers).reply.status == 400
    assert "could not be read" in tab.text


def test_members_skip_the_sign_in_page(harness: Harness) -> None:
    tab = open_console(harness)
    assert tab.get("/sign-in").reply.headers["location"] == "/console"
    assert tab.get("/sign-up").reply.headers["location"] == "/console"
    assert 'href="/console"' in tab.get("/").reply.body.decode()


def test_changing_the_password_ends_all_other_sessions(harness: Harness) -> None:
    tab = open_console(harness)
    other = Tab(harness).sign_in("alice@example.com")
    tab.get("/console/account")
    for old, new, marked in (("wrong password", "tall trees 22", "old"), (PASSWORD, "short", "new")):
        tab.post("/console/account/password", old=old, new=new)
        assert tab.page.values("input", "id", aria_invalid="true") == [marked]
    tab.post("/console/account/password", old=PASSWORD, new="tall trees 22")
    assert "Password changed" in tab.follow().text
    assert other.get("/console").reply.status == 303
    assert Tab(harness).sign_in("alice@example.com").reply.status == 403
    assert Tab(harness).sign_in("alice@example.com", "tall trees 22").reply.status == 303


def test_sessions_are_listed_and_can_be_ended(harness: Harness) -> None:
    tab, second, third = open_console(harness), Tab(harness), Tab(harness)
    harness.clock.advance(1)
    second.sign_in("alice@example.com")
    tab.get("/console/account")
    handles = tab.page.values("input", "value", name="session")
    assert len(set(handles)) == 3  # sign-up started one as well
    tab.post("/console/account/session", session=handles[0] or "")
    assert second.get("/console").reply.status == 303
    third.sign_in("alice@example.com")
    tab.post("/console/account/sessions")
    assert "All other devices were signed out" in tab.follow().text
    assert third.get("/console").reply.status == 303
    (own,) = tab.page.values("input", "value", name="session")
    tab.post("/console/account/session", session=own or "")
    assert "listings_session" not in tab.cookies
    assert "You are signed out." in tab.follow().text
    assert tab.page.values("p", "class", role="status") == ["success"]


def test_a_multipart_form_with_a_charset_is_rejected_unread(harness: Harness) -> None:
    kind = "multipart/form-data; boundary=b; charset=punycode"
    tab = open_console(harness).post("/console/account/name", {"content-type": kind, "sec-fetch-site": "same-origin"})
    assert tab.reply.status == 400
    assert "A multipart form must be UTF-8" in tab.text


def test_a_session_that_ends_while_a_form_arrives_changes_nothing(harness: Harness) -> None:
    tab = open_console(harness)
    account = harness.run(harness.services.accounts.find("alice@example.com"))
    body = urlencode({"token": tab.get("/console/account").token, "name": "Mallory"}).encode()
    headers = {"host": tab.host, "cookie": "; ".join(f"{name}={value}" for name, value in tab.cookies.items())}
    sent = [(name.encode(), value.encode()) for name, value in (headers | FORM_HEADERS).items()]
    reply = harness.run(
        fetch(
            harness.application,
            "POST",
            "/console/account/name",
            sent,
            [body[:10], body[10:]],
            meanwhile=lambda: harness.store.end_sessions(account.id),
        )
    )
    assert reply.headers["location"].startswith("/sign-in")
    assert harness.run(harness.services.accounts.find(str(account.id))).name == account.name
