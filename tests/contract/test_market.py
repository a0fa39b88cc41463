"""The market of all accounts: searches, visibility, the sitemap and views."""

import random
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
import pytest
from msgspec.structs import astuple

from listings.contract.listings import AddStep
from listings.contract.market import IndexResult
from listings.contract.store import Store
from listings.domain.market import words as market_words
from listings.domain.model import (
    MAX_ID,
    Account,
    Listing,
    ListingChange,
    MarketEntry,
    MarketQuery,
    NewListing,
    bucket_of,
)
from tests.contract.conftest import Run
from tests.contract.test_search import REGIONS, TYPES, random_text, run_all

INDEXER, OTHER_INDEXER = b"i" * 16, b"j" * 16
DAY = 20_000
CATEGORIES = ("", "Furniture", "Bikes", 'Bike "parts"')


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


def run_all_steps(store: Store, run: Run, count: int = 7) -> int:
    """Run all index steps and return the number of indexed listings."""
    done, has_more = 0, True
    while has_more:
        step = run(store.index_market(count, INDEXER, 1_000.0))
        assert step.done <= count
        done, has_more = done + step.done, step.has_more
    return done


def find(store: Store, run: Run, **query: Any) -> list[int]:
    return [entry.id for entry in run(store.search_market(MarketQuery(**query)))]


# Searches


def random_listing(chance: random.Random) -> NewListing:
    return NewListing(
        title=random_text(chance),
        content=random_text(chance),
        type=chance.choices(TYPES, weights=(90, 8, 2, 1))[0],
        category=chance.choice(CATEGORIES),
        region=chance.choice(REGIONS),
        price_cents=chance.choice((0, 100, 100, 2_500, 99_999, 99_999_999_999)),
        is_active=chance.random() < 0.8,
    )


def random_change(chance: random.Random) -> ListingChange:
    return chance.choice(
        [
            {"title": random_text(chance)},
            {"price_cents": 100},
            {"region": "Otago", "category": ""},
            {"is_active": False},
            {"is_active": True},
            {"is_active": False, "deleted_at": 5},
        ]
    )


def random_queries(count: int) -> Iterator[MarketQuery]:
    chance = random.Random(7)

    def maybe(value: Any) -> Any:
        return value if chance.random() < 0.25 else None

    for _ in range(count):
        yield MarketQuery(
            text=chance.choice(("bikes", "cafe", "STRASSE", "bike tab", "ota", "自転", "zz"))
            if chance.random() < 0.4
            else "",
            type=maybe(chance.choice(TYPES)),
            category=maybe(chance.choice(CATEGORIES)),
            region=maybe(chance.choice(REGIONS)),
            price_min=maybe(chance.choice((-1, 0, 100, 101, 2**62))),
            price_max=maybe(chance.choice((-1, 0, 100, 2_500, 2**62))),
            sort=chance.choice(("newest", "oldest", "price", "-price")),
            limit=chance.choice((1, 7, 1_000)),
        )


def is_match(listing: Listing, query: MarketQuery) -> bool:
    texts = (listing.title, listing.category, listing.location, listing.region, listing.district)
    names = " ".join(market_words.split(" ".join(texts)))
    words = [*map(market_words.fold, market_words.split(listing.content)), *market_words.list_title_terms(names)]
    return (
        listing.is_active
        and query.type in {None, listing.type}
        and query.category in {None, listing.category}
        and query.region in {None, listing.region}
        and (query.price_min is None or listing.price_cents >= query.price_min)
        and (query.price_max is None or listing.price_cents <= query.price_max)
        and all(term in words for term in market_words.list_terms(query.text))
    )


def find_expected(listings: list[Listing], serials: dict[int, int], query: MarketQuery) -> list[int]:
    """Return the ids that a query finds, as a simple model of it."""
    found = [listing for listing in listings if is_match(listing, query)]
    found.sort(key=lambda listing: serials[listing.id])
    if query.sort == "newest":
        found.reverse()
    elif query.sort != "oldest":
        found.sort(key=lambda listing: listing.price_cents)
        if query.sort == "-price":
            found.reverse()
    return [listing.id for listing in found]


def get_serials(store: Store, run: Run) -> dict[int, int]:
    return {entry.id: entry.serial for entry in run(store.search_market(MarketQuery(limit=10_000)))}


def _return_values(values: ListingChange, _: Listing | None) -> ListingChange:
    return values


@pytest.fixture
def stock(store: Store, run: Run) -> list[Listing]:
    """Listings of three accounts, many of them edited between two rounds of indexing."""
    chance = random.Random(1)
    accounts = [open_account(store, run, name) for name in ("alice", "bob", "charlie")]
    ids: list[int] = []
    for _ in range(2):
        adds = []
        for account in chance.choices(accounts, k=150):
            partition = (bucket_of(account.id), account.id)
            adds.append(store.add_listing(*partition, AddStep(random_listing(chance), "2026-11-21 10:00:00")))
        ids += [added.listing_id for added in run_all(run, adds)]
        run_all_steps(store, run, 40)
        changes = [(listing_id, random_change(chance)) for listing_id in chance.sample(ids, 80)]
        run_all(run, [store.change_listing(it, partial(_return_values, values)) for it, values in changes])
    assert run_all_steps(store, run, 40) >= 60
    return [run(store.get_listing(listing_id)) for listing_id in ids]


def test_every_search_returns_the_matches_in_its_order(store: Store, run: Run, stock: list[Listing]) -> None:
    serials = get_serials(store, run)
    for query in random_queries(200):
        found = [entry.id for entry in run(store.search_market(query))]
        assert found == find_expected(stock, serials, query)[: query.limit], query


def test_consecutive_pages_contain_all_matches(store: Store, run: Run, stock: list[Listing]) -> None:
    serials = get_serials(store, run)
    for query in random_queries(50):
        page = msgspec.structs.replace(query, limit=13)
        found = run(store.search_market(page))
        paged = [entry.id for entry in found]
        while len(found) == page.limit:
            page = msgspec.structs.replace(page, after=found[-1].cursor)
            found = run(store.search_market(page))
            paged += [entry.id for entry in found]
        assert paged == find_expected(stock, serials, query), query


def test_an_entry_has_the_fields_of_the_listing(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    images = '["https://pictures.example/1.jpg","/2.jpg"]'
    fields = {"type": "rental", "category": "Boats", "location": "Bay", "region": "Otago", "price_type": "per_night"}
    listing_id = add(store, run, alice, title="Boat", images=images, price_cents=5_000, **fields)
    run_all_steps(store, run)
    (entry,) = run(store.search_market(MarketQuery()))
    assert entry == MarketEntry(
        serial=1,
        id=listing_id,
        title="Boat",
        image="https://pictures.example/1.jpg",
        price_cents=5_000,
        listed_at="1970-01-01 00:16:40",  # the time of the index step, because the listing claims to be newer
        **fields,
    )


def test_entries_are_listed_in_the_order_of_their_dates(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    for stamp in ("2026-11-21 10:00:00", "2020-01-01 00:00:00", "2026-11-22 10:00:00", "2999-01-01 00:00:00"):
        run(store.add_listing(bucket_of(alice.id), alice.id, AddStep(NewListing(title="Lamp", content="c"), stamp)))
        run(store.index_market(1, INDEXER, 1_800_000_000.0))
    assert [entry.listed_at for entry in run(store.search_market(MarketQuery(sort="oldest")))] == [
        *("2026-11-21 10:00:00", "2026-11-21 10:00:00", "2026-11-22 10:00:00", "2027-01-15 08:00:00")
    ]


@pytest.mark.decision("G51")
@pytest.mark.parametrize(
    ("title", "text"),
    [
        ("Bike", "bikes"),
        ("Wooden boxes", "box"),
        ("Battery", "batteries"),
        ("Rimu table", "ri"),
        ("Rimu table", "table rim"),
        ("Rimu table", "a table for the rimu"),
        ("To the lighthouse", "to the"),
        ("Bach in Hawke’s Bay", "hawkes bay"),
        ("Bach in Hawke's Bay", "Hawke's ba"),
        ("Wānaka lodge", "wanak"),
        ("自転車", "自転"),
    ],
)
def test_a_title_is_found_by_similar_words(store: Store, run: Run, title: str, text: str) -> None:
    lamp = add(store, run, open_account(store, run, "alice"), title=title)
    run_all_steps(store, run)
    assert find(store, run, text=text) == [lamp]


@pytest.mark.decision("G51")
def test_a_description_is_found_by_whole_words_in_singular_or_plural(store: Store, run: Run) -> None:
    lamp = add(store, run, open_account(store, run, "alice"), content="Two brass feet, three bulbs.")
    run_all_steps(store, run)
    assert find(store, run, text="bulb") == find(store, run, text="brass") == [lamp]
    assert find(store, run, text="bul") == find(store, run, text="bra") == []


def test_words_beyond_the_twentieth_are_ignored(store: Store, run: Run) -> None:
    lamp = add(store, run, open_account(store, run, "alice"), content=" ".join(f"w{number}" for number in range(20)))
    run_all_steps(store, run)
    assert find(store, run, text=" ".join(f"w{number}" for number in range(21))) == [lamp]
    assert find(store, run, text="more " + " ".join(f"w{number}" for number in range(20))) == []


def test_traits_are_those_of_all_matches(store: Store, run: Run, stock: list[Listing]) -> None:
    for query in random_queries(40):
        matches = [(it.type, it.category, it.region, it.price_cents) for it in stock if is_match(it, query)]
        found = [astuple(it) for it in run(store.list_market_traits(query, 1_000))]
        assert sorted(it[:-1] for it in found) == sorted(matches), query
        entries = run(store.get_market_entries([serial for *_, serial in found]))
        assert sorted((it.type, it.category, it.region, *it.cursor) for it in entries) == sorted(found)
        assert len(run(store.list_market_traits(query, 3))) == min(3, len(matches)), query


def test_hidden_entries_are_not_returned(store: Store, run: Run) -> None:
    alice, bob = open_account(store, run, "alice"), open_account(store, run, "bob")
    lamp, boat = add(store, run, alice), add(store, run, alice)
    add(store, run, bob)
    run_all_steps(store, run)
    change(store, run, boat, is_active=False)
    run_all_steps(store, run)
    run(store.change_account(bob.id, lambda _: {"disabled_at": 1_000}))
    assert [it.id for it in run(store.get_market_entries([1, 2, 3, 4]))] == [lamp]


def find_spellings(store: Store, run: Run, word: str) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = run(store.find_spellings(market_words.list_similar_skeletons(word), 5))
    return found


def test_spellings_are_the_words_of_shown_listings(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    lamp = add(store, run, alice, title="Bicycle", content="Bicycles", category="Bicycle", region="Bay")
    add(store, run, alice, title="Bicycle bells")
    run_all_steps(store, run)
    assert find_spellings(store, run, "bycicle") == [("bicycle", 2)]
    assert find_spellings(store, run, "bels") == [("bells", 1)]
    assert find_spellings(store, run, "lamp") == []
    change(store, run, lamp, title="Lamp")
    run_all_steps(store, run)
    assert find_spellings(store, run, "bycicle") == [("bicycle", 2)]
    change(store, run, lamp, is_active=False)
    run_all_steps(store, run)
    assert find_spellings(store, run, "bycicle") == [("bicycle", 1)]
    assert find_spellings(store, run, "lmap") == []


def test_capitals_of_compatibility_characters_are_folded_in_the_market(store: Store, run: Run) -> None:
    bike = add(store, run, open_account(store, run, "alice"), title="Bike™", content="𝗥𝗼𝗮𝗱 47 ㏀")
    run_all_steps(store, run)
    assert [find(store, run, text=text) for text in ("biketm", "Bike™", "road", "47 ㏀", "kω")] == [[bike]] * 5
    assert find_spellings(store, run, "bkietm") == [("biketm", 1)]


# Visibility


def test_a_listing_is_found_as_it_was_when_indexed(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    lamp = add(store, run, alice)
    assert find(store, run) == []
    assert run_all_steps(store, run) == 1
    assert find(store, run, text="lamp") == [lamp]
    change(store, run, lamp, title="Boat")
    assert find(store, run, text="lamp") == [lamp]
    assert run_all_steps(store, run) == 1
    assert find(store, run, text="lamp") == []
    assert find(store, run, text="boat") == [lamp]
    assert run_all_steps(store, run) == 0


def test_paused_and_deleted_listings_are_hidden_and_keep_their_serials(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    first, second, third = (add(store, run, alice, price_cents=7) for _ in range(3))
    run_all_steps(store, run)
    change(store, run, first, is_active=False)
    change(store, run, second, is_active=False, deleted_at=5)
    run_all_steps(store, run)
    assert find(store, run) == find(store, run, sort="price") == [third]
    change(store, run, first, is_active=True)
    change(store, run, second, deleted_at=None, is_active=True)
    run_all_steps(store, run)
    assert find(store, run) == [third, second, first]
    assert find(store, run, sort="price") == [first, second, third]


def test_a_draft_gets_its_serial_when_it_is_first_shown(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    draft = add(store, run, alice, is_active=False)
    lamp = add(store, run, alice)
    assert run_all_steps(store, run) == 2
    assert find(store, run) == [lamp]
    change(store, run, draft, is_active=True)
    run_all_steps(store, run)
    assert find(store, run) == [draft, lamp]


def disable(store: Store, run: Run, account: Account, disabled_at: int | None) -> None:
    run(store.change_account(account.id, lambda _: {"disabled_at": disabled_at}))


def test_listings_of_a_disabled_account_are_hidden_immediately(store: Store, run: Run) -> None:
    alice, bob = (open_account(store, run, name) for name in ("alice", "bob"))
    ids = [add(store, run, account, price_cents=9, region="Otago") for account in (alice, bob) * 12]
    bobs_ids = ids[1::2]
    run_all_steps(store, run)
    disable(store, run, alice, 5)
    all_queries: list[dict[str, Any]] = [{}, {"sort": "price"}, {"sort": "-price"}, {"price_min": 1}, {"price_max": 9}]
    for query in all_queries:
        assert sorted(find(store, run, **query)) == bobs_ids
    run(store.index_market(5, INDEXER, 1_000.0))
    disable(store, run, alice, None)
    run_all_steps(store, run)
    for query in all_queries:
        assert sorted(find(store, run, **query)) == ids
    disable(store, run, alice, 6)
    late = add(store, run, alice)
    run_all_steps(store, run)
    for query in all_queries:
        assert sorted(find(store, run, **query)) == bobs_ids
    assert [entry.listing_id for entry in run(store.page_sitemap(0, 100))] == bobs_ids
    disable(store, run, alice, None)
    run(store.index_market(5, INDEXER, 1_000.0))
    assert set(bobs_ids) < set(find(store, run)) < {*ids, late}
    run_all_steps(store, run)
    assert find(store, run, limit=99) == [late, *reversed(ids)]


def test_an_expired_plan_hides_nothing(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    lamp = add(store, run, alice)
    run_all_steps(store, run)
    run(store.change_account(alice.id, lambda _: {"plan_expires_at": 5}))
    run_all_steps(store, run)
    assert find(store, run) == [lamp]


def test_views_and_empty_changes_leave_nothing_to_index(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    lamp = add(store, run, alice)
    run_all_steps(store, run)
    run(store.record_views(DAY, {lamp: [b"v" * 16]}))
    change(store, run, lamp)
    assert run_all_steps(store, run) == 0


def test_one_indexer_holds_the_lease_until_it_expires(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    for _ in range(4):
        add(store, run, alice)
    assert run(store.index_market(1, INDEXER, 1_000.0)).done == 1
    assert run(store.index_market(1, OTHER_INDEXER, 1_001.0)) == IndexResult(0)
    assert run(store.index_market(1, INDEXER, 1_002.0)).has_more
    assert run(store.index_market(1, OTHER_INDEXER, 1_004.0)).done == 0
    assert run(store.index_market(1, OTHER_INDEXER, 1_006.0)).done == 1
    assert run(store.index_market(1, INDEXER, 1_006.0)).done == 0
    assert run(store.index_market(1, INDEXER, 5.0)).done == 1  # the other indexer's clock was far ahead


def test_a_step_reports_other_writes_since_the_previous_step(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    for _ in range(4):
        add(store, run, alice)
    steps = [run(store.index_market(1, INDEXER, 1_000.0)) for _ in range(3)]
    add(store, run, alice)
    steps.append(run(store.index_market(1, INDEXER, 1_000.0)))
    assert [step.contended for step in steps] == [False, False, False, True]
    assert all(step.seconds > 0 for step in steps)


def test_a_step_with_long_listings_ends_early(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    for _ in range(5):
        add(store, run, alice, content="word " * 16_000)
    step = run(store.index_market(100, INDEXER, 1_000.0))
    assert (step.done, step.has_more) == (3, True)
    step = run(store.index_market(100, INDEXER, 1_000.0))
    assert (step.done, step.has_more) == (2, False)


def test_cursors_beyond_all_listings_find_all_or_nothing(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    lamp = add(store, run, alice, price_cents=99_999_999_999)
    run_all_steps(store, run)
    far = 2**62
    for cursor, newest, cheapest, dearest in (
        ((far, far), [lamp], [], [lamp]),
        ((-far, -far), [], [lamp], []),
        ((99_999_999_999, 1), [], [], []),
    ):
        assert find(store, run, after=cursor) == newest
        assert find(store, run, after=cursor, sort="price") == cheapest
        assert find(store, run, after=cursor, sort="-price") == dearest


def test_text_that_an_engine_cannot_store_finds_nothing(store: Store, run: Run) -> None:
    add(store, run, open_account(store, run, "alice"))
    run_all_steps(store, run)
    assert find(store, run, region="\0") == find(store, run, text="zebra") == []


# Regions, categories and the sitemap


def test_regions_and_categories_are_counted_over_visible_listings(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    lamp = add(store, run, alice, region="Otago", category="Lamps")
    for _ in range(2):
        add(store, run, alice, region="Wellington", category="Bikes")
    add(store, run, alice, region="Nelson", category="Boats", is_active=False)
    add(store, run, alice)
    run_all_steps(store, run)
    assert run(store.list_market_facets(5)) == ({"Wellington": 2, "Otago": 1}, {"Bikes": 2, "Lamps": 1})
    assert run(store.list_market_facets(1)) == ({"Wellington": 2}, {"Bikes": 2})
    change(store, run, lamp, region="Wellington", category="")
    run_all_steps(store, run)
    assert run(store.list_market_facets(5)) == ({"Wellington": 3}, {"Bikes": 2})


def test_a_listing_is_in_the_region_that_its_text_names(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    names = ("Christchurch", "canterbury", "Canterbury", "Elsewhere")
    ids = [add(store, run, alice, region=name) for name in names]
    run_all_steps(store, run)
    assert run(store.list_market_facets(5)).regions == {"Canterbury": 3, "Elsewhere": 1}
    assert sorted(find(store, run, region="canterbury")) == sorted(find(store, run, region="Canterbury")) == ids[:3]
    assert find(store, run, text="christchurch") == ids[:1]
    change(store, run, ids[0], region="Elsewhere")
    run_all_steps(store, run)
    assert run(store.list_market_facets(5)).regions == {"Canterbury": 2, "Elsewhere": 2}


def test_the_spellings_of_a_category_are_one(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    ids = [add(store, run, alice, category=name, price_cents=1) for name in ("bikes", "Bike", "★")]
    run_all_steps(store, run)
    for prices in ({}, {"price_min": 1}):
        assert find(store, run, category="BIKES", **prices) == [ids[1], ids[0]]
        assert find(store, run, category="★", **prices) == [ids[2]]


def test_the_listings_of_a_seller_are_counted_and_paged(store: Store, run: Run) -> None:
    alice, bob = open_account(store, run, "alice"), open_account(store, run, "bob")
    ids = [add(store, run, alice, title=f"Bicycle {number}") for number in range(4)]
    add(store, run, bob)
    add(store, run, alice, is_active=False)
    run_all_steps(store, run)
    change(store, run, ids[1], is_active=False)
    run_all_steps(store, run)
    first = run(store.page_seller_listings(alice.id, MAX_ID, 2))
    assert [entry.id for entry in first] == [ids[3], ids[2]]
    assert first[0].title == "Bicycle 3"
    assert [entry.id for entry in run(store.page_seller_listings(alice.id, ids[2], 2))] == [ids[0]]
    assert [run(store.count_seller_listings(alice.id, limit)) for limit in (2, 9)] == [2, 3]


def test_the_sitemap_continues_after_a_serial(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice")
    ids = [add(store, run, alice) for _ in range(5)]
    run_all_steps(store, run)
    change(store, run, ids[1], is_active=False)
    change(store, run, ids[2], updated_at="2026-11-22 10:00:00")
    run_all_steps(store, run)
    page = run(store.page_sitemap(0, 3))
    assert [entry.listing_id for entry in page] == [ids[0], ids[2], ids[3]]
    assert page[1].updated_at == "2026-11-22 10:00:00"
    assert [entry.listing_id for entry in run(store.page_sitemap(page[-1].serial, 3))] == [ids[4]]
    assert run(store.page_sitemap(2**62, 3)) == []


# Views


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
