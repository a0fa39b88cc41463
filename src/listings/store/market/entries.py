"""The market index entry of a listing, for every engine: the terms that find it and the fields that a card shows.

Filters are indexed as terms, too, with characters that no word of a text has. Each listing has one filter term for
every combination of its type, category and region. So a search needs a single term for all of its filters.
"""

from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b
from itertools import product
from typing import Final

import msgspec

from listings.domain import tokenizer
from listings.domain.fields import MAX_PRICE_CENTS
from listings.domain.market import regions
from listings.domain.market import words as market_words
from listings.domain.model import Listing, MarketQuery, bucket_of
from listings.store.mapping import Row

HIDDEN, SHOWN, WITHHELD = 0, 1, 2
"""States of a listing in the market. A withheld listing is an active one whose account is disabled."""

INDEX_VERSION: Final = 4
"""Version of the terms. Until all entries have it, searches use the terms of the lowest version of any entry.

Version 2 added singulars, plurals and beginnings of words, version 3 folds categories, and version 4 folds the case of
all letters.
"""

_FIRST_FOLDED_WORDS: Final = 2
FIRST_FOLDED_CATEGORIES: Final = 3

FIRST_WITH_SPELLINGS: Final = 4
"""The first version whose entries are counted in `market_spellings`."""

GET_INDEX_VERSION = "SELECT version FROM market_indexer WHERE id = 1"

ENTRY_COLUMNS = (
    "serial, listing_id, title, type, category, image, price_cents, price_type, location, region, created_at"
)
"""The columns of a `model.MarketEntry`. `created_at` is its `listed_at`."""

MAX_TERMS: Final = 20
"""Words of a search; further ones are ignored."""

MAX_STEP_BYTES: Final = 200_000
"""Bytes of text after which an indexing step ends. The last listing may exceed it."""

_FACET_CACHE_SIZE: Final = 512  # combinations of type, category and region

FACET_KINDS = ("category", "region")
LIST_FACETS = "SELECT name, listings FROM market_places WHERE kind = $1 ORDER BY listings DESC, name LIMIT $2"

PAGE_SELLER = f"""
SELECT {ENTRY_COLUMNS} FROM market /*INDEXED BY market_account*/
WHERE account_id = $1 AND state = {SHOWN} AND listing_id < $2 ORDER BY listing_id DESC LIMIT $3
"""
COUNT_SELLER = f"""
SELECT count(*) FROM (
    SELECT 1 FROM market /*INDEXED BY market_account*/ WHERE account_id = $1 AND state = {SHOWN} LIMIT $2) AS few
"""


def choose_state(listing: Listing, account_disabled_at: int | None) -> int:
    """Return the state that a listing should have in the market."""
    if not listing.is_active or listing.deleted_at is not None:
        return HIDDEN
    return SHOWN if account_disabled_at is None else WITHHELD


def build_terms(listing: Listing, version: int) -> list[str]:
    """Return all terms that find a listing, without duplicates. `version`: that of the whole index."""
    region = regions.fold_region(listing.region)
    names = f"{listing.title}\n{listing.category}\n{listing.location}\n{listing.region}\n{listing.district}"
    found = dict.fromkeys([*market_words.list_title_terms(names), *market_words.list_terms(listing.content)])
    if version < _FIRST_FOLDED_WORDS:
        found |= dict.fromkeys(tokenizer.tokenize(f"{names}\n{listing.content}"))
    category = market_words.fold_category(listing.category)
    facets = dict.fromkeys(_build_facet_terms(listing.type, category, region))
    if version < FIRST_FOLDED_CATEGORIES:
        facets |= dict.fromkeys(_build_facet_terms(listing.type, listing.category, region))
    return [*facets, price_class(listing.price_cents), *found]


def build_query_terms(query: MarketQuery, version: int) -> list[str]:
    """Return the terms of a search, the filter term first. `version`: that of the whole index.

    The filter term is left out if the search has words but no filters, because every listing has that term.
    """
    split = tokenizer.tokenize if version < _FIRST_FOLDED_WORDS else market_words.list_query_terms
    words = split(query.text)
    terms = list(dict.fromkeys(words))[:MAX_TERMS]
    is_filtered = any(it is not None for it in (query.type, query.category, query.region))
    return [build_filter_term(query, version), *terms] if is_filtered or not terms else terms


def build_filter_term(query: MarketQuery, version: int) -> str:
    """Return the term for the filters by type, category and region. `version`: that of the whole index."""
    category = query.category
    if category is not None and version >= FIRST_FOLDED_CATEGORIES:
        category = market_words.fold_category(category)
    region = regions.fold_region(query.region) if query.region is not None else None
    return _build_facet_term(query.type, category, region)


def price_class(price_cents: int) -> str:
    """Return the term shared by all prices of about the same size."""
    return _build_class_term(price_cents.bit_length() // 2)


def split_price_classes(min_cents: int, max_cents: int) -> tuple[list[str], list[str]]:
    """Return the price class terms that overlap a price range, and all other ones."""
    first, last = min_cents.bit_length() // 2, max(max_cents, 0).bit_length() // 2
    inside = [_build_class_term(it) for it in range(_LAST_CLASS + 1) if first <= it <= last]
    outside = [_build_class_term(it) for it in range(_LAST_CLASS + 1) if not first <= it <= last]
    return inside, outside


def build_entry_values(listing: Listing, state: int, listed_at: str) -> Row:
    """Return the values of a market row, which follow its serial."""
    return (
        bucket_of(listing.id),
        listing.id,
        listing.account_id,
        state,
        listing.title,
        listing.type,
        listing.category,
        _first_image(listing),
        listing.price_cents,
        listing.price_type,
        listing.location,
        regions.fold_region(listing.region),
        listed_at,
        listing.updated_at,
        INDEX_VERSION,
    )


def list_facets(category: str, region: str) -> Iterator[tuple[str, str]]:
    """Return the facets (kind and name) under which a listing is counted."""
    return ((kind, name) for kind, name in zip(FACET_KINDS, (category, region), strict=True) if name)


_LAST_CLASS = MAX_PRICE_CENTS.bit_length() // 2


def _build_class_term(number: int) -> str:
    return f"§p{number}"


def _first_image(listing: Listing) -> str:
    images: list[str] = msgspec.json.decode(listing.images, type=list[str])
    return images[0] if images else ""


@lru_cache(_FACET_CACHE_SIZE)
def _build_facet_terms(*values: str) -> tuple[str, ...]:
    """Return the filter terms for a type, category and region. Cached because most listings share them with others."""
    return tuple(_build_facet_term(*choice) for choice in product(*((None, value) for value in values)))


def _build_facet_term(kind: str | None, category: str | None, region: str | None) -> str:
    """Return a hash, because a region may be any text and the length of a term is limited."""
    return "§" + blake2b(msgspec.json.encode((kind, category, region)), digest_size=12).hexdigest()
