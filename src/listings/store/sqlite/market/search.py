"""Search the market in the SQLite file, along an index in the requested order.

A full-text index returns its rows in the order of their rowids only, so there are two: one whose rowids are serials of
market entries, in the order in which they were added, and one whose rowids start with the price. A page then reads only
the first rows that match after its cursor.
"""

from itertools import starmap

from listings.domain.model import MarketEntry, MarketQuery, MarketTraits
from listings.store.mapping import Row
from listings.store.market import entries
from listings.store.sqlite.script_runner import Read

SERIAL_BITS = 26
LAST_SERIAL = (1 << SERIAL_BITS) - 1
_MAX_PRICE = (1 << (63 - SERIAL_BITS)) - 1
_MAX_GATHERED = 100_000
"""If fewer listings have the filters and a price in the range, those with the words are collected, then sorted."""

_COLUMNS = ", ".join(f"market.{name}" for name in entries.ENTRY_COLUMNS.split(", "))
# Disabled accounts with listings that the index steps may not have hidden yet.
_NOT_YET_HIDDEN = "SELECT id FROM accounts WHERE marketed <> (disabled_at IS NULL) AND disabled_at IS NOT NULL"
_ENABLED = f"market.account_id NOT IN ({_NOT_YET_HIDDEN})"
HAS_NOT_YET_HIDDEN = f"SELECT EXISTS ({_NOT_YET_HIDDEN})"
_DIRECTIONS = {"newest": "DESC", "oldest": "ASC", "price": "ASC", "-price": "DESC"}
BY_SERIAL = {
    direction: f"""
SELECT {_COLUMNS} FROM market_words CROSS JOIN market ON market.serial = market_words.rowid
WHERE market_words MATCH $1 AND market_words.rowid BETWEEN $2 AND $3 AND market.price_cents BETWEEN $4 AND $5
    AND {_ENABLED}
ORDER BY market_words.rowid {direction} LIMIT $6
"""
    for direction in ("ASC", "DESC")
}
BY_PRICE = {
    direction: f"""
SELECT {_COLUMNS} FROM market_prices CROSS JOIN market ON market.serial = market_prices.rowid & {LAST_SERIAL}
WHERE market_prices MATCH $1 AND market_prices.rowid BETWEEN $2 AND $3 AND {_ENABLED}
ORDER BY market_prices.rowid {direction} LIMIT $4
"""
    for direction in ("ASC", "DESC")
}
COUNT_FEW = f"""
SELECT count(*) FROM (
    SELECT 1 FROM market_prices WHERE market_prices MATCH $1 AND rowid BETWEEN $2 AND $3 LIMIT {_MAX_GATHERED}) AS few
"""
BY_SERIAL_OF_FEW = {
    direction: f"""
WITH found AS MATERIALIZED (
    SELECT rowid & {LAST_SERIAL} AS serial FROM market_prices
    WHERE market_prices MATCH $1 AND rowid BETWEEN $2 AND $3 AND rowid & {LAST_SERIAL} BETWEEN $4 AND $5
    ORDER BY rowid & {LAST_SERIAL} {direction} LIMIT $6)
SELECT {_COLUMNS} FROM found CROSS JOIN market ON market.serial = found.serial ORDER BY found.serial {direction}
"""
    for direction in ("ASC", "DESC")
}
_TRAITS = "market.type, market.category, market.region, market.price_cents, market.serial"
TRAITS = f"""
SELECT {_TRAITS} FROM market_words CROSS JOIN market ON market.serial = market_words.rowid
WHERE market_words MATCH $1 AND {_ENABLED} ORDER BY market_words.rowid DESC LIMIT $2
"""
TRAITS_IN_RANGE = f"""
SELECT {_TRAITS} FROM market_prices CROSS JOIN market ON market.serial = market_prices.rowid & {LAST_SERIAL}
WHERE market_prices MATCH $1 AND market_prices.rowid BETWEEN $2 AND $3 AND {_ENABLED}
ORDER BY market_prices.rowid LIMIT $4
"""
GET_ENTRIES = f"""
SELECT {_COLUMNS} FROM json_each($1) AS wanted CROSS JOIN market ON market.serial = wanted.value
WHERE market.state = {entries.SHOWN} AND {_ENABLED}
"""
SPELLINGS = """
SELECT word, listings FROM market_spellings WHERE skeleton IN (SELECT value FROM json_each($1)) LIMIT $2
"""
SITEMAP = f"""
SELECT serial, listing_id, updated_at FROM market WHERE serial > $1 AND state = {entries.SHOWN} AND {_ENABLED}
ORDER BY serial LIMIT $2
"""


def search(read: Read, query: MarketQuery, index_version: int) -> list[MarketEntry]:
    """Return a page of entries in the requested order."""
    return [MarketEntry(*row) for row in _search(read, query, index_version)]


def list_traits(read: Read, query: MarketQuery, index_version: int, count: int) -> list[MarketTraits]:
    """Return the traits of at most `count` listings that match: the newest, or the cheapest of a price range."""
    lowest, highest = _clamp_prices(query)
    if lowest > highest:
        return []
    match = _build_match(entries.build_query_terms(query, index_version))
    if query.price_min is None and query.price_max is None:
        return [*starmap(MarketTraits, read(TRAITS, (match, count)))]
    rowids = build_price_rowid(lowest, 0), build_price_rowid(highest, LAST_SERIAL)
    return [*starmap(MarketTraits, read(TRAITS_IN_RANGE, (match, *rowids, count)))]


def build_price_rowid(price_cents: int, serial: int) -> int:
    """Return the rowid that sorts listings by price, and by serial where prices are equal."""
    return price_cents << SERIAL_BITS | serial


def _search(read: Read, query: MarketQuery, index_version: int) -> list[Row]:
    lowest, highest = _clamp_prices(query)
    if lowest > highest:
        return []
    match, direction = _build_match(entries.build_query_terms(query, index_version)), _DIRECTIONS[query.sort]
    rowids = build_price_rowid(lowest, 0), build_price_rowid(highest, LAST_SERIAL)
    if query.sort in {"price", "-price"}:
        return read(BY_PRICE[direction], (match, *_choose_rowids(query, *rowids), query.limit))
    serials = _choose_serials(query)
    if query.price_min is None and query.price_max is None:
        return read(BY_SERIAL[direction], (match, *serials, lowest, highest, query.limit))
    if _has_few_matches(read, query, index_version, rowids):
        return read(BY_SERIAL_OF_FEW[direction], (match, *rowids, *serials, query.limit))
    match = _add_price_classes(match, lowest, highest)
    return read(BY_SERIAL[direction], (match, *serials, lowest, highest, query.limit))


def _choose_serials(query: MarketQuery) -> tuple[int, int]:
    """Return the first and last serial after the cursor, for the order by serial."""
    if query.after is None:
        return 1, LAST_SERIAL
    serial = min(max(query.after[1], 0), LAST_SERIAL + 1)
    return (1, serial - 1) if query.sort == "newest" else (serial + 1, LAST_SERIAL)


def _add_price_classes(match: str, lowest: int, highest: int) -> str:
    """Restrict a match to prices of about the right size.

    Includes the price classes of the range or excludes all others, whichever are fewer: each class in the expression is
    another list to merge.
    """
    included, excluded = entries.split_price_classes(lowest, highest)
    if len(included) <= len(excluded):
        return f"{match} AND ({_join_or(included)})"
    return f"({match}) NOT ({_join_or(excluded)})" if excluded else match


def _join_or(words: list[str]) -> str:
    return " OR ".join(f'"{word}"' for word in words)


def _has_few_matches(read: Read, query: MarketQuery, index_version: int, rowids: tuple[int, int]) -> bool:
    """Return whether few listings match the filters and the price range, whatever words they contain.

    Counting only those that contain the search words would take longer. False while the index may still have listings
    of disabled accounts, because `BY_SERIAL_OF_FEW` does not exclude them.
    """
    filters = _build_match([entries.build_filter_term(query, index_version)])
    return read(COUNT_FEW, (filters, *rowids))[0][0] < _MAX_GATHERED and not read(HAS_NOT_YET_HIDDEN, ())[0][0]


def _build_match(words: list[str]) -> str:
    return " AND ".join(f'"{word}"' for word in words)


def _clamp_prices(query: MarketQuery) -> tuple[int, int]:
    """Return the query's price range, limited to prices that fit into a rowid."""
    lowest = max(query.price_min or 0, 0)
    highest = _MAX_PRICE if query.price_max is None else query.price_max
    return min(lowest, _MAX_PRICE), min(max(highest, -1), _MAX_PRICE)


def _choose_rowids(query: MarketQuery, first: int, last: int) -> tuple[int, int]:
    """Return the first and last rowid of a price range after the cursor, for the order by price."""
    if query.after is None:
        return first, last
    price_cents, serial = query.after
    cursor = build_price_rowid(min(max(price_cents, 0), _MAX_PRICE - 1), min(max(serial, 0), LAST_SERIAL))
    return (max(first, cursor + 1), last) if query.sort == "price" else (first, min(last, cursor - 1))
