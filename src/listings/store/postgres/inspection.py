"""Inspect a PostgreSQL database without changing it. Services may use it at the same time."""

import time
from typing import NamedTuple

import asyncpg

from listings.domain.errors import Problem, Unavailable
from listings.store.inspection import COUNT_PENDING, Pending
from listings.store.market.stamps import DIRTY_LISTINGS, NEXT_DIRTY
from listings.store.migrations import Difference, shipped_migrations
from listings.store.postgres import citus, errors
from listings.store.postgres.catalogue import find_differences
from listings.store.postgres.index_steps import HAS_WORK
from listings.store.postgres.migrate import count_applied, with_connection

# In sessions of other roles, backend_type and xact_start are NULL, unless this role has pg_read_all_stats.
_SERVER = """
SELECT
    current_setting('server_version'),
    pg_is_in_recovery(),
    CAST(current_setting('max_connections') AS integer)
        - CAST(current_setting('superuser_reserved_connections') AS integer)
        - (SELECT count(*) FROM pg_stat_activity
           WHERE COALESCE(backend_type, 'client backend') = 'client backend'
           AND datid IS NOT NULL AND usesysid IS NOT NULL AND pid <> pg_backend_pid()),
    extract(epoch FROM clock_timestamp()),
    (SELECT age(datfrozenxid) FROM pg_database WHERE datname = current_database()),
    COALESCE((SELECT extract(epoch FROM max(clock_timestamp() - xact_start)) FROM pg_stat_activity
              WHERE datname = current_database() AND pid <> pg_backend_pid()), 0)
"""
_UNSAFE_SETTINGS = "SELECT name FROM pg_settings WHERE name IN ('fsync', 'full_page_writes') AND setting <> 'on'"
_NEWEST = """
SELECT GREATEST(
    (SELECT max(applied_at) FROM schema_migrations),
    (SELECT max(created_at) FROM accounts),
    (SELECT max(GREATEST(created_at, revoked_at)) FROM api_keys))
"""


class PostgresInspection(NamedTuple):
    """The state of a PostgreSQL server and its database."""

    version: str
    mismatch: str | None  # the message if the schema is not this program's
    differences: list[Difference]  # of the schema from the one that its migrations create
    pending_migrations: int
    newest_time: int | None  # the latest stored Unix time in seconds
    pending_work: Pending | None  # None if migrations are pending, or a node of a Citus cluster is unavailable
    unsafe_settings: list[str]  # names of settings that are off: an acknowledged write can be lost
    is_standby: bool
    free_connections: int
    clock_ahead_seconds: float  # the server's clock compared with this machine's
    transaction_age: int  # transactions since the oldest one that is not frozen
    longest_transaction_seconds: int  # since the start of the oldest open transaction that this role may see
    indexing_error: str | None  # of the statements that find listings for the market
    unavailable_workers: list[str] | None  # of a Citus cluster; None without Citus


async def inspect(url: str) -> PostgresInspection:
    """Inspect the server, the schema and the clock. Raises Problem like `with_connection`."""
    return await with_connection(url, _inspect)


async def _inspect(connection: asyncpg.Connection) -> PostgresInspection:
    started = time.time()
    [(version, is_standby, free, moment, age, longest)] = await connection.fetch(_SERVER)
    middle = (started + time.time()) / 2
    migrations = shipped_migrations("postgres")
    mismatch, pending, newest, differences = None, 0, None, list[Difference]()
    try:
        applied = await count_applied(connection, migrations)
        pending, differences = len(migrations) - applied, await find_differences(connection, migrations[:applied])
    except Problem as problem:
        if isinstance(problem, Unavailable):
            raise
        mismatch = problem.message
    is_current = mismatch is None and not pending
    if is_current:
        newest = await connection.fetchval(_NEWEST)
    workers = await citus.list_unavailable_workers(connection.fetch)
    unsafe = [row[0] for row in await connection.fetch(_UNSAFE_SETTINGS)]
    return PostgresInspection(
        version=str(version),
        mismatch=mismatch,
        differences=differences,
        pending_migrations=pending,
        newest_time=newest,
        pending_work=Pending(*(await connection.fetch(str(COUNT_PENDING)))[0]) if is_current and not workers else None,
        unsafe_settings=unsafe,
        is_standby=is_standby,
        free_connections=int(free),
        clock_ahead_seconds=float(moment) - middle,
        transaction_age=int(age),
        longest_transaction_seconds=int(longest),
        indexing_error=await _find_indexing_error(connection) if is_current else None,
        unavailable_workers=workers,
    )


async def _find_indexing_error(connection: asyncpg.Connection) -> str | None:
    try:
        await connection.fetch(str(HAS_WORK))
        for account_id, _ in await connection.fetch(str(NEXT_DIRTY), -1):
            await connection.fetch(str(DIRTY_LISTINGS), account_id, 1)
    except asyncpg.PostgresError as error:
        return " ".join(errors.describe(error).split())  # a text about a node has several lines
    return None
