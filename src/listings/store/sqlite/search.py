"""Searches in the SQLite file: which way is taken, and the index of words."""

import asyncio
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from apsw import Connection

from listings.domain import tokenizer
from listings.domain.model import ListingQuery
from listings.store import search_sql, sql
from listings.store.mapping import Partition, Row
from listings.store.sqlite.rows import Read, write

if TYPE_CHECKING:
    from apsw import SQLiteValue

_FEW_FOUND = 1000
_MOST_FOUND = 5000  # by their words; of more than so many, a page is full soon on any way
_JUDGE = f"""
SELECT id, version, CASE WHEN {search_sql.MAY_HAVE_WORD.format(3)} THEN has_words(title, content, $2) ELSE 0 END
FROM listings WHERE bucket = $1 AND id IN (SELECT value FROM json_each($4))
"""
_Version: TypeAlias = tuple[int, int]
"""A listing's id, and the version that it has."""
_ADD_WORDS = "INSERT INTO listings_words (rowid, words) VALUES (?, ?)"
_REMOVE_WORDS = "DELETE FROM listings_words WHERE rowid = ?"
_FIND_WORDS = "SELECT rowid FROM listings_words WHERE listings_words MATCH ? LIMIT ?"


# Reading


def prepare(connection: Connection) -> None:
    """Give a connection what searches need."""
    connection.create_scalar_function("has_words", _has_words, 3, deterministic=True)


async def find(read: Read, place: Partition, query: ListingQuery, turn: asyncio.Lock) -> list[Row]:
    """The rows of the listings that are asked for, in their order; `turn` is had for as long as others have to wait."""
    indexed = read(sql.IS_INDEXED, place)[0][0] == 1  # and not in the middle of it
    if not query.words:
        return _search(read, place, query, indexed=indexed)
    if not indexed:
        return await _look_through(read, place, query, turn)
    ids = read(_FIND_WORDS, (_expression(place, query.words), _MOST_FOUND))
    if len(ids) < _MOST_FOUND:
        return _among_indexed(read, place, query, [listing_id for (listing_id,) in ids])
    return _walk_through(read, place, query, _way(read, place, query, search_sql.build_shape(query)))


def _search(read: Read, place: Partition, query: ListingQuery, *, indexed: bool) -> list[Row]:
    shape = search_sql.build_shape(query)
    if indexed:
        shape = _way(read, place, query, shape)
    return read(search_sql.build_search(shape), (*place, *search_sql.build_parameters(query)))


def _way(read: Read, place: Partition, query: ListingQuery, shape: search_sql.Shape) -> search_sql.Shape:
    """Gather where a filter leaves few listings, else walk: then those that are sought lie close enough."""
    for gathering in search_sql.list_gather_plans(shape):
        values = (getattr(query, name) for name in search_sql.find_served_filters(gathering))
        if read(search_sql.build_count(gathering), (*place, *values))[0][0] < search_sql.MAX_GATHERED:
            return gathering
    return search_sql.plan_walk(shape)


def _among_indexed(read: Read, place: Partition, query: ListingQuery, ids: list[int]) -> list[Row]:
    """Few are gathered and sorted; many lie close enough along an index that has the order."""
    shape = search_sql.build_shape(query)
    if len(ids) >= _FEW_FOUND:
        shape = _way(read, place, query, shape)
    return _among(read, place, query, shape, ids)


def _among(read: Read, place: Partition, query: ListingQuery, shape: search_sql.Shape, ids: list[int]) -> list[Row]:
    shape = msgspec.structs.replace(shape, by_ids=True)
    return read(search_sql.build_search(shape), (*place, *search_sql.build_parameters(query), _json(ids)))


def _walk_through(read: Read, place: Partition, query: ListingQuery, shape: search_sql.Shape) -> list[Row]:
    """One listing after the other, for the words, until the page is full."""
    shape = msgspec.structs.replace(shape, by_terms=True)
    return read(search_sql.build_search(shape), (*place, *search_sql.build_parameters(query), *_sought(query)))


async def _look_through(read: Read, place: Partition, query: ListingQuery, turn: asyncio.Lock) -> list[Row]:
    """An account that is not indexed: long texts in slices, between which others have their turns.

    What was found out of a version of a listing stands, so that a change in between costs one more look at what it has
    changed, and what is returned is of one moment all the same.
    """
    shape = search_sql.build_shape(query)
    every = msgspec.structs.replace(query, words=(), limit=None)
    found: dict[_Version, bool] = {}
    while True:
        revision = read(sql.GET_REVISION, place)
        rows = read(
            search_sql.build_candidate_search(search_sql.build_shape(every)),
            (*place, *search_sql.build_parameters(every)),
        )
        if sum(size for _, _, size, _ in rows) <= search_sql.SLICE_BYTES:
            return _walk_through(read, place, query, shape)
        while slice_ := _next_slice(rows, found, query.limit):
            async with turn:
                found |= _judge(read, place, query, slice_)
                await asyncio.sleep(0)
        ids = [listing_id for listing_id, version, _, _ in rows if found.get((listing_id, version))]
        listings = _among(read, place, query, shape, ids)
        if read(sql.GET_REVISION, place) == revision:
            return listings


def _next_slice(rows: list[Row], found: dict[_Version, bool], limit: int | None) -> list[_Version]:
    """The first listings that nothing is known of; none where the page is full without them."""
    coming: list[_Version] = []
    size = has_words = 0
    for listing_id, version, length, _ in rows:
        known = found.get((listing_id, version))
        if known is None:
            coming.append((listing_id, version))
            size += length
        has_words += known is True
        if size >= search_sql.SLICE_BYTES or has_words == limit:
            break
    return coming


def _judge(read: Read, place: Partition, query: ListingQuery, versions: list[_Version]) -> dict[_Version, bool]:
    """Which versions have the words; of one that has changed since it doesn't matter."""
    rows = read(_JUDGE, (place[0], *_sought(query), _json([listing_id for listing_id, _ in versions])))
    return dict.fromkeys(versions, False) | {(listing_id, version): has == 1 for listing_id, version, has in rows}


def _sought(query: ListingQuery) -> tuple[str, str]:
    return " ".join(query.words), f"%{max(query.words, key=len)}%"


def _json(ids: list[int]) -> str:
    return msgspec.json.encode(ids).decode()


def _has_words(*values: "SQLiteValue") -> bool:
    """For SQL: whether title and content have all the words of the third value, which have spaces between them."""
    title, content, sought = map(str, values)
    return tokenizer.matches((title, content), sought.split(" "))


def _expression(place: Partition, sought: tuple[str, ...]) -> str:
    """The account's word and all sought ones."""
    return " AND ".join(f'"{word}"' for word in (_account_word(place[1]), *sought))


# Writing


def index_words(connection: Connection, account_id: int, listing_id: int, title: str, content: str) -> None:
    """Make the listing findable by its words, and no longer by those that it had."""
    write(connection, _REMOVE_WORDS, (listing_id,))
    of_listing = dict.fromkeys(tokenizer.tokenize(title) + tokenizer.tokenize(content))
    write(connection, _ADD_WORDS, (listing_id, " ".join([_account_word(account_id), *of_listing])))


def _account_word(account_id: int) -> str:
    """A word that no text has, since its first character is no letter."""
    return f"§{account_id}"
