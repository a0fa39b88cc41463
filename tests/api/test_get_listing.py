"""GET /api/v1/listings/{id}."""

import pytest

from tests.api.helpers import RECORD_FIELDS, assert_not_found, assert_not_owner
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


def test_a_listing_of_another_account_is_rejected(alice: Client, bob: Client) -> None:
    assert_not_owner(bob.get(f"/{alice.create()}"))


@pytest.mark.decision("G11")
def test_a_deleted_listing_of_another_account_looks_like_any_other(alice: Client, bob: Client) -> None:
    existing, deleted = alice.create(), alice.create()
    alice.delete(f"/{deleted}")
    responses = [bob.get(f"/{listing}") for listing in (existing, deleted)]
    assert responses[0].status_code == responses[1].status_code == 403
    assert responses[0].content == responses[1].content


@pytest.mark.parametrize("segment", ["1", "9223372036854775807", "1048575"])
def test_an_unknown_id_does_not_exist(alice: Client, segment: str) -> None:
    assert_not_found(alice.get(f"/{segment}"))


def test_a_body_is_ignored(alice: Client) -> None:
    response = alice.get(f"/{alice.create()}", content=b"{not json" * 50_000)
    assert response.status_code == 200
