"""Searches in PostgreSQL: the ways of `search`, each in a statement that leaves the planner no other.

It has no orders about indexes. So a condition that an index is not to serve is written so that none can, sorting is
switched off for the session, and what is to be sorted is gathered first.
"""

import asyncio
from functools import lru_cache

import msgspec

from listings.domain import tokenizer
from listings.domain.model import SORTED_BY, ListingQuery, SortKey
from listings.store import search_sql
from listings.store.mapping import Partition
from listings.store.postgres.pool import Rows, Session
from listings.store.search_sql import Shape
from listings.store.sql import IS_INDEXED, LISTING_COLUMNS

_PAGE = 200
_HIGHEST = 2**63 - 1  # higher than any id and price
_UNSERVED = {
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
_UNSERVED_STATUS = {
    "active": "CAST(is_active AS integer) = 1 AND COALESCE(deleted_at, -1) = -1",
    "inactive": "CAST(is_active AS integer) = 0 AND COALESCE(deleted_at, -1) = -1",
    "deleted": "COALESCE(deleted_at, -1) <> -1",
}
_FIND_WORDS = f"SELECT id FROM listing_words WHERE bucket = $1 AND words @> $2 LIMIT {search_sql.FEW}"
_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


def account_words(account_id: int, *texts: str) -> list[str]:
    """The words of texts as `listing_words` has them, each once."""
    return list(dict.fromkeys(f"{account_id}:{word}" for text in texts for word in tokenizer.tokenize(text)))


async def find(session: Session, place: Partition, query: ListingQuery) -> Rows:
    """The rows of the listings that are asked for, in their order."""
    possible = _possible(query)
    if possible is None:
        return []
    indexed = bool((await session.fetch_one(IS_INDEXED, *place))[0])
    if not query.words:
        return await _search(session, place, possible, indexed=indexed)
    await session.run(_SNAPSHOT)
    rows = await _find_words(session, place, possible, indexed=indexed)
    await session.run("COMMIT")
    return rows


def _possible(query: ListingQuery) -> ListingQuery | None:
    """The same question in values that this engine takes; None where no listing can answer it."""
    if any("\0" in text for text in (query.type, query.category, query.region, query.updated_since) if text):
        return None
    return query if query.after is None else msgspec.structs.replace(query, after=_place(query.sort, query.after))


def _place(sort: SortKey, after: tuple[str | int, int]) -> tuple[str | int, int]:
    """The place that SQLite would take it for: a client can make a cursor whose value is of another type.

    To a column of text a number is its digits; to one of numbers text is behind them all. Text with U+0000, which no
    text here has, is behind what stands before that.
    """
    value, listing_id = after
    if sort in {"id", "price"}:
        return after if isinstance(value, int) or sort == "id" else (_HIGHEST, _HIGHEST)
    before, nul, _ = str(value).partition("\0")
    return (before, _HIGHEST) if nul else (before, listing_id)


async def _find_words(session: Session, place: Partition, query: ListingQuery, *, indexed: bool) -> Rows:
    if indexed:
        sought = [f"{place[1]}:{word}" for word in query.words]
        ids = await session.fetch(_FIND_WORDS, place[0], sought)
        if len(ids) < search_sql.FEW:
            shape = search_sql.shape_of(query)
            values = (*place, *search_sql.values_of(query), [row[0] for row in ids])
            return await session.fetch(among(shape), *values)
    return await _look_through(session, place, query, indexed=indexed)


async def _search(session: Session, place: Partition, query: ListingQuery, *, indexed: bool) -> Rows:
    shape = search_sql.shape_of(query)
    if not indexed:
        return await session.fetch(search_sql.search(shape), *place, *search_sql.values_of(query))
    for gathering in search_sql.gatherings(shape):
        values = (getattr(query, name) for name in search_sql.served(gathering))
        if (await session.fetch_one(search_sql.count_few(gathering), *place, *values))[0] < search_sql.FEW:
            return await session.fetch(gather(gathering), *place, *search_sql.values_of(query))
    return await session.fetch(walk(search_sql.walk(shape)), *place, *search_sql.values_of(query))


async def _look_through(session: Session, place: Partition, query: ListingQuery, *, indexed: bool) -> Rows:
    """Page by page, for the words."""
    found: Rows = []
    page = msgspec.structs.replace(query, words=(), limit=_PAGE)
    while True:
        rows = await _search(session, place, page, indexed=indexed)
        found += await _having_words(rows, query.words)
        if len(rows) < _PAGE or (query.limit is not None and len(found) >= query.limit):
            return found[: query.limit]
        page = msgspec.structs.replace(page, after=(rows[-1][SORTED_BY[query.sort]], rows[-1]["id"]))


async def _having_words(rows: Rows, sought: tuple[str, ...]) -> Rows:
    """Long texts in slices, between which others have their turns."""
    found: Rows = []
    size = 0
    for row in rows:
        texts = (row["title"], row["content"])
        if tokenizer.matches(texts, sought):
            found.append(row)
        size += sum(map(len, texts))
        if size >= search_sql.SLICE:
            await asyncio.sleep(0)
            size = 0
    return found


@lru_cache(maxsize=2048)
def walk(shape: Shape) -> str:
    """The statement along the index that a shape names: parameters as of `search.search`."""
    conditions = " AND ".join([*_along(shape), *search_sql.behind(shape)])
    return f"SELECT {LISTING_COLUMNS} FROM listings WHERE {conditions} {search_sql.order(shape)}"


@lru_cache(maxsize=2048)
def gather(shape: Shape) -> str:
    """The statement that gathers along the index that a shape names, and then sorts: parameters as of `walk`."""
    return _sorted(_along(shape), shape)


@lru_cache(maxsize=2048)
def among(shape: Shape) -> str:
    """The statement among given ids, an array that is the last parameter: the others as of `walk`."""
    number = search_sql.count_parameters(shape) + shape.limited
    filters = [_UNSERVED[name] % place for place, name in enumerate(shape.filters, 3)]
    status = [] if shape.status == "all" else [_UNSERVED_STATUS[shape.status]]
    return _sorted(["bucket = $1", "account_id + 0 = $2", f"id = ANY(${number})", *status, *filters], shape)


def _along(shape: Shape) -> list[str]:
    """The conditions of a search along an index, of which only that index can serve any."""
    served = search_sql.served(shape)
    conditions = ["bucket = $1", "account_id = $2", "indexed"]
    if shape.status != "all":
        by_status = shape.by == search_sql.STATUS_INDEX[shape.status]
        conditions.append((_STATUS if by_status else _UNSERVED_STATUS)[shape.status])
    for number, name in enumerate(shape.filters, 3):
        conditions.append((search_sql.CONDITIONS if name in served else _UNSERVED)[name] % number)
    return conditions


def _sorted(conditions: list[str], shape: Shape) -> str:
    found = f"SELECT {LISTING_COLUMNS} FROM listings WHERE {' AND '.join(conditions)}"
    where = "".join(f"WHERE {condition} " for condition in search_sql.behind(shape))
    return f"WITH found AS MATERIALIZED ({found}) SELECT {LISTING_COLUMNS} FROM found {where}{search_sql.order(shape)}"
