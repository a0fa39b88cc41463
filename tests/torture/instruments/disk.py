"""Disks that fail, are full, lose or damage files: what was acknowledged stays, and what is wrong is told."""

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

from tests.harness import Person, RunningService, make_person
from tests.store import databases
from tests.torture import faults
from tests.torture.clients import WRITERS, Crowd
from tests.torture.failing_disk import FAILURES, FailingDisk
from tests.torture.instrument import SHORT, Instrument, Outcome, Scale
from tests.torture.serving import QUIET, ROOT, Place, Zygote, make_people
from tests.torture.signals import beside
from tests.torture.small_disk import Filled
from tests.torture.wire import LONGEST
from tests.torture.writers import compare_all, stored_rows

ROUNDS, PAGES = 30, 200
_ROUNDS_OF_DISK = 10
_LONGEST, _LONGEST_BESIDE = 2.0, 60.0  # seconds until it is good again; the second where others are at work
_YEAR = 365 * 24 * 3600.0
_PAGE = 4096
_MOUNTED = 'mount -t tmpfs -o size=16m none "$1" && shift && exec "$@"'


class Part(NamedTuple):
    """What one part of it came to."""

    told: str
    faults: list[str]
    slowest: float = 0.0


# Calls that fail


class Share(NamedTuple):
    """What is done in a process of its own."""

    folder: Path
    rounds: int
    breaks: bool = False


def fail(share: Share) -> Part:
    """A service in this process, whose SQLite meets a disk that fails."""
    logging.disable()  # of what is meant to fail
    disk = FailingDisk()
    if share.breaks:
        faults.acknowledge_failed_commits()
    share.folder.mkdir()
    with RunningService(share.folder, rate_limit="0") as service:
        people = [service.run(lambda it: make_person(it, "alice", _YEAR)) for _ in range(WRITERS)]
        port = int(service.base_url.rpartition(":")[2])
        crowd, slowest = uvloop.run(_fail(disk, port, people, share.rounds))
    disk.unregister()
    found = crowd.faults + compare_all(crowd.writers, stored_rows(share.folder / "listings.db"))
    told = f"{share.rounds * len(FAILURES)} times EIO at fsync, read-only or full ({disk.failed:,} failed calls)"
    return Part(f"{told}: {crowd.acknowledged:,} acknowledged, {crowd.refused:,} rejected", found, slowest)


async def _fail(disk: FailingDisk, port: int, people: list[Person], rounds: int) -> tuple[Crowd, float]:
    crowd, slowest = Crowd(port, people), 0.0
    for _ in range(rounds):
        for failure in FAILURES:
            await crowd.until_acknowledged(30)
            disk.failure = failure
            await _until_failed(disk)
            await crowd.until_refused(1)
            await crowd.until_read()
            disk.failure = None
            slowest = max(slowest, await crowd.until_acknowledged())
    await crowd.finish()
    return crowd, slowest


async def _until_failed(disk: FailingDisk) -> None:
    """Until a call has failed, which some writer makes."""
    before = disk.failed
    async with asyncio.timeout(LONGEST):
        while disk.failed == before:  # noqa: ASYNC110 - it is counted in another thread
            await asyncio.sleep(0.002)


# A disk without room


def fill(folder: Path, rounds: int) -> Part:
    """Small disks that are full now and then; each has room for what is written in some rounds."""
    starts = range(0, rounds, _ROUNDS_OF_DISK)
    disks = [_fill(folder / str(start), min(_ROUNDS_OF_DISK, rounds - start)) for start in starts]
    acknowledged, refused = (sum(disk.acknowledged for disk in disks), sum(disk.refused for disk in disks))
    times = sum(disk.rounds for disk in disks)
    told = f"{times} times a full disk: {acknowledged:,} acknowledged, {refused:,} rejected"
    return Part(told, [fault for disk in disks for fault in disk.faults], max(disk.slowest for disk in disks))


def _fill(folder: Path, rounds: int) -> Filled:
    small, elsewhere = folder / "small", folder / "elsewhere"
    small.mkdir(parents=True)
    elsewhere.mkdir()
    namespace = ["unshare", "-m" if os.geteuid() == 0 else "-Urm", "sh", "-c", _MOUNTED, "sh", str(small)]
    mountable = subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode == 0
    program = [sys.executable, "-m", "tests.torture.small_disk", str(small), str(elsewhere), str(rounds)]
    command = [*namespace, *program, "disk"] if mountable else [*program, "limit"]
    outcome = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if outcome.returncode:
        return Filled(0, 0, 0, 0.0, [f"the small disk: {outcome.stderr[-500:]}"])
    return Filled(**json.loads(outcome.stdout))


# Files that are removed


def remove(folder: Path, rounds: int) -> Part:
    """The file, or its WAL, is taken away while a service runs, and brought back."""
    folder.mkdir()
    with Zygote() as zygote, Place(folder, zygote) as place:
        return uvloop.run(_remove(place, zygote, rounds))


async def _remove(place: Place, zygote: Zygote, rounds: int) -> Part:
    people = await make_people(place.folder, WRITERS)
    place.start()
    await place.answers()
    crowd, slowest = Crowd(place.port, people), 0.0
    for number in range(rounds):
        await crowd.until_acknowledged(30)
        file = place.database.with_name("listings.db-wal" if number % 2 else "listings.db")
        away = file.with_suffix(".away")
        file.rename(away)
        await crowd.until_refused()
        before = crowd.acknowledged
        await crowd.until_refused()
        await crowd.until_read()
        if crowd.acknowledged > before:
            crowd.faults.append(f"{crowd.acknowledged - before} writes were acknowledged without {file.name}")
        away.rename(file)
        slowest = max(slowest, await crowd.until_acknowledged())
    await crowd.finish()
    place.kill()
    found = crowd.faults + _start_without(place, zygote) + compare_all(crowd.writers, stored_rows(place.database))
    return Part(f"{rounds} times a removed file: {crowd.refused:,} rejected", found, slowest)


def _start_without(place: Place, zygote: Zygote) -> list[str]:
    """A start beside the WAL of a killed service whose database is gone must refuse, and leave it as it is."""
    wal, away = place.database.with_name("listings.db-wal"), place.database.with_suffix(".away")
    before = wal.read_bytes()
    place.database.rename(away)
    said = _said(zygote, place.database, ["serve"])
    untouched = not place.database.exists() and wal.exists() and wal.read_bytes() == before
    away.rename(place.database)
    return [] if untouched and _told_by_start(said) else [f"a start without the database, beside its WAL: {said}"]


# Pages that are damaged


def damage(folder: Path, count: int, random: Random) -> Part:
    """A page is overwritten; the doctor and a start must say so."""
    folder.mkdir()
    sound = databases.make(folder / "sound.db", listings=400, size=700)
    pages = sound.stat().st_size // _PAGE
    chosen = sorted(random.sample(range(pages), min(count, pages)))
    found = []
    with Zygote() as zygote:
        for page in chosen:
            database = Path(shutil.copy(sound, folder / "listings.db"))
            with database.open("r+b") as file:
                file.seek(page * _PAGE)
                file.write(random.choice((bytes(_PAGE), b"\xa5" * _PAGE, random.randbytes(_PAGE))))
            for command, sign in ((["doctor", "--json"], _told_by_doctor), (["serve"], _told_by_start)):
                if not sign(_said(zygote, database, command)):
                    found.append(f"{command[0]} says nothing of a damaged page {page + 1} of {pages}")
    return Part(f"{len(chosen)} of {pages} pages damaged", found)


def _said(zygote: Zygote, database: Path, command: list[str]) -> str:
    log = database.with_name("log")
    log.write_bytes(b"")
    settings = QUIET | {"LISTINGS_DATABASE_URL": f"sqlite:///{database}", "LISTINGS_PORT": "0"}
    process = zygote.start(command, settings, log, None)
    process.wait()
    process.close()
    return log.read_text("utf-8")


def _told_by_doctor(said: str) -> bool:
    findings = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return any(one["check"] == "integrity" and one["verdict"] == "fault" for one in findings)


def _told_by_start(said: str) -> bool:
    return any(line.startswith("listings: The database ") for line in said.splitlines())


# All of it


def run(scale: Scale) -> Outcome:
    """One after the other."""
    rounds = scale.amount(ROUNDS)
    acts: list[Callable[[], Part]] = [
        lambda: beside(fail, [Share(scale.folder / "failing", rounds)])[0],
        lambda: fill(scale.folder / "full", rounds),
        lambda: remove(scale.folder / "removed", max(2, rounds)),
        lambda: damage(scale.folder / "damaged", scale.amount(PAGES, 4), Random(3)),
    ]
    parts = [act() for act in acts]
    slowest = max(part.slowest for part in parts)
    found = [fault for part in parts for fault in part.faults]
    if slowest > (_LONGEST if scale.part > SHORT else _LONGEST_BESIDE):
        found.append(f"it took {slowest:.1f} s until it was good again")
    told = "; ".join(part.told for part in parts)
    return Outcome(f"{told}; recovery within {slowest * 1000:.0f} ms", found, rounds >= ROUNDS)


def control(scale: Scale) -> Outcome:
    """Commits that fail are acknowledged."""
    (part,) = beside(fail, [Share(scale.folder / "control", 1, breaks=True)])
    return Outcome("failed commits are acknowledged", part.faults)


INSTRUMENT = Instrument(
    3,
    "failing disk: EIO at fsync, read-only, full; damaged pages; removed files",
    "0 acknowledged writes lost, writes get only 503 and reads 200, recovery within 2 s, damage reported by `doctor`"
    " and at startup",
    3,
    run,
    control,
)
