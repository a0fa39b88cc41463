"""Helpers of the export and import tests: files of listings, queries, and killed programs."""

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import apsw

from tests.cli.commands import DEADLINE, PROGRAM, Cli, Data, clean_environment
from tests.processes import run_program
from tests.torture.services import Process, start_in_fork

PAST = {"created_at": "2025-01-01 00:00:00", "updated_at": "2025-02-01 00:00:00"}


def row(number: int, **more: Any) -> Data:
    """Return a row of a file; the title contains the number."""
    return {"title": f"Listing {number}", "content": "Two wheels.", **more}


def write_lines(cli: Cli, name: str, *rows: Data | str) -> str:
    lines = [line if isinstance(line, str) else json.dumps(line) for line in rows]
    (cli.folder / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return name


def read_lines(path: Path) -> list[Data]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def query(folder: Path, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    with closing(apsw.Connection(str(folder / "data/listings.db"), flags=apsw.SQLITE_OPEN_READWRITE)) as connection:
        connection.set_busy_timeout(60_000)
        return connection.execute(statement, values).fetchall()


def stored(folder: Path, *without: str) -> list[tuple[Any, ...]]:
    """Return all listings with all columns except market_version, which the indexer sets in the background."""
    names = query(folder, "SELECT name FROM pragma_table_info('listings') WHERE name <> 'market_version'")
    columns = ", ".join(name for (name,) in names if name not in without)
    return query(folder, f"SELECT {columns} FROM listings ORDER BY id")  # noqa: S608 - columns of the schema


def stored_without_times(folder: Path) -> list[tuple[Any, ...]]:
    """Return id, account, title, content and version of all listings."""
    return query(folder, "SELECT id, account_id, title, content, version FROM listings ORDER BY id")


def counts(data: Data) -> tuple[int, int, int, int]:
    """Return the numbers of created, updated, unchanged and rejected rows."""
    return data["created"], data["updated"], data["unchanged"], data["rejected"]


@contextmanager
def start(folder: Path, *arguments: str) -> Iterator[Process]:
    """Run a command in a forked process, which needs a tenth of the time of the installed program to start."""
    process = start_in_fork(arguments, {}, Path(os.devnull), folder=folder)
    try:
        yield process
    finally:
        process.close()


def run(folder: Path, *arguments: str) -> int:
    """Run a command in a forked process until it ends, and return its exit code."""
    with start(folder, *arguments) as process:
        process.wait(DEADLINE)
        return process.fetch_exit_code()


def kill_in_the_middle(
    folder: Path,
    arguments: tuple[str, ...],
    observe: Callable[[], object],
    rng: random.Random,
    number: signal.Signals = signal.SIGKILL,
) -> int:
    """Kill a command at a random moment after the result of `observe` has changed. Return its exit code."""
    with start(folder, *arguments) as process:
        before = observe()
        while not process.has_ended and observe() == before:
            time.sleep(0.002)  # leave the CPU to the program
        if not process.ends_within(rng.uniform(0, 0.05)):
            process.kill(number)
        return process.fetch_exit_code()


_MEASURED = """
import sys
from listings.cli import main, transfer

def status(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name))

main(["migrate"])
open("/proc/self/clear_refs", "w").write("5")
before = status("VmRSS")
code = main(sys.argv[1:])
print(code, status("VmHWM") - before, file=sys.stderr)
"""


def measure_memory(folder: Path, *arguments: str) -> int:
    """Run a command and return by how many KiB its memory grew at most after the program had started."""
    python = Path(PROGRAM).with_name("python")
    outcome = run_program([python, "-c", _MEASURED, *arguments], cwd=folder, env=clean_environment(), check=True)
    code, growth = outcome.stderr.split()[-2:]
    assert code == "0", outcome
    return int(growth)
