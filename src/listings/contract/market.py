"""The store of the public market: search, index and views."""

from collections.abc import Collection, Mapping
from typing import Protocol

from listings.contract.listings import IndexStep
from listings.domain.model import MarketEntry, MarketFacets, MarketQuery, SitemapEntry


class MarketStore(Protocol):
    """Searches and indexes the public market, with the guarantees of `contract.store`."""

    async def search_market(self, query: MarketQuery) -> list[MarketEntry]:
        """Return the publicly visible listings of all accounts that match a query, as far as they are indexed.

        A listing is visible if it is active and its account is not disabled. Disabling an account hides its listings
        immediately. Terms match the title, content, category, location, region and district. Listings are sorted
        newest first, or by price. Equal prices are sorted oldest first if prices ascend, newest first if they descend.
        """

    async def list_market_facets(self, count: int) -> MarketFacets:
        """Return the regions and the categories with the most listings, at most `count` of each."""

    async def page_seller(self, account_id: int, before: int, count: int) -> list[MarketEntry]:
        """Return at most `count` visible listings of an account with ids below `before`, newest first."""

    async def count_seller(self, account_id: int, limit: int) -> int:
        """Return the number of visible listings of an account, at most `limit`."""

    async def page_sitemap(self, after: int, count: int) -> list[SitemapEntry]:
        """Return at most `count` visible listings with market serials above `after`, lowest first."""

    async def index_market(self, count: int, indexer: bytes, now: float) -> IndexStep:
        """Index at most `count` created or changed listings for the market.

        `indexer` identifies the calling process, and `now` is a Unix time in seconds. Only the indexer that holds a
        lease does the work. The lease expires a few seconds after its last call. Until then, others find no work.
        """

    async def index_accounts(self, count: int) -> IndexStep:
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
