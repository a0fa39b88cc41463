"""What clients see after deleted listings and change sets are removed."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from listings.domain.history import CONSOLE, OPERATOR
from listings.domain.model import bucket_of
from listings.service.transfer import importer
from listings.site.console.import_report import ImportReport
from listings.site.console.upload import Upload
from tests.api.test_reverts import UndoingSeller
from tests.harness import Harness

DAY = 24 * 3600
CREATE = {"title": "Lamp", "content": "Brass. " * 300}
BODY = {"json": CREATE, "headers": {"Idempotency-Key": "once", "Prefer": "return=representation"}}


@pytest.fixture
def alice(harness: Harness) -> UndoingSeller:
    return UndoingSeller(harness, harness.person("alice", plan_ends_in=10 * 365 * DAY))


def remove_by_age(alice: UndoingSeller) -> None:
    alice.harness.replace_services(change_days=1, deleted_days=1)
    alice.harness.clock.advance(DAY + 60)
    for _ in range(16):
        alice.harness.run(alice.harness.services.changes.purge())


def remove_by_budget(alice: UndoingSeller) -> None:
    limits = (None, None, 1)
    alice.harness.run(alice.harness.services.accounts.set_limits(alice.person.account, limits))
    alice.harness.run(alice.harness.services.changes.enforce_budgets())


@pytest.mark.decision("G11")
@pytest.mark.decision("G45")
@pytest.mark.every_engine
@pytest.mark.parametrize("remove", [remove_by_age, remove_by_budget])
def test_a_removed_listing_is_as_if_it_had_never_existed(
    alice: UndoingSeller, remove: Callable[[UndoingSeller], None]
) -> None:
    harness, bob = alice.harness, UndoingSeller(alice.harness, alice.harness.person("bob"))
    gone = alice.fetch("POST", "/api/v1/listings", **BODY).json()["id"]
    kept = alice.create(price=5)
    alice.write("PATCH", f"/{gone}", {"price": 7})
    alice.write("DELETE", f"/{gone}")
    path = f"/api/v1/listings/{gone}"
    assert [one.fetch("GET", path).status for one in (alice, bob)] == [404, 403]
    before = alice.fetch("GET", "/api/v1/listings?status=all")
    remove(alice)
    for one in (alice, bob):
        for method, end in (("GET", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/restore"), ("GET", "/changes")):
            assert one.fetch(method, path + end, json={}).status == 404
    after = alice.fetch("GET", "/api/v1/listings?status=all", headers={"If-None-Match": before.headers["etag"]})
    assert [row["id"] for row in after.json()["listings"]] == [kept]
    assert alice.fetch("GET", "/api/v1/changes?after=0").status == 410
    alice.write("PATCH", f"/{kept}", {"price": 6})
    assert [one["id"] for one in alice.changes("?after=4")["change_sets"]] == [5]
    assert len(alice.fetch("GET", f"/api/v1/listings/{kept}/changes").json()["change_sets"]) == 1
    assert alice.revert({"change": 4}).status == 410
    assert alice.revert({"key": alice.person.key_id, "since": "2026-09-21 14:13:20"}).status == 410
    assert alice.undo({"change": 5})["counts"]["reverted"] == 1
    exported = harness.run(harness.store.page_listings(*partition_of(alice), 0, 9))
    assert [listing.id for listing in exported] == [kept]
    assert harness.run(harness.services.activity.list_page(alice.person.account)).events


@pytest.mark.decision("G36")
@pytest.mark.every_engine
def test_a_replayed_create_of_a_removed_listing_has_its_id(alice: UndoingSeller) -> None:
    first = alice.fetch("POST", "/api/v1/listings", **BODY)
    alice.write("DELETE", f"/{first.json()['id']}")
    remove_by_budget(alice)
    again = alice.fetch("POST", "/api/v1/listings", **BODY)
    assert (again.status, again.headers["idempotent-replayed"]) == (201, "true")
    assert again.json()["id"] == first.json()["id"]
    assert alice.create() > first.json()["id"]


def partition_of(alice: UndoingSeller) -> tuple[int, int]:
    return bucket_of(alice.person.account.id), alice.person.account.id


@pytest.mark.decision("G7a")
@pytest.mark.every_engine
def test_only_the_operator_imports_new_listings_with_given_ids(alice: UndoingSeller) -> None:
    harness = alice.harness
    own, other = alice.create(price=1), UndoingSeller(harness, harness.person("bob")).create()
    high = 2**52 // 1024 * 1024 - 1024 + bucket_of(alice.person.account.id)
    message = "id {} is invalid in this account: remove it, or import every row as a new listing"
    assert run_import(alice, {"id": high, **CREATE}, CONSOLE) == [message.format(high)]
    assert run_import(alice, {"id": other, **CREATE}, CONSOLE) == [message.format(other)]
    assert alice.create() == own + 1024  # nothing is reserved
    assert run_import(alice, {"id": own, "price": 7}, CONSOLE) == ["updated"]
    assert run_import(alice, {"id": high, **CREATE}, OPERATOR) == ["created"]
    beyond = alice.create()
    assert beyond == high + 1024
    assert run_import(alice, {"id": beyond, "price": 7}, CONSOLE) == ["updated"]
    assert run_import(alice, {"id": high + 4096, **CREATE}, OPERATOR) == [message.format(high + 4096)]


def run_import(alice: UndoingSeller, row: Any, actor: int) -> list[Any]:
    seen: list[Any] = []

    class Report(ImportReport):
        def on_outcome(self, _row: Any, outcome: Any) -> None:
            seen.append(getattr(outcome, "message", outcome))

    upload = Upload("rows.jsonl", json.dumps(row).encode())
    transfer, options = alice.harness.services.transfer, importer.ImportOptions(actor=actor)
    for dry_run in (True, False):
        alice.harness.run(
            transfer.run_import(alice.person.account, upload, Report(), options._replace(dry_run=dry_run, again=True))
        )
    assert seen[0] == seen[1]
    return seen[1:]
