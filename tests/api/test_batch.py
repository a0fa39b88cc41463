"""POST /api/v1/listings/batch: many writes in one request."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import Client
from tests.harness import Harness

LAMP = {"title": "Lamp", "content": "Brass."}
STRICT = {"Prefer": "handling=strict"}
NOT_DONE = {"error": "Not applied: another operation of the batch failed"}
MISSING = {"status": 404, "body": {"error": "Listing not found"}}


def send(client: Client, *operations: Any, query: str = "", headers: dict[str, str] | None = None, **more: Any) -> Any:
    """The results of a batch that is carried out."""
    body = {"operations": list(operations), **more}
    response = client.post(f"/batch{query}", json=body, headers=headers or {})
    assert response.status_code == 200, response.text
    assert list(response.json()) == ["results"]
    return response.json()["results"]


def creating(**fields: Any) -> dict[str, Any]:
    return {"op": "create", "listing": {**LAMP, **fields}}


def updating(listing: int, **changes: Any) -> dict[str, Any]:
    return {"op": "update", "id": listing, "changes": changes}


def deleting(listing: int) -> dict[str, Any]:
    return {"op": "delete", "id": listing}


def statuses(results: list[dict[str, Any]]) -> list[int]:
    return [result["status"] for result in results]


def refusal(response: httpx.Response) -> tuple[str, str]:
    assert response.status_code == 400, response.text
    assert list(response.json()) == ["error"]
    return response.headers["X-Error-Code"], response.json()["error"]


def everything(client: Client) -> tuple[bytes, str]:
    """All of an account's listings, and the tag that changes with every edit."""
    response = client.get("?status=all&include=all,deleted_at")
    return response.content, response.headers["ETag"]


# Results


def test_each_operation_has_its_result_in_the_order_that_was_sent(alice: Client) -> None:
    own, gone = alice.create(), alice.create()
    results = send(alice, updating(own, price=5), creating(title="New"), deleting(gone), deleting(gone))
    assert results == [
        {"status": 200, "body": {"message": "listing updated"}},
        {"status": 201, "body": {"id": results[1]["body"]["id"], "message": "listing created"}},
        {"status": 200, "body": {"message": "listing deleted"}},
        MISSING,
    ]
    assert [record["title"] for record in alice.get().json()["listings"]] == ["New", "Bicycle"]
    assert alice.read(own)["price"] == 5


def test_a_ref_is_echoed_as_it_was_sent(alice: Client) -> None:
    refs = ["sku-1", "", "ü🚲", 7, 0, -5, 2**60, "x" * 255]
    results = send(alice, *({**creating(), "ref": ref} for ref in refs), {"op": "delete", "id": 1, "ref": "no"})
    assert [result["ref"] for result in results] == [*refs, "no"]
    assert [list(result) for result in results] == [["ref", "status", "body"]] * 9


def test_without_a_ref_none_is_made_up(alice: Client) -> None:
    results = send(alice, creating(), {**creating(), "ref": None}, {"op": "burn"})
    assert [list(result) for result in results] == [["status", "body"]] * 3


@pytest.mark.parametrize("ref", [True, 1.5, [1], {}, "x" * 256, 10**300])
def test_what_can_be_no_ref_fails_its_operation_alone(alice: Client, ref: Any) -> None:
    results = send(alice, {**creating(), "ref": ref}, creating())
    sentence = "ref must be a string or an integer of at most 255 characters"
    assert results[0] == {"status": 400, "body": {"error": sentence}}
    assert results[1]["status"] == 201


SINGLE: dict[str, tuple[dict[str, Any], str, str, Any]] = {
    "a create": (creating(price=5), "POST", "", {**LAMP, "price": 5}),
    "an empty create": ({"op": "create", "listing": {}}, "POST", "", {}),
    "a create with faults": (creating(price="5", type="car"), "POST", "", {**LAMP, "price": "5", "type": "car"}),
    "a create with unknown keys": (creating(colour="red", id=5), "POST", "", {**LAMP, "colour": "red", "id": 5}),
    "an update": ({"op": "update", "id": "own", "changes": {"price": 9}}, "PATCH", "own", {"price": 9}),
    "an update of nothing": ({"op": "update", "id": "own", "changes": {}}, "PATCH", "own", {}),
    "an update with a fault": ({"op": "update", "id": "own", "changes": {"price": -1}}, "PUT", "own", {"price": -1}),
    "an update that clears": (
        {"op": "update", "id": "own", "changes": {"region": None}},
        "PUT",
        "own",
        {"region": None},
    ),
    "an update of a foreign one": (
        {"op": "update", "id": "foreign", "changes": {"price": -1}},
        *("PATCH", "foreign", {"price": -1}),
    ),
    "an update of a deleted one": (
        {"op": "update", "id": "gone", "changes": {"is_active": True}},
        *("PATCH", "gone", {"is_active": True}),
    ),
    "an update of none": ({"op": "update", "id": "none", "changes": {}}, "PATCH", "none", {}),
    "a delete": ({"op": "delete", "id": "own"}, "DELETE", "own", None),
    "a delete of a foreign one": ({"op": "delete", "id": "foreign"}, "DELETE", "foreign", None),
    "a delete of a deleted one": ({"op": "delete", "id": "gone"}, "DELETE", "gone", None),
    "a delete of none": ({"op": "delete", "id": "none"}, "DELETE", "none", None),
    "a delete of id 0": ({"op": "delete", "id": 0}, "DELETE", "zero", None),
    "a delete of a negative id": ({"op": "delete", "id": -5}, "DELETE", "negative", None),
    "a delete of too large an id": ({"op": "delete", "id": 2**63}, "DELETE", "large", None),
    "a delete of an immense id": ({"op": "delete", "id": 10**4000}, "DELETE", "large", None),
}


OF_ITS_OWN = {"id": 0, "created_at": "", "updated_at": ""}  # what two listings do not have in common


def furnished(client: Client, stranger: Client) -> dict[str, int]:
    places = {"own": client.create(region="Otago"), "gone": client.create(), "foreign": stranger.create()}
    client.delete(f"/{places['gone']}")
    return {**places, "none": 1024 * 10**9, "zero": 0, "negative": -5, "large": 2**63}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("kind", SINGLE)
def test_a_result_is_what_the_single_request_answers(alice: Client, bob: Client, kind: str, *, strict: bool) -> None:
    operation, method, segment, body = SINGLE[kind]
    headers = STRICT if strict else {}
    for_single, for_batch = furnished(alice, bob), furnished(alice, bob)
    path = f"/{for_single[segment]}" if segment else ""
    single = alice.request(method, path, headers=headers, **({} if body is None else {"json": body}))
    asked = {**operation, "id": for_batch.get(operation.get("id", ""), operation.get("id"))}
    if operation["op"] == "create":
        del asked["id"]
    (result,) = send(alice, asked, headers=headers)
    assert result["status"] == single.status_code
    assert {**result["body"], "id": 0} == {**single.json(), "id": 0}
    for place in ("own", "foreign"):
        for reader in (alice, bob):
            answers = [reader.get(f"/{places[place]}?include=all") for places in (for_single, for_batch)]
            assert answers[0].status_code == answers[1].status_code
            assert {**answers[0].json(), **OF_ITS_OWN} == {**answers[1].json(), **OF_ITS_OWN}
            assert answers[0].headers.get("ETag") == answers[1].headers.get("ETag")


@pytest.mark.parametrize(
    ("operation", "sentence"),
    [
        ("delete", "An operation must be an object, got a string"),
        (None, "An operation must be an object, got null"),
        ([], "An operation must be an object, got an array"),
        ({}, "op is required"),
        ({"op": "Create"}, 'op must be one of create, update, delete, got "Create"'),
        ({"op": "restore", "id": 1}, 'op must be one of create, update, delete, got "restore"'),
        ({"op": ["create"]}, "op must be one of create, update, delete, got an array"),
        ({"op": "create"}, "listing is required"),
        ({"op": "create", "listing": []}, "listing must be an object, got an array"),
        ({"op": "create", "listing": "x"}, "listing must be an object, got a string"),
        ({"op": "update", "changes": {}}, "id is required"),
        ({"op": "update", "id": "own", "changes": {}}, 'id must be an integer, got "own"'),
        ({"op": "delete", "id": 1.5}, "id must be an integer, got 1.5"),
        ({"op": "delete", "id": True}, "id must be an integer, got true"),
        ({"op": "delete", "id": "1025"}, 'id must be an integer, got "1025"'),
        ({"op": "delete"}, "id is required"),
    ],
)
def test_an_ill_formed_operation_fails_alone(alice: Client, operation: Any, sentence: str) -> None:
    results = send(alice, creating(), operation, creating())
    assert statuses(results) == [201, 400, 201]
    assert results[1]["body"] == {"error": sentence}


def test_changes_that_are_no_object_are_told_to_the_owner_alone(alice: Client, bob: Client) -> None:
    own, foreign = alice.create(), bob.create()
    results = send(alice, *({"op": "update", "id": listing, "changes": [1]} for listing in (own, foreign, 1)))
    assert results[0] == {"status": 400, "body": {"error": "changes must be an object, got an array"}}
    assert statuses(results) == [400, 403, 404]


def test_what_is_ignored_is_named_once(alice: Client) -> None:
    own = alice.create()
    operations = [
        {**creating(), "colour": "red"},
        {"op": "create", "listing": {"title": "t", "content": "c", "prise": 9}},
        {**updating(own, prise=9, id=5), "listing": {}},
        {**deleting(own), "after": "now"},
        {"op": "sell", "it": "now"},
    ]
    response = alice.post("/batch", json={"operations": operations, "dry": True})
    assert statuses(response.json()["results"]) == [201, 201, 200, 200, 400]
    assert response.headers["X-Ignored-Fields"] == "dry, colour, prise, listing, id, after"
    assert "Preference-Applied" not in response.headers
    sound = alice.post("/batch", json={"operations": [creating()]}, headers=STRICT)
    assert "X-Ignored-Fields" not in sound.headers
    assert sound.headers["Preference-Applied"] == "handling=strict"


def test_under_strict_handling_nothing_is_ignored(alice: Client) -> None:
    own = alice.create()
    results = send(
        alice,
        {**creating(), "colour": "red"},
        {**deleting(own), "changes": {}},
        {**updating(own, colour="red"), "ref": 5},
        {**creating(), "ref": 6},
        headers=STRICT,
    )
    assert statuses(results) == [400, 400, 400, 201]
    assert [result["body"].get("error") for result in results[:3]] == [
        '"colour" is not a field of this operation',
        '"changes" is not a field of this operation',
        '"colour" is not a field that can be set',
    ]
    response = alice.post("/batch", json={"operations": [creating()], "dry_run": True}, headers=STRICT)
    assert refusal(response) == ("invalid_request", '"dry_run" is not a field of a batch')
    assert statuses(send(alice, {**creating(), "colour": "red"}, dry_run=True)) == [201]


# One after the other


def test_a_later_operation_sees_what_an_earlier_one_did(alice: Client) -> None:
    own = alice.create(price=1)
    results = send(
        alice,
        updating(own, price=2),
        updating(own, title="Second"),
        deleting(own),
        updating(own, price=3),
        deleting(own),
    )
    assert statuses(results) == [200, 200, 200, 404, 404]
    (record,) = alice.get("?status=deleted").json()["listings"]
    assert (record["price"], record["title"]) == (2, "Second")


def test_listings_of_one_batch_get_ascending_ids(alice: Client) -> None:
    results = send(alice, *(creating(title=f"{number}") for number in range(100)))
    ids = [result["body"]["id"] for result in results]
    assert ids == sorted(set(ids))
    assert [record["title"] for record in alice.get("?sort=id").json()["listings"]] == [f"{n}" for n in range(100)]


def test_one_failure_leaves_the_others_alone(alice: Client, bob: Client) -> None:
    own, foreign = alice.create(), bob.create()
    results = send(alice, creating(), updating(foreign, price=1), updating(own, price=-1), deleting(1), deleting(own))
    assert statuses(results) == [201, 403, 400, 404, 200]
    assert results[1]["body"] == {"error": "This listing belongs to another account"}
    assert len(alice.get().json()["listings"]) == 1
    assert bob.read(foreign)["price"] == 0


def test_a_batch_of_only_failures_is_200_and_changes_nothing(alice: Client) -> None:
    before = everything(alice)
    assert statuses(send(alice, deleting(1), {"op": "create", "listing": {}}, {})) == [404, 400, 400]
    assert everything(alice) == before


# All or nothing


def test_an_atomic_batch_that_passes_is_done(alice: Client) -> None:
    own = alice.create()
    results = send(alice, creating(), updating(own, price=5), deleting(own), atomic=True)
    assert statuses(results) == [201, 200, 200]
    assert [record["title"] for record in alice.get().json()["listings"]] == ["Lamp"]


@pytest.mark.decision("G31")
@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize(
    ("failing", "status"),
    [(deleting(1), 404), ({"op": "create", "listing": {}}, 400), ({"op": "burn"}, 400), ("foreign", 403)],
)
def test_one_failure_undoes_an_atomic_batch(alice: Client, bob: Client, place: int, failing: Any, status: int) -> None:
    own, other = alice.create(), alice.create()
    bad = deleting(bob.create()) if failing == "foreign" else failing
    operations = [{**creating(), "ref": "a"}, updating(own, price=5), deleting(other)]
    operations.insert(place, bad)
    before = everything(alice)
    results = send(alice, *operations, atomic=True)
    assert statuses(results) == [status if at == place else 424 for at in range(4)]
    assert [result["body"] for at, result in enumerate(results) if at != place] == [NOT_DONE] * 3
    assert [result.get("ref") for result in results].count("a") == 1
    assert everything(alice) == before
    del operations[place]
    assert statuses(send(alice, *operations, atomic=True)) == [201, 200, 200]


def test_of_several_failures_each_is_told_as_it_is(alice: Client) -> None:
    own = alice.create()
    results = send(alice, deleting(own), deleting(own), creating(price=-1), creating(), atomic=True)
    assert statuses(results) == [424, 404, 400, 424]
    assert alice.get(f"/{own}").status_code == 200


def test_an_undone_batch_leaves_a_large_account_as_it_was(harness: Harness) -> None:
    # The account becomes large enough for its indexes within the batch that is undone, then in one that is not.
    key = harness.person("alice").key

    def run(count: int, *more: Any, **how: Any) -> int:
        body = {"operations": [creating()] * count + list(more), **how}
        return harness.fetch("POST", "/api/v1/listings/batch", key=key, json=body).status

    def found(query: str) -> int:
        return len(harness.fetch("GET", f"/api/v1/listings?{query}", key=key).json()["listings"])

    for _ in range(9):
        assert run(100) == 200
    assert run(99) == 200
    for _ in range(2):
        assert run(5, deleting(1), atomic=True) == 200
        assert (found("q=lamp"), found("price_max=0"), found("sort=price")) == (999, 999, 999)
    assert run(5, atomic=True) == 200
    assert (found("q=lamp"), found("price_max=0"), found("sort=price"), found("")) == (1004,) * 4


# As one request


@pytest.mark.parametrize("count", [1, 100])
def test_it_takes_1_to_100_operations(alice: Client, count: int) -> None:
    assert statuses(send(alice, *[creating()] * count)) == [201] * count


@pytest.mark.parametrize(
    "operations", [[], [creating()] * 101, None, {}, "x", 5, True, {"0": creating()}], ids=lambda value: str(value)[:20]
)
def test_any_other_number_is_refused(alice: Client, operations: Any) -> None:
    response = alice.post("/batch", json={"operations": operations})
    assert refusal(response) == ("invalid_request", "operations must be an array of 1 to 100 operations")
    assert alice.get().json() == {"listings": []}


@pytest.mark.parametrize(
    ("body", "code", "sentence"),
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
def test_a_body_that_is_no_batch_is_refused(alice: Client, body: bytes, code: str, sentence: str) -> None:
    assert refusal(alice.post("/batch", content=body)) == (code, sentence)


def test_a_batch_counts_once_towards_the_limit(alice: Client) -> None:
    before = int(alice.get().headers["X-RateLimit-Remaining"])
    response = alice.post("/batch", json={"operations": [creating()] * 100})
    assert int(response.headers["X-RateLimit-Remaining"]) == before - 1


def test_a_batch_needs_a_key_and_a_plan(http: httpx.Client, charlie: Client) -> None:
    body = {"operations": [creating()]}
    assert http.post("/api/v1/listings/batch", json=body).status_code == 401
    assert charlie.post("/batch", json=body).json() == {"error": "Business plan expired"}


def test_a_batch_has_no_tag_and_is_not_to_be_stored(alice: Client) -> None:
    response = alice.post("/batch/", json={"operations": [creating()]})
    assert (response.status_code, response.headers["Cache-Control"]) == (200, "no-store")
    assert not {"etag", "location", "x-error-code"} & set(response.headers)


# Repeated


def keyed(key: str) -> dict[str, str]:
    return {"Idempotency-Key": key}


@pytest.mark.decision("G36")
@pytest.mark.parametrize("atomic", [False, True])
def test_a_repeated_batch_gives_the_same_bytes_and_does_nothing(alice: Client, *, atomic: bool) -> None:
    own = alice.create()
    operations = [{**creating(), "ref": "é"}, updating(own, price=5), deleting(own)] + ([] if atomic else [deleting(1)])
    body = {"operations": operations, "atomic": atomic}
    first = alice.post("/batch", json=body, headers=keyed("b1"))
    state = everything(alice)
    again = alice.post("/batch", json=body, headers=keyed("b1"))
    assert (again.status_code, again.content) == (200, first.content)
    assert (first.headers.get("Idempotent-Replayed"), again.headers.get("Idempotent-Replayed")) == (None, "true")
    assert everything(alice) == state


def test_another_batch_under_the_same_key_is_refused(alice: Client) -> None:
    body = {"operations": [creating()]}
    alice.post("/batch", json=body, headers=keyed("b1"))
    responses = [
        alice.post("/batch", json={**body, "atomic": True}, headers=keyed("b1")),
        alice.post(json=body, headers=keyed("b1")),
        alice.post(json=LAMP, headers=keyed("b1")),
    ]
    assert [response.status_code for response in responses] == [422, 400, 422]
    assert len(alice.get().json()["listings"]) == 1


def test_a_body_that_is_good_for_two_paths_is_two_requests(alice: Client) -> None:
    body = {**LAMP, "operations": [creating()]}
    assert alice.post(json=body, headers=keyed("b1")).status_code == 201
    response = alice.post("/batch", json=body, headers=keyed("b1"))
    assert (response.status_code, response.headers["X-Error-Code"]) == (422, "idempotency_key_reused")


def test_a_batch_that_was_undone_keeps_no_key(alice: Client) -> None:
    own = alice.create()
    failing = {"operations": [creating(), deleting(1)], "atomic": True}
    assert statuses(alice.post("/batch", json=failing, headers=keyed("b1")).json()["results"]) == [424, 404]
    passing = {"operations": [deleting(own)], "atomic": True}
    response = alice.post("/batch", json=passing, headers=keyed("b1"))
    assert (statuses(response.json()["results"]), response.headers.get("Idempotent-Replayed")) == ([200], None)


def test_the_same_batch_at_the_same_instant_is_done_once(alice: Client) -> None:
    body = {"operations": [creating()] * 10}
    with ThreadPoolExecutor(8) as pool:
        responses = list(pool.map(lambda _: alice.post("/batch", json=body, headers=keyed("b1")), range(8)))
    assert len({response.content for response in responses}) == 1
    assert Counter("Idempotent-Replayed" in response.headers for response in responses) == {False: 1, True: 7}
    assert len(alice.get().json()["listings"]) == 10


# Anything at all


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
OPERATION = st.fixed_dictionaries(
    {"op": st.sampled_from(["create", "update", "delete"]) | JSON},
    optional={
        "id": st.sampled_from([1025, 2049, 1, 0, -1]) | JSON,
        "listing": st.just(LAMP) | JSON,
        "changes": st.just({"price": 5}) | JSON,
        "ref": JSON,
        "x": JSON,
    },
)


@settings(max_examples=300)
@given(
    operations=st.lists(OPERATION | JSON, min_size=1, max_size=5),
    query=st.sampled_from(["", "?dry_run=true"]),
    headers=st.sampled_from([{}, STRICT, {"Idempotency-Key": "k"}]),
    more=st.fixed_dictionaries({}, optional={"atomic": st.booleans(), "x": JSON}),
)
def test_no_batch_at_all_makes_the_service_fail(
    fuzzed: tuple[Harness, str], operations: list[Any], query: str, headers: dict[str, str], more: dict[str, Any]
) -> None:
    harness, key = fuzzed
    body = {"operations": operations, **more}
    reply = harness.fetch("POST", f"/api/v1/listings/batch{query}", key=key, json=body, headers=headers)
    assert reply.status in {200, 400, 422}, reply
    if reply.status == 200 and "idempotent-replayed" not in reply.headers:
        assert len(reply.json()["results"]) == len(operations)
        assert set(statuses(reply.json()["results"])) <= {200, 201, 400, 403, 404, 424}


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with Harness(tmp_path_factory.mktemp("fuzzed"), rate_limit="0") as harness:
        key = harness.person("alice").key
        for _ in range(2):
            harness.fetch("POST", "/api/v1/listings", key=key, json=LAMP)
        yield harness, key
