"""Finish the restore of a PostgreSQL database, or a failover that lost writes."""

import secrets

import asyncpg

from listings.domain.errors import Problem
from listings.domain.model import BUCKETS
from listings.store.migrations import APPLIED
from listings.store.postgres.migrate import require_current, with_connection
from listings.store.restored import choose_gaps, list_statements

_HAS_OTHER_SESSIONS = """
SELECT EXISTS (
    SELECT 1 FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'listings' AND pid <> pg_backend_pid())
"""
_SKIP_SERIALS = f"""
INSERT INTO listing_ids (bucket, last) SELECT bucket, $1 FROM generate_series(0, {BUCKETS - 1}) AS bucket
ON CONFLICT (bucket) DO UPDATE SET last =
"""
_ADD_GAP, _RAISE = "listing_ids.last + excluded.last", "GREATEST(listing_ids.last, excluded.last)"
_SKIP_IDS = """
SELECT setval(name, nextval(name) + $1)
FROM unnest(ARRAY[pg_get_serial_sequence('accounts', 'id'), pg_get_serial_sequence('api_keys', 'id')]) AS name
"""


async def finish(url: str, last_listing_id: int | None) -> None:
    """End what was valid once, and raise ids and change ids above all that can have been given out.

    `last_listing_id` is the highest known id of a listing. Without it, these ids are raised by a gap, like the others.
    Raises Problem: schema_mismatch, restore_refused (the database is in use). Raises Unavailable.
    """
    gaps = choose_gaps()

    async def run(connection: asyncpg.Connection) -> None:
        require_current(await connection.fetch(APPLIED))
        if await connection.fetchval(_HAS_OTHER_SESSIONS):
            raise Problem("restore_refused", "A service or a command is using the database: stop it first")
        async with connection.transaction():
            await connection.execute("SET LOCAL statement_timeout = 0")
            for statement, values in list_statements(secrets.token_hex(4), gaps.states):
                await connection.execute(statement, *values)
            serial = gaps.serials if last_listing_id is None else last_listing_id // BUCKETS
            await connection.execute(_SKIP_SERIALS + (_ADD_GAP if last_listing_id is None else _RAISE), serial)
            await connection.fetch(_SKIP_IDS, gaps.serials)

    await with_connection(url, run)
