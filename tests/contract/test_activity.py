"""An account's audit events: guarantees of every store (`listings.store.store.Store`)."""

import pytest

from listings.domain.errors import Problem
from listings.domain.history import CONSOLE, LATEST, OPERATOR, ActivityCursor, Actor, Event, HistoryCutoffs
from listings.domain.imports import ImportBatch, ImportKey, ImportProgress, ImportRow, Position
from listings.domain.listings import AddStep, ChangeStep
from listings.domain.model import Account
from listings.store.store import Store
from tests.contract.conftest import Run
from tests.contract.helpers import CREATED, set_values
from tests.contract.test_changes import KEY, NEW, Edits, create_or_update, reject

MAX_ID = 2**62


class AccountActivity(Edits):
    """An account, and the audit events of its changes."""

    def events(self, before: ActivityCursor = LATEST, count: int = 100) -> list[Event]:
        found: list[Event] = self.run(self.store.page_events(*self.partition, before, count))
        return found

    @property
    def event_rows(self) -> list[tuple[int, int, str, int, str]]:
        return [(it.revision, it.actor, it.kind, it.subject, it.detail) for it in reversed(self.events())]

    @property
    def creations(self) -> list[tuple[int, int | None, int | None]]:
        rows = self.run(self.store.page_creations(*self.partition, MAX_ID, 100))
        assert {row.created_at for row in rows} <= {CREATED}
        return [(row.listing_id, row.actor, row.revision) for row in reversed(rows)]


@pytest.fixture
def activity(store: Store, run: Run, account: Account) -> AccountActivity:
    return AccountActivity(store, run, account)


def test_a_create_is_recorded_in_the_row_of_the_listing(activity: AccountActivity) -> None:
    first = activity.add()
    second = activity.add(Actor(CONSOLE, 1_600))
    third = activity.add(None)
    assert activity.creations == [(first, 7, 1), (second, CONSOLE, 2), (third, None, None)]
    assert activity.event_rows == []


def test_an_update_records_the_names_of_its_fields(activity: AccountActivity) -> None:
    listing_id = activity.add()
    activity.change(listing_id, title="New", price_cents=5, updated_at=CREATED)
    assert activity.event_rows == [(2, 7, "updated", listing_id, '["price_cents","title"]')]
    assert activity.events()[0].moment == 1_500


def test_a_delete_and_a_restore_have_events_of_their_own(activity: AccountActivity) -> None:
    listing_id = activity.add()
    activity.change(listing_id, is_active=False, deleted_at=1_500, updated_at=CREATED)
    activity.change(listing_id, Actor(OPERATOR, 1_700), deleted_at=None, updated_at=CREATED)
    assert activity.event_rows == [(2, 7, "deleted", listing_id, ""), (3, OPERATOR, "restored", listing_id, "")]
    assert activity.creations == [(listing_id, 7, 1)]


def test_events_have_their_change_sets(activity: AccountActivity) -> None:
    listing_id = activity.add()
    activity.change(listing_id, title="New")
    activity.run_batch(ChangeStep(listing_id, set_values(title="Newer")))
    assert [(event.kind, event.change) for event in activity.events()] == [("batch", 3), ("updated", 2)]
    (created,) = activity.run(activity.store.page_creations(*activity.partition, MAX_ID, 1))
    assert created.change == 1


def test_an_empty_or_rejected_change_records_no_event(activity: AccountActivity) -> None:
    listing_id = activity.add()
    activity.change(listing_id)
    with pytest.raises(Problem, match="no"):
        activity.run(activity.store.change_listing(listing_id, reject, KEY))
    activity.change(listing_id, None, title="New")
    assert activity.event_rows == []


def test_a_batch_is_one_event_with_all_its_ids(activity: AccountActivity) -> None:
    first, second, third = (activity.add(None) for _ in range(3))
    activity.run_batch(
        AddStep(NEW, CREATED),
        ChangeStep(first, set_values(title="New")),
        ChangeStep(second, set_values(deleted_at=5, is_active=False)),
        ChangeStep(third, set_values()),
        ChangeStep(third, reject),
        Problem("invalid_request", "no"),
        AddStep(NEW, CREATED),
    )
    fourth, fifth = (row[0] for row in activity.creations[-2:])
    detail = f'{{"created":[{fourth},{fifth}],"updated":[{first}],"deleted":[{second}]}}'
    assert activity.event_rows == [(4, 7, "batch", 1, detail)]
    assert [row[1:] for row in activity.creations] == [(None, None)] * 5


def test_a_batch_without_changes_records_no_event(activity: AccountActivity) -> None:
    listing_id = activity.add(None)
    edit = ChangeStep(listing_id, set_values(title="New"))
    activity.run_batch(edit, dry_run=True)
    activity.run_batch(edit, Problem("invalid_request", "no"), atomic=True)
    activity.run_batch(ChangeStep(listing_id, set_values()), ChangeStep(listing_id, reject))
    assert activity.event_rows == []


def test_an_import_is_one_event_with_growing_counts(activity: AccountActivity) -> None:
    key = ImportKey(*activity.partition, b"d" * 32, "csv", False)  # noqa: FBT003 - the columns of a row
    own = activity.add(None)
    store, run = activity.store, activity.run
    run(store.begin_import(key, None, 1_000, 0))
    unchanged = ImportRow(own, lambda _: {})
    run(store.import_listings(key, ImportBatch(Position(0, 0), Position(1, 1), [unchanged]), KEY))
    assert activity.event_rows == []
    rows = [ImportRow(None, create_or_update), ImportRow(None, create_or_update), ImportRow(own, create_or_update)]
    run(store.import_listings(key, ImportBatch(Position(1, 1), Position(2, 2), rows), KEY))
    activity.add(None)
    run(store.import_listings(key, ImportBatch(Position(2, 2), Position(3, 3), rows[:1], 2_000), KEY))
    assert activity.event_rows == [(2, 7, "import", 1, '{"created":3,"updated":1}')]
    assert {row[1:] for row in activity.creations} == {(None, None)}


def test_a_repeated_import_is_another_event(activity: AccountActivity) -> None:
    key = ImportKey(*activity.partition, b"d" * 32, "csv", False)  # noqa: FBT003 - the columns of a row
    store, run = activity.store, activity.run
    found: ImportProgress | None = None
    for _ in range(2):
        run(store.begin_import(key, found, 1_000, 0))
        batch = ImportBatch(Position(0, 0), Position(1, 1), [ImportRow(None, create_or_update)], 2_000)
        run(store.import_listings(key, batch, KEY))
        found = run(store.find_import(key))
    counts = '{"created":1,"updated":0}'
    assert activity.event_rows == [(1, 7, "import", 1, counts), (2, 7, "import", 2, counts)]


def test_pages_of_activity_contain_every_event_once(activity: AccountActivity) -> None:
    listing_id = activity.add()
    for number in range(5):
        activity.change(listing_id, title=f"Title {number}")
    activity.run(activity.store.change_account(activity.partition[1], lambda _: {"name": "A"}, KEY))
    activity.run(activity.store.change_account(activity.partition[1], lambda _: {"name": "B"}, KEY))
    before, pages = LATEST, []
    while page := activity.events(before, 3):
        pages.append([(it.revision, it.number) for it in page])
        before = ActivityCursor(page[-1].revision, page[-1].number, 0)
    assert pages == [[(6, 2), (6, 1), (6, 0)], [(5, 0), (4, 0), (3, 0)], [(2, 0)]]


def test_creations_are_paged_regardless_of_the_listings_state(activity: AccountActivity) -> None:
    ids = [activity.add() for _ in range(5)]
    activity.change(ids[1], is_active=False)
    activity.change(ids[3], is_active=False, deleted_at=5)
    first = activity.run(activity.store.page_creations(*activity.partition, MAX_ID, 3))
    second = activity.run(activity.store.page_creations(*activity.partition, first[-1].listing_id, 3))
    assert [row.listing_id for row in first + second] == ids[::-1]
    assert activity.run(activity.store.page_creations(*activity.partition, ids[0], 3)) == []


def test_each_account_has_its_own_activity(store: Store, run: Run, activity: AccountActivity) -> None:
    bob = AccountActivity(store, run, run(store.add_account("Bob", "bob@example.com", None, 1_000)))
    activity.change(activity.add(), title="New")
    bob.change(bob.add(), title="New")
    assert len(activity.event_rows) == len(activity.creations) == len(bob.event_rows) == len(bob.creations) == 1


def test_old_events_are_purged_in_batches(store: Store, run: Run, activity: AccountActivity) -> None:
    for moment in range(1_000, 1_006):
        rename = set_values(name=f"Alice {moment}")
        run(store.change_account(activity.partition[1], rename, Actor(7, moment)))
    bucket = activity.partition[0]
    oldest = HistoryCutoffs(events=1_005, hours=0, rejections=0)
    assert [run(store.purge_history([0, bucket], oldest, 3)) for _ in range(3)] == [3, 2, 0]
    assert run(store.purge_history([bucket + 1], HistoryCutoffs(2_000, 0, 0), 3)) == 0
    assert [it.moment for it in activity.events()] == [1_005]
