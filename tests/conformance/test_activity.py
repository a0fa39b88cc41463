"""Who did what to an account: what every store guarantees (`listings.contract.history.HistoryStore`)."""

from typing import Any

import pytest

from listings.contract.history import CONSOLE, LATEST, OPERATOR, ActivityCursor, Actor, Event, HistoryCutoffs
from listings.contract.imports import ImportBatch, ImportKey, ImportProgress, ImportRow, Position
from listings.contract.listings import AddStep, Batch, ChangeStep, IdempotencyRecord, Step
from listings.contract.store import Store
from listings.domain.errors import Problem
from listings.domain.model import Account, ImportedListing, Listing, ListingChange, NewListing, bucket_of
from tests.conformance.conftest import Run

CREATED = "2026-11-21 10:00:00"
NEW = NewListing(title="Lamp", content="Brass.")
KEY = Actor(7, 1_500)
NO_LIMIT = 2**62


@pytest.fixture
def account(store: Store, run: Run) -> Account:
    """alice's."""
    account = run(store.add_account("Alice", "alice@example.com", 2_000_000_000, 1_000))
    assert isinstance(account, Account)
    return account


class Diary:
    """An account's activity."""

    def __init__(self, store: Store, run: Run, account: Account) -> None:
        self.store = store
        self.run = run
        self.place = bucket_of(account.id), account.id

    def add(self, actor: Actor | None = KEY, idempotency: IdempotencyRecord | None = None) -> int:
        return int(self.run(self.store.add_listing(*self.place, NEW, CREATED, idempotency, actor)).listing_id)

    def change(self, listing_id: int, actor: Actor | None = KEY, **values: Any) -> Listing:
        changed = self.run(self.store.change_listing(listing_id, lambda _: values, actor))
        assert isinstance(changed, Listing)
        return changed

    def do(self, *steps: Step, atomic: bool = False, dry_run: bool = False) -> None:
        batch = Batch(steps, atomic=atomic, dry_run=dry_run, record=str)
        self.run(self.store.run_batch(*self.place, batch, None, KEY))

    def events(self, before: ActivityCursor = LATEST, count: int = 100) -> list[Event]:
        found: list[Event] = self.run(self.store.page_events(*self.place, before, count))
        return found

    @property
    def told(self) -> list[tuple[int, int, str, int, str]]:
        return [(one.revision, one.actor, one.kind, one.subject, one.detail) for one in reversed(self.events())]

    @property
    def made(self) -> list[tuple[int, int | None, int | None]]:
        rows = self.run(self.store.page_creations(*self.place, NO_LIMIT, 100))
        assert {row.created_at for row in rows} <= {CREATED}
        return [(row.listing_id, row.actor, row.revision) for row in reversed(rows)]


@pytest.fixture
def diary(store: Store, run: Run, account: Account) -> Diary:
    return Diary(store, run, account)


def change(**values: Any) -> Any:
    def decide(listing: Listing | None) -> ListingChange:
        assert listing is not None
        return values

    return decide


def refuse(_: Listing | None) -> ListingChange:
    raise Problem("not_owner", "no")


def test_a_create_tells_its_author_and_its_edit_by_its_own_row(diary: Diary) -> None:
    first = diary.add()
    second = diary.add(Actor(CONSOLE, 1_600))
    third = diary.add(None)
    assert diary.made == [(first, 7, 1), (second, CONSOLE, 2), (third, None, None)]
    assert diary.told == []


def test_a_create_under_a_claim_tells_its_author_once(diary: Diary) -> None:
    idempotency = IdempotencyRecord("key", b"d" * 32, 1_000, 0)
    first = diary.add(idempotency=idempotency)
    assert diary.add(Actor(8, 1_600), idempotency) == first
    assert diary.made == [(first, 7, 1)]


def test_an_update_tells_the_names_of_its_fields(diary: Diary) -> None:
    listing_id = diary.add()
    diary.change(listing_id, title="New", price_cents=5, updated_at=CREATED)
    assert diary.told == [(2, 7, "updated", listing_id, '["price_cents","title"]')]
    assert diary.events()[0].moment == 1_500


def test_a_delete_and_a_restore_are_told_by_their_names(diary: Diary) -> None:
    listing_id = diary.add()
    diary.change(listing_id, is_active=False, deleted_at=1_500, updated_at=CREATED)
    diary.change(listing_id, Actor(OPERATOR, 1_700), deleted_at=None, updated_at=CREATED)
    assert diary.told == [(2, 7, "deleted", listing_id, ""), (3, OPERATOR, "restored", listing_id, "")]
    assert diary.made == [(listing_id, 7, 1)]


def test_what_changes_nothing_or_is_refused_is_not_told(diary: Diary) -> None:
    listing_id = diary.add()
    diary.change(listing_id)
    with pytest.raises(Problem, match="no"):
        diary.run(diary.store.change_listing(listing_id, refuse, KEY))
    diary.change(listing_id, None, title="New")
    assert diary.told == []


def test_a_batch_is_one_event_with_the_ids_of_all_that_it_did(diary: Diary) -> None:
    first, second, third = (diary.add(None) for _ in range(3))
    diary.do(
        AddStep(NEW, CREATED),
        ChangeStep(first, change(title="New")),
        ChangeStep(second, change(deleted_at=5, is_active=False)),
        ChangeStep(third, change()),
        ChangeStep(third, refuse),
        Problem("invalid_request", "no"),
        AddStep(NEW, CREATED),
    )
    fourth, fifth = (row[0] for row in diary.made[-2:])
    told = f'{{"created":[{fourth},{fifth}],"updated":[{first}],"deleted":[{second}]}}'
    assert diary.told == [(7, 7, "batch", 0, told)]
    assert [row[1:] for row in diary.made] == [(None, None)] * 5


def test_a_batch_that_does_nothing_is_not_told(diary: Diary) -> None:
    listing_id = diary.add(None)
    edit = ChangeStep(listing_id, change(title="New"))
    diary.do(edit, dry_run=True)
    diary.do(edit, Problem("invalid_request", "no"), atomic=True)
    diary.do(ChangeStep(listing_id, change()), ChangeStep(listing_id, refuse))
    assert diary.told == []


def imported(listing: Listing | None) -> ImportedListing | ListingChange:
    if listing is not None:
        return {"title": "Changed"}
    return ImportedListing(NEW, view_count=0, created_at=CREATED, updated_at=CREATED, deleted_at=None)


def test_an_import_is_one_event_whose_counts_grow(diary: Diary) -> None:
    key = ImportKey(*diary.place, b"d" * 32, "csv", False)  # noqa: FBT003 - as the row has it
    own = diary.add(None)
    store, run = diary.store, diary.run
    run(store.begin_import(key, None, 1_000, 0))
    nothing = ImportRow(own, lambda _: {})
    run(store.import_listings(key, ImportBatch(Position(0, 0), Position(1, 1), [nothing]), KEY))
    assert diary.told == []
    rows = [ImportRow(None, imported), ImportRow(None, imported), ImportRow(own, imported)]
    run(store.import_listings(key, ImportBatch(Position(1, 1), Position(2, 2), rows), KEY))
    diary.add(None)
    run(store.import_listings(key, ImportBatch(Position(2, 2), Position(3, 3), rows[:1], 2_000), KEY))
    assert diary.told == [(2, 7, "import", 0, '{"created":3,"updated":1}')]
    assert {row[1:] for row in diary.made} == {(None, None)}


def test_an_import_that_is_run_again_is_another_event(diary: Diary) -> None:
    key = ImportKey(*diary.place, b"d" * 32, "csv", False)  # noqa: FBT003 - as the row has it
    store, run = diary.store, diary.run
    found: ImportProgress | None = None
    for _ in range(2):
        run(store.begin_import(key, found, 1_000, 0))
        batch = ImportBatch(Position(0, 0), Position(1, 1), [ImportRow(None, imported)], 2_000)
        run(store.import_listings(key, batch, KEY))
        found = run(store.find_import(key))
    counts = '{"created":1,"updated":0}'
    assert diary.told == [(1, 7, "import", 0, counts), (2, 7, "import", 0, counts)]


def test_activity_is_read_in_pages_that_skip_and_repeat_nothing(diary: Diary) -> None:
    listing_id = diary.add()
    for number in range(5):
        diary.change(listing_id, title=f"Title {number}")
    diary.run(diary.store.change_account(diary.place[1], lambda _: {"name": "A"}, KEY))
    diary.run(diary.store.change_account(diary.place[1], lambda _: {"name": "B"}, KEY))
    before, pages = LATEST, []
    while page := diary.events(before, 3):
        pages.append([(one.revision, one.number) for one in page])
        before = ActivityCursor(page[-1].revision, page[-1].number, 0)
    assert pages == [[(6, 2), (6, 1), (6, 0)], [(5, 0), (4, 0), (3, 0)], [(2, 0)]]


def test_made_listings_are_read_in_pages_whatever_their_state(diary: Diary) -> None:
    ids = [diary.add() for _ in range(5)]
    diary.change(ids[1], is_active=False)
    diary.change(ids[3], is_active=False, deleted_at=5)
    first = diary.run(diary.store.page_creations(*diary.place, NO_LIMIT, 3))
    second = diary.run(diary.store.page_creations(*diary.place, first[-1].listing_id, 3))
    assert [row.listing_id for row in first + second] == ids[::-1]
    assert diary.run(diary.store.page_creations(*diary.place, ids[0], 3)) == []


def test_each_account_has_an_activity_of_its_own(store: Store, run: Run, diary: Diary) -> None:
    bob = Diary(store, run, run(store.add_account("Bob", "bob@example.com", None, 1_000)))
    diary.change(diary.add(), title="New")
    bob.change(bob.add(), title="New")
    assert len(diary.told) == len(diary.made) == len(bob.told) == len(bob.made) == 1


def test_what_is_old_is_forgotten_a_few_rows_at_a_time(store: Store, run: Run, diary: Diary) -> None:
    listing_id = diary.add()
    for moment in range(1_000, 1_006):
        diary.change(listing_id, Actor(7, moment), title=f"Title {moment}")
    bucket = diary.place[0]
    oldest = HistoryCutoffs(events=1_005, hours=0, rejections=0)
    assert [run(store.purge_history([0, bucket], oldest, 3)) for _ in range(3)] == [3, 2, 0]
    assert run(store.purge_history([bucket + 1], HistoryCutoffs(2_000, 0, 0), 3)) == 0
    assert [one.moment for one in diary.events()] == [1_005]
