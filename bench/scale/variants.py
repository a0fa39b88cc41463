"""`python -m bench.scale.variants NAME serve`: the service with one part of its PostgreSQL store done otherwise."""

import sys
from collections.abc import Callable
from typing import Any

import asyncpg

from listings.cli import main
from listings.contract.listings import AddResult
from listings.domain.model import Listing, bucket_of
from listings.store import sql
from listings.store.postgres import store
from listings.store.postgres.pool import PoolLimits, Rows

OWN_POOL = "asyncpg-pool"
STATEMENTS = "statements"


class OnItsOwnPool(store.PostgresStore):
    """Reads on a pool as asyncpg has it, set as it is by itself, but with all connections from the start."""

    def __init__(self, url: str, bounds: PoolLimits) -> None:
        """As the store's."""
        super().__init__(url, bounds)
        self._address, self._sessions = url, bounds.sessions
        self._own: Any = None

    async def open(self) -> None:
        """Both pools: what isn't a read goes the store's way."""
        self._own = await asyncpg.create_pool(self._address, min_size=self._sessions, max_size=self._sessions)
        await super().open()

    async def close(self) -> None:
        """Both pools."""
        await super().close()
        if self._own is not None:
            await self._own.close()

    async def get_listing(self, listing_id: int) -> Listing | None:
        """Each by itself."""
        rows = await self._read(sql.GET_LISTING, bucket_of(listing_id), listing_id)
        return Listing(*rows[0]) if rows else None

    async def get_listing_and_revision(self, listing_id: int) -> tuple[Listing, int] | None:
        """Each by itself."""
        rows = await self._read(sql.GET_LISTING_AND_REVISION, bucket_of(listing_id), listing_id)
        return (Listing(*rows[0][:-1]), int(rows[0][-1])) if rows else None

    async def get_revision(self, bucket: int, account_id: int) -> int:
        """Each by itself."""
        rows = await self._read(store.GET_REVISION, bucket, account_id)
        return int(rows[0][1]) if rows else 0

    async def _read(self, statement: str, *values: object) -> Rows:
        async with self._own.acquire() as connection:
            return list(await connection.fetch(statement, *values))


class ByStatements(store.PostgresStore):
    """Creates by single statements in a transaction, without the database's function."""

    async def _create(self, *_: object) -> AddResult | None:
        return None


VARIANTS: dict[str, Callable[[str, PoolLimits], store.PostgresStore]] = {
    OWN_POOL: OnItsOwnPool,
    STATEMENTS: ByStatements,
}

if __name__ == "__main__":
    setattr(store, "PostgresStore", VARIANTS[sys.argv[1]])  # noqa: B010 - another class in its place
    sys.exit(main(sys.argv[2:]))
