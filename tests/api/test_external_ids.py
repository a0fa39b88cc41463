"""External ids: set, shown, found, unique, and used by the operation `put` of a batch."""

from typing import Any
from unittest.mock import ANY

import pytest

from tests.api.helpers import (
    RECORD_FIELDS,
    STRICT,
    assert_error,
    assert_not_found,
    get_ids,
    get_invalid_request,
    get_state,
)
from tests.conftest import Client

pytestmark = pytest.mark.decision("G43")
LAMP = {"title": "Lamp", "content": "Brass."}


def message(external_id: str, holder: int) -> str:
    return f'external_id "{external_id}" belongs to listing {holder}: use another one, or change listing {holder} first'


def run(client: Client, *operations: Any, query: str = "", **headers: str) -> list[Any]:
    response = client.post(f"/batch{query}", json={"operations": operations}, headers=headers)
    assert response.status_code == 200, response.text
    results: list[Any] = response.json()["results"]
    return results


def put(**fields: Any) -> dict[str, Any]:
    return {"op": "put", "listing": fields}


@pytest.mark.every_engine
def test_an_external_id_is_shown_only_on_request(alice: Client) -> None:
    listing, other = alice.create(external_id="sku-17"), alice.create()
    assert list(alice.read(listing)) == RECORD_FIELDS
    for names, included in (("external_id", ["external_id"]), ("all", ["district", "latitude", "longitude"])):
        one = alice.get(f"/{listing}?include={names}").json()
        assert list(one) == [*RECORD_FIELDS, *included]
        assert alice.get(f"?include={names}").json()["listings"][1] == one
    records = alice.get("?include=external_id").json()["listings"]
    assert [record["external_id"] for record in records] == [None, "sku-17"]
    assert alice.patch(f"/{listing}", json={"external_id": None}).status_code == 200
    assert alice.patch(f"/{other}", json={"external_id": "sku-17"}).status_code == 200
    records = alice.get("?include=external_id").json()["listings"]
    assert [record["external_id"] for record in records] == ["sku-17", None]


@pytest.mark.every_engine
def test_a_clash_names_the_listing_that_has_the_external_id(alice: Client, bob: Client) -> None:
    holder, own = alice.create(external_id="sku-17"), alice.create()
    gone = alice.create(external_id="sku-18")
    alice.delete(f"/{gone}")
    again = alice.create(external_id="sku-18")
    bob.create(external_id="sku-17")
    before = get_state(alice)
    key = {"Idempotency-Key": "k"}
    for query in ("?dry_run=true", ""):
        for response, external_id, listing in (
            (alice.post(query, json={**LAMP, "external_id": "sku-17"}, headers=key), "sku-17", holder),
            (alice.patch(f"/{own}{query}", json={"price": 5, "external_id": "sku-17"}), "sku-17", holder),
            (alice.post(f"/{gone}/restore{query}"), "sku-18", again),
        ):
            assert_error(response, 409, "external_id_taken", message(external_id, listing))
        results = run(alice, {"op": "update", "id": own, "changes": {"external_id": "sku-17"}}, query=query)
        error = {"error": f"changes.{message('sku-17', holder)}"}
        assert results == [{"status": 409, "code": "external_id_taken", "body": error}]
    assert get_state(alice) == before
    assert alice.post(json={**LAMP, "external_id": "sku-19"}, headers=key).status_code == 201
    assert alice.patch(f"/{holder}", json={"external_id": "sku-17", "price": 7}).status_code == 200


@pytest.mark.every_engine
def test_a_filter_finds_the_listings_with_one_of_the_external_ids(alice: Client, bob: Client) -> None:
    texts = ["a,b", "ü/1", "a b", "100%"]
    ids = [alice.create(external_id=text) for text in texts]
    bob.create(external_id="a,b")
    alice.patch(f"/{ids[2]}", json={"is_active": False})
    assert get_ids(alice.get("", params={"external_id": "a,b"})) == ids[:1]
    assert get_ids(alice.get("", params={"external_id": [*texts, "a,b", "none"]})) == [ids[3], ids[1], ids[0]]
    assert get_ids(alice.get("", params={"external_id": texts, "status": "all", "limit": 2})) == [ids[3], ids[2]]
    following = alice.get("", params={"external_id": texts, "limit": 2}).links["next"]["url"]
    assert get_ids(alice.get(following.partition("listings")[2])) == ids[:1]
    assert get_ids(alice.get("?external_id=none")) == []
    many = [f"sku-{number:04}" for number in range(350)]
    assert get_ids(alice.get("", params={"external_id": [*many, "100%"]})) == ids[3:]


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("external_id=", "external_id must have 1 to 255 characters, got 0"),
        (f"external_id={'x' * 256}", "external_id must have 1 to 255 characters, got 256"),
        ("external_id=a&external_id=%00", 'external_id must not contain control characters, got "\\u0000"'),
        ("external_id=%FF", "external_id must be percent-encoded UTF-8"),
    ],
)
def test_an_impossible_external_id_in_a_filter_is_rejected(alice: Client, query: str, error: str) -> None:
    assert get_invalid_request(alice.get(f"?{query}")) == error


@pytest.mark.every_engine
def test_the_result_of_a_put_says_what_it_did(alice: Client) -> None:
    created, updated, unchanged = run(
        alice, put(external_id="sku-17", **LAMP), put(external_id="sku-17", price=5), put(external_id="sku-17", price=5)
    )
    listing = created["body"]["id"]
    created_body = {"id": listing, "message": "listing created"}
    updated_body = {"message": "listing updated"}
    assert created == {"op": "create", "id": listing, "status": 201, "etag": '"v1.0"', "body": created_body}
    assert (
        updated == unchanged == {"op": "update", "id": listing, "status": 200, "etag": '"v2.0"', "body": updated_body}
    )
    assert alice.read(listing)["price"] == 5
    before = get_state(alice)
    operations = [put(external_id="sku-17", price=6), {**put(external_id="sku-18", **LAMP), "ref": 1}]
    assert run(alice, *operations, query="?dry_run=true") == [
        {"op": "update", "id": listing, "status": 200, "body": {"message": "listing would be updated"}}
        | {"before": {"price": 5.0}, "after": {"price": 6.0}},
        {"ref": 1, "op": "create", "status": 200, "body": {"message": "listing would be created"}, "before": None}
        | {"after": ANY},
    ]
    assert get_state(alice) == before


def test_a_put_is_checked_as_the_create_or_the_update_that_it_is(alice: Client) -> None:
    listing = alice.create(external_id="sku-17")
    required = "listing.title is required; listing.content is required"
    price = 'listing.price must be a number, got "5": remove the quotes'
    unknown = "No listing has the external_id"
    cases: list[tuple[dict[str, Any], int, str]] = [
        (put(external_id="sku-17", price="5"), 400, price),
        (put(external_id="sku-18", price="5"), 400, f'{unknown} "sku-18": {required}; {price}'),
        (put(external_id="sku-18"), 400, f'{unknown} "sku-18": {required}'),
        (put(external_id="sku-17", title=None), 400, "listing.title must be a string, got null"),
        (put(**LAMP), 400, "listing.external_id is required"),
        (put(external_id=None, **LAMP), 400, "listing.external_id is required"),
        (put(external_id=17, **LAMP), 400, "listing.external_id must be a string, got a number"),
        ({"op": "put"}, 400, "listing is required"),
        ({**put(external_id="sku-18", **LAMP), "if_match": "*"}, 412, f'{unknown} "sku-18"'),
        ({**put(external_id="sku-18", **LAMP), "if_match": '"v1.0"'}, 412, f'{unknown} "sku-18"'),
    ]
    results = run(alice, *(operation for operation, _, _ in cases))
    assert [(result["status"], result["body"]["error"]) for result in results] == [case[1:] for case in cases]
    (result,) = run(alice, {**put(external_id="sku-17", price=6), "if_match": '"v9.0"'})
    assert (result["status"], result["code"]) == (412, "precondition_failed")
    (result,) = run(alice, {**put(external_id="sku-17", price=6), "if_match": '"v1.0"'})
    assert (result["status"], result["id"], alice.read(listing)["price"]) == (200, listing, 6)


def test_a_put_names_its_ignored_fields(alice: Client) -> None:
    operations = [put(external_id="a", **LAMP, colour="red"), put(external_id="a", size=5) | {"id": 7}]
    response = alice.post("/batch", json={"operations": operations})
    assert response.headers["X-Ignored-Fields"] == "colour, id, size"
    results = run(alice, *operations, **STRICT)
    assert [result["body"]["error"] for result in results] == [
        '"listing.colour" is not a field that can be set',
        '"id" is not a field of this operation',
    ]


def test_a_repeated_batch_of_puts_returns_its_first_results(alice: Client) -> None:
    operations = [put(external_id="sku-17", **LAMP)]
    first = run(alice, *operations, **{"Idempotency-Key": "k"})
    assert run(alice, *operations, **{"Idempotency-Key": "k"}) == first
    assert first[0]["op"] == "create"


@pytest.mark.every_engine
@pytest.mark.decision("G43")
def test_an_external_id_names_the_listing_of_an_update_and_a_delete(alice: Client, bob: Client) -> None:
    own, foreign = alice.create(external_id="a/1"), bob.create(external_id="bob")
    missing = {"status": 404, "code": "listing_not_found"}
    operations = [
        {"op": "update", "external_id": "a/1", "changes": {"price": 5}, "if_match": '"v1.0"'},
        {"op": "update", "external_id": "a/1", "changes": {"price": 6}, "if_match": '"v1.0"'},
        {"op": "update", "external_id": "bob", "changes": {"price": 5}},
        {"op": "delete", "external_id": "zz"},
        {"op": "delete", "external_id": "a/1", "ref": "gone"},
        {"op": "delete", "external_id": "a/1"},
    ]
    planned = run(alice, *operations, query="?dry_run=true")
    assert (planned[0]["after"], planned[4]["after"]["is_active"]) == ({"price": 5.0}, False)
    results = run(alice, *operations)
    assert [result["status"] for result in results] == [200, 412, 404, 404, 200, 404]
    assert [result["status"] for result in planned] == [200, 412, 404, 404, 200, 404]
    assert results[0] == {"status": 200, "etag": '"v2.0"', "body": {"message": "listing updated"}}
    assert results[3] == missing | {"body": {"error": 'No listing has the external_id "zz"'}}
    assert results[4] == {"ref": "gone", "status": 200, "etag": '"v3.0"', "body": {"message": "listing deleted"}}
    assert_not_found(alice.get(f"/{own}"))
    assert bob.read(foreign)["price"] == 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "id is required"),
        ({"id": 1, "external_id": "a"}, "Send either id or external_id, not both"),
        ({"external_id": None}, "external_id must be a string, got null"),
        ({"external_id": 5}, "external_id must be a string, got a number"),
        ({"external_id": ""}, "external_id must have 1 to 255 characters, got 0"),
    ],
)
def test_an_invalid_name_of_a_listing_fails_alone(alice: Client, fields: dict[str, Any], message: str) -> None:
    for operation in ({"op": "update", "changes": {}}, {"op": "delete"}):
        (result,) = run(alice, operation | fields)
        assert (result["status"], result["body"]["error"]) == (400, message)
    (result,) = run(alice, {"op": "restore", "external_id": "a"})
    assert (result["status"], result["body"]["error"]) == (400, "id is required")
