"""A process whose disk is full for a while: `python -m tests.ratelimit.full_disk FOLDER`, the folder a small disk.

Prints what a limiter in the folder answered before, meanwhile and afterwards.
"""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from listings.domain.errors import Unavailable
from listings.ratelimit.mapped import MappedLimiter

MOST = 64 * 1024 * 1024  # the folder may be no small disk after all


def answer(limiter: MappedLimiter, key: int) -> str:
    try:
        return "granted" if asyncio.run(limiter.hit(key)).accepted else "limited"
    except Unavailable:
        return "refused"


@contextmanager
def full(folder: Path) -> Iterator[None]:
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        for _ in range(MOST // 4096):
            file.write(bytes(4096))
    yield
    filler.unlink()


def main(folder: Path) -> None:
    limiter = MappedLimiter(folder / "listings.db", "d" * 32, 1000, 3600)
    answers = [answer(limiter, 1)]
    with full(folder):
        answers.append(answer(limiter, 1000))
    answers.append(answer(limiter, 1000))
    print(*answers)  # noqa: T201 - what the test reads


if __name__ == "__main__":
    main(Path(sys.argv[1]))
