"""Listings and revisions: guarantees of every store (`listings.store.store.Store`)."""

import asyncio
import time
from typing import Any

import msgspec
import pytest

from listings.domain.errors import Problem, Unavailable
from listings.domain.listings import AddStep
from listings.domain.model import Account, Listing, ListingChange, ListingCounts, ListingQuery, bucket_of
from listings.store.store import Store
from tests.contract.conftest import Run
from tests.contract.helpers import CREATED, FULL, MINIMAL, add, list_ids, set_values
from tests.harness import TIMEOUT


def test_a_listing_is_returned_as_it_was_stored(store: Store, run: Run, account: Account) -> None:
    listing_id = add(run, store, account, FULL)
    listing = run(store.get_listing(listing_id))
    assert {name: getattr(listing, name) for name in FULL.__struct_fields__} == msgspec.structs.asdict(FULL)
    assert (listing.id, listing.account_id, listing.version) == (listing_id, account.id, 1)
    assert (listing.view_count, listing.deleted_at) == (0, None)
    assert listing.created_at == listing.updated_at == CREATED
    assert type(listing.is_active) is bool


def test_missing_coordinates_are_stored_as_none(store: Store, run: Run, account: Account) -> None:
    listing = run(store.get_listing(add(run, store, account)))
    assert (listing.latitude, listing.longitude) == (None, None)


def test_ids_contain_the_bucket_and_ascend(store: Store, run: Run, account: Account) -> None:
    ids = [add(run, store, account) for _ in range(5)]
    assert {bucket_of(listing_id) for listing_id in ids} == {bucket_of(account.id)}
    assert ids == sorted(set(ids))


def test_accounts_do_not_share_ids(store: Store, run: Run, account: Account) -> None:
    other = run(store.add_account("Bob", "bob@example.com", None, 1_000))
    ids = [add(run, store, owner) for owner in (account, other, account, other)]
    assert len(set(ids)) == 4


def test_a_missing_listing_is_none(store: Store, run: Run, account: Account) -> None:
    add(run, store, account)
    assert run(store.get_listing(2**63 - 1)) is None
    assert run(store.get_listing(1)) is None


def test_the_active_listings_are_listed_newest_first(store: Store, run: Run, account: Account) -> None:
    other = run(store.add_account("Bob", "bob@example.com", None, 1_000))
    ids = [add(run, store, account) for _ in range(4)]
    draft = add(run, store, account, msgspec.structs.replace(MINIMAL, is_active=False))
    add(run, store, other)
    run(store.change_listing(ids[1], set_values(is_active=False, deleted_at=5)))
    assert list_ids(run, store, account) == [ids[3], ids[2], ids[0]]
    run(store.change_listing(draft, set_values(is_active=True)))
    assert list_ids(run, store, account)[0] == draft


def test_accounts_in_the_same_bucket_are_separate(store: Store, run: Run, account: Account) -> None:
    neighbour = None
    for number in range(1024):
        neighbour = run(store.add_account("N", f"n{number}@example.com", None, 1_000))
    assert neighbour is not None
    assert bucket_of(neighbour.id) == bucket_of(account.id)
    ids = [add(run, store, owner) for owner in (account, neighbour, account)]
    assert ids == sorted(set(ids))
    assert list_ids(run, store, account) == [ids[2], ids[0]]
    assert list_ids(run, store, neighbour) == [ids[1]]


def test_listings_in_every_state_are_found(store: Store, run: Run, account: Account) -> None:
    other = run(store.add_account("Bob", "bob@example.com", None, 1_000))
    ids = [add(run, store, account) for _ in range(4)]
    add(run, store, other)
    run(store.change_listing(ids[3], set_values(is_active=False, deleted_at=5)))
    run(store.change_listing(ids[2], set_values(is_active=False)))
    partition = (bucket_of(account.id), account.id)
    found = run(store.find_listings(*partition, ListingQuery(status="all", limit=3))).listings
    assert [(listing.id, listing.deleted_at) for listing in found] == [(ids[3], 5), (ids[2], None), (ids[1], None)]


def test_listings_are_counted_by_state(store: Store, run: Run, account: Account) -> None:
    partition = (bucket_of(account.id), account.id)
    assert run(store.count_listings(*partition)) == ListingCounts(0, 0, 0, 0, 0)
    ids = [add(run, store, account) for _ in range(6)]
    for listing_id in ids[:2]:
        run(store.change_listing(listing_id, set_values(is_active=False)))
    run(store.change_listing(ids[5], set_values(is_active=False, deleted_at=5)))
    assert run(store.count_listings(*partition)) == ListingCounts(
        active=3, inactive=2, deleted=1, text_bytes=5 * len("tc[]"), stored_bytes=600 + 6 * len("tc[]")
    )


def test_only_the_decided_fields_of_a_listing_change(store: Store, run: Run, account: Account) -> None:
    listing_id = add(run, store, account, FULL)
    before = run(store.get_listing(listing_id))
    changed = run(store.change_listing(listing_id, set_values(price_cents=5, latitude=None, updated_at="2027")))
    expected = msgspec.structs.replace(before, price_cents=5, latitude=None, updated_at="2027", version=2)
    assert changed == expected
    assert run(store.get_listing(listing_id)) == expected


def test_an_empty_change_writes_nothing(store: Store, run: Run, account: Account) -> None:
    listing_id = add(run, store, account)
    before = run(store.get_listing(listing_id))
    revision = run(store.get_revisions(bucket_of(account.id), account.id)).revision
    assert run(store.change_listing(listing_id, set_values())) == before
    assert run(store.get_revisions(bucket_of(account.id), account.id)).revision == revision


def test_a_rejected_change_is_raised_and_writes_nothing(store: Store, run: Run, account: Account) -> None:
    listing_id = add(run, store, account)

    def reject(listing: Listing | None) -> ListingChange:
        assert listing is not None
        raise Problem("not_owner", "no")

    with pytest.raises(Problem, match="no"):
        run(store.change_listing(listing_id, reject))
    assert run(store.get_listing(listing_id)).version == 1


def test_decide_gets_none_for_a_missing_listing(store: Store, run: Run, account: Account) -> None:
    add(run, store, account)

    def decide(listing: Listing | None) -> ListingChange:
        assert listing is None
        raise Problem("listing_not_found", "missing")

    with pytest.raises(Problem, match="missing"):
        run(store.change_listing(2**53, decide))


def test_no_concurrent_change_is_lost(store: Store, run: Run, account: Account) -> None:
    listing_id = add(run, store, account)

    def count(listing: Listing | None) -> ListingChange:
        assert listing is not None
        return {"price_cents": listing.price_cents + 1}

    async def run_concurrently() -> None:
        await asyncio.gather(*(store.change_listing(listing_id, count) for _ in range(300)))

    run(run_concurrently())
    assert run(store.get_listing(listing_id)).price_cents == 300


def test_a_rejected_write_does_not_affect_concurrent_writes(store: Store, run: Run, account: Account) -> None:
    listing_id = add(run, store, account)

    def reject(_: Listing | None) -> ListingChange:
        raise Problem("not_owner", "no")

    async def run_concurrently() -> list[Any]:
        bucket = bucket_of(account.id)
        tasks: list[Any] = [store.add_listing(bucket, account.id, AddStep(MINIMAL, CREATED)) for _ in range(20)]
        tasks.insert(10, store.change_listing(listing_id, reject))
        return await asyncio.gather(*tasks, return_exceptions=True)

    outcomes = run(run_concurrently())
    assert isinstance(outcomes.pop(10), Problem)
    assert set(list_ids(run, store, account)) == {listing_id, *(added.listing_id for added in outcomes)}


def test_a_listing_of_a_missing_account_is_not_stored(store: Store, run: Run, account: Account) -> None:
    async def add_both() -> tuple[Any, Any]:
        good = store.add_listing(bucket_of(account.id), account.id, AddStep(MINIMAL, CREATED))
        bad = store.add_listing(5, 1_000_005, AddStep(MINIMAL, CREATED))
        return await asyncio.gather(bad, good, return_exceptions=True)

    bad, good = run(add_both())
    assert isinstance(bad, Unavailable)
    assert list_ids(run, store, account) == [good.listing_id]


def test_a_cancelled_caller_does_not_undo_its_write(store: Store, run: Run, account: Account) -> None:
    async def add_and_cancel() -> None:
        task = asyncio.ensure_future(store.add_listing(bucket_of(account.id), account.id, AddStep(MINIMAL, CREATED)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await store.add_listing(bucket_of(account.id), account.id, AddStep(MINIMAL, CREATED))

    run(add_and_cancel())
    end = time.monotonic() + TIMEOUT
    while len(list_ids(run, store, account)) < 2 and time.monotonic() < end:  # the cancelled write may end later
        run(asyncio.sleep(0.01))
    assert len(list_ids(run, store, account)) == 2


def test_every_edit_raises_the_revision_by_one(store: Store, run: Run, account: Account) -> None:
    partition = (bucket_of(account.id), account.id)
    assert run(store.get_revisions(*partition)).revision == 0
    listing_id = add(run, store, account)
    assert run(store.get_revisions(*partition)).revision == 1
    run(store.change_listing(listing_id, set_values(title="u")))
    assert run(store.get_revisions(*partition)).revision == 2
    other = run(store.add_account("Bob", "bob@example.com", None, 1_000))
    add(run, store, other)
    assert run(store.get_revisions(*partition)).revision == 2


def test_a_listing_is_read_with_its_accounts_revision(store: Store, run: Run, account: Account) -> None:
    listing_id = add(run, store, account)
    for count, title in enumerate(("u", "v"), start=2):
        run(store.change_listing(listing_id, set_values(title=title)))
        assert run(store.get_listing_and_revision(listing_id)) == (run(store.get_listing(listing_id)), count)
    assert run(store.get_listing_and_revision(listing_id + 1024)) is None


def test_no_listing_has_changed_since_the_last_change_revision(store: Store, run: Run, account: Account) -> None:
    partition = (bucket_of(account.id), account.id)
    listing_id = add(run, store, account)
    for changed in (2, 4, 6):
        run(store.get_listing_and_revision(listing_id))
        run(store.change_listing(listing_id, set_values(title=str(changed))))
        for current in (changed, changed + 1):
            known = store.get_cached_last_change_revision(*partition)
            assert known is None or changed <= known <= current
            assert changed <= run(store.get_last_change_revision(*partition)) <= current
            assert run(store.get_revisions(*partition)).revision == current
            if current == changed:
                add(run, store, account)
