"""Search an account's listings in the SQLite file: choose a plan, and maintain the full-text index."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from apsw import Connection

from listings.domain import tokenizer
from listings.domain.model import ListingQuery
from listings.store import search_sql, sql
from listings.store.mapping import Partition, Row
from listings.store.scripts.engine import ListingText
from listings.store.scripts.script import QueryMany, Script
from listings.store.sqlite.rows import Read

if TYPE_CHECKING:
    from apsw import SQLiteValue

_MAX_SORTED = 1000  # matches of the search terms; up to this number, all are read and sorted
_MAX_MATCHES = 5000  # matches of the search terms; with more, a scan soon fills a page
_CHECK_TERMS = f"""
SELECT id, version, CASE WHEN {search_sql.MAY_HAVE_WORD.format(3)} THEN has_words(title, content, $2) ELSE 0 END
FROM listings WHERE bucket = $1 AND id IN (SELECT value FROM json_each($4))
"""
_Version: TypeAlias = tuple[int, int]
"""A listing's id and version."""
_ADD_WORDS = "INSERT INTO listings_words (rowid, words) VALUES (?, ?)"
_REMOVE_WORDS = "DELETE FROM listings_words WHERE rowid = ?"
_FIND_WORDS = "SELECT rowid FROM listings_words WHERE listings_words MATCH ? LIMIT ?"


# Reading


def prepare(connection: Connection) -> None:
    """Register the SQL function that searches use."""
    connection.create_scalar_function("has_words", _has_words, 3, deterministic=True)


async def find(read: Read, partition: Partition, query: ListingQuery, scan_lock: asyncio.Lock) -> list[Row]:
    """Return the rows of the matching listings in the query's order.

    `scan_lock` is held while a slice of long texts is scanned, which blocks the event loop.
    """
    indexed = read(sql.IS_INDEXED, partition)[0][0] == 1  # completely; 2 means that indexing is not finished
    if not query.words:
        return _search(read, partition, query, indexed=indexed)
    if not indexed:
        return await _scan_in_slices(read, partition, query, scan_lock)
    ids = read(_FIND_WORDS, (_build_match(partition, query.words), _MAX_MATCHES))
    if len(ids) < _MAX_MATCHES:
        return _search_matches(read, partition, query, [listing_id for (listing_id,) in ids])
    return _scan(read, partition, query, _choose_shape(read, partition, query, search_sql.build_shape(query)))


def _search(read: Read, partition: Partition, query: ListingQuery, *, indexed: bool) -> list[Row]:
    shape = search_sql.build_shape(query)
    if indexed:
        shape = _choose_shape(read, partition, query, shape)
    return read(search_sql.build_search(shape), (*partition, *search_sql.build_parameters(query)))


def _choose_shape(read: Read, partition: Partition, query: ListingQuery, shape: search_sql.Shape) -> search_sql.Shape:
    """Gather and sort if a filter leaves few listings. Otherwise walk an index: matches are close together in it."""
    for gathering in search_sql.list_gather_plans(shape):
        values = (getattr(query, name) for name in search_sql.find_served_filters(gathering))
        if read(search_sql.build_count(gathering), (*partition, *values))[0][0] < search_sql.MAX_GATHERED:
            return gathering
    return search_sql.plan_walk(shape)


def _search_matches(read: Read, partition: Partition, query: ListingQuery, ids: list[int]) -> list[Row]:
    """Gather and sort if few listings match the search terms. Otherwise walk an index that has the order."""
    shape = search_sql.build_shape(query)
    if len(ids) >= _MAX_SORTED:
        shape = _choose_shape(read, partition, query, shape)
    return _search_among(read, partition, query, shape, ids)


def _search_among(
    read: Read, partition: Partition, query: ListingQuery, shape: search_sql.Shape, ids: list[int]
) -> list[Row]:
    shape = msgspec.structs.replace(shape, by_ids=True)
    return read(search_sql.build_search(shape), (*partition, *search_sql.build_parameters(query), _encode_ids(ids)))


def _scan(read: Read, partition: Partition, query: ListingQuery, shape: search_sql.Shape) -> list[Row]:
    """Check one listing after another for the search terms until the page is full."""
    shape = msgspec.structs.replace(shape, by_terms=True)
    return read(
        search_sql.build_search(shape), (*partition, *search_sql.build_parameters(query), *_build_term_values(query))
    )


async def _scan_in_slices(read: Read, partition: Partition, query: ListingQuery, scan_lock: asyncio.Lock) -> list[Row]:
    """Scan an account that is not indexed. Long texts are scanned in slices, between which other requests run.

    A result is remembered by the listing's version. An edit between two slices costs another scan of that listing only,
    and the returned listings are still a consistent snapshot.
    """
    shape = search_sql.build_shape(query)
    every = msgspec.structs.replace(query, words=(), limit=None)
    checked: dict[_Version, bool] = {}
    while True:
        revision = read(sql.GET_REVISION, partition)
        rows = read(
            search_sql.build_candidate_search(search_sql.build_shape(every)),
            (*partition, *search_sql.build_parameters(every)),
        )
        if sum(size for _, _, size, _ in rows) <= search_sql.SLICE_BYTES:
            return _scan(read, partition, query, shape)
        while slice_ := _next_slice(rows, checked, query.limit):
            async with scan_lock:
                checked |= _check_terms(read, partition, query, slice_)
                await asyncio.sleep(0)
        ids = [listing_id for listing_id, version, _, _ in rows if checked.get((listing_id, version))]
        listings = _search_among(read, partition, query, shape, ids)
        if read(sql.GET_REVISION, partition) == revision:
            return listings


def _next_slice(rows: list[Row], checked: dict[_Version, bool], limit: int | None) -> list[_Version]:
    """Return the first unchecked listings, as many as fit into a slice, or none if the page is full without them."""
    unchecked: list[_Version] = []
    size = matches = 0
    for listing_id, version, length, _ in rows:
        is_match = checked.get((listing_id, version))
        if is_match is None:
            unchecked.append((listing_id, version))
            size += length
        matches += is_match is True
        if size >= search_sql.SLICE_BYTES or matches == limit:
            break
    return unchecked


def _check_terms(
    read: Read, partition: Partition, query: ListingQuery, versions: list[_Version]
) -> dict[_Version, bool]:
    """Return which versions match the search terms. The value for an outdated version does not matter."""
    ids = _encode_ids([listing_id for listing_id, _ in versions])
    rows = read(_CHECK_TERMS, (partition[0], *_build_term_values(query), ids))
    return dict.fromkeys(versions, False) | {(listing_id, version): has == 1 for listing_id, version, has in rows}


def _build_term_values(query: ListingQuery) -> tuple[str, str]:
    return " ".join(query.words), f"%{max(query.words, key=len)}%"


def _encode_ids(ids: list[int]) -> str:
    return msgspec.json.encode(ids).decode()


def _has_words(*values: "SQLiteValue") -> bool:
    """SQL function: return whether title and content contain all terms of the third value, separated by spaces."""
    title, content, terms = map(str, values)
    return tokenizer.matches((title, content), terms.split(" "))


def _build_match(partition: Partition, terms: tuple[str, ...]) -> str:
    """Return the full-text expression for the account's word and all search terms."""
    return " AND ".join(f'"{term}"' for term in (_account_word(partition[1]), *terms))


# Writing


def index_words(account_id: int, texts: Sequence[ListingText]) -> Script[None]:
    """Replace the words of listings in the full-text index."""
    yield QueryMany(_REMOVE_WORDS, [(listing_id,) for listing_id, _, _ in texts])
    yield QueryMany(_ADD_WORDS, [(listing_id, _build_words(account_id, *text)) for listing_id, *text in texts])


def _build_words(account_id: int, title: str, content: str) -> str:
    words = dict.fromkeys(tokenizer.tokenize(title) + tokenizer.tokenize(content))
    return " ".join([_account_word(account_id), *words])


def _account_word(account_id: int) -> str:
    """Return the word that all listings of the account have. No text contains it: `§` is not a letter."""
    return f"§{account_id}"
