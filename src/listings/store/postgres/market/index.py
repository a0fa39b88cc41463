"""Index listings for the public market in PostgreSQL. An entry of its index contains the words of the listing."""

from collections.abc import Sequence

from listings.domain.model import Listing, bucket_of
from listings.store.market import entries
from listings.store.market.entries import SHOWN
from listings.store.postgres.pool import Rows, Session
from listings.store.scripts.market_index import IS_LEASED_BY_OTHER, EntryChange, build_set_entry
from listings.store.scripts.script import Query, QueryMany, Script
from listings.store.sql import LISTING_COLUMNS, TEXT_BYTES

_PENDING = "marketed <> CAST(disabled_at IS NULL AS integer)"
HAS_WORK = f"""
SELECT EXISTS (SELECT 1 FROM listings WHERE market_version <> version LIMIT 1)
    OR EXISTS (SELECT 1 FROM accounts WHERE {_PENDING} LIMIT 1)
    OR EXISTS (SELECT 1 FROM market_indexer WHERE id = 1 AND version < {entries.INDEX_VERSION} LIMIT 1)
"""
"""Citus rejects subqueries without columns, and collects all rows of subqueries without a limit."""

NEXT_ACCOUNT = f"SELECT id, disabled_at IS NULL FROM accounts WHERE {_PENDING} ORDER BY id LIMIT 1"
_UP_TO_BYTES = f"""
SELECT {LISTING_COLUMNS} FROM (
    SELECT {LISTING_COLUMNS}, sum({TEXT_BYTES}) OVER (
        ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS octets_before
    FROM ({{}}) AS next
) AS measured
WHERE COALESCE(octets_before, 0) < $1
ORDER BY id
"""
NEXT_LISTINGS = _UP_TO_BYTES.format(
    f"SELECT {LISTING_COLUMNS} FROM listings WHERE market_version <> version ORDER BY id LIMIT $2"
)
GET_LISTINGS = _UP_TO_BYTES.format(
    f"SELECT {LISTING_COLUMNS} FROM listings WHERE bucket = $2 AND id = ANY($3) ORDER BY bucket, id"
)
_SET_ENTRY = build_set_entry("words")


async def has_work(session: Session, indexer: bytes, now: float) -> Rows:
    """Return a row with True if this indexer has work to do. The row is missing if another one has the lease."""
    leased = await session.fetch(IS_LEASED_BY_OTHER, indexer, int(now))
    return [] if leased and leased[0][0] else await session.fetch(HAS_WORK)


class PostgresMarketEngine:
    """Implements `listings.store.scripts.market_index.MarketEngine`."""

    next_account = NEXT_ACCOUNT

    def read_outdated(self, count: int, max_bytes: int) -> Script[list[Listing]]:
        return [Listing(*row) for row in (yield Query(NEXT_LISTINGS, (max_bytes, count)))]

    def read_listings(self, ids: Sequence[int], max_bytes: int) -> Script[list[Listing]]:
        return [Listing(*row) for row in (yield Query(GET_LISTINGS, (max_bytes, bucket_of(ids[0]), ids)))]

    def write_entries(self, changes: Sequence[EntryChange], version: int) -> Script[None]:
        yield QueryMany(
            _SET_ENTRY,
            (  # an iterator, because tokenizing long texts takes long
                (
                    serial,
                    *entries.build_entry_values(listing, state, listed_at),
                    entries.build_terms(listing, version) if state == SHOWN else [],
                )
                for serial, listing, state, listed_at, _ in changes
            ),
        )

    def finish(self) -> Script[None]:
        yield from ()
