"""Reverts: guarantees of every store (`listings.store.store.Store`)."""

import asyncio
from typing import Any

import msgspec
import pytest

from listings.domain.account_limits import AccountLimits
from listings.domain.errors import Problem
from listings.domain.history import LATEST, Actor
from listings.domain.imports import ImportBatch, ImportKey, ImportRow, Position
from listings.domain.listings import AddStep, ChangeStep, IdempotencyRecord
from listings.domain.model import Account, ImportedListing, Listing
from listings.domain.reverts import (
    Candidate,
    Revert,
    RevertConflict,
    RevertCounts,
    RevertKey,
    RevertPosition,
    RevertPreview,
    RevertRequest,
    RevertStep,
)
from listings.store.reverts import plans, scan
from listings.store.store import Store
from tests.contract.conftest import ENGINES, Run, open_store
from tests.contract.helpers import CREATED, erase, set_values
from tests.contract.revert_writes import ALL_OF_BOT, BOT, NOW, OTHER_WORKER, OWNER, WORKER, Reverts
from tests.contract.test_changes import CREATED_MOMENT, NEW


@pytest.fixture
def reverts(store: Store, run: Run, account: Account) -> Reverts:
    return Reverts(store, run, account)


def describe(conflicts: list[RevertConflict]) -> list[tuple[Any, ...]]:
    return [(it.listing_id, it.reason, list(it.fields), it.subject) for it in conflicts]


@pytest.mark.decision("G46")
def test_a_single_change_of_any_kind_is_taken_back(reverts: Reverts) -> None:
    edited, deleted, paused = (reverts.add(OWNER, title=title, price_cents=5) for title in "EDP")
    created = reverts.add(BOT)
    reverts.change(edited, BOT, title="New", price_cents=7)
    reverts.delete(deleted)
    reverts.change(paused, OWNER, is_active=False)
    reverts.delete(paused)
    reverts.change(deleted, OWNER, deleted_at=None)
    for change in (4, 5, 8, 9):
        reverts.begin(RevertRequest("change", change))
    assert (reverts.get(edited).title, reverts.get(edited).price_cents) == ("E", 5)
    assert (reverts.get(created).deleted_at, reverts.get(created).is_active) == (NOW, False)
    assert (reverts.get(paused).deleted_at, reverts.get(paused).is_active) == (None, False)
    assert (reverts.get(deleted).deleted_at, reverts.get(deleted).is_active) == (1_500, False)
    assert reverts.get(edited).updated_at > CREATED


def test_several_listings_get_the_values_of_all_fields_back(reverts: Reverts) -> None:
    """On PostgreSQL, one statement updates all listings of a step."""
    texts = ("title", "content", "category", "location", "region", "district")
    before = [
        {name: f"{name} {number} 💡" for name in texts}
        | {"type": "rental", "price_type": "per_night", "images": f'["https://a.example/{number}"]'}
        | {"price_cents": 2**40 + number, "latitude": -41.1234567 - number, "longitude": None, "is_active": number != 1}
        for number in range(3)
    ]
    ids = [reverts.add(OWNER, **values) for values in before]
    for number, listing_id in enumerate(ids):
        new: dict[str, Any] = dict.fromkeys(texts, f"new {number}") | {"type": "job", "price_type": "fixed"}
        new |= {"images": "[]", "price_cents": 1, "latitude": None, "longitude": 174.0, "is_active": number == 1}
        reverts.change(listing_id, BOT, **new)
    first = reverts.begin()
    assert [{name: getattr(reverts.get(it), name) for name in before[0]} for it in ids] == before
    reverts.begin(RevertRequest("revert", first.key.id))
    assert [(reverts.get(it).title, reverts.get(it).longitude) for it in ids] == [(f"new {n}", 174.0) for n in range(3)]


def test_a_created_listing_that_somebody_else_changed_is_left_as_it_is(reverts: Reverts) -> None:
    listing_id = reverts.add(BOT)
    reverts.change(listing_id, BOT, title="Bot")
    reverts.change(listing_id, OWNER, price_cents=2)
    before = reverts.get(listing_id)
    revert = reverts.begin()
    assert reverts.get(listing_id) == before
    assert describe(reverts.conflicts(revert)) == [(listing_id, "changed_later", ["deleted_at"], 3)]
    assert revert.counts == RevertCounts(conflicts=1)
    assert (revert.group_id, reverts.last) == (None, 3)
    reverts.begin(ALL_OF_BOT._replace(overwrite=True))
    assert reverts.get(listing_id).deleted_at == NOW


@pytest.mark.decision("G46")
def test_a_revert_is_a_change_set_that_can_be_reverted(reverts: Reverts) -> None:
    edited, deleted = reverts.add(OWNER), reverts.add(OWNER)
    created = reverts.add(BOT)
    reverts.change(edited, BOT, title="New", external_id="sku")
    reverts.delete(deleted)
    before = [reverts.get(it) for it in (edited, deleted, created)]
    revert = reverts.begin()
    assert (revert.key.id, revert.group_id) == (1, 6)
    changes = reverts.read(5)
    assert {(it.edit_revision, it.kind, it.actor, it.group_id) for it in changes} == {(6, "reverted", 9, 1)}
    assert len(changes) == 3
    reverts.begin(RevertRequest("revert", revert.key.id))
    after = [reverts.get(it) for it in (edited, deleted, created)]
    for old, new in zip(before, after, strict=True):
        assert msgspec.structs.replace(new, version=old.version, updated_at=old.updated_at) == old


def test_the_revert_of_a_batch_and_of_an_import_covers_what_they_created(reverts: Reverts) -> None:
    own = reverts.add(OWNER, title="Own")
    (in_batch, _) = reverts.run_batch(AddStep(NEW, CREATED), ChangeStep(own, set_values(title="Batch")))
    key = ImportKey(*reverts.partition, b"d" * 32, "csv", False)  # noqa: FBT003 - the columns of a row
    imported = [1024 * serial + reverts.partition[0] for serial in (90, 50)]

    def decide(listing: Listing | None) -> Any:
        return ImportedListing(NEW, 0, CREATED, CREATED, None) if listing is None else {"title": "Imported"}

    reverts.run(reverts.store.begin_import(key, None, 1_000, imported[0]))
    for number, ids in enumerate(([imported[0]], [imported[1], own])):
        batch = ImportBatch(
            Position(number, number), Position(number + 1, number + 1), [ImportRow(it, decide) for it in ids]
        )
        reverts.run(reverts.store.import_listings(key, batch, OWNER))
    assert reverts.begin(RevertRequest("import", 3)).counts == RevertCounts(reverted=3)
    assert [reverts.get(it).deleted_at for it in (*imported, in_batch)] == [NOW, NOW, None]
    assert reverts.get(own).title == "Batch"
    reverts.begin(RevertRequest("change", 2))
    assert (reverts.get(in_batch).deleted_at, reverts.get(own).title) == (NOW, "Own")


@pytest.mark.decision("G55")
def test_an_import_and_a_revert_with_the_same_id_are_told_apart(reverts: Reverts) -> None:
    key = ImportKey(*reverts.partition, b"d" * 32, "csv", False)  # noqa: FBT003 - the columns of a row
    imported = 1024 * 90 + reverts.partition[0]
    new = ImportedListing(NEW, 0, CREATED, CREATED, None)
    reverts.run(reverts.store.begin_import(key, None, 1_000, imported))
    batch = ImportBatch(Position(0, 0), Position(1, 1), [ImportRow(imported, lambda _: new)])
    reverts.run(reverts.store.import_listings(key, batch, OWNER))
    first = reverts.begin(RevertRequest("import", 1))
    assert (first.key.id, first.group_id, reverts.get(imported).deleted_at) == (1, 2, NOW)
    with pytest.raises(Problem, match="no import with the id 2"):
        reverts.scan(RevertRequest("import", 2))
    assert reverts.begin(RevertRequest("import", 1)).counts == RevertCounts(unchanged=1)
    reverts.begin(RevertRequest("revert", 1))
    assert reverts.get(imported).deleted_at is None
    assert reverts.begin(RevertRequest("import", 1)).counts == RevertCounts(reverted=1)
    assert reverts.begin(RevertRequest("revert", 2)).counts == RevertCounts()


def test_only_what_the_key_wrote_in_the_time_is_taken_back(reverts: Reverts) -> None:
    listing_id = reverts.add(OWNER)
    created = [reverts.add(BOT) for _ in range(2)]
    later = [CREATED_MOMENT + seconds for seconds in (500, 600, 700)]
    for price, moment in enumerate(later, 1):
        reverts.change(listing_id, Actor(BOT.key_id, moment), price_cents=price)
    reverts.begin(RevertRequest("key", BOT.key_id, later[1], later[2]))
    assert reverts.get(listing_id).price_cents == 1
    assert [reverts.get(it).deleted_at for it in created] == [None, None]
    reverts.begin(RevertRequest("key", BOT.key_id, CREATED_MOMENT, CREATED_MOMENT + 10))
    assert [reverts.get(it).deleted_at for it in created] == [NOW, NOW]


def test_an_external_id_that_is_taken_meanwhile_is_a_conflict(reverts: Reverts) -> None:
    deleted, renamed = reverts.add(OWNER, external_id="a"), reverts.add(OWNER, external_id="b")
    reverts.delete(deleted)
    reverts.change(renamed, BOT, external_id=None, title="New")
    first, second = reverts.add(OWNER, external_id="a"), reverts.add(OWNER, external_id="b")
    revert = reverts.begin(ALL_OF_BOT._replace(overwrite=True))
    assert describe(reverts.conflicts(revert)) == [
        (renamed, "external_id_taken", ["external_id"], second),
        (deleted, "external_id_taken", ["deleted_at", "is_active"], first),
    ]
    assert (reverts.get(deleted).deleted_at, reverts.get(renamed).title) == (1_500, "Lamp")


def test_a_deleted_listing_frees_its_external_id_for_the_restored_one(reverts: Reverts) -> None:
    former = reverts.add(OWNER, external_id="a")
    reverts.run_batch(
        ChangeStep(former, set_values(is_active=False, deleted_at=1)),
        AddStep(msgspec.structs.replace(NEW, external_id="a"), CREATED),
    )
    assert reverts.begin(RevertRequest("change", 2)).counts == RevertCounts(reverted=2)
    assert reverts.get(former).deleted_at is None


def test_a_listing_that_a_revert_deletes_keeps_its_external_id(reverts: Reverts) -> None:
    former = reverts.add(OWNER, external_id="a")
    created = AddStep(msgspec.structs.replace(NEW, external_id="a"), CREATED)
    latter = reverts.run_batch(ChangeStep(former, set_values(external_id=None)), created)[1]
    revert = reverts.begin(RevertRequest("change", 2))
    assert [reverts.get(it).external_id for it in (former, latter)] == ["a", "a"]
    assert reverts.begin(RevertRequest("revert", revert.key.id)).counts == RevertCounts(reverted=2)
    assert [reverts.get(it).external_id for it in (former, latter)] == [None, "a"]


def test_a_listing_with_too_many_later_changes_is_a_conflict(reverts: Reverts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "_MAX_EDITS", 3)
    listing_id = reverts.add(OWNER)
    reverts.change(listing_id, BOT, price_cents=7)
    for number in range(4):
        reverts.change(listing_id, OWNER, title=f"Lamp {number}")
    for request in (RevertRequest("change", 2), RevertRequest("change", 1)):
        revert = reverts.begin(request)
        assert revert.counts == RevertCounts(conflicts=1)
        assert describe(reverts.conflicts(revert)) == [(listing_id, "too_many_changes", [], None)]


def test_a_listing_with_too_many_later_changes_is_one_conflict(
    reverts: Reverts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "_MAX_EDITS", 3)
    monkeypatch.setattr(scan, "_MAX_ROWS", 3)  # so that each of the key's changes is found by another scan
    listing_id = reverts.add(OWNER)
    for price in (7, 8, 9):
        reverts.change(listing_id, BOT, price_cents=price)
    for number in range(4):
        reverts.change(listing_id, OWNER, title=f"Lamp {number}")
    revert = reverts.begin()
    assert revert.counts == RevertCounts(conflicts=1)
    assert describe(reverts.conflicts(revert)) == [(listing_id, "too_many_changes", [], None)]


def test_a_step_ends_early_after_listings_with_many_changes(reverts: Reverts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "_MAX_BYTES", 5_000)
    ids = [reverts.add(OWNER) for _ in range(3)]
    for listing_id in ids:
        reverts.change(listing_id, BOT, price_cents=7)
        for number in range(20):
            reverts.change(listing_id, OWNER, title=f"Lamp {number}")
    assert reverts.begin().counts.reverted == 1


def test_a_key_revert_in_an_account_without_listings_is_empty(reverts: Reverts) -> None:
    assert reverts.begin().counts == RevertCounts()


def test_listings_that_cannot_exchange_external_ids_keep_them(reverts: Reverts) -> None:
    first, second = (reverts.add(OWNER, external_id=name) for name in "ab")
    names = ((first, None), (second, "a"), (first, "c"))
    reverts.run_batch(*(ChangeStep(listing_id, set_values(external_id=name)) for listing_id, name in names))
    other = reverts.add(OWNER, external_id="b")
    revert = reverts.begin(RevertRequest("change", 3))
    assert sorted(describe(reverts.conflicts(revert))) == [
        (first, "external_id_taken", ["external_id"], second),
        (second, "external_id_taken", ["external_id"], other),
    ]
    assert [reverts.get(it).external_id for it in (first, second)] == ["c", "a"]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_restore_for_which_the_account_has_no_room_is_a_conflict(
    request: pytest.FixtureRequest, engine: str, tmp_path: Any, run: Run
) -> None:
    with open_store(request, engine, tmp_path, run, AccountLimits(listings=1)) as store:
        reverts = Reverts(store, run, run(store.add_account("Alice", "alice@example.com", None, 1_000)))
        deleted = reverts.add(OWNER)
        reverts.delete(deleted)
        reverts.add(OWNER)
        conflicts = describe(reverts.conflicts(reverts.begin()))
    assert conflicts == [(deleted, "account_full", ["deleted_at", "is_active"], None)]


@pytest.mark.parametrize("engine", ENGINES)
def test_an_external_id_is_not_reserved_for_a_listing_without_room(
    request: pytest.FixtureRequest, engine: str, tmp_path: Any, run: Run
) -> None:
    with open_store(request, engine, tmp_path, run, AccountLimits(text_bytes=1_000)) as store:
        reverts = Reverts(store, run, run(store.add_account("Alice", "alice@example.com", None, 1_000)))
        small = reverts.add(OWNER, external_id="a")
        reverts.delete(small)
        large = reverts.add(OWNER, external_id="a", content="x" * 900)
        reverts.delete(large)
        reverts.add(OWNER, content="x" * 500)
        conflicts = describe(reverts.conflicts(reverts.begin()))
        assert conflicts == [(large, "account_full", ["deleted_at", "is_active"], None)]
        assert reverts.get(small).deleted_at is None


@pytest.mark.decision("G55")
def test_a_large_revert_continues_and_ignores_later_changes(reverts: Reverts) -> None:
    ids = [reverts.add(BOT if number % 2 else OWNER) for number in range(9)]
    for listing_id in ids[:6]:
        reverts.change(listing_id, BOT, title="Bot")
    revert = reverts.begin(count=3)
    assert (revert.finished_at, revert.counts.reverted) == (None, 3)
    reverts.change(ids[0], BOT, price_cents=4)
    reverts.change(ids[1], BOT, price_cents=4)
    assert reverts.run(reverts.store.list_running_reverts(WORKER, NOW)) == [revert]
    finished = reverts.advance(revert)
    assert finished is not None
    assert (finished.finished_at, finished.counts) == (NOW, RevertCounts(reverted=6, conflicts=1))
    assert reverts.run(reverts.store.get_revert(revert.key)) == finished
    assert reverts.run(reverts.store.list_running_reverts(WORKER, NOW)) == []
    assert [reverts.get(it).title for it in ids[:6:2]] == ["Lamp"] * 3
    assert reverts.get(ids[0]).price_cents == 4
    assert describe(reverts.conflicts(finished)) == [(ids[1], "changed_later", ["deleted_at"], 18)]
    assert [reverts.get(it).deleted_at for it in ids[3::2]] == [NOW] * 3
    reverts.begin(RevertRequest("revert", revert.key.id))
    assert [reverts.get(it).deleted_at for it in ids] == [None] * 9


def test_a_step_with_long_texts_reverts_fewer_listings(reverts: Reverts) -> None:
    ids = [reverts.add(OWNER, content="a" * 1_000_000) for _ in range(6)]
    for listing_id in ids:
        reverts.change(listing_id, BOT, price_cents=7)
    revert = reverts.begin()
    assert (revert.finished_at, revert.counts) == (None, RevertCounts(reverted=4))
    finished = reverts.advance(revert)
    assert finished is not None
    assert (finished.finished_at, finished.counts) == (NOW, RevertCounts(reverted=6))


def test_one_worker_at_a_time_takes_steps_and_none_twice(reverts: Reverts) -> None:
    for _ in range(6):
        reverts.add(BOT)
    revert = reverts.begin(count=2)
    scan = reverts.run(reverts.store.scan_revert(*reverts.partition, revert.scope, revert.position))
    half = RevertStep(revert.position, scan.candidates[:2], scan.candidates[1].position, is_last=False)
    advanced = reverts.run(reverts.store.advance_revert(revert.key, half, WORKER, NOW))
    assert advanced.counts == RevertCounts(reverted=4)
    assert reverts.run(reverts.store.advance_revert(revert.key, half, WORKER, NOW)) is None
    assert reverts.run(reverts.store.list_running_reverts(OTHER_WORKER, NOW + 2)) == []
    assert reverts.advance(advanced, OTHER_WORKER, NOW + 2) is None
    finished = reverts.advance(advanced, OTHER_WORKER, NOW + 3)
    assert finished is not None
    assert finished.counts == RevertCounts(reverted=6)


@pytest.mark.decision("G55")
def test_an_account_has_one_unfinished_revert_at_a_time(reverts: Reverts) -> None:
    for _ in range(3):
        reverts.add(BOT)
    key = IdempotencyRecord("key", b"d" * 32, 1_000, 0)
    revert = reverts.begin(count=1, idempotency=key)
    for idempotency in (None, key._replace(key="other")):
        with pytest.raises(Problem, match="Revert 1 is still running") as rejected:
            reverts.begin(RevertRequest("change", 1), idempotency=idempotency)
        assert rejected.value.code == "revert_running"
    assert reverts.last == revert.group_id
    assert reverts.begin(count=1, idempotency=key) == revert.key.id
    assert reverts.advance(revert) is not None
    assert reverts.begin(RevertRequest("revert", revert.key.id)).counts == RevertCounts(reverted=3)


def test_unfinished_reverts_of_other_accounts_reject_nothing(reverts: Reverts, run: Run) -> None:
    bob = Reverts(reverts.store, run, run(reverts.store.add_account("Bob", "bob@example.com", None, 1_000)))
    for owner in (reverts, bob):
        for _ in range(2):
            owner.add(BOT)
    assert [owner.begin(count=1).finished_at for owner in (reverts, bob)] == [None, None]


@pytest.mark.decision("G55")
def test_simultaneous_reverts_of_an_account_start_only_one(reverts: Reverts, run: Run) -> None:
    ids = [reverts.add(BOT) for _ in range(20)]
    scope, (start, candidates, *_) = reverts.scan(ALL_OF_BOT)

    async def begin(candidate: Candidate) -> Any:
        step = RevertStep(start, [candidate], candidate.position, is_last=False)
        return await reverts.store.begin_revert(*reverts.partition, scope, step, Actor(9, NOW))

    async def begin_all() -> list[Any]:
        return await asyncio.gather(*map(begin, candidates[:8]), return_exceptions=True)

    outcomes = run(begin_all())
    assert [type(outcome) for outcome in outcomes].count(Revert) == 1
    assert {outcome.code for outcome in outcomes if isinstance(outcome, Problem)} == {"revert_running"}
    assert sum(reverts.get(listing_id).deleted_at is not None for listing_id in ids) == 1


def set_disabled(reverts: Reverts, moment: int | None) -> None:
    reverts.run(reverts.store.change_account(reverts.partition[1], lambda _: {"disabled_at": moment}))


@pytest.mark.decision("G55")
def test_a_revert_stops_while_the_account_is_disabled(reverts: Reverts) -> None:
    ids = [reverts.add(OWNER) for _ in range(3)]
    for listing_id in ids:
        reverts.delete(listing_id)
    revert = reverts.begin(count=1)
    set_disabled(reverts, 1_700)
    assert reverts.run(reverts.store.list_running_reverts(WORKER, NOW)) == []
    with pytest.raises(Problem) as stopped:
        reverts.advance(revert)
    assert stopped.value.code == "account_disabled"
    assert [reverts.get(it).deleted_at for it in ids] == [1_500, 1_500, None]
    assert reverts.last == revert.group_id
    set_disabled(reverts, None)
    assert reverts.run(reverts.store.list_running_reverts(OTHER_WORKER, NOW)) == [revert]
    assert reverts.advance(revert, OTHER_WORKER) is not None
    assert [reverts.get(it).deleted_at for it in ids] == [None] * 3


@pytest.mark.parametrize("erases", [True, False])
def test_no_revert_of_a_disabled_account_starts(reverts: Reverts, *, erases: bool) -> None:
    listing_id = reverts.add(BOT)
    scope, step = reverts.scan(ALL_OF_BOT)
    if erases:
        reverts.run(erase(reverts.store, reverts.partition[1], "erased@example.com", 1_700))
    else:
        set_disabled(reverts, 1_700)
    before, edited = reverts.get(listing_id), reverts.last
    for key in (None, IdempotencyRecord("key", b"d" * 32, 1_000, 0)):
        with pytest.raises(Problem) as rejected:
            reverts.run(reverts.store.begin_revert(*reverts.partition, scope, step, Actor(9, NOW), key))
        assert rejected.value.code == "account_disabled"
    assert (reverts.get(listing_id), reverts.last) == (before, edited)


def test_an_erased_account_has_no_further_step(reverts: Reverts) -> None:
    ids = [reverts.add(OWNER, external_id=str(number)) for number in range(2)]
    for listing_id in ids:
        reverts.change(listing_id, BOT, external_id=None)
    scan = reverts.scan(ALL_OF_BOT)[1]
    revert = reverts.begin(count=1)
    step = RevertStep(revert.position, scan.candidates[1:], scan.end, is_last=True)
    reverts.run(erase(reverts.store, reverts.partition[1], "erased@example.com", 1_700))
    with pytest.raises(Problem) as stopped:
        reverts.run(reverts.store.advance_revert(revert.key, step, WORKER, NOW))
    assert stopped.value.code == "account_disabled"
    assert [reverts.get(it).external_id for it in ids] == [None, None]


def test_a_preview_says_what_the_revert_would_do(reverts: Reverts) -> None:
    listing_id = reverts.add(OWNER)
    reverts.change(listing_id, BOT, title="Bot", price_cents=1)
    reverts.change(listing_id, OWNER, price_cents=2)
    scope, step = reverts.scan(ALL_OF_BOT)
    preview = RevertPreview()
    done = reverts.run(reverts.store.preview_revert(*reverts.partition, scope, step, NOW, preview))
    assert [(it.listing_id, it.before, it.after) for it in preview.changes] == [
        (listing_id, {"title": "Bot"}, {"title": "Lamp"})
    ]
    assert describe(preview.conflicts) == [(listing_id, "changed_later", ["price_cents"], 3)]
    assert (preview.counts, done) == (RevertCounts(0, 0, 1), 1)
    assert (reverts.last, reverts.get(listing_id).title) == (3, "Bot")


def test_what_does_not_exist_or_is_no_longer_stored_is_not_reverted(reverts: Reverts) -> None:
    listing_id = reverts.add(OWNER)
    for moment in (1_000, 2_000):
        reverts.change(listing_id, Actor(7, moment), price_cents=moment)
    for request in (RevertRequest("change", 4), RevertRequest("import", 2), RevertRequest("revert", 9)):
        with pytest.raises(Problem) as missing:
            reverts.scan(request)
        assert missing.value.code == "change_not_found"
    reverts.run(reverts.store.purge_changes(range(1024), 1_500, 10))
    with pytest.raises(Problem, match="no longer stored") as gone:
        reverts.scan(RevertRequest("change", 2))
    assert gone.value.code == "changes_gone"
    with pytest.raises(Problem, match="Changes before 1970-01-01 00:16:41 are no longer stored") as gone:
        reverts.scan(ALL_OF_BOT)
    assert gone.value.code == "changes_gone"
    assert reverts.begin(ALL_OF_BOT._replace(since=1_001)).counts == RevertCounts(reverted=1)
    assert reverts.get(listing_id).price_cents == 1_000


def test_a_revert_has_one_audit_event_with_its_totals(reverts: Reverts) -> None:
    for _ in range(4):
        reverts.add(BOT)
    revert = reverts.begin(count=1)
    reverts.add(OWNER)
    reverts.advance(revert)
    events = reverts.run(reverts.store.page_events(*reverts.partition, LATEST, 10))
    assert [(it.kind, it.actor, it.subject, msgspec.json.decode(it.detail)) for it in events] == [
        ("reverted", 9, revert.key.id, {"reverted": 4, "unchanged": 0, "conflicts": 0})
    ]


def test_reverts_are_deleted_with_their_change_sets(reverts: Reverts) -> None:
    listing_id = reverts.add(BOT)
    reverts.change(listing_id, OWNER, title="Owner")
    kept = reverts.begin()
    reverts.run(reverts.store.purge_changes(range(1024), NOW + 1, 10))
    assert reverts.run(reverts.store.get_revert(kept.key)) is None
    assert reverts.conflicts(kept) == []
    erased = reverts.begin(ALL_OF_BOT._replace(since=NOW + 1))
    reverts.run(erase(reverts.store, reverts.partition[1], "erased@example.com", 2_000))
    assert reverts.run(reverts.store.get_revert(RevertKey(*erased.key))) is None


def test_a_scan_finds_every_create_among_many_change_sets(reverts: Reverts, run: Run) -> None:
    async def write() -> list[int]:
        added = []
        for number in range(1, 1_300):
            actor = BOT if number % 3 == 0 else OWNER
            result = await reverts.store.add_listing(*reverts.partition, AddStep(NEW, CREATED), None, actor)
            if number % 200 == 0:
                await reverts.store.change_listing(result.listing_id, set_values(price_cents=number), OWNER)
            if actor is BOT:
                added.append(result.listing_id)
        return added

    created = run(write())
    _, scan = reverts.scan(ALL_OF_BOT)
    assert [it.listing_id for it in scan.candidates] == created[::-1]


def scan_pages(reverts: Reverts, request: RevertRequest = ALL_OF_BOT) -> list[list[int]]:
    scope, _ = reverts.scan(request)
    position, pages = RevertPosition(scope.last), []
    while True:
        page = reverts.run(reverts.store.scan_revert(*reverts.partition, scope, position))
        assert page.end.edit_revision < position.edit_revision
        pages.append([candidate.listing_id for candidate in page.candidates])
        position = page.end
        if page.is_last:
            return pages


def test_a_scan_finds_each_listing_once_at_its_newest_change(reverts: Reverts) -> None:
    ids = [reverts.add(OWNER) for _ in range(100)]
    for price in range(11):
        reverts.run_batch_as(BOT, [ChangeStep(one, set_values(price_cents=price + 1)) for one in ids])
    reverts.change(ids[0], BOT, title="Bot")
    pages = scan_pages(reverts)
    assert pages[0] == [ids[0], *ids[:0:-1]]
    assert [one for page in pages[1:] for one in page] == []


@pytest.mark.parametrize("limit", [1, 2, 150, 151])
def test_a_scan_makes_progress_whatever_its_limit(
    reverts: Reverts, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(scan, "_MAX_ROWS", limit)
    ids = [reverts.add(OWNER) for _ in range(50)]
    for part in (ids[:20], ids[20:], ids[::2]):
        steps: list[Any] = [ChangeStep(one, set_values(price_cents=len(part))) for one in part]
        reverts.run_batch_as(BOT, [*steps, AddStep(NEW, CREATED)])
    found = [one for page in scan_pages(reverts) for one in page]
    assert len(found) == len(set(found)) == 53


def test_a_listing_edited_twice_in_a_batch_is_found_once(reverts: Reverts) -> None:
    listing_id = reverts.add(OWNER)
    changes = [ChangeStep(listing_id, set_values(price_cents=price)) for price in (1, 2)]
    reverts.run_batch_as(BOT, [*changes, AddStep(NEW, CREATED)])
    reverts.change(listing_id + 1024, BOT, title="Bot")
    assert scan_pages(reverts, RevertRequest("change", 2)) == [[listing_id, listing_id + 1024]]
    assert scan_pages(reverts) == [[listing_id + 1024, listing_id]]
    assert reverts.begin(RevertRequest("change", 2)).counts == RevertCounts(reverted=1, conflicts=1)


@pytest.mark.decision("G46")
def test_a_revert_overwrites_nothing_that_is_written_at_the_same_time(reverts: Reverts, run: Run) -> None:
    ids = [reverts.add(OWNER) for _ in range(40)]
    for listing_id in ids:
        reverts.change(listing_id, BOT, title="Bot", price_cents=1)

    async def edit(listing_id: int) -> None:
        await reverts.store.change_listing(listing_id, set_values(price_cents=2), OWNER)

    async def revert() -> Revert:
        store, partition = reverts.store, reverts.partition
        scope, _ = await store.find_revert_scope(*partition, ALL_OF_BOT)
        position = RevertPosition(scope.last)
        found = await store.scan_revert(*partition, scope, position)
        step = RevertStep(position, found.candidates[:5], found.candidates[4].position, is_last=False)
        begun = await store.begin_revert(*partition, scope, step, Actor(9, NOW))
        assert isinstance(begun, Revert)
        current = begun
        for start in range(5, 40, 5):
            part = found.candidates[start : start + 5]
            step = RevertStep(current.position, part, part[-1].position, is_last=False)
            advanced = await store.advance_revert(current.key, step, WORKER, NOW)
            assert advanced is not None
            current = advanced
        return current

    async def work() -> Revert:
        task = asyncio.ensure_future(revert())
        await asyncio.gather(task, *map(edit, ids[::2]))
        return task.result()

    counts = run(work()).counts
    assert (counts.reverted + counts.conflicts, counts.unchanged) == (40, 0)
    assert [reverts.get(it).title for it in ids] == ["Lamp"] * 40
    assert [reverts.get(it).price_cents for it in ids] == [2, 0] * 20
