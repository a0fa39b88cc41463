"""Search an account's listings in PostgreSQL, with statements that leave the planner only the intended plan.

PostgreSQL has no index hints. So a condition that no index should serve is written as an expression, sorting is
switched off in the sessions of searches, and rows to be sorted are collected in a materialized CTE first.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

import msgspec

from listings.contract.listings import MAX_COUNTED, MAX_LIST_BYTES, ROW_BYTES
from listings.domain import tokenizer
from listings.domain.account_limits import count_bytes
from listings.domain.model import MAX_ID, ListingQuery, SortKey
from listings.store import search_sql
from listings.store.mapping import Partition
from listings.store.postgres.pool import Rows, Session
from listings.store.search_sql import Shape
from listings.store.sql import IS_INDEXED, LISTING_COLUMNS

_ELEMENTS = "ANY(ARRAY(SELECT json_array_elements_text(CAST($%d AS json))))"
_CONDITIONS = search_sql.CONDITIONS | {"external_ids": f"external_id = {_ELEMENTS}"}
_UNINDEXED = {
    "category": "category || '' = $%d",
    "region": "region || '' = $%d",
    "updated_since": "updated_at || '' >= $%d",
    "price_min": "price_cents + 0 >= $%d",
    "price_max": "price_cents + 0 <= $%d",
    "type": "type || '' = $%d",
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
_FIND_WORDS = f"SELECT id FROM listing_words WHERE bucket = $1 AND words @> $2 LIMIT {search_sql.MAX_GATHERED}"
SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


def _build_lookups(ids: str, columns: str, conditions: Iterable[str]) -> str:
    """Return the statement that looks up listings one by one. `ids` is the source of their ids.

    With `id = ANY`, the planner may read the whole bucket. OFFSET 0 keeps it from turning the lookups into a join.
    """
    where = " AND ".join(["bucket = $1", "id = wanted.id", *conditions])
    one = f"SELECT {columns} FROM listings WHERE {where} OFFSET 0"
    return f"SELECT one.* FROM {ids} AS wanted (id) CROSS JOIN LATERAL ({one}) AS one"


FETCH_PIECE = _build_lookups("unnest(CAST($2 AS bigint[]))", LISTING_COLUMNS, ())


def build_account_words(account_id: int, *texts: str) -> list[str]:
    """Return the words of texts as `listing_words` stores them, without duplicates."""
    return list(dict.fromkeys(f"{account_id}:{word}" for text in texts for word in tokenizer.tokenize(text)))


class Plan(NamedTuple):
    """How to search: a builder of the statement for given columns, its parameters, and what is left to do."""

    build: Callable[[Shape, str], str]
    shape: Shape
    values: tuple[object, ...]
    must_scan: bool = False  # the words must still be searched for, and the limit does not apply yet


class ListingPieces(NamedTuple):
    """The ids of the listings of each piece, and the words to search their texts for."""

    ids: list[list[int]]
    words: tuple[str, ...] = ()


class FoundRows(NamedTuple):
    """The rows of the listings that match a query, None if they are too large, and their count if it counts them."""

    rows: Rows | None
    total: int | None


async def find(session: Session, partition: Partition, query: ListingQuery) -> FoundRows:
    """Search. The rows are in the order of the query."""
    adapted = _adapt(query)
    if adapted is None:
        return FoundRows([], 0)
    if not query.words and not query.count:
        return FoundRows(await _find(session, partition, adapted), None)
    await session.execute(SNAPSHOT)
    rows = await (_collect if query.words else _find)(session, partition, adapted)
    total = await count(session, partition, adapted) if query.count and rows is not None else None
    await session.execute("COMMIT")
    return FoundRows(rows, total)


async def _find(session: Session, partition: Partition, query: ListingQuery) -> Rows | None:
    plan = await _plan(session, partition, query)
    if (await session.fetch_one(build_size(plan.build, plan.shape), *plan.values))[0] > MAX_LIST_BYTES:
        return None
    rows = await session.fetch(plan.build(plan.shape, LISTING_COLUMNS), *plan.values)
    return rows if measure(rows) <= MAX_LIST_BYTES else None  # without a snapshot, it may have grown meanwhile


def measure(rows: Rows) -> int:
    """Return the approximate size of listings in bytes."""
    return sum(ROW_BYTES + len(row["title"]) + count_bytes(row["content"]) + len(row["images"]) for row in rows)


async def _collect(session: Session, partition: Partition, query: ListingQuery) -> Rows | None:
    found: Rows = []
    pieces = await find_pieces(session, partition, query)
    for ids in pieces.ids:
        found += filter_by_words(await fetch_piece(session, partition, ids), pieces.words)
        await asyncio.sleep(0)  # searching texts takes time
        if pieces.words and query.limit is not None and len(found) >= query.limit:
            break
        if measure(found) > MAX_LIST_BYTES:
            return None
    return found[: query.limit]


async def count(session: Session, partition: Partition, query: ListingQuery) -> int:
    """Return how many listings match the query's filters, at most MAX_COUNTED + 1. Call it in a snapshot."""
    every = _adapt(search_sql.remove_page(query))
    if every is None:
        return 0
    plan = await _plan_count(session, partition, every)
    if not plan.must_scan:
        return int((await session.fetch_one(build_total(plan.build, plan.shape), *plan.values))[0])
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
    statement = build_pieces(plan.build, plan.shape)
    return ListingPieces(
        [row[0] for row in await session.fetch(statement, *plan.values)], query.words if plan.must_scan else ()
    )


async def fetch_piece(session: Session, partition: Partition, ids: list[int]) -> Rows:
    """Return the rows of a piece, in its order."""
    rows = {row["id"]: row for row in await session.fetch(FETCH_PIECE, partition[0], ids)}
    return [rows[listing_id] for listing_id in ids]


def _adapt(query: ListingQuery) -> ListingQuery | None:
    """Return the query with values that PostgreSQL accepts, or None if no listing can match it."""
    if any("\0" in text for text in (query.type, query.category, query.region, query.updated_since) if text):
        return None
    return (
        query if query.after is None else msgspec.structs.replace(query, after=_adapt_cursor(query.sort, query.after))
    )


def _adapt_cursor(sort: SortKey, after: tuple[str | int, int]) -> tuple[str | int, int]:
    """Return the cursor as SQLite would compare it. A client may send a value of another type.

    A text column compares a number by its digits, and a number column sorts any text after all numbers. Text with
    U+0000, which no stored text has, sorts after the part before that character.
    """
    value, listing_id = after
    if sort in {"id", "price"}:
        return after if isinstance(value, int) or sort == "id" else (MAX_ID, MAX_ID)
    before, nul, _ = str(value).partition("\0")
    return (before, MAX_ID) if nul else (before, listing_id)


async def _plan(session: Session, partition: Partition, query: ListingQuery) -> Plan:
    shape = search_sql.build_shape(query)
    values = (*partition, *search_sql.build_parameters(query))
    indexed = not query.ids and await _is_indexed(session, partition)
    if query.words:
        ids = await session.fetch(_FIND_WORDS, partition[0], _build_query_words(partition, query)) if indexed else []
        if indexed and len(ids) < search_sql.MAX_GATHERED:
            return Plan(build_id_search, shape, (*values, [row[0] for row in ids]))
        every = msgspec.structs.replace(query, words=(), limit=None)
        return (await _plan(session, partition, every))._replace(must_scan=True)
    if query.ids:
        return Plan(build_id_search, shape, (*values, list(query.ids)))
    if shape.index or not indexed:  # external ids have an index in every account
        return Plan(build_gather if shape.index else search_sql.build_search, shape, values)
    for gather in search_sql.list_gather_plans(shape):
        served = (getattr(query, name) for name in search_sql.find_served_filters(gather))
        counted = await session.fetch_one(search_sql.build_count(gather), *partition, *served)
        if counted[0] < search_sql.MAX_GATHERED:
            return Plan(build_gather, gather, values)
    return Plan(build_walk, search_sql.plan_walk(shape), values)


async def _plan_count(session: Session, partition: Partition, query: ListingQuery) -> Plan:
    if not query.words or query.ids or not await _is_indexed(session, partition):
        return await _plan(session, partition, query)
    values = (*partition, *search_sql.build_parameters(query), _build_query_words(partition, query))
    return Plan(build_word_search, search_sql.build_shape(query), values)


async def _is_indexed(session: Session, partition: Partition) -> bool:
    return bool((await session.fetch_one(IS_INDEXED, *partition))[0])


def _build_query_words(partition: Partition, query: ListingQuery) -> list[str]:
    """Return the words of a query as `listing_words` stores them."""
    return [f"{partition[1]}:{word}" for word in query.words]


def filter_by_words(rows: Rows, words: tuple[str, ...]) -> Rows:
    """Return the rows whose texts have all words."""
    return [row for row in rows if tokenizer.matches((row["title"], row["content"]), words)] if words else rows


@lru_cache(maxsize=512)
def build_size(build: Callable[[Shape, str], str], shape: Shape) -> str:
    """Return the statement that measures a search's result, up to the size at which it is certainly too large."""
    found = build(shape, search_sql.build_size_columns(shape))
    few = f"SELECT size FROM ({found}) AS found LIMIT {MAX_LIST_BYTES // ROW_BYTES + 1}"
    return f"SELECT COALESCE(sum(size), 0) FROM ({few}) AS few"


@lru_cache(maxsize=512)
def build_total(build: Callable[[Shape, str], str], shape: Shape) -> str:
    """Return the statement that counts a search's result, up to MAX_COUNTED + 1."""
    return f"SELECT count(*) FROM (SELECT 1 FROM ({build(shape, 'id')}) AS found LIMIT {MAX_COUNTED + 1}) AS few"


@lru_cache(maxsize=512)
def build_pieces(build: Callable[[Shape, str], str], shape: Shape) -> str:
    """Return the statement that splits a search's result into the ids of pieces."""
    return search_sql.build_pieces(build(shape, search_sql.build_size_columns(shape)), shape, "array_agg")


@lru_cache(maxsize=2048)
def build_walk(shape: Shape, columns: str = LISTING_COLUMNS) -> str:
    """Return the statement that follows the shape's index. Its parameters are those of `search_sql.build_search`."""
    conditions = " AND ".join([*_build_conditions(shape), *search_sql.build_cursor_conditions(shape)])
    return f"SELECT {columns} FROM listings WHERE {conditions} {search_sql.build_order(shape)}"


@lru_cache(maxsize=2048)
def build_gather(shape: Shape, columns: str = LISTING_COLUMNS) -> str:
    """Return the statement that collects rows by the shape's index and then sorts them.

    Its parameters are those of `build_walk`.
    """
    found = f"SELECT {LISTING_COLUMNS} FROM listings WHERE {' AND '.join(_build_conditions(shape))}"
    return _build_sorted(found, shape, columns)


@lru_cache(maxsize=2048)
def build_id_search(shape: Shape, columns: str = LISTING_COLUMNS) -> str:
    """Return the statement that searches listings with given ids.

    Its parameters are those of `build_walk`, followed by the array of ids.
    """
    ids = f"unnest(CAST(${search_sql.find_limit_number(shape) + shape.has_limit} AS bigint[]))"
    return _build_sorted(_build_lookups(ids, LISTING_COLUMNS, _build_unindexed_conditions(shape)), shape, columns)


def build_word_search(shape: Shape, columns: str = LISTING_COLUMNS) -> str:
    """Return the statement that searches listings with given words, without a page and in any order.

    Its parameters are those of `build_walk`, followed by the array of words.
    """
    number = search_sql.find_limit_number(shape)
    ids = f"(SELECT id FROM listing_words WHERE bucket = $1 AND words @> ${number} OFFSET 0)"
    return _build_lookups(ids, columns, _build_unindexed_conditions(shape))


def _build_unindexed_conditions(shape: Shape) -> list[str]:
    """Return the conditions of a search, written so that no index can serve any of them."""
    filters = [_UNINDEXED[name] % number for number, name in enumerate(shape.filters, 3)]
    status = [] if shape.status == "all" else [_UNINDEXED_STATUS[shape.status]]
    return ["account_id + 0 = $2", *status, *filters]


def _build_conditions(shape: Shape) -> list[str]:
    """Return the conditions of a search, written so that only the shape's index can serve any of them."""
    served = search_sql.find_served_filters(shape)
    conditions = ["bucket = $1", "account_id = $2"]
    if shape.index != search_sql.BY_EXTERNAL_ID:
        conditions.append("indexed")
    if shape.status != "all":
        by_status = shape.index == search_sql.STATUS_INDEX[shape.status]
        conditions.append((_STATUS if by_status else _UNINDEXED_STATUS)[shape.status])
    for number, name in enumerate(shape.filters, 3):
        conditions.append((_CONDITIONS if name in served else _UNINDEXED)[name] % number)
    return conditions


def _build_sorted(found: str, shape: Shape, columns: str) -> str:
    where = "".join(f"WHERE {condition} " for condition in search_sql.build_cursor_conditions(shape))
    order = search_sql.build_order(shape)
    return f"WITH found AS MATERIALIZED ({found}) SELECT {columns} FROM found {where}{order}"
