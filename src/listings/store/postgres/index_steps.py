"""Steps of the background indexing in PostgreSQL."""

from time import monotonic

from listings.domain.market import IndexResult
from listings.store.market import stamps
from listings.store.postgres.pool import Session
from listings.store.postgres.transactions import Transactions
from listings.store.query import Query
from listings.store.scripts.script import ScriptedStore

_PENDING = "marketed <> CAST(disabled_at IS NULL AS integer)"
HAS_WORK = Query[tuple[bool]](f"""
SELECT EXISTS (SELECT 1 FROM listings WHERE market_version <> version LIMIT 1)
    OR EXISTS (SELECT 1 FROM accounts WHERE {_PENDING} LIMIT 1)
""")
"""Citus rejects subqueries without columns, and collects all rows of subqueries without a limit."""

NEXT_ACCOUNT = Query[tuple[int, bool]](
    f"SELECT id, disabled_at IS NULL FROM accounts WHERE {_PENDING} ORDER BY id LIMIT 1"
)


class PostgresIndexStore(Transactions, ScriptedStore):
    """Numbers changes for the market."""

    wanted = "(SELECT CAST(json_array_elements_text(CAST($1 AS json)) AS bigint) AS id)"
    _written_before: int | None = None  # the value of `_written` after the last step

    async def index_accounts(self, count: int) -> IndexResult:
        return IndexResult(0)  # an account is indexed by the write that makes it large

    async def stamp_market(self, count: int, holder: bytes, now: float) -> IndexResult:
        async def has_work(session: Session) -> bool:
            (is_leased,) = await session.fetch_one(stamps.IS_LEASED_BY_OTHER, holder, int(now))
            return not is_leased and (await session.fetch_one(HAS_WORK))[0]

        if not await self._use(has_work):
            return IndexResult(0)
        contended = self._written_before is not None and self._written > self._written_before
        started = monotonic()
        step = await self._run_script(lambda tx: stamps.run_step(tx, NEXT_ACCOUNT, count, holder, now))
        self._written_before = self._written
        return step._replace(seconds=monotonic() - started, contended=contended)
