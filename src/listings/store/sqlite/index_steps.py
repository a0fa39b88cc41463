"""Steps of the background indexing on the SQLite file, each of which is one operation of the writer."""

from time import perf_counter
from typing import Any, TypeVar

import apsw

from listings.domain.market import IndexResult
from listings.store.market import stamps
from listings.store.market.store import ScriptedMarketStore
from listings.store.query import Query
from listings.store.scripts.script import Script
from listings.store.sql import to_sqlite
from listings.store.sqlite import account_index
from listings.store.sqlite.database import DatabaseStore
from listings.store.sqlite.script_runner import run_script
from listings.store.sqlite.write_lock import INCREMENT_PER_WRITE
from listings.store.sqlite.writer.calls import Operation

T = TypeVar("T")

NEXT_ACCOUNT = Query[tuple[int, bool]]("""
SELECT id, disabled_at IS NULL FROM accounts INDEXED BY accounts_unmarketed
WHERE marketed <> (disabled_at IS NULL) ORDER BY id LIMIT 1
""")


_WANTED = "(SELECT value AS id FROM json_each($1))"


class MarketReads(ScriptedMarketStore):
    """Reads the market on a connection that never writes, for inspections."""

    wanted = _WANTED

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    async def _fetch(self, statement: str, *values: object) -> list[Any]:
        return self._connection.execute(to_sqlite(statement), values).fetchall()

    async def _run_script(self, script: Script[T], *, changes_callers: bool = False, is_dry_run: bool = False) -> T:
        raise NotImplementedError

    async def _run_reads(self, script: Script[T]) -> T:
        raise NotImplementedError


class SqliteIndexStore(DatabaseStore):
    """Numbers changes for the market, and indexes large accounts."""

    wanted = _WANTED
    _index_cursor: account_index.IndexCursor | None = None  # in the account that is being indexed
    _last_index_sequence: int | None = None  # the write counter at the last step of any index

    async def stamp_market(self, count: int, holder: bytes, now: float) -> IndexResult:
        # Reads first: without anything to do, the writer isn't used.
        read = self._database.read_neutral
        if read(stamps.IS_LEASED_BY_OTHER, (holder, int(now)))[0][0]:
            return IndexResult(0)
        if not read(stamps.NEXT_DIRTY, (-1,)) and not read(NEXT_ACCOUNT, ()):
            return IndexResult(0)
        return await self._run_index_step(
            lambda connection: run_script(connection, lambda tx: stamps.run_step(tx, NEXT_ACCOUNT, count, holder, now))
        )

    async def index_accounts(self, count: int) -> IndexResult:
        cursor, self._index_cursor = self._index_cursor, None  # start from the beginning if the step fails
        if not self._database.read_neutral(account_index.NEXT_ACCOUNT, ()):
            return IndexResult(0)
        next_cursors: list[account_index.IndexCursor | None] = []

        def step(connection: apsw.Connection) -> IndexResult:
            done, next_cursor = run_script(connection, lambda tx: account_index.run_step(tx, count, cursor))
            next_cursors.append(next_cursor)
            return done

        result = await self._run_index_step(step)
        self._index_cursor = next_cursors[-1]
        return result

    async def _run_index_step(self, step: Operation[IndexResult]) -> IndexResult:
        writer = self._database.writer

        def run(connection: apsw.Connection) -> IndexResult:
            began, sequence = perf_counter(), writer.lock.read_sequence()
            result = step(connection)
            had_writes = (
                self._last_index_sequence is not None and sequence > self._last_index_sequence + INCREMENT_PER_WRITE
            )
            self._last_index_sequence = sequence
            contended = had_writes or writer.batch_size > 1
            return result._replace(seconds=perf_counter() - began, contended=contended, delays_reads=True)

        return await writer.run(run, changes_callers=False, track=lambda _: None)  # it changes no listing
