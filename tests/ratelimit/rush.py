"""A process that hits a mapped limiter: `python -m tests.ratelimit.rush DATABASE KEY LIMIT HITS THREADS`.

It writes "." to standard output for each accepted request, and "!" if the limiter is unavailable.
"""

import asyncio
import os
import sys
import threading
from pathlib import Path

from listings.domain.errors import Unavailable
from listings.ratelimit.mapped import MappedLimiter

DATABASE_ID = "d" * 32


def rush(limiter: MappedLimiter, key: int, hits: int) -> None:
    async def hit_all() -> None:
        for _ in range(hits):
            try:
                if (await limiter.hit(key)).accepted:
                    os.write(1, b".")
            except Unavailable:
                os.write(1, b"!")

    asyncio.run(hit_all())


def main(database: str, key: str, limit: str, hits: str, threads: str) -> None:
    limiter = MappedLimiter(Path(database), DATABASE_ID, int(limit), 3600)
    rushes = [threading.Thread(target=rush, args=(limiter, int(key), int(hits))) for _ in range(int(threads))]
    for thread in rushes:
        thread.start()
    for thread in rushes:
        thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
