"""The market: public listings, view counts, and background indexing."""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from listings.contract.market import IndexResult
from listings.domain.errors import Problem, Unavailable
from listings.domain.model import Caller, Listing, ListingQuery, MarketQuery, NewListing
from listings.service import Options, Services
from listings.service import market as market_service
from listings.service.indexing import compute_next_size
from listings.service.listings import search_unpriced_last
from listings.service.market import is_bot, results
from listings.service.market.results import MarketPage, MarketResults
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


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with Harness(tmp_path) as harness:
        yield harness


def authenticate(harness: Harness, name: str = "alice") -> Caller:
    return harness.run(harness.services.access.authenticate(harness.person(name).key))


def add_listing(harness: Harness, owner: Caller, **fields: Any) -> Listing:
    new = NewListing(**{"title": "Lamp", "content": "c", **fields})
    added = harness.run(harness.services.listings.create(owner, new))
    return harness.run(harness.services.moderation.get(added.listing_id))


def count_views(harness: Harness, listing: Listing) -> int:
    harness.run(harness.services.market.write_views())
    return harness.run(harness.services.moderation.get(listing.id)).view_count


def rejection_code(harness: Harness, listing_id: int) -> str:
    with pytest.raises(Problem) as caught:
        harness.run(harness.services.market.get_listing(listing_id))
    return caught.value.code


# Public listings


def test_a_page_has_the_cursor_of_the_next_one(harness: Harness) -> None:
    alice = authenticate(harness)
    ids = [add_listing(harness, alice, price_cents=price).id for price in (5, 3, 3)]
    assert harness.run(harness.services.market.index()) == 3
    first = harness.run(harness.services.market.search(MarketQuery(sort="price", limit=2)))
    assert [entry.id for entry in first.entries] == ids[1:]
    last = harness.run(harness.services.market.search(MarketQuery(sort="price", limit=2, after=first.next_cursor)))
    assert ([entry.id for entry in last.entries], last.next_cursor) == (ids[:1], None)


@pytest.mark.decision("G5")
@pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)
def test_listings_without_a_price_come_last_in_ascending_order(tmp_path: Path, engine: str) -> None:
    assert engine
    with Harness(tmp_path) as harness:
        alice, services = authenticate(harness), harness.services
        ids = [add_listing(harness, alice, price_cents=price).id for price in (0, 5, 0, 3, 0, 4)]
        harness.run(services.market.index())
        expected = [ids[number] for number in (3, 5, 1, 0, 2, 4)]
        for limit in range(1, 8):
            market, own = MarketQuery(sort="price", limit=limit), ListingQuery(sort="price", descending=False)
            search = services.market.search
            assert read_pages(harness, search, market) == expected
            find = partial(services.listings.find_unpriced_last, alice, limit=limit)
            assert read_pages(harness, find, own) == expected
        for limits, numbers in {(None, 4): (3, 5, 0, 2, 4), (4, None): (5, 1), (0, 0): (0, 2, 4), (4, 4): (5,)}.items():
            query = MarketQuery(sort="price", limit=2, price_min=limits[0], price_max=limits[1])
            assert read_pages(harness, services.market.search, query) == [ids[number] for number in numbers]


@pytest.mark.parametrize(
    ("limit", "price_min", "prices", "searches"),
    [(2, None, [1, 5], 1), (3, None, [1, 5, 0], 2), (9, 0, [1, 5, 0, 0], 2), (9, 1, [1, 5], 1)],
)
def test_listings_without_a_price_are_searched_only_if_needed(
    limit: int, price_min: int | None, prices: list[int], searches: int
) -> None:
    limits = []

    async def search(query: ListingQuery) -> list[int]:
        limits.append(query.limit)
        lowest, highest = query.price_min or 0, 5 if query.price_max is None else query.price_max
        return [price for price in (0, 0, 1, 5) if lowest <= price <= highest][: query.limit]

    query = ListingQuery(sort="price", descending=False, price_min=price_min)
    assert asyncio.run(search_unpriced_last(search, query, limit)) == prices
    assert len(limits) == searches


def read_pages(harness: Harness, search: Callable[..., Any], query: Any) -> list[int]:
    """Return the ids on all pages."""
    ids: list[int] = []
    page = harness.run(search(query))
    while page.next_cursor is not None:
        ids += [entry.id for entry in page[0]]
        page = harness.run(search(structs.replace(query, after=page.next_cursor)))
        assert page[0]  # no page leads to an empty one
    return ids + [entry.id for entry in page[0]]


def test_a_page_has_twenty_four_listings_by_default(harness: Harness) -> None:
    alice = authenticate(harness)
    for _ in range(25):
        add_listing(harness, alice)
    harness.run(harness.services.market.index())
    assert len(harness.run(harness.services.market.search(MarketQuery())).entries) == 24
    assert len(harness.run(harness.services.market.search(MarketQuery(limit=30))).entries) == 25


@pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)
@pytest.mark.parametrize("most", [1_000, 0], ids=["chosen among all matches", "searched"])
def test_pages_can_be_read_backwards(tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    assert engine
    monkeypatch.setattr(results, "MAX_COUNTED", most)
    with Harness(tmp_path) as harness:
        alice, market = authenticate(harness), harness.services.market
        for price in (0, 5, 0, 3, 0, 4, 3):
            add_listing(harness, alice, price_cents=price)
        harness.run(market.index())
        for query in (MarketQuery(sort=sort, limit=2) for sort in ("newest", "price", "-price")):
            find = partial(find_page, harness, query)
            pages = [harness.run(market.search(query))]
            while pages[-1].next_cursor is not None:
                pages.append(harness.run(market.search(structs.replace(query, after=pages[-1].next_cursor))))
            assert len(pages) == 4
            assert pages[0].previous_cursor is None
            for earlier, later in pairwise(pages):
                assert find(later.previous_cursor, is_backwards=True) == earlier
                assert find(earlier.next_cursor) == later
            second = pages[0].entries[1].cursor
            assert find(second, is_backwards=True) == pages[0]  # only one entry comes before
            assert find((0, 10**9) if query.sort == "price" else (0, 0)).entries == []


def find_page(
    harness: Harness, query: MarketQuery, cursor: tuple[int, int] | None, *, is_backwards: bool = False
) -> MarketPage:
    query = structs.replace(query, after=cursor)
    found: MarketResults = harness.run(harness.services.market.find(query, is_backwards=is_backwards))
    return found.page


def test_counts_depend_on_the_other_filters(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    alice, market = authenticate(harness), harness.services.market
    for kind, category in (("product", "Tools"), ("product", "Bikes"), ("product", "Tools"), ("job", "")):
        add_listing(harness, alice, type=kind, category=category)
    harness.run(market.index())

    page, total, facets = harness.run(market.find(MarketQuery(type="product", category="Tools")))
    assert [it.category for it in page.entries] == ["Tools", "Tools"]
    assert total == 2
    assert {name: it.listings for name, it in facets.items()} == {
        "type": {"product": 2},
        "category": {"Tools": 2, "Bikes": 1},
        "region": {},
    }
    assert all(it.is_complete for it in facets.values())
    monkeypatch.setattr(results, "MAX_COUNTED", 2)
    _, total, facets = harness.run(market.find(MarketQuery(type="product")))
    assert (total, facets["type"].is_complete) == (3, False)


def test_counts_of_too_many_results_are_cached_but_pages_are_not(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "MAX_COUNTED", 2)
    alice, market, query = authenticate(harness), harness.services.market, MarketQuery(type="product")
    listings = [add_listing(harness, alice, category="Tools") for _ in range(3)]
    harness.run(market.index())
    assert harness.run(market.find(query)).facets["category"].listings == {"Tools": 3}

    for listing in listings:
        harness.run(harness.services.listings.delete(alice, listing.id))
    bike = add_listing(harness, alice, category="Bikes")
    harness.run(market.index())
    page, total, facets = harness.run(market.find(query))
    assert ([it.id for it in page.entries], total, facets["category"].listings) == ([bike.id], 3, {"Tools": 3})
    assert harness.run(market.find(MarketQuery(type="product", category="Bikes"))).facets["type"].listings == {
        "product": 1
    }
    harness.clock.now += 10
    page, total, facets = harness.run(market.find(query))
    assert ([it.id for it in page.entries], total, facets["category"].listings) == ([bike.id], 1, {"Bikes": 1})


def test_the_spellings_of_a_category_are_counted_together(harness: Harness) -> None:
    alice, market = authenticate(harness), harness.services.market
    for category in ("bikes", "Tools", "Bikes", "Tools", "Bikes"):
        add_listing(harness, alice, category=category)
    harness.run(market.index())
    assert harness.run(market.list_facets()).categories == {"Bikes": 3, "Tools": 2}
    page, total, facets = harness.run(market.find(MarketQuery(category="bike")))
    assert (len(page.entries), total, facets["category"].listings) == (3, 3, {"Bikes": 3, "Tools": 2})


def test_a_misspelt_word_is_corrected_if_that_finds_something(harness: Harness) -> None:
    alice, market = authenticate(harness), harness.services.market
    add_listing(harness, alice, title="Bicycle bell", region="Wellington")
    add_listing(harness, alice, title="Guitar", region="Otago")
    harness.run(market.index())
    for text, suggestion in {
        "bycicle bels": "bicycle bell",
        "guitat welington": "guitar",
        "guitar bells": None,
        "gutar": "guitar",
        "icycle": None,
        "guitars": None,
        "bicyclebell": "bicycle bell",
        "I am looking for a bycicle in wellington": "bicycle wellington",
        "unicorn": None,
        "": None,
    }.items():
        assert harness.run(market.suggest(MarketQuery(text=text))).text == suggestion
    assert harness.run(market.suggest(MarketQuery(text="gutar", region="Wellington"))).text is None


def test_the_first_six_words_are_suggested_without_the_others(harness: Harness) -> None:
    alice, market, six = authenticate(harness), harness.services.market, "blue road bike strong carbon fork"
    add_listing(harness, alice, title=six)
    harness.run(market.index())
    assert harness.run(market.suggest(MarketQuery(text=f"{six} unicorn"))).text == six


def test_the_category_of_the_rarest_word_is_suggested(harness: Harness) -> None:
    alice, market = authenticate(harness), harness.services.market
    for title, category in (("Old guitar", "Music"), ("Guitar strings", "Music"), ("Guitar book", "Books")):
        add_listing(harness, alice, title=title, category=category)
    for _ in range(4):
        add_listing(harness, alice, title="Old lamp", category="Lamps")
    harness.run(market.index())
    add_listing(harness, alice, title="Red lamp", category="Lamps")
    add_listing(harness, alice, title="Red book", category="Books")
    harness.run(market.index())
    expected = {"old gutar unicorn": "Music", "lamp strings": "Music", "red unicorn": None, "unicorn": None}
    assert {text: harness.run(market.suggest(MarketQuery(text=text))).category for text in expected} == expected


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
    harness.run(harness.services.market.index())
    assert harness.run(harness.services.market.list_facets()) == ({"Wellington": 2, "Otago": 1}, {"Lamps": 3})
    add_listing(harness, alice, region="Nelson")
    harness.run(harness.services.market.index())
    assert "Nelson" not in harness.run(harness.services.market.list_facets()).regions
    harness.clock.now += 60
    assert "Nelson" in harness.run(harness.services.market.list_facets()).regions


# Views


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


def test_two_processes_count_one_visitor_once(harness: Harness) -> None:
    lamp = add_listing(harness, authenticate(harness))
    other = Services(harness.store, None, harness.clock)
    for services in (harness.services, other):
        services.market.record_view(lamp, "192.0.2.1", BROWSER)
        harness.run(services.market.write_views())
    assert count_views(harness, lamp) == 1


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


# The index


def test_background_tasks_store_views_and_index_listings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("listings.service.background_tasks._MARKET_SECONDS", 0.01)
    with MaintainedHarness(tmp_path) as harness:
        lamp = add_listing(harness, authenticate(harness))
        harness.services.market.record_view(lamp, "192.0.2.1", BROWSER)

        async def is_done() -> bool:
            page = await harness.services.market.search(MarketQuery())
            return bool(page.entries) and (await harness.services.moderation.get(lamp.id)).view_count == 1

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

    def __init__(self, *, contended: bool) -> None:
        self._contended = contended
        self.counts: list[int] = []

    async def index_market(self, count: int, _indexer: bytes, _now: float) -> IndexResult:
        if len(self.counts) == 20:
            raise Unavailable("Enough")
        self.counts.append(count)
        return IndexResult(count, has_more=True, seconds=0.03, preparing_seconds=0.02, contended=self._contended)


@pytest.mark.parametrize(("contended", "minimum", "maximum"), [(True, 0.03, 0.06), (False, 0.7, 0.9)])
def test_indexing_takes_its_share_of_the_time(
    contended: bool,  # noqa: FBT001 - a parameter of the test
    minimum: float,
    maximum: float,
) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    backlog: Any = Backlog(contended=contended)
    with pytest.raises(Unavailable):
        asyncio.run(Services(backlog, None, options=Options(pause=pause)).market.index())
    assert minimum <= 20 * 0.05 / (20 * 0.05 + sum(pauses)) <= maximum


def test_each_indexing_run_starts_with_a_small_step() -> None:
    async def pause(_: float) -> None:
        pass

    backlog: Any = Backlog(contended=False)
    services = Services(backlog, None, options=Options(pause=pause))
    for _ in range(2):
        backlog.counts.clear()
        with pytest.raises(Unavailable):
            asyncio.run(services.market.index())
        assert backlog.counts[0] == 16
        assert backlog.counts[1] == 32
