"""Damage to the search index, and kills of its process and of workers, while two workers serve and writers write."""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from random import Random
from types import MappingProxyType

import uvloop

from listings.search.folders import choose_folder, find_root
from tests.http.raw import AsyncConnection, ConnectionLostError
from tests.processes import is_indexer
from tests.torture.instrument import Instrument, Outcome, Scale
from tests.torture.services import TIMEOUT_SECONDS, RestartableService, create_people, find_children
from tests.torture.workload import WRITERS, Workload
from tests.torture.writers import find_all_differences, read_stored_rows, wait_until_idle
from tests.waiting import until

ROUNDS = 300
_MAX_SECONDS, _CONTROL_SECONDS = 30.0, 3.0  # until the index agrees with the database again
_SEARCHES = 6  # during a fault
_WORD = "c" * 64  # in all listings of the writers
_COUNT = re.compile(r"([\d,]+)\s+(?:results?|listings?)\b")
_MARKERS = {"in-use.lock", "started", "complete", "damaged"}


class Market:
    """Searches of the market, none of which is answered from the cache of counts."""

    def __init__(self, service: RestartableService) -> None:
        self.service = service
        self.failures: list[str] = []
        self._connection = AsyncConnection(service.port, "")
        self._number = 10**7  # a price that is higher than all others

    async def count(self) -> int | None:
        """Return how many listings a search for all of them finds, or None if search is unavailable."""
        self._number += 1
        try:
            response = await self._connection.fetch("GET", f"/?q={_WORD}&price_max={self._number}")
        except ConnectionLostError:
            return None  # of a worker that was killed
        if response.status not in {HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE}:
            self.failures.append(f"a search returned {response.status} {response.body[:200]!r}")
        found = _COUNT.search(re.sub(r"<[^>]+>", " ", response.body.decode()))
        return int(found[1].replace(",", "")) if found is not None else None

    async def compare(self, expected: int, seconds: float) -> bool:
        """Return whether a search finds this many listings within some seconds."""
        end = time.monotonic() + seconds
        while (found := await self.count()) != expected:
            if time.monotonic() > end:
                self.failures.append(f"a search finds {found} of {expected} listings after {seconds:.0f} s")
                return False
        return True

    def close(self) -> None:
        self._connection.close()


def _flip(file: Path, random: Random) -> None:
    with file.open("r+b") as opened:
        size = file.stat().st_size
        for _ in range(random.choice((1, 20, 200))):
            opened.seek(random.randrange(size))
            opened.write(random.randbytes(1))


def _cut(file: Path, random: Random) -> None:
    os.truncate(file, random.randrange(file.stat().st_size))


_HARMS: Mapping[str, Callable[[Path, Random], object]] = MappingProxyType(
    {
        "changed bytes": _flip,
        "a cut file": _cut,
        "a removed file": lambda file, _: file.unlink(),
        "wrong metadata": lambda file, random: (file.parent / "meta.json").write_text(random.choice(("", "{", "null"))),
        "a removed folder": lambda file, _: shutil.rmtree(file.parent),
        "a removed root": lambda file, _: shutil.rmtree(file.parent.parent),
    }
)
_KILL_PROCESS, _KILL_WORKER = "a kill of its process", "a kill of a worker"
FAULTS = (_KILL_PROCESS, *_HARMS, _KILL_WORKER)


def _harm(service: RestartableService, program: "subprocess.Popen[str]", fault: str, random: Random) -> None:
    if fault == _KILL_WORKER:
        os.kill(random.choice(until(lambda: find_children(program.pid))), signal.SIGKILL)
    elif fault != _KILL_PROCESS:
        with suppress(FileNotFoundError):  # the index was replaced in this moment
            folder = choose_folder(find_root(service.database))
            files = [it for it in folder.path.iterdir() if it.name not in _MARKERS] if folder is not None else []
            usable = [it for it in files if it.is_file() and it.stat().st_size]
            if usable:
                _HARMS[fault](random.choice(usable), random)
    if fault in {_KILL_PROCESS, "changed bytes"}:  # which are found at the next start, or within ten minutes
        os.kill(_find_indexer(program), signal.SIGKILL)


def _find_indexer(program: "subprocess.Popen[str]") -> int:
    path = Path(f"/proc/{program.pid}/task/{program.pid}/children")

    def find() -> int:
        return next((pid for pid in map(int, path.read_text("ascii").split()) if is_indexer(pid, program.pid)), 0)

    return until(find)  # it is started again within a second


async def _run_rounds(service: RestartableService, program: "subprocess.Popen[str]", scale: Scale) -> Outcome:
    people = await create_people(service.folder, WRITERS)
    await service.wait_until_announced()
    workload, market, random = Workload(service.port, people), Market(service), Random(1)
    rounds, done, unavailable = scale.amount(ROUNDS), 0, 0
    while done < rounds and not scale.is_time_up and not market.failures:
        await workload.wait_until_acknowledged(WRITERS)
        fault = FAULTS[done % len(FAULTS)]
        _harm(service, program, fault, random)
        unavailable += sum([await market.count() is None for _ in range(_SEARCHES)])
        await workload.wait_until_acknowledged(WRITERS)
        workload.gate.clear()
        await wait_until_idle(workload.writers)
        stored = read_stored_rows(service.database)
        expected = sum(not it.is_deleted for rows in stored.values() for it in rows.values())
        if not await market.compare(expected, _MAX_SECONDS):
            market.failures[-1] += f", after {fault}"
        workload.gate.set()
        done += 1
    await workload.finish()
    market.close()
    found = workload.failures + find_all_differences(workload.writers, read_stored_rows(service.database))
    summary = f"{done:,} faults, {workload.acknowledged:,} acknowledged writes, {unavailable:,} searches unavailable"
    return Outcome(summary, [*market.failures, *found], done >= ROUNDS)


def run(scale: Scale) -> Outcome:
    """Harm the index, and compare it with the database."""
    with RestartableService(scale.folder) as service, service.run_program("--workers", "2") as program:
        outcome = uvloop.run(_run_rounds(service, program, scale))
        program.terminate()
        program.wait(TIMEOUT_SECONDS)
    return outcome


def control(scale: Scale) -> Outcome:
    """Stop the process that writes the index."""
    with RestartableService(scale.folder) as service, service.run_program("--workers", "2") as program:
        failures = uvloop.run(_run_stopped(service, program))
    return Outcome("a stopped process", failures)


async def _run_stopped(service: RestartableService, program: "subprocess.Popen[str]") -> list[str]:
    people = await create_people(service.folder, WRITERS)
    await service.wait_until_announced()
    indexer = _find_indexer(program)
    os.kill(indexer, signal.SIGSTOP)
    workload, market = Workload(service.port, people), Market(service)
    await workload.wait_until_acknowledged(10 * WRITERS)
    await workload.finish()
    await market.compare(sum(len(it) for it in read_stored_rows(service.database).values()), _CONTROL_SECONDS)
    market.close()
    os.kill(indexer, signal.SIGKILL)
    return market.failures


INSTRUMENT = Instrument(
    22,
    "search index: changed bytes, cut and removed files and folders, kills of its process and of workers; two workers,"
    " 16 writers",
    "300 faults: no write lost or failed, searches are answered or unavailable, and all listings are found again within"
    " 30 s",
    12,
    run,
    control,
    short_fraction=len(FAULTS) / ROUNDS,
)
