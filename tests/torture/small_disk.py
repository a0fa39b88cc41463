"""Runs a service on a disk that is full at times: `python -m tests.torture.small_disk FOLDER LOG_FOLDER ROUNDS METHOD`.

With METHOD "disk", FOLDER is a disk of 16 MiB that is filled. With "limit", the service temporarily may not extend any
file. Prints the result as JSON.
"""

import json
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import uvloop

from tests.http.raw import PATH, AsyncConnection
from tests.torture.services import RestartableService, create_people
from tests.torture.workload import WRITERS, Workload
from tests.torture.writers import find_all_differences, read_stored_rows

_BLOCK = bytes(64 * 1024)
_RATE_LIMIT, _READS, _UNUSED_KEYS = 1000, 3, 20
_MAX_BLOCKS = 512  # the folder may not be a small disk


class FullDiskResult(NamedTuple):
    """The number of times a disk was full, the writes, and the slowest recovery in seconds."""

    rounds: int
    acknowledged: int
    rejected: int
    slowest_recovery: float
    failures: list[str]


def fill(filler: Path) -> None:
    """Write until the disk is full."""
    with filler.open("ab", buffering=0) as file, suppress(OSError):
        for _ in range(_MAX_BLOCKS):
            file.write(_BLOCK)


@contextmanager
def full_disk(service: RestartableService, method: str) -> Iterator[None]:
    """Let all writes of the service fail in this block."""
    assert service.process is not None
    filler = service.folder / "filler"
    if method == "disk":
        fill(filler)
        yield
        filler.unlink()
    else:
        _, hard_limit = resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (0, hard_limit))
        yield
        resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (hard_limit, hard_limit))


async def read_with_unused_keys(folder: Path, log_folder: Path, keys: list[str], method: str) -> list[str]:
    """Read on a full disk with keys that were not used before. Their requests must be counted exactly."""
    failures = []
    with RestartableService(folder, LISTINGS_RATE_LIMIT=str(_RATE_LIMIT)) as service:
        service.log = log_folder / "log"
        service.start()
        await service.wait_until_ready()
        with full_disk(service, method):
            counts = [await read_and_count(service.port, key, _READS) for key in keys]
        counts_afterwards = [await read_and_count(service.port, key, 1) for key in keys]
        service.kill()
    expected = [(200, _RATE_LIMIT - number) for number in range(1, 2 + _READS)]
    for during, afterwards in zip(counts, counts_afterwards, strict=True):
        if during + afterwards != expected:
            failures.append(f"an unused key on a full disk got {during}, and {afterwards} afterwards")
    return failures


async def read_and_count(port: int, key: str, reads: int) -> list[tuple[int, int]]:
    connection = AsyncConnection(port, key)
    responses = [await connection.fetch("GET", f"{PATH}?limit=1") for _ in range(reads)]
    connection.close()
    return [(one.status, int(one.headers.get("x-ratelimit-remaining", "-1"))) for one in responses]


async def work(folder: Path, log_folder: Path, rounds: int, method: str) -> FullDiskResult:
    """Fill the disk and free it again, `rounds` times."""
    with RestartableService(folder) as service:
        service.log = log_folder / "log"
        people = await create_people(folder, WRITERS + _UNUSED_KEYS)
        service.start()
        await service.wait_until_ready()
        workload = Workload(service.port, people[:WRITERS])
        slowest_recovery, done = 0.0, 0
        while done < rounds:
            await workload.wait_until_acknowledged(50)
            with full_disk(service, method):
                if not await workload.wait_until_rejected():
                    workload.failures.append("no write was rejected on a full disk")
                await workload.wait_until_read()
            slowest_recovery = max(slowest_recovery, await workload.wait_until_acknowledged())
            done += 1
        await workload.finish()
        service.kill()
        failures = workload.failures + find_all_differences(workload.writers, read_stored_rows(service.database))
    failures += await read_with_unused_keys(folder, log_folder, [person.key for person in people[WRITERS:]], method)
    return FullDiskResult(done, workload.acknowledged, workload.rejected, slowest_recovery, failures)


def main() -> None:
    """Run with the arguments of the command line; see the module."""
    folder, log_folder = map(Path, sys.argv[1:3])
    result = uvloop.run(work(folder, log_folder, int(sys.argv[3]), sys.argv[4]))
    sys.stdout.write(json.dumps(result._asdict()))


if __name__ == "__main__":
    main()
