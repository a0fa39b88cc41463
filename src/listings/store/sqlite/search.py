"""Search an account's listings in the SQLite file: choose a plan, and maintain the full-text index."""

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from apsw import Connection

from listings.domain import tokenizer
from listings.domain.model import ListingQuery
from listings.store import search_sql, sql
from listings.store.mapping import Partition, Row
from listings.store.scripts.engine import ListingText
from listings.store.scripts.script import QueryMany, Script
from listings.store.sql import LISTING_COLUMNS
from listings.store.sqlite.script_runner import Read

if TYPE_CHECKING:
    from apsw import SQLiteValue

INDEXED, INDEXING = 1, 2  # values of account_state.indexed: all listings are indexed, or the steps are indexing them
_MAX_SORTED = 1000  # fewer matches of the words are read by id and sorted; more are combined with another index
_MAX_MATCHES = 5000  # with this many matches or more, reading the texts in the requested order soon fills a page
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


class Plan(NamedTuple):
    """A search plan: the shape of the statement, and the parameters after those of `search_sql.build_parameters`."""

    shape: search_sql.Shape
    more: Row = ()


def find(read: Read, partition: Partition, query: ListingQuery) -> list[Row]:
    """Return the rows of the matching listings in the query's order."""
    plan = _plan(read, partition, query)
    return read(search_sql.build_search(plan.shape), _build_values(partition, query, plan))


def find_and_count(read: Read, partition: Partition, query: ListingQuery) -> tuple[list[Row], int]:
    """Return the rows like `find`, and how many listings match the filters, at most MAX_COUNTED + 1."""
    plan = _plan(read, partition, query)
    rows = read(search_sql.build_search(plan.shape), _build_values(partition, query, plan))
    return rows, count(read, partition, query, _plan_count(partition, query, plan))


def plan_count(read: Read, partition: Partition, query: ListingQuery) -> Plan:
    """Return how to count the listings that match the query's filters."""
    return _plan_count(partition, query, _plan(read, partition, query))


def count(read: Read, partition: Partition, query: ListingQuery, plan: Plan) -> int:
    """Return how many listings match the query's filters, at most MAX_COUNTED + 1. `plan` is from `plan_count`."""
    values = _build_values(partition, search_sql.remove_page(query), plan)
    return int(read(search_sql.build_total(plan.shape), values)[0][0])


def find_pieces(read: Read, partition: Partition, query: ListingQuery) -> tuple[list[str], bool]:
    """Return the matching listings as pieces for `READ_PIECE`, and whether the caller must search them for the words.

    If so, the query's limit was not applied either.
    """
    plan = _plan(read, partition, query)
    scanned = plan.shape.by_terms
    if scanned:
        query = msgspec.structs.replace(query, words=(), limit=None)
        plan = _plan(read, partition, query)
    rows = read(build_pieces(plan.shape), _build_values(partition, query, plan))
    return [ids for (ids,) in rows], scanned


@lru_cache(maxsize=512)
def build_pieces(shape: search_sql.Shape) -> str:
    """Return the statement that splits the result of a search into pieces."""
    found = search_sql.build_search(shape, search_sql.build_size_columns(shape))
    return search_sql.build_pieces(found, shape, "json_group_array")


def _plan(read: Read, partition: Partition, query: ListingQuery) -> Plan:
    shape = search_sql.build_shape(query)
    more: Row = ()
    if query.ids:
        more = (_encode_ids(query.ids),)
    elif _is_indexed(read, partition):
        if query.words:
            found = read(_FIND_WORDS, (_build_match(partition, query.words), _MAX_MATCHES))
            if len(found) < _MAX_MATCHES:
                if len(found) >= _MAX_SORTED:
                    shape = _choose_shape(read, partition, query, shape)
                ids = [listing_id for (listing_id,) in found]
                return Plan(msgspec.structs.replace(shape, by_ids=True), (_encode_ids(ids),))
        shape = _choose_shape(read, partition, query, shape)
    if query.words:
        return Plan(msgspec.structs.replace(shape, by_terms=True), (*more, *_build_term_values(query)))
    return Plan(shape, more)


def _plan_count(partition: Partition, query: ListingQuery, plan: Plan) -> Plan:
    """Return how to count the matches of a search, given its plan. The order does not matter."""
    is_indexed = plan.shape.index not in {"", search_sql.BY_EXTERNAL_ID}
    if plan.shape.by_terms and is_indexed:  # the full-text index has all texts
        shape = search_sql.build_shape(search_sql.remove_page(query))
        return Plan(msgspec.structs.replace(shape, by_match=True), (_build_match(partition, query.words),))
    shape = msgspec.structs.replace(plan.shape, has_cursor=False, has_limit=False)
    if shape.index == f"listings_by_{shape.sort}" and not search_sql.find_served_filters(shape):
        shape = search_sql.plan_walk(msgspec.structs.replace(shape, sort="id"))
    return plan._replace(shape=shape)


def _build_values(partition: Partition, query: ListingQuery, plan: Plan) -> Row:
    return (*partition, *search_sql.build_parameters(query), *plan.more)


def _encode_ids(ids: Sequence[int]) -> str:
    return msgspec.json.encode(ids).decode()


def _is_indexed(read: Read, partition: Partition) -> bool:
    return bool(read(sql.IS_INDEXED, partition)[0][0] == INDEXED)


def _choose_shape(read: Read, partition: Partition, query: ListingQuery, shape: search_sql.Shape) -> search_sql.Shape:
    """Return a plan that gathers the matches of a selective filter and sorts them.

    Without a selective filter, return one that walks along the index of the requested order: matches are then frequent,
    and soon fill a page. `search_sql` describes both.
    """
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
