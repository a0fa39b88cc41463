"""A process with a mapped limiter and its maintenance: `python -m tests.ratelimit.lone DATABASE KEY LIMIT HITS`.

The first process waits for exclusive mode. Each makes `HITS` requests, waits for a line on standard input, and then
makes requests until one is rejected. For each accepted request, it writes one byte to standard output.
"""

import asyncio
import os
import sys
from pathlib import Path

from listings.ratelimit.mapped import MappedLimiter
from tests.ratelimit.locks import USERS, find_lock, first_log_file, is_exclusively_locked

DATABASE_ID = "d" * 32


async def hit(limiter: MappedLimiter, key: int) -> bool:
    """Count one request, and let the maintenance run."""
    accepted = (await limiter.hit(key)).accepted
    if accepted:
        os.write(1, b".")
    await asyncio.sleep(0)
    return accepted


async def work(database: Path, key: int, limit: int, hits: int) -> None:
    limiter = MappedLimiter(database, DATABASE_ID, limit, 3600)
    is_first = not first_log_file(database).exists() or find_lock(first_log_file(database), USERS) is None
    maintenance = asyncio.create_task(limiter.run_maintenance())
    await limiter.check()
    while is_first and not is_exclusively_locked(database):  # noqa: ASYNC110 - only the kernel knows the locks
        await asyncio.sleep(0.001)
    for _ in range(hits):
        await hit(limiter, key)
    await asyncio.to_thread(sys.stdin.readline)
    while await hit(limiter, key):
        pass
    maintenance.cancel()
    await asyncio.wait([maintenance])
    await limiter.close()


def main(database: str, key: str, limit: str, hits: str) -> None:
    asyncio.run(work(Path(database), int(key), int(limit), int(hits)))


if __name__ == "__main__":
    main(*sys.argv[1:])
