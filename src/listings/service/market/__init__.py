"""The public market: search, public listings, and view counts (decision G8)."""

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import NamedTuple, Protocol

from listings.contract.accounts import AccountStore
from listings.contract.listings import ListingStore
from listings.contract.market import MarketStore
from listings.domain.errors import Problem, Unavailable
from listings.domain.market.words import fold_category
from listings.domain.model import (
    MAX_ID,
    Account,
    Listing,
    MarketEntry,
    MarketFacets,
    MarketQuery,
    SitemapEntry,
)
from listings.domain.timestamps import DAY_SECONDS
from listings.service.indexing import Pause, run_index_steps
from listings.service.market import results, suggestions
from listings.service.market.results import MarketPage, MarketResults
from listings.service.market.suggestions import Suggestion

_MAX_FACETS = 200  # regions, and as many categories
_FACETS_CACHE_SECONDS = 60
_HIGHLIGHTS_CACHE_SECONDS = 10
_LOW_PRICE = 50_00
_HIGHLIGHTS = 6

HIGHLIGHTS: Mapping[str, MarketQuery] = {
    f"Up to ${_LOW_PRICE // 100}": MarketQuery(type="product", price_min=1, price_max=_LOW_PRICE, limit=_HIGHLIGHTS),
    "Places to stay": MarketQuery(type="rental", limit=_HIGHLIGHTS),
    "Latest jobs": MarketQuery(type="job", limit=_HIGHLIGHTS),
}
"""Searches whose first results the home page shows, by heading."""

MAX_SELLER_COUNT = 1_000
"""Listings of a seller are counted up to this number."""

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
    """A view of a listing's page by a visitor on one day."""

    day: int  # days since 1970
    listing_id: int
    visitor: bytes  # hash of the address and User-Agent, before the salt of the day is applied


class _Store(MarketStore, ListingStore, AccountStore, Protocol):
    pass


class Market:
    """Searches the public market, counts views, and keeps the indexes current."""

    def __init__(self, store: _Store, clock: Callable[[], float], pause: Pause) -> None:
        self._store = store
        self._clock = clock
        self._pause = pause
        self._views: set[_View] = set()
        self._salts: dict[int, bytes] = {}
        self._indexer = secrets.token_bytes(16)
        self.index_failed_at: float | None = None  # the first failure since the last success, in seconds since 1970
        self._facets: tuple[float, MarketFacets] | None = None
        self._highlights: tuple[float, list[list[MarketEntry]]] | None = None
        self._counts = results.CountCache(clock)

    # Public reads

    async def search(self, query: MarketQuery) -> MarketPage:
        """Return the page of search results after the query's cursor.

        In ascending order of price, listings without a price come last.
        """
        return await results.search(self._store, query)

    async def find(self, query: MarketQuery, *, is_backwards: bool = False) -> MarketResults:
        """Return the page of results after the query's cursor, or before it, and count the results.

        For each filter, the results with each of its values are counted as well. If there are more than 1,000 results,
        the counts are cached for ten seconds. If the page before the cursor is not full, the first page is returned.
        """
        return await results.find(self._store, self._counts, query, is_backwards=is_backwards)

    async def suggest(self, query: MarketQuery) -> Suggestion:
        """Return what to try instead of a query without results."""
        return await suggestions.suggest(self._store, query)

    async def get_listing(self, listing_id: int, viewer: int | None = None) -> Listing:
        """Return a listing of the public market. The account `viewer` also gets its own inactive ones.

        Raises Problem: listing_deleted, listing_not_found (missing, inactive, or of a disabled account).
        """
        listing = await self._store.get_listing(listing_id) if 0 < listing_id <= MAX_ID else None
        if listing is not None and listing.deleted_at is not None:
            raise Problem("listing_deleted", "This listing is closed")
        account = await self._store.get_account(listing.account_id) if listing is not None else None
        if listing is None or account is None or account.disabled_at is not None:
            raise Problem("listing_not_found", "There is no such listing")
        if not listing.is_active and listing.account_id != viewer:
            raise Problem("listing_not_found", "There is no such listing")
        return listing

    async def get_seller(self, account_id: int, before: int = MAX_ID, count: int = 24) -> Seller:
        """Return a seller with at most `count` listings on the market, newest first, with ids below `before`.

        Raises Problem("path_not_found") if the account is missing or disabled.
        """
        account = await self._store.get_account(account_id) if 0 < account_id <= MAX_ID else None
        if account is None or account.disabled_at is not None:
            raise Problem("path_not_found", "We can't find that seller")
        number = await self._store.count_seller_listings(account_id, MAX_SELLER_COUNT + 1)
        return Seller(account, number, await self._store.page_seller_listings(account_id, before, count))

    async def list_facets(self) -> MarketFacets:
        """Return the largest regions and categories with their numbers of listings, cached for a minute.

        Spellings of a category are counted together, under the most frequent one.
        """
        now = self._clock()
        if self._facets is None or not 0 <= now - self._facets[0] < _FACETS_CACHE_SECONDS:
            regions, categories = await self._store.list_market_facets(_MAX_FACETS)
            self._facets = (now, MarketFacets(regions, results.merge_spellings(categories, fold_category)))
        return self._facets[1]

    async def list_highlights(self) -> list[list[MarketEntry]]:
        """Return the first results of each of `HIGHLIGHTS`. They are cached for ten seconds."""
        now = self._clock()
        if self._highlights is None or not 0 <= now - self._highlights[0] < _HIGHLIGHTS_CACHE_SECONDS:
            found = [(await self.search(query)).entries for query in HIGHLIGHTS.values()]
            self._highlights = (now, found)
        return self._highlights[1]

    async def page_sitemap(self, after: int, count: int) -> list[SitemapEntry]:
        """Return at most `count` entries of the sitemap with market serials above `after`."""
        return await self._store.page_sitemap(after, count)

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
                batch = [view for view in pending[:_VIEW_BATCH_SIZE] if view.day == pending[0].day]
                await self._store.record_views(batch[0].day, await self._hash_visitors(batch))
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

    async def _hash_visitors(self, views: Sequence[_View]) -> dict[int, set[bytes]]:
        """Return the salted hashes of the visitors by listing id. All views are of the same day."""
        day = views[0].day
        salt = self._salts.get(day) or await self._store.get_view_salt(day)
        self._salts[day] = salt
        visitors: dict[int, set[bytes]] = {}
        for view in views:
            visitors.setdefault(view.listing_id, set()).add(blake2b(view.visitor, key=salt, digest_size=16).digest())
        return visitors

    # The index

    async def index(self) -> int:
        """Index new and changed listings for the market, unless another process is doing so.

        Returns the number of listings indexed.
        """
        try:
            done = await run_index_steps(
                lambda count: self._store.index_market(count, self._indexer, self._clock()), self._pause
            )
        except Exception:
            self.index_failed_at = self.index_failed_at or self._clock()
            raise
        self.index_failed_at = None
        return done

    async def index_accounts(self) -> int:
        """Index the listings of large accounts for searches within an account. Return the number indexed."""
        return await run_index_steps(self._store.index_accounts, self._pause)


def is_bot(agent: str) -> bool:
    """Return whether a User-Agent is empty or that of a bot."""
    return not agent.strip() or _BOT.search(agent[:_MAX_AGENT_LENGTH]) is not None
