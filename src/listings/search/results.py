"""Find the listings of a page in the index, and count all that a search finds. All functions run in a thread.

Sorting visits every match, so a search with many of them first looks at the newest listings only: with a million
listings, the newest with a frequent word take 1.4 instead of 25 ms.

The best 200 matches are ranked: by tier, then by the rank of the listing. Everything else is sorted by a number that no
two listings share, which is also the cursor of the next page.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from math import inf, prod
from typing import Any, NamedTuple

from tantivy import Order, Query

from listings.domain.model import MarketQuery
from listings.search import queries
from listings.search.analysis import Word, read_words
from listings.search.queries import Tier, all_of, between, build_filters, build_match, build_tier, numbers
from listings.search.reader import View
from listings.search.schema import EVERY, FILTERS, MAX_KEY, SERIAL_BITS, filter_term, rank_key

MAX_RANKED = 200
_MARGIN = 10  # times as large as a window has to be if words are independent of each other
_MAX_WINDOW = 1 / 20  # as a share of all listings
_MAX_IN_SUCCESSION = 4  # listings of one seller
_MAX_VALUES = 10_000  # per filter
_ALL_KEYS = (0, MAX_KEY)
_FIRST_PRICED = 1 << SERIAL_BITS


class Hit(NamedTuple):
    """A listing that a search finds, and its sort key."""

    key: int
    id: int
    account_id: int


class Sorting(NamedTuple):
    """The field by which matches are sorted, and the values that are allowed."""

    field: str
    order: Order = Order.Desc
    keys: tuple[int, int] = _ALL_KEYS


BY_RANK = Sorting("rank")


class Counts(NamedTuple):
    """The number of results, and of those with each value of a filter, without that filter."""

    total: int
    values: Mapping[str, Mapping[str, int]]


class Search:
    """A search of one snapshot of the index. `excluded` are accounts whose listings are hidden."""

    def __init__(self, view: View, query: MarketQuery, excluded: Sequence[int]) -> None:
        self.view = view
        self.query = query
        self.words: list[Word] = queries.find_halves(view.searcher, read_words(query.text))
        self.excluded = excluded

    @property
    def is_ranked(self) -> bool:
        """Whether the best matches come first."""
        return self.query.sort == "best" and bool(self.words)

    @cached_property
    def _share(self) -> float:
        # The share of the listings that match, if words and filters are independent of each other.
        values = ((name, getattr(self.query, name)) for name in FILTERS)
        terms = [*(word.stem for word in self.words), *(filter_term(*it) for it in values if it[1] is not None)]
        searcher = self.view.searcher
        return prod(searcher.doc_freq("all", it) / searcher.num_docs for it in terms)

    def count(self) -> Counts:
        """Count the results and the values of the filters, in one pass for each filter in use."""
        values: dict[str, Mapping[str, int]] = {}
        used = [name for name in FILTERS if getattr(self.query, name) is not None]
        unused = [name for name in FILTERS if name not in used]
        if unused or not used:
            values |= self._count_values("", unused)
        for name in used:
            values |= self._count_values(name, [name])
        if "type" in used:
            return Counts(values["type"].get(self.query.type or "", 0), values)
        return Counts(sum(values["type"].values()), values)

    def count_tier(self, tier: Tier) -> Mapping[str, int]:
        """Count the categories of a tier."""
        return self._aggregate([build_tier(self.words, tier)], ["category"])["category"] if self.words else {}

    def rank(self) -> list[Hit]:
        """Return the best matches, at most 200, the best first."""
        found: dict[int, Hit] = {}
        ranked: list[Hit] = []
        for hits in self._list_tiers():
            new = [hit for hit in hits if hit.id not in found]
            ranked += spread(new)
            found |= {hit.id: hit for hit in new}
            if len(ranked) >= MAX_RANKED:
                break
        return ranked[:MAX_RANKED]

    def page(self, after: int | None, count: int, *, is_backwards: bool = False) -> list[Hit]:
        """Return the next matches by the order of the query, or those before the cursor, the closest one first."""
        is_price, is_ascending = "price" in self.query.sort, self.query.sort in {"oldest", "price"}
        field = "price" if is_price else "serial"
        # Listings without a price come last in both orders.
        parts = [(_FIRST_PRICED, MAX_KEY), (0, _FIRST_PRICED - 1)] if self.query.sort == "price" else [_ALL_KEYS]
        if after is not None:
            parts = _cut_parts(parts, after, before=is_backwards == is_ascending, reverse=is_backwards)
        elif is_backwards:
            parts.reverse()
        order = Order.Asc if is_ascending != is_backwards else Order.Desc
        found: list[Hit] = []
        for lowest, highest in parts:
            if len(found) < count:
                sorting = Sorting(field, order, (lowest, highest))
                found += self.find_many([build_match(self.words)], sorting, count - len(found))
        return found

    def rest(self, ranked: Sequence[Hit], after: int | None, count: int, *, is_backwards: bool = False) -> list[Hit]:
        """Return the matches that are not ranked, newest first."""
        keys = _ALL_KEYS if after is None else ((after + 1, MAX_KEY) if is_backwards else (0, after - 1))
        conditions = [build_match(self.words)]
        excluded = numbers("id", (hit.id for hit in ranked))
        if excluded is not None:
            conditions = [all_of(conditions, excluded)]
        sorting = Sorting("serial", Order.Asc if is_backwards else Order.Desc, keys)
        return self.find_many(conditions, sorting, count)

    def find_many(self, conditions: Sequence[Query], sorting: Sorting, count: int) -> list[Hit]:
        """Return the same as `find`. It is faster if the conditions are the search's words, and many listings match."""
        window = self._choose_window(sorting, count)
        found = self.find(conditions, sorting._replace(keys=window), count) if window is not None else []
        return found if len(found) == count else self.find(conditions, sorting, count)

    def find(self, conditions: Sequence[Query], sorting: Sorting, count: int) -> list[Hit]:
        """Return the first matches, with the filters of the query."""
        within = [between(sorting.field, *sorting.keys)] if sorting.keys != _ALL_KEYS else []
        hits = self.view.searcher.search(
            self._limit([*conditions, *within, *build_filters(self.query)]),
            count,
            count=False,
            order_by_field=sorting.field,
            order=sorting.order,
        ).hits
        addresses = [address for _, address in hits]
        ids, accounts = (self.view.searcher.fast_field_values(name, addresses) for name in ("id", "account"))
        return [Hit(int(hit[0]), int(id_ or 0), int(it or 0)) for hit, id_, it in zip(hits, ids, accounts, strict=True)]

    def _choose_window(self, sorting: Sorting, count: int) -> tuple[int, int] | None:
        # The newest listings, or the oldest ones, if there are probably enough matches among them.
        field, order, (lowest, highest) = sorting
        width = _MARGIN * count / self._share if self._share else inf
        if field == "price" or self.query.account_id is not None or width > _MAX_WINDOW * self.view.searcher.num_docs:
            return None
        if order == Order.Asc:
            return lowest, min(lowest + round(width), highest)
        newest = self.view.newest if field == "serial" else rank_key(self.query.type or "product", self.view.newest)
        return max(min(newest, highest) - round(width), lowest), highest

    def _list_tiers(self) -> Iterator[list[Hit]]:
        yield (exact := self._ask_tier(Tier.TITLE))
        # `BEGINNING` includes the next two. If it is small, they are filtered from it.
        widest = self.find([build_tier(self.words, Tier.BEGINNING)], BY_RANK, MAX_RANKED)
        for tier in (Tier.STEM, Tier.CATEGORY):
            if len(widest) == MAX_RANKED:
                yield self._ask_tier(tier)
            elif len(widest) > len(exact) and (among := numbers("id", (hit.id for hit in widest))) is not None:
                yield self.find([build_tier(self.words, tier), among], BY_RANK, MAX_RANKED)
        yield self._ask_tier(Tier.BEGINNING) if len(widest) == MAX_RANKED else widest
        yield from map(self._ask_tier, (Tier.TEXT, Tier.SELLER))

    def _ask_tier(self, tier: Tier) -> list[Hit]:
        # If most of them are of one seller, those of others are added.
        ways = build_match(self.words) if tier == Tier.SELLER else build_tier(self.words, tier)
        find = self.find_many if tier >= Tier.TEXT else self.find
        hits = find([ways], BY_RANK, MAX_RANKED)
        for account_id, number in Counter(hit.account_id for hit in hits).most_common(1):
            if number > MAX_RANKED // 2:
                others = find([all_of([ways], numbers("account", [account_id]))], BY_RANK, MAX_RANKED)
                own = [hit for hit in hits if hit.account_id == account_id]
                hits = sorted({*own[: max(MAX_RANKED - len(others), MAX_RANKED // 2)], *others}, reverse=True)
        return hits

    def _limit(self, conditions: Sequence[Query]) -> Query:
        return all_of(conditions, numbers("account", self.excluded))

    def _count_values(self, without: str, names: Sequence[str]) -> dict[str, Mapping[str, int]]:
        return self._aggregate([build_match(self.words), *build_filters(self.query, without=without)], names)

    def _aggregate(self, conditions: Sequence[Query], names: Sequence[str]) -> dict[str, Mapping[str, int]]:
        wanted: dict[str, Any] = {
            name: {"terms": {"field": name, "size": _MAX_VALUES, "segment_size": _MAX_VALUES}} for name in names
        }
        found = self.view.searcher.aggregate(self._limit(conditions), wanted)
        return {name: {it["key"]: it["doc_count"] for it in found[name]["buckets"]} for name in names}


def spread(hits: Sequence[Hit]) -> list[Hit]:
    """Return hits in their order, but with at most four of one seller in succession, as long as there are others."""
    waiting, found = list(hits), list[Hit]()
    while waiting:
        last = {hit.account_id for hit in found[-_MAX_IN_SUCCESSION:]}
        is_full = len(found) >= _MAX_IN_SUCCESSION and len(last) == 1
        number = next((at for at, hit in enumerate(waiting) if not is_full or hit.account_id not in last), 0)
        found.append(waiting.pop(number))
    return found


def list_newest_sellers(view: View, query: MarketQuery, sellers: int, each: int) -> list[Hit]:
    """Return the newest listings of the sellers with the newest listings, at most `each` of one, newest first."""
    search = Search(view, query, ())
    conditions = all_of([queries.term("all", EVERY), *build_filters(query)])
    newest = {"newest": {"max": {"field": "serial"}}}
    grouped = {"field": "account", "size": sellers, "segment_size": 50 * sellers, "order": {"newest": "desc"}}
    found = view.searcher.aggregate(conditions, {"sellers": {"terms": grouped, "aggs": newest}})
    hits = [
        hit
        for bucket in found["sellers"]["buckets"]
        for hit in search.find([queries.term_of_account(int(bucket["key"]))], Sorting("serial"), each)
    ]
    return sorted(hits, reverse=True)


def _cut_parts(parts: Sequence[tuple[int, int]], cursor: int, *, before: bool, reverse: bool) -> list[tuple[int, int]]:
    at = next(number for number, (lowest, highest) in enumerate(parts) if lowest <= cursor <= highest)
    lowest, highest = parts[at]
    cut = (lowest, cursor - 1) if before else (cursor + 1, highest)  # keys before the cursor, or after it
    return [cut, *parts[:at][::-1]] if reverse else [cut, *parts[at + 1 :]]
