"""A look at the Redis of the rate limit, which changes nothing there."""

import asyncio
import time
from typing import NamedTuple

from listings.domain.errors import Unavailable
from listings.ratelimit.redis_connection import Endpoint, ErrorReply, accepted, connect, reason_of

_SECONDS = 2


class RedisReport(NamedTuple):
    """What a Redis, or a Valkey, says of itself."""

    name: str  # of the program, with its version
    version: tuple[int, ...]  # of Redis, or the one that a Valkey is compatible with
    policy: str  # what it does when its memory is full
    is_replica: bool
    is_cluster: bool
    ahead: float  # seconds by which its clock is ahead of this machine's


def inspect(endpoint: Endpoint) -> RedisReport:
    """Ask it. Raises Unavailable, with the reason."""
    try:
        return asyncio.run(_inspect(endpoint))
    except TimeoutError:
        raise Unavailable(f"no answer within {_SECONDS} s") from None
    except (OSError, ErrorReply, ValueError) as error:
        raise Unavailable(reason_of(error)) from error


async def _inspect(endpoint: Endpoint) -> RedisReport:
    async with asyncio.timeout(_SECONDS):
        connection = await connect(endpoint._replace(answer_seconds=_SECONDS), lambda _: None)
        try:
            before = time.time()
            seconds, microseconds = accepted(await connection.call("TIME"))
            now = (before + time.time()) / 2
            facts = _facts(accepted(await connection.call("INFO")))
        finally:
            connection.lose("all is asked")
    is_valkey = "valkey_version" in facts
    return RedisReport(
        name=f"Valkey {facts['valkey_version']}" if is_valkey else f"Redis {facts.get('redis_version', '?')}",
        version=tuple(int(part) for part in facts.get("redis_version", "0").split(".") if part.isdigit()),
        policy=facts.get("maxmemory_policy", "unknown"),
        is_replica=facts.get("role") == "slave",
        is_cluster=facts.get("cluster_enabled") == "1",
        ahead=int(seconds) + int(microseconds) / 1_000_000 - now,
    )


def _facts(info: bytes) -> dict[str, str]:
    pairs = (line.partition(":") for line in info.decode("utf-8", "replace").splitlines() if ":" in line)
    return {name: value for name, _, value in pairs}
