"""The result as a table, and its place in docs/reliability.md."""

import os
import platform
import re
import subprocess
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

import apsw

from bench.machine import file_system
from bench.report import today, write
from tests.postgres_server import find_programs
from tests.torture.registry import Trial

PAGE = Path(__file__).parent.parent.parent / "docs" / "reliability.md"
BEGIN = "<!-- made by `make torture ARGS=--write`: begin -->"
END = "<!-- made by `make torture ARGS=--write`: end -->"
COLUMNS = ("#", "Test", "Target", "Run", "Failures", "Control", "Result", "Date")
_MOST_TOLD = 300  # characters of a cell


def row_of(trial: Trial) -> tuple[str, ...]:
    """A line of the table."""
    faults = trial.outcome.faults
    return tuple(
        map(
            _cell,
            (
                str(trial.instrument.number),
                trial.instrument.name,
                trial.instrument.target,
                trial.outcome.done,
                f"{len(faults)}: {faults[0]}" if faults else "0",
                f"found {len(trial.control.faults)}" if trial.control.faults else "found NOTHING",
                trial.verdict,
                today(),
            ),
        )
    )


def table(rows: Iterable[tuple[str, ...]]) -> str:
    """In Markdown."""
    lines = [COLUMNS, tuple("---:" if name == "#" else "---" for name in COLUMNS), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def keep(trials: Iterable[Trial], page: Path = PAGE) -> None:
    """Write the table into the page; rows of instruments that were not run stay as they are. Raises Refusal."""
    rows = {row[0]: row for row in (_cells_of(line) for line in page.read_text("utf-8").splitlines()) if row}
    rows |= {row[0]: row for row in map(row_of, trials)}
    ordered = [rows[number] for number in sorted(rows, key=int)]
    write(page, "\n".join([*_facts(page.parent), "", table(ordered)]), BEGIN, END)


def _cells_of(line: str) -> tuple[str, ...]:
    """Those of a row that was written before; none for any other line."""
    if not re.match(r"\| \d+ \|", line):
        return ()
    return tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1])


def _facts(folder: Path) -> list[str]:
    packages = ", ".join(f"{name} {version(name)}" for name in ("listings", "uvicorn", "uvloop", "asyncpg"))
    return [
        f"- Machine: {_processor()}, {os.cpu_count()} cores, data on {_kind_of(folder)}.",
        f"- System: Linux {platform.release()}, Python {platform.python_version()}.",
        f"- Versions: {packages}, apsw {version('apsw')} with SQLite {apsw.sqlite_lib_version()}, {_postgres()}.",
    ]


def _processor() -> str:
    found = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text("utf-8"), re.MULTILINE)
    return found[1] if found is not None else platform.machine()


def _kind_of(folder: Path) -> str:
    return file_system(folder, Path("/proc/self/mounts").read_text("utf-8"))


def _postgres() -> str:
    said = subprocess.run(
        [find_programs() / "postgres", "--version"], capture_output=True, text=True, check=True
    ).stdout
    return "PostgreSQL " + said.split()[-1] if "(" not in said else "PostgreSQL " + said.split()[2]


def _cell(text: str) -> str:
    shown = " ".join(text.split()).replace("|", "\\|")
    return shown if len(shown) <= _MOST_TOLD else f"{shown[:_MOST_TOLD]}…"
