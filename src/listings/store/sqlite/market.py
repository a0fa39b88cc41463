"""The market in the SQLite file: searches, each along the order that it asks for.

An index of words gives its rows by rowid alone, so there are two: one whose rowids are serials, and one whose rowids
begin with the price. A page is then the first rows that have all the words, wherever it begins.
"""

from listings.domain.model import MarketEntry, MarketFacets, MarketQuery, SitemapEntry
from listings.store import market_entries
from listings.store.mapping import Row
from listings.store.sqlite.rows import Read

SERIAL_BITS = 26
LAST_SERIAL = (1 << SERIAL_BITS) - 1
_LAST_PRICE = (1 << (63 - SERIAL_BITS)) - 1
_FEW = 100_000
"""Listings of a range of prices among which the newest are looked for at once."""

_COLUMNS = ", ".join(f"market.{name}" for name in market_entries.ENTRY_COLUMNS.split(", "))
_CLOSED = "SELECT id FROM accounts WHERE marketed <> (disabled_at IS NULL) AND disabled_at IS NOT NULL"
_OPEN = f"market.account_id NOT IN ({_CLOSED})"  # only until the next steps of the index have hidden its listings
HAS_CLOSED = f"SELECT EXISTS ({_CLOSED})"
NEWEST = f"""
SELECT {_COLUMNS} FROM market_words CROSS JOIN market ON market.serial = market_words.rowid
WHERE market_words MATCH $1 AND market_words.rowid BETWEEN 1 AND $2 AND market.price_cents BETWEEN $3 AND $4 AND {_OPEN}
ORDER BY market_words.rowid DESC LIMIT $5
"""
BY_PRICE = {
    way: f"""
SELECT {_COLUMNS} FROM market_prices CROSS JOIN market ON market.serial = market_prices.rowid & {LAST_SERIAL}
WHERE market_prices MATCH $1 AND market_prices.rowid BETWEEN $2 AND $3 AND {_OPEN}
ORDER BY market_prices.rowid {way} LIMIT $4
"""
    for way in ("ASC", "DESC")
}
COUNT_FEW = f"""
SELECT count(*) FROM (
    SELECT 1 FROM market_prices WHERE market_prices MATCH $1 AND rowid BETWEEN $2 AND $3 LIMIT {_FEW}) AS few
"""
NEWEST_OF_FEW = f"""
WITH found AS MATERIALIZED (
    SELECT rowid & {LAST_SERIAL} AS serial FROM market_prices
    WHERE market_prices MATCH $1 AND rowid BETWEEN $2 AND $3 AND rowid & {LAST_SERIAL} <= $4
    ORDER BY rowid & {LAST_SERIAL} DESC LIMIT $5)
SELECT {_COLUMNS} FROM found CROSS JOIN market ON market.serial = found.serial ORDER BY found.serial DESC
"""
_PLACES = "SELECT name FROM market_places WHERE kind = $1 ORDER BY listings DESC, name LIMIT $2"
_SITEMAP = f"""
SELECT serial, listing_id, updated_at FROM market WHERE serial > $1 AND state = {market_entries.SHOWN} AND {_OPEN}
ORDER BY serial LIMIT $2
"""


def search(read: Read, query: MarketQuery) -> list[MarketEntry]:
    """The entries that are asked for, in their order."""
    return [MarketEntry(*row) for row in _search(read, query)]


def places(read: Read, count: int) -> MarketFacets:
    """From what was counted."""
    category, region = ([row[0] for row in read(_PLACES, (kind, count))] for kind in market_entries.FACET_KINDS)
    return MarketFacets(region, category)


def page_sitemap(read: Read, after: int, count: int) -> list[SitemapEntry]:
    """By their serials."""
    return [SitemapEntry(*row) for row in read(_SITEMAP, (min(after, LAST_SERIAL), count))]


def price_rowid(price_cents: int, serial: int) -> int:
    """Where a listing stands in the order of the prices."""
    return price_cents << SERIAL_BITS | serial


def _search(read: Read, query: MarketQuery) -> list[Row]:
    least, most = _range(query)
    if least > most:
        return []
    last = LAST_SERIAL if query.after is None else min(query.after[1], LAST_SERIAL + 1) - 1
    words = _expression(market_entries.build_query_terms(query))
    if query.sort != "newest":
        way, begin, end = ("ASC", *_behind(query)) if query.sort == "price" else ("DESC", *_before(query))
        return read(BY_PRICE[way], (words, begin, end, query.limit))
    if query.price_min is None and query.price_max is None:
        return read(NEWEST, (words, last, least, most, query.limit))
    ends = price_rowid(least, 0), price_rowid(most, LAST_SERIAL)
    if _are_few(read, query, ends):
        return read(NEWEST_OF_FEW, (words, *ends, last, query.limit))
    return read(NEWEST, (_of_size(words, least, most), last, least, most, query.limit))


def _of_size(words: str, least: int, most: int) -> str:
    """The words, and one for prices of the right size: the fewer classes are named, the fewer lists are merged."""
    those, others = market_entries.split_price_classes(least, most)
    if len(those) <= len(others):
        return f"{words} AND ({_any(those)})"
    return f"({words}) NOT ({_any(others)})" if others else words


def _any(words: list[str]) -> str:
    return " OR ".join(f'"{word}"' for word in words)


def _are_few(read: Read, query: MarketQuery, ends: tuple[int, int]) -> bool:
    """Whether the listings of a range are soon gathered; how many of them have the words takes longer to tell."""
    filters = _expression([market_entries.build_filter_term(query)])
    return read(COUNT_FEW, (filters, *ends))[0][0] < _FEW and not read(HAS_CLOSED, ())[0][0]


def _expression(sought: list[str]) -> str:
    return " AND ".join(f'"{word}"' for word in sought)


def _range(query: MarketQuery) -> tuple[int, int]:
    """Prices that this engine takes."""
    least = max(query.price_min or 0, 0)
    most = _LAST_PRICE if query.price_max is None else query.price_max
    return min(least, _LAST_PRICE), min(max(most, -1), _LAST_PRICE)


def _behind(query: MarketQuery) -> tuple[int, int]:
    """The rowids of the prices that are asked for, from the place of the page before upwards."""
    least, most = _range(query)
    begin, end = price_rowid(least, 0), price_rowid(most, LAST_SERIAL)
    return (begin if query.after is None else max(begin, _rowid_of(query.after) + 1)), end


def _before(query: MarketQuery) -> tuple[int, int]:
    """The same downwards."""
    least, most = _range(query)
    begin, end = price_rowid(least, 0), price_rowid(most, LAST_SERIAL)
    return begin, (end if query.after is None else min(end, _rowid_of(query.after) - 1))


def _rowid_of(place: tuple[int, int]) -> int:
    price_cents, serial = place
    return price_rowid(min(max(price_cents, 0), _LAST_PRICE - 1), min(max(serial, 0), LAST_SERIAL))
