"""PUT and PATCH /api/v1/listings/{id}, which are the same operation.

Tests whose route matters send both methods; the others send PATCH.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from listings.domain.model import Listing
from tests.api.helpers import (
    ALL_FIELDS,
    HIDDEN_FIELDS,
    LISTINGS,
    STRICT,
    VISIBLE_FIELDS,
    assert_error,
    assert_not_found,
    assert_not_owner,
    get_row,
)
from tests.conftest import Client
from tests.harness import Harness, RunningService

pytestmark = pytest.mark.uncovered

CLEARED = {"category": "", "images": [], "price": 0, "price_type": "fixed", "location": "", "region": ""}
by_both_methods = pytest.mark.parametrize("method", ["PUT", "PATCH"])


# Changes


@pytest.mark.decision("G14", "G15")
@by_both_methods
def test_an_update_returns_200_and_a_message(alice: Client, method: str) -> None:
    response = alice.request(method, f"/{alice.create()}", json={"price": 5})
    assert (response.status_code, response.json()) == (200, {"message": "listing updated"})


@pytest.mark.decision("G18")
@by_both_methods
def test_an_update_leaves_other_fields_alone(alice: Client, method: str) -> None:
    listing = alice.create(**ALL_FIELDS)
    before = alice.read(listing)
    assert alice.request(method, f"/{listing}", json={"price": 5}).status_code == 200
    assert {**alice.read(listing), "updated_at": None} == {**before, "price": 5, "updated_at": None}


@pytest.mark.decision("G18")
@pytest.mark.every_engine
def test_each_field_can_be_changed_alone(alice: Client, running: RunningService) -> None:
    for name, value in ALL_FIELDS.items():
        listing = alice.create()
        before, row = alice.read(listing), get_row(running, listing)
        assert alice.patch(f"/{listing}", json={name: value}).status_code == 200
        visible = {} if name in HIDDEN_FIELDS else {name: value}
        assert {**alice.read(listing), "updated_at": None} == {**before, **visible, "updated_at": None}
        after = get_row(running, listing)
        changed = {field for field in Listing.__struct_fields__ if getattr(after, field) != getattr(row, field)}
        assert changed - {"updated_at"} == {"version", "price_cents" if name == "price" else name}


@by_both_methods
def test_all_fields_can_be_changed_together(alice: Client, running: RunningService, method: str) -> None:
    listing = alice.create()
    alice.request(method, f"/{listing}", json=ALL_FIELDS)
    record, row = alice.read(listing), get_row(running, listing)
    assert {name: record[name] for name in VISIBLE_FIELDS} == VISIBLE_FIELDS
    assert (row.district, row.latitude, row.longitude) == ("Te Aro", -41.29, 174.78)


def test_other_fields_are_updated_together_with_is_active(alice: Client) -> None:
    listing = alice.create(price=5)
    alice.patch(f"/{listing}", json={"is_active": False, "price": 4.5, "title": "Sold"})
    record = alice.read(listing)
    assert (record["is_active"], record["price"], record["title"]) == (False, 4.5, "Sold")


@pytest.mark.decision("G10")
@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("before", [True, False])
def test_is_active_can_be_set_repeatedly(alice: Client, *, flag: bool, before: bool) -> None:
    listing = alice.create(is_active=before)
    for _ in range(2):
        assert alice.patch(f"/{listing}", json={"is_active": flag}).status_code == 200
        assert alice.read(listing)["is_active"] is flag


# Empty values and null


@pytest.mark.decision("G5")
@pytest.mark.parametrize(("name", "empty"), CLEARED.items())
def test_null_clears_an_optional_field(alice: Client, name: str, empty: object) -> None:
    listing = alice.create(**ALL_FIELDS)
    before = alice.read(listing)
    assert alice.patch(f"/{listing}", json={name: None}).status_code == 200
    assert {**alice.read(listing), "updated_at": None} == {**before, name: empty, "updated_at": None}


def test_null_clears_the_hidden_fields(alice: Client, running: RunningService) -> None:
    listing = alice.create(**ALL_FIELDS)
    assert alice.patch(f"/{listing}", json=dict.fromkeys(HIDDEN_FIELDS)).status_code == 200
    row = get_row(running, listing)
    assert (row.district, row.latitude, row.longitude) == ("", None, None)


def test_empty_values_clear_a_field_as_null_does(alice: Client) -> None:
    listing = alice.create(**ALL_FIELDS)
    empty = {name: value for name, value in CLEARED.items() if name != "price_type"}
    assert alice.patch(f"/{listing}", json=empty).status_code == 200
    record = alice.read(listing)
    assert {name: record[name] for name in empty} == empty


# Rejected bodies


@pytest.mark.decision("G18")
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"title": None}, "title must be a string, got null"),
        ({"content": "\n "}, "content is required and must not be blank"),
        ({"type": None}, "type must be one of product, service, rental, job, got null"),
        ({"price": 1.999}, "price must have at most two decimals, got 1.999"),
        ({"latitude": -90.5}, "latitude must be from -90 to 90, got -90.5"),
        ({"images": "1.jpg"}, "images must be an array of URLs, got a string"),
        ({"is_active": 1}, "is_active must be true or false, got 1"),
        (
            {"title": "Good", "region": 5, "price": 12, "type": "car"},
            'type must be one of product, service, rental, job, got "car"; region must be a string, got a number',
        ),
    ],
)
def test_one_bad_field_rejects_the_whole_update(
    alice: Client, running: RunningService, body: Mapping[str, object], message: str
) -> None:
    listing = alice.create()
    before = get_row(running, listing)
    assert_error(alice.patch(f"/{listing}", json=body), 400, "invalid_request", message)
    assert get_row(running, listing) == before


# The listing is checked before the body (decision G21)


BODIES = {
    "valid": b'{"title": "Taken"}',
    "empty_object": b"{}",
    "bad_field": b'{"price": -1}',
    "malformed": b"{not json",
    "no_body": b"",
    "array": b"[]",
    "invalid_utf_8": b'{"title": "\xff"}',
    "too_deep": b'{"a":' + b"[" * 100_000,
}
with_every_body = pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
with_some_bodies = pytest.mark.parametrize(
    "body", [BODIES["valid"], BODIES["bad_field"], BODIES["malformed"]], ids=["valid", "bad_field", "malformed"]
)


@with_every_body
def test_a_listing_of_another_account_is_rejected_and_unchanged(
    alice: Client, bob: Client, running: RunningService, body: bytes
) -> None:
    listing = alice.create()
    before = get_row(running, listing)
    assert_not_owner(bob.patch(f"/{listing}", content=body))
    assert get_row(running, listing) == before


@with_some_bodies
def test_a_deleted_listing_of_another_account_looks_like_any_other(alice: Client, bob: Client, body: bytes) -> None:
    existing, deleted = alice.create(), alice.create()
    alice.delete(f"/{deleted}")
    responses = [bob.patch(f"/{listing}", content=body) for listing in (existing, deleted)]
    assert responses[0].status_code == responses[1].status_code == 403
    assert responses[0].content == responses[1].content


@with_some_bodies
def test_a_deleted_listing_does_not_exist_for_its_owner(alice: Client, body: bytes) -> None:
    listing = alice.create()
    alice.delete(f"/{listing}")
    assert_not_found(alice.patch(f"/{listing}", content=body))


@pytest.mark.decision("G11")
def test_an_update_cannot_restore_a_listing(alice: Client, running: RunningService) -> None:
    listing = alice.create()
    alice.delete(f"/{listing}")
    before = get_row(running, listing)
    response = alice.patch(f"/{listing}", json={"is_active": True, "deleted_at": None})
    assert response.status_code == 404
    assert get_row(running, listing) == before


# Ignored fields


@pytest.mark.decision("G6")
def test_read_only_fields_are_ignored_and_named(alice: Client, running: RunningService) -> None:
    listing = alice.create()
    before = get_row(running, listing)
    body = {
        "id": 5,
        "view_count": 9,
        "created_at": "2001-01-01 00:00:00",
        "updated_at": None,
        "account_id": 1,
        "deleted_at": 1,
        "version": 0,
        "price_cents": 5,
        "is_active; --": 1,
    }
    response = alice.patch(f"/{listing}", json=body)
    assert response.status_code == 200
    names = "id, view_count, created_at, updated_at, account_id, deleted_at, version, price_cents, is_active%3B%20--"
    assert response.headers["X-Ignored-Fields"] == names
    assert get_row(running, listing) == before


# Strict handling


@pytest.mark.decision("G6")
@by_both_methods
def test_strict_handling_rejects_unknown_fields(alice: Client, method: str) -> None:
    listing = alice.create()
    before = alice.read(listing)
    response = alice.request(method, f"/{listing}", json={"title": "New", "id": listing}, headers=STRICT)
    assert_error(response, 400, "invalid_request", '"id" is not a field that can be set')
    assert alice.read(listing) == before


# Form of the request


# updated_at (decision G7)


class Editor:
    """Edits one listing of alice's; the test sets the clock between the edits."""

    def __init__(self, harness: Harness, fields: Mapping[str, object]) -> None:
        self.clock = harness.clock
        self._harness = harness
        self._key = harness.person("alice").key
        body = {"title": "Bicycle", "content": "Two wheels.", **fields}
        self._path = harness.fetch("POST", LISTINGS, key=self._key, json=body).headers["location"]

    def read(self) -> dict[str, Any]:
        record: dict[str, Any] = self._harness.fetch("GET", self._path, key=self._key).json()
        return record

    def edit(self, **fields: object) -> dict[str, Any]:
        """Update the listing and return its record."""
        reply = self._harness.fetch("PATCH", self._path, key=self._key, body=msgspec.json.encode(fields))
        assert reply.status == 200, reply.body
        return self.read()


@pytest.fixture
def editor(harness: Harness) -> Editor:
    """Edits a listing with a value in every field."""
    return Editor(harness, ALL_FIELDS)


@pytest.mark.decision("G7")
def test_a_change_moves_updated_at_and_not_created_at(editor: Editor) -> None:
    editor.clock.advance(100)
    record = editor.edit(price=20)
    assert (record["created_at"], record["updated_at"]) == ("2026-09-21 14:13:20", "2026-09-21 14:15:00")


@pytest.mark.parametrize("name", HIDDEN_FIELDS)
def test_a_change_of_a_hidden_field_moves_updated_at(editor: Editor, name: str) -> None:
    editor.clock.advance(100)
    assert editor.edit(**{name: None})["updated_at"] == "2026-09-21 14:15:00"


@pytest.mark.decision("G7")
def test_the_same_value_again_changes_nothing(editor: Editor) -> None:
    before = editor.read()
    for name, value in ALL_FIELDS.items():
        editor.clock.advance(100)
        assert editor.edit(**{name: value}) == before, name


@pytest.mark.parametrize("price", [19.99, 19.990000000000002, 19.9900001])
def test_a_price_of_the_same_cents_changes_nothing(editor: Editor, price: float) -> None:
    before = editor.edit(price=19.99)
    editor.clock.advance(100)
    assert editor.edit(price=price) == before


@pytest.mark.decision("G18")
def test_an_empty_object_changes_nothing(editor: Editor) -> None:
    before = editor.read()
    editor.clock.advance(100)
    assert editor.edit() == before


def test_ignored_fields_alone_change_nothing(editor: Editor) -> None:
    before = editor.read()
    editor.clock.advance(100)
    assert editor.edit(colour="red", updated_at="2001-01-01 00:00:00") == before


@pytest.mark.parametrize(
    "given",
    [ALL_FIELDS, {}, {"price": 0.1 + 0.2, "images": ['https://a.example/"é"/\u00fc']}],
    ids=["all fields", "none", "noise and quotes"],
)
def test_a_record_that_is_sent_back_changes_nothing(harness: Harness, given: Mapping[str, object]) -> None:
    editor = Editor(harness, given)
    before = editor.read()
    editor.clock.advance(100)
    assert editor.edit(**before) == before


@pytest.mark.decision("G7")
def test_updated_at_never_goes_back_when_the_clock_does(editor: Editor) -> None:
    editor.clock.advance(100)
    editor.edit(title="Later")
    editor.clock.advance(-3600)
    record = editor.edit(title="Earlier")
    assert (record["title"], record["updated_at"]) == ("Earlier", "2026-09-21 14:15:00")
    editor.clock.advance(7200)
    assert editor.edit(title="Last")["updated_at"] == "2026-09-21 15:15:00"


def test_a_rejected_update_changes_nothing(editor: Editor, harness: Harness) -> None:
    before = editor.read()
    editor.clock.advance(100)
    key = harness.person("bob").key
    harness.fetch("PATCH", f"{LISTINGS}/{before['id']}", key=key, json={"title": "Taken"})
    assert editor.read() == before
