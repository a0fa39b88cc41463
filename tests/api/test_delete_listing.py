"""DELETE /api/v1/listings/{id}."""

import json

import pytest

from tests.api.helpers import get_ids, get_row
from tests.conftest import Client
from tests.harness import RunningService


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
