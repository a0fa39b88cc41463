"""The console in a browser, with and without JavaScript, and checked with axe."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect

from bench.data import store_of
from listings.domain import fields
from listings.domain.reverts import Revert
from listings.service import Services
from tests.cli.commands import DEADLINE, PROGRAM
from tests.harness import RunningService
from tests.site.accessibility import DESKTOP, PHONE, find_axe_violations
from tests.site.browser import NoonClock, Visit, needs_chromium, resize, visit, wait_for_views
from tests.site.tab import PASSWORD

pytestmark = [needs_chromium, pytest.mark.slow, pytest.mark.uncovered]

COUNT_LINES = "it => { const all = new Range(); all.selectNodeContents(it); return all.getClientRects().length; }"
BOTTOM, TOP = "it => it.getBoundingClientRect().bottom", "it => it.getBoundingClientRect().top"
STOCK = b"title,content,price\nLamp,A lamp.,12.50\nChair,,cheap\nTable,A table.,80\n"


class Deployment(NamedTuple):
    service: RunningService
    folder: Path

    def run_command(self, *arguments: str) -> None:
        database = ["--database-url", f"sqlite:///{self.folder}/listings.db"]
        subprocess.run([PROGRAM, *database, *arguments], check=True, capture_output=True, timeout=DEADLINE)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("console")
    database = f"sqlite:///{folder}/listings.db"
    with RunningService(folder, clock=NoonClock(), sign_up="on", database=database) as service:
        yield Deployment(service, folder)


def click_button(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def sign_up(seen: Visit, email: str) -> Page:
    """Create an account and return its overview, whose scripts have been loaded."""
    page = seen.open("/sign-in")
    page.get_by_role("link", name="Create an account").click()
    page.get_by_label("Your name").fill("Rata & Sons")
    page.get_by_label("Email").fill(email)
    page.get_by_label("Password").fill(PASSWORD)
    click_button(page, "Create account")
    expect(page.get_by_role("heading", name="Your next steps")).to_be_visible()
    page.wait_for_load_state()
    return page


def create_key(page: Page) -> str:
    page.goto(page.url.split("/console")[0] + "/console/keys")
    page.get_by_label("Name").fill("Warehouse")
    click_button(page, "Create key")
    return page.get_by_label("Key “Warehouse”").input_value()


def request_plan(page: Page, seen: Visit) -> None:
    seen.open("/console").get_by_role("link", name="Plan", exact=True).first.click()
    click_button(page, "Request the Business plan")
    expect(page.get_by_text("Your request was sent.")).to_be_visible()


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
def test_a_new_seller_completes_every_step(browser: Browser, deployment: Deployment, *, scripts: bool) -> None:
    email = f"rata-{scripts}@example.com".lower()
    options: dict[str, Any] = {"java_script_enabled": scripts, "viewport": DESKTOP if scripts else PHONE}
    with (
        visit(browser, deployment.service.base_url, **options) as seen,
        visit(browser, deployment.service.base_url) as visitor,
    ):
        page = sign_up(seen, email)
        request_plan(page, seen)
        deployment.run_command("account", "plan", email, "--months", "1")
        seen.open("/console")
        expect(page.get_by_role("link", name="Create key")).to_be_visible()
        key = create_key(page)
        expect(page.get_by_role("button", name="Copy").first).to_be_visible(visible=scripts)
        listing_id = create_listing(deployment, key)
        view_as_visitor(deployment, visitor, listing_id)
        list_another(page, seen)
        edit(page, seen, listing_id)
        import_file(page, seen)
        undo_import(page, seen)
        expect(seen.open("/console/usage").get_by_text("1 of 1,000")).to_be_visible()
        new = rotate(page)
        assert [status_of(deployment, one) for one in (key, new)] == [401, 200]
        click_button(page, "Sign out")
        expect(page.get_by_role("link", name="Sign in")).to_be_visible()
        expect(seen.open("/console").get_by_role("heading", name="Sign in")).to_be_visible()
        assert [text for text in seen.console_messages if "Failed to load resource" not in text] == []
        assert seen.external_urls == []


def create_listing(deployment: Deployment, key: str) -> int:
    body = {"title": "Kauri bowl", "content": "Turned by hand.", "price": 60}
    url = f"{deployment.service.base_url}/api/v1/listings"
    response = httpx2.post(url, json=body, headers={"X-API-Key": key}, timeout=DEADLINE)
    assert response.status_code == 201
    return int(response.json()["id"])


def status_of(deployment: Deployment, key: str) -> int:
    url = f"{deployment.service.base_url}/api/v1/rate_limit"
    return httpx2.get(url, headers={"X-API-Key": key}, timeout=DEADLINE).status_code


def view_as_visitor(deployment: Deployment, visitor: Visit, listing_id: int) -> None:
    for _ in range(2):
        page = visitor.open(f"/listings/{listing_id}")
        expect(page.get_by_role("heading", level=1)).to_have_text("Kauri bowl")
    assert wait_for_views(deployment.service, listing_id) == 1


def list_another(page: Page, seen: Visit) -> None:
    seen.open("/console/listings").get_by_role("link", name="New listing").first.click()
    page.get_by_label("Title").fill("Rimu tray")
    page.get_by_label("Description").fill("Oiled by hand.")
    page.get_by_label("Price (NZD)").fill("45")
    click_button(page, "Create listing")
    expect(page.get_by_text("Listing created.")).to_be_visible()


def edit(page: Page, seen: Visit, listing_id: int) -> None:
    seen.open("/console/listings")
    page.get_by_role("link", name="Kauri bowl").click()
    page.get_by_label("Price (NZD)").fill("cheap")
    click_button(page, "Save")
    expect(page.get_by_text("choose Negotiable.")).to_be_visible()
    page.get_by_label("Price (NZD)").fill("75")
    click_button(page, "Save")
    expect(page.get_by_text("Listing saved")).to_be_visible()
    expect(seen.open(f"/listings/{listing_id}").get_by_text("$75").first).to_be_visible()


def import_file(page: Page, seen: Visit) -> None:
    seen.open("/console/import")
    file: Any = {"name": "stock.csv", "mimeType": "text/csv", "buffer": STOCK}
    page.get_by_label("CSV or JSON Lines file").set_input_files(files=[file])
    click_button(page, "Check file")
    expect(page.get_by_text("Enter a description. Enter the price as a number, such as 450.").first).to_be_visible()
    click_button(page, "Import valid rows")
    expect(page.get_by_text("Done: 2 created, 0 updated, 0 unchanged, 1 rejected.")).to_be_visible()


def undo_import(page: Page, seen: Visit) -> None:
    page.get_by_role("link", name="Undo", exact=True).click()
    expect(page.get_by_text("Nothing has been undone yet")).to_be_visible()
    click_button(page, "Undo")
    expect(page.get_by_text("Done: 2 listings changed")).to_be_visible()
    seen.open("/console/listings?status=active")
    assert page.locator("tbody th a").all_inner_texts() == ["Rimu tray", "Kauri bowl"]
    seen.open("/console/listings?status=deleted")
    assert page.locator("tbody th a").all_inner_texts() == ["Table", "Lamp"]


def rotate(page: Page) -> str:
    page.goto(page.url.split("/console")[0] + "/console/keys")
    page.get_by_role("link", name="Warehouse").click()
    page.get_by_label("The old key stops working").select_option("Immediately")
    click_button(page, "Rotate key")
    return page.get_by_label("Key “Warehouse”").input_value()


@pytest.fixture(scope="module")
def seller(browser: Browser, deployment: Deployment) -> Iterator[Visit]:
    with visit(browser, deployment.service.base_url) as seen:
        page = sign_up(seen, "tui@example.com")
        deployment.run_command("account", "plan", "tui@example.com", "--months", "1")
        key = create_key(page)
        headers = {"X-API-Key": key}
        body = {"title": "W" * 255, "content": "x" * 3000, "category": "y" * 100, "price": 999_999_999.99}
        for _ in range(2):
            url = f"{deployment.service.base_url}/api/v1/listings"
            httpx2.post(url, json=body, headers=headers, timeout=DEADLINE)
            httpx2.get(f"{url}/99{'9' * 15}", headers=headers, timeout=DEADLINE)
        yield seen


def list_paths(seen: Visit) -> list[str]:
    page = seen.open("/console/keys")
    keys = [link.get_attribute("href") or "" for link in page.locator("tbody a").all()]
    page = seen.open("/console/listings")
    listings = [link.get_attribute("href") or "" for link in page.locator("tbody th a").all()]
    found = ["", "/keys", "/usage", "/plan", "/listings", "/listings?q=none", "/listings/new", "/import", "/activity"]
    found += ["/account", "/account/close", "/nothing", "/activity/undo?change=1"]
    return [*(f"/console{path}" for path in found), f"{listings[0]}/history", keys[0], listings[0]]


def submit_forms(seen: Visit, listing: str) -> Iterator[str]:
    page = seen.open("/console/keys")
    page.get_by_label("Name").fill("k" * 200)
    click_button(page, "Create key")
    yield "a new key"
    page = seen.open("/console/listings/new")
    click_button(page, "Create listing")
    yield "a form with errors"
    page = seen.open(listing)
    page.locator("[name=version]").evaluate("it => { it.value = 1000 }")
    page.get_by_label("Region").fill("Otago")
    click_button(page, "Save")
    yield "a conflicting edit"
    page = seen.open("/console/listings")
    page.locator("[name=id]").first.evaluate("it => { it.value = 1 }")
    page.locator("[name=id]").first.check()
    click_button(page, "Pause")
    yield "a listing that could not be paused"
    page = seen.open("/console/listings")
    page.locator("[name=id]").first.check()
    click_button(page, "Change price")
    page.get_by_label("Amount").fill("5")
    click_button(page, "Preview")
    yield "a price change"
    page = seen.open("/console/import")
    file: Any = {"name": "stock.csv", "mimeType": "text/csv", "buffer": STOCK}
    page.locator("#file").set_input_files(files=[file])
    click_button(page, "Check file")
    yield "an import preview"
    click_button(page, "Import valid rows")
    expect(page.get_by_text("Done:")).to_be_visible()
    yield "an import"


def find_violations(page: Page, name: str) -> list[object]:
    """Return axe's violations, and the widths at which the page overflows."""
    found: list[object] = list(find_axe_violations(page, name))
    for width in (1920, 1280, 390, 320):
        resize(page, width)
        if page.evaluate("document.documentElement.scrollWidth") > width:
            found.append((name, width, "too wide"))
    return found


def test_a_part_of_a_page_is_not_replaced_by_the_sign_in_page(browser: Browser, deployment: Deployment) -> None:
    with visit(browser, deployment.service.base_url) as seen:
        page = sign_up(seen, "weka@example.com")
        seen.page.context.clear_cookies()
        page.evaluate("() => { htmx.ajax('GET', '/console/activity', {target: '#content', select: '#content'}); }")
        page.wait_for_url("**/sign-in?next=%2Fconsole%2Factivity")
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_console_pages_are_accessible_and_fit_the_screen(seller: Visit) -> None:
    found: list[object] = []
    pages = list_paths(seller)
    for path in pages:
        found += find_violations(seller.open(path), path)
    for name in submit_forms(seller, pages[-1]):
        found += find_violations(seller.page, name)
    assert found == []


def test_an_undone_import_names_the_listings_that_were_edited_since(browser: Browser, deployment: Deployment) -> None:
    with visit(browser, deployment.service.base_url) as seen:
        page = sign_up(seen, "huia@example.com")
        deployment.run_command("account", "plan", "huia@example.com", "--months", "1")
        import_rows(page, seen, 300)
        undo_link = page.get_by_role("link", name="Undo").get_attribute("href") or ""
        edit_newest(page, seen, "/console/listings", 12)
        seen.open(undo_link)
        expect(page.get_by_text("The whole listing")).to_have_count(12)
        found = find_violations(page, "the preview of an undo")
        with paused_undos(deployment, page):
            click_button(page, "Undo")
            expect(page.get_by_text("listings changed so far.")).to_be_visible()
            found += find_violations(page, "a running undo")
        expect(page.get_by_text("Done: 288 listings changed, 12 conflicts.")).to_be_visible()
        expect(page.get_by_text("Changed later")).to_have_count(12)
        found += find_violations(page, "the result of an undo")
        seen.open("/console/activity").locator("summary").first.click()
        found += find_violations(page, "the changes of an undo")
        seen.open("/console/listings").get_by_label("All that match, on every page").check()
        click_button(page, "Pause")
        expect(page.get_by_role("heading", name="Pause 12 listings?")).to_be_visible()
        assert [*found, *find_violations(page, "the confirmation of a bulk change")] == []
        assert seen.console_messages == []


def edit_newest(page: Page, seen: Visit, path: str, count: int) -> None:
    """Change the region of the first listings of a page."""
    links = seen.open(path).locator("tbody th a").all()[:count]
    for link in [link.get_attribute("href") or "" for link in links]:
        seen.open(link).get_by_label("Region").fill("Otago")
        click_button(page, "Save")
        expect(page.get_by_text("Listing saved")).to_be_visible()


@contextmanager
def paused_undos(deployment: Deployment, page: Page) -> Iterator[None]:
    """Let no undo continue in the background, and do not update its page, which fades during a request."""

    async def find_none(*_: object) -> list[Revert]:
        return []

    page.route("**/htmx.min.js", lambda route: route.fulfill(content_type="text/javascript"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_of(deployment.service.services), "list_running_reverts", find_none)
        yield
    page.unroute("**/htmx.min.js")
    page.reload()


def import_rows(page: Page, seen: Visit, count: int) -> None:
    seen.open("/console/import")
    rows = "".join(f"Lamp {number},A lamp.\n" for number in range(count))
    file: Any = {"name": "lamps.csv", "mimeType": "text/csv", "buffer": f"title,content\n{rows}".encode()}
    page.get_by_label("CSV or JSON Lines file").set_input_files(files=[file])
    click_button(page, "Check file")
    click_button(page, "Import")
    expect(page.get_by_text(f"Done: {count} created")).to_be_visible()


def test_sign_in_pages_and_a_new_account_are_accessible(browser: Browser, deployment: Deployment) -> None:
    deployment.run_command("account", "create", "--name", "Moa", "--email", "moa@example.com")
    token = deployment.service.run(lambda services: services.invitations.create("moa@example.com"))
    with visit(browser, deployment.service.base_url) as seen:
        pages = ("/sign-in", "/sign-up", "/reset-password", f"/invitations/{token}")
        found = [one for path in pages for one in find_violations(seen.open(path), path)]
        seen.open("/sign-in").get_by_label("Email").fill("x@example.com")
        seen.page.get_by_label("Password").fill("wrong password")
        click_button(seen.page, "Sign in")
        found += find_violations(seen.page, "a wrong password")
    with visit(browser, deployment.service.base_url) as seen:
        sign_up(seen, "kea@example.com")
        for path in ("", "/keys", "/usage", "/plan", "/listings", "/import"):
            found += find_violations(seen.open(f"/console{path}"), f"{path} of a new account")
    assert found == []


def test_a_signed_out_seller_continues_after_signing_in_in_another_tab(
    browser: Browser, deployment: Deployment
) -> None:
    with visit(browser, deployment.service.base_url) as seen:
        page = sign_up(seen, "toroa@example.com")
        deployment.run_command("account", "plan", "toroa@example.com", "--months", "1")
        seen.open("/console/listings/new").get_by_label("Title").fill("Totara shelf")
        page.get_by_label("Description").fill("Two boards.\nNo screws.")
        page.context.clear_cookies()
        click_button(page, "Create listing")
        assert find_violations(page, "a form of a signed-out seller") == []
        with page.expect_popup() as popup:
            page.get_by_role("link", name="Sign in in another tab").click()
        popup.value.get_by_label("Email").fill("toroa@example.com")
        popup.value.get_by_label("Password").fill(PASSWORD)
        click_button(popup.value, "Sign in")
        popup.value.wait_for_url("**/console")
        click_button(page, "Continue")
        expect(page.get_by_label("Description")).to_have_value("Two boards.\nNo screws.")
        click_button(page, "Create listing")
        expect(page.get_by_text("Listing created.")).to_be_visible()


def test_the_revocation_prompt_keeps_keyboard_focus(seller: Visit) -> None:
    page = seller.open(list_paths(seller)[-2])
    summary = page.locator("summary", has_text="Revoke key")
    button = page.get_by_role("button", name="Revoke permanently")
    summary.focus()
    page.keyboard.press("Enter")
    expect(button).to_be_visible()
    expect(summary).to_be_visible()
    expect(summary).to_be_focused()
    page.keyboard.press("Enter")
    expect(button).to_be_hidden()


def test_a_label_focuses_its_field_and_the_skip_target_is_unique(seller: Visit) -> None:
    page = seller.open("/console/listings/new")
    page.get_by_text("Description", exact=True).click()
    expect(page.get_by_label("Description")).to_be_focused()
    assert page.locator("#content").count() == 1


def test_the_error_notice_has_space_above_the_table(seller: Visit) -> None:
    page = seller.open("/console/listings")
    page.locator("[name=id]").first.evaluate("it => { it.value = 1 }")
    expect(page.locator(".bulk-buttons button").first).to_be_disabled()
    page.locator("[name=id]").first.check()
    click_button(page, "Pause")
    notice, table = page.locator("div.notice").bounding_box(), page.locator("form.bulk-form").bounding_box()
    assert notice is not None
    assert table is not None
    assert table["y"] - (notice["y"] + notice["height"]) >= 12


def test_scripts_copy_a_key_and_select_all_listings(seller: Visit, deployment: Deployment) -> None:
    seller.page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=deployment.service.base_url)
    key = create_key(seller.page)
    seller.page.get_by_role("button", name="Copy").first.click()
    expect(seller.page.locator("#copied")).to_have_text("Copied")
    assert seller.page.evaluate("navigator.clipboard.readText()") == key
    resize(seller.page, DESKTOP["width"])
    page = seller.open("/console/listings")
    page.get_by_label("Select all on this page").check()
    count = page.locator("[name=id]").count()
    assert page.locator("[name=id]:checked").count() == count > 1
    expect(page.get_by_text(f"{count} selected")).to_be_in_viewport()
    page.locator("[name=id]").first.uncheck()
    expect(page.get_by_text(f"{count - 1} selected")).to_be_visible()
    expect(page.get_by_label("Select all on this page")).not_to_be_checked()


def test_leaving_an_edited_form_asks_first(seller: Visit) -> None:
    page = seller.open("/console/listings/new")
    page.get_by_label("Title").fill("Half a listing")
    with page.expect_event("dialog") as asked:
        page.get_by_role("link", name="Overview").click(no_wait_after=True)
    assert asked.value.type == "beforeunload"
    expect(page.get_by_label("Title")).to_have_value("Half a listing")  # Playwright chose to stay
    page.get_by_label("Title").fill("")
    page.get_by_role("link", name="Overview").click()
    page.wait_for_url("**/console")


def test_a_preview_shows_unsaved_edits_in_a_new_tab(seller: Visit) -> None:
    page = seller.open("/console/listings/new")
    page.get_by_label("Title").fill("Half a listing")
    page.get_by_label("Description").fill("Soft blue wool.")
    with page.expect_popup() as opened:
        click_button(page, "Preview")
    expect(opened.value.get_by_role("heading", name="Half a listing")).to_be_visible()
    expect(opened.value.get_by_text("Nothing is saved.")).to_be_visible()
    opened.value.close()
    expect(page.get_by_label("Title")).to_have_value("Half a listing")
    with page.expect_event("dialog") as asked:  # the form is still unsaved
        page.get_by_role("link", name="Overview").click(no_wait_after=True)
    assert asked.value.type == "beforeunload"


def test_leaving_a_rejected_form_asks_first(seller: Visit) -> None:
    page = seller.open("/console/listings/new")
    page.get_by_label("Title").fill("Half a listing")
    click_button(page, "Create listing")
    expect(page.get_by_text("Please fix 1 field.")).to_be_visible()
    with page.expect_event("dialog") as asked:
        page.get_by_role("link", name="Overview").click(no_wait_after=True)
    assert asked.value.type == "beforeunload"


@pytest.mark.parametrize("size", [(1280, 500), (768, 500), (600, 800), (390, 800), (320, 800)])
def test_the_bar_below_the_listings_does_not_hide_the_focus(
    browser: Browser, deployment: Deployment, size: tuple[int, int]
) -> None:
    async def add_seller(services: Services) -> str:
        email = f"seller-{size[0]}@example.com"
        session = await services.sessions.sign_up("Kiwi", email, PASSWORD, "192.0.2.1")
        await services.accounts.extend_plan(email, 1)
        caller = await services.keys.find((await services.keys.create(email, "test")).secret)
        assert caller is not None
        new, _ = fields.parse_new_listing({"title": "Lamp", "content": "A lamp."})
        for _ in range(51):  # more than a page
            await services.listings.create(caller, new)
        return session

    base_url = deployment.service.base_url
    with visit(browser, base_url, viewport={"width": size[0], "height": size[1]}) as seen:
        session = deployment.service.run(add_seller)
        seen.page.context.add_cookies([{"name": "listings_session", "value": session, "url": base_url}])
        page = seen.open("/console/listings")
        page.locator("tbody [name=id]").first.check()
        bar = page.locator(".bulk-actions")
        for link in page.locator("tbody th a").all()[:12]:
            link.focus()
            assert link.evaluate(BOTTOM) <= bar.evaluate(TOP)


def test_an_email_address_fits_one_line_on_a_phone(browser: Browser, deployment: Deployment) -> None:
    with visit(browser, deployment.service.base_url, viewport={"width": 375, "height": 800}) as seen:
        sign_up(seen, "alice@demo.example")
        address = seen.open("/console/account").get_by_role("definition").filter(has_text="alice@demo.example")
        assert address.evaluate(COUNT_LINES) == 1


def test_the_second_half_of_a_double_click_is_ignored(seller: Visit) -> None:
    form = seller.open("/console/account").locator("form", has_text="Current password")
    submit = "form => form.dispatchEvent(new SubmitEvent('submit', { bubbles: true, cancelable: true }))"
    assert [form.evaluate(submit) for _ in range(2)] == [True, False]
