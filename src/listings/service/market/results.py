"""Pages of the market's results: the index proposes listings, and the database decides which of them are shown."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import msgspec

from listings.domain.model import MAX_ID, MarketEntry, MarketQuery
from listings.search import suggestions
from listings.search.analysis import Word
from listings.search.reader import Reader, View
from listings.search.results import MAX_RANKED, Counts, Hit, Search
from listings.search.schema import FILTERS, SERIAL_BITS, price_key
from listings.store.store import Store

_MAX_REFILLS = 3
_MAX_SPELLINGS = 3  # searched words that are corrected

Cursor: TypeAlias = tuple[int, int]
"""Of the last entry of a page: its price and serial. Of the best matches: how many come before, and 0 or a serial."""


class Suggestion(NamedTuple):
    """What to try after a search without results. Each is None if there is none."""

    text: str | None = None  # with misspelt words corrected
    category: str | None = None


class MarketPage(NamedTuple):
    """A page of search results, and the cursors of the next page and of the previous one (`MarketQuery.after`)."""

    entries: list[MarketEntry]
    next_cursor: Cursor | None = None
    previous_cursor: Cursor | None = None


class MarketResults(NamedTuple):
    """A page, and the exact counts as of the index, or None while the index is being built.

    If no listing has all words, the results are those without the words `left_out`.
    """

    page: MarketPage
    counts: Counts | None
    words: Sequence[Word] = ()
    left_out: Sequence[str] = ()
    suggestion: Suggestion = Suggestion()


class _Found(NamedTuple):
    search: Search
    hits: list[Hit]  # the ranked ones, or those of the page
    counts: Counts | None
    is_complete: bool


Take: TypeAlias = Callable[[int], Awaitable[list[Hit]]]


class Finder:
    """Finds pages of results in the index of this machine and the database."""

    def __init__(self, store: Store, reader: Reader) -> None:
        self._store = store
        self._reader = reader

    async def find(
        self, query: MarketQuery, excluded: Sequence[int], counts: Counts | None, *, is_backwards: bool = False
    ) -> MarketResults | None:
        """Return the page after the query's cursor, or before it, or None if there is no index. Raises Unavailable.

        `counts` are those of the same search a moment ago. Without them, the results are counted.
        """
        found = await self._reader.run(partial(_search, query, excluded, counts, is_backwards=is_backwards))
        if found is None:
            return None
        if found.search.is_ranked:
            page = await self._page_ranked(found, is_backwards=is_backwards)
        else:
            page = await self._page_sorted(found, is_backwards=is_backwards)
        results = MarketResults(page, found.counts, found.search.words)
        if page.entries or query.after is not None or not found.search.words or not found.is_complete:
            return results
        return await self._find_some(found, results)

    async def _find_some(self, found: _Found, results: MarketResults) -> MarketResults:
        search = found.search
        suggestion = await self._suggest(search)
        kept = await self._reader.run(lambda _: suggestions.find_partial(search))
        if not kept:
            return results._replace(suggestion=suggestion)
        query = msgspec.structs.replace(search.query, text=" ".join(kept), after=None)
        partial_results = await self.find(query, search.excluded, None)
        left_out = [word.text for word in search.words if word.text not in kept]
        return (partial_results or results)._replace(left_out=left_out, suggestion=suggestion)

    async def _suggest(self, search: Search) -> Suggestion:
        unknown = await self._reader.run(lambda _: suggestions.list_unknown(search)) or []
        corrected = {word.text: await self._correct(search, word) for word in unknown[:_MAX_SPELLINGS]}
        if any(corrected.values()):
            text = " ".join(corrected.get(word.text) or word.text for word in search.words)
            query = msgspec.structs.replace(search.query, text=text, limit=1)
            better = await self._reader.run(lambda view: _search(query, search.excluded, None, view).hits)
            if better:
                return Suggestion(text)
        categories = await self._reader.run(lambda _: suggestions.list_categories(search)) or {}
        name, number = max(categories.items(), key=lambda it: it[1], default=("", 0))
        is_clear = number >= suggestions.MIN_LISTINGS and 2 * number > sum(categories.values())
        return Suggestion(None, name if is_clear else None)

    async def _correct(self, search: Search, word: Word) -> str | None:
        hits = await self._reader.run(lambda _: suggestions.find_similar(search, word)) or []
        titles = [entry.title for entry in await self._store.get_market_entries([hit.id for hit in hits])]
        return await self._reader.run(lambda _: suggestions.choose_spelling(search, word, titles))

    async def _page_ranked(self, found: _Found, *, is_backwards: bool) -> MarketPage:
        query, ranked = found.search.query, found.hits
        offset, serial = query.after or (0, 0)
        has_rest = len(ranked) == MAX_RANKED
        if serial or (offset >= MAX_RANKED and not is_backwards):
            page = await self._page_rest(found, is_backwards=is_backwards)
            if page is not None:
                return page
            offset = MAX_RANKED
        start = max(offset - 1, 0) // query.limit * query.limit if is_backwards else offset
        position = start

        async def take(count: int) -> list[Hit]:
            nonlocal position
            hits = ranked[position : position + count]
            position += len(hits)
            return hits

        kept = await self._fill(query, take)
        end = position if len(kept) <= query.limit else ranked.index(kept[query.limit][0])
        entries = [entry for _, entry in kept[: query.limit]]
        next_cursor = (end, 0) if end < len(ranked) else ((MAX_RANKED, 0) if has_rest else None)
        return MarketPage(entries, next_cursor, (start, 0) if start else None)

    async def _page_rest(self, found: _Found, *, is_backwards: bool) -> MarketPage | None:
        # None: the ranked ones come before the cursor.
        search, query = found.search, found.search.query
        after = query.after[1] or None if query.after is not None else None

        async def take(count: int) -> list[Hit]:
            nonlocal after
            hits = await self._reader.run(lambda _: search.rest(found.hits, after, count, is_backwards=is_backwards))
            hits = hits or []
            after = hits[-1].key if hits else after
            return hits

        kept = await self._fill(query, take)
        has_more, kept = len(kept) > query.limit, kept[: query.limit]
        if is_backwards:
            if len(kept) < query.limit:
                return None
            kept = kept[::-1]
        last = (MAX_RANKED, kept[-1][0].key) if kept and (has_more or is_backwards) else None
        first = (MAX_RANKED, kept[0][0].key if query.after is not None and query.after[1] else 0)
        return MarketPage([entry for _, entry in kept], last, first)

    async def _page_sorted(self, found: _Found, *, is_backwards: bool) -> MarketPage:
        search, query = found.search, found.search.query
        after, first = _cursor_key(query), found.hits

        async def take(count: int) -> list[Hit]:
            nonlocal after, first
            hits = first or await self._reader.run(lambda _: search.page(after, count, is_backwards=is_backwards)) or []
            first, after = [], hits[-1].key if hits else after
            return hits

        kept = await self._fill(query, take)
        has_more, kept = len(kept) > query.limit, kept[: query.limit]
        if is_backwards:
            if len(kept) < query.limit:
                start = msgspec.structs.replace(query, after=None)
                again = await self.find(start, search.excluded, found.counts or Counts(0, {}))
                return again.page if again is not None else MarketPage([])
            kept = kept[::-1]
        cursors = [_build_cursor(query, hit.key) for hit, _ in kept]
        has_previous = bool(cursors) and (has_more if is_backwards else query.after is not None)
        return MarketPage(
            [entry for _, entry in kept],
            cursors[-1] if cursors and (has_more or is_backwards) else None,
            cursors[0] if has_previous else None,
        )

    async def _fill(self, query: MarketQuery, take: Take) -> list[tuple[Hit, MarketEntry]]:
        kept: list[tuple[Hit, MarketEntry]] = []
        for _ in range(1 + _MAX_REFILLS):
            wanted = query.limit + 1 - len(kept)  # one more, if there is one
            hits = await take(wanted)
            ids = [hit.id for hit in hits]
            entries = {it.id: it for it in await self._store.get_market_entries(ids, has_text=bool(query.text))}
            kept += [(hit, entries[hit.id]) for hit in hits if hit.id in entries and is_match(entries[hit.id], query)]
            if len(kept) > query.limit or len(hits) < wanted:
                break
            await asyncio.sleep(0)
        return kept


def is_match(entry: MarketEntry, query: MarketQuery) -> bool:
    """Return whether a listing has what the filters of a query require."""
    lowest, highest = query.price_min or 0, MAX_ID if query.price_max is None else query.price_max
    values = ((fold, getattr(query, name), getattr(entry, name)) for name, fold in FILTERS.items())
    return lowest <= entry.price_cents <= highest and all(
        wanted is None or fold(wanted) == fold(value) for fold, wanted, value in values
    )


def _search(
    query: MarketQuery, excluded: Sequence[int], counts: Counts | None, view: View, *, is_backwards: bool = False
) -> _Found:
    search = Search(view, query, excluded)
    if search.is_ranked:
        hits = search.rank()
    else:
        hits = search.page(_cursor_key(query), query.limit + 1, is_backwards=is_backwards)
    if view.is_complete and counts is None:
        counts = search.count()
    return _Found(search, hits, counts, view.is_complete)


def _cursor_key(query: MarketQuery) -> int | None:
    if query.after is None:
        return None
    price, serial = query.after
    return price_key(price, serial) if "price" in query.sort else serial


def _build_cursor(query: MarketQuery, key: int) -> Cursor:
    return (key >> SERIAL_BITS, key & (2**SERIAL_BITS - 1)) if "price" in query.sort else (0, key)


def merge_spellings(values: Mapping[str, int], fold: Callable[[str], str]) -> dict[str, int]:
    """Return the numbers of listings by the most frequent spelling of each value, largest first."""
    totals: dict[str, int] = {}
    names: dict[str, str] = {}
    for value in sorted(values, key=lambda it: (-values[it], it)):
        name = names.setdefault(fold(value), value)
        totals[name] = totals.get(name, 0) + values[value]
    return dict(sorted(totals.items(), key=lambda it: -it[1]))
