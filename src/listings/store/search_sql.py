"""The statements that search an account's listings (decision G17).

A small account is scanned: all listings with a status are filtered and sorted. The listings of a large account are
indexed, and a search uses one of two plans. An index scan reads an index in the requested order until the page is full.
Collect and sort first reads all listings that match one selective filter, and then sorts them. External ids are looked
up in their index, whatever the size of the account.

The index is named in a comment. `sql.to_sqlite` turns it into an INDEXED BY clause; other engines ignore it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from listings.domain.listings import MAX_COUNTED, ROW_BYTES
from listings.domain.model import SORTED_BY, UNINDEXED_SORTS, ListingQuery, Status, Value
from listings.store.mapping import Partition
from listings.store.query import Row
from listings.store.sql import TEXT_BYTES

MIN_INDEXED_LISTINGS = 1000
"""An account with at least this many listings is indexed."""

MAX_COLLECTED = 2000
"""A filter is selective enough to collect and sort if it matches fewer listings than this."""

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
# The last views of some old listings are unknown: these have views, but no day.
UNVIEWED = "(last_viewed_on < {0} OR last_viewed_on IS NULL AND view_count = 0)"
CONDITIONS = {
    "category": "category = {}",
    "region": "region = {}",
    "updated_since": "updated_at >= {}",
    "price_min": "price_cents >= {}",
    "price_max": "price_cents <= {}",
    "type": "type = {}",
    "images": "images = {}",
    "view_count": "view_count = {}",
    "unviewed_since": f"created_at < {{0}} AND {UNVIEWED}",
    "external_ids": "external_id IN (SELECT value FROM json_each({}))",  # SQLite; PostgreSQL replaces it
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
_EQUALITIES = ("category", "region", "type")


class Statement(NamedTuple):
    """A statement, and the values of its parameters."""

    text: str
    values: Row


class Builder:
    """Collects the values of a statement while its text is built. The first are the bucket and the account."""

    def __init__(self, partition: Partition) -> None:
        self._values: list[object] = [*partition]

    def add(self, value: object) -> str:
        """Add the value of a parameter. Return the parameter."""
        self._values.append(value)
        return f"${len(self._values)}"

    def finish(self, text: str) -> Statement:
        """Return the statement."""
        return Statement(text, tuple(self._values))


# Plans: an index is named by plan


def remove_page(query: ListingQuery) -> ListingQuery:
    """Return the query without cursor and limit, to count all matches. Their order does not matter."""
    return replace(query, sort="id", after=None, limit=None)


def limit_count(query: ListingQuery) -> str:
    """Return the LIMIT clause of a count, which is exact if only the status is filtered."""
    return "" if query.is_counted_exactly else f" LIMIT {MAX_COUNTED + 1}"


def find_only_index(query: ListingQuery) -> str:
    """Return the index of a search by external ids, which is the same in accounts of any size, otherwise ""."""
    return BY_EXTERNAL_ID if query.external_ids is not None else ""


def find_scan_index(query: ListingQuery) -> str:
    """Return the index to scan in the requested order. A search by external ids keeps its own index."""
    if query.external_ids is not None:
        return BY_EXTERNAL_ID
    if query.sort != "id" and query.sort not in UNINDEXED_SORTS:
        return f"listings_by_{query.sort}"
    equal = [name for name in _list_filters(query) if name in _EQUALITIES]
    return _INDEXES[equal[0]] if equal else STATUS_INDEX[query.status]


def find_served_filters(query: ListingQuery, index: str) -> list[str]:
    """Return the filters that an index serves. The index of a status serves none."""
    return [name for name in _list_filters(query) if _INDEXES.get(name) == index]


def list_collect_indexes(query: ListingQuery) -> Iterator[str]:
    """Return the index of each filter and of the status, unless an index scan already reads it."""
    if query.external_ids is not None:
        return
    indexes = [_INDEXES[name] for name in _list_filters(query) if name in _INDEXES]
    if query.status != "all":
        indexes.append(STATUS_INDEX[query.status])
    scanned = find_scan_index(query)
    yield from (index for index in dict.fromkeys(indexes) if index != scanned)


# Parts of statements


def build_filters(builder: Builder, query: ListingQuery, conditions: Mapping[str, str] = CONDITIONS) -> list[str]:
    """Return the conditions of the query's filters."""
    return [conditions[name].format(builder.add(_get_value(query, name))) for name in _list_filters(query)]


def build_cursor_conditions(builder: Builder, query: ListingQuery) -> list[str]:
    """Return the condition that a row comes after the cursor, or nothing for a first page."""
    if query.after is None:
        return []
    value, listing_id = query.after
    sign = "<" if query.descending else ">"
    if query.sort == "id":
        return [f"id {sign} {builder.add(listing_id)}"]
    return [f"({_build_key(query)}, id) {sign} ({_build_key(query, builder.add(value))}, {builder.add(listing_id)})"]


def build_order(builder: Builder, query: ListingQuery) -> str:
    """Return the ORDER BY and LIMIT clauses."""
    limit = "" if query.limit is None else f" LIMIT {builder.add(query.limit)}"
    return f"ORDER BY {_build_order_by(query)}{limit}"


def build_select(query: ListingQuery, index: str, conditions: Sequence[str], columns: str, source: str = "") -> str:
    """Return the SELECT of the listings that meet the conditions, without an order.

    Without an index, a search for "all" is two SELECTs: of the active listings, and of the others. `source` replaces
    the table.
    """
    source = source or ("listings" + (f" /*INDEXED BY {index}*/" if index else ""))
    statuses = [_STATUS.get(query.status, "")] if index or query.status != "all" else [_STATUS["active"], _HIDDEN]
    indexed = "indexed" if index not in {"", BY_EXTERNAL_ID} else ""
    selects = (
        f"SELECT {columns} FROM {source} WHERE "
        + " AND ".join(filter(None, ["bucket = $1", "account_id = $2", indexed, status, *conditions]))
        for status in statuses
    )
    return " UNION ALL ".join(selects)


def build_sorted_columns(query: ListingQuery) -> str:
    """Return the columns by which a search is sorted, the id first."""
    return ", ".join(dict.fromkeys(["id", SORTED_BY[query.sort], _build_key(query)]))


def build_size_columns(query: ListingQuery) -> str:
    """Return the columns that `build_pieces` needs of a search."""
    return f"{build_sorted_columns(query)}, {TEXT_BYTES} + {ROW_BYTES} AS size"


def build_pieces(found: str, query: ListingQuery, aggregate: str) -> str:
    """Return the statement that splits the result of a search into the ids of pieces, in the order of the search.

    `found` selects `build_size_columns`. `aggregate` is the function that collects ids.
    """
    by = _build_order_by(query)
    return (
        f"SELECT {aggregate}(id ORDER BY {by}) FROM (SELECT *, CAST(sum(size) OVER (ORDER BY {by}"
        f" ROWS UNBOUNDED PRECEDING) AS bigint) / {PIECE_BYTES} AS piece FROM ({found}) AS found) AS numbered"
        " GROUP BY piece ORDER BY piece"
    )


def build_count(partition: Partition, query: ListingQuery, index: str) -> Statement:
    """Return the statement that counts the listings to collect and sort, up to MAX_COLLECTED."""
    builder = Builder(partition)
    served = find_served_filters(query, index)
    conditions = [CONDITIONS[name].format(builder.add(_get_value(query, name))) for name in served]
    counted = replace(query, status="all") if served else query
    inner = build_select(counted, index, conditions, "1")
    return builder.finish(f"SELECT count(*) FROM ({inner} LIMIT {MAX_COLLECTED}) AS few")


def _list_filters(query: ListingQuery) -> list[str]:
    return [name for name in CONDITIONS if getattr(query, name) is not None]


def _get_value(query: ListingQuery, name: str) -> Value:
    value: Value = getattr(query, name)
    return msgspec.json.encode(value).decode() if name == "external_ids" else value


def _build_order_by(query: ListingQuery) -> str:
    direction = "DESC" if query.descending else "ASC"
    return f"id {direction}" if query.sort == "id" else f"{_build_key(query)} {direction}, id {direction}"


def _build_key(query: ListingQuery, value: str = "") -> str:
    # SQLite has the function `fold`; PostgreSQL replaces it.
    value = value or SORTED_BY[query.sort]
    return f"fold({value})" if query.sort == "folded_title" else value
