"""The library: every method of both clients, against a running service."""

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import listings_client
from listings_client import AsyncClient, Client, Listing
from listings_client.operations import split
from tests.client.conftest import Open
from tests.harness import Person, RunningService
from tests.pictures import photo

LAMP: dict[str, Any] = {"title": "Lamp", "content": "Brass.\r\nWith ü.", "price": Decimal("19.99")}
EVERY_FIELD: dict[str, Any] = {
    **LAMP,
    "type": "rental",
    "category": "Lamps",
    "images": ("https://pictures.example/1.jpg", "https://pictures.example/2.jpg"),
    "price_type": "per_night",
    "location": "12 Cuba Street",
    "region": "Wellington",
    "district": "Te Aro",
    "latitude": -41.29,
    "longitude": 174.78,
    "is_active": False,
    "external_id": "ü-1",
}


def test_every_method_has_a_documentation() -> None:
    names = [name for name in dir(Client) if not name.startswith("_")]
    assert [name for name in names if not getattr(Client, name).__doc__] == []
    assert names == [name for name in dir(AsyncClient) if not name.startswith("_")]


def test_a_client_needs_no_with_block(service: RunningService, alice: Person) -> None:
    client = Client(alice.key, service.base_url)
    assert client.get(client.create(**LAMP)).title == "Lamp"
    client.__exit__()


def test_a_created_listing_is_returned_like_a_read_one(client: Any) -> None:
    created = client.create(**EVERY_FIELD)
    assert created == client.get(created) == client.get(created.id)
    assert {name: getattr(created, name) for name in EVERY_FIELD} == EVERY_FIELD
    assert created.created_at.tzinfo is UTC
    assert isinstance(created.price, Decimal)


def test_a_record_cannot_be_changed(client: Any) -> None:
    with pytest.raises(FrozenInstanceError):
        client.create(**LAMP).title = "Another"


def test_an_update_of_a_record_returns_the_new_record(client: Any) -> None:
    created = client.create(**EVERY_FIELD)
    updated = client.update(created, price=Decimal("25.50"), district=None, external_id="ü-2")
    assert updated == client.get(created.id)
    assert (updated.price, updated.district, updated.external_id) == (Decimal("25.50"), "", "ü-2")
    assert client.update(created.id, title="Lamps").title == "Lamps"


def test_a_record_that_was_edited_since_is_stale(client: Any) -> None:
    created = client.create(**LAMP)
    client.update(created.id, price=5)
    with pytest.raises(listings_client.StaleError) as caught:
        client.update(created, price=6)
    assert (caught.value.status, caught.value.code) == (412, "precondition_failed")
    with pytest.raises(listings_client.StaleError):
        client.delete(created)
    assert client.get(created.id).price == 5


def test_a_deleted_listing_can_be_restored(client: Any) -> None:
    created = client.create(**LAMP)
    client.delete(created)
    with pytest.raises(listings_client.NotFoundError):
        client.get(created)
    restored = client.restore(created)
    assert (restored.is_active, restored.deleted_at, restored.title) == (False, None, "Lamp")


def test_a_put_creates_and_then_updates(client: Any) -> None:
    first = client.put("sku", **LAMP)
    second = client.put("sku", price=7)
    assert (first.op, second.op) == ("create", "update")
    assert first.id == second.id
    assert client.get(first.id).price == 7


def test_lists_have_all_pages(client: Any) -> None:
    results = client.batch([listings_client.create(**LAMP, external_id=f"p-{number}") for number in range(250)])
    assert len(results) == 250
    assert all(result.ok and result.status == 201 for result in results)
    listed = list(client.list(page_size=100))
    assert [one.id for one in listed] == [result.id for result in reversed(results)]
    assert [one.id for one in client.stream()] == [result.id for result in results]
    assert list(client.stream()) == sorted(listed, key=lambda one: one.id)


def test_filters_select_listings(client: Any) -> None:
    first, second = (client.create(**LAMP, external_id=name) for name in ("a b", "c"))
    client.update(second, is_active=False)
    assert [one.id for one in client.list()] == [first.id]
    assert {one.id for one in client.list(external_id=["a b", "c"], status="all")} == {first.id, second.id}
    assert [one.id for one in client.list(ids=[second.id], status="inactive")] == [second.id]
    assert [one.id for one in client.list(price_max=Decimal("19.98"))] == []
    soon = datetime.now(UTC) + timedelta(hours=1)
    assert [one.id for one in client.list(updated_since=soon)] == []


def test_a_batch_reports_each_operation(client: Any) -> None:
    lamp = client.create(**LAMP, external_id="x")
    results = client.batch(
        [
            listings_client.update(lamp, price=1),
            listings_client.update(lamp, price=2),
            listings_client.update("x", price=3),
            listings_client.delete(lamp.id),
            listings_client.restore(lamp),
            listings_client.put("y", title="Chair", content="Oak."),
            listings_client.create(title=""),
        ]
    )
    assert [result.status for result in results] == [200, 412, 200, 200, 200, 201, 400]
    assert [result.ok for result in results] == [True, False, True, True, True, True, False]
    assert results[-1].message.startswith("listing.title")


def test_a_dry_run_of_a_batch_shows_the_changes(client: Any) -> None:
    lamp = client.create(**LAMP)
    (result,) = client.batch([listings_client.update(lamp, price=Decimal("1.50"))], dry_run=True)
    assert (result.before, result.after) == ({"price": Decimal("19.99")}, {"price": Decimal("1.50")})
    assert client.get(lamp).price == Decimal("19.99")


def test_large_operations_are_split_by_their_size() -> None:
    bodies = [{"op": "create", "listing": {"content": "x" * 300_000}} for _ in range(7)]
    assert [len(part) for part in split(bodies)] == [3, 3, 1]
    assert [len(part) for part in split([{}] * 201)] == [100, 100, 1]
    assert list(split([])) == []


def test_changes_are_read_and_followed(client: Any) -> None:
    lamp = client.create(**LAMP)
    last = client.last_change()
    client.update(lamp, price=5)
    client.delete(lamp.id)
    read = list(client.changes(last))
    assert [change_set.kind for change_set in read] == ["updated", "deleted"]
    assert read[0].changes[0].before == {"price": Decimal("19.99")}
    assert read[0].changes[0].after == {"price": Decimal("5.00")}
    assert isinstance(read[1].changes[0].after["deleted_at"], datetime)
    assert list(islice(client.changes(last, follow=True), 2)) == read
    assert list(client.changes()) == []
    assert list(client.changes(last, until=datetime(2020, 1, 1, tzinfo=UTC))) == []


def test_the_history_of_a_listing_begins_with_the_newest(client: Any) -> None:
    lamp = client.create(**LAMP)
    client.create(**LAMP)
    client.update(lamp, price=5)
    assert [one.kind for one in client.history(lamp)] == ["updated", "created"]


def test_a_group_is_undone_as_a_whole(connect: Open, client: Any) -> None:
    lamp = client.create(**LAMP)
    named = connect(change_group="run-1")
    named.update(lamp, price=5)
    named.batch([listings_client.create(**LAMP, external_id="new")])
    client.update(lamp.id, title="Edited")
    (group,) = client.groups()
    assert (group.group, group.change_sets, group.undo) == ("run-1", 2, {"group": "run-1"})
    planned = client.revert(group="run-1", dry_run=True)
    assert (planned.status, planned.reverted, len(planned.changes)) == ("planned", 2, 2)
    done = client.revert(group="run-1")
    assert (done.status, done.reverted, done.conflict_count) == ("finished", 2, 0)
    (left,) = client.list()
    assert (left.price, left.title) == (Decimal("19.99"), "Edited")


def test_a_large_revert_is_awaited_with_all_conflicts(connect: Open, client: Any) -> None:
    named = connect(change_group="large")
    results = named.batch([listings_client.create(**LAMP, external_id=str(number)) for number in range(450)])
    client.batch([listings_client.update(result.id, price=1) for result in results[:150]])
    done = client.revert(group="large")
    assert (done.status, done.reverted, done.conflict_count, len(done.conflicts)) == ("finished", 300, 150, 150)
    assert {one.reason for one in done.conflicts} == {"changed_later"}


def test_the_own_key_is_reverted_by_time(client: Any) -> None:
    since = datetime.now(UTC) - timedelta(seconds=5)
    client.create(**LAMP)
    assert client.revert(key="self", since=since).reverted == 1
    assert list(client.list()) == []


def test_the_key_and_its_limit_are_described(client: Any) -> None:
    client.create(**LAMP)
    key = client.key()
    assert (key.access, key.mode, key.listings["active"]) == ("write", "live", 1)
    assert key.plan_expires_at is not None
    assert client.limit().limit is None


def test_an_unchanged_listing_is_not_sent_again(client: Any) -> None:
    lamp = client.create(**LAMP)
    assert client.get(lamp) is not None
    (cached,) = client.options.cache.values()
    assert client.get(lamp) == lamp
    assert next(iter(client.options.cache.values()))[1] is cached[1]
    client.update(lamp, price=5)
    assert client.get(lamp).price == 5


def test_errors_name_fields_code_and_request(client: Any) -> None:
    with pytest.raises(listings_client.InvalidRequestError) as caught:
        client.create(title="Lamp", content=" ", price=Decimal(-1))
    error = caught.value
    assert (error.status, error.code) == (400, "invalid_request")
    assert [(one.field, one.code) for one in error.fields] == [("content", "required"), ("price", "out_of_range")]
    assert error.request_id
    assert str(error) == error.message


def test_unknown_fields_and_inexact_prices_are_not_sent(client: Any) -> None:
    with pytest.raises(TypeError, match="colour is not a field"):
        client.create(**LAMP, colour="red")
    with pytest.raises(ValueError, match="more digits"):
        client.create(title="Lamp", content="Brass.", price=Decimal("1.00000000000000000001"))
    assert list(client.list()) == []


REJECTED: dict[int, tuple[type[Exception], Callable[[Any], Any]]] = {
    401: (listings_client.AuthenticationError, lambda client: client.get(1)),
    404: (listings_client.NotFoundError, lambda client: client.get(1)),
    409: (listings_client.ConflictError, lambda client: client.create(**LAMP, external_id="taken")),
    422: (listings_client.InvalidRequestError, lambda client: client.create(**LAMP, idempotency_key="one")),
}


@pytest.mark.parametrize("status", REJECTED)
def test_each_status_has_its_error(connect: Open, client: Any, status: int) -> None:
    client.create(**LAMP, external_id="taken", idempotency_key="one")
    kind, call = REJECTED[status]
    with pytest.raises(kind) as caught:
        call(connect(key="lst_unknown") if status == 401 else client)
    assert isinstance(caught.value, listings_client.ApiError)
    assert caught.value.status == status


def test_the_same_picture_has_the_same_url(connect: Open, client: Any, tmp_path: Path) -> None:
    file = tmp_path / "photo.jpg"
    file.write_bytes(photo())
    image = client.upload_image(file)
    faulty = connect(headers={"X-Rehearse": "lost-response;upload"})
    assert faulty.upload_image(photo()) == client.upload_image(photo()) == image
    with pytest.raises(listings_client.InvalidRequestError):
        client.upload_image(b"no picture")


def test_unknown_fields_of_later_versions_are_ignored() -> None:
    known = dict.fromkeys(("title", "content", "category", "location", "region"), "")
    times = dict.fromkeys(("created_at", "updated_at"), "2026-11-21 06:54:32")
    data = {"id": 1, "type": "x", "images": [], "price": 5, "price_type": "y", "is_active": True, "view_count": 0}
    listing = Listing.from_json({**known, **times, **data, "colour": "red"})
    assert listing.updated_at == datetime(2026, 11, 21, 6, 54, 32, tzinfo=UTC)
