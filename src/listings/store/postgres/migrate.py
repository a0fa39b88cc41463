"""Migrate a PostgreSQL database.

Migrations run under an advisory lock, each in one transaction, and are identified by the checksum of their text.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import asyncpg

from listings.domain.errors import Unavailable
from listings.store.migrations import APPLIED, Migration, build_older_schema_problem, count_known, shipped_migrations
from listings.store.postgres import errors
from listings.store.postgres.pool import Rows, build_unreachable_error, connect, disconnect, format_reason

T = TypeVar("T")

_LOCK = 0x6C697374  # "list"
_LOCK_SECONDS = 60.0  # to wait for other migrations, and for locks of tables
_TABLE_LOCK_SECONDS = 2.0  # at a time: all later statements on a table queue behind a migration that waits for its lock
_PAUSE_SECONDS = 3.0  # between two attempts, for those statements
_TIMEOUT_SECONDS = 10  # to connect, for each statement, and to disconnect
_FORBIDDEN = "42501"
_EXISTS = "SELECT to_regclass('schema_migrations') IS NOT NULL"
_TABLE = """
CREATE TABLE IF NOT EXISTS schema_migrations (
    version integer PRIMARY KEY,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at bigint NOT NULL
)
"""
_RECORD = "INSERT INTO schema_migrations (version, name, checksum, applied_at) VALUES ($1, $2, $3, $4)"


async def migrate(url: str, migrations: list[Migration] | None = None) -> list[Migration]:
    """Apply the pending migrations to an existing database and return them.

    Raises Problem("schema_mismatch") if the schema is newer or altered, Problem("database_missing"), or Unavailable.
    """
    migrations = shipped_migrations("postgres") if migrations is None else migrations

    async def apply(connection: asyncpg.Connection) -> list[Migration]:
        if await count_applied(connection, migrations) == len(migrations):
            return []
        for setting in ("statement_timeout = 0", f"lock_timeout = {_LOCK_SECONDS * 1000:.0f}", "enable_seqscan = on"):
            await connection.execute(f"SET {setting}")
        await connection.execute(f"SELECT pg_advisory_lock({_LOCK})")
        await connection.execute(_TABLE)
        missing = migrations[await count_applied(connection, migrations) :]
        await connection.execute(f"SET lock_timeout = {_TABLE_LOCK_SECONDS * 1000:.0f}")
        for migration in missing:
            await _apply(connection, migration)
        return missing

    return await with_connection(url, apply)


async def _apply(connection: asyncpg.Connection, migration: Migration) -> None:
    # Other statements run between the attempts to lock its tables.
    values = (migration.version, migration.name, migration.checksum, int(time.time()))
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            async with connection.transaction():
                await connection.execute(migration.text)
                await connection.execute(_RECORD, *values)
        except asyncpg.LockNotAvailableError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(_PAUSE_SECONDS)
        else:
            return


async def list_pending(url: str, migrations: list[Migration] | None = None) -> list[Migration]:
    """Return the migrations that `migrate` would apply, without applying them. Raises the same errors."""
    migrations = shipped_migrations("postgres") if migrations is None else migrations

    async def find(connection: asyncpg.Connection) -> list[Migration]:
        return migrations[await count_applied(connection, migrations) :]

    return await with_connection(url, find)


async def count_applied(connection: asyncpg.Connection, migrations: list[Migration]) -> int:
    """Return the number of applied migrations. Raises Problem("schema_mismatch") if the schema is newer or altered."""
    if not await connection.fetchval(_EXISTS):
        return 0
    return count_known(await connection.fetch(APPLIED), migrations)


def require_current(applied: Rows) -> None:
    """Raise Problem("schema_mismatch") unless the rows of APPLIED are exactly this program's migrations."""
    migrations = shipped_migrations("postgres")
    if count_known(applied, migrations) < len(migrations):
        raise build_older_schema_problem()


async def with_connection(url: str, use: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
    """Call `use` with a connection and close it afterwards.

    Raises Problem: database_missing, schema_mismatch (the server is not supported). Raises Unavailable.
    """
    try:
        connection = await connect(url, _TIMEOUT_SECONDS)
    except errors.DRIVER_ERRORS as error:
        raise build_unreachable_error(error) from error
    try:
        return await use(connection)
    except errors.DRIVER_ERRORS as error:
        advice = ": make the role the owner of the database" if errors.get_sqlstate(error) == _FORBIDDEN else ""
        raise Unavailable(f"The database can't be used: {format_reason(error)}{advice}") from error
    finally:
        connection.terminate() if connection.is_closed() else await disconnect(connection, _TIMEOUT_SECONDS)
