"""Test a limiter on a full disk: `python -m tests.ratelimit.full_disk FOLDER`. The folder must be a small disk.

While the disk is full, three keys use up their limit: one without a slot, one without a file, and one with a slot.
Prints how many requests each got, whether the limiter was ready, whether it accepts one more of each as soon as there
is room, and whether another limiter does once all are counted in files.
"""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from listings.domain.errors import Unavailable
from listings.ratelimit.mapped import MappedLimiter
from tests.harness import TIMEOUT

DATABASE_ID, LIMIT = "d" * 32, 50
KEYS = (1000, 4096, 1)  # the last one has a slot
MAX_FILLER_BYTES = 64 * 1024 * 1024  # in case the folder is not a small disk


@contextmanager
def filled(folder: Path) -> Iterator[None]:
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        for _ in range(MAX_FILLER_BYTES // 4096):
            file.write(bytes(4096))
    yield
    filler.unlink()


def main(folder: Path) -> None:
    limiter = MappedLimiter(folder / "listings.db", DATABASE_ID, LIMIT, 3600)
    asyncio.run(use(limiter, folder))


async def use(limiter: MappedLimiter, folder: Path) -> None:
    maintenance = asyncio.create_task(limiter.run_maintenance())
    await limiter.hit(1)
    with filled(folder):
        counts = [await count_accepted(limiter, key) for key in KEYS]
        is_ready = await check(limiter)
    left_in_memory = [(await limiter.hit(key)).accepted for key in KEYS]  # before the maintenance runs
    async with asyncio.timeout(TIMEOUT):
        while not await check(limiter):  # noqa: ASYNC110 - the limiter has no event for it
            await asyncio.sleep(0.01)
    other = MappedLimiter(folder / "listings.db", DATABASE_ID, LIMIT, 3600)
    maintenance.cancel()
    await asyncio.wait([maintenance])
    left = [(await other.hit(key)).accepted for key in KEYS]
    print(*counts, is_ready, *left_in_memory, *left)  # noqa: T201 - output for the test


async def count_accepted(limiter: MappedLimiter, key: int) -> int:
    assert (await limiter.peek(key)).accepted
    return sum([(await limiter.hit(key)).accepted for _ in range(LIMIT + 1)])


async def check(limiter: MappedLimiter) -> bool:
    try:
        await limiter.check()
    except Unavailable:
        return False
    return True


if __name__ == "__main__":
    main(Path(sys.argv[1]))
