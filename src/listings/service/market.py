"""The public market: search, public listings, and view counts (decision G8)."""

import asyncio
import re
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from difflib import SequenceMatcher, get_close_matches
from hashlib import blake2b
from typing import Literal, NamedTuple, Protocol

import msgspec

from listings.contract.accounts import AccountStore
from listings.contract.listings import ListingStore
from listings.contract.market import MarketStore
from listings.domain.errors import Problem, Unavailable
from listings.domain.market import words as market_words
from listings.domain.model import (
    MAX_ID,
    Account,
    Listing,
    MarketEntry,
    MarketFacets,
    MarketQuery,
    MarketTraits,
    SitemapEntry,
)
from listings.service.indexing import Pause, run_index_steps
from listings.service.listings import search_unpriced_last

_DAY = 24 * 3600

MAX_COUNTED = 1_000  # listings; of more, the number is not known
_REVERSED: Mapping[str, Literal["newest", "oldest", "price", "-price"]] = {
    "newest": "oldest",
    "oldest": "newest",
    "price": "-price",
    "-price": "price",
}

_MAX_CORRECTED_WORDS = 5
_MAX_SPELLINGS = 300  # words of the listings that are compared with a misspelt one
_MAX_CLOSE_SPELLINGS = 5  # of these, the most frequent one if several are equally similar
_MIN_SIMILARITY = 0.7  # "bycicle" and "bicycle" have 0.71

_MAX_FACETS = 200  # regions, and as many categories
_FACETS_CACHE_SECONDS = 60
_HIGHLIGHTS_CACHE_SECONDS = 10
_LOW_PRICE = 50_00
_HIGHLIGHTS = 6

HIGHLIGHTS: Mapping[str, MarketQuery] = {
    f"Under ${_LOW_PRICE // 100}": MarketQuery(type="product", price_min=1, price_max=_LOW_PRICE, limit=_HIGHLIGHTS),
    "Places to stay": MarketQuery(type="rental", limit=_HIGHLIGHTS),
    "Work near you": MarketQuery(type="job", limit=_HIGHLIGHTS),
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


class MarketPage(NamedTuple):
    """A page of search results, and the cursors of the next page and of the previous one (`MarketQuery.after`)."""

    entries: list[MarketEntry]
    next_cursor: tuple[int, int] | None = None
    previous_cursor: tuple[int, int] | None = None


class FacetCounts(NamedTuple):
    """How many listings a search would find with each value of one filter.

    If `is_complete` is false, the counts are minimums, and rare values may be missing.
    """

    listings: Mapping[str, int]
    is_complete: bool


class MarketCounts(NamedTuple):
    """The number of listings that match a search, at most `MAX_COUNTED` + 1, and the counts by filter."""

    total: int
    facets: Mapping[str, FacetCounts]  # by the field of `MarketTraits`


class Seller(NamedTuple):
    """A seller on the market. `number` counts the listings, at most `MAX_SELLER_COUNT` + 1."""

    account: Account
    number: int
    entries: list[MarketEntry]


class _View(NamedTuple):
    """A view of a listing's page by a visitor on one day."""

    day: int  # days since 1970
    listing_id: int
    visitor: bytes  # hash of the address and User-Agent, before the salt of the day is applied


class _Store(MarketStore, ListingStore, AccountStore, Protocol):
    pass


class Market:
    """The use cases of the public market."""

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

    # Public reads

    async def search(self, query: MarketQuery) -> MarketPage:
        """Return the page of search results after the query's cursor.

        In ascending order of price, listings without a price come last.
        """
        one_more = msgspec.structs.replace(query, limit=query.limit + 1)
        if query.sort == "price":
            found = await search_unpriced_last(self._store.search_market, one_more, one_more.limit)
        else:
            found = await self._store.search_market(one_more)
        entries = found[: query.limit]
        return MarketPage(
            entries,
            next_cursor=entries[-1].cursor if len(found) > query.limit else None,
            previous_cursor=entries[0].cursor if entries and query.after is not None else None,
        )

    async def search_backwards(self, query: MarketQuery) -> MarketPage:
        """Return the page of search results before the query's cursor; the first page if that one is not full."""
        one_more = msgspec.structs.replace(query, limit=query.limit + 1)
        found = await self._find_before(one_more)
        if len(found) < query.limit or query.after is None:
            return await self.search(msgspec.structs.replace(query, after=None))
        entries = found[: query.limit][::-1]
        previous_cursor = entries[0].cursor if len(found) > query.limit else None
        return MarketPage(entries, entries[-1].cursor, previous_cursor)

    async def _find_before(self, query: MarketQuery) -> list[MarketEntry]:
        """Return the results before the query's cursor, the closest one first."""
        search, after = self._store.search_market, query.after
        reverse = msgspec.structs.replace(query, sort=_REVERSED[query.sort])
        if query.sort != "price":
            return await search(reverse)
        unpriced: list[MarketEntry] = []
        if after is not None and after[0] == 0:  # it is among the listings without a price, which come last
            unpriced, after = await search(msgspec.structs.replace(reverse, price_max=0)), None
        if len(unpriced) == query.limit:
            return unpriced
        limit, lowest = query.limit - len(unpriced), max(query.price_min or 0, 1)
        return unpriced + await search(msgspec.structs.replace(reverse, after=after, limit=limit, price_min=lowest))

    async def count(self, query: MarketQuery, page: MarketPage) -> MarketCounts:
        """Count the results of a search, and those with other values of one of its filters.

        `page` is the page of the query's cursor. If it has all results, they are not read again.
        """
        results: Sequence[MarketEntry | MarketTraits] = page.entries
        if query.after is not None or page.next_cursor is not None:
            results = await self._store.list_market_traits(query, MAX_COUNTED + 1)
        facets = {}
        for name in MarketTraits._fields:
            found = results
            if getattr(query, name) is not None:
                await asyncio.sleep(0)  # let other requests run
                unfiltered = msgspec.structs.replace(query, **{name: None})
                found = await self._store.list_market_traits(unfiltered, MAX_COUNTED + 1)
            counts = Counter(value for it in found if (value := getattr(it, name)))
            facets[name] = FacetCounts(counts, is_complete=len(found) <= MAX_COUNTED)
        return MarketCounts(len(results), facets)

    async def suggest(self, query: MarketQuery) -> str | None:
        """Return the query's text with misspelt words corrected, or None if that finds no listing either."""
        words = market_words.split(query.text)
        corrected = [await self._correct(word) for word in words[:_MAX_CORRECTED_WORDS]] + words[_MAX_CORRECTED_WORDS:]
        text = " ".join(corrected)
        if corrected == words:
            return None
        return text if await self._store.search_market(msgspec.structs.replace(query, text=text, limit=1)) else None

    async def _correct(self, word: str) -> str:
        """Return the most similar word of the listings, or two that it consists of, or else the word itself."""
        if not market_words.is_correctable(word):
            return word
        counts = dict(await self._store.find_spellings(market_words.list_similar_skeletons(word), _MAX_SPELLINGS))
        if market_words.fold(word) in map(market_words.fold, counts):
            return word
        similar = get_close_matches(word, counts, _MAX_CLOSE_SPELLINGS, _MIN_SIMILARITY)
        ratios = {it: SequenceMatcher(None, it, word).ratio() for it in similar}
        return max(similar, key=lambda it: (ratios[it], counts[it])) if similar else await self._split(word)

    async def _split(self, word: str) -> str:
        """Return the two words of the listings that a word consists of, or else the word itself."""
        halves = market_words.list_halves(word)
        skeletons = {market_words.build_skeleton(half) for pair in halves for half in pair}
        counts = dict(await self._store.find_spellings(sorted(skeletons), _MAX_SPELLINGS))
        known = [pair for pair in halves if counts.keys() >= set(pair)]
        return " ".join(max(known, key=lambda pair: min(counts[it] for it in pair))) if known else word

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
        number = await self._store.count_seller(account_id, MAX_SELLER_COUNT + 1)
        return Seller(account, number, await self._store.page_seller(account_id, before, count))

    async def list_facets(self) -> MarketFacets:
        """Return the largest regions and categories with their numbers of listings. They are cached for a minute."""
        now = self._clock()
        if self._facets is None or not 0 <= now - self._facets[0] < _FACETS_CACHE_SECONDS:
            self._facets = (now, await self._store.list_market_facets(_MAX_FACETS))
        return self._facets[1]

    async def list_highlights(self) -> list[list[MarketEntry]]:
        """Return the first results of each of `HIGHLIGHTS`. They are cached for ten seconds."""
        now = self._clock()
        if self._highlights is None or not 0 <= now - self._highlights[0] < _HIGHLIGHTS_CACHE_SECONDS:
            found = [(await self.search(query)).entries for query in HIGHLIGHTS.values()]
            self._highlights = (now, found)
        return self._highlights[1]

    async def page_sitemap(self, after: int, count: int) -> list[SitemapEntry]:
        """Return at most `count` entries of the sitemap after a serial."""
        return await self._store.page_sitemap(after, count)

    # Views

    def record_view(self, listing: Listing, address: str, agent: str) -> None:
        """Count a view of a listing's page, unless the visitor is a bot (decision G8).

        The caller must not record views by the owner.
        """
        if not is_bot(agent) and len(self._views) < _MAX_PENDING_VIEWS:
            visitor = blake2b(f"{address}\n{agent[:_MAX_AGENT_LENGTH]}".encode("utf-8", "replace")).digest()
            self._views.add(_View(int(self._clock()) // _DAY, listing.id, visitor))

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
            self._views.update(pending)  # safe even if some are stored: the store counts each visitor once

    async def purge_views(self) -> None:
        """Delete the visitors of earlier days and the salts of their hashes."""
        oldest = (int(self._clock()) - _GRACE_SECONDS) // _DAY
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
        """Add the listings of large accounts to the search index. Returns the number of listings added."""
        return await run_index_steps(self._store.index_accounts, self._pause)


def is_bot(agent: str) -> bool:
    """Return whether a User-Agent is empty or that of a bot."""
    return not agent.strip() or _BOT.search(agent[:_MAX_AGENT_LENGTH]) is not None
