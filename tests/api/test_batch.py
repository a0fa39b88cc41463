"""POST /api/v1/listings/batch: several writes in one request."""

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from listings.api.batch import parse
from tests.api.batches import LAMP, create, delete, get_statuses, run, update
from tests.api.helpers import STRICT, get_etag, get_ids, get_invalid_request, get_outcome, get_state, with_key
from tests.conftest import Client

BAD_TAGS = 'must be one or more ETags, each in double quotes as in "v2.0", or *'
NOT_FOUND = {"status": 404, "code": "listing_not_found", "body": {"error": "Listing not found"}}


@pytest.mark.every_engine
def test_results_are_in_the_order_of_the_operations(alice: Client) -> None:
    own, gone = alice.create(), alice.create()
    results = run(alice, update(own, price=5), create(title="New"), delete(gone), delete(gone))
    assert results == [
        {"status": 200, "etag": '"v2.0"', "body": {"message": "listing updated"}},
        {"status": 201, "etag": '"v1.0"', "body": {"id": results[1]["body"]["id"], "message": "listing created"}},
        {"status": 200, "etag": '"v2.0"', "body": {"message": "listing deleted"}},
        NOT_FOUND,
    ]
    assert [record["title"] for record in alice.get().json()["listings"]] == ["New", "Bicycle"]
    assert alice.read(own)["price"] == 5


@pytest.mark.parametrize(("words", "pauses"), [(1, 0), (4000, 6)])
def test_other_requests_run_between_the_steps_of_a_large_body(words: int, pauses: int) -> None:
    body = json.dumps({"operations": [create(content="word " * words)] * 100}).encode()
    assert len(list(parse(body, strict=False).__await__())) == pauses


ODD: list[Any] = [
    None,
    True,
    1,
    -1,
    10**30,
    1.005,
    1e400,
    "",
    " ",
    "x",
    "1",
    "\0",
    "a\u0085b",
    "x" * 256,
    [],
    ["a"],
    {},
    [None],
]
VALUES: dict[str, list[Any]] = {
    "title": ["Lamp", "\u00e9" * 255],
    "price": [450, 19.9, 0.1 + 0.2, 999_999_999.99],
    "type": ["job", "jobs"],
    "images": [
        ["https://a.example/1.jpg", "/2.jpg"],
        ["https://a@b.example/x"],
        ["HTTPS://a.example"],
        ["https://a" * 999],
    ],
    "latitude": [-41, 90.5],
    "is_active": [False],
    "external_id": ["sku-1", "sku-2"],
    "price_cents": [1],
    "isActive": [False],
}
USUAL = st.fixed_dictionaries({}, optional={name: st.just(known[0]) for name, known in list(VALUES.items())[:7]})
UNUSUAL = st.sampled_from([{name: value} for name, known in VALUES.items() for value in [*known, *ODD]])
FIELDS = st.builds(lambda *parts: parts[0] | parts[1] | parts[2], USUAL, st.sampled_from([{}, LAMP]), UNUSUAL | USUAL)
OPERATIONS = st.builds(
    lambda operation, more: operation | more,
    st.fixed_dictionaries({"op": st.sampled_from(["create", "put"]), "listing": FIELDS})
    | st.fixed_dictionaries({"op": st.just("update"), "id": st.sampled_from([1025, 2049]), "changes": FIELDS}),
    st.sampled_from(
        [{}] * 20
        + [{"ref": ref} for ref in ("a", 7, None, True, "x" * 256, 10**255)]
        + [{"if_match": tags} for tags in ("*", '"v1.0"', "v1", "", None, 1)]
        + [{"id": number} for number in (True, "1025", -1, 2**70)]
    ),
)


@pytest.mark.parametrize("strict", [False, True])
def test_the_parser_of_usual_batches_agrees_with_the_other_one(alice: Client, *, strict: bool) -> None:
    """A byte-order mark leads to the other one."""
    first, second = alice.create(), alice.create(external_id="sku-1")

    @settings(max_examples=300, deadline=None)
    @given(st.lists(OPERATIONS, min_size=1, max_size=2), st.sampled_from([{}, {"atomic": True}, {"atomic": None}]))
    def compare(operations: list[dict[str, Any]], more: dict[str, Any]) -> None:
        for one in operations:
            if one.get("id") in {1025, 2049}:
                one["id"] = first if one["id"] == 1025 else second
        body = json.dumps({"operations": operations, **more}).encode()
        usual, other = (
            alice.post("/batch?dry_run=true", content=lead + body, headers=STRICT if strict else {})
            for lead in (b"", b"\xef\xbb\xbf")
        )
        assert (usual.status_code, usual.text) == (other.status_code, other.text)
        assert usual.headers.get("X-Ignored-Fields") == other.headers.get("X-Ignored-Fields")

    compare()


def test_a_ref_is_returned_as_sent(alice: Client) -> None:
    refs = ["sku-1", "", "ü🚲", 7, 0, -5, 2**60, "x" * 255]
    results = run(alice, *({**create(), "ref": ref} for ref in refs), {"op": "delete", "id": 1, "ref": "no"})
    assert [result["ref"] for result in results] == [*refs, "no"]
    assert [list(result)[1:] for result in results] == [["status", "etag", "body"]] * 8 + [["status", "code", "body"]]


def test_a_result_has_a_ref_only_if_one_was_sent(alice: Client) -> None:
    results = run(alice, create(), {**create(), "ref": None}, {"op": "burn"})
    assert [list(result) for result in results] == [["status", "etag", "body"]] * 2 + [["status", "code", "body"]]


@pytest.mark.parametrize("ref", [True, 1.5, [1], {}, "x" * 256, 10**300])
def test_an_invalid_ref_fails_only_its_operation(alice: Client, ref: Any) -> None:
    results = run(alice, {**create(), "ref": ref}, create())
    message = "ref must be a string or an integer of at most 255 characters"
    assert results[0] == {"status": 400, "code": "invalid_request", "body": {"error": message}}
    assert results[1]["status"] == 201


SINGLE: dict[str, tuple[dict[str, Any], str, str, Any]] = {
    "create": (create(price=5), "POST", "", {**LAMP, "price": 5}),
    "create without fields": ({"op": "create", "listing": {}}, "POST", "", {}),
    "create with bad fields": (create(price="5", type="car"), "POST", "", {**LAMP, "price": "5", "type": "car"}),
    "create with unknown fields": (create(colour="red", id=5), "POST", "", {**LAMP, "colour": "red", "id": 5}),
    "update": ({"op": "update", "id": "own", "changes": {"price": 9}}, "PATCH", "own", {"price": 9}),
    "update without changes": ({"op": "update", "id": "own", "changes": {}}, "PATCH", "own", {}),
    "update with a bad field": ({"op": "update", "id": "own", "changes": {"price": -1}}, "PUT", "own", {"price": -1}),
    "update that clears a field": (
        {"op": "update", "id": "own", "changes": {"region": None}},
        "PUT",
        "own",
        {"region": None},
    ),
    "update of another account's listing": (
        {"op": "update", "id": "foreign", "changes": {"price": -1}},
        *("PATCH", "foreign", {"price": -1}),
    ),
    "update of a deleted listing": (
        {"op": "update", "id": "gone", "changes": {"is_active": True}},
        *("PATCH", "gone", {"is_active": True}),
    ),
    "update of an unknown listing": ({"op": "update", "id": "unknown", "changes": {}}, "PATCH", "unknown", {}),
    "delete": ({"op": "delete", "id": "own"}, "DELETE", "own", None),
    "restore": ({"op": "restore", "id": "gone"}, "POST", "gone", None),
    "restore of a listing that is not deleted": ({"op": "restore", "id": "own"}, "POST", "own", None),
    "restore of another account's listing": ({"op": "restore", "id": "foreign"}, "POST", "foreign", None),
    "restore of an unknown listing": ({"op": "restore", "id": "unknown"}, "POST", "unknown", None),
    "delete of another account's listing": ({"op": "delete", "id": "foreign"}, "DELETE", "foreign", None),
    "delete of a deleted listing": ({"op": "delete", "id": "gone"}, "DELETE", "gone", None),
    "delete of an unknown listing": ({"op": "delete", "id": "unknown"}, "DELETE", "unknown", None),
    "delete of id 0": ({"op": "delete", "id": 0}, "DELETE", "zero", None),
    "delete of a negative id": ({"op": "delete", "id": -5}, "DELETE", "negative", None),
    "delete of an id beyond 63 bits": ({"op": "delete", "id": 2**63}, "DELETE", "large", None),
    "delete of an id of 4,000 digits": ({"op": "delete", "id": 10**4000}, "DELETE", "large", None),
}


INDIVIDUAL = {"id": 0, "created_at": "", "updated_at": ""}  # fields that differ between two listings


def create_listings(client: Client, other: Client) -> dict[str, int]:
    ids = {"own": client.create(region="Otago"), "gone": client.create(), "foreign": other.create()}
    client.delete(f"/{ids['gone']}")
    return {**ids, "unknown": 1024 * 10**9, "zero": 0, "negative": -5, "large": 2**63}


@pytest.mark.parametrize(
    ("kind", "headers"),
    [*((kind, {}) for kind in SINGLE), *((kind, STRICT) for kind in SINGLE if kind.startswith(("create", "update")))],
)
def test_a_result_equals_the_response_of_the_single_request(
    alice: Client, bob: Client, kind: str, headers: dict[str, str]
) -> None:
    operation, method, segment, body = SINGLE[kind]
    for_single, for_batch = create_listings(alice, bob), create_listings(alice, bob)
    path = f"/{for_single[segment]}" if segment else ""
    path += "/restore" if operation["op"] == "restore" else ""
    single = alice.request(method, path, headers=headers, **({} if body is None else {"json": body}))
    sent = {**operation, "id": for_batch.get(operation.get("id", ""), operation.get("id"))}
    if operation["op"] == "create":
        del sent["id"]
    (result,) = run(alice, sent, headers=headers)
    assert (result["status"], result.get("code")) == (single.status_code, single.headers.get("X-Error-Code"))
    if operation["op"] != "delete":
        assert result.get("etag") == single.headers.get("ETag")
    text = json.dumps({**result["body"], "id": 0})
    assert json.loads(re.sub(r"\b(listing|changes)\.", "", text)) == {**single.json(), "id": 0}
    for name in ("own", "foreign"):
        for reader in (alice, bob):
            responses = [reader.get(f"/{ids[name]}?include=all") for ids in (for_single, for_batch)]
            assert responses[0].status_code == responses[1].status_code
            assert {**responses[0].json(), **INDIVIDUAL} == {**responses[1].json(), **INDIVIDUAL}
            assert responses[0].headers.get("ETag") == responses[1].headers.get("ETag")


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        ("delete", "An operation must be an object, got a string"),
        (None, "An operation must be an object, got null"),
        ([], "An operation must be an object, got an array"),
        ({}, "op is required"),
        ({"op": "Create"}, 'op must be one of create, update, put, delete, restore, got "Create"'),
        ({"op": ["create"]}, "op must be one of create, update, put, delete, restore, got an array"),
        ({"op": "create"}, "listing is required"),
        ({"op": "create", "listing": []}, "listing must be an object, got an array"),
        ({"op": "create", "listing": "x"}, "listing must be an object, got a string"),
        ({"op": "update", "changes": {}}, "id is required"),
        ({"op": "update", "id": "own", "changes": {}}, 'id must be an integer, got "own"'),
        ({"op": "delete", "id": 1.5}, "id must be an integer, got 1.5"),
        ({"op": "delete", "id": True}, "id must be an integer, got true"),
        ({"op": "delete", "id": "1025"}, 'id must be an integer, got "1025": remove the quotes'),
        ({"op": "delete"}, "id is required"),
        ({"op": "restore"}, "id is required"),
        ({"op": "delete", "id": 1025, "if_match": None}, "if_match must be a string, got null"),
        ({"op": "delete", "id": 1025, "if_match": "v1.0"}, f"if_match {BAD_TAGS}"),
        ({"op": "update", "id": 1025, "if_match": "", "changes": {}}, f"if_match {BAD_TAGS}"),
        ({"op": "restore", "id": 1025, "if_match": '"v1.0'}, f"if_match {BAD_TAGS}"),
    ],
)
def test_a_malformed_operation_fails_alone(alice: Client, operation: Any, message: str) -> None:
    results = run(alice, create(), operation, create())
    assert get_statuses(results) == [201, 400, 201]
    assert results[1]["body"] == {"error": message}


def test_the_listing_is_checked_before_its_changes(alice: Client, bob: Client) -> None:
    own, foreign = alice.create(), bob.create()
    results = run(alice, *({"op": "update", "id": listing, "changes": [1]} for listing in (own, foreign, 1)))
    assert results[0]["body"] == {"error": "changes must be an object, got an array"}
    assert get_statuses(results) == [400, 403, 404]


def test_each_ignored_field_is_named_once(alice: Client) -> None:
    own = alice.create()
    operations = [
        {**create(), "colour": "red"},
        {"op": "create", "listing": {"title": "t", "content": "c", "prise": 9}},
        {**update(own, prise=9, id=5), "listing": {}},
        {**delete(own), "after": "now"},
        {"op": "sell", "it": "now"},
    ]
    response = alice.post("/batch", json={"operations": operations, "dry": True})
    assert get_statuses(response.json()["results"]) == [201, 201, 200, 200, 400]
    assert response.headers["X-Ignored-Fields"] == "dry, colour, prise, listing, id, after"
    assert "Preference-Applied" not in response.headers
    valid = alice.post("/batch", json={"operations": [create()]}, headers=STRICT)
    assert "X-Ignored-Fields" not in valid.headers
    assert valid.headers["Preference-Applied"] == "handling=strict"


def test_strict_handling_ignores_nothing(alice: Client) -> None:
    own = alice.create()
    results = run(
        alice,
        {**create(), "colour": "red"},
        {**delete(own), "changes": {}},
        {**update(own, colour="red"), "ref": 5},
        {**create(), "ref": 6},
        headers=STRICT,
    )
    assert get_statuses(results) == [400, 400, 400, 201]
    assert [result["body"].get("error") for result in results[:3]] == [
        '"colour" is not a field of this operation',
        '"changes" is not a field of this operation',
        '"changes.colour" is not a field that can be set',
    ]
    response = alice.post("/batch", json={"operations": [create()], "dry_run": True}, headers=STRICT)
    assert get_invalid_request(response).startswith('"dry_run" is not a field of a batch: did you mean dry_run?')
    assert get_statuses(run(alice, {**create(), "colour": "red"})) == [201]


@pytest.mark.decision("G35")
def test_if_match_guards_a_single_operation(alice: Client) -> None:
    own, other = alice.create(), alice.create()
    results = run(
        alice,
        {**update(own, price=2), "if_match": '"v1.0"'},
        {**update(own, price=3), "if_match": '"v1.0"'},
        {**delete(own), "if_match": 'W/"v1.0", "v2.7"'},
        {"op": "restore", "id": own, "if_match": '"v2.0"'},
        {"op": "restore", "id": own, "if_match": "*"},
        {**delete(other), "if_match": '"foreign"'},
    )
    assert get_statuses(results) == [200, 412, 200, 412, 200, 412]
    assert [result.get("code") for result in results[1::2]] == ["precondition_failed"] * 3
    assert [result.get("etag") for result in results[::2]] == ['"v2.0"', '"v3.0"', '"v4.0"']
    assert alice.read(own)["price"] == 2
    assert get_etag(alice, f"/{own}") == '"v4.0"'


def test_a_dry_run_of_a_batch_has_no_etags(alice: Client) -> None:
    results = run(alice, create(), update(alice.create(), price=5), query="?dry_run=true")
    assert [list(result) for result in results] == [["status", "body", "before", "after"]] * 2


@pytest.mark.decision("G48")
def test_a_dry_run_shows_each_field_as_a_record_does(alice: Client) -> None:
    own = alice.create(price=9.5, external_id="A")
    images = ["https://images.example/1.jpg"]
    put = {"op": "put", "listing": {"external_id": "A", "price": 5, "images": images, "title": "Bicycle"}}
    results = run(alice, put, delete(own), {"op": "restore", "id": own}, delete(1), query="?dry_run=true")
    assert list(results[0]) == ["op", "id", "status", "body", "before", "after"]
    deleted_at = results[1]["after"].pop("deleted_at")
    assert [(result.get("before"), result.get("after")) for result in results] == [
        ({"images": [], "price": 9.5}, {"images": images, "price": 5.0}),
        ({"deleted_at": None, "is_active": True}, {"is_active": False}),
        ({"deleted_at": deleted_at}, {"deleted_at": None}),
        (None, None),
    ]


@pytest.mark.decision("G31")
@pytest.mark.parametrize(
    ("place", "failing", "status"),
    [
        *((place, delete(1), 404) for place in range(4)),
        (1, {"op": "create", "listing": {}}, 400),
        (2, {"op": "burn"}, 400),
        (3, "foreign", 403),
    ],
)
def test_one_failure_undoes_an_atomic_batch(alice: Client, bob: Client, place: int, failing: Any, status: int) -> None:
    own, other = alice.create(), alice.create()
    bad = delete(bob.create()) if failing == "foreign" else failing
    operations = [{**create(), "ref": "a"}, update(own, price=5), delete(other)]
    operations.insert(place, bad)
    before = get_state(alice)
    results = run(alice, *operations, atomic=True)
    assert get_statuses(results) == [status if at == place else 424 for at in range(4)]
    not_done = {"error": f"Not applied: operations[{place}] failed"}
    assert [result["body"] for at, result in enumerate(results) if at != place] == [not_done] * 3
    assert [result.get("ref") for result in results].count("a") == 1
    assert get_state(alice) == before
    del operations[place]
    assert get_statuses(run(alice, *operations, atomic=True)) == [201, 200, 200]


def test_each_of_several_failures_has_its_own_result(alice: Client) -> None:
    own = alice.create()
    results = run(alice, delete(own), delete(own), create(price=-1), create(), atomic=True)
    assert get_statuses(results) == [424, 404, 400, 424]
    assert results[3]["code"] == "dependency_failed"
    assert results[3]["body"] == {"error": "Not applied: operations[1] failed"}
    assert alice.get(f"/{own}").status_code == 200


@pytest.mark.parametrize("count", [1, 100])
def test_a_batch_may_have_1_to_100_operations(alice: Client, count: int) -> None:
    assert get_statuses(run(alice, *[create()] * count)) == [201] * count


@pytest.mark.parametrize(
    "operations", [[], [create()] * 101, None, {}, "x", 5, True, {"0": create()}], ids=lambda value: str(value)[:20]
)
def test_any_other_number_of_operations_is_rejected(alice: Client, operations: Any) -> None:
    response = alice.post("/batch", json={"operations": operations})
    assert get_invalid_request(response).startswith("operations must be an array of 1 to 100 operations, got ")
    assert get_ids(alice.get()) == []


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (b"", "malformed_json", "The body must be a JSON object, but it is empty"),
        (b"[]", "malformed_json", "The body must be a JSON object, got an array"),
        (b'{"operations": [', "malformed_json", "The body is not valid JSON: truncated"),
        (b"{}", "invalid_request", "operations is required"),
        (b'{"operations": [{}], "atomic": 1}', "invalid_request", "atomic must be true or false, got 1"),
        (b'{"operations": [{}], "atomic": null}', "invalid_request", "atomic must be true or false, got null"),
        (b'{"operations": [{}], "atomic": "yes"}', "invalid_request", 'atomic must be true or false, got "yes"'),
    ],
)
def test_a_malformed_batch_is_rejected(alice: Client, body: bytes, code: str, message: str) -> None:
    response = alice.post("/batch", content=body)
    assert get_outcome(response) == (400, code)
    assert response.json() == {"error": message}


@pytest.mark.decision("G36")
@pytest.mark.every_engine
@pytest.mark.parametrize("atomic", [False, True])
def test_a_repeated_batch_returns_the_same_bytes_and_does_nothing(alice: Client, *, atomic: bool) -> None:
    own = alice.create()
    operations = [{**create(), "ref": "é"}, update(own, price=5), delete(own)] + ([] if atomic else [delete(1)])
    body = {"operations": operations, "atomic": atomic}
    first = alice.post("/batch", json=body, headers=with_key("b1"))
    state = get_state(alice)
    again = alice.post("/batch", json=body, headers=with_key("b1"))
    assert (again.status_code, again.content) == (200, first.content)
    assert (first.headers.get("Idempotent-Replayed"), again.headers.get("Idempotent-Replayed")) == (None, "true")
    assert get_state(alice) == state


def test_the_same_body_at_two_paths_makes_two_requests(alice: Client) -> None:
    body = {**LAMP, "operations": [create()]}
    assert alice.post(json=body, headers=with_key("b1")).status_code == 201
    response = alice.post("/batch", json=body, headers=with_key("b1"))
    assert get_outcome(response) == (422, "idempotency_key_reused")


def test_if_match_of_an_operation_is_limited(alice: Client) -> None:
    operation = {"op": "delete", "id": alice.create(), "if_match": '"v1.0",' * 1_000 + '"v1.0"'}
    response = alice.post("/batch", json={"operations": [operation]})
    assert "if_match must be at most 4096 characters, got 7006" in response.text
