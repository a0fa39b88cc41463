"""Run the service with a variant of its PostgreSQL store: `python -m bench.scale.variants NAME serve`."""

import sys
from collections.abc import Callable
from typing import Any

import asyncpg

from listings.cli import main
from listings.domain.account_limits import NO_LIMITS, AccountLimits
from listings.domain.listings import AddResult
from listings.domain.model import Listing, Revisions, bucket_of
from listings.store import sql
from listings.store.postgres import store
from listings.store.postgres.pool import PoolLimits, Rows

OWN_POOL = "asyncpg-pool"
STATEMENTS = "statements"


class AsyncpgPoolStore(store.PostgresStore):
    """Reads listings through asyncpg's own pool with default settings, but all connections open from the start."""

    def __init__(
        self,
        url: str,
        bounds: PoolLimits,
        account_limits: AccountLimits = NO_LIMITS,
        record_failed_write: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(url, bounds, account_limits=account_limits, record_failed_write=record_failed_write)
        self._address, self._sessions = url, bounds.sessions
        self._asyncpg_pool: Any = None

    async def open(self) -> None:
        """Open both pools: other statements use the store's pool."""
        self._asyncpg_pool = await asyncpg.create_pool(self._address, min_size=self._sessions, max_size=self._sessions)
        await super().open()

    async def close(self) -> None:
        await super().close()
        if self._asyncpg_pool is not None:
            await self._asyncpg_pool.close()

    async def get_listing(self, listing_id: int) -> Listing | None:
        rows = await self._read(sql.GET_LISTING, bucket_of(listing_id), listing_id)
        return Listing(*rows[0]) if rows else None

    async def get_listing_and_revision(self, listing_id: int) -> tuple[Listing, int] | None:
        rows = await self._read(sql.GET_LISTING_AND_REVISION, bucket_of(listing_id), listing_id)
        return (Listing(*rows[0][:-1]), int(rows[0][-1])) if rows else None

    async def get_revisions(self, bucket: int, account_id: int) -> Revisions:
        rows = await self._read(store.GET_REVISIONS, bucket, account_id)
        return Revisions(*rows[0][1:]) if rows else Revisions(0, 0)

    async def _read(self, statement: str, *values: object) -> Rows:
        async with self._asyncpg_pool.acquire() as connection:
            return list(await connection.fetch(statement, *values))


class SingleStatementStore(store.PostgresStore):
    """Creates listings with single statements in a transaction, without the database function."""

    async def _create(self, *_: object) -> AddResult | None:
        return None


VARIANTS: dict[str, Callable[[str, PoolLimits], store.PostgresStore]] = {
    OWN_POOL: AsyncpgPoolStore,
    STATEMENTS: SingleStatementStore,
}

if __name__ == "__main__":
    setattr(store, "PostgresStore", VARIANTS[sys.argv[1]])  # noqa: B010 - mypy rejects a plain assignment
    sys.exit(main(sys.argv[2:]))
