"""`kill -9` at random moments with 16 writers; the acknowledged writes must be there after a restart."""

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
from tests.torture.parallel import count_cores, run_in_parallel
from tests.torture.services import TIMEOUT_SECONDS, RestartableService, create_people, find_children
from tests.torture.writers import Writer, find_all_differences, finish_writers, read_stored_rows, wait_until_idle

WRITERS, KILLS, WRITES = 16, 1000, 50_000
_MAX_WRITING_SECONDS = 0.3  # before a kill
_EARLY_FRACTION = 0.1  # fraction of the kills during startup
_MIN_WORKER_KILLS, _MAX_WORKER_KILLS = 4, 20  # kills of one of two workers
_PROGRAM_FRACTION = 0.02  # fraction of the kills that hit the installed program
_MIN_PARALLEL_KILLS = 50  # fewer are not worth another process


class Job(NamedTuple):
    folder: Path
    kills: int
    seconds: float
    seed: int
    fault: str | None = None


class Result(NamedTuple):
    kills: int
    acknowledged: int
    repeated: int
    failures: list[str]


class Killer:
    def __init__(self, job: Job, service: RestartableService, writers: list[Writer]) -> None:
        self.job = job
        self.service = service
        self.writers = writers
        self.random = Random(job.seed)
        self.gate = asyncio.Event()
        self.tasks = [asyncio.create_task(writer.work(self.gate)) for writer in writers]
        self.kills = 0
        self.failures: list[str] = []

    async def work(self, scale: Scale) -> None:
        """Kill until the number of kills or the time is reached, or a failure is found."""
        if not self.service.is_broken:  # the installed program has no fault
            await self._kill_workers(min(_MAX_WORKER_KILLS, max(_MIN_WORKER_KILLS, self.job.kills // 10)))
        while self.kills < self.job.kills and not scale.is_time_up and not self.failures:
            if self.random.random() < _PROGRAM_FRACTION:
                await self._kill_the_program()
            else:
                await self._kill_a_fork()
        self.service.start()
        await self.service.wait_until_ready()
        self._compare()
        await finish_writers(self.writers, self.tasks, self.gate)
        self._compare()

    async def _kill_a_fork(self) -> None:
        self.service.start()
        if self.random.random() < _EARLY_FRACTION:
            await asyncio.sleep(self.random.random() * 0.1)
        else:
            await self.service.wait_until_ready()
            self._compare()
            await self._write()
        self.service.kill()
        self.gate.clear()
        self.kills += 1

    async def _kill_the_program(self) -> None:
        with self.service.run_program() as process:
            await self.service.wait_until_announced()
            self._compare()
            await self._write()
            process.send_signal(signal.SIGKILL)
        self.gate.clear()
        self.kills += 1

    async def _kill_workers(self, count: int) -> None:
        """Kill one of two workers each time; the other one continues."""
        with self.service.run_program("--workers", "2") as process:
            await self.service.wait_until_announced()
            for _ in range(count):
                await self._write()
                os.kill(self.random.choice(await self._wait_for_workers(process)), signal.SIGKILL)
                self.gate.clear()
                await wait_until_idle(self.writers)
                self._compare()
                self.kills += 1
            process.terminate()
            await asyncio.to_thread(process.wait, TIMEOUT_SECONDS)

    async def _wait_for_workers(self, supervisor: "subprocess.Popen[str]") -> list[int]:
        """Wait for running workers; the supervisor replaces each that ends."""
        while supervisor.poll() is None:
            found = find_children(supervisor.pid)
            if found:
                return found
            await asyncio.sleep(0.01)
        raise AssertionError(self.service.read_log())

    async def _write(self) -> None:
        self.gate.set()
        await asyncio.sleep(self.random.random() * _MAX_WRITING_SECONDS)

    def _compare(self) -> None:
        """Compare the database with the acknowledged writes; no writer may be active."""
        self.failures += find_all_differences(self.writers, read_stored_rows(self.service.database))


def work(job: Job) -> Result:
    return uvloop.run(_work(job))


async def _work(job: Job) -> Result:
    job.folder.mkdir()
    with ExitStack() as stack:
        service = stack.enter_context(RestartableService(job.folder, job.fault))
        people = await create_people(job.folder, WRITERS)
        writers = [
            Writer(service.port, person.key, person.account.id, f"{job.seed}-{number}")
            for number, person in enumerate(people)
        ]
        killer = Killer(job, service, writers)
        await killer.work(Scale(job.folder, 1.0, job.seconds))
    acknowledged, repeated = sum(it.acknowledged for it in writers), sum(it.repeated for it in writers)
    return Result(killer.kills, acknowledged, repeated, killer.failures)


def run(scale: Scale) -> Outcome:
    """Run on a database per core, or a few kills on one."""
    kills = scale.amount(KILLS, 8)
    processes = count_cores() if kills >= _MIN_PARALLEL_KILLS else 1
    jobs = [
        Job(scale.folder / str(number), kills // processes + (number < kills % processes), scale.seconds_left, number)
        for number in range(processes)
    ]
    results = run_in_parallel(work, jobs) if processes > 1 else [work(jobs[0])]
    done, acknowledged = sum(it.kills for it in results), sum(it.acknowledged for it in results)
    summary = f"{done:,} kills, {acknowledged:,} acknowledged writes, {sum(it.repeated for it in results):,} retried"
    failures = [failure for result in results for failure in result.failures]
    return Outcome(summary, failures, done >= KILLS and acknowledged >= WRITES)


def control(scale: Scale) -> Outcome:
    """Acknowledge before the commit."""
    result = work(Job(scale.folder / "control", 60, scale.seconds_left, 1, "acknowledge_before_commit"))
    return Outcome(f"acknowledged before the commit, {result.kills} kills", result.failures)


INSTRUMENT = Instrument(
    1,
    "`kill -9` at random moments with 16 writers",
    "1,000 kills, 50,000 acknowledged writes: 0 lost, 0 duplicated, file intact",
    5,
    run,
    control,
)
