"""The audit log of a whole service: every kind of change records its actor."""

from collections.abc import Iterator
from functools import partial

import pytest

from listings.domain import fields
from listings.domain.history import CONSOLE, OPERATOR, ActivityCursor, Event
from listings.domain.imports import Position
from listings.service.members.sessions import Member
from listings.service.transfer import importer
from listings.service.transfer.importer import ImportOptions
from listings.service.transfer.rows import Row
from tests.harness import Harness, Person

LISTINGS = "/api/v1/listings"
NEW = {"title": "Lamp", "content": "Brass."}


@pytest.fixture
def alice(harness: Harness) -> Person:
    return harness.person("alice")


def read_activity(harness: Harness, person: Person, count: int = 500) -> list[Event]:
    """Read all pages of the activity, oldest first."""
    events: list[Event] = []
    cursor: ActivityCursor | None = None
    while True:
        page = harness.run(harness.services.activity.list_page(person.account, cursor, count))
        events += page.events
        if page.next_cursor is None:
            return events[::-1]
        cursor = page.next_cursor


def summarize(events: list[Event]) -> list[tuple[str, int, int, str]]:
    return [(event.kind, event.actor, event.subject, event.detail) for event in events]


def create_listing(harness: Harness, person: Person, **fields: object) -> int:
    return int(harness.fetch("POST", LISTINGS, key=person.key, json=NEW | fields).json()["id"])


def test_changes_by_a_key_record_the_key(harness: Harness, alice: Person) -> None:
    key = alice.key_id
    listing_id = create_listing(harness, alice)
    path = f"{LISTINGS}/{listing_id}"
    harness.fetch("PATCH", path, key=alice.key, json={"price": 5, "title": "Lamps"})
    harness.fetch("PATCH", path, key=alice.key, json={"price": 5})
    harness.fetch("DELETE", path, key=alice.key)
    harness.fetch("POST", f"{path}/restore", key=alice.key)
    operations = [{"op": "create", "listing": NEW}, {"op": "delete", "id": listing_id}]
    harness.fetch("POST", f"{LISTINGS}/batch", key=alice.key, json={"operations": operations})
    harness.fetch("POST", f"{LISTINGS}?dry_run=true", key=alice.key, json=NEW)
    harness.fetch("POST", f"{path}/restore?dry_run=true", key=alice.key)
    assert summarize(read_activity(harness, alice)) == [
        ("key_added", OPERATOR, key, ""),
        ("created", key, listing_id, ""),
        ("updated", key, listing_id, '["price_cents","title"]'),
        ("deleted", key, listing_id, ""),
        ("restored", key, listing_id, ""),
        ("batch", key, 5, f'{{"created":[{listing_id + 1024}],"deleted":[{listing_id}]}}'),
    ]


def test_changes_by_the_operator_record_the_operator(harness: Harness, alice: Person) -> None:
    listing_id = create_listing(harness, alice)
    services = harness.services
    harness.run(services.moderation.delete(listing_id))
    harness.run(services.moderation.restore(listing_id, active=True))
    harness.run(services.accounts.extend_plan(str(alice.account.id), 1))
    harness.run(services.accounts.rename(str(alice.account.id), "Alice's Attic"))
    harness.run(services.accounts.enable(str(alice.account.id)))  # it is enabled, so no event
    harness.run(services.keys.rotate(alice.key_id, 0))
    harness.run(services.keys.revoke(alice.key_id))
    events = [event for event in read_activity(harness, alice) if event.actor == OPERATOR]
    assert [event.kind for event in events] == [
        *("key_added", "deleted", "restored", "account_changed", "account_changed", "key_rotated", "key_revoked"),
    ]
    assert events[4].detail == '{"name":"Alice\'s Attic"}'
    assert {event.moment for event in events} == {int(harness.clock.now)}


class FiveRows:
    format = "csv"

    def digest(self) -> bytes:
        return b"d" * 32

    def rows(self, start: Position) -> Iterator[Row]:
        for line in range(start.line, 5):
            yield Row(line + 1, line, Position(line + 1, line + 1), dict(NEW))


class IgnoringListener:
    def __getattr__(self, _: str) -> object:
        return lambda *_: None


@pytest.mark.parametrize("actor", [OPERATOR, CONSOLE])
def test_an_import_records_who_started_it(harness: Harness, alice: Person, actor: int) -> None:
    watch: importer.ImportProgressListener = IgnoringListener()  # type: ignore[assignment]  # accepts every call
    harness.run(harness.services.transfer.run_import(alice.account, FiveRows(), watch, ImportOptions(actor=actor)))
    assert summarize(read_activity(harness, alice))[1:] == [("import", actor, 1, '{"created":5,"updated":0}')]


def test_changes_in_the_console_record_the_console(harness: Harness) -> None:
    services = harness.services
    token = harness.run(services.sessions.sign_up("Alice", "alice@example.com", "a long and winding road", "192.0.2.1"))
    harness.run(services.accounts.extend_plan("alice@example.com", 1))
    member = harness.run(services.sessions.find_member(token))
    assert isinstance(member, Member)
    issued = harness.run(services.member_keys.create(member, "warehouse"))
    rotated = harness.run(services.member_keys.rotate(member, issued.key.id, 0))
    harness.run(services.member_keys.revoke(member, rotated.key.id))
    listing = harness.run(services.listings.create(member.caller, fields.parse_new_listing(NEW)[0])).listing_id
    harness.run(services.listings.update(member.caller, listing, {"title": "Lamps"}))
    harness.run(services.listings.delete(member.caller, listing))
    harness.run(services.listings.restore(member.caller, listing))
    harness.run(services.sessions.change_password(member, "a long and winding road", "another password"))
    harness.run(services.sessions.sign_out(token))
    alice = Person(member.account, "", 0)
    events = read_activity(harness, alice)
    assert [event.kind for event in events if event.actor == CONSOLE] == [
        *("account_opened", "signed_in", "key_added", "key_rotated", "key_revoked"),
        *("created", "updated", "deleted", "restored", "password_changed"),
    ]
    assert [event.kind for event in events if event.actor == OPERATOR] == ["account_changed"]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 100])
def test_pages_of_any_size_have_all_events_in_order(harness: Harness, alice: Person, count: int) -> None:
    ids = [create_listing(harness, alice) for _ in range(4)]
    harness.run(harness.services.accounts.set_plan(str(alice.account.id), int(harness.clock.now) + 10**6))
    harness.fetch("PATCH", f"{LISTINGS}/{ids[0]}", key=alice.key, json={"price": 1})
    watch: importer.ImportProgressListener = IgnoringListener()  # type: ignore[assignment]  # accepts every call
    harness.run(harness.services.transfer.run_import(alice.account, FiveRows(), watch, ImportOptions()))
    ids += [create_listing(harness, alice) for _ in range(4)]
    harness.fetch("DELETE", f"{LISTINGS}/{ids[1]}", key=alice.key)
    harness.fetch("DELETE", f"{LISTINGS}/{ids[6]}", key=alice.key)
    events = read_activity(harness, alice, count)
    assert [(event.revision, event.kind, event.subject) for event in events] == [
        (0, "key_added", alice.key_id),
        *((number + 1, "created", ids[number]) for number in range(4)),
        (4, "account_changed", 0),
        (5, "updated", ids[0]),
        (6, "import", 6),
        *((number + 3, "created", ids[number]) for number in range(4, 8)),
        (11, "deleted", ids[1]),
        (12, "deleted", ids[6]),
    ]


def test_many_imported_listings_are_skipped_in_bounded_steps(harness: Harness, alice: Person) -> None:
    first = create_listing(harness, alice)
    row = partial(Row, 1, content=dict(NEW))

    class ManyRows(FiveRows):
        def rows(self, start: Position) -> Iterator[Row]:
            for line in range(start.line, 12_000):
                yield row(offset=line, end=Position(line + 1, line + 1))

    watch: importer.ImportProgressListener = IgnoringListener()  # type: ignore[assignment]  # accepts every call
    harness.run(harness.services.transfer.run_import(alice.account, ManyRows(), watch, ImportOptions()))
    last = create_listing(harness, alice)
    page = harness.run(harness.services.activity.list_page(alice.account))
    assert [event.kind for event in page.events] == ["created", "import", "key_added"]
    assert page.next_cursor is not None
    created = [event.subject for event in read_activity(harness, alice) if event.kind == "created"]
    assert sorted(created) == [first, last]


def test_activity_is_shown_for_ninety_days(harness: Harness, alice: Person) -> None:
    create_listing(harness, alice)
    harness.clock.advance(90 * 24 * 3600)
    assert len(read_activity(harness, alice)) == 2
    harness.clock.advance(1)
    assert read_activity(harness, alice) == []
