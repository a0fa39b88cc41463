"""A process that hits the limiter in Redis: `python -m tests.ratelimit.redis_rush` and the arguments of `main`.

Prints the number of accepted hits.
"""

import asyncio
import sys

from listings.ratelimit.redis import RedisLimiter
from listings.ratelimit.redis_connection import Endpoint


async def rush(endpoint: Endpoint, database: str, key: int, limit: int, hits: int, connections: int) -> int:
    limiters = [RedisLimiter(endpoint, database, limit, 3600) for _ in range(connections)]
    decisions = await asyncio.gather(*(limiters[number % connections].hit(key) for number in range(hits)))
    for limiter in limiters:
        await limiter.close()
    return sum(decision.accepted for decision in decisions)


def main(socket: str, database: str, *numbers: str) -> None:
    endpoint = Endpoint("", 0, socket, tls=False, user="", password="", database=0, timeout_seconds=30)
    key, limit, hits, connections = map(int, numbers)
    print(asyncio.run(rush(endpoint, database, key, limit, hits, connections)))  # noqa: T201 - output for the test


if __name__ == "__main__":
    main(*sys.argv[1:])
