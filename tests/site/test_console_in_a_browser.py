"""A seller's way through the console in a real browser, with and without scripts; and what axe finds on its pages."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.cli.commands import DEADLINE, PROGRAM
from tests.harness import RunningService
from tests.site.accessibility import DESKTOP, PHONE, objections
from tests.site.browser import Visit, away_from_midnight, chromium, needs_chromium, views, visit
from tests.site.console import PASSWORD

pytestmark = [needs_chromium, pytest.mark.slow]

LINES = "it => { const all = new Range(); all.selectNodeContents(it); return all.getClientRects().length; }"
STOCK = b"title,content,price\nLamp,A lamp.,12.50\nChair,,cheap\nTable,A table.,80\n"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


class Place(NamedTuple):
    """A running service, and its folder."""

    service: RunningService
    folder: Path

    def command(self, *arguments: str) -> None:
        """What the operator does beside it."""
        database = ["--database-url", f"sqlite:///{self.folder}/listings.db"]
        subprocess.run([PROGRAM, *database, *arguments], check=True, capture_output=True, timeout=DEADLINE)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("console")
    with RunningService(folder, sign_up="on", database=f"sqlite:///{folder}/listings.db") as service:
        service.service.clock = away_from_midnight()
        yield Place(service, folder)


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def enter(seen: Visit, email: str) -> Page:
    """Sign up as somebody new."""
    page = seen.open("/sign-in")
    page.get_by_role("link", name="Open an account").click()
    page.get_by_label("Your name").fill("Rata & Sons")
    page.get_by_label("E-mail address").fill(email)
    page.get_by_label("Password").fill(PASSWORD)
    press(page, "Open the account")
    expect(page.get_by_role("heading", name="Your next steps")).to_be_visible()
    return page


def make_key(page: Page) -> str:
    page.goto(page.url.split("/console")[0] + "/console/keys")
    page.get_by_label("Name").fill("Warehouse")
    press(page, "Make the key")
    return page.get_by_label("The key Warehouse").input_value()


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
def test_a_new_seller_goes_all_the_way(browser: Browser, place: Place, *, scripts: bool) -> None:
    email = f"rata-{scripts}@example.com".lower()
    options: dict[str, Any] = {"java_script_enabled": scripts, "viewport": DESKTOP if scripts else PHONE}
    with visit(browser, place.service.base_url, **options) as seen, visit(browser, place.service.base_url) as stranger:
        page = enter(seen, email)
        place.command("account", "plan", email, "--months", "1")
        page.reload()
        expect(page.get_by_role("link", name="Make a key")).to_be_visible()
        key = make_key(page)
        expect(page.get_by_role("button", name="Copy").first).to_be_visible(visible=scripts)
        listing_id = call(place, key)
        see_as_stranger(place, stranger, listing_id)
        edit(page, seen, listing_id)
        import_file(page, seen)
        expect(seen.open("/console/usage").get_by_text("1 of 1,000")).to_be_visible()
        new = rotate(page)
        assert [status_of(place, one) for one in (key, new)] == [401, 200]
        press(page, "Sign out")
        expect(page.get_by_role("link", name="Sign in")).to_be_visible()
        expect(seen.open("/console").get_by_role("heading", name="Sign in")).to_be_visible()
        assert [said for said in seen.complaints if "Failed to load resource" not in said] == []
        assert seen.elsewhere == []


def call(place: Place, key: str) -> int:
    body = {"title": "Kauri bowl", "content": "Turned by hand.", "price": 60}
    url = f"{place.service.base_url}/api/v1/listings"
    answer = httpx.post(url, json=body, headers={"X-API-Key": key}, timeout=DEADLINE)
    assert answer.status_code == 201
    return int(answer.json()["id"])


def status_of(place: Place, key: str) -> int:
    url = f"{place.service.base_url}/api/v1/rate_limit"
    return httpx.get(url, headers={"X-API-Key": key}, timeout=DEADLINE).status_code


def see_as_stranger(place: Place, stranger: Visit, listing_id: int) -> None:
    for _ in range(2):
        page = stranger.open(f"/listings/{listing_id}")
        expect(page.get_by_role("heading", level=1)).to_have_text("Kauri bowl")
    assert views(place.service, listing_id) == 1


def edit(page: Page, seen: Visit, listing_id: int) -> None:
    seen.open("/console/listings")
    page.get_by_role("link", name="Kauri bowl").click()
    page.get_by_label("Price in dollars").fill("cheap")
    press(page, "Save")
    expect(page.get_by_text('Price must be a number, got "cheap".')).to_be_visible()
    page.get_by_label("Price in dollars").fill("75")
    press(page, "Save")
    expect(page.get_by_text("The listing is saved")).to_be_visible()
    expect(seen.open(f"/listings/{listing_id}").get_by_text("$75.00").first).to_be_visible()


def import_file(page: Page, seen: Visit) -> None:
    seen.open("/console/import")
    file: Any = {"name": "stock.csv", "mimeType": "text/csv", "buffer": STOCK}
    page.get_by_label("A file that ends in .csv or .jsonl").set_input_files(files=[file])
    press(page, "See what it would do")
    expect(page.get_by_text('price must be a number, got "cheap"; content is required').first).to_be_visible()
    press(page, "Import all but the refused rows")
    expect(page.get_by_text("Done: 2 created, 0 changed, 0 as they were, 1 refused.")).to_be_visible()
    page.get_by_role("link", name="See your listings").click()
    expect(page.get_by_role("link", name="Table")).to_be_visible()


def rotate(page: Page) -> str:
    page.goto(page.url.split("/console")[0] + "/console/keys")
    page.get_by_role("link", name="Warehouse").click()
    page.get_by_label("This key ends").select_option("At once")
    press(page, "Rotate the key")
    return page.get_by_label("The key Warehouse").input_value()


# All pages


@pytest.fixture(scope="module")
def seller(browser: Browser, place: Place) -> Iterator[Visit]:
    """Somebody with a bit of everything, signed in."""
    with visit(browser, place.service.base_url) as seen:
        page = enter(seen, "tui@example.com")
        place.command("account", "plan", "tui@example.com", "--months", "1")
        key = make_key(page)
        headers = {"X-API-Key": key}
        body = {"title": "W" * 255, "content": "x" * 3000, "category": "y" * 100, "price": 999_999_999.99}
        for _ in range(2):
            url = f"{place.service.base_url}/api/v1/listings"
            httpx.post(url, json=body, headers=headers, timeout=DEADLINE)
            httpx.get(f"{url}/99{'9' * 15}", headers=headers, timeout=DEADLINE)
        yield seen


def paths(seen: Visit) -> list[str]:
    page = seen.open("/console/keys")
    keys = [link.get_attribute("href") or "" for link in page.locator("tbody a").all()]
    page = seen.open("/console/listings")
    listings = [link.get_attribute("href") or "" for link in page.locator("tbody th a").all()]
    found = ("", "/keys", "/usage", "/plan", "/listings", "/listings?q=none", "/listings/new", "/import", "/activity")
    return [*(f"/console{path}" for path in (*found, "/account", "/nothing")), keys[0], listings[0]]


def forms(seen: Visit, listing: str) -> Iterator[str]:
    """Pages that answer a form, as they are opened."""
    page = seen.open("/console/keys")
    page.get_by_label("Name").fill("k" * 200)
    press(page, "Make the key")
    yield "a new key"
    page = seen.open("/console/listings/new")
    press(page, "Create the listing")
    yield "a form with faults"
    page = seen.open(listing)
    page.locator("[name=version]").evaluate("it => { it.value = 1000 }")
    page.get_by_label("Region").fill("Otago")
    press(page, "Save")
    yield "a form that was overtaken"
    page = seen.open("/console/listings")
    page.locator("[name=id]").first.evaluate("it => { it.value = 1; it.checked = true }")
    press(page, "Pause")
    yield "a listing that could not be paused"
    page = seen.open("/console/import")
    stock: Any = {"name": "stock.csv", "mimeType": "text/csv", "buffer": STOCK}
    page.locator("#file").set_input_files(files=[stock])
    press(page, "See what it would do")
    yield "a rehearsal"
    press(page, "Import all but the refused rows")
    expect(page.get_by_text("Done:")).to_be_visible()
    yield "an import"


def faults(page: Page, where: str) -> list[object]:
    """What axe and a ruler find."""
    found: list[object] = list(objections(page, where))
    for width in (1280, 390, 320):
        page.set_viewport_size({"width": width, "height": 800})
        if page.evaluate("document.documentElement.scrollWidth") > width:
            found.append((where, width, "too wide"))
    return found


def test_axe_finds_nothing_to_object_to_and_no_page_is_wider_than_the_screen(seller: Visit) -> None:
    found: list[object] = []
    pages = paths(seller)
    for path in pages:
        found += faults(seller.open(path), path)
    for name in forms(seller, pages[-1]):
        found += faults(seller.page, name)
    assert found == []


def test_axe_finds_nothing_to_object_to_at_the_door(browser: Browser, place: Place) -> None:
    place.command("account", "create", "--name", "Moa", "--email", "moa@example.com")
    token = place.service.run(lambda service: service.invite("moa@example.com"))
    with visit(browser, place.service.base_url) as seen:
        doors = ("/sign-in", "/sign-up", f"/invitations/{token}")
        found = [one for path in doors for one in faults(seen.open(path), path)]
        seen.open("/sign-in").get_by_label("E-mail address").fill("x@example.com")
        seen.page.get_by_label("Password").fill("wrong password")
        press(seen.page, "Sign in")
        found += faults(seen.page, "a wrong password")
    with visit(browser, place.service.base_url) as seen:
        enter(seen, "kea@example.com")
        for path in ("", "/keys", "/usage", "/plan", "/listings", "/import"):
            found += faults(seen.open(f"/console{path}"), f"{path} of a new account")
    assert found == []


def test_a_revocation_is_thought_over_without_the_keyboard_losing_its_place(seller: Visit) -> None:
    page = seller.open(paths(seller)[-2])
    summary = page.locator("summary", has_text="Revoke this key")
    sure = page.get_by_role("button", name="Yes, revoke it for good")
    summary.focus()
    page.keyboard.press("Enter")
    expect(sure).to_be_visible()
    expect(summary).to_be_visible()
    expect(summary).to_be_focused()
    page.keyboard.press("Enter")
    expect(sure).to_be_hidden()


def test_the_skip_link_leads_to_the_page_and_a_label_to_its_field(seller: Visit) -> None:
    page = seller.open("/console/listings/new")
    page.get_by_text("Description", exact=True).click()
    expect(page.get_by_label("Description")).to_be_focused()
    assert page.locator("#content").count() == 1


def test_what_could_not_be_done_stands_apart_from_the_table(seller: Visit) -> None:
    page = seller.open("/console/listings")
    page.locator("[name=id]").first.evaluate("it => { it.value = 1; it.checked = true }")
    press(page, "Pause")
    notice, table = page.locator("div.notice").bounding_box(), page.locator("form.many").bounding_box()
    assert notice is not None
    assert table is not None
    assert table["y"] - (notice["y"] + notice["height"]) >= 12


def test_a_key_is_copied_and_all_are_ticked_where_scripts_run(seller: Visit, place: Place) -> None:
    seller.page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=place.service.base_url)
    key = make_key(seller.page)
    seller.page.get_by_role("button", name="Copy").first.click()
    expect(seller.page.locator("#copied")).to_have_text("Copied")
    assert seller.page.evaluate("navigator.clipboard.readText()") == key
    seller.page.set_viewport_size(DESKTOP)
    page = seller.open("/console/listings")
    page.get_by_label("All on this page").check()
    assert page.locator("[name=id]:checked").count() == page.locator("[name=id]").count() > 1


def test_an_e_mail_address_stands_in_one_line_on_a_phone(browser: Browser, place: Place) -> None:
    with visit(browser, place.service.base_url, viewport={"width": 375, "height": 800}) as seen:
        enter(seen, "alice@demo.example")
        address = seen.open("/console/account").get_by_role("definition").filter(has_text="alice@demo.example")
        assert address.evaluate(LINES) == 1
