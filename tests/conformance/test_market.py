"""The market over all accounts: what is found in it and when, who is counted as a visitor."""

import random
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
import pytest

from listings.contract.listings import IndexStep
from listings.contract.store import Store
from listings.domain import tokenizer
from listings.domain.model import Account, Listing, ListingChange, MarketEntry, MarketQuery, NewListing, bucket_of
from tests.conformance.conftest import Run
from tests.conformance.test_search import REGIONS, TYPES, all_of, text

ME, OTHER = b"i" * 16, b"j" * 16
DAY = 20_000
CATEGORIES = ("", "Furniture", "Bikes", 'Bike "parts"')


def open_account(store: Store, run: Run, name: str) -> Account:
    account: Account = run(store.add_account(name, f"{name}@example.com", None, 1_000))
    return account


def add(store: Store, run: Run, account: Account, **fields: Any) -> int:
    new = NewListing(**{"title": "Lamp", "content": "c", **fields})
    listing_id: int = run(store.add_listing(bucket_of(account.id), account.id, new, "2026-11-21 10:00:00")).listing_id
    return listing_id


def change(store: Store, run: Run, listing_id: int, **values: Any) -> Listing:
    changed: Listing = run(store.change_listing(listing_id, lambda _: values))
    return changed


def index(store: Store, run: Run, count: int = 7) -> int:
    """All steps; returns how many listings were taken in."""
    done, left = 0, True
    while left:
        step = run(store.index_market(count, ME, 1_000.0))
        assert step.done <= count
        done, left = done + step.done, step.left
    return done


def find(store: Store, run: Run, **query: Any) -> list[int]:
    return [entry.id for entry in run(store.search_market(MarketQuery(**query)))]


# Searches


def some_listing(chance: random.Random) -> NewListing:
    return NewListing(
        title=text(chance),
        content=text(chance),
        type=chance.choices(TYPES, weights=(90, 8, 2, 1))[0],
        category=chance.choice(CATEGORIES),
        region=chance.choice(REGIONS),
        price_cents=chance.choice((0, 100, 100, 2_500, 99_999, 99_999_999_999)),
        is_active=chance.random() < 0.8,
    )


def some_change(chance: random.Random) -> ListingChange:
    return chance.choice(
        [
            {"title": text(chance)},
            {"price_cents": 100},
            {"region": "Otago", "category": ""},
            {"is_active": False},
            {"is_active": True},
            {"is_active": False, "deleted_at": 5},
        ]
    )


def some_queries(count: int) -> Iterator[MarketQuery]:
    chance = random.Random(7)

    def maybe(value: Any) -> Any:
        return value if chance.random() < 0.25 else None

    for _ in range(count):
        yield MarketQuery(
            words=tuple(
                tokenizer.tokenize(chance.choice(("bike", "cafe", "STRASSE", "bike table", "otago", "自転車", "zz")))
            )
            if chance.random() < 0.4
            else (),
            type=maybe(chance.choice(TYPES)),
            category=maybe(chance.choice(CATEGORIES)),
            region=maybe(chance.choice(REGIONS)),
            price_min=maybe(chance.choice((-1, 0, 100, 101, 2**62))),
            price_max=maybe(chance.choice((-1, 0, 100, 2_500, 2**62))),
            sort=chance.choice(("newest", "price", "-price")),
            limit=chance.choice((1, 7, 1_000)),
        )


def place_of(entry: MarketEntry, query: MarketQuery) -> tuple[int, ...]:
    return (entry.serial,) if query.sort == "newest" else (entry.price_cents, entry.serial)


def is_asked_for(listing: Listing, query: MarketQuery) -> bool:
    texts = (listing.title, listing.content, listing.category, listing.location, listing.region, listing.district)
    present = tokenizer.tokenize(" ".join(texts))
    return (
        listing.is_active
        and query.type in {None, listing.type}
        and query.category in {None, listing.category}
        and query.region in {None, listing.region}
        and (query.price_min is None or listing.price_cents >= query.price_min)
        and (query.price_max is None or listing.price_cents <= query.price_max)
        and all(sought in present for sought in query.words)
    )


def expected(listings: list[Listing], serials: dict[int, int], query: MarketQuery) -> list[int]:
    """What a query means, said in the plainest way."""
    found = [listing for listing in listings if is_asked_for(listing, query)]
    found.sort(key=lambda listing: serials[listing.id])
    if query.sort == "newest":
        found.reverse()
    else:
        found.sort(key=lambda listing: listing.price_cents)
        if query.sort == "-price":
            found.reverse()
    return [listing.id for listing in found]


def serials_of(store: Store, run: Run) -> dict[int, int]:
    return {entry.id: entry.serial for entry in run(store.search_market(MarketQuery(limit=10_000)))}


def _given(values: ListingChange, _: Listing | None) -> ListingChange:
    return values


@pytest.fixture
def stock(store: Store, run: Run) -> list[Listing]:
    """Listings of three accounts, many of them edited, all indexed in the middle and at the end."""
    chance = random.Random(1)
    accounts = [open_account(store, run, name) for name in ("alice", "bob", "charlie")]
    ids: list[int] = []
    for _ in range(2):
        adds = []
        for account in chance.choices(accounts, k=150):
            place = (bucket_of(account.id), account.id)
            adds.append(store.add_listing(*place, some_listing(chance), "2026-11-21 10:00:00"))
        ids += [added.listing_id for added in all_of(run, adds)]
        index(store, run, 40)
        changes = [(listing_id, some_change(chance)) for listing_id in chance.sample(ids, 80)]
        all_of(run, [store.change_listing(one, partial(_given, values)) for one, values in changes])
    assert index(store, run, 40) >= 60
    return [run(store.get_listing(listing_id)) for listing_id in ids]


def test_every_search_finds_what_it_asks_for_in_its_order(store: Store, run: Run, stock: list[Listing]) -> None:
    serials = serials_of(store, run)
    for query in some_queries(400):
        found = [entry.id for entry in run(store.search_market(query))]
        assert found == expected(stock, serials, query)[: query.limit], query


def test_pages_one_behind_the_other_are_the_whole(store: Store, run: Run, stock: list[Listing]) -> None:
    serials = serials_of(store, run)
    for query in some_queries(100):
        page = msgspec.structs.replace(query, limit=13)
        found = run(store.search_market(page))
        walked = [entry.id for entry in found]
        while len(found) == page.limit:
            page = msgspec.structs.replace(page, after=found[-1].place)
            found = run(store.search_market(page))
            walked += [entry.id for entry in found]
        assert walked == expected(stock, serials, query), query


def test_an_entry_shows_the_listing(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    images = '["https://pictures.example/1.jpg","/2.jpg"]'
    given = {"type": "rental", "category": "Boats", "location": "Bay", "region": "Otago", "price_type": "per_night"}
    listing_id = add(store, run, alice, title="Boat", images=images, price_cents=5_000, **given)
    index(store, run)
    (entry,) = run(store.search_market(MarketQuery()))
    assert entry == MarketEntry(
        serial=1,
        id=listing_id,
        title="Boat",
        image="https://pictures.example/1.jpg",
        price_cents=5_000,
        created_at="2026-11-21 10:00:00",
        **given,
    )


# What anybody may see, and when


def test_a_listing_is_found_once_it_is_indexed_and_by_what_it_then_is(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    lamp = add(store, run, alice)
    assert find(store, run) == []
    assert index(store, run) == 1
    assert find(store, run, words=("lamp",)) == [lamp]
    change(store, run, lamp, title="Boat")
    assert find(store, run, words=("lamp",)) == [lamp]
    assert index(store, run) == 1
    assert find(store, run, words=("lamp",)) == []
    assert find(store, run, words=("boat",)) == [lamp]
    assert index(store, run) == 0


def test_what_is_paused_or_deleted_is_gone_and_comes_back_to_its_old_place(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    first, second, third = (add(store, run, alice, price_cents=7) for _ in range(3))
    index(store, run)
    change(store, run, first, is_active=False)
    change(store, run, second, is_active=False, deleted_at=5)
    index(store, run)
    assert find(store, run) == find(store, run, sort="price") == [third]
    change(store, run, first, is_active=True)
    change(store, run, second, deleted_at=None, is_active=True)
    index(store, run)
    assert find(store, run) == [third, second, first]
    assert find(store, run, sort="price") == [first, second, third]


def test_a_draft_appears_when_it_is_first_shown(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    draft = add(store, run, alice, is_active=False)
    lamp = add(store, run, alice)
    assert index(store, run) == 2
    assert find(store, run) == [lamp]
    change(store, run, draft, is_active=True)
    index(store, run)
    assert find(store, run) == [draft, lamp]


def disable(store: Store, run: Run, account: Account, disabled_at: int | None) -> None:
    run(store.change_account(account.id, lambda _: {"disabled_at": disabled_at}))


def test_listings_of_a_disabled_account_are_out_of_sight_at_once_and_come_back_later(store: Store, run: Run) -> None:
    alice, bob = (open_account(store, run, name) for name in ("alice", "bob"))
    ids = [add(store, run, account, price_cents=9, region="Otago") for account in (alice, bob) * 12]
    of_bob = ids[1::2]
    index(store, run)
    disable(store, run, alice, 5)
    everything: list[dict[str, Any]] = [{}, {"sort": "price"}, {"sort": "-price"}, {"price_min": 1}, {"price_max": 9}]
    for query in everything:
        assert sorted(find(store, run, **query)) == of_bob
    run(store.index_market(5, ME, 1_000.0))
    disable(store, run, alice, None)
    index(store, run)
    for query in everything:
        assert sorted(find(store, run, **query)) == ids
    disable(store, run, alice, 6)
    late = add(store, run, alice)
    index(store, run)
    for query in everything:
        assert sorted(find(store, run, **query)) == of_bob
    assert [entry.listing_id for entry in run(store.page_sitemap(0, 100))] == of_bob
    disable(store, run, alice, None)
    run(store.index_market(5, ME, 1_000.0))
    assert set(of_bob) < set(find(store, run)) < {*ids, late}
    index(store, run)
    assert find(store, run, limit=99) == [late, *reversed(ids)]


def test_an_expired_plan_hides_nothing(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    lamp = add(store, run, alice)
    index(store, run)
    run(store.change_account(alice.id, lambda _: {"plan_expires_at": 5}))
    index(store, run)
    assert find(store, run) == [lamp]


def test_views_and_refused_changes_leave_nothing_to_index(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    lamp = add(store, run, alice)
    index(store, run)
    run(store.record_views(DAY, {lamp: [b"v" * 16]}))
    change(store, run, lamp)
    assert index(store, run) == 0


def test_one_indexer_goes_on_until_it_asks_no_more(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    for _ in range(4):
        add(store, run, alice)
    assert run(store.index_market(1, ME, 1_000.0)).done == 1
    assert run(store.index_market(1, OTHER, 1_001.0)) == IndexStep(0)
    assert run(store.index_market(1, ME, 1_002.0)).left
    assert run(store.index_market(1, OTHER, 1_004.0)).done == 0
    assert run(store.index_market(1, OTHER, 1_006.0)).done == 1
    assert run(store.index_market(1, ME, 1_006.0)).done == 0
    assert run(store.index_market(1, ME, 5.0)).done == 1  # the other's clock was far ahead of this one


def test_a_step_tells_whether_others_have_written_since_the_one_before(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    for _ in range(4):
        add(store, run, alice)
    steps = [run(store.index_market(1, ME, 1_000.0)) for _ in range(3)]
    add(store, run, alice)
    steps.append(run(store.index_market(1, ME, 1_000.0)))
    assert [step.contended for step in steps] == [False, False, False, True]
    assert all(step.seconds > 0 for step in steps)


def test_a_step_ends_early_where_listings_are_long(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    for _ in range(5):
        add(store, run, alice, content="word " * 16_000)
    step = run(store.index_market(100, ME, 1_000.0))
    assert (step.done, step.left) == (3, True)
    step = run(store.index_market(100, ME, 1_000.0))
    assert (step.done, step.left) == (2, False)


def test_places_beyond_every_listing_find_nothing_or_all(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    lamp = add(store, run, alice, price_cents=99_999_999_999)
    index(store, run)
    far = 2**62
    for place, newest, cheapest, dearest in (
        ((far, far), [lamp], [], [lamp]),
        ((-far, -far), [], [lamp], []),
        ((99_999_999_999, 1), [], [], []),
    ):
        assert find(store, run, after=place) == newest
        assert find(store, run, after=place, sort="price") == cheapest
        assert find(store, run, after=place, sort="-price") == dearest


def test_text_that_an_engine_can_not_store_finds_nothing(store: Store, run: Run) -> None:
    add(store, run, open_account(store, run, "alice"))
    index(store, run)
    assert find(store, run, region="\0") == find(store, run, words=("zebra",)) == []


# Places and pages


def test_places_are_those_of_what_is_shown(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    lamp = add(store, run, alice, region="Otago", category="Lamps")
    for _ in range(2):
        add(store, run, alice, region="Wellington", category="Bikes")
    add(store, run, alice, region="Nelson", category="Boats", is_active=False)
    add(store, run, alice)
    index(store, run)
    assert run(store.list_market_facets(5)) == (["Wellington", "Otago"], ["Bikes", "Lamps"])
    assert run(store.list_market_facets(1)) == (["Wellington"], ["Bikes"])
    change(store, run, lamp, region="Wellington", category="")
    index(store, run)
    assert run(store.list_market_facets(5)) == (["Wellington"], ["Bikes"])


def test_the_sitemap_goes_on_behind_a_serial(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    ids = [add(store, run, alice) for _ in range(5)]
    index(store, run)
    change(store, run, ids[1], is_active=False)
    change(store, run, ids[2], updated_at="2026-11-22 10:00:00")
    index(store, run)
    page = run(store.page_sitemap(0, 3))
    assert [entry.listing_id for entry in page] == [ids[0], ids[2], ids[3]]
    assert page[1].updated_at == "2026-11-22 10:00:00"
    assert [entry.listing_id for entry in run(store.page_sitemap(page[-1].serial, 3))] == [ids[4]]
    assert run(store.page_sitemap(2**62, 3)) == []


# Views


def visitor(number: int) -> bytes:
    return number.to_bytes(16, "big")


def count_of(store: Store, run: Run, listing_id: int) -> int:
    return int(run(store.get_listing(listing_id)).view_count)


@pytest.mark.decision("G8")
def test_a_visitor_counts_once_a_day_for_each_listing(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    lamp, boat = add(store, run, alice), add(store, run, alice)
    before = run(store.get_listing(lamp))
    run(store.record_views(DAY, {lamp: [visitor(1), visitor(2)], boat: [visitor(1)]}))
    run(store.record_views(DAY, {lamp: [visitor(2), visitor(3)]}))
    run(store.record_views(DAY + 1, {lamp: [visitor(3)]}))
    assert run(store.get_listing(lamp)) == msgspec.structs.replace(before, view_count=4)
    assert count_of(store, run, boat) == 1


def test_views_raise_the_revision_once_and_only_where_somebody_is_new(store: Store, run: Run) -> None:
    alice, bob = (open_account(store, run, name) for name in ("alice", "bob"))
    ids = [add(store, run, account) for account in (alice, alice, bob)]

    def revisions() -> list[int]:
        return [run(store.get_revision(bucket_of(account.id), account.id)) for account in (alice, bob)]

    assert revisions() == [2, 1]
    run(store.record_views(DAY, {listing_id: [visitor(1), visitor(2)] for listing_id in ids[:2]}))
    assert revisions() == [3, 1]
    run(store.record_views(DAY, {listing_id: [visitor(1)] for listing_id in ids}))
    assert revisions() == [3, 2]


def test_views_of_what_nobody_may_see_count_nothing(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    lamp, boat = add(store, run, alice), add(store, run, alice)
    change(store, run, lamp, is_active=False)
    change(store, run, boat, is_active=False, deleted_at=5)
    run(store.record_views(DAY, {lamp: [visitor(1)], boat: [visitor(1)], 1_024_000: [visitor(1)]}))
    assert count_of(store, run, lamp) == count_of(store, run, boat) == 0
    change(store, run, lamp, is_active=True)
    run(store.record_views(DAY, {lamp: [visitor(1)]}))
    assert count_of(store, run, lamp) == 1


def test_who_writes_the_same_visitors_at_once_counts_them_once(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    ids = [add(store, run, alice) for _ in range(3)]
    one, other = ({one: [visitor(it) for it in range(20)] for one in order} for order in (ids, ids[::-1]))
    all_of(run, [store.record_views(DAY, views) for views in (one, other, one)])
    assert [count_of(store, run, listing_id) for listing_id in ids] == [20, 20, 20]


def test_a_day_has_one_salt(store: Store, run: Run) -> None:
    salts = all_of(run, [store.get_view_salt(DAY) for _ in range(5)])
    assert len(set(salts)) == 1
    assert len(salts[0]) == 32
    assert run(store.get_view_salt(DAY + 1)) != salts[0]


@pytest.mark.decision("G8")
def test_earlier_days_are_forgotten_with_their_salts(store: Store, run: Run) -> None:
    lamp = add(store, run, open_account(store, run, "alice"))
    salts = [run(store.get_view_salt(day)) for day in (DAY, DAY + 1)]
    for day in (DAY, DAY + 1):
        run(store.record_views(day, {lamp: [visitor(number) for number in range(3)]}))
    assert run(store.purge_views(DAY + 1, 2)) == 2
    assert run(store.purge_views(DAY + 1, 2)) == 1
    assert run(store.purge_views(DAY + 1, 2)) == 0
    assert run(store.get_view_salt(DAY)) != salts[0]
    assert run(store.get_view_salt(DAY + 1)) == salts[1]
    run(store.record_views(DAY + 1, {lamp: [visitor(1)]}))
    assert count_of(store, run, lamp) == 6
