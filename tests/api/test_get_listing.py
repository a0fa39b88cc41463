"""GET /api/v1/listings/{id}."""

import pytest

from tests.api.helpers import RECORD_FIELDS, assert_not_found, assert_not_owner, assert_plan_expired
from tests.conftest import Client


@pytest.mark.decision("G1")
@pytest.mark.every_engine
def test_a_record_has_exactly_the_fourteen_fields_in_order(alice: Client) -> None:
    record = alice.read(alice.create(district="Te Aro", latitude=-41.3, longitude=174.8))
    assert list(record) == RECORD_FIELDS


def test_a_listing_of_another_account_is_rejected(alice: Client, bob: Client) -> None:
    assert_not_owner(bob.get(f"/{alice.create()}"))


@pytest.mark.decision("G11")
@pytest.mark.every_engine
def test_a_deleted_listing_of_another_account_looks_like_any_other(alice: Client, bob: Client) -> None:
    existing, deleted = alice.create(), alice.create()
    alice.delete(f"/{deleted}")
    responses = [bob.get(f"/{listing}") for listing in (existing, deleted)]
    assert responses[0].status_code == responses[1].status_code == 403
    assert responses[0].content == responses[1].content


def test_an_expired_plan_is_rejected(charlie: Client) -> None:
    assert_plan_expired(charlie.get("/1025"))


@pytest.mark.parametrize(
    "segment", ["0", "01", "-1", "+1", "1.0", "1e3", "abc", "%20", "1%20", "٣", "9223372036854775808", "9" * 30]
)
def test_an_invalid_id_does_not_exist(alice: Client, segment: str) -> None:
    assert_not_found(alice.get(f"/{segment}"))


@pytest.mark.every_engine
@pytest.mark.parametrize("segment", ["1", "9223372036854775807", "1048575"])
def test_an_unknown_id_does_not_exist(alice: Client, segment: str) -> None:
    assert_not_found(alice.get(f"/{segment}"))


def test_a_trailing_slash_means_the_same_listing(alice: Client) -> None:
    listing = alice.create()
    assert alice.get(f"/{listing}/").content == alice.get(f"/{listing}").content


def test_head_returns_the_headers_of_get_without_the_body(alice: Client) -> None:
    listing = alice.create()
    head, get = alice.request("HEAD", f"/{listing}"), alice.get(f"/{listing}")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["Content-Length"] == get.headers["Content-Length"]


def test_a_body_is_ignored(alice: Client) -> None:
    response = alice.get(f"/{alice.create()}", content=b"{not json" * 50_000)
    assert response.status_code == 200
