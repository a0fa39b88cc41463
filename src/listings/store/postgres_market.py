"""The market in PostgreSQL: a search looks at the next listings in its order first, and then gathers.

Where what is asked for is common, a page of it is among those. Where it is rare, there are few to be gathered by their
words or their prices.
"""

from typing import NamedTuple

from listings.model import MarketQuery
from listings.store import market
from listings.store.postgres_pool import Rows, Session

_NEAR = 2_000
"""Listings that are looked at one after the other."""

_FEW = 5_000
"""Listings of a range of prices that are gathered by their prices, whatever their words are."""

_HIGHEST = 2**63 - 1

_COLUMNS = market.ENTRY_COLUMNS
_CLOSED = "marketed <> CAST(disabled_at IS NULL AS integer) AND disabled_at IS NOT NULL"
_OPEN = f"account_id NOT IN (SELECT id FROM accounts WHERE {_CLOSED})"  # only until the index has hidden its listings
_ORDER = {"newest": "serial DESC", "price": "price_cents, serial", "-price": "price_cents DESC, serial DESC"}
_BEHIND = {  # $4, $5: the place of the page before
    "newest": "serial < $5 AND CAST($4 AS bigint) IS NOT NULL",
    "price": "(price_cents, serial) > ($4, $5)",
    "-price": "(price_cents, serial) < ($4, $5)",
}
_BEHIND_UNSERVED = {
    "newest": "serial + 0 < $5 AND CAST($4 AS bigint) IS NOT NULL",
    "price": "(price_cents + 0, serial) > ($4, $5)",
    "-price": "(price_cents + 0, serial) < ($4, $5)",
}
_PRICE = "price_cents BETWEEN $2 AND $3"
_PRICE_UNSERVED = "price_cents + 0 BETWEEN $2 AND $3"
_ALONG = {
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
IS_MORE = {  # $1 and $6 are not asked for: what there is behind those that were looked at
    sort: f"""
SELECT EXISTS (
    SELECT FROM market WHERE state = 1 AND {along} ORDER BY {_ORDER[sort]} OFFSET {_NEAR})
"""
    for sort, along in {
        "newest": "serial < $1",
        "price": "price_cents BETWEEN $1 AND $2 AND (price_cents, serial) > ($3, $4)",
        "-price": "price_cents BETWEEN $1 AND $2 AND (price_cents, serial) < ($3, $4)",
    }.items()
}
COUNT_FEW = f"""
SELECT count(*) FROM (
    SELECT FROM market WHERE state = 1 AND price_cents BETWEEN $1 AND $2 ORDER BY price_cents LIMIT {_FEW}) AS few
"""
_GATHERED = "WITH found AS MATERIALIZED ({}) SELECT {} FROM found ORDER BY {} LIMIT $6"
GATHER_BY_WORDS = {
    sort: _GATHERED.format(
        f"SELECT {_COLUMNS} FROM market WHERE words @> $1 AND state + 0 = 1 AND {_PRICE_UNSERVED} "
        f"AND {_BEHIND_UNSERVED[sort]} AND {_OPEN}",
        _COLUMNS,
        order,
    )
    for sort, order in _ORDER.items()
}
GATHER_BY_PRICE = _GATHERED.format(
    f"SELECT {_COLUMNS} FROM market WHERE words || CAST('{{}}' AS text[]) @> $1 AND state = 1 AND {_PRICE} "
    f"AND {_BEHIND_UNSERVED['newest']} AND {_OPEN}",
    _COLUMNS,
    _ORDER["newest"],
)
NEWEST_BY_PRICE = f"""
WITH found AS MATERIALIZED (
    SELECT serial FROM market
    WHERE CAST($1 AS text[]) IS NOT NULL AND state = 1 AND {_PRICE} AND {_BEHIND_UNSERVED["newest"]} AND {_OPEN}
), newest AS MATERIALIZED (SELECT serial AS place FROM found ORDER BY serial DESC LIMIT $6)
SELECT {_COLUMNS} FROM newest CROSS JOIN LATERAL (
    SELECT {_COLUMNS} FROM market WHERE serial = place OFFSET 0) AS entry
ORDER BY serial DESC
"""  # for all words, so that the index alone tells what is found
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
    if query.sort == "newest" and is_ranged:
        if not (query.words or query.type or query.category or query.region):
            return await session.fetch(NEWEST_BY_PRICE, *values)
        if (await session.fetch_one(COUNT_FEW, values.least, values.most))[0] < _FEW:
            return await session.fetch(GATHER_BY_PRICE, *values)
    return await session.fetch(GATHER_BY_WORDS[query.sort], *values)


async def _is_more(session: Session, query: MarketQuery, values: _Values) -> bool:
    """Whether there is anything behind what was looked at."""
    place = (values.serial,) if query.sort == "newest" else (values.least, values.most, values.price, values.serial)
    return bool((await session.fetch_one(IS_MORE[query.sort], *place))[0])


def _values(query: MarketQuery) -> _Values:
    least = min(max(query.price_min or 0, 0), _HIGHEST)
    most = _HIGHEST if query.price_max is None else min(max(query.price_max, -1), _HIGHEST)
    first = (-1, -1) if query.sort == "price" else (_HIGHEST, _HIGHEST)
    price, serial = query.after or first
    return _Values(market.sought(query), least, most, price, serial, query.limit)
