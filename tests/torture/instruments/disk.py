"""Disk failures: failing calls, full disks, removed files and damaged pages; acknowledged writes must survive them."""

import asyncio
import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

import uvloop

from tests.harness import TIMEOUT, Person, RunningService, create_person
from tests.processes import run_program
from tests.store import databases
from tests.torture import faults
from tests.torture.failing_disk import FAILURES, FailingDisk
from tests.torture.instrument import SHORT_FRACTION, Instrument, Outcome, Scale
from tests.torture.lost_files import run_lost_files
from tests.torture.parallel import run_in_parallel
from tests.torture.services import QUIET, ROOT, RestartableService, create_people, start_in_fork
from tests.torture.small_disk import FullDiskResult
from tests.torture.workload import WRITERS, Workload
from tests.torture.writers import find_all_differences, read_stored_rows

ROUNDS, PAGES = 30, 200
_LOST_ROUNDS = 10
_ROUNDS_PER_DISK = 10
_MAX_RECOVERY_SECONDS, _MAX_RECOVERY_SECONDS_SHORT = 2.0, 60.0  # the second while other tests run
_YEAR_SECONDS = 365 * 24 * 3600.0
_PAGE_BYTES = 4096
_MOUNT_AND_RUN = 'mount -t tmpfs -o size=16m none "$1" && shift && exec "$@"'


class PartResult(NamedTuple):
    summary: str
    failures: list[str]
    slowest_recovery: float = 0.0


class Job(NamedTuple):
    folder: Path
    rounds: int
    is_control: bool = False


def check_failing_calls(job: Job) -> PartResult:
    logging.disable()  # failures are expected
    disk = FailingDisk()
    if job.is_control:
        faults.acknowledge_failed_commits()
    job.folder.mkdir()
    with RunningService(job.folder, rate_limit="0") as service:
        people = [service.run(lambda it: create_person(it, "alice", _YEAR_SECONDS)) for _ in range(WRITERS)]
        port = int(service.base_url.rpartition(":")[2])
        workload, slowest_recovery = uvloop.run(_run_failing(disk, port, people, job.rounds))
    disk.unregister()
    found = workload.failures + find_all_differences(workload.writers, read_stored_rows(job.folder / "listings.db"))
    summary = f"{job.rounds * len(FAILURES)} times EIO at fsync, read-only or full ({disk.failed:,} failed calls)"
    return PartResult(
        f"{summary}: {workload.acknowledged:,} acknowledged, {workload.rejected:,} rejected", found, slowest_recovery
    )


async def _run_failing(disk: FailingDisk, port: int, people: list[Person], rounds: int) -> tuple[Workload, float]:
    workload, slowest_recovery = Workload(port, people), 0.0
    for _ in range(rounds):
        for failure in FAILURES:
            await workload.wait_until_acknowledged(30)
            disk.failure = failure
            await _until_failed(disk)
            await workload.wait_until_rejected(1)
            await workload.wait_until_read()
            disk.failure = None
            slowest_recovery = max(slowest_recovery, await workload.wait_until_acknowledged())
    await workload.finish()
    return workload, slowest_recovery


async def _until_failed(disk: FailingDisk) -> None:
    before = disk.failed
    async with asyncio.timeout(TIMEOUT):
        while disk.failed == before:  # noqa: ASYNC110 - counted in another thread
            await asyncio.sleep(0.002)


def check_full_disk(folder: Path, rounds: int) -> PartResult:
    """Fill small disks; each has room for the writes of some rounds."""
    starts = range(0, rounds, _ROUNDS_PER_DISK)
    disks = [_run_full_disk(folder / str(start), min(_ROUNDS_PER_DISK, rounds - start)) for start in starts]
    acknowledged, rejected = (sum(disk.acknowledged for disk in disks), sum(disk.rejected for disk in disks))
    times = sum(disk.rounds for disk in disks)
    summary = f"{times} times a full disk: {acknowledged:,} acknowledged, {rejected:,} rejected"
    return PartResult(
        summary, [failure for disk in disks for failure in disk.failures], max(disk.slowest_recovery for disk in disks)
    )


def _run_full_disk(folder: Path, rounds: int) -> FullDiskResult:
    small, log_folder = folder / "small", folder / "log_folder"
    small.mkdir(parents=True)
    log_folder.mkdir()
    namespace = ["unshare", "-m" if os.geteuid() == 0 else "-Urm", "sh", "-c", _MOUNT_AND_RUN, "sh", str(small)]
    mountable = subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode == 0
    program = [sys.executable, "-m", "tests.torture.small_disk", str(small), str(log_folder), str(rounds)]
    command = [*namespace, *program, "disk"] if mountable else [*program, "limit"]
    outcome = run_program(command, cwd=ROOT)
    if outcome.returncode:
        return FullDiskResult(0, 0, 0, 0.0, [f"the small disk: {outcome.stderr[-500:]}"])
    return FullDiskResult(**json.loads(outcome.stdout))


def check_removed_files(folder: Path, rounds: int) -> PartResult:
    """Move the database or its WAL away while a service runs, and bring it back."""
    folder.mkdir()
    with RestartableService(folder) as service:
        return uvloop.run(_run_removed(service, rounds))


async def _run_removed(service: RestartableService, rounds: int) -> PartResult:
    people = await create_people(service.folder, WRITERS)
    service.start()
    await service.wait_until_ready()
    workload, slowest_recovery = Workload(service.port, people), 0.0
    for number in range(rounds):
        await workload.wait_until_acknowledged(30)
        file = service.database.with_name("listings.db-wal" if number % 2 else "listings.db")
        moved = file.with_suffix(".moved")
        file.rename(moved)
        await workload.wait_until_rejected()
        before = workload.acknowledged
        await workload.wait_until_rejected()
        await workload.wait_until_read()
        if workload.acknowledged > before:
            workload.failures.append(f"{workload.acknowledged - before} writes were acknowledged without {file.name}")
        moved.rename(file)
        slowest_recovery = max(slowest_recovery, await workload.wait_until_acknowledged())
    await workload.finish()
    service.kill()
    found = (
        workload.failures
        + _check_start_without_database(service)
        + find_all_differences(workload.writers, read_stored_rows(service.database))
    )
    return PartResult(f"{rounds} times a removed file: {workload.rejected:,} rejected", found, slowest_recovery)


def _check_start_without_database(service: RestartableService) -> list[str]:
    """Start next to a WAL without a database, which must fail and change nothing."""
    wal, moved = service.database.with_name("listings.db-wal"), service.database.with_suffix(".moved")
    before = wal.read_bytes()
    service.database.rename(moved)
    output = _run_command(service.database, ["serve"])
    is_unchanged = not service.database.exists() and wal.exists() and wal.read_bytes() == before
    moved.rename(service.database)
    return (
        [] if is_unchanged and _is_reported_by_serve(output) else [f"start next to a WAL without a database: {output}"]
    )


def check_lost_files(folder: Path, rounds: int, fault: str | None = None) -> PartResult:
    """Delete and truncate files under a running service."""
    folder.mkdir()
    return PartResult(*uvloop.run(run_lost_files(folder, rounds, fault)))


def check_damaged_pages(folder: Path, count: int, random: Random) -> PartResult:
    """Overwrite pages; `doctor` and `serve` must report each."""
    folder.mkdir()
    sound = databases.make(folder / "sound.db", listings=400, size=700)
    pages = sound.stat().st_size // _PAGE_BYTES
    damaged = sorted(random.sample(range(pages), min(count, pages)))
    found = []
    for page in damaged:
        database = Path(shutil.copy(sound, folder / "listings.db"))
        with database.open("r+b") as file:
            file.seek(page * _PAGE_BYTES)
            file.write(random.choice((bytes(_PAGE_BYTES), b"\xa5" * _PAGE_BYTES, random.randbytes(_PAGE_BYTES))))
        for command, is_reported in (
            (["doctor", "--json", "--full"], _is_reported_by_doctor),
            (["serve"], _is_reported_by_serve),
        ):
            if not is_reported(_run_command(database, command)):
                found.append(f"{command[0]} does not report the damaged page {page + 1} of {pages}")
    return PartResult(f"{len(damaged)} of {pages} pages damaged", found)


def _run_command(database: Path, command: list[str]) -> str:
    log = database.with_name("log")
    log.write_bytes(b"")
    settings = QUIET | {"LISTINGS_DATABASE_URL": f"sqlite:///{database}", "LISTINGS_PORT": "0"}
    process = start_in_fork(command, settings, log)
    process.wait()
    process.close()
    return log.read_text("utf-8")


def _is_reported_by_doctor(output: str) -> bool:
    findings = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return any(one["check"] == "integrity" and one["verdict"] == "fault" for one in findings)


def _is_reported_by_serve(output: str) -> bool:
    return any(line.startswith("listings: The database ") for line in output.splitlines())


def run(scale: Scale) -> Outcome:
    rounds = scale.amount(ROUNDS)
    checks: list[Callable[[], PartResult]] = [
        lambda: run_in_parallel(check_failing_calls, [Job(scale.folder / "failing", rounds)])[0],
        lambda: check_full_disk(scale.folder / "full", rounds),
        lambda: check_removed_files(scale.folder / "removed", max(2, rounds)),
        lambda: check_lost_files(scale.folder / "lost", scale.amount(_LOST_ROUNDS)),
        lambda: check_damaged_pages(scale.folder / "damaged", scale.amount(PAGES, 4), Random(3)),
    ]
    parts = [check() for check in checks]
    slowest_recovery = max(part.slowest_recovery for part in parts)
    found = [failure for part in parts for failure in part.failures]
    if slowest_recovery > (_MAX_RECOVERY_SECONDS if scale.fraction > SHORT_FRACTION else _MAX_RECOVERY_SECONDS_SHORT):
        found.append(f"recovery took {slowest_recovery:.1f} s")
    summary = "; ".join(part.summary for part in parts)
    return Outcome(f"{summary}; recovery within {slowest_recovery * 1000:.0f} ms", found, rounds >= ROUNDS)


def control(scale: Scale) -> Outcome:
    """Acknowledge writes whose commit fails, and ignore lost files."""
    (part,) = run_in_parallel(check_failing_calls, [Job(scale.folder / "control", 1, is_control=True)])
    lost = check_lost_files(scale.folder / "lost-control", 1, "ignore_lost_files")
    return Outcome("failed commits are acknowledged, lost files ignored", [*part.failures, *lost.failures])


INSTRUMENT = Instrument(
    3,
    "failing disk: EIO at fsync, read-only, full; damaged pages; removed files",
    "0 acknowledged writes lost, writes get only 503 and reads 200, recovery within 2 s, damage reported by `doctor`"
    " and at startup",
    2,
    run,
    control,
)
