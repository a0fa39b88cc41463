"""POST /api/v1/listings/{id}/restore (decision G12)."""

import pytest

from tests.api.helpers import LISTINGS, get_row
from tests.conftest import Client
from tests.harness import Harness, RunningService


def create_deleted(client: Client, **fields: object) -> int:
    """Create and delete a listing; return its id."""
    listing = client.create(**fields)
    assert client.delete(f"/{listing}").status_code == 200
    return listing


def test_a_restore_returns_200_a_message_and_the_etag(alice: Client) -> None:
    listing = create_deleted(alice)
    response = alice.post(f"/{listing}/restore")
    assert (response.status_code, response.json()) == (200, {"message": "listing restored"})
    assert response.headers["ETag"] == alice.get(f"/{listing}").headers["ETag"]


@pytest.mark.decision("G12")
def test_a_restored_listing_is_inactive_and_otherwise_unchanged(alice: Client, running: RunningService) -> None:
    listing = alice.create(price=5, images=["/1.jpg"], district="Te Aro", latitude=-41.3)
    before = alice.get(f"/{listing}?include=all").json()
    alice.delete(f"/{listing}")
    alice.post(f"/{listing}/restore")
    after = alice.get(f"/{listing}?include=all,deleted_at").json()
    assert after == {**before, "is_active": False, "deleted_at": None, "updated_at": after["updated_at"]}
    assert get_row(running, listing).deleted_at is None


def test_a_restore_moves_updated_at(harness: Harness) -> None:
    key = harness.person("alice").key
    path = harness.fetch("POST", LISTINGS, key=key, json={"title": "t", "content": "c"}).headers["location"]
    harness.fetch("DELETE", path, key=key)
    harness.clock.advance(60)
    harness.fetch("POST", f"{path}/restore", key=key)
    assert harness.fetch("GET", path, key=key).json()["updated_at"] == "2026-09-21 14:14:20"


@pytest.mark.decision("G12")
@pytest.mark.parametrize("active", [True, False])
def test_a_listing_that_is_not_deleted_is_unchanged(alice: Client, running: RunningService, *, active: bool) -> None:
    listing = alice.create(is_active=active)
    before = get_row(running, listing)
    assert alice.post(f"/{listing}/restore").status_code == 200
    assert get_row(running, listing) == before
