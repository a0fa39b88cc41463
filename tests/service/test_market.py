"""The market's rules: who counts as a visitor, what is public, and how the index keeps up with what is written."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from listings.contract.listings import IndexStep
from listings.domain.errors import Problem, Unavailable
from listings.domain.model import Caller, Listing, MarketQuery, NewListing
from listings.service import Service
from listings.service import market as market_service
from listings.service.indexing import next_size
from listings.service.market import is_robot
from tests.harness import Harness, MaintainedHarness

BROWSER = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
ROBOTS = (
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


def caller(harness: Harness, name: str = "alice") -> Caller:
    return harness.run(harness.service.authenticate(harness.person(name).key))


def add(harness: Harness, owner: Caller, **fields: Any) -> Listing:
    new = NewListing(**{"title": "Lamp", "content": "c", **fields})
    added = harness.run(harness.service.create_listing(owner, new))
    return harness.run(harness.service.find_listing(added.listing_id))


def count_of(harness: Harness, listing: Listing) -> int:
    harness.run(harness.service.write_views())
    return harness.run(harness.service.find_listing(listing.id)).view_count


def refusal(harness: Harness, listing_id: int) -> str:
    with pytest.raises(Problem) as caught:
        harness.run(harness.service.read_public_listing(listing_id))
    return caught.value.code


# What is public


def test_a_page_tells_where_the_next_one_begins(harness: Harness) -> None:
    alice = caller(harness)
    ids = [add(harness, alice, price_cents=price).id for price in (5, 3, 3)]
    assert harness.run(harness.service.index_market()) == 3
    first = harness.run(harness.service.search_market(MarketQuery(sort="price", limit=2)))
    assert [entry.id for entry in first.entries] == ids[1:]
    last = harness.run(harness.service.search_market(MarketQuery(sort="price", limit=2, after=first.next)))
    assert ([entry.id for entry in last.entries], last.next) == (ids[:1], None)


def test_a_page_has_twenty_four_listings_unless_more_are_asked_for(harness: Harness) -> None:
    alice = caller(harness)
    for _ in range(25):
        add(harness, alice)
    harness.run(harness.service.index_market())
    assert len(harness.run(harness.service.search_market(MarketQuery())).entries) == 24
    assert len(harness.run(harness.service.search_market(MarketQuery(limit=30))).entries) == 25


def test_a_search_for_too_many_words_is_refused(harness: Harness) -> None:
    words = tuple(f"w{number}" for number in range(20))
    assert harness.run(harness.service.search_market(MarketQuery(words=(*words, "w0")))).entries == []
    with pytest.raises(Problem, match="at most 20 words"):
        harness.run(harness.service.search_market(MarketQuery(words=(*words, "one more"))))


def test_the_public_page_of_a_listing_is_there_while_it_is_on_show(harness: Harness) -> None:
    alice = caller(harness)
    lamp, boat, draft = add(harness, alice), add(harness, alice), add(harness, alice, is_active=False)
    assert harness.run(harness.service.read_public_listing(lamp.id)) == lamp
    harness.run(harness.service.close_listing(alice, boat.id))
    assert refusal(harness, boat.id) == "listing_deleted"
    assert {refusal(harness, one) for one in (draft.id, 0, -1, lamp.id + 1024 * 99, 2**63)} == {"listing_not_found"}
    harness.run(harness.service.expire_plan(str(alice.account_id)))
    assert harness.run(harness.service.read_public_listing(lamp.id)) == lamp
    harness.run(harness.service.disable_account(str(alice.account_id)))
    assert refusal(harness, lamp.id) == "listing_not_found"


def test_places_are_sorted_and_kept_for_a_minute(harness: Harness) -> None:
    alice = caller(harness)
    for region in ("Wellington", "otago", "Wellington"):
        add(harness, alice, region=region, category="Lamps")
    harness.run(harness.service.index_market())
    assert harness.run(harness.service.market_places()) == (["otago", "Wellington"], ["Lamps"])
    add(harness, alice, region="Nelson")
    harness.run(harness.service.index_market())
    assert "Nelson" not in harness.run(harness.service.market_places()).regions
    harness.clock.now += 60
    assert "Nelson" in harness.run(harness.service.market_places()).regions


# Views


def test_two_loads_of_one_visitor_on_a_day_count_once_for_each_listing(harness: Harness) -> None:
    lamp, boat = (add(harness, caller(harness, name)) for name in ("alice", "bob"))
    for _ in range(2):
        harness.service.record_view(lamp, "192.0.2.1", BROWSER)
        harness.service.record_view(boat, "192.0.2.1", BROWSER)
        assert count_of(harness, lamp) == count_of(harness, boat) == 1
    harness.service.record_view(lamp, "192.0.2.2", BROWSER)
    harness.service.record_view(lamp, "192.0.2.1", BROWSER + " x")
    assert count_of(harness, lamp) == 3


@pytest.mark.decision("G8")
def test_the_next_day_in_utc_counts_again(harness: Harness) -> None:
    lamp = add(harness, caller(harness))
    harness.clock.now += 86_399 - harness.clock.now % 86_400
    harness.service.record_view(lamp, "192.0.2.1", BROWSER)
    harness.clock.now += 1
    harness.service.record_view(lamp, "192.0.2.1", BROWSER)
    harness.service.record_view(lamp, "192.0.2.1", BROWSER)
    assert count_of(harness, lamp) == 2


@pytest.mark.decision("G8")
@pytest.mark.parametrize("agent", ROBOTS)
def test_a_robot_counts_nothing(harness: Harness, agent: str) -> None:
    lamp = add(harness, caller(harness))
    harness.service.record_view(lamp, "192.0.2.1", agent)
    assert count_of(harness, lamp) == 0


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
def test_a_browser_is_no_robot(agent: str) -> None:
    assert not is_robot(agent)


def test_views_wait_while_the_store_is_away_and_are_bounded(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(market_service, "_MOST_VIEWS", 3)
    lamp = add(harness, caller(harness))
    for number in range(5):
        harness.service.record_view(lamp, f"192.0.2.{number}", BROWSER)
    store = harness.service.store
    with Harness(tmp_path / "other") as other:
        other.run(other.service.store.close())
        harness.service.store = other.service.store
        harness.run(harness.service.write_views())
    harness.service.store = store
    assert count_of(harness, lamp) == 3


def test_many_views_are_stored_some_at_a_time_each_on_its_day(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(market_service, "_VIEWS_AT_ONCE", 2)
    lamp = add(harness, caller(harness))
    for _ in range(2):
        for number in range(5):
            harness.service.record_view(lamp, f"192.0.2.{number}", BROWSER)
        harness.clock.now += 86_400
    assert count_of(harness, lamp) == 10


def test_two_processes_count_one_visitor_once(harness: Harness) -> None:
    lamp = add(harness, caller(harness))
    other = Service(harness.service.store, None, harness.clock)
    for service in (harness.service, other):
        service.record_view(lamp, "192.0.2.1", BROWSER)
        harness.run(service.write_views())
    assert count_of(harness, lamp) == 1


def test_yesterdays_visitors_are_forgotten_a_minute_after_midnight(harness: Harness) -> None:
    lamp = add(harness, caller(harness))
    harness.clock.now += 86_399 - harness.clock.now % 86_400
    day = int(harness.clock.now) // 86_400
    harness.service.record_view(lamp, "192.0.2.1", BROWSER)
    harness.run(harness.service.write_views())
    store = harness.service.store
    salt = harness.run(store.get_view_salt(day))
    harness.clock.now += 60
    harness.run(harness.service.purge_views())
    assert harness.run(store.get_view_salt(day)) == salt
    harness.clock.now += 1
    harness.run(harness.service.purge_views())
    assert harness.run(store.purge_views(day + 1, 10)) == 0
    assert harness.run(store.get_view_salt(day)) != salt


# The index


def test_the_upkeep_counts_and_indexes_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("listings.service._MARKET_SECONDS", 0.01)
    with MaintainedHarness(tmp_path) as harness:
        lamp = add(harness, caller(harness))
        harness.service.record_view(lamp, "192.0.2.1", BROWSER)

        async def is_done() -> bool:
            page = await harness.service.search_market(MarketQuery())
            return bool(page.entries) and (await harness.service.find_listing(lamp.id)).view_count == 1

        async def wait() -> None:
            while not await is_done():  # noqa: ASYNC110 - it is a store that is waited for
                await asyncio.sleep(0.01)

        harness.run(asyncio.wait_for(wait(), 120))


def test_views_are_stored_when_the_service_ends(tmp_path: Path) -> None:
    with Harness(tmp_path) as harness:
        lamp = add(harness, caller(harness))
        harness.service.record_view(lamp, "192.0.2.1", BROWSER)
    with Harness(tmp_path) as harness:
        assert harness.run(harness.service.find_listing(lamp.id)).view_count == 1


def test_a_step_grows_slowly_and_shrinks_at_once() -> None:
    assert next_size(64, IndexStep(64, left=True, seconds=0.000_1)) == 128
    assert next_size(64, IndexStep(64, left=True, seconds=0.1)) == 64
    assert next_size(100, IndexStep(100, left=True, seconds=0.02, contended=True)) == 5
    assert next_size(2_000, IndexStep(2_000, left=True, seconds=10)) == 20
    assert next_size(64, IndexStep(1, left=True, seconds=5)) == 4
    assert next_size(2_000, IndexStep(2_000, left=True, seconds=0.000_1)) == 2_000
    assert next_size(64, IndexStep(64, left=True)) == 64


class Backlog:
    """A store that always has more to index, and tells whether others write."""

    def __init__(self, *, contended: bool) -> None:
        self._contended = contended
        self.counts: list[int] = []

    async def index_market(self, count: int, _indexer: bytes, _now: float) -> IndexStep:
        if len(self.counts) == 20:
            raise Unavailable("Enough")
        self.counts.append(count)
        return IndexStep(count, left=True, seconds=0.03, preparing_seconds=0.02, contended=self._contended)


@pytest.mark.parametrize(("contended", "least", "most"), [(True, 0.03, 0.06), (False, 0.7, 0.9)])
def test_the_index_takes_its_share_of_the_time(
    contended: bool,  # noqa: FBT001 - by others
    least: float,
    most: float,
) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    backlog: Any = Backlog(contended=contended)
    with pytest.raises(Unavailable):
        asyncio.run(Service(backlog, None, pause=pause).index_market())
    assert least <= 20 * 0.05 / (20 * 0.05 + sum(pauses)) <= most


def test_each_time_that_the_index_is_taken_up_again_begins_with_a_small_step() -> None:
    async def pause(_: float) -> None:
        pass

    backlog: Any = Backlog(contended=False)
    service = Service(backlog, None, pause=pause)
    for _ in range(2):
        backlog.counts.clear()
        with pytest.raises(Unavailable):
            asyncio.run(service.index_market())
        assert backlog.counts[0] == 16
        assert backlog.counts[1] == 32
