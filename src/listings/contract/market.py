"""The store of the public market: search, index and views."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from listings.domain.model import MarketEntry, MarketFacets, MarketQuery, MarketTraits, SitemapEntry


class WordCount(NamedTuple):
    """A word, and the number of visible listings with it in the title, category or place."""

    word: str
    listings: int


class IndexResult(NamedTuple):
    """The outcome of `MarketStore.index_market` or `MarketStore.index_accounts`."""

    done: int  # listings indexed
    has_more: bool = False
    seconds: float = 0.0  # during which other writers may have been blocked
    preparing_seconds: float = 0.0  # before that, with pauses in which others can write
    contended: bool = False  # whether others have written since the previous step or together with this one


class MarketStore(Protocol):
    """Searches and indexes the public market and large accounts, with the guarantees of `contract.store.Store`."""

    async def search_market(self, query: MarketQuery) -> list[MarketEntry]:
        """Return the publicly visible listings of all accounts that match a query, as far as they are indexed.

        A listing is visible if it is active and its account is not disabled. Disabling an account hides its listings
        immediately. A word of the query matches a word of the title, content, category, location, region or district,
        in the singular or plural. Except in the content, it also matches the beginning of a word. Listings are sorted
        newest first, oldest first, or by price. Equal prices are sorted oldest first if prices ascend, newest first if
        they descend.
        """

    async def list_market_traits(self, query: MarketQuery, count: int) -> list[MarketTraits]:
        """Return the traits of at most `count` listings that match a query, whatever its order, cursor and limit."""

    async def get_market_entries(self, serials: Sequence[int]) -> list[MarketEntry]:
        """Return the visible listings with these market serials, in no particular order."""

    async def find_spellings(self, skeletons: Sequence[str], count: int) -> list[WordCount]:
        """Return at most `count` words of visible listings with one of these skeletons, in no particular order.

        A skeleton is the word without the vowels after its first letter, and with repeated letters once
        (`listings.domain.market.words.build_skeleton`).
        """

    async def list_market_facets(self, count: int) -> MarketFacets:
        """Return the regions and the categories with the most listings, at most `count` of each."""

    async def page_seller_listings(self, account_id: int, before: int, count: int) -> list[MarketEntry]:
        """Return at most `count` visible listings of an enabled account with ids below `before`, newest first."""

    async def count_seller_listings(self, account_id: int, limit: int) -> int:
        """Return the number of visible listings of an enabled account, at most `limit`."""

    async def page_sitemap(self, after: int, count: int) -> list[SitemapEntry]:
        """Return at most `count` visible listings with market serials above `after`, lowest first."""

    async def index_market(self, count: int, indexer: bytes, now: float) -> IndexResult:
        """Index at most `count` listings for the market.

        Listings of newly disabled or enabled accounts come first, then created and changed ones, then those that were
        indexed with earlier rules for search terms. `indexer` identifies the process, and `now` is a Unix time in
        seconds. A process that indexes holds a lease until a few seconds after its last step. Meanwhile, other
        processes index nothing.
        """

    async def index_accounts(self, count: int) -> IndexResult:
        """Index at most `count` listings of accounts that have become large.

        The index changes only the speed of searches, not their results. An engine that indexes listings as they are
        written does nothing here.
        """

    async def get_view_salt(self, day: int) -> bytes:
        """Return the salt of a day (days since 1970): 32 random bytes, the same in all processes."""

    async def record_views(self, day: int, views: Mapping[int, Collection[bytes]]) -> None:
        """Raise the view_count of each listing by the number of its visitors (16 bytes each) who are new on that day.

        Listings that are missing, inactive or deleted are ignored. version and updated_at don't change. An account's
        revision is raised by one if any of its counts changes.
        """

    async def purge_views(self, oldest: int, count: int) -> int:
        """Delete at most `count` visitors of days before `oldest`, and the salts of those days.

        Return the number of deleted visitors.
        """
