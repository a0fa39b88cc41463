"""`kill -9` at random moments under sixteen writers, and what is there after the next start."""

import asyncio
import os
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import NamedTuple

import uvloop

from tests.torture.instrument import Instrument, Outcome, Scale
from tests.torture.serving import DEADLINE, Place, Zygote, children_of, make_people
from tests.torture.signals import beside, cores
from tests.torture.writers import Writer, compare_all, finish, stored_rows, until_silent

WRITERS, KILLS, WRITES = 16, 1000, 50_000
_LONGEST = 0.3  # seconds of writing before a kill
_EARLY = 0.1  # of the kills come while it starts
_MOST_WORKERS = 20  # that are killed beside another one
_PROGRAMS = 0.02  # of the kills are of the installed program, started by itself


class Share(NamedTuple):
    """What one process of clients does."""

    folder: Path
    kills: int
    seconds: float
    seed: int
    fault: str | None = None


class Result(NamedTuple):
    """What it came to."""

    kills: int
    acknowledged: int
    repeated: int
    faults: list[str]


class Killer:
    """A service, its writers, and who kills it."""

    def __init__(self, share: Share, place: Place, writers: list[Writer]) -> None:
        self.share = share
        self.place = place
        self.writers = writers
        self.random = Random(share.seed)
        self.gate = asyncio.Event()
        self.tasks = [asyncio.create_task(writer.work(self.gate)) for writer in writers]
        self.kills = 0
        self.faults: list[str] = []

    async def work(self, scale: Scale) -> None:
        """Until it is done, or something is found."""
        await self._kill_workers(min(_MOST_WORKERS, max(2, self.share.kills // 10)))
        while self.kills < self.share.kills and not scale.is_over and not self.faults:
            if self.random.random() < _PROGRAMS:
                await self._kill_the_program()
            else:
                await self._kill_a_fork()
        self.place.start()
        await self.place.answers()
        self._compare()
        await finish(self.writers, self.tasks, self.gate)
        self._compare()

    async def _kill_a_fork(self) -> None:
        self.place.start()
        if self.random.random() < _EARLY:
            await asyncio.sleep(self.random.random() * 0.1)
        else:
            await self.place.answers()
            self._compare()
            await self._write()
        self.place.kill()
        self.gate.clear()
        self.kills += 1

    async def _kill_the_program(self) -> None:
        with self.place.program() as process:
            await self.place.announced()
            self._compare()
            await self._write()
            process.send_signal(signal.SIGKILL)
        self.gate.clear()
        self.kills += 1

    async def _kill_workers(self, count: int) -> None:
        """Of a service of two processes, one of which goes on each time."""
        with self.place.program("--workers", "2") as process:
            await self.place.announced()
            for _ in range(count):
                await self._write()
                os.kill(self.random.choice(await self._workers(process)), signal.SIGKILL)
                self.gate.clear()
                await until_silent(self.writers)
                self._compare()
                self.kills += 1
            process.terminate()
            await asyncio.to_thread(process.wait, DEADLINE)

    async def _workers(self, supervisor: "subprocess.Popen[bytes]") -> list[int]:
        """Those that run now; it starts another one for each that ends."""
        while supervisor.poll() is None:
            found = children_of(supervisor.pid)
            if found:
                return found
            await asyncio.sleep(0.01)
        raise AssertionError(self.place.said())

    async def _write(self) -> None:
        self.gate.set()
        await asyncio.sleep(self.random.random() * _LONGEST)

    def _compare(self) -> None:
        """While nobody writes."""
        self.faults += compare_all(self.writers, stored_rows(self.place.database))


def work(share: Share) -> Result:
    """In a process of its own."""
    return uvloop.run(_work(share))


async def _work(share: Share) -> Result:
    share.folder.mkdir()
    with ExitStack() as stack:
        zygote = stack.enter_context(Zygote())
        place = stack.enter_context(Place(share.folder, zygote, share.fault))
        people = await make_people(share.folder, WRITERS)
        writers = [
            Writer(place.port, person.key, person.account.id, f"{share.seed}-{number}")
            for number, person in enumerate(people)
        ]
        killer = Killer(share, place, writers)
        await killer.work(Scale(share.folder, 1.0, share.seconds))
    acknowledged, repeated = sum(it.acknowledged for it in writers), sum(it.repeated for it in writers)
    return Result(killer.kills, acknowledged, repeated, killer.faults)


def run(scale: Scale) -> Outcome:
    """On as many databases as there are cores."""
    kills = scale.amount(KILLS, 8)
    arms = cores() if kills > 2 * cores() else 1
    shares = [
        Share(scale.folder / str(arm), kills // arms + (arm < kills % arms), scale.left, arm) for arm in range(arms)
    ]
    results = beside(work, shares)
    done, acknowledged = sum(it.kills for it in results), sum(it.acknowledged for it in results)
    told = f"{done:,} kills, {acknowledged:,} acknowledged writes, {sum(it.repeated for it in results):,} retried"
    faults = [fault for result in results for fault in result.faults]
    return Outcome(told, faults, done >= KILLS and acknowledged >= WRITES)


def control(scale: Scale) -> Outcome:
    """A writer that acknowledges before it commits."""
    result = work(Share(scale.folder / "control", 60, scale.left, 1, "acknowledge_before_commit"))
    return Outcome(f"acknowledged before the commit, {result.kills} kills", result.faults)


INSTRUMENT = Instrument(
    1,
    "`kill -9` at random moments with 16 writers",
    "1,000 kills, 50,000 acknowledged writes: 0 lost, 0 duplicated, file intact",
    6,
    run,
    control,
)
