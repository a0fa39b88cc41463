"""GET /api/v1/listings/{id}."""

import pytest

from tests.conftest import Client

RECORD_FIELDS = [
    "id",
    "title",
    "content",
    "type",
    "category",
    "images",
    "price",
    "price_type",
    "location",
    "region",
    "is_active",
    "view_count",
    "created_at",
    "updated_at",
]


@pytest.mark.decision("G1")
def test_the_owner_reads_exactly_the_fourteen_fields_in_their_order(alice: Client) -> None:
    record = alice.read(alice.create(district="Te Aro", latitude=-41.3, longitude=174.8))
    assert list(record) == RECORD_FIELDS


def test_another_account_gets_403(alice: Client, bob: Client) -> None:
    response = bob.get(f"/{alice.create()}")
    assert (response.status_code, response.json()) == (403, {"error": "This listing belongs to another account"})
    assert response.headers["X-Error-Code"] == "not_owner"


@pytest.mark.decision("G11")
def test_another_accounts_deleted_listing_looks_as_any_other_of_its_listings(alice: Client, bob: Client) -> None:
    kept, deleted = alice.create(), alice.create()
    alice.delete(f"/{deleted}")
    answers = [bob.get(f"/{listing}") for listing in (kept, deleted)]
    assert answers[0].status_code == answers[1].status_code == 403
    assert answers[0].content == answers[1].content


def test_an_expired_plan_gets_403(charlie: Client) -> None:
    response = charlie.get("/1025")
    assert (response.status_code, response.json()) == (403, {"error": "Business plan expired"})
    assert response.headers["X-Error-Code"] == "plan_expired"


@pytest.mark.parametrize(
    "segment", ["0", "01", "-1", "+1", "1.0", "1e3", "abc", "%20", "1%20", "٣", "9223372036854775808", "9" * 30]
)
def test_what_is_no_id_does_not_exist(alice: Client, segment: str) -> None:
    response = alice.get(f"/{segment}")
    assert (response.status_code, response.json()) == (404, {"error": "Listing not found"})


@pytest.mark.parametrize("segment", ["1", "9223372036854775807", "1048575"])
def test_an_id_that_was_never_given_does_not_exist(alice: Client, segment: str) -> None:
    assert alice.get(f"/{segment}").status_code == 404


def test_a_trailing_slash_is_the_same_listing(alice: Client) -> None:
    listing = alice.create()
    assert alice.get(f"/{listing}/").content == alice.get(f"/{listing}").content


def test_head_answers_as_get_without_the_body(alice: Client) -> None:
    listing = alice.create()
    head, get = alice.request("HEAD", f"/{listing}"), alice.get(f"/{listing}")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["Content-Length"] == get.headers["Content-Length"]


def test_a_body_is_ignored(alice: Client) -> None:
    response = alice.get(f"/{alice.create()}", content=b"{not json" * 50_000)
    assert response.status_code == 200
