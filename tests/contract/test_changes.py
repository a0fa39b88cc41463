"""Change sets: guarantees of every store (`listings.store.store.Store`)."""

import asyncio
from collections.abc import Iterator
from functools import partial
from itertools import groupby
from random import Random
from typing import Any

import msgspec
import pytest

from listings.domain.changes import END, Change, ChangePage, ChangePosition, EditState
from listings.domain.errors import Problem
from listings.domain.fields import FIELDS
from listings.domain.history import CONSOLE, OPERATOR, Actor
from listings.domain.imports import ImportBatch, ImportKey, ImportRow, Position
from listings.domain.listings import MAX_LIST_BYTES, AddStep, Batch, ChangeStep, IdempotencyRecord, PutStep, Step
from listings.domain.model import Account, ImportedListing, Listing, NewListing, bucket_of
from listings.store import change_reads
from listings.store.store import Store
from tests.contract.conftest import Run
from tests.contract.helpers import CREATED, erase, set_values

NEW = NewListing(title="Lamp", content="Brass.")
KEY = Actor(7, 1_500)
CREATED_MOMENT = 1_795_255_200
SETTABLE = [field.attribute for field in FIELDS.values()]


class Edits:
    """The writes to an account, and its change sets."""

    def __init__(self, store: Store, run: Run, account: Account) -> None:
        self.store = store
        self.run = run
        self.partition = bucket_of(account.id), account.id

    def add(self, actor: Actor | None = KEY, **values: Any) -> int:
        new = msgspec.structs.replace(NEW, **values)
        return int(self.run(self.store.add_listing(*self.partition, AddStep(new, CREATED), None, actor)).listing_id)

    def change(self, listing_id: int, actor: Actor | None = KEY, **values: Any) -> None:
        self.run(self.store.change_listing(listing_id, set_values(**values), actor))

    def run_batch(self, *steps: Step, atomic: bool = False, dry_run: bool = False, actor: Actor = KEY) -> list[Any]:
        batch = Batch(steps, atomic=atomic, dry_run=dry_run, encode=str)
        results: list[Any] = self.run(self.store.run_batch(*self.partition, batch, None, actor)).results
        return results

    @property
    def last(self) -> int:
        return self.state.edit_revision

    @property
    def state(self) -> EditState:
        state: EditState = self.run(self.store.get_edit_state(*self.partition))
        return state

    def page(self, after: ChangePosition, last: int = 2**62) -> ChangePage:
        page: ChangePage = self.run(self.store.page_changes(*self.partition, after, last))
        return page

    def read(self, after: int = 0, last: int = 2**62) -> list[Change]:
        position, found = ChangePosition(after), list[Change]()
        while (page := self.page(position, last)).end != position:
            found += page.changes
            position = page.end
        return found

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return [summarize(change) for change in self.read()]

    def history(self, listing_id: int, before: int = 2**62, count: int = 100) -> tuple[list[tuple[Any, ...]], bool]:
        changes, more = self.run(self.store.page_listing_changes(listing_id, before, count))
        return [summarize(change) for change in changes], more


def summarize(change: Change) -> tuple[Any, ...]:
    """Return a change without the parts that most tests don't look at. A create has the title as its value."""
    values = {name: (change.before[name], new) for name, new in change.after.items()} if change.before else None
    return (change.edit_revision, change.kind, change.listing_id, values or change.after.get("title"))


@pytest.fixture
def edits(store: Store, run: Run, account: Account) -> Edits:
    return Edits(store, run, account)


def reject(_: Listing | None) -> Any:
    raise Problem("not_owner", "no")


def test_each_single_edit_is_a_change_set_with_its_values_before_and_after(edits: Edits) -> None:
    first = edits.add(images='["a"]', latitude=-41.5)
    second = edits.add(Actor(CONSOLE, CREATED_MOMENT))
    edits.change(first, title="New", price_cents=5, latitude=None, updated_at=CREATED)
    edits.change(first, Actor(OPERATOR, 1_550), is_active=False, deleted_at=1_700, updated_at=CREATED)
    edits.change(first, deleted_at=None, updated_at=CREATED)
    edits.change(second)
    with pytest.raises(Problem, match="no"):
        edits.run(edits.store.change_listing(second, reject, KEY))
    assert edits.rows == [
        (1, "created", first, "Lamp"),
        (2, "created", second, "Lamp"),
        (3, "updated", first, {"title": ("Lamp", "New"), "price_cents": (0, 5), "latitude": (-41.5, None)}),
        (4, "deleted", first, {"is_active": (True, False), "deleted_at": (None, 1_700)}),
        (5, "restored", first, {"deleted_at": (1_700, None)}),
    ]
    created, *_, deleted, _ = edits.read()
    assert list(created.after) == [*SETTABLE, "created_at", "updated_at", "deleted_at"]
    assert (created.after["images"], created.after["is_active"]) == ('["a"]', True)
    assert [(it.actor, it.moment, it.group_id) for it in (created, deleted)] == [
        (7, CREATED_MOMENT, None),
        (OPERATOR, 1_550, None),
    ]


def test_views_and_writes_without_an_actor_are_no_changes(edits: Edits) -> None:
    listing_id = edits.add()
    edits.run(edits.store.record_views(1, {listing_id: [b"v" * 16]}))
    edits.add(None)
    edits.change(listing_id, None, title="New")
    assert edits.run(edits.store.get_revisions(*edits.partition)).revision == 4
    assert edits.state == EditState(1, 0)
    assert edits.rows == [(1, "created", listing_id, "New")]


def test_a_batch_is_one_change_set_with_its_creates_first(edits: Edits) -> None:
    own, other = edits.add(), edits.add()
    results = edits.run_batch(
        ChangeStep(own, set_values(title="A")),
        AddStep(NEW, CREATED),
        ChangeStep(own, reject),
        Problem("invalid_request", "no"),
        ChangeStep(own, set_values(title="B")),
        AddStep(NEW, CREATED),
        ChangeStep(other, set_values(deleted_at=5, is_active=False)),
        ChangeStep(other, set_values()),
    )
    edits.add()
    assert edits.last == 4
    assert edits.rows[2:-1] == [
        (3, "batch", results[1], "Lamp"),
        (3, "batch", results[5], "Lamp"),
        (3, "batch", own, {"title": ("Lamp", "A")}),
        (3, "batch", own, {"title": ("A", "B")}),
        (3, "batch", other, {"deleted_at": (None, 5), "is_active": (True, False)}),
    ]
    assert [change.moment for change in edits.read(2, 3)] == [1_500] * 5


def test_a_batch_that_changes_nothing_is_no_change_set(edits: Edits) -> None:
    own = edits.add()
    step = ChangeStep(own, set_values(title="New"))
    edits.run_batch(step, AddStep(NEW, CREATED), dry_run=True)
    edits.run_batch(step, AddStep(NEW, CREATED), Problem("invalid_request", "no"), atomic=True)
    edits.run_batch(ChangeStep(own, set_values()), ChangeStep(own, reject))
    assert edits.last == 1


def test_a_repeated_create_or_batch_is_one_change_set(edits: Edits) -> None:
    key = IdempotencyRecord("key", b"d" * 32, 1_000, 0)
    batch = Batch([AddStep(NEW, CREATED)], atomic=False, dry_run=False, encode=str)
    for _ in range(2):
        edits.run(edits.store.add_listing(*edits.partition, AddStep(NEW, CREATED), key, KEY))
        edits.run(edits.store.run_batch(*edits.partition, batch, key._replace(key="other"), KEY))
    assert [row[:2] for row in edits.rows] == [(1, "created"), (2, "batch")]


def create_or_update(listing: Listing | None) -> Any:
    if listing is not None:
        return {"title": "Changed"}
    return ImportedListing(NEW, view_count=0, created_at=CREATED, updated_at=CREATED, deleted_at=None)


def test_each_batch_of_an_import_is_a_change_set_with_the_id_of_the_import(edits: Edits) -> None:
    key = ImportKey(*edits.partition, b"d" * 32, "csv", False)  # noqa: FBT003 - the columns of a row
    own = edits.add()
    given = [1024 * serial + edits.partition[0] for serial in (90, 50, 51)]
    rows = [ImportRow(listing_id, create_or_update) for listing_id in (given[0], own, given[1], given[2], None)]
    edits.run(edits.store.begin_import(key, None, 1_000, given[0]))
    steps = [rows, [ImportRow(own, reject)], [ImportRow(given[0], create_or_update)]]
    for number, step in enumerate(steps):
        batch = ImportBatch(Position(number, number), Position(number + 1, number + 1), step)
        edits.run(edits.store.import_listings(key, batch, Actor(CONSOLE, 1_600)))
        if number == 0:
            edits.add()
    new = (90 + 1) * 1024 + edits.partition[0]
    changes = edits.read(1)
    assert [summarize(change) for change in changes] == [
        (2, "import", given[0], "Lamp"),
        *((2, "import", listing_id, "Lamp") for listing_id in (*given[1:], new)),
        (2, "import", own, {"title": ("Lamp", "Changed")}),
        (3, "created", new + 1024, "Lamp"),
        (4, "import", given[0], {"title": ("Lamp", "Changed")}),
    ]
    assert {(it.actor, it.moment, it.group_id) for it in changes if it.kind == "import"} == {(CONSOLE, 1_600, 2)}
    assert edits.history(given[1])[0] == [(2, "import", given[1], "Lamp")]
    again = edits.run(edits.store.find_import(key))
    assert again.import_id == 2
    edits.run(edits.store.begin_import(key, again, 1_700, 0))
    edits.run(edits.store.import_listings(key, ImportBatch(Position(), Position(1, 1), rows[1:2]), KEY))
    assert edits.read(4)[0].group_id == 5


def test_a_history_is_newest_first_and_ends_with_the_creation(edits: Edits) -> None:
    own, other = edits.add(), edits.add()
    for price in (1, 2):
        edits.change(own, price_cents=price)
        edits.change(other, price_cents=price)
    (created,) = edits.run_batch(AddStep(NEW, CREATED))
    edits.run_batch(*(ChangeStep(own, set_values(price_cents=price)) for price in (3, 4)))
    newest = [(8, "batch", own, {"price_cents": change}) for change in ((3, 4), (2, 3))]
    older = [(5, "updated", own, {"price_cents": (1, 2)}), (3, "updated", own, {"price_cents": (0, 1)})]
    creation = [(1, "created", own, "Lamp")]
    assert edits.history(own) == (newest + older + creation, False)
    assert edits.history(own, count=2) == ([*newest, older[0]], True)
    assert edits.history(own, before=5, count=1) == (older[1:], True)
    assert edits.history(own, before=3) == (creation, False)
    assert edits.history(own, before=1) == ([], False)
    assert edits.history(created) == ([(7, "batch", created, "Lamp")], False)
    assert edits.history(edits.add(None)) == ([], False)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_creation_is_read_once_if_its_change_set_also_changed_it(edits: Edits, count: int) -> None:
    put = AddStep(msgspec.structs.replace(NEW, external_id="A"), CREATED)
    own = edits.run_batch(*(PutStep("A", put, set_values(price_cents=price)) for price in (0, 1, 2)))[0]
    edits.change(own, price_cents=3)
    found, before, more = list[tuple[Any, ...]](), 2**62, True
    while more:
        page, more = edits.history(own, before, count)
        found += page
        before = page[-1][0]
    prices = [(2, "updated", 3), (1, "batch", 2), (1, "batch", 1)]
    updates = [(edit, kind, own, {"price_cents": (price - 1, price)}) for edit, kind, price in prices]
    assert found == [*updates, (1, "batch", own, "Lamp")]


@pytest.fixture
def busy(edits: Edits, run: Run) -> Edits:
    """More than five hundred change sets: mostly creates, with few rows of changes among them."""

    async def write() -> None:
        for number in range(1, 521):
            added = await edits.store.add_listing(*edits.partition, AddStep(NEW, CREATED), None, KEY)
            if number % 200 == 0:
                await edits.store.change_listing(added.listing_id, set_values(price_cents=number), KEY)

    run(write())
    return edits


def test_every_change_set_is_read_once_from_any_position(busy: Edits) -> None:
    last = busy.last
    assert last == 522
    assert [change.edit_revision for change in busy.read()] == list(range(1, last + 1))
    for after in (0, 200, 201, 255, 256, 257, 402, 511, last - 1, last):
        upto = min(after + 30, last)
        page = busy.page(ChangePosition(after), after + 30)
        assert [change.edit_revision for change in page.changes] == list(range(after + 1, upto + 1))
        assert (page.end, page.edit_revision) == (ChangePosition(upto), last)


def test_a_position_that_no_change_set_has_had_yet_is_gone(edits: Edits) -> None:
    edits.add()
    assert edits.page(ChangePosition(1)) == ChangePage([], ChangePosition(1), 1)
    with pytest.raises(Problem, match="limit=0"):
        edits.page(ChangePosition(2))


def split_by_set(pages: Iterator[ChangePage]) -> list[list[int]]:
    return [[number for number, _ in groupby(page.changes, lambda it: it.edit_revision)] for page in pages]


def read_pages(edits: Edits, after: int) -> Iterator[ChangePage]:
    position = ChangePosition(after)
    while (page := edits.page(position)).end != position:
        yield page
        position = page.end


def test_a_page_has_whole_change_sets_unless_one_is_larger_than_a_page(edits: Edits) -> None:
    third = "x" * (MAX_LIST_BYTES // 3)
    ids = [edits.add(content=third) for _ in range(5)]
    assert split_by_set(read_pages(edits, 0)) == [[1, 2], [3, 4], [5]]
    steps = [ChangeStep(it, set_values(content=f"{third}y")) for it in ids]
    results = edits.run_batch(*steps, *[AddStep(msgspec.structs.replace(NEW, content=third), CREATED)] * 4)
    edits.change(ids[0], price_cents=1)
    pages = list(read_pages(edits, 5))
    assert split_by_set(iter(pages)) == [[6]] * (len(pages) - 1) + [[6, 7]]
    assert len(pages) > 5
    found = [change.listing_id for page in pages for change in page.changes]
    assert found == [*results[5:], *ids, ids[0]]


@pytest.mark.decision("G45")
def test_an_imported_listing_is_shown_with_the_times_of_its_import(edits: Edits) -> None:
    key = ImportKey(*edits.partition, b"d" * 32, "csv", False)  # noqa: FBT003 - the columns of a row
    first, second, third = (1024 * serial + edits.partition[0] for serial in (50, 51, 52))
    times = {first: CREATED, second: "2026-11-21 12:00:00", third: CREATED}
    new = {it: ImportedListing(NEW, 0, CREATED, time, None) for it, time in times.items()}
    rows = [ImportRow(it, partial(lambda it, _: new[it], it)) for it in times]
    edits.run(edits.store.begin_import(key, None, 1_000, third))
    edits.run(edits.store.import_listings(key, ImportBatch(Position(), Position(3, 3), rows), KEY))
    before = [(change.listing_id, change.after["updated_at"]) for change in edits.read()]
    for listing_id in times:
        edits.change(listing_id, title="New", updated_at="2026-11-22 10:00:00")
    after = [(change.listing_id, change.after["updated_at"]) for change in edits.read(last=1)]
    assert before == after == list(times.items())
    (created,) = edits.run(edits.store.page_listing_changes(second, 2, 1)).changes
    assert (created.after["title"], created.after["updated_at"]) == ("Lamp", times[second])


@pytest.mark.decision("G45")
def test_a_page_of_creates_with_many_later_edits_ends_early(edits: Edits, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_reads, "_MAX_LATER_EDITS", 9)
    monkeypatch.setattr(change_reads, "_MAX_CREATES", 2)
    ids = [edits.add(title=f"Lamp {number}") for number in range(6)]
    ids += edits.run_batch(*[AddStep(NEW, CREATED)] * 6)
    for listing_id in ids:
        for price in range(1, 4):
            edits.change(listing_id, title=f"New {price}", price_cents=price)
    pages = list(read_pages(edits, 0))
    found = [change for page in pages for change in page.changes]
    assert [change.listing_id for change in found] == [*ids, *(one for one in ids for _ in range(3))]
    titles = [*(f"Lamp {number}" for number in range(6)), *["Lamp"] * 6]
    assert [change.after["title"] for change in found[:12]] == titles
    assert {change.after["price_cents"] for change in found[:12]} == {0}
    sizes = [len([one for one in page.changes if one.before is None]) for page in pages]
    assert sizes == [3, 3, 4, 2]
    assert [page.end.number == END for page in pages] == [True, True, False, True]


def describe(change: Change) -> tuple[int, int, int]:
    """Return the change set, the listing, and the size of the new content."""
    return change.edit_revision, change.listing_id, len(str(change.after.get("content", "")))


def test_the_first_changes_of_each_set_are_converted(edits: Edits) -> None:
    ids = [edits.add() for _ in range(5)]
    created = edits.run_batch(*[AddStep(NEW, CREATED)] * 2, *[ChangeStep(it, set_values(content="xy")) for it in ids])
    edits.change(ids[4], content="z")
    found = edits.run(edits.store.convert_first_changes(*edits.partition, [7, 6, 5, 99], 3, describe))
    assert found == {7: [(7, ids[4], 1)], 6: [(6, created[0], 0), (6, created[1], 0), (6, ids[0], 2)]}
    assert edits.run(edits.store.convert_first_changes(*edits.partition, [], 3, describe)) == {}


def test_large_first_changes_are_converted_up_to_four_mebibytes(edits: Edits) -> None:
    size = 3 * MAX_LIST_BYTES
    own = edits.add(content="x" * size)
    for letter in "yx" * 4:
        edits.change(own, content=letter * size)
    order = [4, 9, 8, 7, 6, 5, 3, 2]  # 1.5 MiB each
    found = edits.run(edits.store.convert_first_changes(*edits.partition, order, 3, describe))
    assert sorted(found.items()) == [(number, [(number, own, size)]) for number in order[:2]]


def test_old_change_sets_are_purged_and_a_position_before_them_is_gone(edits: Edits) -> None:
    own = edits.add()
    for moment in (1_000, 1_100):
        edits.change(own, Actor(7, moment), price_cents=moment)
    edits.run_batch(AddStep(NEW, CREATED), ChangeStep(own, set_values(price_cents=1)))
    edits.add()
    edits.change(own, Actor(7, 1_600), price_cents=1_600)
    buckets = range(1024)
    assert edits.run(edits.store.purge_changes(buckets, 1_600, 2)) == 2
    assert edits.state == EditState(6, 3)
    assert edits.run(edits.store.purge_changes(buckets, 1_600, 2)) == 1
    assert edits.run(edits.store.purge_changes(buckets, 1_600, 2)) == 0
    assert edits.state == EditState(6, 4)
    assert [row[:2] for row in [summarize(it) for it in edits.read(4)]] == [(5, "created"), (6, "updated")]
    for position in (ChangePosition(3), ChangePosition(4, 1)):
        with pytest.raises(Problem, match="limit=0") as gone:
            edits.page(position)
        assert gone.value.code == "changes_gone"
    assert edits.history(own) == ([(6, "updated", own, {"price_cents": (1, 1_600)})], False)


def test_the_last_change_sets_of_many_accounts_are_read_together(edits: Edits) -> None:
    own = edits.partition[1]
    other = edits.run(edits.store.add_account("Bob", "bob@example.com", 2_000_000_000, 1_000)).id
    for _ in range(3):
        edits.add()
    assert edits.run(edits.store.list_edit_revisions([own, other, 999_999])) == {own: 3, other: 0}
    assert edits.run(edits.store.list_edit_revisions([])) == {}


def test_erasing_an_account_deletes_its_change_sets(edits: Edits) -> None:
    own = edits.add()
    edits.change(own, title="Secret")
    edits.run(erase(edits.store, edits.partition[1], "erased@example.com", 2_000))
    assert edits.state == EditState(2, 2)
    assert edits.history(own) == ([], False)


def erase_some_rows(edits: Edits, count: int) -> None:
    """Disable the account, and erase rows in batches as an erasure does that stops before its last batch."""
    account_id = edits.partition[1]
    edits.run(edits.store.change_account(account_id, lambda _: {"disabled_at": 2_000}))
    edits.run(edits.store.erase_rows(account_id, count, 2_000))


def test_no_change_set_is_missing_after_an_erasure_that_stopped(edits: Edits) -> None:
    own = edits.add()
    for price in (1, 2, 3):
        edits.change(own, price_cents=price)
    erase_some_rows(edits, 2)
    edits.run(edits.store.change_account(edits.partition[1], lambda _: {"disabled_at": None}))
    edits.change(own, price_cents=4)
    with pytest.raises(Problem, match="no longer stored"):
        edits.page(ChangePosition(0))
    assert [summarize(it) for it in edits.read(4)] == [(5, "updated", own, {"price_cents": (3, 4)})]


def test_change_sets_that_an_erasure_has_left_are_purged(edits: Edits) -> None:
    own = edits.add()
    for price in (1, 2, 3):
        edits.change(own, price_cents=price)
    erase_some_rows(edits, 2)
    assert edits.run(edits.store.purge_changes(range(1024), 10_000, 10)) == 1
    assert edits.history(own) == ([], False)


def test_a_part_of_a_change_set_that_an_erasure_has_left_is_purged(edits: Edits) -> None:
    ids = [edits.add() for _ in range(4)]
    edits.run_batch(*(ChangeStep(it, set_values(price_cents=7)) for it in ids))
    erase_some_rows(edits, 3)
    assert any(edits.history(it)[0] for it in ids)
    edits.run(edits.store.purge_changes(range(1024), 10**10, 10))
    assert not any(edits.history(it)[0] for it in ids)


def replay(state: dict[int, dict[str, Any]], changes: list[Change]) -> None:
    """Apply changes to a copy of an account's listings, as a client would."""
    for change in changes:
        state.setdefault(change.listing_id, {"deleted_at": None}).update(change.after)


async def edit_at_random(edits: Edits, random: Random, known: list[int], writes: int) -> list[int]:
    """Make writes of all kinds; return how many changes each made."""
    store, partition, counts = edits.store, edits.partition, []

    def changing() -> ChangeStep:
        return ChangeStep(random.choice(known), decide)

    def decide(listing: Listing | None) -> Any:
        assert listing is not None
        if listing.deleted_at is not None:
            return {"deleted_at": None}
        if random.random() < 0.2:
            return {"is_active": False, "deleted_at": 1_500}
        return {"price_cents": listing.price_cents + 1}

    for _ in range(writes):
        kind = random.random()
        if kind < 0.3:
            known.append((await store.add_listing(*partition, AddStep(NEW, CREATED), None, KEY)).listing_id)
            counts.append(1)
        elif kind < 0.7:
            step = changing()
            await store.change_listing(step.listing_id, step.decide, KEY)
            counts.append(1)
        elif kind < 0.85:
            await store.record_views(1, {random.choice(known): [random.randbytes(16)]})
        else:
            steps: list[Step] = [AddStep(NEW, CREATED), changing(), changing()]
            outcome = await store.run_batch(
                *partition, Batch(steps, atomic=False, dry_run=False, encode=str), None, KEY
            )
            assert not isinstance(outcome, str)
            known.append(outcome.results[0])  # type: ignore[arg-type]  # the id of the new listing
            counts.append(3)
    return counts


@pytest.mark.decision("G45")
def test_a_list_and_the_changes_after_it_equal_any_later_list(edits: Edits, run: Run) -> None:
    """64 writers edit while a reader copies the list, page by page, and then follows the changes."""
    known = [edits.add(), edits.add()]

    async def copy_and_follow(done: asyncio.Event) -> tuple[dict[int, dict[str, Any]], list[Change]]:
        store, partition = edits.store, edits.partition
        position = ChangePosition((await store.get_edit_state(*partition)).edit_revision)
        state: dict[int, dict[str, Any]] = {}
        after = 0
        while page := await store.page_listings(*partition, after, 7):
            state |= {it.id: {name: getattr(it, name) for name in (*SETTABLE, "deleted_at")} for it in page}
            after = page[-1].id
        seen: list[Change] = []
        while True:
            is_last = done.is_set()
            found = await store.page_changes(*partition, position, position.edit_revision + 20)
            replay(state, list(found.changes))
            seen += found.changes
            if is_last and found.end == position:
                return state, seen
            position = found.end

    async def work() -> int:
        done = asyncio.Event()
        readers = [asyncio.ensure_future(copy_and_follow(done)) for _ in range(2)]
        writers = [edit_at_random(edits, Random(seed), known, 6) for seed in range(64)]
        counts = [count for each in await asyncio.gather(*writers) for count in each]
        late = asyncio.ensure_future(copy_and_follow(done))
        done.set()
        expected = {
            it.id: {name: getattr(it, name) for name in (*SETTABLE, "deleted_at")}
            for it in await edits.store.page_listings(*edits.partition, 0, 10_000)
        }
        for state, seen in await asyncio.gather(*readers, late):
            for values in state.values():  # a create has both
                assert values.pop("updated_at", CREATED) >= values.pop("created_at", CREATED)
            assert state == expected
            assert [it.edit_revision for it in seen] == sorted(it.edit_revision for it in seen)
        return sum(counts)

    changed = run(work())
    changes = edits.read(2)
    assert len(changes) == changed
    assert [number for number, _ in groupby(changes, lambda it: it.edit_revision)] == list(range(3, edits.last + 1))
