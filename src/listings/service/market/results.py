"""Pages and counts of the market's results.

First, the type, category, region, price and serial of up to 1,001 matches are read. If there are at most 1,000 matches,
the page is chosen from them in memory. That avoids a second search of the index, which is slow for common words that
never occur together. If there are more, the counts are minimums, and are cached.
"""

import asyncio
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from listings.contract.listings import MAX_COUNTED
from listings.contract.market import MarketStore
from listings.domain.market.regions import fold_region
from listings.domain.market.words import fold_category
from listings.domain.model import MarketEntry, MarketQuery, MarketTraits
from listings.service.listings import search_unpriced_last

_CACHE_SECONDS = 10
_MAX_CACHED = 64  # searches

FILTERS: Mapping[str, Callable[[str], str]] = {"type": str, "category": fold_category, "region": fold_region}
"""The fields of `MarketTraits` that can be filtered, with the functions that fold their values for comparison."""

_REVERSED: Mapping[str, Literal["newest", "oldest", "price", "-price"]] = {
    "newest": "oldest",
    "oldest": "newest",
    "price": "-price",
    "-price": "price",
}
_SORT_KEYS: Mapping[str, Callable[[int, int], tuple[int, ...]]] = {
    "newest": lambda _, serial: (-serial,),
    "oldest": lambda _, serial: (serial,),
    "price": lambda price, serial: (price == 0, price, serial),
    "-price": lambda price, serial: (-price, -serial),
}
_Matches: TypeAlias = Sequence[MarketTraits]


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


class MarketResults(NamedTuple):
    """A page, the number of listings that match, at most `MAX_COUNTED` + 1, and the counts by filter."""

    page: MarketPage
    total: int
    facets: Mapping[str, FacetCounts]  # by the field of `MarketTraits`


class _Found(NamedTuple):
    """The matches of a search, or None if there are more than `MAX_COUNTED`, and their counts by some filters."""

    matches: _Matches | None
    facets: Mapping[str, FacetCounts]


class CountCache:
    """The counts of searches with more than `MAX_COUNTED` matches. They are valid for ten seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._counts: dict[tuple[MarketQuery, tuple[str, ...]], tuple[float, Mapping[str, FacetCounts]]] = {}

    def find(self, query: MarketQuery, names: tuple[str, ...]) -> Mapping[str, FacetCounts] | None:
        """Return the counts by the filters `names` if they are valid."""
        since, counts = self._counts.get((_without_page(query), names), (0.0, None))
        return counts if 0 <= self._clock() - since < _CACHE_SECONDS else None

    def store(self, query: MarketQuery, names: tuple[str, ...], counts: Mapping[str, FacetCounts]) -> None:
        """Cache counts. If the cache is full, clear it first."""
        if len(self._counts) >= _MAX_CACHED:
            self._counts.clear()
        self._counts[_without_page(query), names] = (self._clock(), counts)


async def find(store: MarketStore, cache: CountCache, query: MarketQuery, *, is_backwards: bool) -> MarketResults:
    """Return the page of results after the query's cursor, or before it, with the counts."""
    broader = await _read_without_each_filter(store, cache, query)
    found = await _read_matches(store, cache, query, broader)
    if found.matches is not None:
        page = await _choose_page(store, query, found.matches, is_backwards=is_backwards)
        total = len(found.matches)
    else:
        page = await (search_backwards if is_backwards else search)(store, query)
        total = MAX_COUNTED + 1
    facets = {name: broader.get(name, found).facets[name] for name in FILTERS}
    return MarketResults(page, total, facets)


async def search(store: MarketStore, query: MarketQuery) -> MarketPage:
    """Return the page of search results after the query's cursor.

    In ascending order of price, listings without a price come last.
    """
    one_more = msgspec.structs.replace(query, limit=query.limit + 1)
    if query.sort == "price":
        found = await search_unpriced_last(store.search_market, one_more, one_more.limit)
    else:
        found = await store.search_market(one_more)
    entries = found[: query.limit]
    return MarketPage(
        entries,
        next_cursor=entries[-1].cursor if len(found) > query.limit else None,
        previous_cursor=entries[0].cursor if entries and query.after is not None else None,
    )


async def search_backwards(store: MarketStore, query: MarketQuery) -> MarketPage:
    """Return the page of search results before the query's cursor; the first page if that one is not full."""
    one_more = msgspec.structs.replace(query, limit=query.limit + 1)
    found = await _find_before(store, one_more) if query.after is not None else []
    if len(found) < query.limit:
        return await search(store, msgspec.structs.replace(query, after=None))
    entries = found[: query.limit][::-1]
    previous_cursor = entries[0].cursor if len(found) > query.limit else None
    return MarketPage(entries, entries[-1].cursor, previous_cursor)


async def _find_before(store: MarketStore, query: MarketQuery) -> list[MarketEntry]:
    """Return the results before the query's cursor, the closest one first."""
    after = query.after
    reverse = msgspec.structs.replace(query, sort=_REVERSED[query.sort])
    if query.sort != "price":
        return await store.search_market(reverse)
    unpriced: list[MarketEntry] = []
    if after is not None and after[0] == 0:  # it is among the listings without a price, which come last
        unpriced, after = await store.search_market(msgspec.structs.replace(reverse, price_max=0)), None
    if len(unpriced) == query.limit:
        return unpriced
    limit, lowest = query.limit - len(unpriced), max(query.price_min or 0, 1)
    priced = msgspec.structs.replace(reverse, after=after, limit=limit, price_min=lowest)
    return unpriced + await store.search_market(priced)


async def _read_without_each_filter(store: MarketStore, cache: CountCache, query: MarketQuery) -> dict[str, _Found]:
    """Return, for each filter in use, what the query finds without that filter."""
    found: dict[str, _Found] = {}
    for name in FILTERS:
        if getattr(query, name) is not None:
            found[name] = await _read(store, cache, _without(query, name), (name,))
            await asyncio.sleep(0)  # let other requests run
    return found


def _without(query: MarketQuery, name: str) -> MarketQuery:
    changes: dict[str, Any] = {name: None}
    return msgspec.structs.replace(query, **changes)


def _without_page(query: MarketQuery) -> MarketQuery:
    return msgspec.structs.replace(query, sort="newest", after=None, limit=0)


async def _read_matches(
    store: MarketStore, cache: CountCache, query: MarketQuery, broader: Mapping[str, _Found]
) -> _Found:
    """Return what the query finds, counted by the filters not in use.

    If a search without one of the filters found all its matches, filter them here instead of reading again.
    """
    others = tuple(name for name in FILTERS if name not in broader)
    for name, found in broader.items():
        if found.matches is not None:
            value = FILTERS[name](getattr(query, name))
            return _count([it for it in found.matches if FILTERS[name](getattr(it, name)) == value], others)
    return await _read(store, cache, query, others)


async def _read(store: MarketStore, cache: CountCache, query: MarketQuery, names: tuple[str, ...]) -> _Found:
    """Return what a query finds, counted by the filters `names`."""
    cached = cache.find(query, names)
    if cached is not None:
        return _Found(None, cached)
    found = _count(await store.list_market_traits(query, MAX_COUNTED + 1), names)
    if found.matches is None:
        cache.store(query, names, found.facets)
    return found


async def _choose_page(store: MarketStore, query: MarketQuery, matches: _Matches, *, is_backwards: bool) -> MarketPage:
    """Return the page after the query's cursor, or before it, from all matches."""
    build_key = _SORT_KEYS[query.sort]
    cursors = sorted(((it.price_cents, it.serial) for it in matches), key=lambda cursor: build_key(*cursor))
    start = _find_start(query, [build_key(*cursor) for cursor in cursors], is_backwards=is_backwards)
    end = start + query.limit
    chosen = cursors[start:end]
    entries = {it.serial: it for it in await store.get_market_entries([serial for _, serial in chosen])}
    return MarketPage(
        [entries[serial] for _, serial in chosen if serial in entries],
        next_cursor=chosen[-1] if end < len(cursors) else None,
        previous_cursor=chosen[0] if chosen and start > 0 else None,
    )


def _find_start(query: MarketQuery, keys: Sequence[tuple[int, ...]], *, is_backwards: bool) -> int:
    """Return the position of the first match on the page."""
    if query.after is None:
        return 0
    key = _SORT_KEYS[query.sort](*query.after)
    return max(bisect_left(keys, key) - query.limit, 0) if is_backwards else bisect_right(keys, key)


def _count(matches: _Matches, names: tuple[str, ...]) -> _Found:
    is_complete = len(matches) <= MAX_COUNTED
    facets: dict[str, FacetCounts] = {}
    for name in names:
        values = Counter(filter(None, map(attrgetter(name), matches)))
        facets[name] = FacetCounts(merge_spellings(values, FILTERS[name]), is_complete)
    return _Found(matches if is_complete else None, facets)


def merge_spellings(values: Mapping[str, int], fold: Callable[[str], str]) -> dict[str, int]:
    """Return the numbers of listings by the most frequent spelling of each value, largest first."""
    totals: Counter[str] = Counter()
    names: dict[str, str] = {}
    for value in sorted(values, key=lambda it: (-values[it], it)):
        totals[names.setdefault(fold(value), value)] += values[value]
    return dict(totals.most_common())
