"""Migrations from every earlier schema: two concurrent processes, killed at random moments, on both engines."""

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

from listings.store.migrations import shipped_migrations
from tests.postgres_server import PostgresServer
from tests.torture.databases import PostgresDatabases, SchemaDatabases, SqliteDatabases
from tests.torture.instrument import Instrument, Outcome, Scale
from tests.torture.services import QUIET, Process, start_in_fork

ROWS, KILLS = 100_000, 50
_MIN_ROWS = 2_000
_BOTH_KILLED_FRACTION = 0.5  # fraction of the rounds
_RESTART_FRACTION = 0.2  # fraction of the rounds in which PostgreSQL is restarted


class Result(NamedTuple):
    kills: int
    during_migration: int  # the kills before the migrations had finished
    failures: list[str]


class Migrations:
    """Runs `listings migrate` on the databases of an engine."""

    def __init__(self, databases: SchemaDatabases, folder: Path, fault: str | None) -> None:
        self._databases = databases
        self._log = folder / "log"
        self._fault = fault
        self._newest = len(databases.released)
        self.expected: dict[str, str] = {}
        self._seconds = 0.0

    def run(self, rows: int, kills: int, scale: Scale, random: Random) -> Result:
        """Migrate from each older schema in turn, with this many listings."""
        older = self._newest - 1
        self._databases.prepare(rows, min(kills, older))
        with self._databases.create(1) as url:  # the reference: an undisturbed migration and its duration
            began = time.monotonic()
            _wait(self._start(url))
            self._seconds = time.monotonic() - began
            self.expected = self._databases.compute_digests(url)
        done, during_migration = 0, 0
        failures: list[str] = []
        while done < kills and not scale.is_time_up and not (failures and self._fault):
            version = 1 + done % older
            with self._databases.create(version) as url:
                during_migration += self._run_with_kills(url, random)
                failures += [
                    f"from {version:04}, kill {done + 1}: {failure}" for failure in self._run_to_end(url, version)
                ]
            done += 1
        return Result(done, during_migration, failures)

    def _run_with_kills(self, url: str, random: Random) -> bool:
        """Run two processes and kill one or both; return whether a migration was still running."""
        processes = [self._start(url), self._start(url)]
        time.sleep(random.random() * self._seconds * 1.5)
        was_running = not all(process.has_ended for process in processes)
        for process in processes if random.random() < _BOTH_KILLED_FRACTION else processes[:1]:
            process.close()
        if random.random() < _RESTART_FRACTION:
            self._databases.restart()
        _wait(*processes[1:])
        return was_running

    def _run_to_end(self, url: str, version: int) -> list[str]:
        """Run two processes to the end; return failures."""
        self._log.write_bytes(b"")
        _wait(self._start(url), self._start(url))
        output = self._log.read_text("utf-8")
        failures = [
            line for line in output.splitlines() if not re.search(r"up to date|Saved the previous database", line)
        ]
        applied = re.findall(r"\d{4}_\w+", "".join(re.findall(r"applied migrations: (.*)", output)))
        if len(applied) != len(set(applied)) or len(applied) > self._newest - version:
            failures.append(f"applied {applied}")
        found = self._databases.compute_digests(url)
        return failures + [
            f"{name} differs"
            for name in found.keys() | self.expected.keys()
            if found.get(name) != self.expected.get(name)
        ]

    def _start(self, url: str) -> Process:
        return start_in_fork(["migrate"], QUIET | {"LISTINGS_DATABASE_URL": url}, self._log, self._fault)


def _wait(*processes: Process) -> None:
    for process in processes:
        process.wait()
        process.close()


@contextmanager
def _open_databases(folder: Path) -> Iterator[list[SchemaDatabases]]:
    with PostgresServer() as server:
        yield [SqliteDatabases(folder), PostgresDatabases(server)]


def run(scale: Scale) -> Outcome:
    kills = scale.amount(KILLS, 5)
    rows = ROWS if scale.fraction >= 0.1 else _MIN_ROWS
    summaries, failures, is_complete = [], [], rows == ROWS
    with ExitStack() as stack:
        for number, databases in enumerate(stack.enter_context(_open_databases(scale.folder))):
            migrations = Migrations(databases, scale.folder, None)
            engine_scale = Scale(scale.folder, 1.0, scale.seconds_left / (2 - number))
            result = migrations.run(rows, kills, engine_scale, Random(number))
            summaries.append(
                f"{databases.name}: {result.kills} kills, {result.during_migration} of them in a migration"
            )
            failures += [f"{databases.name}: {failure}" for failure in result.failures]
            is_complete = is_complete and result.kills >= KILLS
    schemas = len(shipped_migrations()) - 1
    return Outcome(f"{rows:,} rows, {schemas} older schemas; {'; '.join(summaries)}", failures, is_complete)


def control(scale: Scale) -> Outcome:
    """Migrate without transactions."""
    migrations = Migrations(SqliteDatabases(scale.folder), scale.folder, "migrate_without_transactions")
    result = migrations.run(_MIN_ROWS, 60, scale, Random(1))
    return Outcome(f"without transactions: {result.kills} kills", result.failures)


INSTRUMENT = Instrument(
    14,
    "migrations from every earlier schema, two concurrent processes, killed",
    "100,000 rows, 50 kills on each engine: 0 differences, 0 applied twice",
    6,
    run,
    control,
)
