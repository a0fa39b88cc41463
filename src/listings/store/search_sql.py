"""The statements of a search in an account's listings (decision G17).

The listings of a small account are looked through: all of a status, filtered and sorted. Those of a large account
are indexed, and then a search either walks one index in the order that is asked for, until the page is full, or,
where one of its filters leaves few listings, gathers those and sorts them.

The index is named in a comment, which is an order to SQLite and nothing to any other engine.
"""

from collections.abc import Iterator
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from listings.domain.model import SORTED_BY, ListingQuery, SortKey, Status, Value
from listings.store.sql import LISTING_COLUMNS

LARGE = 1000
"""Listings from which on an account is indexed."""

FEW = 2000
"""Listings that are gathered and sorted at once."""

SLICE = 256 * 1024
"""Bytes of texts that are looked through at once."""

_HIDDEN = "NOT (is_active AND deleted_at IS NULL)"  # as the index listings_hidden has it
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
}
_INDEXES = {
    "category": "listings_by_category",
    "region": "listings_by_region",
    "updated_since": "listings_by_updated_at",
    "price_min": "listings_by_price",
    "price_max": "listings_by_price",
    "type": "listings_by_type",
}
# Of a text in ASCII, LIKE tells at once that it has not even the letters; others are taken apart to be sure.
MAY_HAVE_WORD = (
    "(title LIKE ${0} OR content LIKE ${0} OR octet_length(title) + octet_length(content) > "
    "length(title) + length(content))"
)
_EQUALITIES = ("category", "region", "type")


class Shape(msgspec.Struct, frozen=True):
    """What of a search decides its statement: all but the values."""

    status: Status
    filters: tuple[str, ...]
    sort: SortKey
    descending: bool
    behind: bool  # goes on behind a listing
    limited: bool
    among: bool = False  # only among given ids
    worded: bool = False  # only with given words, which each listing's texts are searched for
    by: str = ""  # the index; empty: the account is not indexed


def shape_of(query: ListingQuery) -> Shape:
    """The shape of a search in an account that is not indexed."""
    filters = tuple(name for name in CONDITIONS if getattr(query, name) is not None)
    return Shape(query.status, filters, query.sort, query.descending, query.after is not None, query.limit is not None)


def values_of(query: ListingQuery) -> Iterator[Value]:
    """The values behind bucket and account, in the order in which a statement numbers them."""
    for name in CONDITIONS:
        value = getattr(query, name)
        if value is not None:
            yield value
    if query.after is not None:
        yield from query.after if query.sort != "id" else (query.after[1],)
    if query.limit is not None:
        yield query.limit


def walk(shape: Shape) -> Shape:
    """The search along the index that has the order which is asked for."""
    if shape.sort != "id":
        return replace(shape, by=f"listings_by_{shape.sort}")
    equal = [name for name in shape.filters if name in _EQUALITIES]
    return replace(shape, by=_INDEXES[equal[0]] if equal else STATUS_INDEX[shape.status])


def served(shape: Shape) -> tuple[str, ...]:
    """The filters that the shape's index is for; none when it is for the status."""
    return tuple(name for name in shape.filters if _INDEXES[name] == shape.by)


def gatherings(shape: Shape) -> Iterator[Shape]:
    """The searches by one filter that may leave few listings, where the walk does not go by that filter already."""
    walked = walk(shape).by
    indexes = [_INDEXES[name] for name in shape.filters]
    if shape.status != "all":
        indexes.append(STATUS_INDEX[shape.status])
    for index in dict.fromkeys(indexes):
        if index != walked:
            yield replace(shape, by=index)


@lru_cache(maxsize=2048)
def search(shape: Shape, columns: str = LISTING_COLUMNS) -> str:
    """The statement: `$1` bucket, `$2` account, then `values_of`, then what `among` or `worded` is about.

    Ids are a JSON array; words have spaces between them, and the longest follows, between two %.
    """
    parts = ["active", "all"] if shape.status == "all" and not shape.by else [shape.status]
    conditions = _conditions(shape)
    selects = " UNION ALL ".join(_select(shape, _status_condition(part, shape), conditions, columns) for part in parts)
    return f"{selects} {order(shape)}"


def candidates(shape: Shape) -> str:
    """The same statement for id, version and bytes of the texts alone; the column of the order comes with them."""
    return search(shape, f"id, version, octet_length(title) + octet_length(content), {SORTED_BY[shape.sort]}")


def order(shape: Shape) -> str:
    """The end of a statement: its order, and how many rows it may have."""
    column, way = SORTED_BY[shape.sort], "DESC" if shape.descending else "ASC"
    by = f"id {way}" if shape.sort == "id" else f"{column} {way}, id {way}"
    return f"ORDER BY {by}" + (f" LIMIT ${count_parameters(shape)}" if shape.limited else "")


def behind(shape: Shape) -> list[str]:
    """The condition that a row comes after the place of the page before; none for a first page."""
    number = 3 + len(shape.filters)
    sign = "<" if shape.descending else ">"
    if shape.behind and shape.sort == "id":
        return [f"id {sign} ${number}"]
    return [f"({SORTED_BY[shape.sort]}, id) {sign} (${number}, ${number + 1})"] if shape.behind else []


@lru_cache(maxsize=512)
def count_few(shape: Shape) -> str:
    """How many listings a gathering's index leaves, up to FEW: `$1` bucket, `$2` account, the values `served`."""
    conditions = [CONDITIONS[name] % number for number, name in enumerate(served(shape), 3)]
    inner = _select(shape, "" if conditions else _STATUS[shape.status], conditions, columns="1")
    return f"SELECT count(*) FROM ({inner} LIMIT {FEW}) AS few"


def _select(shape: Shape, status: str, conditions: list[str], columns: str = LISTING_COLUMNS) -> str:
    source = f"listings /*INDEXED BY {shape.by}*/" if shape.by else "listings"
    where = ["bucket = $1", "account_id = $2", *(["indexed"] if shape.by else []), status, *conditions]
    return f"SELECT {columns} FROM {source} WHERE {' AND '.join(filter(None, where))}"


def _status_condition(status: str, shape: Shape) -> str:
    """Of the two parts of "all" in an account that is not indexed, "all" stands for what is not active."""
    if status != "all":
        return _STATUS[status]  # type: ignore[index]  # one of its keys
    return "" if shape.by else _HIDDEN


def _conditions(shape: Shape) -> list[str]:
    conditions = [CONDITIONS[name] % number for number, name in enumerate(shape.filters, 3)]
    conditions += behind(shape)
    if shape.among:
        conditions.append(f"id IN (SELECT value FROM json_each(${count_parameters(shape) + shape.limited}))")
    if shape.worded:
        number = count_parameters(shape) + shape.limited
        conditions.append(MAY_HAVE_WORD.format(number + 1))
        conditions.append(f"has_words(title, content, ${number})")
    return conditions


def count_parameters(shape: Shape) -> int:
    """The number of the parameter behind those of the conditions."""
    return 3 + len(shape.filters) + (0 if not shape.behind else 1 if shape.sort == "id" else 2)
