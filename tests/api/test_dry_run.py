"""`?dry_run=true` on every write: everything is checked and nothing is stored."""

import asyncio
import gc
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

import httpx2
import pytest

from tests.api.helpers import LISTINGS, STRICT, get_outcome, get_state
from tests.conftest import Client
from tests.harness import Harness, fetch

LAMP = {"title": "Lamp", "content": "Brass."}
DRY_RUN = "?dry_run=true"


class Listings:
    """Listings by name: `own` and `gone` (deleted) are alice's, `foreign` is bob's."""

    def __init__(self, alice: Client, bob: Client) -> None:
        self.alice = alice
        self.own, self.gone, self.foreign = alice.create(), alice.create(), bob.create()
        alice.delete(f"/{self.gone}")


@pytest.fixture
def listings(alice: Client, bob: Client) -> Listings:
    return Listings(alice, bob)


Send: TypeAlias = Callable[[Listings, str], httpx2.Response]


def request(method: str, path: str, **more: Any) -> Send:
    """Return a function that sends a request as alice with a given query; the path may name a listing."""
    return lambda listings, query: listings.alice.request(method, path.format(**vars(listings)) + query, **more)


def batch(*operations: Any, **more: Any) -> Send:
    """Return a function that sends a batch with a given query; an id may name a listing."""

    def send(listings: Listings, query: str) -> httpx2.Response:
        with_ids = [
            {**operation, "id": getattr(listings, operation["id"])} if "id" in operation else operation
            for operation in operations
        ]
        return listings.alice.post(f"/batch{query}", json={"operations": with_ids, **more})

    return send


DELETED = {"before": {"deleted_at": None, "is_active": True}, "after": {"deleted_at": "now", "is_active": False}}
_EMPTY = dict.fromkeys(("category", "location", "region", "district"), "")
_UNSET = dict.fromkeys(("latitude", "longitude", "external_id"))
_DEFAULTS = {"type": "product", "images": [], "price": 0.0, "price_type": "fixed", "is_active": True}
CREATED = {"before": None, "after": {**LAMP, **_EMPTY, **_UNSET, **_DEFAULTS}}

ACCEPTED: dict[str, tuple[Send, Any]] = {
    "create": (request("POST", "", json=LAMP), {"message": "listing would be created"}),
    "PUT": (request("PUT", "/{own}", json={"price": 5}), {"message": "listing would be updated"}),
    "PATCH": (request("PATCH", "/{own}", json={"title": "New"}), {"message": "listing would be updated"}),
    "update without changes": (request("PATCH", "/{own}", json={}), {"message": "listing would be updated"}),
    "delete": (request("DELETE", "/{own}"), {"message": "listing would be deleted"}),
    "restore": (request("POST", "/{gone}/restore"), {"message": "listing would be restored"}),
    "update with If-Match": (
        request("PATCH", "/{own}", json={"price": 5}, headers={"If-Match": '"v1.0"'}),
        {"message": "listing would be updated"},
    ),
    "batch": (
        batch(
            {"op": "create", "listing": LAMP, "ref": "a"},
            {"op": "update", "id": "own", "changes": {"price": 5}},
            {"op": "delete", "id": "own"},
            {"op": "delete", "id": "own"},
        ),
        {
            "results": [
                {"ref": "a", "status": 200, "body": {"message": "listing would be created"}, **CREATED},
                {
                    "status": 200,
                    "body": {"message": "listing would be updated"},
                    "before": {"price": 0.0},
                    "after": {"price": 5.0},
                },
                {"status": 200, "body": {"message": "listing would be deleted"}, **DELETED},
                {"status": 404, "code": "listing_not_found", "body": {"error": "Listing not found"}},
            ]
        },
    ),
    "atomic batch": (
        batch({"op": "delete", "id": "own"}, {"op": "create", "listing": LAMP}, atomic=True),
        {
            "results": [
                {"status": 200, "body": {"message": "listing would be deleted"}, **DELETED},
                {"status": 200, "body": {"message": "listing would be created"}, **CREATED},
            ]
        },
    ),
}


@pytest.mark.every_engine
@pytest.mark.parametrize("kind", ACCEPTED)
def test_a_valid_write_returns_200_and_stores_nothing(listings: Listings, kind: str) -> None:
    send, content = ACCEPTED[kind]
    before = get_state(listings.alice)
    response = send(listings, DRY_RUN)
    shown = response.json()
    for result in shown.get("results", ()):
        if "deleted_at" in result.get("after", ()):
            result["after"]["deleted_at"] = "now"
    assert (response.status_code, shown) == (200, content)
    assert not {"location", "etag"} & set(response.headers)
    assert response.headers["Cache-Control"] == "no-store"
    assert get_state(listings.alice) == before
    assert send(listings, "?dry_run=false").status_code in {200, 201}
    assert (get_state(listings.alice) != before) == (kind != "update without changes")


REJECTED: dict[str, Send] = {
    "create without a title": request("POST", "", json={"content": "c"}),
    "create with bad fields": request("POST", "", json={**LAMP, "price": "5", "type": "car"}),
    "malformed JSON": request("POST", "", content=b"{"),
    "empty body": request("POST", ""),
    "unknown field": request("POST", "", json={**LAMP, "colour": "red"}, headers=STRICT),
    "unknown API key": request("POST", "", json=LAMP, headers={"X-API-Key": "0123456789abcdef"}),
    "invalid Idempotency-Key": request("POST", "", json=LAMP, headers={"Idempotency-Key": "x" * 256}),
    "compressed body": request("POST", "", json=LAMP, headers={"Content-Encoding": "gzip"}),
    "update with a bad field": request("PATCH", "/{own}", json={"price": -1}),
    "update with an array": request("PUT", "/{own}", content=b"[]"),
    "update of another account's listing": request("PATCH", "/{foreign}", json={"price": -1}),
    "update of a deleted listing": request("PATCH", "/{gone}", json={"price": 1}),
    "update of an unknown listing": request("PUT", "/1", json={}),
    "stale update": request("PATCH", "/{own}", json={"price": 1}, headers={"If-Match": '"v9.0"'}),
    "delete of another account's listing": request("DELETE", "/{foreign}"),
    "delete of a deleted listing": request("DELETE", "/{gone}"),
    "stale delete": request("DELETE", "/{own}", headers={"If-Match": '"v9.0"'}),
    "restore of another account's listing": request("POST", "/{foreign}/restore"),
    "restore of an invalid id": request("POST", "/abc/restore"),
    "stale restore": request("POST", "/{gone}/restore", headers={"If-Match": '"v1.0"'}),
    "empty batch": batch(),
    "batch with a bad flag": batch({"op": "create", "listing": LAMP}, atomic=1),
    "failing atomic batch": batch(
        {"op": "create", "listing": LAMP}, {"op": "delete", "id": "gone"}, {"op": "delete", "id": "own"}, atomic=True
    ),
    "batch of failing operations": batch(
        {"op": "create", "listing": {}},
        {"op": "delete", "id": "gone"},
        {"op": "update", "id": "foreign", "changes": {}},
    ),
}


@pytest.mark.parametrize("kind", REJECTED)
def test_an_invalid_write_returns_the_same_error(listings: Listings, kind: str) -> None:
    before = get_state(listings.alice)
    dry_run, write = REJECTED[kind](listings, DRY_RUN), REJECTED[kind](listings, "")
    assert (dry_run.status_code, dry_run.content) == (write.status_code, write.content)
    assert get_outcome(dry_run) == get_outcome(write)
    assert "error" in dry_run.text
    assert get_state(listings.alice) == before


@pytest.mark.parametrize(
    ("method", "path", "value"),
    [
        *(("POST", "", value) for value in ("", "2", "yes", "Truth", "%FF", "true&dry_run=true", "true&dry_run=false")),
        *((method, "/{own}", "yes") for method in ("PUT", "PATCH", "DELETE")),
        ("POST", "/{gone}/restore", "yes"),
    ],
)
def test_any_other_value_is_rejected_and_nothing_is_stored(
    listings: Listings, method: str, path: str, value: str
) -> None:
    before = get_state(listings.alice)
    response = request(method, path, json=LAMP)(listings, f"?dry_run={value}")
    assert get_outcome(response) == (400, "invalid_request")
    assert response.json()["error"].startswith(("dry_run must ", "dry_run may "))
    assert get_state(listings.alice) == before


def test_the_error_quotes_the_bad_value(alice: Client) -> None:
    assert alice.post("?dry_run=yes", json=LAMP).json() == {"error": 'dry_run must be true or false, got "yes"'}
    response = alice.post("/batch?dry_run=2", json={"operations": [{"op": "create", "listing": LAMP}]})
    assert response.json() == {"error": 'dry_run must be true or false, got "2"'}


def test_a_dry_run_stores_no_idempotency_key(alice: Client) -> None:
    headers = {"Idempotency-Key": "k1"}
    for _ in range(2):
        response = alice.post(DRY_RUN, json=LAMP, headers=headers)
        assert (response.status_code, "Idempotent-Replayed" in response.headers) == (200, False)
    other = alice.post(json={**LAMP, "price": 5}, headers=headers)
    assert (other.status_code, "Idempotent-Replayed" in other.headers) == (201, False)


@pytest.mark.every_engine
def test_a_dry_run_replays_the_first_response_as_the_write_would(alice: Client) -> None:
    headers = {"Idempotency-Key": "k1"}
    first = alice.post(json=LAMP, headers=headers)
    same = alice.post(DRY_RUN, json=LAMP, headers=headers)
    other = alice.post(DRY_RUN, json={**LAMP, "price": 1}, headers=headers)
    assert (same.status_code, same.headers["Idempotent-Replayed"]) == (201, "true")
    assert same.json() == first.json()
    assert get_outcome(other) == (422, "idempotency_key_reused")


def test_a_dry_run_uses_no_id_and_names_ignored_fields(alice: Client) -> None:
    first = alice.create()
    for _ in range(3):
        response = alice.post(DRY_RUN, json={**LAMP, "colour": "red"})
        assert response.headers["X-Ignored-Fields"] == "colour"
    assert alice.create() == first + 1024


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (f"/batch{DRY_RUN}", {"operations": [{"op": "create", "listing": LAMP}]}, 200),
        ("/{id}", {"price": 5}, 412),
    ],
    ids=["rolled back", "rejected"],
)
def test_no_frames_wait_for_the_garbage_collector(tmp_path: Path, path: str, body: Any, status: int) -> None:
    """They would hold listings, which may be large, for a long time, because full collections are rare."""
    with Harness(tmp_path) as harness:
        key = harness.person("alice").key
        listing_id = harness.fetch("POST", LISTINGS, key=key, json=LAMP).json()["id"]
        url = LISTINGS + path.format(id=listing_id)
        method, headers = ("PUT", {"If-Match": '"v9.0"'}) if status == 412 else ("POST", {})
        gc.collect()
        gc.disable()
        try:
            for _ in range(20):
                assert harness.fetch(method, url, key=key, json=body, headers=headers).status == status
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            assert not [one for one in gc.garbage if isinstance(one, FrameType)]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()


def test_the_dry_runs_of_accounts_take_turns(tmp_path: Path) -> None:
    body = b'{"atomic": true, "operations": [{"op": "create", "listing": {"title": "Bike", "content": "Red."}}]}'
    ended: list[str] = []

    async def send(harness: Harness, name: str, key: str) -> None:
        headers = [(b"x-api-key", key.encode()), (b"content-type", b"application/json")]
        reply = await fetch(harness.application, "POST", "/api/v1/listings/batch?dry_run=true", headers, [body])
        assert reply.status == 200, reply.body
        ended.append(name)

    async def send_all(harness: Harness, alice: str, bob: str) -> None:
        await asyncio.gather(*(send(harness, "alice", alice) for _ in range(20)), send(harness, "bob", bob))

    with Harness(tmp_path) as harness:
        alice, bob, _ = harness.cast()
        harness.run(send_all(harness, alice.key, bob.key))
    assert ended.index("bob") <= 3
