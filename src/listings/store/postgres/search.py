"""Search an account's listings in PostgreSQL, with statements that leave the planner only the intended plan.

PostgreSQL has no index hints. So a condition that no index should serve is written as an expression, sorting is
switched off in the sessions of searches, and rows to be sorted are collected in a materialized CTE first.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import NamedTuple

import msgspec

from listings.domain import market, tokenizer
from listings.domain.account_limits import count_bytes
from listings.domain.listings import MAX_COUNTED, MAX_LIST_BYTES, ROW_BYTES
from listings.domain.model import MAX_ID, Listing, ListingQuery, Revisions
from listings.store import search_sql
from listings.store.mapping import ListingRow, Partition
from listings.store.postgres.pool import Session
from listings.store.query import Query
from listings.store.search_sql import Builder, Statement
from listings.store.sql import IS_INDEXED, LISTING_COLUMNS

_ELEMENTS = "ANY(ARRAY(SELECT json_array_elements_text(CAST({} AS json))))"
_CONDITIONS = search_sql.CONDITIONS | {"external_ids": f"external_id = {_ELEMENTS}"}
_UNINDEXED = {
    "category": "category || '' = {}",
    "region": "region || '' = {}",
    "updated_since": "updated_at || '' >= {}",
    "price_min": "price_cents + 0 >= {}",
    "price_max": "price_cents + 0 <= {}",
    "type": "type || '' = {}",
    "images": "images || '' = {}",
    "view_count": "view_count + 0 = {}",
    "unviewed_since": f"created_at || '' < {{0}} AND {search_sql.UNVIEWED}",
    "external_ids": f"external_id || '' = {_ELEMENTS}",
}
_STATUS = {
    "active": "is_active AND deleted_at IS NULL",
    "inactive": "NOT is_active AND deleted_at IS NULL",
    "deleted": "deleted_at IS NOT NULL",
}
_NOT_DELETED = "COALESCE(deleted_at, -99999999999) = -99999999999"  # before the first year
_UNINDEXED_STATUS = {
    "active": f"CAST(is_active AS integer) = 1 AND {_NOT_DELETED}",
    "inactive": f"CAST(is_active AS integer) = 0 AND {_NOT_DELETED}",
    "deleted": f"NOT ({_NOT_DELETED})",
}
_FIND_WORDS = Query[tuple[int]](
    f"SELECT id FROM listing_words WHERE bucket = $1 AND words @> $2 LIMIT {search_sql.MAX_COLLECTED}"
)
SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


# Like `tokenizer.fold`, except that ß stays. Most titles are ASCII, which takes a tenth of the time.
_FOLD = r"""(CASE WHEN octet_length(CAST(\1 AS text)) = length(\1) THEN lower(\1 COLLATE "C") ELSE
lower(regexp_replace(normalize(\1, NFKD), '[\\u0300-\\u036f]', '', 'g') COLLATE "default") COLLATE "C" END)"""


def replace_fold(statement: str) -> str:
    """Replace the function `fold`, which PostgreSQL does not have."""
    return re.sub(r"fold\((title|\$\d+)\)", _FOLD, statement)


def _build_lookups(ids: str, columns: str, conditions: Iterable[str]) -> str:
    # With `id = ANY`, the planner may read the whole bucket. OFFSET 0 keeps it from turning the lookups into a join.
    where = " AND ".join(["bucket = $1", "id = wanted.id", *conditions])
    one = f"SELECT {columns} FROM listings WHERE {where} OFFSET 0"
    return f"SELECT one.* FROM {ids} AS wanted (id) CROSS JOIN LATERAL ({one}) AS one"


FETCH_PIECE = Query[ListingRow](_build_lookups("unnest(CAST($2 AS bigint[]))", LISTING_COLUMNS, ()))


def build_merge(statement: str, order: str) -> str:
    """Sort each half of a UNION ALL on its own, because PostgreSQL would otherwise sort all rows after the cursor."""
    halves = statement.removesuffix(f"{order}\n").split("UNION ALL")
    return " UNION ALL ".join(f"({half} {order})" for half in halves) + f" {order}"


def build_account_words(account_id: int, *texts: str) -> list[str]:
    """Return the words of texts as `listing_words` stores them, without duplicates."""
    return list(dict.fromkeys(f"{account_id}:{word}" for text in texts for word in tokenizer.tokenize(text)))


class Plan(NamedTuple):
    """How to search: a function that builds the statement for given columns, and whether texts are searched later."""

    build: Callable[[str], Statement]
    must_scan: bool = False  # the words must still be searched for, and the limit does not apply yet


class ListingPieces(NamedTuple):
    """The ids of the listings of each piece, and the words to search their texts for."""

    ids: list[list[int]]
    words: tuple[str, ...] = ()


class FoundListings(NamedTuple):
    """The listings that match a query, None if they are too large, and their count if it counts them.

    `revisions` are those of the account when the listings were read, or None if no statement reads both.
    """

    listings: list[Listing] | None
    total: int | None = None
    revisions: Revisions | None = None


async def find(session: Session, partition: Partition, query: ListingQuery) -> FoundListings:
    """Search. The listings are in the order of the query."""
    adapted = _adapt(query)
    if adapted is None:
        return FoundListings([], 0)
    if not query.words and not query.count:
        return await _find(session, partition, adapted)
    await session.execute(SNAPSHOT)
    found = await (_collect if query.words else _find)(session, partition, adapted)
    total = await count(session, partition, adapted) if query.count and found.listings is not None else None
    await session.execute("COMMIT")
    return found._replace(total=total)


async def _find(session: Session, partition: Partition, query: ListingQuery) -> FoundListings:
    plan = await _plan(session, partition, query)
    found, values = plan.build(search_sql.build_size_columns(query))
    measured: Query[tuple[int]] = Query(replace_fold(build_size(found)))
    (size,) = await session.fetch_one(measured, *values)
    if size > MAX_LIST_BYTES:
        return FoundListings(None)
    statement, values = plan.build(LISTING_COLUMNS)
    page: Query[tuple[int, int, *ListingRow]] = Query(replace_fold(add_revisions(statement)))
    rows = await session.fetch(page, *values)
    if not rows:
        return FoundListings([])
    revision, edit_revision, *_ = rows[0]
    listings = [Listing(*columns) for _, _, *columns in rows if columns[0] is not None]
    if measure(listings) > MAX_LIST_BYTES:  # without a snapshot, it may have grown meanwhile
        return FoundListings(None)
    return FoundListings(listings, None, Revisions(revision, edit_revision))


def measure(listings: Iterable[Listing]) -> int:
    """Return the approximate size of listings in bytes."""
    return sum(ROW_BYTES + len(one.title) + count_bytes(one.content) + len(one.images) for one in listings)


async def _collect(session: Session, partition: Partition, query: ListingQuery) -> FoundListings:
    found: list[Listing] = []
    pieces = await find_pieces(session, partition, query)
    for ids in pieces.ids:
        found += filter_by_words(await fetch_piece(session, partition, ids), pieces.words)
        await asyncio.sleep(0)  # searching texts takes time
        if pieces.words and query.limit is not None and len(found) >= query.limit:
            break
        if measure(found) > MAX_LIST_BYTES:
            return FoundListings(None)
    return FoundListings(found[: query.limit])


async def count(session: Session, partition: Partition, query: ListingQuery) -> int:
    """Return how many listings match the query's filters, at most MAX_COUNTED + 1. Call it in a snapshot."""
    every = _adapt(search_sql.remove_page(query))
    if every is None:
        return 0
    if query.words and not query.ids and await _is_indexed(session, partition):
        plan = Plan(partial(build_word_search, partition, every))
    else:
        plan = await _plan(session, partition, every)
    if not plan.must_scan:
        found, values = plan.build("id")
        with session.limit_time(market.SEARCH_SECONDS) if query.words else nullcontext():
            counted: Query[tuple[int]] = Query(build_total(found, search_sql.limit_count(query)))
            (total,) = await session.fetch_one(counted, *values)
            return total
    total = 0
    for ids in (await find_pieces(session, partition, every)).ids:
        total += len(filter_by_words(await fetch_piece(session, partition, ids), query.words))
        await asyncio.sleep(0)
        if total > MAX_COUNTED:
            return MAX_COUNTED + 1
    return total


async def find_pieces(session: Session, partition: Partition, query: ListingQuery) -> ListingPieces:
    """Return the matching listings, in the order of the query. The session must be in a snapshot."""
    adapted = _adapt(query)
    if adapted is None:
        return ListingPieces([])
    plan = await _plan(session, partition, adapted)
    if plan.must_scan:
        adapted = msgspec.structs.replace(adapted, words=(), limit=None)
    found, values = plan.build(search_sql.build_size_columns(adapted))
    pieces: Query[tuple[list[int]]] = Query(replace_fold(search_sql.build_pieces(found, adapted, "array_agg")))
    rows = await session.fetch(pieces, *values)
    return ListingPieces([ids for (ids,) in rows], query.words if plan.must_scan else ())


async def fetch_piece(session: Session, partition: Partition, ids: list[int]) -> list[Listing]:
    """Return the listings of a piece, in its order."""
    listings = {row[0]: Listing(*row) for row in await session.fetch(FETCH_PIECE, partition[0], ids)}
    return [listings[listing_id] for listing_id in ids]


def _adapt(query: ListingQuery) -> ListingQuery | None:
    # PostgreSQL rejects U+0000, which no listing has.
    if any("\0" in text for text in (query.type, query.category, query.region, query.updated_since) if text):
        return None
    return (
        query if query.after is None else msgspec.structs.replace(query, after=_adapt_cursor(query.sort, query.after))
    )


def _adapt_cursor(sort: str, after: tuple[str | int, int]) -> tuple[str | int, int]:
    # As SQLite would compare it: a client may send a value of another type. A text column compares a number by its
    # digits, and a number column sorts any text after all numbers. Text with U+0000 sorts after the part before it.
    value, listing_id = after
    if sort in {"id", "price", "views"}:
        return after if isinstance(value, int) or sort == "id" else (MAX_ID, MAX_ID)
    before, nul, _ = str(value).partition("\0")
    return (before, MAX_ID) if nul else (before, listing_id)


async def _plan(session: Session, partition: Partition, query: ListingQuery) -> Plan:
    indexed = not query.ids and await _is_indexed(session, partition)
    if query.words:
        words = _build_query_words(partition, query)
        ids = await session.fetch(_FIND_WORDS, partition[0], words) if indexed else []
        if indexed and len(ids) < search_sql.MAX_COLLECTED:
            return Plan(partial(build_id_search, partition, query, [it for (it,) in ids]))
        every = msgspec.structs.replace(query, words=(), limit=None)
        return (await _plan(session, partition, every))._replace(must_scan=True)
    if query.ids:
        return Plan(partial(build_id_search, partition, query, query.ids))
    index = await _find_collect_index(session, partition, query) if indexed else search_sql.find_only_index(query)
    if index:
        return Plan(partial(build_collect_and_sort, partition, query, index))
    has_order = indexed and query.sort != "views"
    return Plan(partial(build_index_scan if has_order else build_account_scan, partition, query))


async def _find_collect_index(session: Session, partition: Partition, query: ListingQuery) -> str:
    # An index whose matches are few enough to be sorted.
    for index in search_sql.list_collect_indexes(query):
        statement, values = search_sql.build_count(partition, query, index)
        (found,) = await session.fetch_one(Query[tuple[int]](statement), *values)
        if found < search_sql.MAX_COLLECTED:
            return index
    return search_sql.find_only_index(query)


async def _is_indexed(session: Session, partition: Partition) -> bool:
    return bool((await session.fetch_one(IS_INDEXED, *partition))[0])


def _build_query_words(partition: Partition, query: ListingQuery) -> list[str]:
    return [f"{partition[1]}:{word}" for word in query.words]


def filter_by_words(listings: list[Listing], words: tuple[str, ...]) -> list[Listing]:
    """Return the listings whose texts have all words."""
    return [one for one in listings if tokenizer.matches((one.title, one.content), words)] if words else listings


def add_revisions(found: str) -> str:
    """Return the statement that reads the account's revisions and a search's result, or one row without a listing."""
    return f"""
SELECT state.*, found.*
FROM (SELECT revision, edit_revision FROM account_state WHERE bucket = $1 AND account_id = $2) AS state
LEFT JOIN LATERAL ({found}) AS found ON TRUE
"""


def build_size(found: str) -> str:
    """Return the statement that measures a search's result, up to the size at which it is certainly too large.

    `found` selects `search_sql.build_size_columns`.
    """
    few = f"SELECT size FROM ({found}) AS found LIMIT {MAX_LIST_BYTES // ROW_BYTES + 1}"
    return f"SELECT COALESCE(sum(size), 0) FROM ({few}) AS few"


def build_total(found: str, limit: str = f" LIMIT {MAX_COUNTED + 1}") -> str:
    """Return the statement that counts a search's result, up to a LIMIT clause."""
    return f"SELECT count(*) FROM (SELECT 1 FROM ({found}) AS found{limit}) AS few"


def build_account_scan(partition: Partition, query: ListingQuery, columns: str) -> Statement:
    """Return the statement that filters all listings of an account that is not indexed."""
    builder = Builder(partition)
    conditions = search_sql.build_filters(builder, query) + search_sql.build_cursor_conditions(builder, query)
    if query.sort == "folded_title":  # the rows of a UNION can't be sorted by an expression
        return _sort(builder, query, search_sql.build_select(query, "", conditions, LISTING_COLUMNS), columns)
    found = search_sql.build_select(query, "", conditions, columns)
    return builder.finish(f"{found} {search_sql.build_order(builder, query)}")


def build_index_scan(partition: Partition, query: ListingQuery, columns: str) -> Statement:
    """Return the statement that follows the index with the requested order."""
    builder = Builder(partition)
    conditions = _build_conditions(builder, query, search_sql.find_scan_index(query))
    where = " AND ".join([*conditions, *search_sql.build_cursor_conditions(builder, query)])
    return builder.finish(f"SELECT {columns} FROM listings WHERE {where} {search_sql.build_order(builder, query)}")


def build_collect_and_sort(partition: Partition, query: ListingQuery, index: str, columns: str) -> Statement:
    """Return the statement that collects rows by an index and then sorts them."""
    builder = Builder(partition)
    conditions = " AND ".join(_build_conditions(builder, query, index))
    return _sort(builder, query, f"SELECT {LISTING_COLUMNS} FROM listings WHERE {conditions}", columns)


def build_id_search(partition: Partition, query: ListingQuery, ids: Sequence[int], columns: str) -> Statement:
    """Return the statement that searches listings with given ids."""
    builder = Builder(partition)
    wanted = f"unnest(CAST({builder.add(list(ids))} AS bigint[]))"
    found = _build_lookups(wanted, LISTING_COLUMNS, _build_unindexed_conditions(builder, query))
    return _sort(builder, query, found, columns)


def build_word_search(partition: Partition, query: ListingQuery, columns: str) -> Statement:
    """Return the statement that searches listings with the query's words, without a page and in any order."""
    builder = Builder(partition)
    words = builder.add(_build_query_words(partition, query))
    ids = f"(SELECT id FROM listing_words WHERE bucket = $1 AND words @> {words} OFFSET 0)"
    return builder.finish(_build_lookups(ids, columns, _build_unindexed_conditions(builder, query)))


def _build_unindexed_conditions(builder: Builder, query: ListingQuery) -> list[str]:
    status = [] if query.status == "all" else [_UNINDEXED_STATUS[query.status]]
    return ["account_id + 0 = $2", *status, *search_sql.build_filters(builder, query, _UNINDEXED)]


def _build_conditions(builder: Builder, query: ListingQuery, index: str) -> list[str]:
    conditions = ["bucket = $1", "account_id = $2"]
    if index != search_sql.BY_EXTERNAL_ID:
        conditions.append("indexed")
    if query.status != "all":
        by_status = index == search_sql.STATUS_INDEX[query.status]
        conditions.append((_STATUS if by_status else _UNINDEXED_STATUS)[query.status])
    served = {name: _CONDITIONS[name] for name in search_sql.find_served_filters(query, index)}
    return conditions + search_sql.build_filters(builder, query, _UNINDEXED | served)


def _sort(builder: Builder, query: ListingQuery, found: str, columns: str) -> Statement:
    where = "".join(f"WHERE {condition} " for condition in search_sql.build_cursor_conditions(builder, query))
    order = search_sql.build_order(builder, query)
    return builder.finish(f"WITH found AS MATERIALIZED ({found}) SELECT {columns} FROM found {where}{order}")
