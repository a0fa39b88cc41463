"""A process that hits a mapped limiter: `python -m tests.ratelimit.rush DATABASE KEY LIMIT HITS`.

It writes "." to standard output for each accepted request, and "!" if the limiter is unavailable.
"""

import asyncio
import os
import sys
from pathlib import Path

from listings.domain.errors import Unavailable
from listings.ratelimit.mapped import MappedLimiter

DATABASE_ID = "d" * 32


async def rush(limiter: MappedLimiter, key: int, hits: int) -> None:
    for _ in range(hits):
        try:
            if (await limiter.hit(key)).accepted:
                os.write(1, b".")
        except Unavailable:
            os.write(1, b"!")


def main(database: str, key: str, limit: str, hits: str) -> None:
    limiter = MappedLimiter(Path(database), DATABASE_ID, int(limit), 3600)
    asyncio.run(rush(limiter, int(key), int(hits)))


if __name__ == "__main__":
    main(*sys.argv[1:])
