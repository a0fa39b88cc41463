"""Search an account's listings in PostgreSQL, with statements that leave the planner only the intended plan.

PostgreSQL has no index hints. So a condition that no index should serve is written as an expression, sorting is
switched off in the sessions of searches, and rows to be sorted are collected in a materialized CTE first.
"""

import asyncio
from functools import lru_cache

import msgspec

from listings.domain import tokenizer
from listings.domain.model import MAX_ID, SORTED_BY, ListingQuery, SortKey
from listings.store import search_sql
from listings.store.mapping import Partition
from listings.store.postgres.pool import Rows, Session
from listings.store.search_sql import Shape
from listings.store.sql import IS_INDEXED, LISTING_COLUMNS

_PAGE_SIZE = 200
_UNINDEXED = {
    "category": "category || '' = $%d",
    "region": "region || '' = $%d",
    "updated_since": "updated_at || '' >= $%d",
    "price_min": "price_cents + 0 >= $%d",
    "price_max": "price_cents + 0 <= $%d",
    "type": "type || '' = $%d",
}
_STATUS = {
    "active": "is_active AND deleted_at IS NULL",
    "inactive": "NOT is_active AND deleted_at IS NULL",
    "deleted": "deleted_at IS NOT NULL",
}
_UNINDEXED_STATUS = {
    "active": "CAST(is_active AS integer) = 1 AND COALESCE(deleted_at, -1) = -1",
    "inactive": "CAST(is_active AS integer) = 0 AND COALESCE(deleted_at, -1) = -1",
    "deleted": "COALESCE(deleted_at, -1) <> -1",
}
_FIND_WORDS = f"SELECT id FROM listing_words WHERE bucket = $1 AND words @> $2 LIMIT {search_sql.MAX_GATHERED}"
_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


def build_account_words(account_id: int, *texts: str) -> list[str]:
    """Return the words of texts as `listing_words` stores them, without duplicates."""
    return list(dict.fromkeys(f"{account_id}:{word}" for text in texts for word in tokenizer.tokenize(text)))


async def find(session: Session, partition: Partition, query: ListingQuery) -> Rows:
    """Return the rows of the listings that match a query, in its order."""
    adapted = _adapt(query)
    if adapted is None:
        return []
    indexed = bool((await session.fetch_one(IS_INDEXED, *partition))[0])
    if not query.words:
        return await _search(session, partition, adapted, indexed=indexed)
    await session.execute(_SNAPSHOT)
    rows = await _find_words(session, partition, adapted, indexed=indexed)
    await session.execute("COMMIT")
    return rows


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


async def _find_words(session: Session, partition: Partition, query: ListingQuery, *, indexed: bool) -> Rows:
    if indexed:
        words = [f"{partition[1]}:{word}" for word in query.words]
        ids = await session.fetch(_FIND_WORDS, partition[0], words)
        if len(ids) < search_sql.MAX_GATHERED:
            shape = search_sql.build_shape(query)
            values = (*partition, *search_sql.build_parameters(query), [row[0] for row in ids])
            return await session.fetch(build_id_search(shape), *values)
    return await _scan(session, partition, query, indexed=indexed)


async def _search(session: Session, partition: Partition, query: ListingQuery, *, indexed: bool) -> Rows:
    shape = search_sql.build_shape(query)
    if not indexed:
        return await session.fetch(search_sql.build_search(shape), *partition, *search_sql.build_parameters(query))
    for plan in search_sql.list_gather_plans(shape):
        values = (getattr(query, name) for name in search_sql.find_served_filters(plan))
        if (await session.fetch_one(search_sql.build_count(plan), *partition, *values))[0] < search_sql.MAX_GATHERED:
            return await session.fetch(build_gather(plan), *partition, *search_sql.build_parameters(query))
    walk = build_walk(search_sql.plan_walk(shape))
    return await session.fetch(walk, *partition, *search_sql.build_parameters(query))


async def _scan(session: Session, partition: Partition, query: ListingQuery, *, indexed: bool) -> Rows:
    """Read the listings page by page and keep those that have the words."""
    found: Rows = []
    page = msgspec.structs.replace(query, words=(), limit=_PAGE_SIZE)
    while True:
        rows = await _search(session, partition, page, indexed=indexed)
        found += await _filter_by_words(rows, query.words)
        if len(rows) < _PAGE_SIZE or (query.limit is not None and len(found) >= query.limit):
            return found[: query.limit]
        page = msgspec.structs.replace(page, after=(rows[-1][SORTED_BY[query.sort]], rows[-1]["id"]))


async def _filter_by_words(rows: Rows, words: tuple[str, ...]) -> Rows:
    """Return the rows whose texts have all words. Yields to the event loop after each slice of text."""
    found: Rows = []
    size = 0
    for row in rows:
        texts = (row["title"], row["content"])
        if tokenizer.matches(texts, words):
            found.append(row)
        size += sum(map(len, texts))
        if size >= search_sql.SLICE_BYTES:
            await asyncio.sleep(0)
            size = 0
    return found


@lru_cache(maxsize=2048)
def build_walk(shape: Shape) -> str:
    """Return the statement that follows the shape's index. Its parameters are those of `search_sql.build_search`."""
    conditions = " AND ".join([*_build_conditions(shape), *search_sql.build_cursor_conditions(shape)])
    return f"SELECT {LISTING_COLUMNS} FROM listings WHERE {conditions} {search_sql.build_order(shape)}"


@lru_cache(maxsize=2048)
def build_gather(shape: Shape) -> str:
    """Return the statement that collects rows by the shape's index and then sorts them.

    Its parameters are those of `build_walk`.
    """
    return _build_sorted(_build_conditions(shape), shape)


@lru_cache(maxsize=2048)
def build_id_search(shape: Shape) -> str:
    """Return the statement that searches listings with given ids.

    Its parameters are those of `build_walk`, followed by the array of ids.
    """
    number = search_sql.find_limit_number(shape) + shape.has_limit
    filters = [_UNINDEXED[name] % position for position, name in enumerate(shape.filters, 3)]
    status = [] if shape.status == "all" else [_UNINDEXED_STATUS[shape.status]]
    return _build_sorted(["bucket = $1", "account_id + 0 = $2", f"id = ANY(${number})", *status, *filters], shape)


def _build_conditions(shape: Shape) -> list[str]:
    """Return the conditions of a search, written so that only the shape's index can serve any of them."""
    served = search_sql.find_served_filters(shape)
    conditions = ["bucket = $1", "account_id = $2", "indexed"]
    if shape.status != "all":
        by_status = shape.index == search_sql.STATUS_INDEX[shape.status]
        conditions.append((_STATUS if by_status else _UNINDEXED_STATUS)[shape.status])
    for number, name in enumerate(shape.filters, 3):
        conditions.append((search_sql.CONDITIONS if name in served else _UNINDEXED)[name] % number)
    return conditions


def _build_sorted(conditions: list[str], shape: Shape) -> str:
    found = f"SELECT {LISTING_COLUMNS} FROM listings WHERE {' AND '.join(conditions)}"
    where = "".join(f"WHERE {condition} " for condition in search_sql.build_cursor_conditions(shape))
    order = search_sql.build_order(shape)
    return f"WITH found AS MATERIALIZED ({found}) SELECT {LISTING_COLUMNS} FROM found {where}{order}"
