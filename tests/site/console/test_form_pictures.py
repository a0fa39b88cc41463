"""Pictures in the console's forms without scripts, and the pages that show them."""

import json

import pytest

from listings.domain.pictures import find_name
from tests.harness import Harness
from tests.pictures import draw, encode, photo
from tests.site.market import get, get_page
from tests.site.tab import Tab, create, form_values, load_listing

NEW, IMPORT = "/console/listings/new", "/console/import"
WEB = "https://images.example/1.jpg"
PDF = ("plan.pdf", b"%PDF-1.7")
BASE = "http://market.example"


def new_form(tab: Tab, **values: str) -> dict[str, str]:
    fields = form_values(tab.get(NEW))
    del fields["pictures"]
    return fields | {"title": "Bicycle", "content": "Two wheels.", "type": "product", "price_type": "fixed"} | values


def load_images(harness: Harness, tab: Tab) -> list[str]:
    assert tab.reply.status == 303, tab.text
    images: list[str] = json.loads(load_listing(harness, int(tab.reply.headers["location"].rpartition("/")[2])).images)
    return images


def read_lines(tab: Tab) -> list[str]:
    text = tab.reply.body.decode().partition('name="images"')[2].partition(">")[2].partition("</textarea>")[0]
    return text.split()


def test_a_form_without_scripts_uploads_its_pictures_in_order(alice: Tab, harness: Harness) -> None:
    files = [(f"{number}.jpg", encode(draw((40 + number, 30)))) for number in range(3)]
    alice.upload_pictures(NEW, files, **new_form(alice, images=WEB))
    first, *uploaded = load_images(harness, alice)
    names = [str(find_name(url)) for url in uploaded]
    sizes = harness.run(harness.services.pictures.get_sizes(names))
    assert (first, [sizes[name] for name in names]) == (WEB, [(40, 30), (41, 30), (42, 30)])


def test_a_picture_that_fails_leaves_the_others_in_the_form(alice: Tab, harness: Harness) -> None:
    alice.upload_pictures(NEW, [("a.jpg", photo(1)), PDF, ("b.jpg", photo(2))], **new_form(alice, images=WEB))
    assert alice.reply.status == 400
    assert "“" not in alice.text.partition("plan.pdf")[0]
    assert '"plan.pdf": ' in alice.text
    assert "The others are below" in alice.text
    lines = read_lines(alice)
    assert (lines[0], len(lines), [find_name(line) is not None for line in lines[1:]]) == (WEB, 3, [True, True])
    assert harness.run(harness.store.count_listings(1, 1)).active == 0
    alice.post(NEW, **new_form(alice, images="\n".join(lines)))
    assert load_images(harness, alice) == lines


def test_the_owner_reads_that_a_picture_is_hidden(alice: Tab, harness: Harness) -> None:
    alice.upload_pictures(NEW, [("a.jpg", photo(1))], **new_form(alice))
    path = alice.reply.headers["location"]
    (url,) = load_images(harness, alice)
    pages = {"/console/listings": "We have hidden its picture", path: "Buyers can’t see 1 picture below"}
    for page, notice in pages.items():
        assert notice not in alice.get(page).text
    harness.run(harness.services.moderation.take_down(int(path.rpartition("/")[2]), "A copy", "ops"))
    pages[f"/console/listings/{create(harness, images=[url])}"] = pages[path]
    for page, notice in pages.items():
        assert notice in alice.get(page).text
    assert str(find_name(url)) not in alice.get("/console/listings").reply.body.decode()


def test_an_error_of_another_field_keeps_uploaded_pictures(alice: Tab) -> None:
    alice.upload_pictures(NEW, [("a.jpg", photo())], **new_form(alice, title=""))
    assert alice.reply.status == 400
    assert len(read_lines(alice)) == 1


def test_an_edited_listing_gets_further_pictures(alice: Tab, harness: Harness) -> None:
    listing_id = create(harness, images=[WEB])
    path = f"/console/listings/{listing_id}"
    version = form_values(alice.get(path))["version"]
    alice.upload_pictures(path, [("a.jpg", photo())], **new_form(alice, images=WEB), version=version)
    first, second = load_images(harness, alice)
    assert (first, find_name(second) is not None) == (WEB, True)


def test_a_preview_shows_pictures_that_were_chosen(alice: Tab) -> None:
    alice.upload_pictures(f"{NEW}/preview", [("a.jpg", encode(draw()))], **new_form(alice))
    assert alice.page.values("img", "width", alt="Bicycle") == ["640"]


def test_pictures_are_uploaded_before_an_import(alice: Tab) -> None:
    alice.get(IMPORT).upload_pictures(f"{IMPORT}/pictures", [("bike.jpg", photo(1)), ("my lamp.JPG", photo(2)), PDF])
    assert alice.reply.status == 400
    assert '"plan.pdf": ' in alice.text
    alice.get(IMPORT).upload_pictures(f"{IMPORT}/pictures", [("bike.jpg", photo(1))])
    assert "1 picture added" in alice.text
    rows = b'title,content,images\nBike,c,"bike.jpg, My Lamp.jpg"\nTable,c,table.jpg\n'
    alice.get(IMPORT).upload(IMPORT, "stock.csv", rows)
    assert "Upload the pictures that the cell names first" in alice.text


@pytest.mark.parametrize("path", [NEW, IMPORT])
def test_only_forms_for_pictures_may_show_local_files(alice: Tab, path: str) -> None:
    policies = [alice.get(one).reply.headers["content-security-policy"] for one in (path, "/console", "/")]
    assert ["img-src blob: 'self' https: http:;" in policy for policy in policies] == [True, False, False]


def test_pages_show_an_uploaded_picture_in_its_sizes(alice: Tab, harness: Harness) -> None:
    alice.upload_pictures(NEW, [("a.jpg", encode(draw((1200, 900))))], **new_form(alice, is_active="true", price="1"))
    (url,) = load_images(harness, alice)
    listing_id = int(alice.reply.headers["location"].rpartition("/")[2])
    harness.index_market()
    media = url.removesuffix(".jpg")
    srcset = f"{media}-400.webp 400w, {media}-800.webp 800w, {media}-1600.webp 1200w"
    listing = get_page(harness, f"/listings/{listing_id}")
    assert listing.values("img", "srcset", width="1200", height="900") == [srcset]
    assert listing.values("meta", "content", property="og:image") == [f"{BASE}{url}"]
    assert f'"image":["{BASE}{url}"]'.encode() in get(harness, f"/listings/{listing_id}").body
    for page in ("/", "/?sort=newest", "/sellers/1"):
        assert get_page(harness, page).values("img", "src", srcset=srcset) == [f"{media}-400.webp"]
    assert f"{media}-400.webp" in alice.get("/console/listings").page.values("img", "src")


def test_a_signed_out_seller_keeps_the_texts_of_a_form_with_pictures(alice: Tab) -> None:
    fields = new_form(alice, title="A long title")
    alice.cookies.pop("listings_session")
    alice.upload_pictures(NEW, [("a.jpg", photo(1)), ("b.jpg", photo(2))], **fields)
    assert alice.page.values("input", "value", name="title") == ["A long title"]
    assert alice.page.values("input", "value", name="pictures") == []


def test_a_visitor_can_not_upload_large_forms(alice: Tab) -> None:
    fields = new_form(alice)
    alice.cookies.pop("listings_session")
    alice.upload_pictures(NEW, [("a.jpg", bytes(100_000))], **fields)
    assert (alice.reply.status, alice.reply.headers["location"].partition("?")[0]) == (303, "/sign-in")
