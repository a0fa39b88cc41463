"""The pictures of the console's forms in a browser: upload, order, previews."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, FilePayload, Locator, Page, expect

from listings.domain.pictures import find_name
from listings.service import Services
from tests.harness import RunningService
from tests.pictures import GPS, draw, encode, photo, turn
from tests.s3_server import Bucket
from tests.site.accessibility import DESKTOP, PHONE, find_axe_violations
from tests.site.browser import HeldRequests, Visit, needs_chromium, visit
from tests.site.tab import PASSWORD

pytestmark = [needs_chromium, pytest.mark.slow, pytest.mark.uncovered]

EMAIL, NEW, UPLOADS = "alice@example.com", "/console/listings/new", "**/console/pictures"
PDF: FilePayload = {"name": "plan.pdf", "mimeType": "application/pdf", "buffer": b"%PDF-1.7"}
SHRINK = """async (bytes) => {
  const small = await shrink(new File([new Uint8Array(bytes)], "a.jpg", { type: "image/jpeg" }));
  const { width, height } = await createImageBitmap(small);
  return [width, height, [...new Uint8Array(await small.arrayBuffer())]];
}"""
DROP = """([area, bytes]) => {
  const data = new DataTransfer();
  data.items.add(new File([new Uint8Array(bytes)], "dropped.jpg", { type: "image/jpeg" }));
  for (const type of ["dragover", "drop"]) {
    area.dispatchEvent(new DragEvent(type, { dataTransfer: data, bubbles: true, cancelable: true }));
  }
}"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    with RunningService(tmp_path_factory.mktemp("pictures"), sign_up="on") as service:
        service.run(add_seller)
        yield service


async def add_seller(services: Services) -> None:
    await services.sessions.sign_up("Alice", EMAIL, PASSWORD, "192.0.2.1")
    await services.accounts.extend_plan(EMAIL, 12)


@pytest.fixture
def seller(browser: Browser, service: RunningService) -> Iterator[Visit]:
    with visit(browser, service.base_url, viewport=DESKTOP, reduced_motion="reduce") as seen:
        sign_in(seen, service)
        yield seen


def sign_in(seen: Visit, service: RunningService) -> None:
    session = service.run(lambda services: services.sessions.sign_in(EMAIL, PASSWORD, "192.0.2.1"))
    seen.page.context.add_cookies([{"name": "listings_session", "value": session, "url": service.base_url}])


def jpeg(number: int) -> FilePayload:
    """Return a photo whose colour differs from that of other numbers, also after the browser has encoded it."""
    return {"name": f"{number}.jpg", "mimeType": "image/jpeg", "buffer": photo(37 * number)}


def fill(page: Page) -> None:
    page.get_by_label("Title").fill("Bicycle")
    page.get_by_label("Description").fill("Two wheels.")


def tiles(page: Page) -> Locator:
    return page.locator(".picture-list > li")


def read_urls(page: Page) -> list[str]:
    return page.locator("[name=images]").input_value().split()


def load_images(service: RunningService, page: Page) -> list[str]:
    page.wait_for_url(re.compile(r"/console/listings/[0-9]+$"))
    listing_id = int(page.url.rpartition("/")[2])
    images: list[str] = json.loads(service.run(lambda services: services.moderation.get(listing_id)).images)
    return images


def test_pictures_are_uploaded_ordered_and_stored(seller: Visit, service: RunningService) -> None:
    page = seller.open(NEW)
    page.set_input_files("#pictures", [jpeg(1), jpeg(2), PDF, jpeg(3)])
    expect(page.get_by_text("3 of 4 pictures uploaded, 1 failed.")).to_be_visible()
    expect(page.locator(".picture-list .failed")).to_contain_text("plan.pdf: ")
    first, second, third = read_urls(page)
    page.get_by_role("button", name="Make picture 2 the main picture").click()
    assert read_urls(page) == [second, first, third]
    page.get_by_role("button", name="Move picture 2 forward").click()  # past the one that failed
    page.get_by_role("button", name="Move picture 3 forward").click()
    assert read_urls(page) == [second, third, first]
    page.get_by_role("button", name="Move picture 3 back").click()
    page.get_by_role("button", name="Remove picture 3").click()
    fill(page)
    page.get_by_role("button", name="Create listing").click()
    assert load_images(service, page) == [second, third, first]
    expect(tiles(page)).to_have_count(3)
    for image in page.locator(".picture-list img").all():
        expect(image).to_have_js_property("naturalWidth", 64)
    assert [text for text in seller.console_messages if "400" not in text] == []


def test_a_picture_is_shown_before_it_is_uploaded(seller: Visit) -> None:
    page = seller.open(NEW)
    uploads = HeldRequests(page, UPLOADS)
    page.set_input_files("#pictures", [jpeg(number) for number in range(5)])
    expect(page.locator(".picture-list .sending")).to_have_count(2)
    expect(page.locator(".picture-list .waiting")).to_have_count(3)
    for image in page.locator(".picture-list img").all():
        expect(image).to_have_js_property("naturalWidth", 64)
    uploads.wait(2)
    uploads.send_first()
    expect(page.get_by_text("1 of 5 pictures uploaded.")).to_be_visible()
    expect(page.locator(".picture-list .waiting")).to_have_count(2)


def test_a_form_is_sent_when_its_pictures_are_uploaded(seller: Visit, service: RunningService) -> None:
    page = seller.open(NEW)
    uploads = HeldRequests(page, UPLOADS)
    page.set_input_files("#pictures", [jpeg(11)])
    uploads.wait(1)
    fill(page)
    page.get_by_role("button", name="Create listing").click()
    expect(page.get_by_text("The form is sent when all pictures are uploaded.")).to_be_visible()
    uploads.send_first()
    assert [find_name(url) is not None for url in load_images(service, page)] == [True]


def test_only_changed_pictures_are_asked_about(seller: Visit) -> None:
    page = seller.open(NEW)
    page.get_by_label("Title").click()
    page.get_by_role("link", name="Overview").click()
    page.wait_for_url("**/console")
    assert seller.dialogs == []
    page = seller.open(NEW)
    page.set_input_files("#pictures", [jpeg(5)])
    expect(page.get_by_text("1 of 1 pictures uploaded.")).to_be_visible()
    with page.expect_event("dialog") as asked:
        page.get_by_role("link", name="Overview").click(no_wait_after=True)
    assert asked.value.type == "beforeunload"


def test_a_failed_upload_is_tried_again(seller: Visit) -> None:
    page = seller.open(NEW)
    page.route(UPLOADS, lambda route: route.abort(), times=1)
    page.set_input_files("#pictures", [jpeg(21)])
    expect(tiles(page)).to_contain_text("21.jpg: The connection failed. Try again")
    page.get_by_role("button", name="Upload picture 1 again").click()
    expect(page.get_by_text("1 of 1 pictures uploaded.")).to_be_visible()
    assert len(read_urls(page)) == 1


def test_the_same_picture_is_added_once(seller: Visit) -> None:
    page = seller.open(NEW)
    page.set_input_files("#pictures", [jpeg(31)])
    expect(page.get_by_text("1 of 1 pictures uploaded.")).to_be_visible()
    page.set_input_files("#pictures", [jpeg(31)])
    expect(page.locator(".sending, .waiting")).to_have_count(0)
    expect(tiles(page)).to_have_count(1)


def test_files_are_dropped_and_pictures_dragged_into_order(seller: Visit) -> None:
    page = seller.open(NEW)
    page.set_input_files("#pictures", [jpeg(41), jpeg(42)])
    area = page.locator("[data-pictures-form]").element_handle()
    page.evaluate(DROP, [area, list(photo(37 * 43))])
    expect(page.get_by_text("3 of 3 pictures uploaded.")).to_be_visible()
    first, second, third = read_urls(page)
    tiles(page).nth(2).drag_to(tiles(page).nth(0), target_position={"x": 10, "y": 40})
    assert read_urls(page) == [third, first, second]
    expect(tiles(page).nth(0)).to_have_class("main")


def test_addresses_of_the_web_are_pictures_of_the_list(seller: Visit) -> None:
    page = seller.open(NEW)
    page.set_input_files("#pictures", [jpeg(51)])
    expect(page.get_by_text("1 of 1 pictures uploaded.")).to_be_visible()
    (uploaded,) = read_urls(page)
    page.get_by_text("Pictures that are on the web").click()
    page.get_by_label("Images").fill(f"{uploaded}\nhttp://127.0.0.1:9/none.png\nnone.png")
    expect(tiles(page)).to_have_text(
        [
            "★←→✕",
            "Does not load: http://127.0.0.1:9/none.png★←→✕",
            "Not an address: none.png★←→✕",
        ]
    )
    page.get_by_role("button", name="Remove picture 3").click()
    assert read_urls(page) == [uploaded, "http://127.0.0.1:9/none.png"]


def test_a_large_photo_is_shrunk_and_loses_its_place(seller: Visit) -> None:
    page = seller.open(NEW)
    width, height, data = page.evaluate(SHRINK, list(turn(draw((3000, 1500)), 6)))
    assert (width, height) == (1300, 2600)
    assert (bytes(data[:2]), GPS.to_bytes(2, "big") in bytes(data[:200]), b"Exif" in bytes(data)) == (
        b"\xff\xd8",
        False,
        False,
    )


def test_small_drawings_are_sent_as_they_are(seller: Visit) -> None:
    page, data = seller.open(NEW), encode(draw((300, 200)), "PNG")
    script = SHRINK.replace("a.jpg", "a.png").replace("image/jpeg", "image/png")
    assert page.evaluate(script, list(data)) == [300, 200, list(data)]


def test_a_form_without_scripts_sends_its_pictures(browser: Browser, service: RunningService) -> None:
    with visit(browser, service.base_url, viewport=PHONE, java_script_enabled=False) as seen:
        sign_in(seen, service)
        page = seen.open(NEW)
        fill(page)
        page.set_input_files("#pictures", [jpeg(61), jpeg(62)])
        page.get_by_role("button", name="Create listing").click()
        assert [find_name(url) is not None for url in load_images(service, page)] == [True, True]


def test_an_import_finds_pictures_that_were_uploaded_on_its_page(seller: Visit) -> None:
    page = seller.open("/console/import")
    page.set_input_files("#pictures", [jpeg(71), PDF])
    expect(page.get_by_text("1 of 2 pictures uploaded, 1 failed.")).to_be_visible()
    rows = b"title,content,images\nBicycle,Two wheels.,71.jpg\nLamp,A lamp.,72.jpg\n"
    page.set_input_files("#file", {"name": "stock.csv", "mimeType": "text/csv", "buffer": rows})
    page.get_by_role("button", name="Check file").click()
    expect(page.get_by_text("Upload the pictures that the cell names first").first).to_be_visible()
    expect(page.get_by_text("will be created")).to_have_count(1)


@pytest.mark.parametrize("path", [NEW, "/console/import"])
def test_forms_with_pictures_are_accessible(seller: Visit, path: str) -> None:
    page = seller.open(path)
    page.set_input_files("#pictures", [jpeg(81), jpeg(82), PDF])
    expect(page.get_by_text("2 of 3 pictures uploaded, 1 failed.")).to_be_visible()
    assert list(find_axe_violations(page, path)) == []


@pytest.mark.parametrize("width", [320, 390, 768])
def test_a_list_of_pictures_fits_the_screen(browser: Browser, service: RunningService, width: int) -> None:
    with visit(browser, service.base_url, viewport={"width": width, "height": 800}) as seen:
        sign_in(seen, service)
        page = seen.open(NEW)
        page.set_input_files("#pictures", [jpeg(91), PDF])
        expect(page.get_by_text("1 of 2 pictures uploaded, 1 failed.")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_hidden_picture_is_a_note_instead_of_a_broken_image(seller: Visit, service: RunningService) -> None:
    page = seller.open(NEW)
    page.set_input_files("#pictures", [jpeg(5)])
    expect(page.get_by_text("1 of 1 pictures uploaded.")).to_be_visible()
    fill(page)
    page.get_by_role("button", name="Create listing").click()
    load_images(service, page)
    listing_id = int(page.url.rpartition("/")[2])
    service.run(lambda services: services.moderation.take_down(listing_id, "It is a copy", "ops"))
    page = seller.open(f"/console/listings/{listing_id}")
    expect(tiles(page)).to_have_text(re.compile("Hidden: we took down a listing that showed it"))
    assert len(read_urls(page)) == 1
    assert seller.console_messages == []


def test_a_browser_loads_pictures_from_s3(browser: Browser, bucket: Bucket, tmp_path: Path) -> None:
    with RunningService(tmp_path, media_url=bucket.url, media_base_url=bucket.public_url) as service:
        service.run(add_seller)
        with visit(browser, service.base_url, viewport=DESKTOP) as seen:
            sign_in(seen, service)
            page = seen.open(NEW)
            page.set_input_files("#pictures", [jpeg(1)])
            expect(page.get_by_text("1 of 1 pictures uploaded.")).to_be_visible()
            fill(page)
            page.get_by_role("button", name="Create listing").click()
            (url,) = load_images(service, page)
            expect(page.locator(".picture-list img")).to_have_js_property("naturalWidth", 64)
            listing_id = page.url.rpartition("/")[2]
            page = seen.open(f"/listings/{listing_id}")
            page.wait_for_function("document.querySelector('.gallery img').naturalWidth > 0")
            name = find_name(url)
            loaded = {url for url in seen.external_urls if not url.startswith("blob:")}
            assert loaded == {f"{bucket.public_url}/{name}-400.webp"}
            assert seen.console_messages == []
