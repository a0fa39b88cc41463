"""The methods of `MarketStore` that every engine implements with the same statements."""

from collections.abc import Sequence

import msgspec

from listings.contract.market import WordCount
from listings.domain.model import MarketEntry, MarketFacets, SitemapEntry
from listings.store.market.entries import (
    COUNT_SELLER,
    FACET_KINDS,
    GET_INDEX_VERSION,
    INDEX_VERSION,
    LIST_FACETS,
    PAGE_SELLER,
)
from listings.store.scripts.script import ScriptedStore


class ScriptedMarketStore(ScriptedStore):
    """Implements the methods of `MarketStore` that are the same on every engine."""

    sitemap_statement: str
    entries_statement: str
    spellings_statement: str
    _is_index_current = False

    async def _get_index_version(self) -> int:
        """Return the version of the market's index. The current one is cached, because it never changes back."""
        if not self._is_index_current:
            rows = await self._fetch(GET_INDEX_VERSION)
            version = int(rows[0][0]) if rows else INDEX_VERSION  # an index without a row is new
            self._is_index_current = version == INDEX_VERSION
            return version
        return INDEX_VERSION

    async def get_market_entries(self, serials: Sequence[int]) -> list[MarketEntry]:
        values = msgspec.json.encode(serials).decode()
        return [MarketEntry(*row) for row in await self._fetch(self.entries_statement, values)]

    async def find_spellings(self, skeletons: Sequence[str], count: int) -> list[WordCount]:
        values = msgspec.json.encode(skeletons).decode()
        return [WordCount(*row) for row in await self._fetch(self.spellings_statement, values, count)]

    async def list_market_facets(self, count: int) -> MarketFacets:
        category, region = [dict(await self._fetch(LIST_FACETS, kind, count)) for kind in FACET_KINDS]
        return MarketFacets(region, category)

    async def page_seller_listings(self, account_id: int, before: int, count: int) -> list[MarketEntry]:
        return [MarketEntry(*row) for row in await self._fetch(PAGE_SELLER, account_id, before, count)]

    async def count_seller_listings(self, account_id: int, limit: int) -> int:
        return int((await self._fetch(COUNT_SELLER, account_id, limit))[0][0])

    async def page_sitemap(self, after: int, count: int) -> list[SitemapEntry]:
        return [SitemapEntry(*row) for row in await self._fetch(self.sitemap_statement, after, count)]
