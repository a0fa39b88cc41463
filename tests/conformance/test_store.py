"""What every store guarantees (`listings.contract.store.Store`)."""

import asyncio
import time
from typing import Any

import msgspec
import pytest

from listings.contract.accounts import NewKey, Rotation
from listings.contract.imports import ImportBatch, ImportKey, ImportProgress, ImportRow, Position
from listings.contract.store import Store
from listings.domain.errors import Problem, Unavailable
from listings.domain.model import (
    Account,
    ApiKey,
    Caller,
    ImportedListing,
    Listing,
    ListingChange,
    ListingCounts,
    ListingQuery,
    NewListing,
    bucket_of,
)
from tests.conformance.conftest import Run
from tests.harness import TIMEOUT

CREATED = "2026-11-21 10:00:00"
NEW = NewListing(
    title="A title",
    content="Content\nof two lines, with 'quotes', \\ and 🙂",
    type="rental",
    category="Category",
    images='["https://a.example/1.jpg","b.jpg"]',
    price_cents=99_999_999_999,
    price_type="per_night",
    location="Location",
    region="Region",
    district="District",
    latitude=-41.25,
    longitude=174.5,
    is_active=True,
)
BARE = NewListing(title="t", content="c")


@pytest.fixture
def account(store: Store, run: Run) -> Account:
    """alice's."""
    account = run(store.add_account("Alice", "alice@example.com", 2_000_000_000, 1_000))
    assert isinstance(account, Account)
    return account


def add(run: Run, store: Store, account: Account, new: NewListing = BARE) -> int:
    return int(run(store.add_listing(bucket_of(account.id), account.id, new, CREATED)).listing_id)


def listed(run: Run, store: Store, account: Account) -> list[int]:
    return [listing.id for listing in run(store.list_listings(bucket_of(account.id), account.id))]


def change_to(**values: Any) -> Any:
    def decide(_: Listing | None) -> ListingChange:
        return values

    return decide


def test_a_database_has_one_id(store: Store, run: Run) -> None:
    assert len(run(store.get_database_id())) == 32
    assert run(store.get_database_id()) == run(store.get_database_id())


# Accounts


def test_an_account_is_found_by_id_and_by_email(store: Store, run: Run, account: Account) -> None:
    assert account == Account(account.id, "Alice", "alice@example.com", 2_000_000_000, 1_000, None)
    assert run(store.get_account(account.id)) == account
    assert run(store.find_account("alice@example.com")) == account


def test_an_unknown_account_is_none(store: Store, run: Run, account: Account) -> None:
    assert run(store.get_account(account.id + 1)) is None
    assert run(store.find_account("bob@example.com")) is None
    assert run(store.change_account(account.id + 1, lambda _: {"name": "B"})) is None


def test_an_email_address_is_taken_once(store: Store, run: Run, account: Account) -> None:
    assert run(store.add_account("Another", account.email, None, 2_000)) is None
    assert run(store.get_account(account.id)) == account


def test_an_account_may_have_no_plan(store: Store, run: Run) -> None:
    account = run(store.add_account("Dora", "dora@example.com", None, 1_000))
    assert account.plan_expires_at is None


def test_an_account_changes_in_what_is_decided_and_nothing_else(store: Store, run: Run, account: Account) -> None:
    changed = run(store.change_account(account.id, lambda found: {"plan_expires_at": (found.plan_expires_at or 0) + 5}))
    assert changed == msgspec.structs.replace(account, plan_expires_at=2_000_000_005)
    assert run(store.get_account(account.id)) == changed
    assert run(store.change_account(account.id, lambda _: {})) == changed


# Keys and callers


def new_key(account: Account, digest: bytes = b"\x01" * 32, **more: Any) -> NewKey:
    return NewKey(account_id=account.id, name="shop", digest=digest, hint="lst_…abcd", created_at=1_500, **more)


def test_a_key_leads_to_its_account(store: Store, run: Run, account: Account) -> None:
    key = run(store.add_key(new_key(account, expires_at=9_000)))
    assert (key.account_id, key.name, key.hint, key.created_at) == (account.id, "shop", "lst_…abcd", 1_500)
    assert (key.expires_at, key.revoked_at) == (9_000, None)
    caller = Caller(key.id, account.id, bucket_of(account.id), 2_000_000_000, None, 9_000, None)
    assert run(store.find_caller(b"\x01" * 32)) == caller


def test_an_unknown_digest_is_none(store: Store, run: Run, account: Account) -> None:
    run(store.add_key(new_key(account)))
    assert run(store.find_caller(b"\x02" * 32)) is None


def test_a_digest_is_taken_once(store: Store, run: Run, account: Account) -> None:
    key = run(store.add_key(new_key(account)))
    assert run(store.add_key(new_key(account, expires_at=7))) is None
    assert run(store.find_caller(b"\x01" * 32)).key_id == key.id


def test_a_revoked_key_keeps_its_first_time_and_is_told_as_revoked(store: Store, run: Run, account: Account) -> None:
    key = run(store.add_key(new_key(account)))
    assert run(store.revoke_key(key.id, 5_000)).revoked_at == 5_000
    assert run(store.revoke_key(key.id, 6_000)).revoked_at == 5_000
    assert run(store.find_caller(b"\x01" * 32)).key_revoked_at == 5_000


def test_an_unknown_key_cannot_be_revoked(store: Store, run: Run) -> None:
    assert run(store.revoke_key(77, 5_000)) is None


def test_a_plan_change_is_seen_by_the_next_look_up(store: Store, run: Run, account: Account) -> None:
    run(store.add_key(new_key(account)))
    run(store.change_account(account.id, lambda _: {"plan_expires_at": None}))
    assert run(store.find_caller(b"\x01" * 32)).plan_expires_at is None


def test_a_disabled_account_is_told_with_its_key(store: Store, run: Run, account: Account) -> None:
    run(store.add_key(new_key(account)))
    assert run(store.change_account(account.id, lambda _: {"disabled_at": 7_000})).disabled_at == 7_000
    assert run(store.find_caller(b"\x01" * 32)).account_disabled_at == 7_000


def test_accounts_are_read_in_pages_in_the_order_of_their_ids(store: Store, run: Run) -> None:
    made = [run(store.add_account(f"N{number}", f"n{number}@example.com", None, 1_000)) for number in range(5)]
    assert run(store.page_accounts(0, 2)) == made[:2]
    assert run(store.page_accounts(made[1].id, 10)) == made[2:]
    assert run(store.page_accounts(made[-1].id, 10)) == []


def test_the_keys_of_an_account_are_all_listed(store: Store, run: Run, account: Account) -> None:
    other = run(store.add_account("Bob", "bob@example.com", None, 1_000))
    kept, _, gone = (
        run(store.add_key(new_key(owner, bytes([n]) * 32))) for n, owner in enumerate([account, other, account])
    )
    gone = run(store.revoke_key(gone.id, 5_000))
    assert run(store.list_keys(account.id)) == [kept, gone]
    assert run(store.list_keys(other.id + 1)) == []


def test_a_rotated_key_expires_and_another_is_there(store: Store, run: Run, account: Account) -> None:
    old = run(store.add_key(new_key(account)))

    def decide(found: ApiKey, owner: Account, successor: int | None) -> Rotation:
        assert (found, owner, successor) == (old, account, None)
        return Rotation(new_key(account, b"\x02" * 32, expires_at=9_000), 8_000)

    new = run(store.rotate_key(old.id, decide))
    assert run(store.list_keys(account.id)) == [msgspec.structs.replace(old, expires_at=8_000), new]
    assert run(store.find_caller(b"\x02" * 32)).key_id == new.id
    assert run(store.find_caller(b"\x01" * 32)).key_expires_at == 8_000


def test_an_unknown_key_is_not_rotated(store: Store, run: Run) -> None:
    def decide(_: ApiKey, __: Account, ___: int | None) -> Rotation:
        raise AssertionError

    assert run(store.rotate_key(77, decide)) is None


def test_a_refused_rotation_changes_nothing(store: Store, run: Run, account: Account) -> None:
    old = run(store.add_key(new_key(account)))

    def refuse(_: ApiKey, __: Account, ___: int | None) -> Rotation:
        raise Problem("key_ended", "no")

    with pytest.raises(Problem, match="no"):
        run(store.rotate_key(old.id, refuse))
    assert run(store.list_keys(account.id)) == [old]


def test_the_latest_use_of_a_key_stays(store: Store, run: Run, account: Account) -> None:
    keys = [run(store.add_key(new_key(account, bytes([n]) * 32))) for n in range(3)]
    run(store.record_key_uses({keys[0].id: 5_000, keys[1].id: 6_000, 77: 1}))
    run(store.record_key_uses({keys[0].id: 4_000, keys[1].id: 7_000}))
    assert [key.last_used_at for key in run(store.list_keys(account.id))] == [5_000, 7_000, None]


# Listings


def test_a_listing_comes_back_as_it_was_stored(store: Store, run: Run, account: Account) -> None:
    listing_id = add(run, store, account, NEW)
    listing = run(store.get_listing(listing_id))
    assert {name: getattr(listing, name) for name in NEW.__struct_fields__} == msgspec.structs.asdict(NEW)
    assert (listing.id, listing.account_id, listing.version) == (listing_id, account.id, 1)
    assert (listing.view_count, listing.deleted_at) == (0, None)
    assert listing.created_at == listing.updated_at == CREATED
    assert type(listing.is_active) is bool


def test_absent_coordinates_stay_absent(store: Store, run: Run, account: Account) -> None:
    listing = run(store.get_listing(add(run, store, account)))
    assert (listing.latitude, listing.longitude) == (None, None)


def test_ids_carry_the_bucket_and_ascend(store: Store, run: Run, account: Account) -> None:
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


def test_the_list_is_the_accounts_active_listings_newest_first(store: Store, run: Run, account: Account) -> None:
    other = run(store.add_account("Bob", "bob@example.com", None, 1_000))
    ids = [add(run, store, account) for _ in range(4)]
    draft = add(run, store, account, msgspec.structs.replace(BARE, is_active=False))
    add(run, store, other)
    run(store.change_listing(ids[1], change_to(is_active=False, deleted_at=5)))
    assert listed(run, store, account) == [ids[3], ids[2], ids[0]]
    run(store.change_listing(draft, change_to(is_active=True)))
    assert listed(run, store, account)[0] == draft


def test_accounts_in_one_bucket_are_kept_apart(store: Store, run: Run, account: Account) -> None:
    neighbour = None
    for number in range(1024):
        neighbour = run(store.add_account("N", f"n{number}@example.com", None, 1_000))
    assert neighbour is not None
    assert bucket_of(neighbour.id) == bucket_of(account.id)
    ids = [add(run, store, owner) for owner in (account, neighbour, account)]
    assert ids == sorted(set(ids))
    assert listed(run, store, account) == [ids[2], ids[0]]
    assert listed(run, store, neighbour) == [ids[1]]


def test_listings_of_every_state_are_found(store: Store, run: Run, account: Account) -> None:
    other = run(store.add_account("Bob", "bob@example.com", None, 1_000))
    ids = [add(run, store, account) for _ in range(4)]
    add(run, store, other)
    run(store.change_listing(ids[3], change_to(is_active=False, deleted_at=5)))
    run(store.change_listing(ids[2], change_to(is_active=False)))
    place = (bucket_of(account.id), account.id)
    found = run(store.find_listings(*place, ListingQuery(status="all", limit=3)))
    assert [(listing.id, listing.deleted_at) for listing in found] == [(ids[3], 5), (ids[2], None), (ids[1], None)]


def test_listings_are_counted_by_their_state(store: Store, run: Run, account: Account) -> None:
    place = (bucket_of(account.id), account.id)
    assert run(store.count_listings(*place)) == ListingCounts(0, 0, 0)
    ids = [add(run, store, account) for _ in range(6)]
    for listing_id in ids[:2]:
        run(store.change_listing(listing_id, change_to(is_active=False)))
    run(store.change_listing(ids[5], change_to(is_active=False, deleted_at=5)))
    assert run(store.count_listings(*place)) == ListingCounts(active=3, inactive=2, deleted=1)


# Changing a listing


def test_a_change_writes_what_was_decided_and_nothing_else(store: Store, run: Run, account: Account) -> None:
    listing_id = add(run, store, account, NEW)
    before = run(store.get_listing(listing_id))
    changed = run(store.change_listing(listing_id, change_to(price_cents=5, latitude=None, updated_at="2027")))
    expected = msgspec.structs.replace(before, price_cents=5, latitude=None, updated_at="2027", version=2)
    assert changed == expected
    assert run(store.get_listing(listing_id)) == expected


def test_no_change_writes_nothing(store: Store, run: Run, account: Account) -> None:
    listing_id = add(run, store, account)
    before = run(store.get_listing(listing_id))
    revision = run(store.get_revision(bucket_of(account.id), account.id))
    assert run(store.change_listing(listing_id, change_to())) == before
    assert run(store.get_revision(bucket_of(account.id), account.id)) == revision


def test_a_refusal_is_raised_and_writes_nothing(store: Store, run: Run, account: Account) -> None:
    listing_id = add(run, store, account)

    def refuse(listing: Listing | None) -> ListingChange:
        assert listing is not None
        raise Problem("not_owner", "no")

    with pytest.raises(Problem, match="no"):
        run(store.change_listing(listing_id, refuse))
    assert run(store.get_listing(listing_id)).version == 1


def test_a_missing_row_is_judged_as_none(store: Store, run: Run, account: Account) -> None:
    add(run, store, account)

    def judge(listing: Listing | None) -> ListingChange:
        assert listing is None
        raise Problem("listing_not_found", "missing")

    with pytest.raises(Problem, match="missing"):
        run(store.change_listing(2**53, judge))


def test_concurrent_changes_lose_nothing(store: Store, run: Run, account: Account) -> None:
    listing_id = add(run, store, account)

    def count(listing: Listing | None) -> ListingChange:
        assert listing is not None
        return {"price_cents": listing.price_cents + 1}

    async def all_at_once() -> None:
        await asyncio.gather(*(store.change_listing(listing_id, count) for _ in range(300)))

    run(all_at_once())
    assert run(store.get_listing(listing_id)).price_cents == 300


def test_one_refusal_among_many_leaves_the_others_alone(store: Store, run: Run, account: Account) -> None:
    listing_id = add(run, store, account)

    def refuse(_: Listing | None) -> ListingChange:
        raise Problem("not_owner", "no")

    async def all_at_once() -> list[Any]:
        bucket = bucket_of(account.id)
        tasks: list[Any] = [store.add_listing(bucket, account.id, BARE, CREATED) for _ in range(20)]
        tasks.insert(10, store.change_listing(listing_id, refuse))
        return await asyncio.gather(*tasks, return_exceptions=True)

    outcomes = run(all_at_once())
    assert isinstance(outcomes.pop(10), Problem)
    assert set(listed(run, store, account)) == {listing_id, *(added.listing_id for added in outcomes)}


def test_an_account_that_does_not_exist_gets_no_listing(store: Store, run: Run, account: Account) -> None:
    async def beside_a_good_one() -> tuple[Any, Any]:
        good = store.add_listing(bucket_of(account.id), account.id, BARE, CREATED)
        bad = store.add_listing(5, 1_000_005, BARE, CREATED)
        return await asyncio.gather(bad, good, return_exceptions=True)

    bad, good = run(beside_a_good_one())
    assert isinstance(bad, Unavailable)
    assert listed(run, store, account) == [good.listing_id]


def test_a_cancelled_caller_does_not_undo_its_write(store: Store, run: Run, account: Account) -> None:
    async def cancel_one() -> None:
        task = asyncio.ensure_future(store.add_listing(bucket_of(account.id), account.id, BARE, CREATED))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await store.add_listing(bucket_of(account.id), account.id, BARE, CREATED)

    run(cancel_one())
    end = time.monotonic() + TIMEOUT
    while len(listed(run, store, account)) < 2 and time.monotonic() < end:  # nobody waits for the cancelled one
        run(asyncio.sleep(0.01))
    assert len(listed(run, store, account)) == 2


# The revision


def test_every_edit_raises_the_revision_by_one(store: Store, run: Run, account: Account) -> None:
    place = (bucket_of(account.id), account.id)
    assert run(store.get_revision(*place)) == 0
    listing_id = add(run, store, account)
    assert run(store.get_revision(*place)) == 1
    run(store.change_listing(listing_id, change_to(title="u")))
    assert run(store.get_revision(*place)) == 2
    other = run(store.add_account("Bob", "bob@example.com", None, 1_000))
    add(run, store, other)
    assert run(store.get_revision(*place)) == 2


def test_a_listing_is_read_with_the_revision_of_its_account(store: Store, run: Run, account: Account) -> None:
    listing_id = add(run, store, account)
    for count, title in enumerate(("u", "v"), start=2):
        run(store.change_listing(listing_id, change_to(title=title)))
        assert run(store.get_listing_and_revision(listing_id)) == (run(store.get_listing(listing_id)), count)
    assert run(store.get_listing_and_revision(listing_id + 1024)) is None


def test_since_its_settled_revision_no_listing_of_an_account_has_changed(
    store: Store, run: Run, account: Account
) -> None:
    place = (bucket_of(account.id), account.id)
    listing_id = add(run, store, account)
    for changed in (2, 4, 6):
        run(store.get_listing_and_revision(listing_id))
        run(store.change_listing(listing_id, change_to(title=str(changed))))
        for present in (changed, changed + 1):
            known = store.get_cached_settled_revision(*place)
            assert known is None or changed <= known <= present
            assert changed <= run(store.get_settled_revision(*place)) <= present
            assert run(store.get_revision(*place)) == present
            if present == changed:
                add(run, store, account)


# Pages of all listings


def paged(run: Run, store: Store, account: Account, after_id: int = 0, count: int = 100) -> list[int]:
    return [listing.id for listing in run(store.page_listings(bucket_of(account.id), account.id, after_id, count))]


def test_pages_hold_every_listing_once_ids_ascending(store: Store, run: Run, account: Account) -> None:
    other = run(store.add_account("Bob", "bob@example.com", None, 1_000))
    draft = msgspec.structs.replace(BARE, is_active=False)
    ids = [add(run, store, account, new) for new in (BARE, draft, BARE, BARE, draft)]
    add(run, store, other)
    run(store.change_listing(ids[2], change_to(is_active=False, deleted_at=5)))
    assert paged(run, store, account) == ids
    assert paged(run, store, account, 0, 2) == ids[:2]
    assert paged(run, store, account, ids[1], 2) == ids[2:4]
    assert paged(run, store, account, ids[4]) == []


def test_a_page_holds_listings_as_they_are_stored(store: Store, run: Run, account: Account) -> None:
    listing_id = add(run, store, account, NEW)
    assert run(store.page_listings(bucket_of(account.id), account.id, 0, 1)) == [run(store.get_listing(listing_id))]


# Imports

IMPORTED = ImportedListing(NEW, 7, "2025-01-01 00:00:00", "2025-02-01 00:00:00", None)
START, MIDDLE, END = Position(), Position(100, 3), Position(200, 9)


def import_key(account: Account, *, new_ids: bool = False) -> ImportKey:
    return ImportKey(bucket_of(account.id), account.id, b"\x05" * 32, "csv", new_ids)


def begin(run: Run, store: Store, account: Account, last_id: int = 0) -> ImportKey:
    key = import_key(account)
    found = run(store.find_import(key))
    assert run(store.begin_import(key, found, 1_000, last_id)) == ImportProgress(started_at=1_000)
    return key


def row(listing_id: int | None, decision: Any) -> ImportRow:
    def decide(_: Listing | None) -> Any:
        if isinstance(decision, Problem):
            raise decision
        return decision

    return ImportRow(listing_id, decide)


def made_first(listing: Listing | None) -> ImportedListing | ListingChange:
    """Makes a missing listing, and gives one that is there another title."""
    return IMPORTED if listing is None else {"title": f"{listing.title} again"}


def test_an_import_that_was_never_begun_is_none(store: Store, run: Run, account: Account) -> None:
    begin(run, store, account)
    assert run(store.find_import(import_key(account, new_ids=True))) is None


def test_an_import_is_begun_by_one_alone(store: Store, run: Run, account: Account) -> None:
    key = begin(run, store, account)
    run(store.import_listings(key, ImportBatch(START, END, [])))
    for found in (None, ImportProgress(started_at=1_000)):
        assert run(store.begin_import(key, found, 1_000, 9 * 1024 + bucket_of(account.id))) is None
    assert run(store.find_import(key)).position == END
    assert bucket_of(account.id) + 1024 == add(run, store, account)


def test_a_batch_makes_changes_and_refuses_row_by_row(store: Store, run: Run, account: Account) -> None:
    listing_id = add(run, store, account)
    before = run(store.get_listing(listing_id))
    refusal = Problem("invalid_request", "no")
    rows = [
        row(None, IMPORTED),
        row(listing_id, {"title": "u"}),
        row(listing_id, {}),
        row(listing_id, refusal),
        row(None, refusal),
    ]
    outcomes = run(store.import_listings(begin(run, store, account), ImportBatch(START, END, rows)))
    assert outcomes == ["made", "changed", "unchanged", refusal, refusal]
    assert run(store.get_listing(listing_id)) == msgspec.structs.replace(before, title="u", version=2)
    made = run(store.get_listing(listing_id + 1024))
    assert {name: getattr(made, name) for name in NEW.__struct_fields__} == msgspec.structs.asdict(NEW)
    assert (made.account_id, made.version, made.view_count, made.deleted_at) == (account.id, 1, 7, None)
    assert (made.created_at, made.updated_at) == (IMPORTED.created_at, IMPORTED.updated_at)


def test_a_row_is_judged_by_what_the_rows_before_it_wrote(store: Store, run: Run, account: Account) -> None:
    listing_id = 5 * 1024 + bucket_of(account.id)
    rows = [ImportRow(listing_id, made_first)] * 3
    assert run(store.import_listings(begin(run, store, account), ImportBatch(START, END, rows))) == [
        *("made", "changed", "changed")
    ]
    assert run(store.get_listing(listing_id)).title == "A title again again"


def test_a_batch_raises_the_revision_once_and_only_when_it_edits(store: Store, run: Run, account: Account) -> None:
    place = (bucket_of(account.id), account.id)
    key = begin(run, store, account)
    run(store.import_listings(key, ImportBatch(START, MIDDLE, [row(None, IMPORTED)] * 3)))
    assert run(store.get_revision(*place)) == 1
    idle = [row(1024 + bucket_of(account.id), {}), row(None, Problem("invalid_request", "no"))]
    run(store.import_listings(key, ImportBatch(MIDDLE, END, idle)))
    assert run(store.get_revision(*place)) == 1


def test_an_id_that_was_imported_is_never_given_again(store: Store, run: Run, account: Account) -> None:
    bucket = bucket_of(account.id)
    rows = [ImportRow(serial * 1024 + bucket, made_first) for serial in (90, 7)]
    run(store.import_listings(begin(run, store, account), ImportBatch(START, END, rows)))
    assert add(run, store, account) == 91 * 1024 + bucket


def test_the_ids_of_an_import_are_set_aside_from_its_beginning(store: Store, run: Run, account: Account) -> None:
    bucket = bucket_of(account.id)
    key = begin(run, store, account, 50 * 1024 + bucket)
    assert add(run, store, account) == 51 * 1024 + bucket
    assert begin(run, store, account, 3 * 1024 + bucket) == key
    assert add(run, store, account) == 52 * 1024 + bucket


def test_progress_is_kept_with_the_rows(store: Store, run: Run, account: Account) -> None:
    key = begin(run, store, account)
    run(
        store.import_listings(
            key, ImportBatch(START, MIDDLE, [row(None, IMPORTED), row(None, Problem("invalid_request", "no"))])
        )
    )
    made = ImportProgress(offset=100, line=3, made=1, refused=1, started_at=1_000)
    assert run(store.find_import(key)) == made
    listing_id = 1024 + bucket_of(account.id)
    run(
        store.import_listings(
            key, ImportBatch(MIDDLE, END, [row(listing_id, {"title": "u"}), row(listing_id, {})], 2_000)
        )
    )
    finished = msgspec.structs.replace(made, offset=200, line=9, changed=1, unchanged=1, finished_at=2_000)
    assert run(store.find_import(key)) == finished
    assert begin(run, store, account) == key
    assert run(store.find_import(key)) == ImportProgress(started_at=1_000)


def test_a_batch_that_starts_elsewhere_writes_nothing(store: Store, run: Run, account: Account) -> None:
    rows = [row(None, IMPORTED)]
    assert run(store.import_listings(import_key(account), ImportBatch(START, END, rows))) is None
    key = begin(run, store, account)
    assert run(store.import_listings(key, ImportBatch(MIDDLE, END, rows))) is None
    assert run(store.import_listings(key, ImportBatch(START, END, [], 2_000))) == []
    assert run(store.import_listings(key, ImportBatch(END, END, rows))) is None
    assert paged(run, store, account) == []


def test_a_batch_is_written_whole_or_not_at_all(store: Store, run: Run, account: Account) -> None:
    key = begin(run, store, account)
    broken = row(1024 + bucket_of(account.id), {"title": None})
    with pytest.raises(Unavailable):
        run(store.import_listings(key, ImportBatch(START, END, [row(None, IMPORTED), broken])))
    assert paged(run, store, account) == []
    assert run(store.find_import(key)).position == START


# The end


def test_close_finishes_the_writes_that_wait(store: Store, run: Run, account: Account) -> None:
    async def close_behind_writes() -> list[int]:
        bucket = bucket_of(account.id)
        writes = [asyncio.ensure_future(store.add_listing(bucket, account.id, BARE, CREATED)) for _ in range(500)]
        await asyncio.sleep(0)
        await store.close()
        return [added.listing_id for added in await asyncio.gather(*writes)]

    ids = run(close_behind_writes())
    run(store.open())
    assert set(listed(run, store, account)) == set(ids)


def test_after_close_everything_is_unavailable(store: Store, run: Run, account: Account) -> None:
    run(store.close())
    with pytest.raises(Unavailable):
        run(store.get_account(account.id))
    with pytest.raises(Unavailable):
        run(store.revoke_key(1, 1))
    run(store.open())
