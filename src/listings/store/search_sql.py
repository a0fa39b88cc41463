"""The statements that search an account's listings (decision G17).

A small account is scanned: all listings with a status are filtered and sorted. The listings of a large account are
indexed, and a search uses one of two plans. A walk follows an index in the requested order until the page is full. A
gather plan first collects all listings that match one selective filter, and then sorts them. External ids are looked up
in their index, whatever the size of the account.

The index is named in a comment. `sql.to_sqlite` turns it into an INDEXED BY clause; other engines ignore it.
"""

from collections.abc import Iterator
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from listings.contract.listings import MAX_COUNTED, ROW_BYTES
from listings.domain.model import SORTED_BY, ListingQuery, SortKey, Status, Value
from listings.store.sql import LISTING_COLUMNS, TEXT_BYTES

MIN_INDEXED_LISTINGS = 1000
"""An account with at least this many listings is indexed."""

MAX_GATHERED = 2000
"""A filter is selective enough for a gather plan if it matches fewer listings than this."""

PIECE_BYTES = 128 * 1024
"""Size of the pieces in which many or long listings are read. A piece has at least one listing."""

BY_EXTERNAL_ID = "listings_external_id"  # unlike the other indexes, it has listings of every account

_HIDDEN = "NOT (is_active AND deleted_at IS NULL)"  # the condition of the partial index listings_hidden
_STATUS: dict[Status, str] = {
    "active": "is_active AND deleted_at IS NULL",
    "inactive": f"{_HIDDEN} AND NOT is_active AND deleted_at IS NULL",
    "deleted": f"{_HIDDEN} AND deleted_at IS NOT NULL",
}
STATUS_INDEX: dict[Status, str] = {
    "active": "listings_active",
    "inactive": "listings_inactive",
    "deleted": "listings_deleted",
    "all": "listings_by_id",
}
CONDITIONS = {
    "category": "category = $%d",
    "region": "region = $%d",
    "updated_since": "updated_at >= $%d",
    "price_min": "price_cents >= $%d",
    "price_max": "price_cents <= $%d",
    "type": "type = $%d",
    "external_ids": "external_id IN (SELECT value FROM json_each($%d))",  # SQLite; PostgreSQL replaces it
}
_INDEXES = {
    "category": "listings_by_category",
    "region": "listings_by_region",
    "updated_since": "listings_by_updated_at",
    "price_min": "listings_by_price",
    "price_max": "listings_by_price",
    "type": "listings_by_type",
    "external_ids": BY_EXTERNAL_ID,
}
# LIKE quickly rules out most ASCII texts. Texts with other characters always pass: LIKE ignores case only in ASCII.
MAY_HAVE_WORD = (
    "(title LIKE ${0} OR content LIKE ${0} OR octet_length(title) + octet_length(content) > "
    "length(title) + length(content))"
)
_EQUALITIES = ("category", "region", "type")


class Shape(msgspec.Struct, frozen=True):
    """Everything that determines the statement of a search: all its properties except the values."""

    status: Status
    filters: tuple[str, ...]
    sort: SortKey
    descending: bool
    has_cursor: bool  # starts after a given listing
    has_limit: bool
    by_ids: bool = False  # only listings with given ids
    by_terms: bool = False  # only listings whose texts have given words
    by_match: bool = False  # only listings that the full-text index of SQLite finds
    index: str = ""  # empty if the account is not indexed


def build_shape(query: ListingQuery) -> Shape:
    """Return the shape of a search in an account that is not indexed, or by external ids in any account."""
    filters = tuple(name for name in CONDITIONS if getattr(query, name) is not None)
    return Shape(
        status=query.status,
        filters=filters,
        sort=query.sort,
        descending=query.descending,
        has_cursor=query.after is not None,
        has_limit=query.limit is not None,
        by_ids=bool(query.ids),
        index=BY_EXTERNAL_ID if "external_ids" in filters else "",
    )


def build_parameters(query: ListingQuery) -> Iterator[Value]:
    """Return the parameters of a statement that follow the bucket and the account, in their order."""
    for name in CONDITIONS:
        value = getattr(query, name)
        if value is not None:
            yield msgspec.json.encode(value).decode() if name == "external_ids" else value
    if query.after is not None:
        yield from query.after if query.sort != "id" else (query.after[1],)
    if query.limit is not None:
        yield query.limit


def remove_page(query: ListingQuery) -> ListingQuery:
    """Return the query without cursor and limit, to count all matches. Their order does not matter."""
    return replace(query, sort="id", after=None, limit=None)


def plan_walk(shape: Shape) -> Shape:
    """Return the plan that follows the index with the requested order. A search by external ids keeps its own index."""
    if shape.index == BY_EXTERNAL_ID:
        return shape
    if shape.sort != "id":
        return replace(shape, index=f"listings_by_{shape.sort}")
    equal = [name for name in shape.filters if name in _EQUALITIES]
    return replace(shape, index=_INDEXES[equal[0]] if equal else STATUS_INDEX[shape.status])


def find_served_filters(shape: Shape) -> tuple[str, ...]:
    """Return the filters that the plan's index serves. The index of a status serves none."""
    return tuple(name for name in shape.filters if _INDEXES[name] == shape.index)


def list_gather_plans(shape: Shape) -> Iterator[Shape]:
    """Return a gather plan for each filter and for the status, unless the walk already follows that index."""
    if shape.index == BY_EXTERNAL_ID:
        return
    walked = plan_walk(shape).index
    indexes = [_INDEXES[name] for name in shape.filters]
    if shape.status != "all":
        indexes.append(STATUS_INDEX[shape.status])
    for index in dict.fromkeys(indexes):
        if index != walked:
            yield replace(shape, index=index)


@lru_cache(maxsize=2048)
def build_search(shape: Shape, columns: str = LISTING_COLUMNS) -> str:
    """Return the statement of a search.

    Its parameters are the bucket, the account and `build_parameters`, followed by those of `by_ids` and `by_terms`.
    Ids are a JSON array. Words are a string with spaces between them, and the next parameter is a LIKE pattern for the
    longest word.
    """
    return f"{_build_matches(shape, columns)} {build_order(shape)}"


@lru_cache(maxsize=512)
def build_total(shape: Shape) -> str:
    """Return the statement that counts the matches of a search without cursor and limit, up to MAX_COUNTED + 1.

    Its parameters are those of `build_search`, and the expression of `by_match`.
    """
    return f"SELECT count(*) FROM ({_build_matches(shape, '1')} LIMIT {MAX_COUNTED + 1}) AS few"


def _build_matches(shape: Shape, columns: str) -> str:
    parts = ["active", "all"] if shape.status == "all" and not shape.index else [shape.status]
    conditions = _build_conditions(shape)
    selects = (_build_select(shape, _build_status(part, shape), conditions, columns) for part in parts)
    return " UNION ALL ".join(selects)


def build_size_columns(shape: Shape) -> str:
    """Return the columns that `build_pieces` needs of a search: the id, the size and the sorted column."""
    column = SORTED_BY[shape.sort]
    return f"id, {TEXT_BYTES} + {ROW_BYTES} AS size" + ("" if column == "id" else f", {column}")


def build_pieces(found: str, shape: Shape, aggregate: str) -> str:
    """Return the statement that splits the result of a search into the ids of pieces, in the order of the search.

    `found` selects `build_size_columns`. `aggregate` is the function that collects ids.
    """
    by = _build_order_by(shape)
    return (
        f"SELECT {aggregate}(id ORDER BY {by}) FROM (SELECT *, CAST(sum(size) OVER (ORDER BY {by}"
        f" ROWS UNBOUNDED PRECEDING) AS bigint) / {PIECE_BYTES} AS piece FROM ({found}) AS found) AS numbered"
        " GROUP BY piece ORDER BY piece"
    )


def build_order(shape: Shape) -> str:
    """Return the ORDER BY and LIMIT clauses."""
    return f"ORDER BY {_build_order_by(shape)}" + (f" LIMIT ${find_limit_number(shape)}" if shape.has_limit else "")


def _build_order_by(shape: Shape) -> str:
    column, direction = SORTED_BY[shape.sort], "DESC" if shape.descending else "ASC"
    return f"id {direction}" if shape.sort == "id" else f"{column} {direction}, id {direction}"


def build_cursor_conditions(shape: Shape) -> list[str]:
    """Return the condition that a row comes after the cursor, or nothing for a first page."""
    number = 3 + len(shape.filters)
    sign = "<" if shape.descending else ">"
    if shape.has_cursor and shape.sort == "id":
        return [f"id {sign} ${number}"]
    return [f"({SORTED_BY[shape.sort]}, id) {sign} (${number}, ${number + 1})"] if shape.has_cursor else []


@lru_cache(maxsize=512)
def build_count(shape: Shape) -> str:
    """Return the statement that counts the listings a gather plan would collect, up to MAX_GATHERED.

    Its parameters are the bucket, the account, and the values of `find_served_filters`.
    """
    conditions = [CONDITIONS[name] % number for number, name in enumerate(find_served_filters(shape), 3)]
    inner = _build_select(shape, "" if conditions else _STATUS[shape.status], conditions, columns="1")
    return f"SELECT count(*) FROM ({inner} LIMIT {MAX_GATHERED}) AS few"


def _build_select(shape: Shape, status: str, conditions: list[str], columns: str = LISTING_COLUMNS) -> str:
    source = f"listings /*INDEXED BY {shape.index}*/" if shape.index else "listings"
    if shape.by_match:
        source = "listings_words CROSS JOIN listings ON listings.id = listings_words.rowid"
    indexed = "indexed" if shape.index not in {"", BY_EXTERNAL_ID} else ""
    where = ["bucket = $1", "account_id = $2", indexed, status, *conditions]
    return f"SELECT {columns} FROM {source} WHERE {' AND '.join(filter(None, where))}"


def _build_status(status: str, shape: Shape) -> str:
    """Return the condition for a status.

    In an account that is not indexed, a search for "all" is two SELECTs: "active", and "all", which here stands for the
    inactive and deleted listings.
    """
    if status != "all":
        return _STATUS[status]  # type: ignore[index]  # one of its keys
    return "" if shape.index else _HIDDEN


def _build_conditions(shape: Shape) -> list[str]:
    conditions = [CONDITIONS[name] % number for number, name in enumerate(shape.filters, 3)]
    conditions += build_cursor_conditions(shape)
    number = find_limit_number(shape) + shape.has_limit
    if shape.by_ids:
        conditions.append(f"id IN (SELECT value FROM json_each(${number}))")
        number += 1
    if shape.by_match:
        conditions.append(f"listings_words MATCH ${number}")
    if shape.by_terms:
        conditions.append(MAY_HAVE_WORD.format(number + 1))
        conditions.append(f"has_words(title, content, ${number})")
    return conditions


def find_limit_number(shape: Shape) -> int:
    """Return the number of the parameter that follows those of the conditions, which is the limit if there is one."""
    return 3 + len(shape.filters) + (0 if not shape.has_cursor else 1 if shape.sort == "id" else 2)
