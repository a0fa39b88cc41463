"""Values of the public market and its index, and the names of regions."""

from typing import NamedTuple

from listings.domain.errors import Unavailable

SEARCH_SECONDS = 0.25
"""How long the statements of a search within an account may work: CPU time on SQLite, elapsed time on PostgreSQL."""


class IndexedListing(NamedTuple):
    """A listing as the search index of the market needs it, with the sequence of its latest change."""

    sequence: int
    serial: int
    id: int
    account_id: int
    is_shown: int
    title: str
    content: str
    type: str
    category: str
    images: str
    price_cents: int
    location: str
    region: str
    district: str
    seller: str


class MarketState(NamedTuple):
    """The highest sequence of any change, of those that are no longer stored, and the highest serial."""

    sequence: int
    purged: int
    serial: int


class IndexResult(NamedTuple):
    """The outcome of `Store.stamp_market` or `Store.index_accounts`."""

    done: int  # listings indexed
    has_more: bool = False
    seconds: float = 0.0  # during which other writers may have been blocked
    contended: bool = False  # whether others have written since the previous step or together with this one
    delays_reads: bool = False  # whether the step held Python's global interpreter lock in this process


def build_timeout_error() -> Unavailable:
    """Return the error of a search that takes too long."""
    return Unavailable("This search takes too long. Try again with fewer or other words", for_visitors=True)
