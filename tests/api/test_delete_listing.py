"""DELETE /api/v1/listings/{id}."""

import json
from pathlib import Path

import pytest

from listings.domain.model import Listing
from tests.conftest import Client
from tests.harness import Harness, RunningService

LISTINGS = "/api/v1/listings"


@pytest.mark.decision("G14", "G15")
def test_the_owner_gets_200_and_a_message(alice: Client) -> None:
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
    assert (response.status_code, response.headers["X-Error-Code"]) == (404, "listing_not_found")
    assert method == "HEAD" or response.json() == {"error": "Listing not found"}


def test_an_inactive_listing_can_be_deleted(alice: Client) -> None:
    listing = alice.create(is_active=False)
    assert alice.delete(f"/{listing}").status_code == 200
    assert alice.get(f"/{listing}").status_code == 404


@pytest.mark.decision("G11")
def test_the_row_stays_inactive_and_with_its_time_of_deletion(alice: Client, running: RunningService) -> None:
    listing = alice.create(title="Kept", price=5)

    def row() -> Listing:
        found = running.run(lambda service: service.store.get_listing(listing))
        assert found is not None
        return found

    before = row()
    alice.delete(f"/{listing}")
    after = row()
    assert (before.is_active, before.deleted_at) == (True, None)
    assert (after.is_active, after.title, after.price_cents) == (False, "Kept", 500)
    assert after.deleted_at is not None
    alice.delete(f"/{listing}")
    alice.patch(f"/{listing}", json={"title": "Changed"})
    assert row() == after


def test_the_time_of_deletion_is_the_services(tmp_path: Path) -> None:
    with Harness(tmp_path) as harness:
        key = harness.person("alice").key
        listing = harness.fetch("POST", LISTINGS, key=key, json={"title": "a", "content": "b"}).json()["id"]
        harness.clock.advance(90.5)
        harness.fetch("DELETE", f"{LISTINGS}/{listing}", key=key)
        row = harness.run(harness.service.store.get_listing(listing))
        assert row is not None
        assert row.deleted_at == int(harness.clock.now)
        assert (row.created_at, row.updated_at) == ("2026-09-21 14:13:20", "2026-09-21 14:14:50")


def test_another_account_gets_403_and_deletes_nothing(alice: Client, bob: Client) -> None:
    listing = alice.create()
    record = alice.read(listing)
    response = bob.delete(f"/{listing}")
    assert (response.status_code, response.json()) == (403, {"error": "This listing belongs to another account"})
    assert response.headers["X-Error-Code"] == "not_owner"
    assert alice.read(listing) == record


def test_another_accounts_deleted_listing_looks_as_any_other_of_its_listings(alice: Client, bob: Client) -> None:
    kept, deleted = alice.create(), alice.create()
    alice.delete(f"/{deleted}")
    answers = [bob.delete(f"/{listing}") for listing in (kept, deleted)]
    assert answers[0].status_code == answers[1].status_code == 403
    assert answers[0].content == answers[1].content


def test_an_expired_plan_gets_403(charlie: Client) -> None:
    response = charlie.delete("/1025")
    assert (response.status_code, response.json()) == (403, {"error": "Business plan expired"})
    assert response.headers["X-Error-Code"] == "plan_expired"


@pytest.mark.parametrize("segment", ["1", "9223372036854775807", "9223372036854775808", "0", "01", "-1", "abc", "1.0"])
def test_what_was_never_given_or_is_no_id_does_not_exist(alice: Client, segment: str) -> None:
    response = alice.delete(f"/{segment}")
    assert (response.status_code, response.json()) == (404, {"error": "Listing not found"})


def test_a_trailing_slash_is_the_same_listing(alice: Client) -> None:
    listing = alice.create()
    assert alice.delete(f"/{listing}/").status_code == 200
    assert alice.get(f"/{listing}").status_code == 404


@pytest.mark.decision("G20")
@pytest.mark.parametrize("body", [b"{not json", b"\xff", json.dumps({"id": 5}).encode(), b"x" * 3_000_000])
def test_a_body_is_ignored(alice: Client, body: bytes) -> None:
    kept, deleted = alice.create(), alice.create()
    assert alice.delete(f"/{deleted}", content=body).status_code == 200
    assert [record["id"] for record in alice.get().json()["listings"]] == [kept]


@pytest.mark.decision("G7a")
def test_the_id_of_a_deleted_listing_is_never_given_again(alice: Client) -> None:
    deleted = alice.create()
    alice.delete(f"/{deleted}")
    assert alice.create() > deleted
