"""What buyers and the seller see of a listing that an operator has taken down."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from listings.domain.errors import Problem
from tests.harness import Harness, Person
from tests.mail_server import Mailbox, create_alice, deliver, mail_flags, read_text
from tests.pictures import photo
from tests.service.importing import Shop
from tests.site.market import create, get, get_page
from tests.site.tab import create as create_in_console
from tests.site.tab import open_console, open_harness

REASON = "It is a copy of another listing"

pytestmark = pytest.mark.decision("G59")


@pytest.fixture
def harness(tmp_path: Path, mailbox: Mailbox) -> Iterator[Harness]:
    with open_harness(tmp_path, **mail_flags(mailbox)) as harness:
        yield harness


@pytest.fixture
def alice(harness: Harness, mailbox: Mailbox) -> Person:
    return create_alice(harness, mailbox)


def take_down(harness: Harness, listing_id: int, reason: str = REASON) -> None:
    harness.run(harness.services.moderation.take_down(listing_id, reason, "ops"))
    harness.index_market()


def upload(harness: Harness, person: Person, number: int = 1) -> str:
    url = harness.fetch("POST", "/api/v1/images", key=person.key, body=photo(number)).json()["url"]
    assert isinstance(url, str)
    return url


def read_pictures(harness: Harness, *urls: str) -> list[int]:
    return [get(harness, url.removeprefix("https://market.example")).status for url in urls]


def find_public_pages(harness: Harness, person: Person, listing_id: int) -> list[str]:
    harness.clock.advance(60)
    pages = ["/", "/?q=bicycle", "/?sort=price", f"/sellers/{person.account.id}", "/sitemaps/1.xml"]
    return [path for path in pages if f"/listings/{listing_id}" in get(harness, path).body.decode()]


def test_no_public_page_shows_it(harness: Harness, alice: Person) -> None:
    other, listing_id = create(harness, alice), create(harness, alice, title="Red bicycle")
    assert len(find_public_pages(harness, alice, listing_id)) == 5
    assert "Red bicycle" in get_page(harness, f"/listings/{other}").text
    take_down(harness, listing_id)
    assert find_public_pages(harness, alice, listing_id) == []
    assert "1 result" in get_page(harness, "/?q=bicycle").text
    assert "Red bicycle" not in get_page(harness, f"/listings/{other}").text
    for path in ("", "/message", "/report"):
        assert "Red bicycle" not in get_page(harness, f"/listings/{listing_id}{path}", 404).text
    harness.run(harness.services.moderation.lift(listing_id))
    harness.index_market()
    assert len(find_public_pages(harness, alice, listing_id)) == 5
    assert get(harness, f"/listings/{listing_id}").status == 200


def test_a_page_drops_it_before_the_index_does(harness: Harness, alice: Person) -> None:
    listing_id = create(harness, alice, title="Red bicycle")
    harness.run(harness.services.moderation.take_down(listing_id, REASON, "ops"))
    assert "Red bicycle" not in get_page(harness, "/?q=red").text


def test_the_owner_gets_the_reason_by_mail(harness: Harness, alice: Person, mailbox: Mailbox) -> None:
    listing_id = create(harness, alice)
    take_down(harness, listing_id)
    deliver(harness)
    harness.run(harness.services.moderation.lift(listing_id))
    deliver(harness)
    assert mailbox.recipients == [alice.account.email] * 2
    assert mailbox.subjects == [
        "Your listing was taken down: Bicycle",
        "Your listing is no longer taken down: Bicycle",
    ]
    text = read_text(mailbox.messages[0])
    assert f"The reason: {REASON}\r\n" in text
    assert "contact us at help@market.example" in text
    assert "help@market.example" in mailbox.messages[0]["Reply-To"]


def test_its_pictures_are_hidden_unless_another_listing_shows_them(harness: Harness, alice: Person) -> None:
    own, shared = (upload(harness, alice, number) for number in (1, 2))
    listing_id, other = create(harness, alice, images=[own, shared]), create(harness, alice, images=[shared])
    take_down(harness, listing_id)
    assert read_pictures(harness, own, shared) == [404, 200]
    take_down(harness, other)
    assert read_pictures(harness, own, shared) == [404, 404]
    for lifted, statuses in ((listing_id, [200, 404]), (other, [200, 200])):
        harness.run(harness.services.moderation.lift(lifted))
        assert read_pictures(harness, own, shared) == statuses


@pytest.mark.parametrize("change", [{"is_active": False}, {}], ids=["paused", "deleted"])
def test_a_copy_that_is_not_public_keeps_no_picture(harness: Harness, alice: Person, change: dict[str, object]) -> None:
    url = upload(harness, alice)
    listing_id, copy = (create(harness, alice, images=[url]) for _ in range(2))
    Shop(harness, alice).change(copy, **change)
    take_down(harness, listing_id)
    assert read_pictures(harness, url) == [404]


@pytest.mark.parametrize("host", ["https://market.example", "https://pictures.example"])
def test_no_page_of_another_listing_shows_its_picture(harness: Harness, alice: Person, host: str) -> None:
    path = upload(harness, alice).removeprefix("https://market.example")
    name = path.removeprefix("/media/").removesuffix(".jpg")
    take_down(harness, create(harness, alice, images=[path]))
    copy, other = create(harness, alice, images=[f"{host}{path}"]), create(harness, alice)
    harness.clock.advance(60)
    for page in ("/", "/?q=bicycle", f"/sellers/{alice.account.id}", f"/listings/{copy}", f"/listings/{other}"):
        reply = get(harness, page)
        assert reply.status == 200
        assert name not in reply.body.decode()


@pytest.mark.parametrize(("reason", "message"), [(" ", "Enter a reason"), ("x" * 501, "at most 500")])
def test_an_invalid_reason_is_rejected(harness: Harness, alice: Person, reason: str, message: str) -> None:
    listing_id = create(harness, alice)
    with pytest.raises(Problem, match=message):
        take_down(harness, listing_id, reason)
    assert get(harness, f"/listings/{listing_id}").status == 200


def test_it_can_be_taken_down_and_lifted_only_once(harness: Harness, alice: Person) -> None:
    listing_id = create(harness, alice)
    with pytest.raises(Problem, match=f"Listing {listing_id} is not taken down"):
        harness.run(harness.services.moderation.lift(listing_id))
    take_down(harness, listing_id)
    with pytest.raises(Problem, match=f"Listing {listing_id} is already taken down"):
        take_down(harness, listing_id)


def test_the_console_shows_the_reason_until_it_is_lifted(tmp_path: Path) -> None:
    with open_harness(tmp_path / "b", contact="help@market.example") as harness:
        tab = open_console(harness)
        listing_id = create_in_console(harness)
        take_down(harness, listing_id)
        assert tab.get(f"/listings/{listing_id}").reply.status == 404
        for path in ("/console/listings", f"/console/listings/{listing_id}"):
            assert REASON in tab.get(path).text
            assert "Taken down" in tab.text
        assert "Contact help@market.example" in tab.text
        assert "View on the market" not in tab.text
        assert f"The operator took down “Bicycle” : {REASON}" in tab.get("/console/activity").text
        harness.run(harness.services.moderation.lift(listing_id))
        assert "The operator lifted the takedown of “Bicycle”" in tab.get("/console/activity").text
        for path in ("/console/listings", f"/console/listings/{listing_id}"):
            assert REASON not in tab.get(path).text
