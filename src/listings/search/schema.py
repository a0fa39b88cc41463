"""The fields of the index, and the documents of listings.

- `all`: every term of a listing, and the values of its filters. `title`: its title, category and place.
- Fast fields: the id, the account, the serial, the price with the serial, so that no two are equal, and the rank.

One document, with the id 0, is the position: up to where the index has followed the database.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from tantivy import Document, Query, Schema, SchemaBuilder, Searcher

from listings.domain.market import IndexedListing
from listings.domain.market.regions import fold_region
from listings.search import words
from listings.search.analysis import ANALYSIS_VERSION, fold_category, list_terms, list_title_terms, mark_name
from listings.search.synonyms import DIGEST

_SCHEMA_VERSION = 1
_FORMAT = "tantivy-0.27"
VERSION: Final = f"{_SCHEMA_VERSION}.{ANALYSIS_VERSION}-{DIGEST}-{_FORMAT}"
"""Identifies indexes with the terms of this program."""

FILTERS: Mapping[str, Callable[[str], str]] = {"type": str, "category": fold_category, "region": fold_region}
"""The fields that can be filtered, with the functions that fold their values for comparison."""

EVERY: Final = "*"  # a term of every listing

SERIAL_BITS: Final = 26
_LAST_SERIAL = (1 << SERIAL_BITS) - 1
MAX_KEY: Final = 2**63 - 1
_KIND_RANKS = {"product": 2, "rental": 2, "service": 1, "job": 0}
_SPACES = re.compile(r"\s+")


def _build_schema() -> Schema:
    builder = SchemaBuilder()
    for name in ("all", "title"):
        builder.add_text_field(name, tokenizer_name="whitespace", index_option="basic")
    for name in ("id", "account"):
        builder.add_unsigned_field(name, indexed=True, fast=True)
    for name in ("serial", "price", "rank"):
        builder.add_unsigned_field(name, fast=True)
    for name in ("type", "category", "region"):
        builder.add_text_field(name, fast=True, tokenizer_name="raw", index_option="basic")
    return builder.build()


SCHEMA: Final = _build_schema()


def is_readable(version: str) -> bool:
    """Return whether this program can read and follow indexes of a version, whose terms may be other ones."""
    return version.startswith(f"{_SCHEMA_VERSION}.") and version.endswith(f"-{_FORMAT}")


class Position(NamedTuple):
    """Up to where an index has followed the database.

    `sequence` is that of the last change. Listings with serials from `unread` on have been read, in descending order,
    up to the changes that were there at the `start`. 0: all of them.
    """

    sequence: int
    unread: int
    start: int
    origin: int  # of the database and its last restore


def build_position(position: Position) -> Document:
    """Return the document of a position."""
    values = {"id": 0, "rank": position.sequence, "serial": position.unread, "price": position.start}
    return Document.from_dict({**values, "account": position.origin}, SCHEMA)


def read_position(searcher: Searcher) -> Position | None:
    """Return the position of an index, or None if it has none."""
    hits = searcher.search(Query.term_query(SCHEMA, "id", 0), 1).hits
    if not hits:
        return None
    addresses = [hits[0][1]]
    fields = ("rank", "serial", "price", "account")
    return Position(*(int(searcher.fast_field_values(name, addresses)[0] or 0) for name in fields))


def build_document(listing: IndexedListing) -> Document:
    """Return the document of a listing."""
    region = fold_region(listing.region)
    place = (listing.location, region, listing.region, listing.district)
    names = [mark_name("%", listing.category), *(mark_name(",", it) for it in dict.fromkeys(place) if it)]
    title = list_title_terms(listing.title).union(names)
    terms = list_terms("\n".join((listing.title, listing.category, *place, listing.content)))
    terms.update(f"@{word}" for word in words.split(listing.seller))
    terms.update((EVERY, f"#{listing.id}", filter_term("type", listing.type), filter_term("region", region)))
    terms.add(filter_term("category", listing.category))
    values: dict[str, Any] = {
        "all": " ".join(terms),
        "title": " ".join(title),
        "id": listing.id,
        "account": listing.account_id,
        "serial": listing.serial,
        "price": price_key(listing.price_cents, listing.serial),
        "rank": rank_key(
            listing.type, listing.serial, has_picture=listing.images != "[]", has_price=listing.price_cents > 0
        ),
        "type": listing.type,
    }
    values |= {name: value for name, value in (("category", listing.category), ("region", region)) if value}
    return Document.from_dict(values, SCHEMA)


def filter_term(name: str, value: str) -> str:
    """Return the term of the listings that have a value of a filter, in any spelling."""
    return f"\u00a7{name[0]}{_SPACES.sub('_', FILTERS[name](value))}"


def rank_key(kind: str, serial: int, *, has_picture: bool = True, has_price: bool = True) -> int:
    """Return the number that sorts goods and rentals first, then listings with picture and price, then newer ones."""
    return (_KIND_RANKS.get(kind, 0) << 2 | has_picture << 1 | has_price) << 40 | serial


def price_key(price_cents: int, serial: int) -> int:
    """Return the number that sorts listings by price, then by serial."""
    return price_cents << SERIAL_BITS | serial & _LAST_SERIAL
