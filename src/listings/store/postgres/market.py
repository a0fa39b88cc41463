"""The market in PostgreSQL: a search looks at the next listings in its order first, and then gathers.

Where what is asked for is common, a page of it is among those. Where it is rare, there are few to be gathered by their
words or their prices. What is common, but far away, is gathered in parts of the order, one after the other.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

from listings.domain.model import MarketQuery
from listings.store import market_entries
from listings.store.postgres.pool import Rows, Session

SortOrder: TypeAlias = Literal["newest", "price", "-price"]

_NEAR = 2_000
"""Listings that are looked at one after the other."""

_FEW = 5_000
"""Listings of a range of prices that are gathered by their prices, whatever their words are."""

_RARE = 2_000
"""Listings that are gathered by their words, wherever they are."""

_SEEN = 20
"""Listings in a thirtieth of the market, and less, by which words that are not rare are told."""

_HIGHEST = 2**63 - 1

_COLUMNS = market_entries.ENTRY_COLUMNS
_CLOSED = "marketed <> CAST(disabled_at IS NULL AS integer) AND disabled_at IS NOT NULL"
_OPEN = f"account_id NOT IN (SELECT id FROM accounts WHERE {_CLOSED})"  # only until the index has hidden its listings
_ORDER: Mapping[SortOrder, str] = {
    "newest": "serial DESC",
    "price": "price_cents, serial",
    "-price": "price_cents DESC, serial DESC",
}
_BEHIND: Mapping[SortOrder, str] = {  # $4, $5: the place of the page before
    "newest": "serial < $5 AND CAST($4 AS bigint) IS NOT NULL",
    "price": "(price_cents, serial) > ($4, $5)",
    "-price": "(price_cents, serial) < ($4, $5)",
}
_BEHIND_UNSERVED: Mapping[SortOrder, str] = {
    "newest": "serial + 0 < $5 AND CAST($4 AS bigint) IS NOT NULL",
    "price": "(price_cents + 0, serial) > ($4, $5)",
    "-price": "(price_cents + 0, serial) < ($4, $5)",
}
_ORDER_UNSERVED: Mapping[SortOrder, str] = {
    "newest": "serial + 0 DESC",
    "price": "price_cents + 0, serial",
    "-price": "price_cents + 0 DESC, serial DESC",
}
_PRICE = "price_cents BETWEEN $2 AND $3"
_PRICE_UNSERVED = "price_cents + 0 BETWEEN $2 AND $3"
_ALONG: Mapping[SortOrder, str] = {
    "newest": f"{_BEHIND['newest']}",
    "price": f"{_PRICE} AND {_BEHIND['price']}",
    "-price": f"{_PRICE} AND {_BEHIND['-price']}",
}
_EVERY_NEAR = {
    sort: f"SELECT {_COLUMNS}, account_id, words FROM market WHERE state = 1 AND {_ALONG[sort]} ORDER BY {order}"
    for sort, order in _ORDER.items()
}
LOOK = {  # $1 words, $2 and $3 prices, $4 and $5 the place before, $6 how many
    sort: f"""
SELECT {_COLUMNS} FROM ({every} LIMIT {_NEAR}) AS near
WHERE words @> $1 AND {_PRICE} AND {_OPEN} ORDER BY {_ORDER[sort]} LIMIT $6
"""
    for sort, every in _EVERY_NEAR.items()
}
_ALONG_ALONE: Mapping[SortOrder, str] = {
    "newest": "serial < $1",
    "price": "price_cents BETWEEN $1 AND $2 AND (price_cents, serial) > ($3, $4)",
    "-price": "price_cents BETWEEN $1 AND $2 AND (price_cents, serial) < ($3, $4)",
}
IS_MORE = {  # $1 and $6 are not asked for: what there is behind those that were looked at
    sort: f"""
SELECT EXISTS (
    SELECT FROM market WHERE state = 1 AND {along} ORDER BY {_ORDER[sort]} OFFSET {_NEAR})
"""
    for sort, along in _ALONG_ALONE.items()
}
COUNT_FEW = f"""
SELECT count(*) FROM (
    SELECT FROM market WHERE state = 1 AND price_cents BETWEEN $1 AND $2 ORDER BY price_cents LIMIT {_FEW}) AS few
"""
GATHER_BY_PRICE = f"""
WITH found AS MATERIALIZED (
    SELECT {_COLUMNS} FROM market
    WHERE words || CAST('{{}}' AS text[]) @> $1 AND state = 1 AND {_PRICE} AND {_BEHIND_UNSERVED["newest"]} AND {_OPEN})
SELECT {_COLUMNS} FROM found ORDER BY {_ORDER["newest"]} LIMIT $6
"""
_PARTS = {  # of the order of appearance, from the one that has the next listing on
    "DESC": "generate_series((SELECT serial >> 13 FROM market WHERE serial < $5 ORDER BY serial DESC LIMIT 1), 0, -1)",
    "ASC": "generate_series((SELECT serial >> 13 FROM market WHERE serial > $5 ORDER BY serial LIMIT 1), "
    "(SELECT max(serial) >> 13 FROM market))",
}
_FIRST = "market_price_class(GREATEST(CAST($2 AS bigint), CAST($4 AS bigint)))"
_LAST = "market_price_class(LEAST(CAST($3 AS bigint), CAST($4 AS bigint)))"
_CLASSES: Mapping[SortOrder, str] = {  # of prices, from the one that has the next listing on, but for that of 0
    "price": f"generate_series(GREATEST({_FIRST}, 1), market_price_class($3))",
    "-price": f"generate_series({_LAST}, GREATEST(market_price_class($2), 1), -1)",
}
_PRICE_PLACES = "market_price_places(market_price_class(price_cents))"
_BY_PART = "ARRAY[serial >> 13] @> ARRAY[part]"
_BY_CLASS = f"{_PRICE_PLACES} @> ARRAY[class]"


def _in_parts(parts: str, condition: str, sort: SortOrder) -> str:
    """The statement that gathers part by part, and no further than until the page is full."""
    return f"""
SELECT {_COLUMNS} FROM {parts} CROSS JOIN LATERAL (
    SELECT {_COLUMNS} FROM market
    WHERE words @> $1 AND {condition} AND state + 0 = 1 AND {_PRICE_UNSERVED} AND {_BEHIND_UNSERVED[sort]} AND {_OPEN}
    ORDER BY {_ORDER_UNSERVED[sort]} LIMIT $6) AS entry
LIMIT $6
"""


SAMPLE = f"""
SELECT count(*) FROM (
    SELECT FROM (SELECT max(serial) >> 13 AS last FROM market) AS newest
    CROSS JOIN LATERAL generate_series(last / 8, last, GREATEST(last / 4, 1)) AS part CROSS JOIN LATERAL (
        SELECT FROM market WHERE words @> $1 AND {_BY_PART} LIMIT {_SEEN}) AS entry
    LIMIT {_SEEN}) AS seen
"""
GATHER_RARE = {  # with how many there are in the first column, and nothing in the others where none is asked for
    sort: f"""
WITH found AS MATERIALIZED (
    SELECT {_COLUMNS}, account_id, state FROM market WHERE words @> $1 LIMIT {_RARE})
SELECT total, entry.* FROM (SELECT count(*) AS total FROM found) AS every LEFT JOIN LATERAL (
    SELECT {_COLUMNS} FROM found
    WHERE state = 1 AND {_PRICE} AND {_BEHIND[sort]} AND {_OPEN} ORDER BY {_ORDER[sort]} LIMIT $6) AS entry ON TRUE
"""
    for sort in _ORDER
}
NEWEST = _in_parts(f"{_PARTS['DESC']} AS part", _BY_PART, "newest")
NEWEST_OF_PRICES = _in_parts(
    f"{_PARTS['DESC']} AS part",
    f"{_BY_PART} AND {_PRICE_PLACES} && (SELECT market_price_range(market_price_class($2), market_price_class($3)))",
    "newest",
)
BY_PRICE = {sort: _in_parts(f"{classes} AS class", _BY_CLASS, sort) for sort, classes in _CLASSES.items()}
_IS_FREE = f"{_BY_PART} AND {_PRICE_PLACES} @> '{{0}}'"
FREE: Mapping[SortOrder, str] = {  # of price 0, which many may have: one after the other as they appeared
    "price": _in_parts(f"{_PARTS['ASC']} AS part", _IS_FREE, "price"),
    "-price": _in_parts(f"{_PARTS['DESC']} AS part", _IS_FREE, "-price"),
}
PLACES = "SELECT name FROM market_places WHERE kind = $1 ORDER BY listings DESC, name LIMIT $2"
SITEMAP = f"""
SELECT serial, listing_id, updated_at FROM market WHERE state = 1 AND serial > $1 AND {_OPEN}
ORDER BY serial LIMIT $2
"""


class _Values(NamedTuple):
    """What a search is given, in the order of `LOOK`."""

    words: list[str]
    least: int
    most: int
    price: int
    serial: int
    limit: int


async def search(session: Session, query: MarketQuery) -> Rows:
    """The entries that are asked for, in their order."""
    if any("\0" in word for word in query.words):
        return []
    values = _values(query)
    found = await session.fetch(LOOK[query.sort], *values)
    if len(found) == query.limit or not await _is_more(session, query, values):
        return found
    is_ranged = query.price_min is not None or query.price_max is not None
    if query.sort == "newest" and is_ranged and await _has_few(session, values):
        return await session.fetch(GATHER_BY_PRICE, *values)
    if (await session.fetch_one(SAMPLE, values.words))[0] < _SEEN:
        total, rows = await _gather_rare(session, query.sort, values)
        if total < _RARE:
            return rows
    if query.sort != "newest":
        return await _search_by_price(session, query.sort, values)
    return await session.fetch(NEWEST_OF_PRICES if is_ranged else NEWEST, *values)


async def _has_few(session: Session, values: _Values) -> bool:
    """Whether a range of prices has few listings."""
    return bool((await session.fetch_one(COUNT_FEW, values.least, values.most))[0] < _FEW)


async def _gather_rare(session: Session, sort: SortOrder, values: _Values) -> tuple[int, Rows]:
    """How many listings have the words, and the page of them; of no use where there are as many as are gathered."""
    rows = await session.fetch(GATHER_RARE[sort], *values)
    return rows[0][0], [row[1:] for row in rows if row[1] is not None]


async def _search_by_price(session: Session, sort: SortOrder, values: _Values) -> Rows:
    """Price 0 and all others, in the order of the prices."""
    free_behind = values if values.price == 0 else values._replace(serial=-1 if sort == "price" else _HIGHEST)
    steps = [(FREE[sort], free_behind), (BY_PRICE[sort], values)]
    if values.least > 0 or (sort == "price" and values.price > 0):
        del steps[0]
    found: Rows = []
    for statement, place in steps if sort == "price" else reversed(steps):
        if len(found) < values.limit:
            found += await session.fetch(statement, *place._replace(limit=values.limit - len(found)))
    return found


async def _is_more(session: Session, query: MarketQuery, values: _Values) -> bool:
    """Whether there is anything behind what was looked at."""
    place = (values.serial,) if query.sort == "newest" else (values.least, values.most, values.price, values.serial)
    return bool((await session.fetch_one(IS_MORE[query.sort], *place))[0])


def _values(query: MarketQuery) -> _Values:
    least = min(max(query.price_min or 0, 0), _HIGHEST)
    most = _HIGHEST if query.price_max is None else min(max(query.price_max, -1), _HIGHEST)
    return _Values(market_entries.sought(query), least, most, *_place(query, least, most), query.limit)


def _place(query: MarketQuery, least: int, most: int) -> tuple[int, int]:
    """The place of the page before, or the beginning of the range of prices: the index is gone along from there on."""
    if query.sort == "price":
        return max(query.after or (least, -1), (least, -1))
    if query.sort == "-price":
        return min(query.after or (most, _HIGHEST), (most, _HIGHEST))
    return query.after or (_HIGHEST, _HIGHEST)
