"""Migrations of a PostgreSQL database: under an advisory lock, each in one transaction, with a checksum of its text."""

import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import asyncpg

from listings.domain.errors import Unavailable
from listings.store.migrations import APPLIED, Migration, count_known, older, shipped_migrations
from listings.store.postgres import errors as faults
from listings.store.postgres.pool import connect, reason_of, unreachable

T = TypeVar("T")

_LOCK = 0x6C697374  # "list"
_LOCK_WAITS = "60s"
_CONNECT_SECONDS = 10
_EXISTS = "SELECT to_regclass('schema_migrations') IS NOT NULL"
_TABLE = """
CREATE TABLE IF NOT EXISTS schema_migrations (
    version integer PRIMARY KEY,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at bigint NOT NULL
)
"""
_NOTE = "INSERT INTO schema_migrations (version, name, checksum, applied_at) VALUES ($1, $2, $3, $4)"


async def migrate(url: str, migrations: list[Migration] | None = None) -> list[Migration]:
    """Bring the schema of a database up to date, which must exist; returns what was applied.

    Raises Problem("schema_mismatch") for a newer or an altered schema, Problem("database_missing"), Unavailable.
    """
    migrations = shipped_migrations("postgres") if migrations is None else migrations

    async def apply(connection: Any) -> list[Migration]:  # noqa: ANN401 - the driver's
        if await count_applied(connection, migrations) == len(migrations):
            return []
        for setting in ("statement_timeout = 0", f"lock_timeout = '{_LOCK_WAITS}'", "enable_seqscan = on"):
            await connection.execute(f"SET {setting}")
        await connection.execute("SET enable_sort = on")
        await connection.execute(f"SELECT pg_advisory_lock({_LOCK})")
        await connection.execute(_TABLE)
        missing = migrations[await count_applied(connection, migrations) :]
        for migration in missing:
            async with connection.transaction():
                await connection.execute(migration.text)
                note = (migration.version, migration.name, migration.checksum, int(time.time()))
                await connection.execute(_NOTE, *note)
        return missing

    return await connected(url, apply)


async def pending(url: str, migrations: list[Migration] | None = None) -> list[Migration]:
    """What `migrate` would apply. Changes nothing; raises what `migrate` would."""
    migrations = shipped_migrations("postgres") if migrations is None else migrations

    async def look(connection: Any) -> list[Migration]:  # noqa: ANN401 - the driver's
        return migrations[await count_applied(connection, migrations) :]

    return await connected(url, look)


async def count_applied(connection: Any, migrations: list[Migration]) -> int:  # noqa: ANN401 - the driver's
    """How many migrations are applied. Raises Problem("schema_mismatch") for a newer or an altered schema."""
    if not await connection.fetchval(_EXISTS):
        return 0
    return count_known(await connection.fetch(APPLIED), migrations)


def require_current(applied: list[Any]) -> None:
    """Raises Problem("schema_mismatch") unless the rows of APPLIED are exactly this program's migrations."""
    migrations = shipped_migrations("postgres")
    if count_known(applied, migrations) < len(migrations):
        raise older()


async def connected(url: str, use: Callable[[Any], Awaitable[T]]) -> T:
    """Use a connection that is closed afterwards. Raises Problem("database_missing"), Unavailable."""
    try:
        connection = await connect(url, _CONNECT_SECONDS)
    except faults.DRIVER_ERRORS as error:
        raise unreachable(error) from error
    try:
        return await use(connection)
    except faults.DRIVER_ERRORS as error:
        advice = ": make the role the owner of the database" if faults.is_forbidden(error) else ""
        raise Unavailable(f"The database can't be used: {reason_of(error)}{advice}") from error
    finally:
        connection.terminate() if connection.is_closed() else await _close(connection)


async def _close(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    try:
        await connection.close(timeout=_CONNECT_SECONDS)
    except faults.DRIVER_ERRORS:
        connection.terminate()
