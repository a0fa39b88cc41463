"""POST /api/v1/listings/{id}/restore (decision G12)."""

import pytest

from listings.domain.model import Listing
from tests.conftest import Client
from tests.harness import Harness, RunningService

LISTINGS = "/api/v1/listings"


def deleted(client: Client, **fields: object) -> int:
    """A listing that was deleted."""
    listing = client.create(**fields)
    assert client.delete(f"/{listing}").status_code == 200
    return listing


def row_of(running: RunningService, listing_id: int) -> Listing:
    found = running.run(lambda service: service.store.get_listing(listing_id))
    assert found is not None
    return found


def test_the_owner_gets_200_and_a_message_and_the_tag(alice: Client) -> None:
    listing = deleted(alice)
    response = alice.post(f"/{listing}/restore")
    assert (response.status_code, response.json()) == (200, {"message": "listing restored"})
    assert response.headers["ETag"] == alice.get(f"/{listing}").headers["ETag"]


@pytest.mark.decision("G12")
def test_it_comes_back_inactive_and_otherwise_as_it_was(alice: Client, running: RunningService) -> None:
    listing = alice.create(price=5, images=["/1.jpg"], district="Te Aro", latitude=-41.3)
    before = alice.get(f"/{listing}?include=all").json()
    alice.delete(f"/{listing}")
    alice.post(f"/{listing}/restore")
    after = alice.get(f"/{listing}?include=all,deleted_at").json()
    assert after == {**before, "is_active": False, "deleted_at": None, "updated_at": after["updated_at"]}
    assert row_of(running, listing).deleted_at is None


def test_it_is_in_the_list_when_it_is_active_again(alice: Client) -> None:
    listing = deleted(alice)
    alice.post(f"/{listing}/restore")
    assert alice.get().json() == {"listings": []}
    assert [record["id"] for record in alice.get("?status=inactive").json()["listings"]] == [listing]
    assert alice.get("?status=deleted").json() == {"listings": []}
    assert alice.patch(f"/{listing}", json={"is_active": True}).status_code == 200
    assert [record["id"] for record in alice.get().json()["listings"]] == [listing]


def test_it_moves_updated_at(harness: Harness) -> None:
    key = harness.person("alice").key
    path = harness.fetch("POST", LISTINGS, key=key, json={"title": "t", "content": "c"}).headers["location"]
    harness.fetch("DELETE", path, key=key)
    harness.clock.advance(60)
    harness.fetch("POST", f"{path}/restore", key=key)
    assert harness.fetch("GET", path, key=key).json()["updated_at"] == "2026-09-21 14:14:20"


@pytest.mark.decision("G12")
@pytest.mark.parametrize("active", [True, False])
def test_what_is_not_deleted_stays_as_it_is(alice: Client, running: RunningService, *, active: bool) -> None:
    listing = alice.create(is_active=active)
    before = row_of(running, listing)
    assert alice.post(f"/{listing}/restore").status_code == 200
    assert row_of(running, listing) == before


def test_it_can_be_done_again_and_again(alice: Client) -> None:
    listing = alice.create()
    for _ in range(3):
        assert alice.delete(f"/{listing}").status_code == 200
        assert alice.get(f"/{listing}").status_code == 404
        assert [alice.post(f"/{listing}/restore").status_code for _ in range(2)] == [200, 200]
        assert alice.read(listing)["is_active"] is False


@pytest.mark.decision("G12")
def test_another_account_gets_403_and_changes_nothing(alice: Client, bob: Client, running: RunningService) -> None:
    for listing in (alice.create(), deleted(alice)):
        before = row_of(running, listing)
        response = bob.post(f"/{listing}/restore")
        assert (response.status_code, response.json()) == (403, {"error": "This listing belongs to another account"})
        assert row_of(running, listing) == before


@pytest.mark.parametrize("segment", ["1", "9223372036854775807", "0", "abc", "9223372036854775808", "01", "%20"])
def test_what_never_was_is_404(alice: Client, segment: str) -> None:
    response = alice.post(f"/{segment}/restore")
    assert (response.status_code, response.json()) == (404, {"error": "Listing not found"})


def test_an_expired_plan_gets_403(charlie: Client) -> None:
    assert charlie.post("/1025/restore").json() == {"error": "Business plan expired"}


@pytest.mark.parametrize("body", [b"", b"{", b'{"is_active": true}', b"x" * 3_000_000])
def test_a_body_is_ignored(alice: Client, body: bytes) -> None:
    listing = deleted(alice)
    assert alice.post(f"/{listing}/restore", content=body).status_code == 200
    assert alice.read(listing)["is_active"] is False


def test_it_is_a_post_and_nothing_else(alice: Client) -> None:
    path = f"/{deleted(alice)}/restore"
    for method in ("GET", "PUT", "PATCH", "DELETE"):
        response = alice.request(method, path)
        assert (response.status_code, response.headers["Allow"]) == (405, "POST")
    assert alice.post(f"{path}/").status_code == 200


@pytest.mark.decision("G12")
def test_an_update_does_not_restore(alice: Client) -> None:
    listing = deleted(alice)
    for body in ({"is_active": True}, {"deleted_at": None}):
        assert alice.patch(f"/{listing}", json=body).status_code == 404
