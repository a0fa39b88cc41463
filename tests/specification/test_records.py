"""The list, get-one, and the fields of a listing record."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

import pytest

from tests.specification.client import Account
from tests.specification.values import ALL_FIELDS, PRICE_TYPES, TYPES

sentence = pytest.mark.sentence
LIST = "200-class JSON object with key listings: array of listing records (the caller's active listings)"


@sentence("The version is carried in the path prefix /api/v1.")
@sentence("A client can list its active listings, create a listing, read one listing,")
@sentence(LIST)
def test_the_list_is_an_object_with_an_array_of_records(own: Account) -> None:
    response = own.send("GET")
    assert response.succeeded, response
    assert isinstance(response.fields["listings"], list), response
    assert all(isinstance(record, dict) for record in response.fields["listings"])


@sentence(LIST)
def test_the_list_has_a_new_active_listing(own: Account) -> None:
    listing_id = own.create()
    assert own.read(listing_id)["is_active"] is False or listing_id in own.read_list()


@sentence(LIST)
def test_the_list_has_no_inactive_listings(own: Account) -> None:
    listing_id = own.create()
    assert own.send("PATCH", f"/{listing_id}", {"is_active": False}).succeeded
    records = own.read_list()
    assert listing_id not in records
    assert all(record["is_active"] is True for record in records.values())


@sentence(LIST)
def test_the_list_has_no_listings_of_other_accounts(own: Account, other: Account) -> None:
    assert own.create() not in other.read_list()


@sentence("| GET | /api/v1/listings/{id} | none; {id} is the integer listing id | JSON listing record |")
def test_get_one_returns_the_record(own: Account) -> None:
    listing_id = own.create()
    response = own.send("GET", f"/{listing_id}")
    assert response.succeeded, response
    assert str(response.fields["id"]) == listing_id


class Sample(NamedTuple):
    """A record, and the fields that its listing was created with."""

    sent: dict[str, object]
    record: dict[str, Any]


@pytest.fixture(scope="module")
def samples(own: Account) -> list[Sample]:
    """A listing with all fields and one with the required ones, from get-one and from the list."""
    sent = {own.create(**ALL_FIELDS): ALL_FIELDS, own.create(): {}}
    listed = own.read_list()
    return [
        Sample(fields, record)
        for listing_id, fields in sent.items()
        for record in (own.read(listing_id), listed.get(listing_id))
        if record is not None
    ]


def is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_string(value: object) -> bool:
    return isinstance(value, str)


def are_strings(value: object) -> bool:
    return isinstance(value, list) and all(map(is_string, value))


def is_time(value: object) -> bool:
    assert isinstance(value, str)
    return f"{datetime.strptime(value, '%Y-%m-%d %H:%M:%S'):%Y-%m-%d %H:%M:%S}" == value  # noqa: DTZ007 - no zone


def row(text: str, is_valid: Callable[[Any], bool], *, optional: bool = False) -> Any:
    """Return the parameters of a row of the table. An optional field may be null if it was never set."""
    name = text.split(" ")[1]
    return pytest.param(name, is_valid, optional, marks=sentence(text), id=name)


@pytest.mark.parametrize(
    ("name", "is_valid", "optional"),
    [
        row("| id | integer | Identifier assigned by the service |", is_integer),
        row("| title | string | |", is_string),
        row("| content | string | The description |", is_string),
        row("| type | string | One of: product, service, rental, job |", lambda value: value in TYPES),
        row("| category | string | Subcategory |", is_string, optional=True),
        row("| images | array of strings | Image URLs |", are_strings, optional=True),
        row("| price | number | Price in NZD, decimal |", is_number, optional=True),
        row(
            "| price_type | string | One of: fixed, negotiable, per_hour, per_night |",
            lambda value: value in PRICE_TYPES,
            optional=True,
        ),
        row("| location | string | |", is_string, optional=True),
        row("| region | string | |", is_string, optional=True),
        row("| is_active | boolean | |", lambda value: isinstance(value, bool)),
        row("| view_count | integer | Read-only counter of views |", is_integer),
        row("| created_at | string | Timestamp in the form YYYY-MM-DD HH:MM:SS |", is_time),
        row("| updated_at | string | Timestamp in the same form |", is_time),
    ],
)
def test_a_record_has_the_field(
    samples: list[Sample], name: str, is_valid: Callable[[Any], bool], *, optional: bool
) -> None:
    for sample in samples:
        value = sample.record[name]
        may_be_null = optional and name not in sample.sent
        assert is_valid(value) or (value is None and may_be_null), value


@sentence("| type | string | One of: product, service, rental, job |")
@sentence("| price | number | Price in NZD, decimal |")
@sentence("| price_type | string | One of: fixed, negotiable, per_hour, per_night |")
def test_a_record_never_shows_an_invalid_value(own: Account) -> None:
    for name, value in {"type": "boat", "price": "12.50", "price_type": "per_mile"}.items():
        response = own.send("POST", body=own.build_fields(**{name: value}))
        if response.succeeded:  # a server may correct the value, or ignore it
            assert own.read(str(response.fields["id"]))[name] != value, response


@sentence("A get-one response carries the same fields as the list.")
def test_get_one_has_the_same_fields_as_the_list(samples: list[Sample]) -> None:
    assert len({frozenset(sample.record) for sample in samples}) == 1


@sentence("| view_count | integer | Read-only counter of views |")
def test_view_count_is_read_only(own: Account) -> None:
    listing_id = own.create()
    own.send("PATCH", f"/{listing_id}", {"view_count": 1_000_000})
    assert own.read(listing_id)["view_count"] < 1_000_000
    created = own.send("POST", body=own.build_fields(view_count=1_000_000))
    if created.succeeded:
        assert own.read(str(created.fields["id"]))["view_count"] < 1_000_000
