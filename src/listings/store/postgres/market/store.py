"""The market's store on PostgreSQL."""

from itertools import starmap
from time import monotonic

from listings.contract.market import IndexResult
from listings.domain.model import MarketEntry, MarketQuery, MarketTraits
from listings.store.market.store import ScriptedMarketStore
from listings.store.postgres.market import index, search
from listings.store.postgres.transactions import Transactions
from listings.store.scripts.market_index import run_step


class PostgresMarketStore(Transactions, ScriptedMarketStore):
    """Implements `MarketStore`."""

    sitemap_statement = search.SITEMAP
    entries_statement = search.GET_ENTRIES
    spellings_statement = search.SPELLINGS
    _written_before: int | None = None  # the value of `_written` after the last step of the market index

    async def search_market(self, query: MarketQuery) -> list[MarketEntry]:
        version = await self._get_index_version()
        rows = await self._use(lambda session: search.search(session, query, version), searching=True)
        return [MarketEntry(*row) for row in rows]

    async def list_market_traits(self, query: MarketQuery, count: int) -> list[MarketTraits]:
        version = await self._get_index_version()
        rows = await self._use(lambda session: search.list_traits(session, query, version, count), searching=True)
        return [*starmap(MarketTraits, rows)]

    async def index_accounts(self, count: int) -> IndexResult:
        return IndexResult(
            0
        )  # an account is indexed by the write that makes it large; other writes can go on meanwhile

    async def index_market(self, count: int, indexer: bytes, now: float) -> IndexResult:
        found = await self._use(lambda session: index.has_work(session, indexer, now))
        if not (found and found[0][0]):
            return IndexResult(0)
        contended = self._written_before is not None and self._written > self._written_before
        started = monotonic()
        engine = index.PostgresMarketEngine()
        step = await self._run_script(lambda: run_step(engine, count, indexer, now))
        self._written_before = self._written
        return step._replace(seconds=monotonic() - started, contended=contended)
