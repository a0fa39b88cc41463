"""A process that looks after its mapped limiter: `python -m tests.ratelimit.lone DATABASE KEY LIMIT HITS`.

It waits until it is alone with the file where it is the first one, and makes so many requests; then, at the first line
of its standard input, as many as it takes to be refused. It writes one byte to standard output for each accepted
request, after it was accepted.
"""

import asyncio
import os
import sys
from pathlib import Path

from listings.ratelimit.mapped import MappedLimiter
from tests.ratelimit.locks import USERS, file_of, held, is_somebody_alone

DATABASE_ID = "d" * 32


async def hit(limiter: MappedLimiter, key: int) -> bool:
    """One request, and a turn for what goes on beside it."""
    accepted = (await limiter.hit(key)).accepted
    if accepted:
        os.write(1, b".")
    await asyncio.sleep(0)
    return accepted


async def work(database: Path, key: int, limit: int, hits: int) -> None:
    limiter = MappedLimiter(database, DATABASE_ID, limit, 3600)
    is_first = not file_of(database).exists() or held(file_of(database), USERS) is None
    keeping_up = asyncio.create_task(limiter.run_maintenance())
    await limiter.check()
    while is_first and not is_somebody_alone(database):  # noqa: ASYNC110 - the kernel knows it
        await asyncio.sleep(0.001)
    for _ in range(hits):
        await hit(limiter, key)
    await asyncio.to_thread(sys.stdin.readline)
    while await hit(limiter, key):
        pass
    keeping_up.cancel()
    await asyncio.wait([keeping_up])
    await limiter.close()


def main(database: str, key: str, limit: str, hits: str) -> None:
    asyncio.run(work(Path(database), int(key), int(limit), int(hits)))


if __name__ == "__main__":
    main(*sys.argv[1:])
