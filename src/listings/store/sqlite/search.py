"""Search an account's listings in the SQLite file: choose a plan, and maintain the full-text index."""

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec
from apsw import Connection

from listings.domain import tokenizer
from listings.domain.model import ListingQuery
from listings.store import search_sql, sql
from listings.store.mapping import Partition, Row
from listings.store.scripts.engine import ListingText
from listings.store.scripts.script import QueryMany, Script
from listings.store.sql import LISTING_COLUMNS
from listings.store.sqlite.rows import Read

if TYPE_CHECKING:
    from apsw import SQLiteValue

_MAX_SORTED = 1000  # matches of the search terms; up to this number, all are read and sorted
_MAX_MATCHES = 5000  # matches of the search terms; with more, a scan soon fills a page
_ADD_WORDS = "INSERT INTO listings_words (rowid, words) VALUES (?, ?)"
_REMOVE_WORDS = "DELETE FROM listings_words WHERE rowid = ?"
READ_PIECE = f"""
SELECT {", ".join(f"listings.{name}" for name in LISTING_COLUMNS.split(", "))}
FROM json_each($1) AS wanted CROSS JOIN listings ON listings.id = wanted.value
"""
_FIND_WORDS = "SELECT rowid FROM listings_words WHERE listings_words MATCH ? LIMIT ?"


# Reading


def prepare(connection: Connection) -> None:
    """Register the SQL function that searches use."""
    connection.create_scalar_function("has_words", _has_words, 3, deterministic=True)


def find(read: Read, partition: Partition, query: ListingQuery) -> list[Row]:
    """Return the rows of the matching listings in the query's order."""
    shape, values = _plan(read, partition, query)
    return read(search_sql.build_search(shape), values)


def count(read: Read, partition: Partition, query: ListingQuery) -> int:
    """Return how many listings match the query's filters, at most MAX_COUNTED + 1."""
    shape, values = plan_count(read, partition, query)
    return int(read(search_sql.build_total(shape), values)[0][0])


def plan_count(read: Read, partition: Partition, query: ListingQuery) -> tuple[search_sql.Shape, Row]:
    """Return how to count the matches, and the parameters of `search_sql.build_total`."""
    every = search_sql.remove_page(query)
    if not query.words or query.ids or not _is_indexed(read, partition):
        return _plan(read, partition, every)
    shape = msgspec.structs.replace(search_sql.build_shape(every), by_match=True)
    return shape, (*partition, *search_sql.build_parameters(every), _build_match(partition, query.words))


def find_pieces(read: Read, partition: Partition, query: ListingQuery) -> tuple[list[str], bool]:
    """Return the matching listings as pieces for `READ_PIECE`, and whether they must still be searched for the words.

    In the second case, the query's limit does not apply yet.
    """
    shape, values = _plan(read, partition, query)
    scanned = shape.by_terms
    if scanned:
        shape, values = _plan(read, partition, msgspec.structs.replace(query, words=(), limit=None))
    rows = read(build_pieces(shape), values)
    return [ids for (ids,) in rows], scanned


@lru_cache(maxsize=512)
def build_pieces(shape: search_sql.Shape) -> str:
    """Return the statement that splits the result of a search into pieces."""
    found = search_sql.build_search(shape, search_sql.build_size_columns(shape))
    return search_sql.build_pieces(found, shape, "json_group_array")


def _plan(read: Read, partition: Partition, query: ListingQuery) -> tuple[search_sql.Shape, Row]:
    """Return how to search, and the parameters of the statement."""
    shape = search_sql.build_shape(query)
    values = (*partition, *search_sql.build_parameters(query))
    if query.ids:
        values = (*values, msgspec.json.encode(query.ids).decode())
    elif _is_indexed(read, partition):
        if query.words:
            ids = read(_FIND_WORDS, (_build_match(partition, query.words), _MAX_MATCHES))
            if len(ids) < _MAX_MATCHES:
                if len(ids) >= _MAX_SORTED:
                    shape = _choose_shape(read, partition, query, shape)
                matches = msgspec.json.encode([listing_id for (listing_id,) in ids]).decode()
                return msgspec.structs.replace(shape, by_ids=True), (*values, matches)
        shape = _choose_shape(read, partition, query, shape)
    if query.words:
        return msgspec.structs.replace(shape, by_terms=True), (*values, *_build_term_values(query))
    return shape, values


def _is_indexed(read: Read, partition: Partition) -> bool:
    return bool(read(sql.IS_INDEXED, partition)[0][0] == 1)  # completely; 2 means that indexing is not finished


def _choose_shape(read: Read, partition: Partition, query: ListingQuery, shape: search_sql.Shape) -> search_sql.Shape:
    """Gather and sort if a filter leaves few listings. Otherwise walk an index: matches are close together in it."""
    for gathering in search_sql.list_gather_plans(shape):
        values = (getattr(query, name) for name in search_sql.find_served_filters(gathering))
        if read(search_sql.build_count(gathering), (*partition, *values))[0][0] < search_sql.MAX_GATHERED:
            return gathering
    return search_sql.plan_walk(shape)


def _build_term_values(query: ListingQuery) -> tuple[str, str]:
    return " ".join(query.words), f"%{max(query.words, key=len)}%"


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
