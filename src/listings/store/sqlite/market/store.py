"""The market's store on the SQLite file."""

from time import perf_counter

import apsw

from listings.contract.market import IndexResult
from listings.domain.model import MarketEntry, MarketQuery, MarketTraits
from listings.store.market.entries import INDEX_VERSION
from listings.store.market.store import ScriptedMarketStore
from listings.store.scripts.market_index import IS_LEASED_BY_OTHER, run_step
from listings.store.sqlite import account_index
from listings.store.sqlite.database import DatabaseStore
from listings.store.sqlite.market import index, search
from listings.store.sqlite.script_runner import run_script
from listings.store.sqlite.write_lock import INCREMENT_PER_WRITE
from listings.store.sqlite.writer.calls import Operation


class SqliteMarketStore(DatabaseStore, ScriptedMarketStore):
    """Implements `MarketStore`."""

    sitemap_statement = search.SITEMAP
    entries_statement = search.GET_ENTRIES
    spellings_statement = search.SPELLINGS
    _index_cursor: account_index.IndexCursor | None = None  # in the account that is being indexed
    _last_index_sequence: int | None = None  # the write counter at the last step of any index

    async def search_market(self, query: MarketQuery) -> list[MarketEntry]:
        return search.search(self._database.read_neutral, query, await self._get_index_version())

    async def list_market_traits(self, query: MarketQuery, count: int) -> list[MarketTraits]:
        return search.list_traits(self._database.read_neutral, query, await self._get_index_version(), count)

    async def index_market(self, count: int, indexer: bytes, now: float) -> IndexResult:
        # Reads first: without anything to index, the writer isn't used.
        read = self._database.read_neutral
        leased = read(IS_LEASED_BY_OTHER, (indexer, int(now)))
        if leased and leased[0][0]:
            return IndexResult(0)
        version = await self._get_index_version()
        batch = await index.prepare_next(read, count, version)
        has_account = bool(read(index.NEXT_ACCOUNT, ()))
        if not batch.listings and not has_account and version == INDEX_VERSION:
            return IndexResult(0)

        def step(connection: apsw.Connection) -> IndexResult:
            return run_script(connection, run_step(index.SqliteMarketEngine(batch), count, indexer, now))

        result = await self._run_index_step(step)
        return result._replace(has_more=result.has_more or batch.has_more, preparing_seconds=batch.seconds)

    async def index_accounts(self, count: int) -> IndexResult:
        cursor, self._index_cursor = self._index_cursor, None  # start from the beginning if the step fails
        if not self._database.read_neutral(account_index.NEXT_ACCOUNT, ()):
            return IndexResult(0)
        next_cursors: list[account_index.IndexCursor | None] = []

        def step(connection: apsw.Connection) -> IndexResult:
            done, next_cursor = run_script(connection, account_index.run_step(count, cursor))
            next_cursors.append(next_cursor)
            return done

        result = await self._run_index_step(step)
        self._index_cursor = next_cursors[-1]
        return result

    async def _run_index_step(self, step: Operation[IndexResult]) -> IndexResult:
        """Run a step and set `seconds` and `contended` of its result."""
        writer = self._database.writer

        def run(connection: apsw.Connection) -> IndexResult:
            began, sequence = perf_counter(), writer.lock.read_sequence()
            result = step(connection)
            had_writes = (
                self._last_index_sequence is not None and sequence > self._last_index_sequence + INCREMENT_PER_WRITE
            )
            self._last_index_sequence = sequence
            return result._replace(seconds=perf_counter() - began, contended=had_writes or writer.batch_size > 1)

        return await writer.run(run, changes_callers=False, track=lambda _: None)  # it changes no listing
