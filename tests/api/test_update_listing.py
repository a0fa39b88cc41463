"""PUT and PATCH /api/v1/listings/{id}: one and the same."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from listings.domain.model import Listing
from tests.conftest import Client
from tests.harness import Harness, RunningService

LISTINGS = "/api/v1/listings"
EVERYTHING = {
    "title": "Städtefahrrad 🚲",
    "content": "Zwei Räder.",
    "type": "rental",
    "category": "Bicycles",
    "images": ["https://pictures.example/2.jpg", "/uploads/1.jpg"],
    "price": 19.99,
    "price_type": "per_night",
    "location": "12 Cuba Street",
    "region": "Wellington",
    "district": "Te Aro",
    "latitude": -41.29,
    "longitude": 174.78,
    "is_active": False,
}
NOT_SHOWN = ("district", "latitude", "longitude")
EMPTY = {"category": "", "images": [], "price": 0, "price_type": "fixed", "location": "", "region": ""}


@pytest.fixture(params=["PUT", "PATCH"])
def method(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def row_of(running: RunningService, listing_id: int) -> Listing:
    found = running.run(lambda service: service.store.get_listing(listing_id))
    assert found is not None
    return found


# What changes


@pytest.mark.decision("G14", "G15")
def test_the_owner_gets_200_and_a_message(alice: Client, method: str) -> None:
    response = alice.request(method, f"/{alice.create()}", json={"price": 5})
    assert (response.status_code, response.json()) == (200, {"message": "listing updated"})


@pytest.mark.decision("G18")
@pytest.mark.parametrize(("name", "value"), EVERYTHING.items())
def test_each_field_can_be_changed_and_no_other_changes(
    alice: Client, running: RunningService, method: str, name: str, value: object
) -> None:
    listing = alice.create()
    before, row = alice.read(listing), row_of(running, listing)
    assert alice.request(method, f"/{listing}", json={name: value}).status_code == 200
    after = alice.read(listing)
    assert {**after, "updated_at": None} == {
        **before,
        **({} if name in NOT_SHOWN else {name: value}),
        "updated_at": None,
    }
    changed = {
        field for field in Listing.__struct_fields__ if getattr(row_of(running, listing), field) != getattr(row, field)
    }
    assert changed - {"updated_at"} == {"version", "price_cents" if name == "price" else name}


def test_everything_can_be_changed_at_once(alice: Client, running: RunningService, method: str) -> None:
    listing = alice.create()
    alice.request(method, f"/{listing}", json=EVERYTHING)
    record, row = alice.read(listing), row_of(running, listing)
    shown = {name: value for name, value in EVERYTHING.items() if name not in NOT_SHOWN}
    assert {name: record[name] for name in shown} == shown
    assert (row.district, row.latitude, row.longitude) == ("Te Aro", -41.29, 174.78)


def test_other_fields_are_updated_together_with_is_active(alice: Client, method: str) -> None:
    listing = alice.create(price=5)
    alice.request(method, f"/{listing}", json={"is_active": False, "price": 4.5, "title": "Sold"})
    record = alice.read(listing)
    assert (record["is_active"], record["price"], record["title"]) == (False, 4.5, "Sold")


@pytest.mark.decision("G10")
@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("before", [True, False])
def test_is_active_can_be_set_either_way_again_and_again(
    alice: Client, method: str, *, flag: bool, before: bool
) -> None:
    listing = alice.create(is_active=before)
    for _ in range(2):
        assert alice.request(method, f"/{listing}", json={"is_active": flag}).status_code == 200
        assert alice.read(listing)["is_active"] is flag


@pytest.mark.decision("G35")
def test_updates_of_different_fields_at_the_same_time_all_last(alice: Client, method: str) -> None:
    listing = alice.create()
    with ThreadPoolExecutor(8) as pool:
        answers = pool.map(
            lambda item: alice.request(method, f"/{listing}", json=dict([item])).status_code, EVERYTHING.items()
        )
        assert set(answers) == {200}
    record = alice.read(listing)
    assert {name: record[name] for name in EVERYTHING if name not in NOT_SHOWN} == {
        name: value for name, value in EVERYTHING.items() if name not in NOT_SHOWN
    }


# Empty values and null


@pytest.mark.decision("G5")
@pytest.mark.parametrize(("name", "empty"), EMPTY.items())
def test_null_clears_an_optional_field(alice: Client, method: str, name: str, empty: object) -> None:
    listing = alice.create(**EVERYTHING)
    before = alice.read(listing)
    assert alice.request(method, f"/{listing}", json={name: None}).status_code == 200
    assert {**alice.read(listing), "updated_at": None} == {**before, name: empty, "updated_at": None}


def test_null_clears_the_fields_that_are_not_shown(alice: Client, running: RunningService, method: str) -> None:
    listing = alice.create(**EVERYTHING)
    assert alice.request(method, f"/{listing}", json=dict.fromkeys(NOT_SHOWN)).status_code == 200
    row = row_of(running, listing)
    assert (row.district, row.latitude, row.longitude) == ("", None, None)


@pytest.mark.parametrize(("name", "empty"), [item for item in EMPTY.items() if item[0] != "price_type"])
def test_an_empty_value_clears_as_null_does(alice: Client, method: str, name: str, empty: object) -> None:
    listing = alice.create(**EVERYTHING)
    assert alice.request(method, f"/{listing}", json={name: empty}).status_code == 200
    assert alice.read(listing)[name] == empty


# What is refused


@pytest.mark.decision("G18")
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"title": None}, "title must be a string, got null"),
        ({"content": None}, "content must be a string, got null"),
        ({"type": None}, "type must be one of product, service, rental, job, got null"),
        ({"is_active": None}, "is_active must be true or false, got null"),
        ({"title": ""}, "title is required and must not be blank"),
        ({"content": "\n "}, "content is required and must not be blank"),
        ({"type": ""}, 'type must be one of product, service, rental, job, got ""'),
        ({"price_type": ""}, 'price_type must be one of fixed, negotiable, per_hour, per_night, got ""'),
        ({"price": "5"}, 'price must be a number, got "5": remove the quotes'),
        ({"price": 1.999}, "price must have at most two decimals, got 1.999"),
        ({"latitude": -90.5}, "latitude must be from -90 to 90, got -90.5"),
        ({"longitude": True}, "longitude must be a number, got true"),
        ({"images": "1.jpg"}, "images must be an array of URLs, got a string"),
        ({"is_active": 1}, "is_active must be true or false, got 1"),
        ({"title": "Good", "region": 5, "price": 12, "type": "car"}, None),
    ],
)
def test_one_bad_field_refuses_the_whole_update(
    alice: Client, running: RunningService, method: str, body: Mapping[str, object], message: str | None
) -> None:
    listing = alice.create()
    before = row_of(running, listing)
    response = alice.request(method, f"/{listing}", json=body)
    several = 'region must be a string, got a number; type must be one of product, service, rental, job, got "car"'
    assert (response.status_code, response.json()) == (400, {"error": message or several})
    assert response.headers["X-Error-Code"] == "invalid_request"
    assert row_of(running, listing) == before


@pytest.mark.decision("G18")
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'"text"', b"5", b'{"title": "a",}', b"\xff"])
def test_a_body_that_is_no_json_object_is_refused(alice: Client, method: str, body: bytes) -> None:
    listing = alice.create()
    before = alice.read(listing)
    response = alice.request(method, f"/{listing}", content=body)
    assert (response.status_code, response.headers["X-Error-Code"]) == (400, "malformed_json")
    assert alice.read(listing) == before


# Whose it is comes before what is sent (decision G21)


BODIES = {
    "sound": b'{"title": "Taken"}',
    "empty_object": b"{}",
    "bad_field": b'{"price": -1}',
    "malformed": b"{not json",
    "no_body": b"",
    "no_object": b"[]",
    "no_utf8": b'{"title": "\xff"}',
    "too_deep": b'{"a":' + b"[" * 100_000,
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_another_account_gets_403_and_changes_nothing(
    alice: Client, bob: Client, running: RunningService, method: str, body: bytes
) -> None:
    listing = alice.create()
    before = row_of(running, listing)
    response = bob.request(method, f"/{listing}", content=body)
    assert (response.status_code, response.json()) == (403, {"error": "This listing belongs to another account"})
    assert response.headers["X-Error-Code"] == "not_owner"
    assert row_of(running, listing) == before


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_another_accounts_deleted_listing_looks_as_any_other_of_its_listings(
    alice: Client, bob: Client, method: str, body: bytes
) -> None:
    kept, deleted = alice.create(), alice.create()
    alice.delete(f"/{deleted}")
    answers = [bob.request(method, f"/{listing}", content=body) for listing in (kept, deleted)]
    assert answers[0].status_code == answers[1].status_code == 403
    assert answers[0].content == answers[1].content


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_what_was_never_given_or_is_no_id_does_not_exist(alice: Client, method: str, body: bytes) -> None:
    for segment in ("1", "9223372036854775807", "9223372036854775808", "0", "01", "abc", "1.0"):
        response = alice.request(method, f"/{segment}", content=body)
        assert (response.status_code, response.json()) == (404, {"error": "Listing not found"})
        assert response.headers["X-Error-Code"] == "listing_not_found"


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_ones_own_deleted_listing_does_not_exist(alice: Client, method: str, body: bytes) -> None:
    listing = alice.create()
    alice.delete(f"/{listing}")
    response = alice.request(method, f"/{listing}", content=body)
    assert (response.status_code, response.json()) == (404, {"error": "Listing not found"})


@pytest.mark.decision("G11")
def test_an_update_can_not_undelete(alice: Client, running: RunningService, method: str) -> None:
    listing = alice.create()
    alice.delete(f"/{listing}")
    before = row_of(running, listing)
    response = alice.request(method, f"/{listing}", json={"is_active": True, "deleted_at": None})
    assert response.status_code == 404
    assert row_of(running, listing) == before


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_an_expired_plan_gets_403(charlie: Client, method: str, body: bytes) -> None:
    response = charlie.request(method, "/1025", content=body)
    assert (response.status_code, response.json()) == (403, {"error": "Business plan expired"})
    assert response.headers["X-Error-Code"] == "plan_expired"


# Keys that can't be set


@pytest.mark.decision("G6")
def test_what_only_the_service_sets_is_ignored_and_named(alice: Client, running: RunningService, method: str) -> None:
    listing = alice.create()
    before = row_of(running, listing)
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
    response = alice.request(method, f"/{listing}", json=body)
    assert response.status_code == 200
    names = "id, view_count, created_at, updated_at, account_id, deleted_at, version, price_cents, is_active%3B%20--"
    assert response.headers["X-Ignored-Fields"] == names
    assert row_of(running, listing) == before


def test_ignored_keys_are_named_percent_encoded_and_twenty_at_most(alice: Client, method: str) -> None:
    listing = alice.create()
    response = alice.request(method, f"/{listing}", json={"ключ, 1": 1, **{f"key{n}": n for n in range(30)}})
    names = response.headers["X-Ignored-Fields"].split(", ")
    assert names == ["%D0%BA%D0%BB%D1%8E%D1%87%2C%201", *(f"key{n}" for n in range(19))]


@pytest.mark.decision("G6")
def test_strict_handling_refuses_keys_that_can_not_be_set(alice: Client, method: str) -> None:
    listing = alice.create()
    before = alice.read(listing)
    strict = {"Prefer": "handling=strict"}
    response = alice.request(method, f"/{listing}", json={"title": "New", "id": listing}, headers=strict)
    assert (response.status_code, response.json()) == (400, {"error": '"id" is not a field that can be set'})
    assert alice.read(listing) == before


def test_strict_handling_takes_a_sound_body_and_says_that_it_was_strict(alice: Client, method: str) -> None:
    strict = {"Prefer": "handling=strict"}
    response = alice.request(method, f"/{alice.create()}", json={"title": "New"}, headers=strict)
    assert (response.status_code, response.headers["Preference-Applied"]) == (200, "handling=strict")


def test_strict_handling_refuses_a_relative_image(alice: Client, method: str) -> None:
    listing = alice.create()
    strict = {"Prefer": "handling=strict"}
    response = alice.request(method, f"/{listing}", json={"images": ["1.jpg"]}, headers=strict)
    message = 'images[0] must be an absolute http or https URL, got "1.jpg"'
    assert (response.status_code, response.json()) == (400, {"error": message})
    assert alice.read(listing)["images"] == []


# The form of the request


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/merge-patch+json"])
def test_the_content_type_is_not_enforced(alice: Client, method: str, content_type: str | None) -> None:
    listing = alice.create()
    headers = {"Content-Type": content_type} if content_type is not None else {}
    assert alice.request(method, f"/{listing}", content=b'{"title": "New"}', headers=headers).status_code == 200
    assert alice.read(listing)["title"] == "New"


def test_of_duplicate_keys_the_last_wins(alice: Client, method: str) -> None:
    listing = alice.create()
    alice.request(method, f"/{listing}", content=b'{"title": "first", "title": "last"}')
    assert alice.read(listing)["title"] == "last"


def test_a_trailing_slash_is_the_same_listing(alice: Client, method: str) -> None:
    listing = alice.create()
    assert alice.request(method, f"/{listing}/", json={"title": "New"}).status_code == 200
    assert alice.read(listing)["title"] == "New"


# updated_at (decision G7)


class Edited:
    """alice's listing in a house, with a clock to turn between its edits."""

    def __init__(self, harness: Harness, method: str, fields: Mapping[str, object]) -> None:
        self.clock = harness.clock
        self._house = harness
        self._method = method
        self._key = harness.person("alice").key
        body = {"title": "Bicycle", "content": "Two wheels.", **fields}
        self._listing = harness.fetch("POST", LISTINGS, key=self._key, json=body).json()["id"]

    def read(self) -> dict[str, Any]:
        record: dict[str, Any] = self._house.fetch("GET", f"{LISTINGS}/{self._listing}", key=self._key).json()
        return record

    def edit(self, **fields: object) -> dict[str, Any]:
        """The record after an edit."""
        path = f"{LISTINGS}/{self._listing}"
        reply = self._house.fetch(self._method, path, key=self._key, body=msgspec.json.encode(fields))
        assert reply.status == 200, reply.body
        return self.read()


@pytest.fixture
def edited(harness: Harness, method: str) -> Edited:
    """A listing with every field given."""
    return Edited(harness, method, EVERYTHING)


@pytest.mark.decision("G7")
def test_a_real_change_moves_updated_at_and_never_created_at(edited: Edited) -> None:
    edited.clock.advance(100)
    record = edited.edit(price=20)
    assert (record["created_at"], record["updated_at"]) == ("2026-09-21 14:13:20", "2026-09-21 14:15:00")


@pytest.mark.parametrize("name", NOT_SHOWN)
def test_a_change_of_a_field_that_is_not_shown_is_a_real_change(edited: Edited, name: str) -> None:
    edited.clock.advance(100)
    assert edited.edit(**{name: None})["updated_at"] == "2026-09-21 14:15:00"


@pytest.mark.decision("G7")
@pytest.mark.parametrize(("name", "value"), EVERYTHING.items())
def test_the_same_value_again_changes_nothing(edited: Edited, name: str, value: object) -> None:
    before = edited.read()
    edited.clock.advance(100)
    assert edited.edit(**{name: value}) == before


@pytest.mark.parametrize("price", [19.99, 19.990000000000002, 19.9900001])
def test_a_price_of_the_same_cents_changes_nothing(edited: Edited, price: float) -> None:
    before = edited.read()
    edited.clock.advance(100)
    assert edited.edit(price=price) == before


@pytest.mark.decision("G18")
def test_an_empty_object_changes_nothing(edited: Edited) -> None:
    before = edited.read()
    edited.clock.advance(100)
    assert edited.edit() == before


def test_ignored_keys_alone_change_nothing(edited: Edited) -> None:
    before = edited.read()
    edited.clock.advance(100)
    assert edited.edit(colour="red", updated_at="2001-01-01 00:00:00") == before


@pytest.mark.parametrize("given", [EVERYTHING, {}, {"price": 0.1 + 0.2, "images": ['https://a.example/"é"/\u00fc']}])
def test_a_record_read_back_and_sent_back_changes_nothing(
    harness: Harness, method: str, given: Mapping[str, object]
) -> None:
    edited = Edited(harness, method, given)
    before = edited.read()
    edited.clock.advance(100)
    assert edited.edit(**before) == before


def test_a_record_sent_back_over_http_is_taken_whole(alice: Client, method: str) -> None:
    listing = alice.create(**EVERYTHING)
    record = alice.read(listing)
    response = alice.request(method, f"/{listing}", json=record)
    assert response.status_code == 200
    assert response.headers["X-Ignored-Fields"] == "id, view_count, created_at, updated_at"
    assert alice.read(listing) == record


@pytest.mark.decision("G7")
def test_updated_at_never_goes_back_when_the_clock_does(edited: Edited) -> None:
    edited.clock.advance(100)
    edited.edit(title="Later")
    edited.clock.advance(-3600)
    record = edited.edit(title="Earlier")
    assert (record["title"], record["updated_at"]) == ("Earlier", "2026-09-21 14:15:00")
    edited.clock.advance(7200)
    assert edited.edit(title="Last")["updated_at"] == "2026-09-21 15:15:00"


def test_a_refused_update_moves_nothing(edited: Edited, harness: Harness, method: str) -> None:
    before = edited.read()
    edited.clock.advance(100)
    key = harness.person("bob").key
    harness.fetch(method, f"{LISTINGS}/{before['id']}", key=key, json={"title": "Taken"})
    assert edited.read() == before
