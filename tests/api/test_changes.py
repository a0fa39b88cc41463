"""GET /api/v1/changes and GET /api/v1/listings/{id}/changes (decision G45)."""

from typing import Any

import pytest

from listings.service import Services
from tests.api.helpers import LISTINGS
from tests.harness import Harness, Person, Reply

CHANGES = "/api/v1/changes"


class Seller:
    def __init__(self, harness: Harness, person: Person) -> None:
        self.harness = harness
        self.person = person

    def fetch(self, method: str, path: str, **options: Any) -> Reply:
        return self.harness.fetch(method, path, key=self.person.key, **options)

    def create(self, **fields: Any) -> int:
        reply = self.fetch("POST", LISTINGS, json={"title": "Lamp", "content": "Brass.", **fields})
        assert reply.status == 201, reply
        return int(reply.json()["id"])

    def write(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        reply = self.fetch(method, f"{LISTINGS}{path}", json=body)
        assert reply.status == status, reply
        return reply.json()

    def changes(self, query: str = "") -> Any:
        reply = self.fetch("GET", CHANGES + query)
        assert reply.status == 200, reply
        return reply.json()

    def history(self, listing_id: int, query: str = "") -> Any:
        return self.write("GET", f"/{listing_id}/changes{query}")


@pytest.fixture
def alice(harness: Harness) -> Seller:
    return Seller(harness, harness.person("alice"))


@pytest.mark.decision("G45")
@pytest.mark.every_engine
def test_the_feed_has_each_write_once_with_the_fields_before_and_after(alice: Seller) -> None:
    lamp = alice.create(price=12.5, images=["/1.jpg"], external_id="SKU 1")
    alice.write("PATCH", f"/{lamp}", {"price": 10, "images": [], "is_active": False})
    alice.write("PATCH", f"/{lamp}", {"price": 10})
    alice.write("DELETE", f"/{lamp}")
    alice.write("POST", f"/{lamp}/restore")
    operations: list[Any] = [{"op": "create", "listing": {"title": "Bed", "content": "Pine."}}]
    operations.append({"op": "update", "id": lamp, "changes": {"external_id": "SKU 2"}})
    bed = alice.write("POST", "/batch", {"operations": operations})["results"][0]["body"]["id"]
    body = alice.changes()
    created, updated, deleted, restored, batch_set = body["change_sets"]
    assert (body["last"], body["more"]) == (5, False)
    assert [one["id"] for one in body["change_sets"]] == [1, 2, 3, 4, 5]
    assert [one["kind"] for one in body["change_sets"]] == ["created", "updated", "deleted", "restored", "batch"]
    (keys,) = alice.harness.run(list_keys(alice.harness.services, alice.person))
    assert (
        created["actor"]
        == batch_set["actor"]
        == {
            "type": "key",
            "name": keys.name,
            "hint": keys.hint,
            "id": keys.id,
        }
    )
    record = alice.write("GET", f"/{lamp}?include=all,external_id")
    as_created = {name: value for name, value in record.items() if name not in {"id", "view_count"}}
    as_created |= {"price": 12.5, "images": ["/1.jpg"], "is_active": True, "external_id": "SKU 1", "deleted_at": None}
    as_created["updated_at"] = created["time"]
    assert created["time"] == record["created_at"]
    assert created["changes"] == [{"id": lamp, "external_id": "SKU 2", "before": None, "after": as_created}]
    assert updated["changes"][0]["before"] == {"price": 12.5, "images": ["/1.jpg"], "is_active": True}
    assert updated["changes"][0]["after"] == {"price": 10.0, "images": [], "is_active": False}
    assert deleted["changes"][0]["before"] == {"deleted_at": None}
    assert restored["changes"][0]["before"] == deleted["changes"][0]["after"]
    assert [one["id"] for one in batch_set["changes"]] == [bed, lamp]
    assert batch_set["changes"][1]["after"] == {"external_id": "SKU 2"}


async def list_keys(services: Services, person: Person) -> Any:
    return await services.keys.list_of(person.account)


def test_nobody_sees_the_changes_of_another_account(alice: Seller) -> None:
    lamp = alice.create()
    bob = Seller(alice.harness, alice.harness.person("bob"))
    assert bob.changes() == {"change_sets": [], "last": 0, "more": False}
    assert bob.write("GET", f"/{lamp}/changes", status=403)["error"] == "This listing belongs to another account"
    assert bob.write("GET", "/999999/changes", status=404)
    assert bob.write("GET", "/x/changes", status=404)


@pytest.mark.every_engine
def test_the_history_of_a_listing_is_newest_first_even_if_it_is_deleted(alice: Seller) -> None:
    lamp = alice.create()
    alice.create()
    alice.write("PATCH", f"/{lamp}", {"price": 10})
    alice.write("DELETE", f"/{lamp}")
    body = alice.history(lamp)
    assert [(one["id"], one["kind"]) for one in body["change_sets"]] == [(4, "deleted"), (3, "updated"), (1, "created")]
    assert (body["last"], body["more"]) == (1, False)
    first = alice.history(lamp, "?limit=1")
    assert (first["change_sets"], first["last"], first["more"]) == (body["change_sets"][:1], 4, True)
    rest = alice.history(lamp, f"?before={first['last']}")
    assert rest["change_sets"] == body["change_sets"][1:]
    assert alice.history(lamp, "?before=1") == {"change_sets": [], "last": 1, "more": False}


@pytest.mark.parametrize("query", ["after=-1", "after=x", "after=9223372036854775808", "limit=1001", "limit=1&limit=1"])
def test_an_invalid_parameter_is_400(alice: Seller, query: str) -> None:
    assert alice.fetch("GET", f"{CHANGES}?{query}").status == 400


def test_an_unknown_or_purged_change_set_is_410_with_the_way_to_start_over(alice: Seller) -> None:
    lamp = alice.create()
    alice.write("PATCH", f"/{lamp}", {"price": 10})
    replies = [alice.fetch("GET", f"{CHANGES}?after=3")]
    alice.harness.clock.advance(91 * 24 * 3600)
    alice.write("PATCH", f"/{lamp}", {"price": 11})
    for _ in range(16):
        alice.harness.run(alice.harness.services.changes.purge())
    replies.append(alice.fetch("GET", f"{CHANGES}?after=1"))
    for reply, problem in zip(
        replies, ("There is no change 3", "Some changes after 1 are no longer stored"), strict=True
    ):
        assert (reply.status, reply.headers["x-error-code"]) == (410, "changes_gone")
        assert f"{problem}. Start over: request limit=0" in reply.json()["error"]
    assert [one["id"] for one in alice.changes("?after=2")["change_sets"]] == [3]
    assert [one["id"] for one in alice.history(lamp)["change_sets"]] == [3]


@pytest.mark.decision("G45")
@pytest.mark.every_engine
def test_the_feed_is_limited_to_a_time(alice: Seller) -> None:
    lamp = alice.create()
    for price in (1, 2):
        alice.harness.clock.advance(60)
        alice.write("PATCH", f"/{lamp}", {"price": price})
        alice.create()
    times = [one["time"] for one in alice.changes()["change_sets"]]
    assert (times[1], times[3]) == (times[2], times[4])

    def read(query: str) -> tuple[list[int], int, bool]:
        page = alice.changes(query)
        return [one["id"] for one in page["change_sets"]], page["last"], page["more"]

    assert read(f"?since={times[1]}") == ([2, 3, 4, 5], 5, False)
    assert read(f"?since={times[1]}&after=3") == ([4, 5], 5, False)
    assert read(f"?until={times[1]}") == ([1, 2, 3], 3, False)
    assert read(f"?until={times[1]}&limit=2") == ([1, 2], 2, True)
    assert read(f"?until={times[1]}&after=2&timeout=30") == ([3], 3, False)
    assert read(f"?until={times[1]}&after=3") == ([], 3, False)
    assert read(f"?since={times[1]}&until={times[2]}") == ([2, 3], 3, False)
    assert read("?since=2100-01-01") == ([], 5, False)
    assert read("?since=2000-01-01&until=2001-01-01") == ([], 0, False)
    assert alice.fetch("GET", f"{CHANGES}?since=yesterday").status == 400


@pytest.mark.decision("G45")
@pytest.mark.every_engine
def test_a_time_from_which_changes_are_no_longer_stored_is_410(alice: Seller) -> None:
    lamp = alice.create()
    alice.write("PATCH", f"/{lamp}", {"price": 1})
    purged = alice.changes()["change_sets"][1]["time"]
    alice.harness.clock.advance(60)
    alice.write("PATCH", f"/{lamp}", {"price": 2})
    kept = alice.changes("?after=2")["change_sets"][0]["time"]
    alice.harness.run(alice.harness.store.purge_changes(range(1024), int(alice.harness.clock()) - 5, 10))
    assert [one["id"] for one in alice.changes(f"?since={kept}")["change_sets"]] == [3]
    reply = alice.fetch("GET", f"{CHANGES}?since={purged}")
    assert (reply.status, reply.headers["x-error-code"]) == (410, "changes_gone")
