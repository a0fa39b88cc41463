"""Migrations from every released schema, two processes at once, killed at random moments, on both engines."""

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

from listings.store.migrations import shipped_migrations
from tests.postgres_server import PostgresServer
from tests.torture.environments import DatabaseLocation, PostgresGround, SqliteGround
from tests.torture.instrument import Instrument, Outcome, Scale
from tests.torture.serving import QUIET, Process, Zygote

ROWS, KILLS = 100_000, 50
_LEAST_ROWS = 2_000
_BOTH = 0.5  # of the times both are killed
_RESTARTED = 0.2  # of the times PostgreSQL is, too


class Result(NamedTuple):
    """What it came to on an engine."""

    kills: int
    in_the_middle: int  # of the kills: before the migrations were done
    faults: list[str]


class Migrations:
    """Databases of an engine, and commands that migrate them."""

    def __init__(self, ground: DatabaseLocation, zygote: Zygote, folder: Path, fault: str | None) -> None:
        self._ground = ground
        self._zygote = zygote
        self._log = folder / "log"
        self._fault = fault
        self._newest = len(ground.known)
        self.wanted: dict[str, str] = {}
        self._seconds = 0.0

    def run(self, kills: int, scale: Scale, random: Random) -> Result:
        """From one schema after the other."""
        with self._ground.fresh(1) as url:  # how it is without a kill, and how long it takes
            began = time.monotonic()
            _wait(self._start(url))
            self._seconds = time.monotonic() - began
            self.wanted = self._ground.told(url)
        done, middle = 0, 0
        faults: list[str] = []
        while done < kills and not scale.is_over and not (faults and self._fault):
            version = 1 + done % (self._newest - 1)
            with self._ground.fresh(version) as url:
                middle += self._disturb(url, random)
                faults += [f"from {version:04}, kill {done + 1}: {fault}" for fault in self._finish(url, version)]
            done += 1
        return Result(done, middle, faults)

    def _disturb(self, url: str, random: Random) -> bool:
        """Two at once, of which one or both are killed; returns whether one was at work."""
        both = [self._start(url), self._start(url)]
        time.sleep(random.random() * self._seconds * 1.5)
        at_work = not all(process.has_ended for process in both)
        for process in both if random.random() < _BOTH else both[:1]:
            process.close()
        if random.random() < _RESTARTED:
            self._ground.restart()
        _wait(*both[1:])
        return at_work

    def _finish(self, url: str, version: int) -> list[str]:
        """Two at once, to the end; returns what is not as it should be."""
        self._log.write_bytes(b"")
        _wait(self._start(url), self._start(url))
        said = self._log.read_text("utf-8")
        faults = [line for line in said.splitlines() if not re.search(r"up to date|is kept in", line)]
        applied = re.findall(r"\d{4}_\w+", "".join(re.findall(r"applied: (.*)", said)))
        if len(applied) != len(set(applied)) or len(applied) > self._newest - version:
            faults.append(f"applied {applied}")
        found = self._ground.told(url)
        return faults + [
            f"{name} differs" for name in found.keys() | self.wanted.keys() if found.get(name) != self.wanted.get(name)
        ]

    def _start(self, url: str) -> Process:
        return self._zygote.start(["migrate"], QUIET | {"LISTINGS_DATABASE_URL": url}, self._log, self._fault)


def _wait(*processes: Process) -> None:
    for process in processes:
        process.wait()
        process.close()


@contextmanager
def _grounds(folder: Path) -> Iterator[list[DatabaseLocation]]:
    with PostgresServer() as server:
        yield [SqliteGround(folder), PostgresGround(server)]


def run(scale: Scale) -> Outcome:
    """One engine after the other."""
    kills = scale.amount(KILLS, 5)
    rows = ROWS if scale.part >= 0.1 else _LEAST_ROWS
    told, faults, whole = [], [], rows == ROWS
    with ExitStack() as stack:
        zygote = stack.enter_context(Zygote())
        for number, ground in enumerate(stack.enter_context(_grounds(scale.folder))):
            ground.prepare(rows)
            migrations = Migrations(ground, zygote, scale.folder, None)
            share = Scale(scale.folder, 1.0, scale.left / (2 - number))
            result = migrations.run(kills, share, Random(number))
            told.append(f"{ground.name}: {result.kills} kills, {result.in_the_middle} of them in a migration")
            faults += [f"{ground.name}: {fault}" for fault in result.faults]
            whole = whole and result.kills >= KILLS
    schemas = len(shipped_migrations()) - 1
    return Outcome(f"{rows:,} rows, {schemas} older schemas; {'; '.join(told)}", faults, whole)


def control(scale: Scale) -> Outcome:
    """Migrations without transactions."""
    with Zygote() as zygote:
        ground = SqliteGround(scale.folder)
        ground.prepare(_LEAST_ROWS)
        migrations = Migrations(ground, zygote, scale.folder, "migrate_without_transactions")
        result = migrations.run(60, scale, Random(1))
    return Outcome(f"without transactions: {result.kills} kills", result.faults)


INSTRUMENT = Instrument(
    14,
    "migrations from every released schema, two concurrent processes, killed",
    "100,000 rows, 50 kills on each engine: 0 differences, 0 applied twice",
    6,
    run,
    control,
)
