"""What every engine's index of the market holds of a listing: the words it is found by, and what a card shows.

A filter is a word too, one that no text can have. Each listing has one for every choice of its type, category and
region, so that a search has one word for all of its filters together, however they are combined.
"""

from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b
from itertools import product
from typing import Final

import msgspec

from listings.domain import tokenizer
from listings.domain.model import Listing, MarketQuery, bucket_of
from listings.store.mapping import Row

HIDDEN, SHOWN, WITHHELD = 0, 1, 2
"""States of a listing in the market: withheld is one whose account is disabled."""

ENTRY_COLUMNS = (
    "serial, listing_id, title, type, category, image, price_cents, price_type, location, region, created_at"
)
"""What `model.MarketEntry` is made of."""

LONGEST_STEP: Final = 200_000
"""Characters of listings that one step takes in, but for the last one's."""

_FACETS_KEPT: Final = 512  # of as many kinds of listings

KINDS = ("category", "region")


def state_of(listing: Listing, account_disabled_at: int | None) -> int:
    """What is to become of a listing in the market."""
    if not listing.is_active or listing.deleted_at is not None:
        return HIDDEN
    return SHOWN if account_disabled_at is None else WITHHELD


def tokenize(listing: Listing) -> list[str]:
    """All that a listing is found by, each word once."""
    texts = (listing.title, listing.content, listing.category, listing.location, listing.region, listing.district)
    found = dict.fromkeys(tokenizer.tokenize("\n".join(texts)))
    return [*_facets(listing.type, listing.category, listing.region), price_class(listing.price_cents), *found]


def sought(query: MarketQuery) -> list[str]:
    """The words of a search; that of its filters first, but where it is every listing's and there are others."""
    is_filtered = any(it is not None for it in (query.type, query.category, query.region))
    return [filters_of(query), *query.words] if is_filtered or not query.words else list(query.words)


def filters_of(query: MarketQuery) -> str:
    """The word of what is asked for by type, category and region."""
    return _facet(query.type, query.category, query.region)


def price_class(price_cents: int) -> str:
    """A word for all prices of about the same size."""
    return _class(price_cents.bit_length() // 2)


def price_classes(least: int, most: int) -> tuple[list[str], list[str]]:
    """The words of all prices that are in a range, or may be; and those of all others."""
    first, last = least.bit_length() // 2, max(most, 0).bit_length() // 2
    every = range(_LAST_CLASS + 1)
    return [_class(it) for it in every if first <= it <= last], [_class(it) for it in every if not first <= it <= last]


def entry_values(listing: Listing, state: int) -> Row:
    """What the market keeps of a listing, behind its serial."""
    return (
        bucket_of(listing.id),
        listing.id,
        listing.account_id,
        state,
        listing.title,
        listing.type,
        listing.category,
        _image_of(listing),
        listing.price_cents,
        listing.price_type,
        listing.location,
        listing.region,
        listing.created_at,
        listing.updated_at,
    )


def places_of(category: str, region: str) -> Iterator[tuple[str, str]]:
    """What a listing counts for."""
    return ((kind, name) for kind, name in zip(KINDS, (category, region), strict=True) if name)


_LAST_CLASS = (99_999_999_999).bit_length() // 2


def _class(number: int) -> str:
    return f"§p{number}"


def _image_of(listing: Listing) -> str:
    """The first picture's address."""
    images: list[str] = msgspec.json.decode(listing.images, type=list[str])
    return images[0] if images else ""


@lru_cache(_FACETS_KEPT)
def _facets(*values: str) -> tuple[str, ...]:
    """Of a listing's type, category and region: most listings share them with others."""
    return tuple(_facet(*choice) for choice in product(*((None, value) for value in values)))


def _facet(kind: str | None, category: str | None, region: str | None) -> str:
    """A hash, since a region may be any text, and a word has bounds."""
    return "§" + blake2b(msgspec.json.encode((kind, category, region)), digest_size=12).hexdigest()
