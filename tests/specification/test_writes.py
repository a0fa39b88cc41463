"""Create, update and delete."""

from typing import Any

import pytest

from tests.specification.client import UNKNOWN_ID, Account
from tests.specification.values import ALL_FIELDS, OTHER_FIELDS, PRICE_TYPES, RECORD_FIELDS, TYPES, VOLATILE_FIELDS

sentence = pytest.mark.sentence
each_method = pytest.mark.parametrize("method", ["PUT", "PATCH"])
INVALID = "When required fields are missing or the body is not valid JSON on create, the response is 400."
TYPE = "| type | string | no | product, service, rental, job; default product |"
DELETED = (
    "| any | DELETE on the listing | caller owns the listing | closed by soft delete | the record is not physically "
    "removed |"
)
PAUSED = (
    "| active | PUT or PATCH with is_active false | caller owns the listing | inactive | updated_at is expected to "
    "change only as the service decides; other given fields are also updated |"
)


@sentence("status 201; JSON object with id (integer) and message (string)")
def test_a_create_returns_201_with_id_and_message(own: Account) -> None:
    responses = [own.send("POST", body=own.build_fields(**fields)) for fields in ({}, ALL_FIELDS)]
    for response in responses:
        assert response.status == 201, response
        assert type(response.fields["id"]) is int, response
        assert isinstance(response.fields["message"], str), response
    assert responses[0].fields["id"] != responses[1].fields["id"]


@sentence(INVALID)
@sentence("| 400 | Invalid request: missing required fields, or malformed JSON |")
@pytest.mark.parametrize("missing", [("title",), ("content",), ("title", "content")])
def test_a_create_without_a_required_field_is_400(own: Account, missing: tuple[str, ...]) -> None:
    fields = {name: value for name, value in own.build_fields().items() if name not in missing}
    response = own.send("POST", body=fields)
    assert response.status == 400, response


@sentence(INVALID)
@sentence("| 400 | Invalid request: missing required fields, or malformed JSON |")
@pytest.mark.parametrize(
    "body",
    [
        "",
        '{"title": "%s", "content": "cut off',
        "{'title': '%s', 'content': 'in single quotes'}",
        '{"title": "%s", "content": "with a trailing comma",}',
        '{"title": "%s", "content": "with NaN as price", "price": NaN}',
        '{"title": "%s", "content": "with text after the object"} %%',
    ],
    ids=["empty", "cut off", "single quotes", "trailing comma", "NaN", "text after it"],
)
def test_a_create_without_valid_json_is_400(own: Account, body: str) -> None:
    response = own.send("POST", body=body.replace("%s", str(own.build_fields()["title"])).encode())
    assert response.status == 400, response


def accepted(text: str, *values: object) -> Any:
    """Return the parameters of a row of the table; without values, that of a listing with all fields."""
    name = text.split(" ")[1]
    return pytest.param(name, values or (ALL_FIELDS.get(name),), marks=sentence(text), id=name)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        accepted("| title | string | yes | Listing title |"),
        accepted("| content | string | yes | Description |"),
        accepted(TYPE, *TYPES),
        accepted("| category | string | no | Subcategory |"),
        accepted("| images | array of strings | no | Image URLs |"),
        accepted("| price | number | no | In NZD |"),
        accepted("| price_type | string | no | fixed, negotiable, per_hour, per_night |", *PRICE_TYPES),
        accepted("| location | string | no | Location info |"),
        accepted("| region | string | no | Location info |"),
        accepted("| district | string | no | Location info |"),
        accepted("| latitude | number | no | GPS coordinate |"),
        accepted("| longitude | number | no | GPS coordinate |"),
    ],
)
def test_a_create_accepts_the_field(own: Account, name: str, values: tuple[object, ...]) -> None:
    for value in values:
        fields = own.build_fields() if value is None else own.build_fields(**{name: value})
        record = own.read(own.create(**fields))
        assert name not in record or record[name] == fields[name]  # the record need not have a district or coordinates


@sentence(TYPE)
def test_a_listing_without_a_type_is_a_product(own: Account) -> None:
    assert own.read(own.create())["type"] == "product"


@sentence(
    "| PUT or PATCH | /api/v1/listings/{id} | JSON object containing only the fields to change (for example price, "
    "is_active) | JSON object with message (string) |"
)
@each_method
def test_an_update_changes_every_field_and_returns_a_message(own: Account, method: str) -> None:
    listing_id = own.create(**RECORD_FIELDS)
    changes = {"title": f"{own.build_fields()['title']}, changed", **OTHER_FIELDS}
    response = own.send(method, f"/{listing_id}", changes)
    assert response.succeeded, response
    assert isinstance(response.fields["message"], str), response
    assert changes.items() <= {name: own.read(listing_id).get(name) for name in changes}.items()


@sentence("Update is partial: fields not sent are left unchanged.")
@each_method
def test_an_update_leaves_fields_that_were_not_sent(own: Account, method: str) -> None:
    listing_id = own.create(**RECORD_FIELDS)
    before = own.read(listing_id)
    assert own.send(method, f"/{listing_id}", {"price": 75.25}).succeeded
    after = own.read(listing_id)
    assert {name for name in before if before[name] != after.get(name)} - VOLATILE_FIELDS == {"price"}


@sentence("PUT and PATCH behave the same way.")
def test_put_and_patch_behave_the_same_way(own: Account) -> None:
    by_put, by_patch = own.create(**RECORD_FIELDS), own.create(**RECORD_FIELDS)
    for body in ({"price": 3, "region": "Otago"}, {}, b'{"price": '):
        put, patch = own.send("PUT", f"/{by_put}", body), own.send("PATCH", f"/{by_patch}", body)
        assert (put.status, put.fields.keys()) == (patch.status, patch.fields.keys()), (put, patch)
    put, patch = (own.send(method, f"/{UNKNOWN_ID}", {"price": 3}) for method in ("PUT", "PATCH"))
    assert put.status == patch.status, (put, patch)
    one, other = own.read(by_put), own.read(by_patch)
    assert {name for name in one if one[name] != other[name]} <= VOLATILE_FIELDS | {"id", "created_at"}


@sentence(PAUSED)
@each_method
def test_is_active_false_pauses_a_listing_and_other_fields_change(own: Account, method: str) -> None:
    listing_id = own.create(**RECORD_FIELDS)
    assert own.send(method, f"/{listing_id}", {"is_active": False, "price": 99.75}).succeeded
    record = own.read(listing_id)
    assert (record["is_active"], record["price"]) == (False, 99.75)


@sentence("| DELETE | /api/v1/listings/{id} | none | JSON object with message (string) |")
@sentence(DELETED)
def test_a_delete_returns_a_message(own: Account) -> None:
    response = own.send("DELETE", f"/{own.create()}")
    assert response.succeeded, response
    assert isinstance(response.fields["message"], str), response


@sentence("Delete is a soft delete.")
@sentence(DELETED)
def test_a_deleted_listing_is_not_in_the_list(own: Account) -> None:
    listing_id = own.create()
    assert own.send("DELETE", f"/{listing_id}").succeeded
    assert listing_id not in own.read_list()


@sentence(DELETED)
def test_an_inactive_listing_can_be_deleted(own: Account) -> None:
    listing_id = own.create()
    assert own.send("PATCH", f"/{listing_id}", {"is_active": False}).succeeded
    response = own.send("DELETE", f"/{listing_id}")
    assert response.succeeded, response
