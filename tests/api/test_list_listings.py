"""GET /api/v1/listings."""

import asyncio

import pytest

from listings.domain.model import NewListing
from listings.service import Service
from tests.api.test_get_listing import RECORD_FIELDS
from tests.conftest import Client
from tests.harness import RunningService


def ids_of(client: Client, path: str = "") -> list[int]:
    response = client.get(path)
    assert response.status_code == 200, response.text
    return [record["id"] for record in response.json()["listings"]]


def test_an_account_without_listings_gets_an_empty_list(alice: Client) -> None:
    response = alice.get()
    assert (response.status_code, response.json()) == (200, {"listings": []})


def test_a_record_has_exactly_the_fourteen_fields_in_their_order(alice: Client) -> None:
    alice.create(district="Te Aro", latitude=-41.3, longitude=174.8)
    content = alice.get().json()
    assert list(content) == ["listings"]
    assert [list(record) for record in content["listings"]] == [RECORD_FIELDS]


def test_each_record_is_the_one_that_get_one_gives(alice: Client) -> None:
    listings = [alice.create(price=19.99, images=["https://a.example/1.jpg"]), alice.create(type="job")]
    assert alice.get().json()["listings"] == [alice.read(listing) for listing in reversed(listings)]


@pytest.mark.decision("G16")
def test_the_newest_comes_first(alice: Client) -> None:
    listings = [alice.create() for _ in range(5)]
    assert ids_of(alice) == sorted(listings, reverse=True) == listings[::-1]


def test_an_edit_moves_nothing(alice: Client) -> None:
    listings = [alice.create() for _ in range(3)]
    alice.patch(f"/{listings[0]}", json={"title": "Edited"})
    assert ids_of(alice) == listings[::-1]


@pytest.mark.decision("G16")
def test_there_is_no_hidden_page_size(alice: Client, running: RunningService) -> None:
    account = alice.person.account.id

    async def fill(service: Service) -> list[int]:
        new = NewListing(title="Bicycle", content="Two wheels.")
        add = service.store.add_listing
        adding = (add(account % 1024, account, new, "2026-09-21 14:13:20") for _ in range(300))
        return [added.listing_id for added in await asyncio.gather(*adding)]

    added = running.run(fill)
    response = alice.get()
    assert [record["id"] for record in response.json()["listings"]] == sorted(added, reverse=True)
    assert "Link" not in response.headers


@pytest.mark.decision("G16")
@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_inactive_listings_are_left_out_until_they_are_active_again(alice: Client, method: str) -> None:
    draft, kept, paused = alice.create(is_active=False), alice.create(), alice.create()
    alice.request(method, f"/{paused}", json={"is_active": False})
    assert ids_of(alice) == [kept]
    for listing in (draft, paused):
        alice.request(method, f"/{listing}", json={"is_active": True})
    assert ids_of(alice) == [paused, kept, draft]


def test_deleted_listings_are_left_out(alice: Client) -> None:
    kept, deleted = alice.create(), alice.create()
    alice.delete(f"/{deleted}")
    assert ids_of(alice) == [kept]


def test_each_account_sees_its_own_listings_alone(alice: Client, bob: Client) -> None:
    listings = [alice.create(), bob.create(), alice.create()]
    assert (ids_of(alice), ids_of(bob)) == ([listings[2], listings[0]], [listings[1]])


def test_an_expired_plan_gets_403(charlie: Client) -> None:
    response = charlie.get()
    assert (response.status_code, response.json()) == (403, {"error": "Business plan expired"})
    assert response.headers["X-Error-Code"] == "plan_expired"


@pytest.mark.parametrize("query", ["?colour=red", "?", "?=", "?&&&", "?%ff=%00", "?api_key=x"])
def test_an_unknown_parameter_is_ignored(alice: Client, query: str) -> None:
    listing = alice.create()
    assert ids_of(alice, query) == [listing]


def test_a_trailing_slash_is_the_same_list(alice: Client) -> None:
    alice.create()
    assert alice.get("/").content == alice.get().content


def test_head_answers_as_get_without_the_body(alice: Client) -> None:
    alice.create()
    head, get = alice.request("HEAD"), alice.get()
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["Content-Length"] == get.headers["Content-Length"]
    assert head.headers["Content-Type"] == get.headers["Content-Type"]


@pytest.mark.parametrize("body", [b"{not json", b"\xff", b"[" * 100_000, b"x" * 3_000_000])
def test_a_body_is_ignored(alice: Client, body: bytes) -> None:
    listing = alice.create()
    response = alice.get(content=body)
    assert [record["id"] for record in response.json()["listings"]] == [listing]


@pytest.mark.decision("G35")
def test_a_list_is_to_be_asked_for_again_whenever_it_is_used(alice: Client) -> None:
    assert alice.get().headers["Cache-Control"] == "private, no-cache"


def test_an_unchanged_list_is_answered_again_byte_for_byte(alice: Client, bob: Client) -> None:
    alice.create(title="Rimu table")
    first = alice.get().content
    bob.create(title="Kauri bench")
    assert alice.get().content == first != bob.get().content


def test_every_edit_is_in_the_next_list(alice: Client) -> None:
    listing = alice.create(title="Rimu table")
    for title in ("Kauri table", "Totara table"):
        alice.patch(f"/{listing}", json={"title": title})
        assert [record["title"] for record in alice.get().json()["listings"]] == [title]
    alice.delete(f"/{listing}")
    assert ids_of(alice) == []
