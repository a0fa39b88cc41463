"""The public market: search, public listings, and view counts (decision G8)."""

import math
import re
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from listings.domain.errors import Problem, Unavailable
from listings.domain.model import MAX_ID, Account, Listing, MarketEntry, MarketFacets, MarketQuery, SitemapEntry
from listings.domain.timestamps import DAY_SECONDS
from listings.search.reader import Reader
from listings.search.results import Search, list_newest_sellers
from listings.search.schema import FILTERS, read_position
from listings.search.suggestions import list_frequent_words
from listings.service.indexing import Pause, run_index_steps
from listings.service.market.caches import Cached, CountCache
from listings.service.market.results import Finder, MarketPage, MarketResults, is_match, merge_spellings
from listings.store.store import Store

_MAX_FACETS = 200  # regions, and as many categories
_FACETS_CACHE_SECONDS = 60
_RAILS_CACHE_SECONDS = 10
_WORDS_CACHE_SECONDS = 600
_HIDDEN_CACHE_SECONDS = 1
_HIDDEN_SECONDS, _MAX_HIDDEN = 600, 1_000  # newly disabled accounts, whose listings searches exclude
_NEWEST, _MAX_OF_SELLER = 12, 2
_SAMPLED = 500  # newest listings, while there is no index
_LOW_PRICE = 50_00
_HIGHLIGHTS = 6

HIGHLIGHTS: Mapping[str, MarketQuery] = {
    f"Up to ${_LOW_PRICE // 100}": MarketQuery(type="product", price_min=1, price_max=_LOW_PRICE, limit=_HIGHLIGHTS),
    "Places to stay": MarketQuery(type="rental", limit=_HIGHLIGHTS),
    "Latest jobs": MarketQuery(type="job", limit=_HIGHLIGHTS),
}
"""Searches whose first results the home page shows, by heading."""

MAX_SELLER_COUNT = 1_000  # listings of a seller are counted up to this number

_MAX_PENDING_VIEWS = 20_000  # further views are not counted
_VIEW_BATCH_SIZE = 500
_MAX_AGENT_LENGTH = 500
_PURGE_BATCH_SIZE = 5_000
_GRACE_SECONDS = 60  # after midnight, in which views of the day before may still be written
_BOT = re.compile(  # Cubot is a phone
    "(?<!cu)bot|crawl|spider|slurp|scrap|archiv|curl|wget|python|java/|okhttp|go-http|libwww|perl|ruby|php|node|axios|"
    "headless|phantom|puppeteer|playwright|selenium|lighthouse|monitor|uptime|pingdom|preview|facebookexternalhit|"
    "embedly|whatsapp|telegram|feed|fetch|http-client|httpclient|check|scan",
    re.IGNORECASE,
)


class Seller(NamedTuple):
    """A seller on the market. `listing_count` is at most `MAX_SELLER_COUNT` + 1."""

    account: Account
    listing_count: int
    entries: list[MarketEntry]


class _View(NamedTuple):
    day: int  # days since 1970
    listing_id: int
    visitor: bytes  # hash of the address and User-Agent, before the salt of the day is applied


class Market:
    """Searches the public market, counts views, and numbers changes for the indexes."""

    def __init__(
        self,
        store: Store,
        clock: Callable[[], float],
        pause: Pause,
        count_requests: Callable[[], int],
        index_folder: Path | None = None,
    ) -> None:
        """`count_requests` returns the requests so far, and `index_folder` has the search indexes of this machine."""
        self._store = store
        self._clock = clock
        self._pause = pause
        self._count_requests = count_requests
        self._views: set[_View] = set()
        self._salts: dict[int, bytes] = {}
        self._holder = secrets.token_bytes(16)
        self.stamping_failed_at: float | None = None  # the first failure since the last success, in seconds since 1970
        self._behind_since: float | None = None
        self._unindexed: tuple[int, float] | None = None  # the sequence of a change, and since when it waits
        self._reader = Reader(index_folder)
        self._finder = Finder(store, self._reader)
        self._counts = CountCache(clock)
        self._hidden = Cached[list[int]](clock, _HIDDEN_CACHE_SECONDS)
        self._facets = Cached[MarketFacets](clock, _FACETS_CACHE_SECONDS)
        self._rails = Cached[list[list[MarketEntry]]](clock, _RAILS_CACHE_SECONDS)
        self._words = Cached[list[str]](clock, _WORDS_CACHE_SECONDS)

    # Public reads

    async def find(self, query: MarketQuery, *, is_backwards: bool = False) -> MarketResults:
        """Return the page of results after the query's cursor, or before it, and count the results.

        For each filter, the results with each of its values are counted as well, without that filter. The counts are
        cached for ten seconds. If the page before the cursor is not full, the first page is returned. While there is no
        index, all listings are returned, newest first. Raises Unavailable if words or filters need the index.
        """
        is_plain = query == MarketQuery(
            account_id=query.account_id, sort=query.sort, limit=query.limit, after=query.after
        )
        counts = self._counts.find(query)
        try:
            hidden = await self._list_hidden_accounts()
            found = await self._finder.find(query, hidden, counts, is_backwards=is_backwards)
            if found is None:
                raise Unavailable("Search is being prepared. Try again in a minute", for_visitors=True)  # noqa: TRY301 - handled like an index that is unavailable
        except Unavailable:
            if not is_plain:
                raise
            return MarketResults(await self._page_newest(query), None)
        if found.counts is not None and not found.left_out:
            self._counts.store(query, found.counts)
        return found

    async def _page_newest(self, query: MarketQuery) -> MarketPage:
        before, count = query.after[1] if query.after is not None else MAX_ID, query.limit + 1
        if query.account_id is not None:
            entries = await self._store.page_seller_listings(query.account_id, before, count)
        else:
            entries = await self._store.page_newest(before, count)
        shown = entries[: query.limit]
        return MarketPage(shown, shown[-1].cursor if len(entries) > query.limit else None)

    async def _list_hidden_accounts(self) -> list[int]:
        since = self._clock() - _HIDDEN_SECONDS
        return await self._hidden.get(lambda: self._store.list_hidden_accounts(since, _MAX_HIDDEN))

    async def get_listing(self, listing_id: int, viewer: int | None = None) -> Listing:
        """Return a listing of the public market. The account `viewer` also gets its own inactive ones.

        Raises Problem: listing_deleted, listing_not_found (missing, inactive, taken down, or of a disabled or a test
        account).
        """
        listing = await self._store.get_listing(listing_id) if 0 < listing_id <= MAX_ID else None
        account = await self._store.get_public_account(listing.account_id, listing_id) if listing is not None else None
        if listing is not None and listing.deleted_at is not None and account is not None and account.test_of is None:
            raise Problem("listing_deleted", "This listing is closed")
        if listing is None or account is None or account.disabled_at is not None or account.test_of is not None:
            raise Problem("listing_not_found", "There is no such listing")
        if not listing.is_active and listing.account_id != viewer:
            raise Problem("listing_not_found", "There is no such listing")
        return listing

    async def list_similar(self, listing_id: int, count: int) -> list[MarketEntry]:
        """Return listings like one that buyers have seen, and its seller has deleted or paused; otherwise nothing.

        Those that match its title come first, then the newest of its category.
        """
        listing = await self._store.get_listing(listing_id) if 0 < listing_id <= MAX_ID else None
        if listing is None or not listing.view_count:
            return []
        account = await self._store.get_public_account(listing.account_id, listing_id)
        if account is None or account.disabled_at is not None or account.test_of is not None:
            return []
        query = MarketQuery(type=listing.type, limit=count)
        found: dict[int, MarketEntry] = {}
        with suppress(Unavailable):
            titled = await self.find(replace(query, text=listing.title, sort="best"))
            found |= {entry.id: entry for entry in titled.page.entries}
            if len(found) < count and listing.category:
                newest = await self.find(replace(query, category=listing.category))
                found |= {entry.id: entry for entry in newest.page.entries}
        return list(found.values())[:count]

    async def list_entries(self, ids: Sequence[int]) -> list[MarketEntry]:
        """Return those of these listings that are on the market, in their order."""
        return await self._store.get_market_entries(ids) if ids else []

    async def get_seller(self, account_id: int, count: int = 24) -> Seller:
        """Return a seller with at most `count` listings on the market, newest first.

        Raises Problem("path_not_found") if the account is missing, disabled, or a test account.
        """
        account = await self._store.get_account(account_id) if 0 < account_id <= MAX_ID else None
        if account is None or account.disabled_at is not None or account.test_of is not None:
            raise Problem("path_not_found", "We can't find that seller")

        count_listings = self._store.count_seller_listings(account_id, MAX_SELLER_COUNT + 1)
        return Seller(account, await count_listings, await self._store.page_seller_listings(account_id, MAX_ID, count))

    async def list_facets(self) -> MarketFacets:
        """Return the largest regions and categories with their numbers of listings, cached for a minute.

        Spellings of a category are counted together, under the most frequent one. While there is no index, the newest
        listings are counted.
        """
        return await self._facets.get(self._count_facets)

    async def _count_facets(self) -> MarketFacets:
        counts = None
        with suppress(Unavailable):
            counts = await self._reader.run(lambda view: Search(view, MarketQuery(), ()).count().values)
        if counts is None:
            newest = await self._store.page_newest(count=_SAMPLED)
            counts = {name: Counter(filter(None, (getattr(it, name) for it in newest))) for name in FILTERS}
        merged = (merge_spellings(counts[name], FILTERS[name]) for name in ("region", "category"))
        return MarketFacets(*(dict(list(values.items())[:_MAX_FACETS]) for values in merged))

    async def list_newest(self) -> list[MarketEntry]:
        """Return the newest listings, at most two of a seller, those with pictures first. Cached for ten seconds."""
        return (await self._rails.get(self._read_rails))[0]

    async def list_highlights(self) -> list[list[MarketEntry]]:
        """Return the newest listings of each of `HIGHLIGHTS`, at most two of a seller. Cached for ten seconds."""
        return (await self._rails.get(self._read_rails))[1:]

    async def list_frequent_words(self) -> list[str]:
        """Return frequent words of the market's titles, cached for ten minutes."""
        hidden = await self._list_hidden_accounts()

        async def read() -> list[str]:
            with suppress(Unavailable):
                return await self._reader.run(lambda view: list_frequent_words(view, hidden)) or []
            return []

        return await self._words.get(read)

    async def _read_rails(self) -> list[list[MarketEntry]]:
        return [await self._read_rail(query) for query in (MarketQuery(limit=_NEWEST), *HIGHLIGHTS.values())]

    async def _read_rail(self, query: MarketQuery) -> list[MarketEntry]:
        hits = None
        with suppress(Unavailable):
            hits = await self._reader.run(lambda view: list_newest_sellers(view, query, query.limit, _MAX_OF_SELLER))
        if hits is None:
            entries = await self._store.page_newest(count=_SAMPLED)
        else:
            entries = await self._store.get_market_entries([hit.id for hit in hits])
        entries = [it for it in entries if is_match(it, query)]
        return sorted(entries[: query.limit], key=lambda it: not it.image)

    async def page_sitemap(self, after: int, count: int) -> list[SitemapEntry]:
        """Return at most `count` entries of the sitemap with market serials above `after`."""
        return await self._store.page_sitemap(after, count)

    async def get_last_serial(self) -> int:
        return (await self._store.get_market_state()).serial

    # Views

    def record_view(self, listing: Listing, address: str, agent: str) -> None:
        """Count a view of a listing's page, unless the visitor is a bot (decision G8).

        The caller must not record views by the owner.
        """
        if not is_bot(agent) and len(self._views) < _MAX_PENDING_VIEWS:
            visitor = blake2b(f"{address}\n{agent[:_MAX_AGENT_LENGTH]}".encode("utf-8", "replace")).digest()
            self._views.add(_View(int(self._clock()) // DAY_SECONDS, listing.id, visitor))

    async def write_views(self) -> None:
        """Store the recorded views. Keep them for the next call if the store is unavailable."""
        pending, self._views = sorted(self._views), set()
        try:
            while pending:
                day = pending[0].day
                batch = [view for view in pending[:_VIEW_BATCH_SIZE] if view.day == day]
                salt = self._salts[day] = self._salts.get(day) or await self._store.get_view_salt(day)
                visitors: dict[int, set[bytes]] = {}
                for view in batch:
                    visitor = blake2b(view.visitor, key=salt, digest_size=16).digest()
                    visitors.setdefault(view.listing_id, set()).add(visitor)
                await self._store.record_views(day, visitors)
                pending = pending[len(batch) :]
        except Unavailable:
            pass
        finally:
            # Some of these views may be stored already. The store counts a visitor once, until the day is purged.
            self._views.update(pending)

    async def purge_views(self) -> None:
        """Delete the visitors of earlier days and the salts of their hashes."""
        oldest = (int(self._clock()) - _GRACE_SECONDS) // DAY_SECONDS
        self._salts = {day: salt for day, salt in self._salts.items() if day >= oldest}
        with suppress(Unavailable):
            while await self._store.purge_views(oldest, _PURGE_BATCH_SIZE) == _PURGE_BATCH_SIZE:
                pass  # other writes run between the batches

    # The index

    async def stamp(self) -> int:
        """Number new and changed listings, so that the indexes follow them, unless another process is doing so.

        Returns the number of listings.
        """
        self._behind_since = self._behind_since or self._clock()
        try:
            done = await run_index_steps(
                lambda count: self._store.stamp_market(count, self._holder, self._clock()),
                self._pause,
                self._count_requests,
            )
        except Exception:
            self.stamping_failed_at = self.stamping_failed_at or self._clock()
            raise
        self.stamping_failed_at = self._behind_since = None
        return done

    def measure_lag(self) -> float:
        """Return for how many seconds changes may have been waiting for the index of this machine. Thread-safe."""
        times = [self._behind_since, self.unindexed_since]
        return max(self._clock() - min((it for it in times if it is not None), default=math.inf), 0.0)

    @property
    def unindexed_since(self) -> float | None:
        """Since when a change that is numbered has been waiting for the index, in seconds since 1970."""
        waiting = self._unindexed
        return waiting[1] if waiting is not None else None

    async def watch_index(self) -> None:
        """Note whether the index of this machine follows the database."""
        last = (await self._store.get_market_state()).sequence
        position = None
        with suppress(Unavailable):
            position = await self._reader.run(lambda view: read_position(view.searcher))
        indexed = position.sequence if position is not None else -1
        if indexed >= last:
            self._unindexed = None
        elif self._unindexed is None or indexed >= self._unindexed[0]:
            self._unindexed = last, self._clock()

    async def purge_tombstones(self) -> None:
        """Delete entries of listings that were removed more than a week ago."""
        with suppress(Unavailable):
            while await self._store.purge_market(self._clock()):
                pass

    def close(self) -> None:
        self._reader.close()

    async def index_accounts(self) -> int:
        """Index the listings of large accounts for searches within an account. Return the number indexed."""
        return await run_index_steps(self._store.index_accounts, self._pause, self._count_requests)


def is_bot(agent: str) -> bool:
    """Return whether a User-Agent is empty or that of a bot."""
    return not agent.strip() or _BOT.search(agent[:_MAX_AGENT_LENGTH]) is not None
