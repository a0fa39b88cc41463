"""Signing up, in and out, invitations, and what keeps a session its owner's (hardening lines 5, 8 and 28)."""

import re
from collections.abc import Iterator
from http.cookies import SimpleCookie
from pathlib import Path
from urllib.parse import urlencode

import pytest

from listings.domain import fields
from listings.site.console import ROUTES
from tests.harness import Harness
from tests.site.console import FORM, PASSWORD, Tab, member, open_house

DAY = 24 * 3600
CONSOLE = (
    *("/console", "/console/keys", "/console/usage", "/console/plan", "/console/listings", "/console/listings/new"),
    *("/console/import", "/console/export", "/console/activity", "/console/account"),
)
CHANGES = (
    *("/console/keys", "/console/keys/1/rotate", "/console/keys/1/revoke", "/console/plan", "/console/listings"),
    *("/console/listings/new", "/console/listings/1025", "/console/listings/1025/state", "/console/import"),
    *("/console/import/run", "/console/account/password", "/console/account/session", "/console/account/sessions"),
    "/sign-out",
)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with open_house(tmp_path) as harness:
        yield harness


def sign_up(tab: Tab, **fields: str) -> Tab:
    tab.get("/sign-up")
    return tab.post("/sign-up", **{"name": "Alice", "email": "alice@example.com", "password": PASSWORD, **fields})


async def list_one(harness: Harness) -> None:
    key = await harness.service.issue_key("alice@example.com", "test")
    caller = await harness.service.find_key(key.secret)
    assert caller is not None
    new, _ = fields.parse_new_listing({"title": "Bicycle", "content": "Two wheels."})
    assert (await harness.service.create_listing(caller, new)).listing_id == 1025


def test_who_signs_up_is_in_the_console_without_a_plan(harness: Harness) -> None:
    tab = sign_up(Tab(harness))
    assert tab.reply.headers["location"] == "/console"
    assert "Your account is open" in tab.follow().text
    assert "Your account is open" not in tab.get("/console").text
    assert "Get the Business plan" in tab.text
    account = harness.run(harness.service.find_account("alice@example.com"))
    assert account.plan_expires_at is None


def test_what_was_wrong_with_a_sign_up_is_told_and_the_form_keeps_what_was_written(harness: Harness) -> None:
    tab = sign_up(Tab(harness), password="short")
    assert tab.reply.status == 400
    assert "A password must have at least 10 characters, got 5" in tab.text
    assert tab.page.values("input", "value", name="email") == ["alice@example.com"]
    assert "short" not in tab.reply.body.decode()
    assert sign_up(Tab(harness)).reply.status == 303
    assert sign_up(Tab(harness)).reply.status == 409


def test_the_operator_closes_sign_up(tmp_path: Path) -> None:
    with open_house(tmp_path, sign_up="off") as harness:
        assert Tab(harness).get("/sign-up").reply.status == 403
        assert "/sign-up" not in Tab(harness).get("/sign-in").reply.body.decode()
        tab = Tab(harness).get("/sign-in")
        assert tab.post("/sign-up", name="A", email="a@example.com", password=PASSWORD).reply.status == 403


def test_one_signs_in_comes_to_where_one_wanted_to_be_and_out_again(harness: Harness) -> None:
    sign_up(Tab(harness))
    tab = Tab(harness).get("/console/listings?status=inactive")
    assert tab.reply.headers["location"] == "/sign-in?next=%2Fconsole%2Flistings%3Fstatus%3Dinactive"
    tab.follow()
    (wanted,) = tab.page.values("input", "value", name="next")
    tab.post("/sign-in", email="Alice@Example.com ", password=PASSWORD, next=wanted or "")
    assert tab.reply.headers["location"] == "/console/listings?status=inactive"
    token = tab.cookies["listings_session"]
    tab.follow().post("/sign-out")
    assert tab.reply.headers["location"] == "/"
    assert "listings_session" not in tab.cookies
    tab.cookies["listings_session"] = token
    assert tab.get("/console").reply.headers["location"].startswith("/sign-in")


def test_one_is_led_to_no_other_place(harness: Harness) -> None:
    sign_up(Tab(harness))
    for wanted in ("https://evil.example/console", "//evil.example", "/console/\\evil", "/sign-out", "/console.evil"):
        tab = Tab(harness).get("/sign-in")
        tab.post("/sign-in", email="alice@example.com", password=PASSWORD, next=wanted)
        assert tab.reply.headers["location"] == "/console"


def test_an_unknown_address_and_a_wrong_password_are_answered_alike(harness: Harness) -> None:
    sign_up(Tab(harness))
    wrong = Tab(harness).sign_in("alice@example.com", "wrong password")
    unknown = Tab(harness).sign_in("nobody@example.com", "wrong password")
    assert wrong.reply.status == unknown.reply.status == 403
    told = [re.search(r'id="problem">([^<]+)', tab.reply.body.decode()) for tab in (wrong, unknown)]
    assert [match[1] for match in told if match] == ["Wrong email or password."] * 2


def test_after_ten_attempts_nobody_gets_in_for_a_while_whatever_the_password(harness: Harness) -> None:
    sign_up(Tab(harness))
    for _ in range(10):
        assert Tab(harness).sign_in("alice@example.com", "wrong password").reply.status == 403
    locked = Tab(harness).sign_in("alice@example.com")
    assert (locked.reply.status, "wait 15 minutes" in locked.text) == (429, True)
    unknown = [Tab(harness).sign_in("nobody@example.com", "wrong password").reply.status for _ in range(11)]
    assert unknown == [403] * 10 + [429]
    harness.clock.advance(15 * 60)
    assert Tab(harness).sign_in("alice@example.com").reply.status == 303


# Cookies


def cookie_of(tab: Tab) -> tuple[str, set[str]]:
    """The name of the cookie that was set, and its attributes."""
    text = tab.reply.headers["set-cookie"]
    ((name, _),) = SimpleCookie(text).items()
    return name, {part.strip().lower() for part in text.split(";")[1:]}


def test_on_ones_own_machine_the_cookie_is_for_pages_alone(harness: Harness) -> None:
    name, attributes = cookie_of(Tab(harness).get("/sign-in"))
    assert (name, attributes) == ("listings_form", {"httponly", "path=/", "samesite=lax"})
    name, attributes = cookie_of(sign_up(Tab(harness)))
    assert (name, attributes) == ("listings_session", {"httponly", "path=/", "samesite=lax", "max-age=2592000"})


def test_over_tls_the_cookie_is_bound_to_this_very_host(tmp_path: Path) -> None:
    with open_house(tmp_path, base_url="https://market.example") as harness:
        name, attributes = cookie_of(Tab(harness, "market.example").get("/sign-in"))
        assert (name, attributes) == ("__Host-listings-form", {"httponly", "path=/", "samesite=lax", "secure"})
        name, attributes = cookie_of(sign_up(Tab(harness, "market.example")))
        assert (name, attributes - {"max-age=2592000"}) == (
            "__Host-listings",
            {"httponly", "path=/", "samesite=lax", "secure"},
        )


def test_a_password_is_not_asked_for_where_others_could_read_it(harness: Harness) -> None:
    for host in ("market.example", "192.168.1.5:8000", "localhost.evil.example", "[2001:db8::1]"):
        tab = Tab(harness, host).get("/sign-in")
        assert (tab.reply.status, "Open this page by https" in tab.text) == (403, True)
        assert Tab(harness, host).post("/sign-in", email="a@b", password=PASSWORD).reply.status == 403


def test_ones_own_machine_is_private(harness: Harness) -> None:
    for host in ("localhost", "127.0.0.1:8000", "[::1]:8000", "shop.localhost:80"):
        assert Tab(harness, host).get("/sign-in").reply.status == 200


def test_a_session_is_new_at_each_sign_in_and_the_one_before_is_over(harness: Harness) -> None:
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


def test_a_session_that_somebody_made_up_is_none(harness: Harness) -> None:
    tab = Tab(harness)
    for made_up in ("x", "A" * 43, "é", ""):
        tab.cookies["listings_session"] = made_up.encode("latin-1").decode("latin-1")
        assert tab.get("/console").reply.status == 303


def test_a_session_ends_after_a_week_without_use_and_after_30_days(harness: Harness) -> None:
    tab = sign_up(Tab(harness))
    harness.clock.advance(7 * DAY)
    assert tab.get("/console").reply.status == 303
    tab = Tab(harness).sign_in("alice@example.com")
    for _ in range(5):
        assert tab.get("/console").reply.status == 200
        harness.clock.advance(6 * DAY)
    assert tab.get("/console").reply.status == 303


# Who may do what


def test_the_console_is_for_members_and_kept_by_nobody(harness: Harness) -> None:
    tab = member(harness)
    for path in CONSOLE:
        assert Tab(harness).get(path).reply.headers["location"].startswith("/sign-in?next=%2Fconsole"), path
        assert (tab.get(path).reply.status, tab.reply.headers["cache-control"]) == (200, "no-store"), path


@pytest.mark.decision("G25")
def test_no_api_key_opens_the_console(harness: Harness) -> None:
    alice = harness.person("alice")
    tab = Tab(harness)
    tab.cookies["listings_session"] = alice.key
    for path in CONSOLE:
        for headers in ({"X-API-Key": alice.key}, {"Authorization": f"Bearer {alice.key}"}):
            assert Tab(harness).get(path, **headers).reply.status == 303, path
        assert tab.get(path).reply.status == 303, path


def test_no_cookie_opens_the_api(harness: Harness) -> None:
    cookies = member(harness).cookies
    text = "; ".join(f"{name}={value}" for name, value in cookies.items())
    assert "listings_session" in cookies
    for path in ("/api/v1/listings", "/api/v1/listings/1", "/api/v1/rate_limit"):
        assert harness.fetch("GET", path, headers={"Cookie": text}).status == 401
        assert harness.fetch("GET", path, headers={"X-API-Key": cookies["listings_session"]}).status == 401


def test_a_form_needs_its_sessions_token_and_an_origin_of_ours(harness: Harness) -> None:
    tab = member(harness)
    harness.run(list_one(harness))
    token, of_nobody = tab.token, Tab(harness).get("/sign-in").token
    of_another = member(harness, "bob@example.com").token
    assert len({token, of_nobody, of_another}) == 3
    for path in CHANGES:
        for wrong in ("", "x", of_nobody, of_another):
            assert tab.post(path, token=wrong).reply.status == 403, path
        for headers in ({}, {"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
            kind = {"content-type": FORM["content-type"]}
            assert tab.post(path, kind | headers, token=token).reply.status == 403, path
    assert tab.get("/console").reply.status == 200
    assert harness.run(harness.service.find_listing(1025)).version == 1


def test_who_is_not_signed_in_changes_nothing_and_is_led_back_to_the_page_of_the_form(harness: Harness) -> None:
    for path in CHANGES[:-1]:
        page = re.sub("/(rotate|revoke|state|run|password|sessions?)$", "", path)
        tab = Tab(harness).post(path)
        assert tab.reply.headers["location"] == f"/sign-in?{urlencode({'next': page})}"
        tab.follow()
        assert "You were signed out, and nothing is stored" in tab.text
        assert tab.page.values("input", "value", name="next") == [page]
        assert "You were signed out" not in tab.get("/sign-in").text
    assert Tab(harness).post("/sign-out").reply.headers["location"] == "/sign-in"


def test_every_address_that_changes_something_is_tried_here() -> None:
    known = {re.sub(r"/\d+", "/{id}", path) for path in CHANGES} | {"/sign-in", "/sign-up", "/invitations/{token}"}
    changing = {route.path for route in ROUTES if "POST" in (route.methods or ())}
    assert changing - known == {"/payments/{provider}/webhook"}


def test_a_form_before_the_session_needs_the_browsers_own_token(harness: Harness) -> None:
    sign_up(Tab(harness))
    stranger = Tab(harness).get("/sign-in").token
    tab = Tab(harness).get("/sign-in")
    entry = {"email": "alice@example.com", "password": PASSWORD}
    assert tab.post("/sign-in", **entry, token=stranger).reply.status == 403
    tab.get("/sign-in")
    tab.cookies.clear()
    assert tab.post("/sign-in", **entry).reply.status == 403


def test_a_second_tab_at_the_door_leads_to_the_console_once_one_is_in(harness: Harness) -> None:
    sign_up(Tab(harness))
    tab = Tab(harness).get("/sign-in?next=/console/keys")
    stale = tab.token
    entry = {"email": "alice@example.com", "password": PASSWORD, "next": "/console/keys"}
    assert tab.post("/sign-in", **entry).reply.status == 303
    session = tab.cookies["listings_session"]
    tab.post("/sign-in", **entry, token=stale)
    assert (tab.reply.status, tab.reply.headers["location"]) == (303, "/console/keys")
    assert tab.cookies["listings_session"] == session


def test_a_form_at_the_door_that_is_no_longer_valid_is_shown_once_more(harness: Harness) -> None:
    sign_up(Tab(harness))
    tab = Tab(harness).get("/sign-in")
    tab.cookies.clear()
    tab.post("/sign-in", email="alice@example.com", password=PASSWORD)
    assert (tab.reply.status, "This form was no longer valid" in tab.text) == (403, True)
    assert tab.page.values("input", "value", id="email") == ["alice@example.com"]
    assert tab.post("/sign-in", email="alice@example.com", password=PASSWORD).reply.status == 303


def test_what_was_done_is_told_once_and_by_no_address(harness: Harness) -> None:
    tab = member(harness)
    assert "Your password is changed" not in tab.get("/console/keys?done=password").text
    tab.get("/console/account").post("/console/account/sessions")
    assert cookie_of(tab) == ("listings_done", {"httponly", "path=/", "samesite=lax", "max-age=60"})
    assert tab.reply.headers["location"] == "/console/account"
    assert "All other sessions are ended" in tab.follow().text
    assert "All other sessions are ended" not in tab.get("/console/account").text
    for made_up in ("nothing", "x" * 50, "<b>"):
        tab.cookies["listings_done"] = made_up
        assert tab.get("/console").reply.status == 200


def test_what_is_no_form_is_told(harness: Harness) -> None:
    tab = member(harness)
    kind = {"content-type": "multipart/form-data", "sec-fetch-site": "same-origin"}
    assert tab.post("/console/listings", kind).reply.status == 400
    assert "could not be read" in tab.text


def test_who_is_signed_in_needs_no_door(harness: Harness) -> None:
    tab = member(harness)
    assert tab.get("/sign-in").reply.headers["location"] == "/console"
    assert tab.get("/sign-up").reply.headers["location"] == "/console"
    assert 'href="/console"' in tab.get("/").reply.body.decode()


# Invitations


def test_an_invitation_sets_a_password_once(harness: Harness) -> None:
    account = harness.run(harness.service.add_account("Bob", "bob@example.com", None))
    token = harness.run(harness.service.invite(str(account.id)))
    tab = Tab(harness).get(f"/invitations/{token}")
    assert "bob@example.com" in tab.text
    assert "at least 10" in tab.post(f"/invitations/{token}", password="short").text
    assert tab.post(f"/invitations/{token}", password=PASSWORD).follow().reply.status == 200
    for reply in (Tab(harness).get(f"/invitations/{token}").reply, Tab(harness).get("/invitations/x").reply):
        assert reply.status == 404
    assert Tab(harness).sign_in("bob@example.com").reply.status == 303


# The account


def test_another_password_ends_all_other_sessions(harness: Harness) -> None:
    tab = member(harness)
    other = Tab(harness).sign_in("alice@example.com")
    tab.get("/console/account")
    assert tab.post("/console/account/password", old="wrong password", new="tall trees 22").reply.status == 403
    tab.post("/console/account/password", old=PASSWORD, new="tall trees 22")
    assert "Your password is changed" in tab.follow().text
    assert other.get("/console").reply.status == 303
    assert Tab(harness).sign_in("alice@example.com").reply.status == 403
    assert Tab(harness).sign_in("alice@example.com", "tall trees 22").reply.status == 303


def test_one_sees_ones_sessions_and_ends_one_or_all_others(harness: Harness) -> None:
    tab, second, third = member(harness), Tab(harness), Tab(harness)
    harness.clock.advance(1)
    second.sign_in("alice@example.com")
    tab.get("/console/account")
    handles = tab.page.values("input", "value", name="session")
    assert len(set(handles)) == 3  # sign-up began one, too
    tab.post("/console/account/session", session=handles[0] or "")
    assert second.get("/console").reply.status == 303
    third.sign_in("alice@example.com")
    tab.post("/console/account/sessions")
    assert "All other sessions are ended" in tab.follow().text
    assert third.get("/console").reply.status == 303
    (own,) = tab.page.values("input", "value", name="session")
    tab.post("/console/account/session", session=own or "")
    assert tab.reply.headers["location"] == "/"
    assert "listings_session" not in tab.cookies


def test_nobody_ends_anothers_session(harness: Harness) -> None:
    alice, bob = member(harness), member(harness, "bob@example.com")
    (handle, *_) = bob.page.values("input", "value", name="session")
    alice.post("/console/account/session", session=handle or "")
    assert bob.get("/console").reply.status == 200


def test_a_disabled_account_is_out_at_once(harness: Harness) -> None:
    tab = member(harness)
    harness.run(harness.service.disable_account("alice@example.com"))
    assert tab.get("/console").reply.status == 303
    assert "disabled" in Tab(harness).sign_in("alice@example.com").text
