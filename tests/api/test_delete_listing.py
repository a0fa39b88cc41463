"""DELETE /api/v1/listings/{id}."""

import json

import pytest

from tests.api.helpers import get_ids, get_outcome, get_row
from tests.conftest import Client
from tests.harness import RunningService


@pytest.mark.decision("G14", "G15")
def test_a_delete_returns_200_and_a_message(alice: Client) -> None:
    response = alice.delete(f"/{alice.create()}")
    assert (response.status_code, response.json()) == (200, {"message": "listing deleted"})


@pytest.mark.decision("G11")
@pytest.mark.parametrize(
    ("method", "body"),
    [
        ("GET", None),
        ("HEAD", None),
        ("PUT", b'{"title": "Edited"}'),
        ("PATCH", b'{"is_active": true}'),
        ("PATCH", b"{}"),
        ("PATCH", b"{not json"),
        ("DELETE", None),
    ],
)
def test_a_deleted_listing_does_not_exist_for_its_owner(alice: Client, method: str, body: bytes | None) -> None:
    listing = alice.create()
    alice.delete(f"/{listing}")
    response = alice.request(method, f"/{listing}", content=body)
    assert get_outcome(response) == (404, "listing_not_found")
    assert method == "HEAD" or response.json() == {"error": "Listing not found"}


@pytest.mark.decision("G11")
@pytest.mark.every_engine
def test_the_row_remains_inactive_with_the_time_of_deletion(alice: Client, running: RunningService) -> None:
    listing = alice.create(title="Kept", price=5)
    before = get_row(running, listing)
    alice.delete(f"/{listing}")
    after = get_row(running, listing)
    assert (before.is_active, before.deleted_at) == (True, None)
    assert (after.is_active, after.title, after.price_cents) == (False, "Kept", 500)
    assert after.deleted_at is not None
    alice.delete(f"/{listing}")
    alice.patch(f"/{listing}", json={"title": "Changed"})
    assert get_row(running, listing) == after


@pytest.mark.decision("G20")
@pytest.mark.parametrize("body", [b"{not json", b"\xff", json.dumps({"id": 5}).encode(), b"x" * 2_000_000])
def test_a_body_is_ignored(alice: Client, body: bytes) -> None:
    existing, deleted = alice.create(), alice.create()
    assert alice.delete(f"/{deleted}", content=body).status_code == 200
    assert get_ids(alice.get()) == [existing]


@pytest.mark.decision("G7a")
@pytest.mark.every_engine
def test_the_id_of_a_deleted_listing_is_never_assigned_again(alice: Client) -> None:
    deleted = alice.create()
    alice.delete(f"/{deleted}")
    assert alice.create() > deleted
