"""Search an account's listings in the SQLite file: choose a plan, and maintain the full-text index."""

from collections.abc import Sequence
from contextlib import closing
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

import msgspec
from apsw import Connection
from msgspec.structs import replace

from listings.domain import tokenizer
from listings.domain.model import UNINDEXED_SORTS, ListingQuery
from listings.store import search_sql, sql
from listings.store.mapping import Partition
from listings.store.query import Command, Row
from listings.store.scripts.engine import ListingText
from listings.store.scripts.script import Transaction
from listings.store.search_sql import Builder, Statement
from listings.store.sql import LISTING_COLUMNS
from listings.store.sqlite.script_runner import Iterate, Read

if TYPE_CHECKING:
    from apsw import SQLiteValue

INDEXED, INDEXING = 1, 2  # values of account_state.indexed: all listings are indexed, or the steps are indexing them
_MAX_SORTED = 1000  # fewer matches of the words are read by id and sorted; more are combined with another index
_MAX_MATCHES = 5000  # with this many matches or more, reading the texts in the requested order soon fills a page
_ADD_WORDS = Command("INSERT INTO listings_words (rowid, words) VALUES (?, ?)")
REMOVE_WORDS = Command("DELETE FROM listings_words WHERE rowid = ?")
_COLUMNS = ", ".join(f"listings.{name}" for name in LISTING_COLUMNS.split(", "))
_TITLE, _CONTENT = (LISTING_COLUMNS.split(", ").index(name) for name in ("title", "content"))
READ_PIECE = f"""
SELECT {_COLUMNS}
FROM json_each($1) AS wanted CROSS JOIN listings ON listings.id = wanted.value
"""
# LIKE quickly rules out most ASCII texts. Texts with other characters always pass: LIKE ignores case only in ASCII.
_MAY_HAVE_WORD = (
    "(listings.title LIKE {0} OR listings.content LIKE {0} OR octet_length(listings.title) + "
    "octet_length(listings.content) > length(listings.title) + length(listings.content))"
)
_FIND_WORDS = "SELECT rowid FROM listings_words WHERE listings_words MATCH ? LIMIT ?"


# Reading


def prepare(connection: Connection) -> None:
    """Register the SQL functions that searches use."""
    connection.create_scalar_function("has_words", _has_words, 3, deterministic=True)
    fold = lru_cache(maxsize=1)(tokenizer.fold)  # after a cursor, each row needs it twice
    connection.create_scalar_function("fold", fold, 1, deterministic=True)


class Plan(msgspec.Struct, frozen=True):
    """How to search: an index, and which rows. Its statement is built by `build_page` or `build_search`."""

    index: str = ""
    ids: Sequence[int] | None = None  # only listings with these ids
    match: str = ""  # only listings that the full-text index finds with this expression
    scans_texts: bool = False  # only listings whose texts have the query's words


def find(read: Read, iterate: Iterate, partition: Partition, query: ListingQuery, plan: Plan) -> list[Row]:
    """Return the rows of the matching listings in the query's order."""
    page = build_page(partition, query, plan)
    if not plan.scans_texts:
        return read(*page)
    with closing(iterate(*page)) as rows:  # sorted, so that no more texts are searched than the page needs
        found = (row for row in rows if tokenizer.matches((row[_TITLE], row[_CONTENT]), query.words))
        return list(islice(found, query.limit))


def find_and_count(read: Read, iterate: Iterate, partition: Partition, query: ListingQuery) -> tuple[list[Row], int]:
    """Return the rows like `find`, and how many listings match the filters, at most MAX_COUNTED + 1."""
    plan = plan_search(read, partition, query)
    rows = find(read, iterate, partition, query, plan)
    return rows, count(read, partition, query, plan_count(partition, query, plan))


def count(read: Read, partition: Partition, query: ListingQuery, plan: Plan) -> int:
    """Return how many listings match the query's filters, at most MAX_COUNTED + 1. `plan` is from `plan_count`."""
    ((total,),) = read(*build_total(partition, query, plan))
    return int(total)


def find_pieces(read: Read, partition: Partition, query: ListingQuery) -> tuple[list[str], bool]:
    """Return the matching listings as pieces for `READ_PIECE`, and whether the caller must search them for the words.

    If so, the query's limit was not applied either.
    """
    plan = plan_search(read, partition, query)
    scanned = plan.scans_texts
    if scanned:
        query = replace(query, words=(), limit=None)
        plan = plan_search(read, partition, query)
    found, values = build_search(partition, query, plan, search_sql.build_size_columns(query))
    rows = read(search_sql.build_pieces(found, query, "json_group_array"), values)
    return [ids for (ids,) in rows], scanned


def build_search(partition: Partition, query: ListingQuery, plan: Plan, columns: str = LISTING_COLUMNS) -> Statement:
    """Return the statement of a search."""
    builder = Builder(partition)
    matches = _build_matches(builder, query, plan, columns)
    return builder.finish(f"{matches} {search_sql.build_order(builder, query)}")


def build_page(partition: Partition, query: ListingQuery, plan: Plan) -> Statement:
    """Return the statement of a page; if the plan scans texts, of all rows that may have the words.

    Only ids are sorted: of 120 listings, 50 by price take 90 us, and with their texts 160. SQLite ignores the order of
    a subquery in a join unless it has a limit.
    """
    if query.sort == "id" and not plan.scans_texts:
        return build_search(partition, query, plan)
    builder = Builder(partition)
    may_match = f" WHERE {_may_have(builder, query)}" if plan.scans_texts else ""
    limit = -1 if plan.scans_texts or query.limit is None else query.limit
    plan, query = replace(plan, scans_texts=False), replace(query, limit=limit)
    ids = _build_matches(builder, query, plan, search_sql.build_sorted_columns(query))
    found = f"{ids} {search_sql.build_order(builder, query)}"
    return builder.finish(
        f"SELECT {_COLUMNS} FROM ({found}) AS found CROSS JOIN listings ON listings.id = found.id{may_match}"
    )


def _may_have(builder: Builder, query: ListingQuery) -> str:
    return _MAY_HAVE_WORD.format(builder.add(f"%{max(query.words, key=len)}%"))


def build_total(partition: Partition, query: ListingQuery, plan: Plan) -> Statement:
    """Return the statement that counts the matches of a search on all its pages, up to `limit_count`."""
    builder = Builder(partition)
    matches = _build_matches(builder, search_sql.remove_page(query), plan, "1")
    return builder.finish(f"SELECT count(*) FROM ({matches}{search_sql.limit_count(query)}) AS few")


def _build_matches(builder: Builder, query: ListingQuery, plan: Plan, columns: str) -> str:
    conditions = search_sql.build_filters(builder, query) + search_sql.build_cursor_conditions(builder, query)
    source = ""
    if plan.ids is not None:
        conditions.append(f"id IN (SELECT value FROM json_each({builder.add(msgspec.json.encode(plan.ids).decode())}))")
    if plan.match:
        source = "listings_words CROSS JOIN listings ON listings.id = listings_words.rowid"
        conditions.append(f"listings_words MATCH {builder.add(plan.match)}")
    if plan.scans_texts:
        conditions.append(_may_have(builder, query))
        conditions.append(f"has_words(title, content, {builder.add(' '.join(query.words))})")
    return search_sql.build_select(query, plan.index, conditions, columns, source)


def plan_search(read: Read, partition: Partition, query: ListingQuery) -> Plan:
    """Return how to search."""
    plan = Plan(search_sql.find_only_index(query))
    if query.ids:
        plan = replace(plan, ids=query.ids)
    elif read(sql.IS_INDEXED, partition) == [(INDEXED,)]:
        if query.words:
            found = read(_FIND_WORDS, (_build_match(partition, query.words), _MAX_MATCHES))
            if len(found) < _MAX_MATCHES:
                index = _choose_index(read, partition, query) if len(found) >= _MAX_SORTED else plan.index
                return Plan(index, [listing_id for (listing_id,) in found])
            if query.sort in UNINDEXED_SORTS:
                return Plan(search_sql.find_scan_index(query), match=_build_match(partition, query.words))
        plan = Plan(_choose_index(read, partition, query))
    return replace(plan, scans_texts=bool(query.words))


def plan_count(partition: Partition, query: ListingQuery, plan: Plan) -> Plan:
    """Return how to count the matches of a search, given its plan. The order does not matter."""
    is_indexed = plan.index not in {"", search_sql.BY_EXTERNAL_ID}
    if plan.scans_texts and is_indexed:  # the full-text index has all texts
        return Plan(search_sql.find_only_index(query), match=_build_match(partition, query.words))
    if plan.index == f"listings_by_{query.sort}" and not search_sql.find_served_filters(query, plan.index):
        return replace(plan, index=search_sql.find_scan_index(search_sql.remove_page(query)))
    return plan


def _choose_index(read: Read, partition: Partition, query: ListingQuery) -> str:
    # The matches of a selective filter are collected and sorted. Other matches are frequent, so a scan in the requested
    # order soon fills a page. `search_sql` describes both.
    for index in search_sql.list_collect_indexes(query):
        ((found,),) = read(*search_sql.build_count(partition, query, index))
        if found < search_sql.MAX_COLLECTED:
            return index
    return search_sql.find_scan_index(query)


def _has_words(*values: "SQLiteValue") -> bool:
    """SQL function: return whether title and content contain all terms of the third value, separated by spaces."""
    title, content, terms = map(str, values)
    return tokenizer.matches((title, content), terms.split(" "))


def _build_match(partition: Partition, terms: tuple[str, ...]) -> str:
    return " AND ".join(f'"{term}"' for term in (_account_word(partition[1]), *terms))


# Writing


async def index_words(tx: Transaction, account_id: int, texts: Sequence[ListingText]) -> None:
    """Replace the words of listings in the full-text index."""
    await tx.fetch_many(REMOVE_WORDS, [(listing_id,) for listing_id, _, _ in texts])
    await tx.fetch_many(_ADD_WORDS, [(listing_id, _build_words(account_id, *text)) for listing_id, *text in texts])


def _build_words(account_id: int, title: str, content: str) -> str:
    words = dict.fromkeys(tokenizer.tokenize(title) + tokenizer.tokenize(content))
    return " ".join([_account_word(account_id), *words])


def _account_word(account_id: int) -> str:
    # No text contains it: `§` is not a letter.
    return f"§{account_id}"
