"""A service on a disk that is full now and then: `python -m tests.torture.small_disk FOLDER ELSEWHERE ROUNDS MANNER`.

FOLDER is a small disk of 16 MiB, which is filled (MANNER "disk"); or else the service may not let any file grow for a
while (MANNER "limit"). Prints what it came to as JSON.
"""

import json
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import uvloop

from tests.torture.clients import WRITERS, Crowd
from tests.torture.serving import Place, Zygote, make_people
from tests.torture.writers import compare_all, stored_rows

_BLOCK = bytes(64 * 1024)
_MOST = 512  # blocks: the folder may be no small disk after all


class Filled(NamedTuple):
    """How often a disk was full, what became of writes, and how many seconds it took at most to be good again."""

    rounds: int
    acknowledged: int
    refused: int
    slowest: float
    faults: list[str]


def fill(filler: Path) -> None:
    """Until there is no room."""
    with filler.open("ab", buffering=0) as file, suppress(OSError):
        for _ in range(_MOST):
            file.write(_BLOCK)


@contextmanager
def without_room(place: Place, manner: str) -> Iterator[None]:
    """Nothing can be written meanwhile."""
    assert place.process is not None
    filler = place.folder / "filler"
    if manner == "disk":
        fill(filler)
        yield
        filler.unlink()
    else:
        _, most = resource.prlimit(place.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(place.process.pid, resource.RLIMIT_FSIZE, (0, most))
        yield
        resource.prlimit(place.process.pid, resource.RLIMIT_FSIZE, (most, most))


async def work(folder: Path, elsewhere: Path, rounds: int, manner: str) -> Filled:
    """So many times full and not."""
    with Zygote() as zygote, Place(folder, zygote) as place:
        place.log = elsewhere / "log"
        people = await make_people(folder, WRITERS)
        place.start()
        await place.answers()
        crowd = Crowd(place.port, people)
        slowest, done = 0.0, 0
        while done < rounds:
            await crowd.until_acknowledged(50)
            with without_room(place, manner):
                if not await crowd.until_refused():
                    crowd.faults.append("no write was refused on a full disk")
                await crowd.until_read()
            slowest = max(slowest, await crowd.until_acknowledged())
            done += 1
        await crowd.finish()
        place.kill()
        faults = crowd.faults + compare_all(crowd.writers, stored_rows(place.database))
    return Filled(done, crowd.acknowledged, crowd.refused, slowest, faults)


def main() -> None:
    """As told above."""
    folder, elsewhere = map(Path, sys.argv[1:3])
    filled = uvloop.run(work(folder, elsewhere, int(sys.argv[3]), sys.argv[4]))
    sys.stdout.write(json.dumps(filled._asdict()))


if __name__ == "__main__":
    main()
