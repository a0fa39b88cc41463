"""The market: public listings, view counts, and background indexing."""

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from listings.domain.errors import Problem, Unavailable
from listings.domain.listings import ListResult
from listings.domain.market import IndexResult
from listings.domain.model import Caller, Listing, ListingQuery, MarketQuery, NewListing
from listings.service import Options, Services
from listings.service import market as market_service
from listings.service.indexing import compute_next_size
from listings.service.market import is_bot
from listings.service.market.caches import Cached
from listings.service.market.results import MarketResults
from tests.examples import build_listing
from tests.harness import Harness, MaintainedHarness

BROWSER = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
BOTS = (
    "",
    "  ",
    "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
    "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; bingbot/2.0) Chrome/120.0 Safari/537.36",
    "facebookexternalhit/1.1",
    "curl/8.5.0",
    "Wget/1.21",
    "python-requests/2.32",
    "Mozilla/5.0 HeadlessChrome/120.0",
    "Apache-HttpClient/4.5",
)


def authenticate(harness: Harness, name: str = "alice") -> Caller:
    return harness.run(harness.services.access.authenticate(harness.person(name).key))


def add_listing(harness: Harness, owner: Caller, **fields: Any) -> Listing:
    new = NewListing(**{"title": "Lamp", "content": "c", **fields})
    added = harness.run(harness.services.listings.create(owner, new))
    return harness.run(harness.services.moderation.get(added.listing_id))


def count_views(harness: Harness, listing: Listing) -> int:
    harness.run(harness.services.market.write_views())
    return harness.run(harness.services.moderation.get(listing.id)).view_count


def find(harness: Harness, *, is_backwards: bool = False, **query: Any) -> MarketResults:
    return harness.run(harness.services.market.find(MarketQuery(**query), is_backwards=is_backwards))


def find_ids(harness: Harness, **query: Any) -> list[int]:
    return [entry.id for entry in find(harness, **query).page.entries]


def rejection_code(harness: Harness, listing_id: int) -> str:
    with pytest.raises(Problem) as caught:
        harness.run(harness.services.market.get_listing(listing_id))
    return caught.value.code


@pytest.mark.decision("G5")
@pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)
def test_listings_without_a_price_come_last_in_both_orders(tmp_path: Path, engine: str) -> None:
    assert engine
    with Harness(tmp_path) as harness:
        alice = authenticate(harness)
        ids = [add_listing(harness, alice, price_cents=price).id for price in (0, 5, 0, 3, 0, 4)]
        harness.index_market()
        for limit in range(1, 8):
            assert read_pages(harness, sort="price", limit=limit) == [ids[number] for number in (3, 5, 1, 0, 2, 4)]
            assert read_pages(harness, sort="-price", limit=limit) == [ids[number] for number in (1, 5, 3, 4, 2, 0)]
            find_own = partial(harness.services.listings.find_unpriced_last, alice, limit=limit)
            own = ListingQuery(sort="price", descending=False)
            assert read_own_pages(harness, find_own, own) == [ids[number] for number in (3, 5, 1, 0, 2, 4)]
        for limits, numbers in {(None, 4): (3, 5, 0, 2, 4), (4, None): (5, 1), (0, 0): (0, 2, 4), (4, 4): (5,)}.items():
            found = read_pages(harness, sort="price", limit=2, price_min=limits[0], price_max=limits[1])
            assert found == [ids[number] for number in numbers]


@pytest.mark.parametrize(
    ("limit", "price_min", "prices", "searches"),
    [(1, None, [1], 1), (2, None, [1, 5], 2), (8, 0, [1, 5, 0, 0], 2), (8, 1, [1, 5], 1)],
)
def test_listings_without_a_price_are_searched_only_if_needed(
    limit: int,
    price_min: int | None,
    prices: list[int],
    searches: int,
    harness: Harness,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = []

    async def find_listings(_: int, __: int, query: ListingQuery) -> ListResult:
        limits.append(query.limit)
        lowest, highest = query.price_min or 0, 5 if query.price_max is None else query.price_max
        found = [build_listing(price_cents=price) for price in (0, 0, 1, 5) if lowest <= price <= highest]
        return ListResult(found[: query.limit])

    alice = authenticate(harness)
    monkeypatch.setattr(harness.services.revisions, "find_listings", find_listings)
    query = ListingQuery(sort="price", descending=False, price_min=price_min)
    page = harness.run(harness.services.listings.find_unpriced_last(alice, query, limit))
    assert [listing.price_cents for listing in page.listings] == prices
    assert len(limits) == searches


def read_own_pages(harness: Harness, search: Callable[..., Any], query: ListingQuery) -> list[int]:
    ids: list[int] = []
    page = harness.run(search(query))
    while page.next_cursor is not None:
        ids += [entry.id for entry in page[0]]
        page = harness.run(search(structs.replace(query, after=page.next_cursor)))
    return ids + [entry.id for entry in page[0]]


def read_pages(harness: Harness, **query: Any) -> list[int]:
    pages = [find(harness, **query).page]
    while pages[-1].next_cursor is not None:
        pages.append(find(harness, **query, after=pages[-1].next_cursor).page)
        assert pages[-1].entries  # no page leads to an empty one
    for earlier, later in pairwise(pages):
        back = find(harness, **query, after=later.previous_cursor, is_backwards=True).page
        assert [it.id for it in back.entries] == [it.id for it in earlier.entries]
        assert find(harness, **query, after=back.next_cursor).page.entries == later.entries
    assert pages[0].previous_cursor is None
    return [entry.id for page in pages for entry in page.entries]


@pytest.mark.parametrize("sort", ["newest", "oldest", "price", "-price"])
def test_equal_prices_are_in_one_order_on_all_pages(harness: Harness, sort: str) -> None:
    alice = authenticate(harness)
    ids = [add_listing(harness, alice, price_cents=7).id for _ in range(9)]
    harness.index_market()
    expected = ids if sort in {"oldest", "price"} else ids[::-1]
    assert read_pages(harness, sort=sort, limit=2) == expected
    harness.run(harness.services.listings.update(alice, ids[4], {"title": "Brass lamp"}))
    harness.index_market()
    assert read_pages(harness, sort=sort, limit=3) == expected


def test_the_best_matches_are_followed_by_the_rest(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("listings.search.results.MAX_RANKED", 5)
    monkeypatch.setattr("listings.service.market.results.MAX_RANKED", 5)
    owners = [authenticate(harness, name) for name in ("alice", "bob", "charlie")]
    mentioned = [add_listing(harness, owner, content="For a bike").id for owner in owners * 3]
    bikes = [add_listing(harness, owner, title="Bike").id for owner in owners]
    harness.index_market()
    found = read_pages(harness, text="bike", sort="best", limit=2)
    assert set(found[:3]) == set(bikes)
    assert sorted(found) == sorted([*mentioned, *bikes])


def test_a_page_has_twenty_four_listings_by_default(harness: Harness) -> None:
    alice = authenticate(harness)
    for _ in range(25):
        add_listing(harness, alice)
    harness.index_market()
    assert len(find(harness).page.entries) == 24
    assert len(find(harness, limit=30).page.entries) == 25


def test_a_cursor_beyond_all_listings_finds_all_or_nothing(harness: Harness) -> None:
    lamp = add_listing(harness, authenticate(harness), price_cents=99_999_999_999).id
    harness.index_market()
    far = 10**11 - 1, 10**18 - 1
    assert find_ids(harness, after=far) == find_ids(harness, after=(99, 0), sort="price") == [lamp]
    assert find_ids(harness, after=(0, 0)) == find_ids(harness, after=far, sort="price") == []
    assert find_ids(harness, after=far, sort="-price") == [lamp]


def test_counts_are_exact_and_each_filter_is_counted_without_itself(harness: Harness) -> None:
    alice = authenticate(harness)
    for kind, category in (("product", "Tools"), ("product", "Bikes"), ("product", "tool"), ("job", "")):
        add_listing(harness, alice, type=kind, category=category, region="Chch")
    harness.index_market()
    found = find(harness, type="product", category="Tools")
    assert {it.category for it in found.page.entries} == {"Tools", "tool"}
    assert found.counts is not None
    assert found.counts.total == 2
    assert found.counts.values == {
        "type": {"product": 2},
        "category": {"Tools": 1, "tool": 1, "Bikes": 1},
        "region": {"Canterbury": 2},
    }


def test_counts_are_cached_for_ten_seconds_but_pages_are_not(harness: Harness) -> None:
    alice = authenticate(harness)
    listings = [add_listing(harness, alice, category="Tools") for _ in range(3)]
    harness.index_market()
    assert find(harness, text="lamp").counts == (3, {"type": {"product": 3}, "category": {"Tools": 3}, "region": {}})
    for listing in listings:
        harness.run(harness.services.listings.delete(alice, listing.id))
    bike = add_listing(harness, alice, category="Bikes")
    harness.index_market()
    found = find(harness, text="lamp")
    assert ([it.id for it in found.page.entries], found.counts and found.counts.total) == ([bike.id], 3)
    harness.clock.now += 10
    assert find(harness, text="lamp").counts == (1, {"type": {"product": 1}, "category": {"Bikes": 1}, "region": {}})


def test_a_hidden_listing_is_never_shown_whatever_the_lag(harness: Harness) -> None:
    alice, bob = authenticate(harness), authenticate(harness, "bob")
    ids = [add_listing(harness, alice, price_cents=5, region="Otago").id for _ in range(30)]
    lamp = add_listing(harness, bob, price_cents=5, region="Otago").id
    harness.index_market()
    listings = harness.services.listings
    harness.run(listings.delete(alice, ids[0]))
    harness.run(listings.update(alice, ids[1], {"is_active": False}))
    harness.run(listings.update(alice, ids[2], {"region": "Nelson"}))
    harness.run(listings.update(alice, ids[3], {"price_cents": 900}))
    filters = {"region": "Otago", "price_max": 100, "limit": 40}
    for query in ({"text": "lamp", "sort": "best"}, {"sort": "newest"}, {"sort": "oldest"}, {"sort": "price"}):
        assert set(find_ids(harness, **filters, **query)) == {*ids[4:], lamp}
    harness.run(harness.services.accounts.disable(str(alice.account_id)))
    harness.clock.now += 10
    found = find(harness, text="lamp", sort="best")
    assert [it.id for it in found.page.entries] == [lamp]
    assert found.counts is not None
    assert found.counts.total == 1


def test_one_seller_does_not_fill_the_best_matches(harness: Harness) -> None:
    alice, bob = authenticate(harness), authenticate(harness, "bob")
    boats = [add_listing(harness, alice, title="Red lamp").id for _ in range(3)]
    for _ in range(12):
        add_listing(harness, bob, title="Red lamp")
    harness.index_market()
    owners = [it.id in boats for it in find(harness, text="lamp", sort="best").page.entries]
    assert [number for number, is_boat in enumerate(owners) if is_boat] == [4, 9, 14]


def test_the_home_page_has_at_most_two_listings_of_a_seller(harness: Harness) -> None:
    market = harness.services.market
    owners = [authenticate(harness, f"seller{number}") for number in range(7)]
    for owner in owners:
        for number in range(3):
            images = '["https://pictures.example/1.jpg"]' if number == 2 else "[]"
            add_listing(harness, owner, images=images, type="rental")
    crowd = [add_listing(harness, owners[0]).id for _ in range(30)]
    harness.index_market()
    newest = harness.run(market.list_newest())
    assert len(newest) == 12
    assert len({it.id % 1024 for it in newest}) >= 6
    assert len({it.id for it in newest} & set(crowd)) == 2
    assert [bool(it.image) for it in newest] == sorted((bool(it.image) for it in newest), reverse=True)
    assert len(harness.run(market.list_highlights())[1]) == 6


def test_without_an_index_the_newest_listings_are_shown(harness: Harness) -> None:
    market, alice = harness.services.market, authenticate(harness)
    ids = [add_listing(harness, alice, category="Lamps", region="Otago").id for _ in range(3)]
    harness.run(market.stamp())
    first = find(harness, limit=2)
    assert ([it.id for it in first.page.entries], first.counts) == ([ids[2], ids[1]], None)
    assert find_ids(harness, limit=2, after=first.page.next_cursor) == [ids[0]]
    assert harness.run(market.list_facets()) == ({"Otago": 3}, {"Lamps": 3})
    assert [it.id for it in harness.run(market.list_newest())] == ids[::-1]
    add_listing(harness, authenticate(harness, "bob"))
    harness.run(market.stamp())
    own = find(harness, account_id=alice.account_id, limit=2)
    assert [it.id for it in own.page.entries] == [ids[2], ids[1]]
    rest = find(harness, account_id=alice.account_id, limit=2, after=own.page.next_cursor)
    assert ([it.id for it in rest.page.entries], rest.page.next_cursor) == ([ids[0]], None)
    for text, region in (("lamp", None), ("", "Otago")):
        with pytest.raises(Unavailable, match="Search is being prepared"):
            find(harness, text=text, region=region)


def test_the_spellings_of_a_category_are_counted_together(harness: Harness) -> None:
    alice, market = authenticate(harness), harness.services.market
    for category in ("bikes", "Tools", "Bikes", "Tools", "Bikes", "Bicycle"):
        add_listing(harness, alice, category=category)
    harness.index_market()
    assert harness.run(market.list_facets()).categories == {"Bikes": 4, "Tools": 2}
    assert len(find(harness, category="bike").page.entries) == 4


def add_guitars(harness: Harness) -> None:
    for name in ("alice", "bob", "charlie"):
        owner = authenticate(harness, name)
        add_listing(harness, owner, title="Acoustic guitar", category="Music", region="Otago")
        add_listing(harness, owner, title="Brass lamp", category="Lamps")


@pytest.mark.decision("G51")
def test_a_misspelt_word_is_corrected_to_a_common_one(harness: Harness) -> None:
    add_guitars(harness)
    dave = authenticate(harness, "dave")
    for _ in range(4):
        add_listing(harness, dave, title="Gultar 3000")
    harness.index_market()
    for text, suggestion in {
        "gutar": "guitar",
        "gitaur": "guitar",
        "acustic gutar": "acoustic guitar",
        "bras": None,  # the beginning of a word
        "3001": None,
        "unicorn": None,
    }.items():
        assert find(harness, text=text, sort="best").suggestion.text == suggestion, text
    assert find(harness, text="gutar", sort="best", region="Nelson").suggestion.text is None


@pytest.mark.decision("G51")
def test_the_best_results_for_some_words_are_shown(harness: Harness) -> None:
    add_guitars(harness)
    harness.index_market()
    for text, left_out, title in (
        ("acoustic guitar unicorn", ["unicorn"], "Acoustic guitar"),
        ("guitar lamp brass", ["guitar"], "Brass lamp"),
    ):
        found = find(harness, text=text, sort="best")
        assert (list(found.left_out), {it.title for it in found.page.entries}) == (left_out, {title})
        assert found.counts is not None
        assert found.counts.total == 3
    assert find(harness, text="unicorn zebra", sort="best").page.entries == []


def test_frequent_words_are_those_of_several_sellers(harness: Harness) -> None:
    add_guitars(harness)
    alice = authenticate(harness)
    for _ in range(5):
        add_listing(harness, alice, title="Zebra")
    harness.index_market()
    assert set(harness.run(harness.services.market.list_frequent_words())) == {"acoustic", "brass", "guitar", "lamp"}


def test_a_listing_is_public_while_it_and_its_account_are_active(harness: Harness) -> None:
    alice = authenticate(harness)
    lamp, boat, draft = (
        add_listing(harness, alice),
        add_listing(harness, alice),
        add_listing(harness, alice, is_active=False),
    )
    assert harness.run(harness.services.market.get_listing(lamp.id)) == lamp
    harness.run(harness.services.listings.delete(alice, boat.id))
    assert rejection_code(harness, boat.id) == "listing_deleted"
    assert {rejection_code(harness, one) for one in (draft.id, 0, -1, lamp.id + 1024 * 99, 2**63)} == {
        "listing_not_found"
    }
    harness.run(harness.services.accounts.expire_plan(str(alice.account_id)))
    assert harness.run(harness.services.market.get_listing(lamp.id)) == lamp
    harness.run(harness.services.accounts.disable(str(alice.account_id)))
    assert rejection_code(harness, lamp.id) == "listing_not_found"


def test_facets_are_counted_and_cached_for_a_minute(harness: Harness) -> None:
    alice = authenticate(harness)
    for region in ("Wellington", "otago", "Wellington"):
        add_listing(harness, alice, region=region, category="Lamps")
    harness.index_market()
    assert harness.run(harness.services.market.list_facets()) == ({"Wellington": 2, "Otago": 1}, {"Lamps": 3})
    add_listing(harness, alice, region="Nelson")
    harness.index_market()
    assert "Nelson" not in harness.run(harness.services.market.list_facets()).regions
    harness.clock.now += 60
    assert "Nelson" in harness.run(harness.services.market.list_facets()).regions


def test_a_visitor_counts_once_per_listing_and_day(harness: Harness) -> None:
    lamp, boat = (add_listing(harness, authenticate(harness, name)) for name in ("alice", "bob"))
    for _ in range(2):
        harness.services.market.record_view(lamp, "192.0.2.1", BROWSER)
        harness.services.market.record_view(boat, "192.0.2.1", BROWSER)
        assert count_views(harness, lamp) == count_views(harness, boat) == 1
    harness.services.market.record_view(lamp, "192.0.2.2", BROWSER)
    harness.services.market.record_view(lamp, "192.0.2.1", BROWSER + " x")
    assert count_views(harness, lamp) == 3


@pytest.mark.decision("G8")
def test_a_visitor_counts_again_on_the_next_utc_day(harness: Harness) -> None:
    lamp = add_listing(harness, authenticate(harness))
    harness.clock.now += 86_399 - harness.clock.now % 86_400
    harness.services.market.record_view(lamp, "192.0.2.1", BROWSER)
    harness.clock.now += 1
    harness.services.market.record_view(lamp, "192.0.2.1", BROWSER)
    harness.services.market.record_view(lamp, "192.0.2.1", BROWSER)
    assert count_views(harness, lamp) == 2


@pytest.mark.decision("G8")
@pytest.mark.parametrize("agent", BOTS)
def test_a_bot_is_not_counted(harness: Harness, agent: str) -> None:
    lamp = add_listing(harness, authenticate(harness))
    harness.services.market.record_view(lamp, "192.0.2.1", agent)
    assert count_views(harness, lamp) == 0


@pytest.mark.parametrize(
    "agent",
    [
        BROWSER,
        "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 Version/18.5 Mobile Safari/604.1",
        "Mozilla/5.0 (Linux; Android 15; Pixel 9) AppleWebKit/537.36 Chrome/139.0.0.0 Safari/537.36",
        "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/139.0.0.0 Safari/537.36 Edg/139.0.0.0",
        "Mozilla/5.0 (Linux; Android 13; CUBOT P80) AppleWebKit/537.36 Chrome/139.0.0.0 Mobile Safari/537.36",
        "Opera/9.80 (J2ME/MIDP; Opera Mini/9) Presto/2.12",
    ],
)
def test_a_browser_is_not_a_bot(agent: str) -> None:
    assert not is_bot(agent)


def test_pending_views_survive_an_unavailable_store_and_are_bounded(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(market_service, "_MAX_PENDING_VIEWS", 3)
    lamp = add_listing(harness, authenticate(harness))
    for number in range(5):
        harness.services.market.record_view(lamp, f"192.0.2.{number}", BROWSER)
    store = harness.store
    with Harness(tmp_path / "other") as other:
        other.run(other.store.close())
        monkeypatch.setattr(harness.services.market, "_store", other.store)
        harness.run(harness.services.market.write_views())
    monkeypatch.setattr(harness.services.market, "_store", store)
    assert count_views(harness, lamp) == 3


def test_views_are_stored_in_batches_on_their_day(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(market_service, "_VIEW_BATCH_SIZE", 2)
    lamp = add_listing(harness, authenticate(harness))
    for _ in range(2):
        for number in range(5):
            harness.services.market.record_view(lamp, f"192.0.2.{number}", BROWSER)
        harness.clock.now += 86_400
    assert count_views(harness, lamp) == 10


def test_visitors_are_purged_a_minute_after_midnight(harness: Harness) -> None:
    lamp = add_listing(harness, authenticate(harness))
    harness.clock.now += 86_399 - harness.clock.now % 86_400
    day = int(harness.clock.now) // 86_400
    harness.services.market.record_view(lamp, "192.0.2.1", BROWSER)
    harness.run(harness.services.market.write_views())
    store = harness.store
    salt = harness.run(store.get_view_salt(day))
    harness.clock.now += 60
    harness.run(harness.services.market.purge_views())
    assert harness.run(store.get_view_salt(day)) == salt
    harness.clock.now += 1
    harness.run(harness.services.market.purge_views())
    assert harness.run(store.purge_views(day + 1, 10)) == 0
    assert harness.run(store.get_view_salt(day)) != salt


def test_background_tasks_store_views_and_number_listings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("listings.service.background_tasks.MARKET_SECONDS", 0.01)
    with MaintainedHarness(tmp_path) as harness:
        lamp = add_listing(harness, authenticate(harness))
        harness.services.market.record_view(lamp, "192.0.2.1", BROWSER)

        async def is_done() -> bool:
            return (
                bool(await harness.store.page_newest())
                and (await harness.services.moderation.get(lamp.id)).view_count == 1
            )

        async def wait() -> None:
            while not await is_done():  # noqa: ASYNC110 - polls the store
                await asyncio.sleep(0.01)

        harness.run(asyncio.wait_for(wait(), 120))


def test_views_are_stored_when_the_service_stops(tmp_path: Path) -> None:
    with Harness(tmp_path) as harness:
        lamp = add_listing(harness, authenticate(harness))
        harness.services.market.record_view(lamp, "192.0.2.1", BROWSER)
    with Harness(tmp_path) as harness:
        assert harness.run(harness.services.moderation.get(lamp.id)).view_count == 1


def test_a_step_grows_slowly_and_shrinks_immediately() -> None:
    assert compute_next_size(64, IndexResult(64, has_more=True, seconds=0.000_1)) == 128
    assert compute_next_size(64, IndexResult(64, has_more=True, seconds=0.1)) == 64
    assert compute_next_size(100, IndexResult(100, has_more=True, seconds=0.02, contended=True)) == 5
    assert compute_next_size(2_000, IndexResult(2_000, has_more=True, seconds=10)) == 20
    assert compute_next_size(64, IndexResult(1, has_more=True, seconds=5)) == 4
    assert compute_next_size(2_000, IndexResult(2_000, has_more=True, seconds=0.000_1)) == 2_000
    assert compute_next_size(64, IndexResult(64, has_more=True)) == 64


class Backlog:
    """A store that always has more to index. `contended` simulates concurrent writes."""

    def __init__(self, *, contended: bool, delays_reads: bool = True) -> None:
        self._contended = contended
        self._delays_reads = delays_reads
        self.counts: list[int] = []

    async def stamp_market(self, count: int, _holder: bytes, _now: float) -> IndexResult:
        return await self.index_accounts(count)

    async def index_accounts(self, count: int) -> IndexResult:
        if len(self.counts) == 20:
            raise Unavailable("Enough")
        self.counts.append(count)
        return IndexResult(
            count,
            has_more=True,
            seconds=0.03,
            contended=self._contended,
            delays_reads=self._delays_reads,
        )


@pytest.mark.parametrize("method", ["stamp", "index_accounts"])
@pytest.mark.parametrize(
    ("contended", "delays_reads", "requests", "minimum", "maximum"),
    [
        (True, True, 1, 0.03, 0.06),
        (False, True, 1, 0.2, 0.3),
        (False, False, 1, 0.7, 0.9),
        (False, True, 0, 0.7, 0.9),
    ],
    ids=["writes", "reads", "reads of another process", "idle"],
)
def test_indexing_takes_its_share_of_the_time(
    method: str,
    contended: bool,  # noqa: FBT001 - a parameter of the test
    delays_reads: bool,  # noqa: FBT001 - likewise
    requests: int,
    minimum: float,
    maximum: float,
) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        for _ in range(requests):
            services.usage.record_response(Caller(1, 1, 1, None, None, None, None, "write"), 200)

    backlog: Any = Backlog(contended=contended, delays_reads=delays_reads)
    services = Services(backlog, None, options=Options(pause=pause))
    with pytest.raises(Unavailable):
        asyncio.run(getattr(services.market, method)())
    assert minimum <= 20 * 0.03 / (20 * 0.03 + sum(pauses)) <= maximum


def test_each_indexing_run_starts_with_a_small_step() -> None:
    async def pause(_: float) -> None:
        pass

    backlog: Any = Backlog(contended=False)
    services = Services(backlog, None, options=Options(pause=pause))
    for _ in range(2):
        backlog.counts.clear()
        with pytest.raises(Unavailable):
            asyncio.run(services.market.stamp())
        assert backlog.counts[0] == 16
        assert backlog.counts[1] == 32


def test_simultaneous_readers_of_a_cache_share_one_read() -> None:
    reads: list[None] = []

    async def read() -> int:
        reads.append(None)
        await asyncio.sleep(0)
        return len(reads)

    async def use() -> None:
        cached = Cached[int](lambda: 0.0, 10)
        gone, *waiting = (asyncio.ensure_future(cached.get(read)) for _ in range(3))
        await asyncio.sleep(0)
        gone.cancel()
        assert await asyncio.gather(*waiting) == [1, 1]
        assert await cached.get(read) == 1

    asyncio.run(use())


def test_a_failed_read_of_a_cache_is_repeated() -> None:
    reads: list[None] = []

    async def read() -> int:
        reads.append(None)
        await asyncio.sleep(0)
        if len(reads) == 1:
            raise Unavailable("The database can't be read")
        return len(reads)

    async def use() -> None:
        cached = Cached[int](lambda: 0.0, 10)
        failed = await asyncio.gather(cached.get(read), cached.get(read), return_exceptions=True)
        assert [type(error) for error in failed] == [Unavailable, Unavailable]
        assert await cached.get(read) == 2

    asyncio.run(use())
