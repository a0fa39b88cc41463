"""PUT and PATCH /api/v1/listings/{id}, which are the same operation.

Tests whose route matters send both methods; the others send PATCH.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from listings.domain.model import Listing
from tests.api.helpers import ALL_FIELDS, HIDDEN_FIELDS, LISTINGS, STRICT, assert_error, get_row
from tests.conftest import Client
from tests.harness import Harness, RunningService

pytestmark = pytest.mark.uncovered

CLEARED = {"category": "", "images": [], "price": 0, "price_type": "fixed", "location": "", "region": ""}
by_both_methods = pytest.mark.parametrize("method", ["PUT", "PATCH"])


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


@pytest.mark.decision("G5")
@pytest.mark.parametrize(("name", "empty"), CLEARED.items())
def test_null_clears_an_optional_field(alice: Client, name: str, empty: object) -> None:
    listing = alice.create(**ALL_FIELDS)
    before = alice.read(listing)
    assert alice.patch(f"/{listing}", json={name: None}).status_code == 200
    assert {**alice.read(listing), "updated_at": None} == {**before, name: empty, "updated_at": None}


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


@pytest.mark.decision("G6")
@by_both_methods
def test_strict_handling_rejects_unknown_fields(alice: Client, method: str) -> None:
    listing = alice.create()
    before = alice.read(listing)
    response = alice.request(method, f"/{listing}", json={"title": "New", "id": listing}, headers=STRICT)
    assert_error(response, 400, "invalid_request", '"id" is not a field that can be set')
    assert alice.read(listing) == before


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
        reply = self._harness.fetch("PATCH", self._path, key=self._key, body=msgspec.json.encode(fields))
        assert reply.status == 200, reply.body
        return self.read()


@pytest.fixture
def editor(harness: Harness) -> Editor:
    """Edits a listing with a value in every field."""
    return Editor(harness, ALL_FIELDS)


@pytest.mark.decision("G7")
def test_the_same_value_again_changes_nothing(editor: Editor) -> None:
    before = editor.read()
    for name, value in ALL_FIELDS.items():
        editor.clock.advance(100)
        assert editor.edit(**{name: value}) == before, name


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
