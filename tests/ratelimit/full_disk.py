"""Test a limiter on a full disk: `python -m tests.ratelimit.full_disk FOLDER`. The folder must be a small disk.

Prints the results of hits before, while and after the disk is full.
"""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from listings.domain.errors import Unavailable
from listings.ratelimit.mapped import MappedLimiter

MAX_FILLER_BYTES = 64 * 1024 * 1024  # in case the folder is not a small disk


def hit(limiter: MappedLimiter, key: int) -> str:
    try:
        return "granted" if asyncio.run(limiter.hit(key)).accepted else "limited"
    except Unavailable:
        return "unavailable"


@contextmanager
def filled(folder: Path) -> Iterator[None]:
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        for _ in range(MAX_FILLER_BYTES // 4096):
            file.write(bytes(4096))
    yield
    filler.unlink()


def main(folder: Path) -> None:
    limiter = MappedLimiter(folder / "listings.db", "d" * 32, 1000, 3600)
    results = [hit(limiter, 1)]
    with filled(folder):
        results.append(hit(limiter, 1000))
    results.append(hit(limiter, 1000))
    print(*results)  # noqa: T201 - output for the test


if __name__ == "__main__":
    main(Path(sys.argv[1]))
