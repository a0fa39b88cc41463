"""The market of all accounts: numbered changes, visibility, pages of sellers, the sitemap and views."""

from typing import Any

import msgspec
import pytest

from listings.domain.listings import AddStep
from listings.domain.market import IndexResult
from listings.domain.model import MAX_ID, Account, Listing, MarketEntry, NewListing, bucket_of
from listings.domain.timestamps import DAY_SECONDS
from listings.store.store import Store
from tests.contract.conftest import Run
from tests.contract.test_search import run_all

HOLDER, OTHER_HOLDER = b"i" * 16, b"j" * 16
DAY = 20_000


def open_account(store: Store, run: Run, name: str) -> Account:
    account: Account = run(store.add_account(name, f"{name}@example.com", None, 1_000))
    return account


def add(store: Store, run: Run, account: Account, **fields: Any) -> int:
    new = NewListing(**{"title": "Lamp", "content": "c", **fields})
    listing_id: int = run(
        store.add_listing(bucket_of(account.id), account.id, AddStep(new, "2026-11-21 10:00:00"))
    ).listing_id
    return listing_id


def change(store: Store, run: Run, listing_id: int, **values: Any) -> Listing:
    changed: Listing = run(store.change_listing(listing_id, lambda _: values))
    return changed


def stamp_all(store: Store, run: Run, count: int = 7, now: float = 1_000.0) -> int:
    done, has_more = 0, True
    while has_more:
        step = run(store.stamp_market(count, HOLDER, now))
        done, has_more = done + step.done, step.has_more
    return done


def list_newest(store: Store, run: Run) -> list[int]:
    return [entry.id for entry in run(store.page_newest(count=100))]


def list_changes(store: Store, run: Run, after: int = 0) -> list[tuple[int, bool]]:
    return [(it.id, bool(it.is_shown)) for it in run(store.list_market_changes(after, 100))]


def test_each_change_has_a_higher_sequence(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    ids = [add(store, run, alice, title=f"Lamp {number}") for number in range(3)]
    assert run(store.get_market_state()) == (0, 0, 0)
    assert stamp_all(store, run) == 3
    assert run(store.get_market_state()) == (3, 0, 3)
    assert list_changes(store, run) == [(it, True) for it in ids]
    change(store, run, ids[0], title="Boat")
    change(store, run, ids[1], is_active=False)
    assert stamp_all(store, run) == 2
    found = run(store.list_market_changes(0, 100))
    assert [(it.id, it.serial, it.sequence) for it in found] == [(ids[2], 3, 3), (ids[0], 1, 4), (ids[1], 2, 5)]
    assert [(it.title, it.seller, bool(it.is_shown)) for it in found[1:]] == [
        *(("Boat", "alice", True), ("", "", False)),
    ]
    assert list_changes(store, run, 4) == [(ids[1], False)]
    assert stamp_all(store, run) == 0


def test_unread_listings_are_read_from_the_newest_on(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    ids = [add(store, run, alice) for _ in range(4)]
    stamp_all(store, run)
    change(store, run, ids[2], is_active=False)
    stamp_all(store, run)
    assert [it.id for it in run(store.list_unread_listings(5, 2))] == [ids[3], ids[1]]
    assert [it.id for it in run(store.list_unread_listings(2, 2))] == [ids[0]]


def test_accounts_take_turns(store: Store, run: Run) -> None:
    alice, bob = (open_account(store, run, name) for name in ("alice", "bob"))
    for _ in range(120):
        add(store, run, alice)
    lamp = add(store, run, bob)
    assert run(store.stamp_market(101, HOLDER, 1_000.0)).has_more
    assert (lamp, True) in [(it.id, it.is_shown) for it in run(store.list_market_changes(0, 200))]
    more = add(store, run, bob)
    run(store.stamp_market(20, HOLDER, 1_000.0))  # the rest of alice's
    assert list_newest(store, run)[0] != more
    assert stamp_all(store, run) == 1


def test_an_entry_has_the_fields_of_the_listing(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    images = '["https://pictures.example/1.jpg","/2.jpg"]'
    fields = {"type": "rental", "category": "Boats", "location": "Bay", "price_type": "per_night"}
    listing_id = add(store, run, alice, title="Boat", images=images, price_cents=5_000, region="Dunedin", **fields)
    stamp_all(store, run)
    entry = MarketEntry(
        serial=1,
        id=listing_id,
        title="Boat",
        image="https://pictures.example/1.jpg",
        price_cents=5_000,
        region="Otago",
        listed_at="1970-01-01 00:16:40",  # the time of the step, because the listing claims to be newer
        **fields,
    )
    assert run(store.page_newest()) == [entry]
    assert run(store.get_market_entries([listing_id])) == [entry]
    assert run(store.get_market_entries([listing_id], has_text=True)) == [msgspec.structs.replace(entry, content="c")]


def test_entries_are_listed_in_the_order_of_their_dates(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    for moment in ("2026-11-21 10:00:00", "2020-01-01 00:00:00", "2026-11-22 10:00:00", "2999-01-01 00:00:00"):
        run(store.add_listing(bucket_of(alice.id), alice.id, AddStep(NewListing(title="Lamp", content="c"), moment)))
        run(store.stamp_market(1, HOLDER, 1_800_000_000.0))
    assert [entry.listed_at for entry in run(store.page_newest())][::-1] == [
        *("2026-11-21 10:00:00", "2026-11-21 10:00:00", "2026-11-22 10:00:00", "2027-01-15 08:00:00")
    ]


def test_a_paused_listing_is_hidden_immediately_and_keeps_its_serial(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    ids = [add(store, run, alice) for _ in range(3)]
    stamp_all(store, run)
    change(store, run, ids[0], is_active=False)
    change(store, run, ids[1], is_active=False, deleted_at=5)
    assert list_newest(store, run) == [ids[2]]
    assert [it.id for it in run(store.get_market_entries(ids))] == [ids[2]]
    stamp_all(store, run)
    assert list_newest(store, run) == [ids[2]]
    change(store, run, ids[0], is_active=True)
    change(store, run, ids[1], deleted_at=None, is_active=True)
    stamp_all(store, run)
    assert list_newest(store, run) == ids[::-1]


def test_entries_are_in_the_order_of_the_ids(store: Store, run: Run) -> None:
    alice, bob = (open_account(store, run, name) for name in ("alice", "bob"))
    ids = [add(store, run, account) for account in (alice, bob, alice)]
    stamp_all(store, run)
    order = [ids[1], ids[2], ids[0]]
    assert [it.id for it in run(store.get_market_entries([*order, 10**9]))] == order


def test_a_draft_gets_its_serial_when_it_is_first_shown(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    draft = add(store, run, alice, is_active=False)
    lamp = add(store, run, alice)
    assert stamp_all(store, run) == 2
    assert list_newest(store, run) == [lamp]
    change(store, run, draft, is_active=True)
    stamp_all(store, run)
    assert list_newest(store, run) == [draft, lamp]


def disable(store: Store, run: Run, account: Account, disabled_at: int | None) -> None:
    run(store.change_account(account.id, lambda _: {"disabled_at": disabled_at}))


def test_listings_of_a_disabled_account_are_hidden_immediately(store: Store, run: Run) -> None:
    alice, bob = (open_account(store, run, name) for name in ("alice", "bob"))
    ids = [add(store, run, account) for account in (alice, bob) * 12]
    bobs_ids = sorted(ids[1::2])
    stamp_all(store, run)
    assert run(store.list_hidden_accounts(0, 10)) == []
    disable(store, run, alice, 5)
    assert sorted(list_newest(store, run)) == bobs_ids
    assert run(store.list_hidden_accounts(900, 10)) == [alice.id]
    run(store.stamp_market(5, HOLDER, 1_000.0))
    disable(store, run, alice, None)
    stamp_all(store, run)
    assert sorted(list_newest(store, run)) == sorted(ids)
    disable(store, run, alice, 6)
    late = add(store, run, alice)
    stamp_all(store, run)
    assert sorted(list_newest(store, run)) == bobs_ids
    assert run(store.list_hidden_accounts(900, 10)) == []
    assert run(store.list_hidden_accounts(5, 10)) == [alice.id]
    assert [entry.listing_id for entry in run(store.page_sitemap(0, 100))] == bobs_ids
    disable(store, run, alice, None)
    stamp_all(store, run)
    assert sorted(list_newest(store, run)) == sorted([late, *ids])
    assert {it for it, is_shown in list_changes(store, run) if is_shown} == {late, *ids}


def test_an_expired_plan_hides_nothing(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    lamp = add(store, run, alice)
    stamp_all(store, run)
    run(store.change_account(alice.id, lambda _: {"plan_expires_at": 5}))
    stamp_all(store, run)
    assert list_newest(store, run) == [lamp]


def test_views_and_empty_changes_leave_nothing_to_stamp(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    lamp = add(store, run, alice)
    stamp_all(store, run)
    run(store.record_views(DAY, {lamp: [b"v" * 16]}))
    change(store, run, lamp)
    assert stamp_all(store, run) == 0


def test_one_process_holds_the_lease_until_it_expires(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    for _ in range(4):
        add(store, run, alice)
    assert run(store.stamp_market(1, HOLDER, 1_000.0)).done == 1
    assert run(store.stamp_market(1, OTHER_HOLDER, 1_001.0)) == IndexResult(0)
    assert run(store.stamp_market(1, HOLDER, 1_002.0)).has_more
    assert run(store.stamp_market(1, OTHER_HOLDER, 1_004.0)).done == 0
    assert run(store.stamp_market(1, OTHER_HOLDER, 1_006.0)).done == 1
    assert run(store.stamp_market(1, HOLDER, 1_006.0)).done == 0
    assert run(store.stamp_market(1, HOLDER, 5.0)).done == 1  # the other process's clock was far ahead


def test_a_step_reports_other_writes_since_the_previous_step(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    for _ in range(4):
        add(store, run, alice)
    steps = [run(store.stamp_market(1, HOLDER, 1_000.0)) for _ in range(3)]
    add(store, run, alice)
    steps.append(run(store.stamp_market(1, HOLDER, 1_000.0)))
    assert [step.contended for step in steps] == [False, False, False, True]
    assert all(step.seconds > 0 for step in steps)


def test_tombstones_are_purged_after_a_week(store: Store, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 2_000.0)
    alice = open_account(store, run, "alice")
    gone, kept = (add(store, run, alice) for _ in range(2))
    stamp_all(store, run)
    change(store, run, gone, is_active=False, deleted_at=5)
    run(store.purge_changes(range(1024), 10**9, 10, 10**9))
    assert run(store.get_listing(gone)) is None
    assert list_changes(store, run) == [(kept, True), (gone, False)]
    assert run(store.purge_market(2_000.0 + 7 * DAY_SECONDS)) == 0
    assert run(store.purge_market(2_001.0 + 7 * DAY_SECONDS)) == 1
    assert list_changes(store, run) == [(kept, True)]
    assert run(store.get_market_state()) == (3, 3, 2)  # earlier readers have to start again


def test_the_listings_of_a_seller_are_counted_and_paged(store: Store, run: Run) -> None:
    alice, bob = open_account(store, run, "alice"), open_account(store, run, "bob")
    ids = [add(store, run, alice, title=f"Bicycle {number}") for number in range(4)]
    add(store, run, bob)
    add(store, run, alice, is_active=False)
    stamp_all(store, run)
    change(store, run, ids[1], is_active=False)
    stamp_all(store, run)
    first = run(store.page_seller_listings(alice.id, MAX_ID, 2))
    assert [entry.id for entry in first] == [ids[3], ids[2]]
    assert first[0].title == "Bicycle 3"
    assert [entry.id for entry in run(store.page_seller_listings(alice.id, first[1].serial, 2))] == [ids[0]]
    assert [run(store.count_seller_listings(alice.id, limit)) for limit in (2, 9)] == [2, 3]


def test_the_sitemap_continues_after_a_serial(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    ids = [add(store, run, alice) for _ in range(5)]
    stamp_all(store, run)
    change(store, run, ids[1], is_active=False)
    change(store, run, ids[2], updated_at="2026-11-22 10:00:00")
    stamp_all(store, run)
    page = run(store.page_sitemap(0, 3))
    assert [entry.listing_id for entry in page] == [ids[0], ids[2], ids[3]]
    assert page[1].updated_at == "2026-11-22 10:00:00"
    assert [entry.listing_id for entry in run(store.page_sitemap(page[-1].serial, 3))] == [ids[4]]
    assert run(store.page_sitemap(2**62, 3)) == []


def build_visitor(number: int) -> bytes:
    return number.to_bytes(16, "big")


def get_view_count(store: Store, run: Run, listing_id: int) -> int:
    return int(run(store.get_listing(listing_id)).view_count)


@pytest.mark.decision("G8")
def test_a_visitor_counts_once_per_day_and_listing(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    lamp, boat = add(store, run, alice), add(store, run, alice)
    before = run(store.get_listing(lamp))
    run(store.record_views(DAY, {lamp: [build_visitor(1), build_visitor(2)], boat: [build_visitor(1)]}))
    run(store.record_views(DAY, {lamp: [build_visitor(2), build_visitor(3)]}))
    run(store.record_views(DAY + 1, {lamp: [build_visitor(3)]}))
    assert run(store.get_listing(lamp)) == msgspec.structs.replace(before, view_count=4)
    assert get_view_count(store, run, boat) == 1


def test_new_views_raise_the_revision_of_each_account_once(store: Store, run: Run) -> None:
    alice, bob = (open_account(store, run, name) for name in ("alice", "bob"))
    ids = [add(store, run, account) for account in (alice, alice, bob)]

    def revisions() -> list[int]:
        return [run(store.get_revisions(bucket_of(account.id), account.id)).revision for account in (alice, bob)]

    assert revisions() == [2, 1]
    run(store.record_views(DAY, {listing_id: [build_visitor(1), build_visitor(2)] for listing_id in ids[:2]}))
    assert revisions() == [3, 1]
    run(store.record_views(DAY, {listing_id: [build_visitor(1)] for listing_id in ids}))
    assert revisions() == [3, 2]


def test_views_of_hidden_listings_are_not_counted(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    lamp, boat = add(store, run, alice), add(store, run, alice)
    change(store, run, lamp, is_active=False)
    change(store, run, boat, is_active=False, deleted_at=5)
    run(store.record_views(DAY, {lamp: [build_visitor(1)], boat: [build_visitor(1)], 1_024_000: [build_visitor(1)]}))
    assert get_view_count(store, run, lamp) == get_view_count(store, run, boat) == 0
    change(store, run, lamp, is_active=True)
    run(store.record_views(DAY, {lamp: [build_visitor(1)]}))
    assert get_view_count(store, run, lamp) == 1


def test_concurrent_views_by_the_same_visitors_count_once(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    ids = [add(store, run, alice) for _ in range(3)]
    one, other = ({it: [build_visitor(number) for number in range(20)] for it in order} for order in (ids, ids[::-1]))
    run_all(run, [store.record_views(DAY, views) for views in (one, other, one)])
    assert [get_view_count(store, run, listing_id) for listing_id in ids] == [20, 20, 20]


def test_a_day_has_one_salt(store: Store, run: Run) -> None:
    salts = run_all(run, [store.get_view_salt(DAY) for _ in range(5)])
    assert len(set(salts)) == 1
    assert len(salts[0]) == 32
    assert run(store.get_view_salt(DAY + 1)) != salts[0]


@pytest.mark.decision("G8")
def test_earlier_days_are_purged_with_their_salts(store: Store, run: Run) -> None:
    lamp = add(store, run, open_account(store, run, "alice"))
    salts = [run(store.get_view_salt(day)) for day in (DAY, DAY + 1)]
    for day in (DAY, DAY + 1):
        run(store.record_views(day, {lamp: [build_visitor(number) for number in range(3)]}))
    assert run(store.purge_views(DAY + 1, 2)) == 2
    assert run(store.purge_views(DAY + 1, 2)) == 1
    assert run(store.purge_views(DAY + 1, 2)) == 0
    assert run(store.get_view_salt(DAY)) != salts[0]
    assert run(store.get_view_salt(DAY + 1)) == salts[1]
    run(store.record_views(DAY + 1, {lamp: [build_visitor(1)]}))
    assert get_view_count(store, run, lamp) == 6
