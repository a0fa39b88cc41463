"""Pages of all listings, and imports: guarantees of every store (`listings.store.store.Store`)."""

from typing import Any

import msgspec
import pytest

from listings.domain.accounts import build_erased_email
from listings.domain.errors import Problem, Unavailable
from listings.domain.history import OPERATOR, Actor
from listings.domain.imports import (
    ConflictProblem,
    ExportedVersion,
    ImportBatch,
    ImportKey,
    ImportProgress,
    ImportRow,
    Position,
)
from listings.domain.model import Account, ImportedListing, Listing, ListingChange, bucket_of
from listings.store.store import Store
from tests.contract.conftest import Run
from tests.contract.helpers import FULL, MINIMAL, add, erase, page_ids, set_values


def test_pages_contain_every_listing_once_by_ascending_id(store: Store, run: Run, account: Account) -> None:
    other = run(store.add_account("Bob", "bob@example.com", None, 1_000))
    draft = msgspec.structs.replace(MINIMAL, is_active=False)
    ids = [add(run, store, account, new) for new in (MINIMAL, draft, MINIMAL, MINIMAL, draft)]
    add(run, store, other)
    run(store.change_listing(ids[2], set_values(is_active=False, deleted_at=5)))
    assert page_ids(run, store, account) == ids
    assert page_ids(run, store, account, 0, 2) == ids[:2]
    assert page_ids(run, store, account, ids[1], 2) == ids[2:4]
    assert page_ids(run, store, account, ids[4]) == []


def test_a_page_contains_complete_listings(store: Store, run: Run, account: Account) -> None:
    listing_id = add(run, store, account, FULL)
    assert run(store.page_listings(bucket_of(account.id), account.id, 0, 1)) == [run(store.get_listing(listing_id))]


def test_a_page_of_long_listings_is_short(store: Store, run: Run, account: Account) -> None:
    long = msgspec.structs.replace(MINIMAL, content="x" * 100_000)
    ids = [add(run, store, account, new) for new in (MINIMAL, long, long, long, long)]
    assert page_ids(run, store, account) == ids[:4]
    assert page_ids(run, store, account, ids[3]) == ids[4:]
    longest = add(run, store, account, msgspec.structs.replace(MINIMAL, content="x" * 400_000))
    assert page_ids(run, store, account, ids[4]) == [longest]


IMPORTED = ImportedListing(FULL, 7, "2025-01-01 00:00:00", "2025-02-01 00:00:00", None)
START, MIDDLE, END = Position(), Position(100, 3), Position(200, 9)


def build_import_key(account: Account, *, new_ids: bool = False) -> ImportKey:
    return ImportKey(bucket_of(account.id), account.id, b"\x05" * 32, "csv", new_ids)


def begin(run: Run, store: Store, account: Account, last_id: int = 0) -> ImportKey:
    key = build_import_key(account)
    found = run(store.find_import(key))
    assert run(store.begin_import(key, found, 1_000, last_id)) == ImportProgress(started_at=1_000)
    return key


def build_row(listing_id: int | None, decision: Any) -> ImportRow:
    def decide(_: Listing | None) -> Any:
        if isinstance(decision, Problem):
            raise decision
        return decision

    return ImportRow(listing_id, decide)


def create_or_retitle(listing: Listing | None) -> ImportedListing | ListingChange:
    """Create a missing listing, or change the title of an existing one."""
    return IMPORTED if listing is None else {"title": f"{listing.title} again"}


def test_an_import_that_was_never_begun_is_none(store: Store, run: Run, account: Account) -> None:
    begin(run, store, account)
    assert run(store.find_import(build_import_key(account, new_ids=True))) is None


def test_an_import_is_begun_only_with_its_current_progress(store: Store, run: Run, account: Account) -> None:
    key = begin(run, store, account)
    run(store.import_listings(key, ImportBatch(START, END, [])))
    for found in (None, ImportProgress(started_at=1_000)):
        assert run(store.begin_import(key, found, 1_000, 9 * 1024 + bucket_of(account.id))) is None
    assert run(store.find_import(key)).position == END
    assert bucket_of(account.id) + 1024 == add(run, store, account)


def test_each_row_is_created_updated_or_rejected(store: Store, run: Run, account: Account) -> None:
    listing_id = add(run, store, account)
    before = run(store.get_listing(listing_id))
    rejection = Problem("invalid_request", "no")
    rows = [
        build_row(None, IMPORTED),
        build_row(listing_id, {"title": "u"}),
        build_row(listing_id, {}),
        build_row(listing_id, rejection),
        build_row(None, rejection),
    ]
    outcomes = run(store.import_listings(begin(run, store, account), ImportBatch(START, END, rows)))
    assert outcomes == ["created", "updated", "unchanged", rejection, rejection]
    assert run(store.get_listing(listing_id)) == msgspec.structs.replace(before, title="u", version=2)
    created = run(store.get_listing(listing_id + 1024))
    assert {name: getattr(created, name) for name in FULL.__struct_fields__} == msgspec.structs.asdict(FULL)
    assert (created.account_id, created.version, created.view_count, created.deleted_at) == (account.id, 1, 7, None)
    assert (created.created_at, created.updated_at) == (IMPORTED.created_at, IMPORTED.updated_at)


def test_a_row_sees_what_earlier_rows_wrote(store: Store, run: Run, account: Account) -> None:
    listing_id = 5 * 1024 + bucket_of(account.id)
    rows = [ImportRow(listing_id, create_or_retitle)] * 3
    assert run(store.import_listings(begin(run, store, account), ImportBatch(START, END, rows))) == [
        *("created", "updated", "updated")
    ]
    assert run(store.get_listing(listing_id)).title == "A title again again"


def test_a_batch_raises_the_revision_once_if_it_changes_anything(store: Store, run: Run, account: Account) -> None:
    partition = (bucket_of(account.id), account.id)
    key = begin(run, store, account)
    run(store.import_listings(key, ImportBatch(START, MIDDLE, [build_row(None, IMPORTED)] * 3)))
    assert run(store.get_revisions(*partition)).revision == 1
    unchanged = [build_row(1024 + bucket_of(account.id), {}), build_row(None, Problem("invalid_request", "no"))]
    run(store.import_listings(key, ImportBatch(MIDDLE, END, unchanged)))
    assert run(store.get_revisions(*partition)).revision == 1


def test_an_imported_id_is_never_reused(store: Store, run: Run, account: Account) -> None:
    bucket = bucket_of(account.id)
    rows = [ImportRow(serial * 1024 + bucket, create_or_retitle) for serial in (90, 7)]
    run(store.import_listings(begin(run, store, account), ImportBatch(START, END, rows)))
    assert add(run, store, account) == 91 * 1024 + bucket


def test_the_ids_of_an_import_are_reserved_when_it_begins(store: Store, run: Run, account: Account) -> None:
    bucket = bucket_of(account.id)
    key = begin(run, store, account, 50 * 1024 + bucket)
    assert add(run, store, account) == 51 * 1024 + bucket
    assert begin(run, store, account, 3 * 1024 + bucket) == key
    assert add(run, store, account) == 52 * 1024 + bucket


def test_progress_is_stored_with_the_rows(store: Store, run: Run, account: Account) -> None:
    key = begin(run, store, account)
    run(
        store.import_listings(
            key,
            ImportBatch(START, MIDDLE, [build_row(None, IMPORTED), build_row(None, Problem("invalid_request", "no"))]),
        )
    )
    progress = ImportProgress(offset=100, line=3, created=1, rejected=1, started_at=1_000)
    assert run(store.find_import(key)) == progress
    listing_id = 1024 + bucket_of(account.id)
    run(
        store.import_listings(
            key, ImportBatch(MIDDLE, END, [build_row(listing_id, {"title": "u"}), build_row(listing_id, {})], 2_000)
        )
    )
    finished = msgspec.structs.replace(progress, offset=200, line=9, updated=1, unchanged=1, finished_at=2_000)
    assert run(store.find_import(key)) == finished
    assert begin(run, store, account) == key
    assert run(store.find_import(key)) == ImportProgress(started_at=1_000)


def test_a_batch_with_the_wrong_position_writes_nothing(store: Store, run: Run, account: Account) -> None:
    rows = [build_row(None, IMPORTED)]
    assert run(store.import_listings(build_import_key(account), ImportBatch(START, END, rows))) is None
    key = begin(run, store, account)
    assert run(store.import_listings(key, ImportBatch(MIDDLE, END, rows))) is None
    assert run(store.import_listings(key, ImportBatch(START, END, [], 2_000))) == []
    assert run(store.import_listings(key, ImportBatch(END, END, rows))) is None
    assert page_ids(run, store, account) == []


def test_a_batch_is_written_completely_or_not_at_all(store: Store, run: Run, account: Account) -> None:
    key = begin(run, store, account)
    broken = build_row(1024 + bucket_of(account.id), {"price_cents": None})
    with pytest.raises(Unavailable):
        run(store.import_listings(key, ImportBatch(START, END, [build_row(None, IMPORTED), broken])))
    assert page_ids(run, store, account) == []
    assert run(store.find_import(key)).position == START


def test_an_erased_account_imports_nothing(store: Store, run: Run, account: Account) -> None:
    key = begin(run, store, account)
    run(erase(store, account.id, build_erased_email(account.id), 1_700))
    for task in (
        store.begin_import(build_import_key(account, new_ids=True), None, 1_800, 0),
        store.import_listings(key, ImportBatch(START, END, [build_row(None, IMPORTED)])),
    ):
        with pytest.raises(Problem) as caught:
            run(task)
        assert caught.value.code == "account_disabled"
    assert page_ids(run, store, account) == []


def test_the_latest_imports_are_listed_with_their_names_and_outcomes(store: Store, run: Run, account: Account) -> None:
    partition = (bucket_of(account.id), account.id)
    listing_id = add(run, store, account)
    assert run(store.list_imports(*partition, 5)) == []
    for number, (name, decision) in enumerate([("a.csv", {"deleted_at": 5}), ("b.csv", {"deleted_at": None})]):
        key = ImportKey(*partition, bytes([number] * 32), "csv", new_ids=False)
        run(store.begin_import(key, None, 1_000 + number, 0, name))
        conflict = ConflictProblem({"price_cents": (1, 2)})
        rows = [build_row(listing_id, decision), build_row(listing_id, conflict)]
        run(store.import_listings(key, ImportBatch(START, END, rows, 2_000), Actor(OPERATOR, 1_500)))
    first, second = run(store.list_imports(*partition, 5))
    assert [first.name, first.restored, first.deleted, first.conflicts, first.rejected] == ["b.csv", 1, 0, 1, 0]
    assert [second.name, second.restored, second.deleted, second.conflicts] == ["a.csv", 0, 1, 1]
    assert run(store.list_imports(*partition, 1)) == [first]


def test_a_row_conflicts_with_later_edits_except_imports_of_its_export(
    store: Store, run: Run, account: Account
) -> None:
    listing_id = add(run, store, account)
    exported = ExportedVersion(1)

    def import_titles(*titles: str) -> Any:
        key = ImportKey(bucket_of(account.id), account.id, titles[0].encode().ljust(32), "csv", new_ids=False)
        run(store.begin_import(key, None, 1_000, 0))
        rows = [ImportRow(listing_id, set_values(title=title), None, exported) for title in titles]
        outcomes = run(store.import_listings(key, ImportBatch(START, END, rows), Actor(OPERATOR, 1_500)))
        return [one if isinstance(one, str) else one.message for one in outcomes]

    assert [*import_titles("one"), *import_titles("two")] == ["updated", "updated"]
    run(store.change_listing(listing_id, set_values(category="c"), Actor(OPERATOR, 1_600)))
    assert import_titles("three") == ["updated"]
    run(store.change_listing(listing_id, set_values(title="other"), Actor(OPERATOR, 1_700)))
    assert import_titles("four") == ['Changed after this file was exported: title is "other" now, the row has "four"']
    edits = run(store.list_edits(listing_id, 3))
    assert [(one.kind, one.base_version, one.names) for one in edits] == [
        ("updated", None, {"title"}),
        ("import", 1, {"title"}),
        ("updated", None, {"category"}),
    ]
