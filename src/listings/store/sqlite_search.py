"""Searches in the SQLite file: which way is taken, and the index of words."""

from typing import TYPE_CHECKING

import msgspec
from apsw import Connection

from listings import words
from listings.model import ListingQuery
from listings.store import search, sql
from listings.store.rows import Place, Read, Row, write

if TYPE_CHECKING:
    from apsw import SQLiteValue

_FEW_FOUND = 1000
_MOST_FOUND = 5000  # by their words; of more than so many, a page is full soon on any way
_ADD_WORDS = "INSERT INTO listings_words (rowid, words) VALUES (?, ?)"
_REMOVE_WORDS = "DELETE FROM listings_words WHERE rowid = ?"
_FIND_WORDS = "SELECT rowid FROM listings_words WHERE listings_words MATCH ? LIMIT ?"


# Reading


def prepare(connection: Connection) -> None:
    """Give a connection what searches need."""
    connection.create_scalar_function("has_words", _has_words, 3, deterministic=True)


def find(read: Read, place: Place, query: ListingQuery) -> list[Row]:
    """The rows of the listings that are asked for, in their order."""
    indexed = read(sql.IS_INDEXED, place)[0][0] == 1  # and not in the middle of it
    if not query.words:
        return _search(read, place, query, indexed=indexed)
    if indexed:
        ids = read(_FIND_WORDS, (_expression(place, query.words), _MOST_FOUND))
        if len(ids) < _MOST_FOUND:
            return _among(read, place, query, [listing_id for (listing_id,) in ids])
    return _look_through(read, place, query, indexed=indexed)


def _search(read: Read, place: Place, query: ListingQuery, *, indexed: bool) -> list[Row]:
    shape = search.shape_of(query)
    if indexed:
        shape = _way(read, place, query, shape)
    return read(search.search(shape), (*place, *search.values_of(query)))


def _way(read: Read, place: Place, query: ListingQuery, shape: search.Shape) -> search.Shape:
    """Gather where a filter leaves few listings, else walk: then those that are sought lie close enough."""
    for gathering in search.gatherings(shape):
        values = (getattr(query, name) for name in search.served(gathering))
        if read(search.count_few(gathering), (*place, *values))[0][0] < search.FEW:
            return gathering
    return search.walk(shape)


def _among(read: Read, place: Place, query: ListingQuery, ids: list[int]) -> list[Row]:
    """Few are gathered and sorted; many lie close enough along an index that has the order."""
    shape = search.shape_of(query)
    if len(ids) >= _FEW_FOUND:
        shape = _way(read, place, query, shape)
    shape = msgspec.structs.replace(shape, among=True)
    return read(search.search(shape), (*place, *search.values_of(query), msgspec.json.encode(ids).decode()))


def _look_through(read: Read, place: Place, query: ListingQuery, *, indexed: bool) -> list[Row]:
    """One listing after the other, for the words, until the page is full."""
    shape = search.shape_of(query)
    if indexed:
        shape = _way(read, place, query, shape)
    shape = msgspec.structs.replace(shape, worded=True)
    sought = (" ".join(query.words), f"%{max(query.words, key=len)}%")
    return read(search.search(shape), (*place, *search.values_of(query), *sought))


def _has_words(*values: "SQLiteValue") -> bool:
    """For SQL: whether title and content have all the words of the third value, which have spaces between them."""
    title, content, sought = map(str, values)
    return words.contain((title, content), sought.split(" "))


def _expression(place: Place, sought: tuple[str, ...]) -> str:
    """The account's word and all sought ones."""
    return " AND ".join(f'"{word}"' for word in (_account_word(place[1]), *sought))


# Writing


def index_words(connection: Connection, account_id: int, listing_id: int, title: str, content: str) -> None:
    """Make the listing findable by its words, and no longer by those that it had."""
    write(connection, _REMOVE_WORDS, (listing_id,))
    of_listing = dict.fromkeys(words.words_of(title) + words.words_of(content))
    write(connection, _ADD_WORDS, (listing_id, " ".join([_account_word(account_id), *of_listing])))


def _account_word(account_id: int) -> str:
    """A word that no text has, since its first character is no letter."""
    return f"§{account_id}"
