"""The nodes of a Citus cluster. On plain PostgreSQL, there are none."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import asyncpg

from listings.domain.errors import Problem, Unavailable
from listings.store.postgres import errors

Fetch: TypeAlias = Callable[..., Awaitable[list[Any]]]
"""Returns the rows of a statement, given the statement and its values."""

IS_INSTALLED = "to_regclass('pg_catalog.pg_dist_local_group') IS NOT NULL"
_COORDINATOR_GROUP = 0
# With its filter for shards, the driver's query for an array type takes seconds instead of milliseconds.
_PREPARE_SESSION = """
SELECT groupid, set_config('citus.override_table_visibility', 'off', false) FROM pg_catalog.pg_dist_local_group
"""
_LIST_WORKERS = f"""
SELECT nodename, nodeport, isactive FROM pg_catalog.pg_dist_node
WHERE noderole = 'primary' AND groupid <> {_COORDINATOR_GROUP} ORDER BY nodename, nodeport
"""
_IS_REACHABLE = "SELECT citus_check_connection_to_node($1, $2)"
_NODE_TIMEOUT_SECONDS = 1


async def prepare_session(connection: asyncpg.Connection) -> None:
    """Set what the service needs. Raise Problem("schema_mismatch") if the server is a worker.

    A worker lacks the local tables.
    """
    if await connection.fetchval(_PREPARE_SESSION) != _COORDINATOR_GROUP:
        raise Problem(
            "schema_mismatch", "The server is a worker of a Citus cluster: set LISTINGS_DATABASE_URL to the coordinator"
        )


async def list_unavailable_workers(fetch: Fetch) -> list[str] | None:
    """Return the addresses of the workers that the coordinator can't use, or None without Citus."""
    if not (await fetch(f"SELECT {IS_INSTALLED}"))[0][0]:
        return None
    workers = await fetch(_LIST_WORKERS)
    return [
        f"{name}:{port}" for name, port, active in workers if not (active and await _is_reachable(fetch, name, port))
    ]


async def _is_reachable(fetch: Fetch, name: str, port: int) -> bool:
    try:
        async with asyncio.timeout(_NODE_TIMEOUT_SECONDS):
            return bool((await fetch(_IS_REACHABLE, name, port))[0][0])
    except (TimeoutError, Unavailable, *errors.DRIVER_ERRORS):
        return False
