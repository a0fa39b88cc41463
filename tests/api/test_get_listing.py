"""GET /api/v1/listings/{id}."""

import pytest

from tests.api.helpers import RECORD_FIELDS, assert_not_owner, get_state
from tests.conftest import Client


@pytest.mark.decision("G1")
def test_a_record_has_exactly_the_fourteen_fields_in_order(alice: Client) -> None:
    record = alice.read(alice.create(district="Te Aro", latitude=-41.3, longitude=174.8))
    assert list(record) == RECORD_FIELDS


@pytest.mark.decision("G8")
def test_reading_does_not_count_as_a_view(alice: Client) -> None:
    listing = alice.create()
    alice.read(listing)
    assert alice.get().json()["listings"][0]["view_count"] == 0
    assert alice.read(listing)["view_count"] == 0


@pytest.mark.decision("G11")
@pytest.mark.parametrize("body", [b'{"title": "Taken"}', b'{"price": -1}', b"{not json"])
@pytest.mark.parametrize(
    ("method", "end"), [("GET", ""), ("PUT", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/restore")]
)
def test_another_account_learns_and_changes_nothing(
    alice: Client, bob: Client, method: str, end: str, body: bytes
) -> None:
    existing, deleted = alice.create(), alice.create()
    alice.delete(f"/{deleted}")
    before = get_state(alice)
    for listing in (existing, deleted):
        assert_not_owner(bob.request(method, f"/{listing}{end}", content=body))
    assert get_state(alice) == before
