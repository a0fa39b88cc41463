"""Search the market in PostgreSQL.

A search first scans the next listings in the requested order. If matches are common, these contain a full page. If
matches are rare, all of them are collected by their terms or prices and then sorted. If matches are common but far
away, they are collected from one part of the order after the other, until the page is full.

Expressions such as `serial + 0` keep the planner from using an index on that column.
"""

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

from listings.domain.model import MAX_ID, MarketQuery
from listings.store.market import entries
from listings.store.postgres.pool import Rows, Session

SerialOrder: TypeAlias = Literal["newest", "oldest"]
PriceOrder: TypeAlias = Literal["price", "-price"]
SortOrder: TypeAlias = SerialOrder | PriceOrder

_MAX_SCANNED = 2_000
"""Listings that a search scans in the requested order."""

_MAX_BY_PRICE = 5_000
"""A price range with fewer listings is searched by price, whatever the terms."""

_MAX_BY_TERMS = 2_000
"""If fewer listings than this match the terms, all of them are collected."""

_MIN_SAMPLED = 20
"""Terms are common if at least this many listings match them in a sample of some parts of the market."""

_COLUMNS = entries.ENTRY_COLUMNS
_DISABLED = "marketed <> CAST(disabled_at IS NULL AS integer) AND disabled_at IS NOT NULL"
# Needed until the index has hidden the listings of an account.
_ENABLED = f"account_id NOT IN (SELECT id FROM accounts WHERE {_DISABLED})"
_ORDER: Mapping[SortOrder, str] = {
    "newest": "serial DESC",
    "oldest": "serial",
    "price": "price_cents, serial",
    "-price": "price_cents DESC, serial DESC",
}
_AFTER: Mapping[SortOrder, str] = {  # $4, $5: the cursor
    "newest": "serial < $5 AND CAST($4 AS bigint) IS NOT NULL",
    "oldest": "serial > $5 AND CAST($4 AS bigint) IS NOT NULL",
    "price": "(price_cents, serial) > ($4, $5)",
    "-price": "(price_cents, serial) < ($4, $5)",
}
_AFTER_UNINDEXED, _ORDER_UNINDEXED = (
    {sort: re.sub("serial|price_cents", r"\g<0> + 0", text, count=1) for sort, text in texts.items()}
    for texts in (_AFTER, _ORDER)
)
_PRICE = "price_cents BETWEEN $2 AND $3"
_PRICE_UNINDEXED = "price_cents + 0 BETWEEN $2 AND $3"
_SERIAL_ORDERS: tuple[SerialOrder, ...] = ("newest", "oldest")
_NEXT = {sort: after if sort in _SERIAL_ORDERS else f"{_PRICE} AND {after}" for sort, after in _AFTER.items()}
_NEXT_LISTINGS = {
    sort: f"SELECT {_COLUMNS}, account_id, words FROM market WHERE state = 1 AND {_NEXT[sort]} ORDER BY {order}"
    for sort, order in _ORDER.items()
}
SCAN = {  # $1 terms, $2 and $3 prices, $4 and $5 the cursor, $6 the limit
    sort: f"""
SELECT {_COLUMNS} FROM ({listings} LIMIT {_MAX_SCANNED}) AS near
WHERE words @> $1 AND {_PRICE} AND {_ENABLED} ORDER BY {_ORDER[sort]} LIMIT $6
"""
    for sort, listings in _NEXT_LISTINGS.items()
}
_NEXT_BY_POSITION: Mapping[SortOrder, str] = {  # like _NEXT, with only the parameters it needs
    "newest": "serial < $1",
    "oldest": "serial > $1",
    "price": "price_cents BETWEEN $1 AND $2 AND (price_cents, serial) > ($3, $4)",
    "-price": "price_cents BETWEEN $1 AND $2 AND (price_cents, serial) < ($3, $4)",
}
HAS_MORE = {  # whether there are listings after the scanned ones
    sort: f"""
SELECT EXISTS (
    SELECT 1 FROM market WHERE state = 1 AND {condition} ORDER BY {_ORDER[sort]} OFFSET {_MAX_SCANNED})
"""
    for sort, condition in _NEXT_BY_POSITION.items()
}
COUNT_BY_PRICE = f"""
SELECT count(*) FROM (
    SELECT 1 FROM market WHERE state = 1 AND price_cents BETWEEN $1 AND $2
    ORDER BY price_cents LIMIT {_MAX_BY_PRICE}) AS few
"""
_HAS_TERMS_UNINDEXED = "words || CAST('{}' AS text[]) @> $1"
GATHER_BY_PRICE = {
    sort: f"""
WITH found AS MATERIALIZED (
    SELECT {_COLUMNS} FROM market
    WHERE {_HAS_TERMS_UNINDEXED} AND state = 1 AND {_PRICE} AND {_AFTER_UNINDEXED[sort]} AND {_ENABLED})
SELECT {_COLUMNS} FROM found ORDER BY {_ORDER[sort]} LIMIT $6
"""
    for sort in _SERIAL_ORDERS
}
_PARTS: Mapping[SerialOrder, str] = {  # parts of 8192 serials each, from the part of the next listing on
    "newest": "generate_series((SELECT serial >> 13 FROM market WHERE serial < $5 ORDER BY serial DESC LIMIT 1), "
    "0, -1)",
    "oldest": "generate_series((SELECT serial >> 13 FROM market WHERE serial > $5 ORDER BY serial LIMIT 1), "
    "(SELECT max(serial) >> 13 FROM market))",
}
_FIRST_CLASS = "market_price_class(GREATEST(CAST($2 AS bigint), CAST($4 AS bigint)))"
_LAST_CLASS = "market_price_class(LEAST(CAST($3 AS bigint), CAST($4 AS bigint)))"
_CLASSES: Mapping[PriceOrder, str] = {  # price classes except that of 0, from the class of the next listing on
    "price": f"generate_series(GREATEST({_FIRST_CLASS}, 1), market_price_class($3))",
    "-price": f"generate_series({_LAST_CLASS}, GREATEST(market_price_class($2), 1), -1)",
}
# A price class is a range of similar prices. The index has two numbers per listing: its class, and one for a group of
# ten classes. `market_price_range` returns the numbers that cover a range of classes (migration 0008).
_PRICE_KEYS = "market_price_places(market_price_class(price_cents))"
_BY_PART = "ARRAY[serial >> 13] @> ARRAY[part]"
_BY_CLASS = f"{_PRICE_KEYS} @> ARRAY[class]"
_IN_RANGE = f"{_PRICE_KEYS} && (SELECT market_price_range(market_price_class($2), market_price_class($3)))"


def _build_gather(parts: str, condition: str, sort: SortOrder) -> str:
    """Return the statement that collects matches from one part after the other until the page is full."""
    return f"""
SELECT {_COLUMNS} FROM {parts} CROSS JOIN LATERAL (
    SELECT {_COLUMNS} FROM market
    WHERE words @> $1 AND {condition} AND state + 0 = 1 AND {_PRICE_UNINDEXED} AND {_AFTER_UNINDEXED[sort]}
        AND {_ENABLED}
    ORDER BY {_ORDER_UNINDEXED[sort]} LIMIT $6) AS entry
LIMIT $6
"""


SAMPLE = f"""
SELECT count(*) FROM (
    SELECT 1 FROM (SELECT max(serial) >> 13 AS last FROM market) AS newest
    CROSS JOIN LATERAL generate_series(last / 8, last, GREATEST(last / 4, 1)) AS part CROSS JOIN LATERAL (
        SELECT 1 FROM market WHERE words @> $1 AND {_BY_PART} LIMIT {_MIN_SAMPLED}) AS entry
    LIMIT {_MIN_SAMPLED}) AS seen
"""
GATHER_BY_TERMS = {  # the first column is the total; the others are NULL if the page is empty
    sort: f"""
WITH found AS MATERIALIZED (
    SELECT {_COLUMNS}, account_id, state FROM market WHERE words @> $1 LIMIT {_MAX_BY_TERMS})
SELECT total, entry.* FROM (SELECT count(*) AS total FROM found) AS every LEFT JOIN LATERAL (
    SELECT {_COLUMNS} FROM found
    WHERE state = 1 AND {_PRICE} AND {_AFTER[sort]} AND {_ENABLED} ORDER BY {_ORDER[sort]} LIMIT $6) AS entry ON TRUE
"""
    for sort in _ORDER
}
BY_SERIAL, BY_SERIAL_IN_RANGE = (
    {sort: _build_gather(f"{parts} AS part", condition, sort) for sort, parts in _PARTS.items()}
    for condition in (_BY_PART, f"{_BY_PART} AND {_IN_RANGE}")
)
BY_PRICE = {sort: _build_gather(f"{classes} AS class", _BY_CLASS, sort) for sort, classes in _CLASSES.items()}
_IS_FREE = f"{_BY_PART} AND {_PRICE_KEYS} @> '{{0}}'"
FREE: Mapping[PriceOrder, str] = {  # price 0 may be very common, so its listings are collected by parts of serials
    "price": _build_gather(f"{_PARTS['oldest']} AS part", _IS_FREE, "price"),
    "-price": _build_gather(f"{_PARTS['newest']} AS part", _IS_FREE, "-price"),
}


def _build_traits(condition: str) -> str:
    """Return the statement that collects traits from one part after the other. $1 terms, $2 and $3 prices, $4 limit."""
    return f"""
SELECT entry.* FROM generate_series((SELECT max(serial) >> 13 FROM market), 0, -1) AS part CROSS JOIN LATERAL (
    SELECT {_TRAITS} FROM market
    WHERE words @> $1 AND {condition} AND state + 0 = 1 AND {_PRICE_UNINDEXED} AND {_ENABLED} LIMIT $4) AS entry
LIMIT $4
"""


_TRAITS = "type, category, region, price_cents, serial"
TRAITS = _build_traits(_BY_PART)
TRAITS_IN_RANGE = _build_traits(f"{_BY_PART} AND {_IN_RANGE}")
TRAITS_BY_TERMS = f"""
SELECT {_TRAITS} FROM market WHERE words @> $1 AND state + 0 = 1 AND {_PRICE_UNINDEXED} AND {_ENABLED} LIMIT $4
"""
TRAITS_BY_PRICE = f"""
SELECT {_TRAITS} FROM market WHERE {_HAS_TERMS_UNINDEXED} AND state = 1 AND {_PRICE} AND {_ENABLED} LIMIT $4
"""
GET_ENTRIES = f"""
SELECT {_COLUMNS} FROM market
WHERE serial = ANY (ARRAY(SELECT CAST(json_array_elements_text(CAST($1 AS json)) AS bigint))) AND state + 0 = 1
    AND {_ENABLED}
"""
SPELLINGS = """
SELECT word, listings FROM market_spellings
WHERE skeleton = ANY (ARRAY(SELECT json_array_elements_text(CAST($1 AS json)))) LIMIT $2
"""
SITEMAP = f"""
SELECT serial, listing_id, updated_at FROM market WHERE state = 1 AND serial > $1 AND {_ENABLED}
ORDER BY serial LIMIT $2
"""


class _Parameters(NamedTuple):
    """The parameters of a search, in the order of `SCAN`. `price` and `serial` are the cursor."""

    terms: list[str]
    price_min: int
    price_max: int
    price: int
    serial: int
    limit: int


async def search(session: Session, query: MarketQuery, version: int) -> Rows:
    """Return the entries that match a query, in its order. `version`: that of the index."""
    values = _build_parameters(query, version)
    found = await session.fetch(SCAN[query.sort], *values)
    if len(found) == query.limit or not await _has_more(session, query, values):
        return found
    if query.sort in GATHER_BY_PRICE and _is_ranged(query) and await _has_few_in_range(session, values):
        return await session.fetch(GATHER_BY_PRICE[query.sort], *values)
    if (await session.fetch_one(SAMPLE, values.terms))[0] < _MIN_SAMPLED:
        total, rows = await _gather_by_terms(session, query.sort, values)
        if total < _MAX_BY_TERMS:
            return rows
    if query.sort == "price" or query.sort == "-price":  # noqa: PLR1714 - narrows the type
        return await _search_by_price(session, query.sort, values)
    return await session.fetch((BY_SERIAL_IN_RANGE if _is_ranged(query) else BY_SERIAL)[query.sort], *values)


async def list_traits(session: Session, query: MarketQuery, version: int, count: int) -> Rows:
    """Return the traits of at most `count` listings that match a query."""
    values = _build_parameters(query, version)
    limits = values.terms, values.price_min, values.price_max, count
    if _is_ranged(query) and await _has_few_in_range(session, values):
        return await session.fetch(TRAITS_BY_PRICE, *limits)
    if (await session.fetch_one(SAMPLE, values.terms))[0] < _MIN_SAMPLED:
        return await session.fetch(TRAITS_BY_TERMS, *limits)
    return await session.fetch(TRAITS_IN_RANGE if _is_ranged(query) else TRAITS, *limits)


def _is_ranged(query: MarketQuery) -> bool:
    return query.price_min is not None or query.price_max is not None


async def _has_few_in_range(session: Session, values: _Parameters) -> bool:
    count = (await session.fetch_one(COUNT_BY_PRICE, values.price_min, values.price_max))[0]
    return bool(count < _MAX_BY_PRICE)


async def _gather_by_terms(session: Session, sort: SortOrder, values: _Parameters) -> tuple[int, Rows]:
    """Return the number of listings that match the terms, and the page.

    The page is incomplete if the number is `_MAX_BY_TERMS`.
    """
    rows = await session.fetch(GATHER_BY_TERMS[sort], *values)
    return rows[0][0], [row[1:] for row in rows if row[1] is not None]


async def _search_by_price(session: Session, sort: PriceOrder, values: _Parameters) -> Rows:
    """Return a page sorted by price. Listings with price 0 have a statement of their own."""
    free_values = values if values.price == 0 else values._replace(serial=-1 if sort == "price" else MAX_ID)
    steps = [(FREE[sort], free_values), (BY_PRICE[sort], values)]
    if values.price_min > 0 or (sort == "price" and values.price > 0):
        del steps[0]
    found: Rows = []
    for statement, parameters in steps if sort == "price" else reversed(steps):
        if len(found) < values.limit:
            found += await session.fetch(statement, *parameters._replace(limit=values.limit - len(found)))
    return found


async def _has_more(session: Session, query: MarketQuery, values: _Parameters) -> bool:
    """Return whether there are listings after the scanned ones."""
    if query.sort in BY_SERIAL:
        return bool((await session.fetch_one(HAS_MORE[query.sort], values.serial))[0])
    cursor = (values.price_min, values.price_max, values.price, values.serial)
    return bool((await session.fetch_one(HAS_MORE[query.sort], *cursor))[0])


def _build_parameters(query: MarketQuery, version: int) -> _Parameters:
    price_min = min(max(query.price_min or 0, 0), MAX_ID)
    price_max = MAX_ID if query.price_max is None else min(max(query.price_max, -1), MAX_ID)
    cursor = _choose_cursor(query, price_min, price_max)
    return _Parameters(entries.build_query_terms(query, version), price_min, price_max, *cursor, query.limit)


def _choose_cursor(query: MarketQuery, price_min: int, price_max: int) -> tuple[int, int]:
    """Return the query's cursor or the start of the price range, whichever comes later in the order."""
    if query.sort == "price":
        return max(query.after or (price_min, -1), (price_min, -1))
    if query.sort == "-price":
        return min(query.after or (price_max, MAX_ID), (price_max, MAX_ID))
    return query.after or ((MAX_ID, MAX_ID) if query.sort == "newest" else (-1, -1))
