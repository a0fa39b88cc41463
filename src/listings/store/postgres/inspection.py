"""What can be told of a PostgreSQL database without changing anything, while services use it."""

import time
from typing import Any, NamedTuple

from listings.domain.errors import Problem, Unavailable
from listings.store.migrations import shipped_migrations
from listings.store.postgres.migrate import connected, count_applied

_SERVER = """
SELECT
    current_setting('server_version'),
    pg_is_in_recovery(),
    CAST(current_setting('max_connections') AS integer)
        - CAST(current_setting('superuser_reserved_connections') AS integer)
        - (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()),
    extract(epoch FROM clock_timestamp()),
    (SELECT age(datfrozenxid) FROM pg_database WHERE datname = current_database()),
    COALESCE((SELECT extract(epoch FROM max(clock_timestamp() - xact_start)) FROM pg_stat_activity
              WHERE datname = current_database() AND pid <> pg_backend_pid()), 0)
"""
_SAFE = "SELECT name FROM pg_settings WHERE name IN ('fsync', 'full_page_writes') AND setting <> 'on'"
_NEWEST = """
SELECT GREATEST(
    (SELECT max(applied_at) FROM schema_migrations),
    (SELECT max(created_at) FROM accounts),
    (SELECT max(GREATEST(created_at, revoked_at)) FROM api_keys))
"""


class PostgresInspection(NamedTuple):
    """What was found of a PostgreSQL server and its database. `mismatch` is the sentence about another schema."""

    version: str
    mismatch: str | None
    pending: int
    newest: int | None  # the latest stored time, in seconds since 1970
    unsafe: list[str]  # settings without which an acknowledged write can be lost
    is_standby: bool
    free_connections: int
    ahead: float  # seconds by which the server's clock is ahead of this machine's
    age: int  # transactions since the oldest that is not frozen
    longest: int  # seconds that the oldest open transaction has lasted


async def inspect(url: str) -> PostgresInspection:
    """Look at server, schema and clock. Raises Problem("database_missing"), Unavailable."""
    return await connected(url, _look)


async def _look(connection: Any) -> PostgresInspection:  # noqa: ANN401 - the driver's
    began = time.time()
    version, is_standby, free, moment, age, longest = await connection.fetchrow(_SERVER)
    middle = (began + time.time()) / 2
    migrations = shipped_migrations("postgres")
    mismatch, pending, newest = None, 0, None
    try:
        pending = len(migrations) - await count_applied(connection, migrations)
    except Problem as problem:
        if isinstance(problem, Unavailable):
            raise
        mismatch = problem.message
    if mismatch is None and not pending:
        newest = await connection.fetchval(_NEWEST)
    unsafe = [row[0] for row in await connection.fetch(_SAFE)]
    return PostgresInspection(
        version=str(version),
        mismatch=mismatch,
        pending=pending,
        newest=newest,
        unsafe=unsafe,
        is_standby=is_standby,
        free_connections=int(free),
        ahead=float(moment) - middle,
        age=int(age),
        longest=int(longest),
    )
