"""POST /api/v1/changes/revert and GET /api/v1/changes/reverts/{id} (decision G46)."""

from typing import Any

import pytest

from tests.api.helpers import LISTINGS, STRICT
from tests.api.test_changes import Seller
from tests.harness import Harness, Reply

REVERT = "/api/v1/changes/revert"
CHANGES = "/api/v1/changes"
REVERTS = f"{CHANGES}/reverts"


class UndoingSeller(Seller):
    def revert(self, body: Any, query: str = "", **options: Any) -> Reply:
        return self.fetch("POST", REVERT + query, json=body, **options)

    def undo(self, body: Any, query: str = "", status: int = 200) -> Any:
        reply = self.revert(body, query)
        assert reply.status == status, reply
        return reply.json()

    def get(self, listing_id: int) -> Any:
        return self.write("GET", f"/{listing_id}")


@pytest.fixture
def alice(harness: Harness) -> UndoingSeller:
    return UndoingSeller(harness, harness.person("alice"))


@pytest.mark.decision("G46")
@pytest.mark.every_engine
def test_a_change_set_is_undone_and_redone(alice: UndoingSeller) -> None:
    lamp = alice.create(price=12.5)
    alice.write("PATCH", f"/{lamp}", {"price": 10, "title": "New"})
    body = {
        "id": 1,
        "status": "finished",
        "progress": 1.0,
        "counts": {"reverted": 1, "unchanged": 0, "conflicts": 0},
        "conflicts": [],
        "last": 0,
        "more": False,
        "changes": [],
    }
    assert alice.undo({"change": 2}) == body
    assert (alice.get(lamp)["price"], alice.get(lamp)["title"]) == (12.5, "Lamp")
    assert alice.fetch("GET", f"{REVERTS}/1").json() == body
    (undone,) = alice.changes("?after=2")["change_sets"]
    assert (undone["kind"], undone["revert"], undone["actor"]["type"]) == ("reverted", 1, "key")
    assert alice.undo({"revert": 1})["id"] == 2
    assert alice.get(lamp)["price"] == 10


def test_a_field_that_was_changed_later_is_reported(alice: UndoingSeller) -> None:
    lamp = alice.create(price=12.5, external_id="SKU 1")
    alice.write("PATCH", f"/{lamp}", {"price": 10})
    alice.write("PATCH", f"/{lamp}", {"price": 11})
    body = alice.undo({"change": 2})
    conflict = {
        "id": lamp,
        "external_id": "SKU 1",
        "reason": "changed_later",
        "fields": ["price"],
        "change": 3,
        "holder": None,
    }
    assert (body["conflicts"], body["last"], body["more"]) == ([conflict], 1, False)
    page = alice.fetch("GET", f"{REVERTS}/{body['id']}?limit=0").json()
    assert (page["conflicts"], page["last"], page["more"]) == ([], 0, True)
    assert alice.fetch("GET", f"{REVERTS}/{body['id']}?after=1").json()["conflicts"] == []
    assert alice.undo({"change": 2, "overwrite": True})["conflicts"] == []
    assert alice.get(lamp)["price"] == 12.5


def test_a_dry_run_shows_what_would_be_written(alice: UndoingSeller) -> None:
    lamp = alice.create(price=12.5)
    alice.write("PATCH", f"/{lamp}", {"price": 10})
    body = alice.undo({"change": 2}, "?dry_run=true")
    change = {"id": lamp, "external_id": None, "before": {"price": 10.0}, "after": {"price": 12.5}}
    assert (body["id"], body["status"], body["progress"], body["changes"]) == (None, "planned", 1.0, [change])
    assert (alice.changes("?limit=0")["last"], alice.get(lamp)["price"]) == (2, 10)


@pytest.mark.decision("G46")
def test_a_dry_run_of_long_changes_shows_only_the_first(alice: UndoingSeller) -> None:
    create = {"op": "create", "listing": {"title": "Lamp", "content": "Brass."}}
    batches = [alice.write("POST", "/batch", {"operations": [create] * 100})["results"] for _ in range(3)]
    ids = [one["body"]["id"] for results in batches for one in results]
    alice.harness.clock.advance(10)
    for start in range(0, 300, 100):
        length = 20_000 if start == 200 else 1  # the undo begins with the last ones
        updates = [{"op": "update", "id": each, "changes": {"content": "x" * length}} for each in ids[start:][:100]]
        for half in (updates[:50], updates[50:]):
            alice.write("POST", "/batch", {"operations": half})
    (last,) = alice.changes("?after=8")["change_sets"]
    body = alice.undo({"key": last["actor"]["id"], "since": last["time"]}, "?dry_run=true")
    assert body["counts"]["reverted"] == 300
    assert [one["id"] for one in body["changes"]] == ids[:-14:-1]


@pytest.mark.every_engine
def test_a_period_in_the_future_is_rejected(alice: UndoingSeller) -> None:
    key = alice.harness.run(alice.harness.store.list_keys(1))[0].id
    error = {"error": "since must not be in the future. Times are in UTC"}
    assert alice.undo({"key": key, "since": "2099-01-01 00:00:00"}, status=400) == error


@pytest.mark.decision("G36")
@pytest.mark.every_engine
def test_a_repeated_revert_needs_its_change_sets_no_longer(alice: UndoingSeller) -> None:
    lamp = alice.create(price=12.5)
    alice.write("PATCH", f"/{lamp}", {"price": 10})
    alice.harness.clock.advance(10)
    first = alice.revert({"change": 2}, headers={"Idempotency-Key": "once"})
    alice.harness.run(alice.harness.store.purge_changes(range(1024), int(alice.harness.clock()) - 5, 10))
    assert alice.revert({"change": 2}).status == 410
    again = alice.revert({"change": 2}, headers={"Idempotency-Key": "once"})
    dry_run = alice.revert({"change": 2}, "?dry_run=true", headers={"Idempotency-Key": "once"})
    assert (dry_run.body, dry_run.headers["idempotent-replayed"]) == (again.body, "true")
    other = alice.revert({"change": 1}, headers={"Idempotency-Key": "once"})
    assert [first.status, again.status, other.status] == [200, 200, 422]
    assert alice.revert({"change": 1}, "?dry_run=true", headers={"Idempotency-Key": "once"}).status == 422
    assert again.headers["idempotent-replayed"] == "true"


INVALID_BODIES: tuple[tuple[Any, str], ...] = (
    ({}, "Exactly one of change, import, revert, group, key is required"),
    ({"change": 1, "key": 1}, "Exactly one of change, import, revert, group, key is required"),
    ({"change": True}, "change must be an id, got true"),
    ({"change": 1, "overwrite": 1}, "overwrite must be true or false, got 1"),
    ({"key": 1}, "since is required with key"),
    ({"key": 1, "since": 5}, "since must be a time like 2026-11-21 06:54:32, got 5"),
    ({"key": 1, "since": "2026-11-21", "until": "2026-11-20"}, "until must not be before since"),
    ({"change": 1, "since": "2026-11-21"}, "since is only for key, not for change"),
    ({"import": 1, "until": "2026-11-21"}, "until is only for key, not for import"),
    ({"group": 5}, "group must be a name of X-Change-Group, or # and an id, got 5"),
    ({"group": "#x"}, 'group must be a name of X-Change-Group, or # and an id, got "#x"'),
)


def test_an_invalid_body_is_rejected(alice: UndoingSeller) -> None:
    for body, error in INVALID_BODIES:
        assert alice.undo(body, status=400) == {"error": error}


def test_unknown_fields_are_ignored_or_rejected(alice: UndoingSeller) -> None:
    alice.create()
    assert alice.revert({"change": 1, "extra": "x"}).headers["x-ignored-fields"] == "extra"
    assert alice.revert({"change": 1, "extra": "x"}, headers=STRICT).json() == {
        "error": '"extra" is not a field of this revert'
    }


def test_nobody_reverts_or_sees_the_changes_of_another_account(alice: UndoingSeller) -> None:
    lamp = alice.create()
    alice.write("PATCH", f"/{lamp}", {"price": 10})
    alice.undo({"change": 2})
    bob = UndoingSeller(alice.harness, alice.harness.person("bob"))
    assert bob.undo({"change": 2}, status=404)["error"] == "There is no change set with the id 2"
    for revert_id in (3, "x"):
        assert bob.fetch("GET", f"{REVERTS}/{revert_id}").status == 404
    key = alice.changes()["change_sets"][0]["actor"]["id"]
    assert bob.undo({"key": key, "since": "2026-11-21"}, status=404)


GROUP = {"X-Change-Group": "night-1"}


@pytest.mark.decision("G46")
@pytest.mark.every_engine
def test_writes_with_the_same_name_are_undone_together(alice: UndoingSeller) -> None:
    lamp, bed = alice.create(price=5), alice.create(price=6)
    alice.fetch("PATCH", f"{LISTINGS}/{lamp}", json={"price": 7}, headers=GROUP)
    alice.write("PATCH", f"/{bed}", {"title": "Between"})
    update = {"op": "update", "id": bed, "changes": {"price": 8}}
    alice.fetch("POST", f"{LISTINGS}/batch", json={"operations": [update]}, headers=GROUP)
    made = alice.fetch("POST", LISTINGS, json={"title": "New", "content": "Pine."}, headers=GROUP).json()["id"]
    alice.fetch("DELETE", f"{LISTINGS}/{lamp}", headers=GROUP)
    groups = [(one["kind"], one.get("group"), one["actor"]["type"]) for one in alice.changes()["change_sets"]]
    key = "key"
    assert groups[2:] == [
        ("updated", "night-1", key),
        ("updated", None, key),
        ("batch", "night-1", key),
        ("created", "night-1", key),
        ("deleted", "night-1", key),
    ]
    (group,) = alice.fetch("GET", f"{CHANGES}/groups").json()["groups"]
    assert (group["kind"], group["group"], group["undo"]) == ("group", "night-1", {"group": "night-1"})
    assert (group["id"], group["last"], group["change_sets"], group["changes"]) == (3, 7, 4, 4)
    plan = alice.undo(group["undo"], "?dry_run=true")
    assert (plan["since"], plan["until"]) == (group["since"], group["until"])
    assert alice.undo(group["undo"])["counts"] == plan["counts"] == {"reverted": 3, "unchanged": 0, "conflicts": 0}
    assert (alice.get(lamp)["price"], alice.get(bed)["price"], alice.get(bed)["title"]) == (5, 6, "Between")
    assert alice.fetch("GET", f"{LISTINGS}/{made}").status == 404
    first = alice.fetch("GET", f"{CHANGES}/groups?limit=1").json()
    assert (first["groups"][0]["undo"], first["more"]) == ({"revert": 1}, True)
    assert alice.fetch("GET", f"{CHANGES}/groups?before={first['last']}").json()["groups"] == [group]
    assert alice.undo({"revert": 1})["counts"]["reverted"] == 3


def test_an_account_without_changes_has_no_groups(alice: UndoingSeller) -> None:
    assert alice.fetch("GET", f"{CHANGES}/groups").json() == {"groups": [], "last": 0, "more": False}


def test_the_name_of_a_group_is_checked(alice: UndoingSeller) -> None:
    lamp = alice.create()
    for name in ("#1", "a b", "x" * 65, "é"):
        reply = alice.fetch("PATCH", f"{LISTINGS}/{lamp}", json={"price": 7}, headers={"X-Change-Group": name})
        assert (reply.status, reply.headers["x-error-code"]) == (400, "invalid_request")
    assert alice.undo({"group": "other"}, status=404)["error"] == "There is no group with the name other"
    assert alice.undo({"group": "#1"}, status=404)["error"] == "There is no group with the name #1"


def test_a_key_can_name_itself(alice: UndoingSeller) -> None:
    lamp = alice.create()
    since = alice.changes()["change_sets"][0]["time"]
    assert alice.undo({"key": "self", "since": since})["counts"]["reverted"] == 1
    assert alice.fetch("GET", f"{LISTINGS}/{lamp}").status == 404


@pytest.mark.decision("G55")
@pytest.mark.every_engine
def test_a_revert_that_changes_nothing_is_no_change_set(alice: UndoingSeller) -> None:
    lamp = alice.create(price=5)
    alice.write("PATCH", f"/{lamp}", {"price": 6})
    alice.write("PATCH", f"/{lamp}", {"price": 7})
    tag = alice.fetch("GET", LISTINGS).headers["etag"]
    first = alice.undo({"change": 2})
    assert (first["id"], first["counts"]) == (1, {"reverted": 0, "unchanged": 0, "conflicts": 1})
    assert alice.changes("?after=3") == {"change_sets": [], "last": 3, "more": False}
    assert alice.fetch("GET", LISTINGS).headers["etag"] == tag
    assert alice.undo({"revert": 1})["counts"] == {"reverted": 0, "unchanged": 0, "conflicts": 0}
    alice.write("PATCH", f"/{lamp}", {"title": "Z"})
    assert [one["id"] for one in alice.changes()["change_sets"]] == [1, 2, 3, 4]
    assert alice.undo({"change": 4})["id"] == 3
