"""?dry_run=true on every write: everything is checked and nothing is stored."""

from collections.abc import Callable
from typing import Any, TypeAlias

import httpx
import pytest

from tests.conftest import Client

LAMP = {"title": "Lamp", "content": "Brass."}
STRICT = {"Prefer": "handling=strict"}
DRY = "?dry_run=true"


class Stage:
    """alice's listings by name, and a foreign one."""

    def __init__(self, alice: Client, bob: Client) -> None:
        self.alice = alice
        self.own, self.gone, self.foreign = alice.create(), alice.create(), bob.create()
        alice.delete(f"/{self.gone}")

    def state(self) -> tuple[bytes, str]:
        """Everything that is stored of alice's listings, and the tag that changes with every edit."""
        response = self.alice.get("?status=all&include=all,deleted_at")
        return response.content, response.headers["ETag"]


@pytest.fixture
def stage(alice: Client, bob: Client) -> Stage:
    return Stage(alice, bob)


Send: TypeAlias = Callable[[Stage, str], httpx.Response]


def sends(method: str, path: str, **more: Any) -> Send:
    """A request to a path that may name a listing; the query is given later."""
    return lambda stage, query: stage.alice.request(method, path.format(**vars(stage)) + query, **more)


def batch(*operations: Any, **more: Any) -> Send:
    """A batch whose ids may name a listing."""

    def send(stage: Stage, query: str) -> httpx.Response:
        named = [
            {**operation, "id": getattr(stage, operation["id"])} if "id" in operation else operation
            for operation in operations
        ]
        return stage.alice.post(f"/batch{query}", json={"operations": named, **more})

    return send


GOOD: dict[str, tuple[Send, Any]] = {
    "create": (sends("POST", "", json=LAMP), {"message": "listing would be created"}),
    "PUT": (sends("PUT", "/{own}", json={"price": 5}), {"message": "listing would be updated"}),
    "PATCH": (sends("PATCH", "/{own}", json={"title": "New"}), {"message": "listing would be updated"}),
    "an update of nothing": (sends("PATCH", "/{own}", json={}), {"message": "listing would be updated"}),
    "delete": (sends("DELETE", "/{own}"), {"message": "listing would be deleted"}),
    "restore": (sends("POST", "/{gone}/restore"), {"message": "listing would be restored"}),
    "If-Match": (
        sends("PATCH", "/{own}", json={"price": 5}, headers={"If-Match": '"v1.0"'}),
        {"message": "listing would be updated"},
    ),
    "a batch": (
        batch(
            {"op": "create", "listing": LAMP, "ref": "a"},
            {"op": "update", "id": "own", "changes": {"price": 5}},
            {"op": "delete", "id": "own"},
            {"op": "delete", "id": "own"},
        ),
        {
            "results": [
                {"ref": "a", "status": 200, "body": {"message": "listing would be created"}},
                {"status": 200, "body": {"message": "listing would be updated"}},
                {"status": 200, "body": {"message": "listing would be deleted"}},
                {"status": 404, "body": {"error": "Listing not found"}},
            ]
        },
    ),
    "an atomic batch": (
        batch({"op": "delete", "id": "own"}, {"op": "create", "listing": LAMP}, atomic=True),
        {
            "results": [
                {"status": 200, "body": {"message": "listing would be deleted"}},
                {"status": 200, "body": {"message": "listing would be created"}},
            ]
        },
    ),
}


@pytest.mark.parametrize("kind", GOOD)
def test_a_write_that_would_be_done_is_200_and_stores_nothing(stage: Stage, kind: str) -> None:
    send, content = GOOD[kind]
    before = stage.state()
    response = send(stage, DRY)
    assert (response.status_code, response.json()) == (200, content)
    assert not {"location", "etag"} & set(response.headers)
    assert response.headers["Cache-Control"] == "no-store"
    assert stage.state() == before


@pytest.mark.parametrize("kind", GOOD)
def test_what_was_rehearsed_can_then_be_done(stage: Stage, kind: str) -> None:
    send, _ = GOOD[kind]
    before = stage.state()
    assert send(stage, DRY).status_code == 200
    assert send(stage, "?dry_run=false").status_code in {200, 201}
    assert (stage.state() != before) == (kind != "an update of nothing")


BAD: dict[str, Send] = {
    "a create without a title": sends("POST", "", json={"content": "c"}),
    "a create with faults": sends("POST", "", json={**LAMP, "price": "5", "type": "car"}),
    "no JSON": sends("POST", "", content=b"{"),
    "an empty body": sends("POST", ""),
    "an unknown key": sends("POST", "", json={**LAMP, "colour": "red"}, headers=STRICT),
    "another key": sends("POST", "", json=LAMP, headers={"X-API-Key": "0123456789abcdef"}),
    "a bad Idempotency-Key": sends("POST", "", json=LAMP, headers={"Idempotency-Key": "x" * 256}),
    "a compressed body": sends("POST", "", json=LAMP, headers={"Content-Encoding": "gzip"}),
    "an update with a fault": sends("PATCH", "/{own}", json={"price": -1}),
    "an update of no JSON": sends("PUT", "/{own}", content=b"[]"),
    "an update of a foreign one": sends("PATCH", "/{foreign}", json={"price": -1}),
    "an update of a deleted one": sends("PATCH", "/{gone}", json={"price": 1}),
    "an update of none": sends("PUT", "/1", json={}),
    "a stale update": sends("PATCH", "/{own}", json={"price": 1}, headers={"If-Match": '"v9.0"'}),
    "a delete of a foreign one": sends("DELETE", "/{foreign}"),
    "a delete of a deleted one": sends("DELETE", "/{gone}"),
    "a stale delete": sends("DELETE", "/{own}", headers={"If-Match": '"v9.0"'}),
    "a restore of a foreign one": sends("POST", "/{foreign}/restore"),
    "a restore of none": sends("POST", "/abc/restore"),
    "a stale restore": sends("POST", "/{gone}/restore", headers={"If-Match": '"v1.0"'}),
    "a batch of none": batch(),
    "a batch with a bad flag": batch({"op": "create", "listing": LAMP}, atomic=1),
    "an atomic batch that fails": batch(
        {"op": "create", "listing": LAMP}, {"op": "delete", "id": "gone"}, {"op": "delete", "id": "own"}, atomic=True
    ),
    "a batch of failures": batch(
        {"op": "create", "listing": {}},
        {"op": "delete", "id": "gone"},
        {"op": "update", "id": "foreign", "changes": {}},
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_write_that_would_be_refused_gets_the_very_error(stage: Stage, kind: str) -> None:
    before = stage.state()
    dry_run_result, done = BAD[kind](stage, DRY), BAD[kind](stage, "")
    assert (dry_run_result.status_code, dry_run_result.content) == (done.status_code, done.content)
    assert dry_run_result.headers.get("X-Error-Code") == done.headers.get("X-Error-Code")
    assert "error" in dry_run_result.text
    assert stage.state() == before


@pytest.mark.parametrize(
    "method_and_path", ["POST ", "PUT /{own}", "PATCH /{own}", "DELETE /{own}", "POST /{gone}/restore"]
)
@pytest.mark.parametrize("value", ["", "1", "yes", "True", "%FF", "true&dry_run=true", "true&dry_run=false"])
def test_any_other_value_is_refused_and_nothing_is_done(stage: Stage, method_and_path: str, value: str) -> None:
    method, path = method_and_path.split(" ")
    before = stage.state()
    response = sends(method, path, json=LAMP)(stage, f"?dry_run={value}")
    assert (response.status_code, response.headers["X-Error-Code"]) == (400, "invalid_request")
    assert response.json()["error"].startswith(("dry_run must ", "dry_run may "))
    assert stage.state() == before


def test_the_sentence_of_a_bad_value(stage: Stage) -> None:
    assert stage.alice.post("?dry_run=yes", json=LAMP).json() == {"error": 'dry_run must be true or false, got "yes"'}
    response = stage.alice.post("/batch?dry_run=1", json={"operations": [{"op": "create", "listing": LAMP}]})
    assert response.json() == {"error": 'dry_run must be true or false, got "1"'}


def test_an_unknown_parameter_of_a_write_is_ignored_unless_handling_is_strict(stage: Stage) -> None:
    assert stage.alice.post("?dryrun=true&limit=0", json=LAMP).status_code == 201
    response = stage.alice.post("?dryrun=true", json=LAMP, headers=STRICT)
    assert response.json() == {"error": '"dryrun" is not a known parameter'}


def test_a_rehearsal_keeps_no_idempotency_key(alice: Client) -> None:
    keyed = {"Idempotency-Key": "k1"}
    for _ in range(2):
        response = alice.post(DRY, json=LAMP, headers=keyed)
        assert (response.status_code, "Idempotent-Replayed" in response.headers) == (200, False)
    other = alice.post(json={**LAMP, "price": 5}, headers=keyed)
    assert (other.status_code, "Idempotent-Replayed" in other.headers) == (201, False)


def test_a_rehearsal_gives_the_first_answer_again_where_the_request_would(alice: Client) -> None:
    keyed = {"Idempotency-Key": "k1"}
    first = alice.post(json=LAMP, headers=keyed)
    same, other = (
        alice.post(DRY, json=LAMP, headers=keyed),
        alice.post(DRY, json={"title": "t"} | LAMP | {"price": 1}, headers=keyed),
    )
    assert (same.status_code, same.headers["Idempotent-Replayed"]) == (201, "true")
    assert same.json() == first.json()
    assert (other.status_code, other.headers["X-Error-Code"]) == (422, "idempotency_key_reused")


def test_a_rehearsal_uses_up_no_id_and_tells_what_is_ignored(alice: Client) -> None:
    first = alice.create()
    for _ in range(3):
        response = alice.post(DRY, json={**LAMP, "colour": "red"})
        assert response.headers["X-Ignored-Fields"] == "colour"
    assert alice.create() == first + 1024


def test_a_rehearsal_counts_towards_the_limit(alice: Client) -> None:
    left = [int(alice.post(DRY, json=LAMP).headers["X-RateLimit-Remaining"]) for _ in range(2)]
    assert left[0] - left[1] == 1


def test_there_is_nothing_to_rehearse_in_reading(alice: Client) -> None:
    listing = alice.create()
    assert alice.get(f"/{listing}{DRY}").json()["id"] == listing
    assert len(alice.get(DRY).json()["listings"]) == 1
