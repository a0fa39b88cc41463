"""Measure an import of 50,000 rows with external ids through the command line."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from statistics import median

from bench import BenchmarkError
from bench.data import build_listing
from bench.servers import pinned

ROWS = 50_000
_EMAIL = "import@example.com"


def describe(folder: Path, core: int, rounds: int) -> str:
    """Import the rows into a new database in each round; return the median rate as a sentence without its stop."""
    file = folder / "rows.jsonl"
    file.write_text("".join(f"{json.dumps(_build_row(number))}\n" for number in range(ROWS)), "utf-8")
    rates = [_measure(folder / f"import-{number}.db", file, core) for number in range(rounds)]
    return (
        f"{ROWS:,} rows of JSON lines with external ids, {median(rates):,.0f} rows per second of processor time "
        f"({min(rates):,.0f}-{max(rates):,.0f})"
    )


def _build_row(number: int) -> dict[str, object]:
    return {**build_listing(number), "external_id": f"sku-{number}"}


def _measure(database: Path, file: Path, core: int) -> float:
    """Return the rows that are imported in a second of processor time, with the start of the program."""
    _run(database, core, "migrate")
    _run(database, core, "account", "create", "--name", "Import", "--email", _EMAIL, "--months", "12")
    before = _get_seconds()
    _run(database, core, "import", _EMAIL, str(file))
    return ROWS / (_get_seconds() - before)


def _get_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _run(database: Path, core: int, *arguments: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LISTINGS_")}
    with pinned(core):
        outcome = subprocess.run(
            [str(Path(sys.executable).with_name("listings")), *arguments],
            env={**environment, "LISTINGS_DATABASE_URL": f"sqlite:///{database}"},
            capture_output=True,
            text=True,
            check=False,
        )
    if outcome.returncode:
        raise BenchmarkError(f"`listings {arguments[0]}` failed: {outcome.stderr[-300:] or outcome.stdout[-300:]}")
