"""Inspect the Redis server of the rate limit without changing anything."""

import asyncio
import time
from typing import NamedTuple

from listings.domain.errors import Unavailable
from listings.ratelimit.redis_connection import Endpoint, ErrorReply, connect, describe_error, require_success

_TIMEOUT_SECONDS = 2


class RedisReport(NamedTuple):
    """Version, configuration and clock of a Redis or Valkey server."""

    name: str  # with the version
    version: tuple[int, ...]  # of Redis, or the Redis version with which a Valkey is compatible
    eviction_policy: str  # `maxmemory-policy`
    is_replica: bool
    is_cluster: bool
    clock_ahead_seconds: float  # compared with this machine's


def inspect(endpoint: Endpoint) -> RedisReport:
    """Query the server. Raises Unavailable with the reason."""
    try:
        return asyncio.run(_inspect(endpoint))
    except TimeoutError:
        raise Unavailable(f"no response within {_TIMEOUT_SECONDS} s") from None
    except (OSError, ErrorReply, ValueError) as error:
        raise Unavailable(describe_error(error)) from error


async def _inspect(endpoint: Endpoint) -> RedisReport:
    async with asyncio.timeout(_TIMEOUT_SECONDS):
        connection = await connect(endpoint._replace(timeout_seconds=_TIMEOUT_SECONDS), lambda _: None)
        try:
            before = time.time()
            seconds, microseconds = require_success(await connection.call("TIME"))
            now = (before + time.time()) / 2
            reply: bytes = require_success(await connection.call("INFO"))
        finally:
            connection.close("the inspection is complete")
    pairs = (line.partition(":") for line in reply.decode("utf-8", "replace").splitlines() if ":" in line)
    info = {name: value for name, _, value in pairs}
    is_valkey = "valkey_version" in info
    return RedisReport(
        name=f"Valkey {info['valkey_version']}" if is_valkey else f"Redis {info.get('redis_version', '?')}",
        version=tuple(int(part) for part in info.get("redis_version", "0").split(".") if part.isdigit()),
        eviction_policy=info.get("maxmemory_policy", "unknown"),
        is_replica=info.get("role") == "slave",
        is_cluster=info.get("cluster_enabled") == "1",
        clock_ahead_seconds=int(seconds) + int(microseconds) / 1_000_000 - now,
    )
