"""The parts: two processes and one, PostgreSQL and SQLite, and other ways to use PostgreSQL."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

from bench import servers
from bench.data import Data
from bench.peers.candidates import Candidate, StartOptions, build_constant_body
from bench.peers.comparison import Cell
from bench.report import compute_median
from bench.scale.postgres import Postgres
from bench.scale.variants import OWN_POOL, STATEMENTS
from bench.scenarios import SCENARIOS, Scenario
from bench.servers import Cores, Server

ONE, TWO = "one process", "two processes"
SQLITE, POSTGRES, POOL = "SQLite", "PostgreSQL", "PostgreSQL, asyncpg's pool"
CONSTANT = "constant body"
ONE_ROUND_TRIP, SINGLE_STATEMENTS = "one round trip", "single statements"

_TWO_WORKERS = {"LISTINGS_WORKERS": "2"}
_SCENARIOS = {row.name: row for row in SCENARIOS}
_PROGRAM = str(Path(sys.executable).with_name("listings"))


class Goal(NamedTuple):
    """A target for a value of a scenario's runs."""

    text: str
    scenario: str
    value: Callable[[Cell], float]
    bound: float
    is_maximum: bool = False

    def is_reached(self, cell: Cell) -> bool:
        """Return whether the target is reached."""
        found = self.value(cell)
        return found <= self.bound if self.is_maximum else found >= self.bound

    def format(self, cell: Cell) -> str:
        """Format the target and the result as a line."""
        word, verdict = "most" if self.is_maximum else "least", "reached" if self.is_reached(cell) else "missed"
        found = f"{self.value(cell):.2f} (target: at {word} {self.bound:g}): {verdict}"
        return f"{self.text}, {cell.connections} connections: {found}."


class Part(NamedTuple):
    """Variants of the service that are measured together; the first one is the reference."""

    name: str
    scenarios: tuple[Scenario, ...]
    candidates: tuple[Candidate, ...]
    goals: tuple[Goal, ...]


def build_lists_part(data: Data, cores: tuple[int, int]) -> Part:
    """Compare two processes on both cores with one on the first, without the cache of lists.

    A cached list costs wrk nearly as much as the service, and wrk runs on one of these cores.
    """
    goals = (
        Goal(
            "Rate of lists, two processes relative to one",
            "list of 100",
            lambda cell: cell.compute_ratio(TWO, ONE),
            1.85,
        ),
        _build_p99_goal("list of 100"),
    )
    no_cache = {"LISTINGS_LIST_CACHE_BYTES": "0"}
    candidates = (_on_sqlite(ONE, data, cores[0], no_cache), _on_sqlite(TWO, data, cores, _TWO_WORKERS | no_cache))
    return Part("lists", (_SCENARIOS["list of 100"],), candidates, goals)


def build_processes_part(data: Data, cores: tuple[int, int]) -> Part:
    """Compare two processes on both cores with one on the first, with default settings."""
    goals = (
        Goal("Rate of creates, two processes relative to one", "create", lambda cell: cell.compute_ratio(TWO, ONE), 1),
        _build_p99_goal("create"),
    )
    candidates = (_on_sqlite(ONE, data, cores[0], {}), _on_sqlite(TWO, data, cores, _TWO_WORKERS))
    return Part("processes", (_SCENARIOS["list of 100"], _SCENARIOS["create"]), candidates, goals)


def build_reads_part(data: Data, on_postgres: Data, server: Postgres, core: int) -> Part:
    """Compare PostgreSQL with SQLite, with asyncpg's own pool, and with the constant body."""
    goals = (
        Goal(
            "Processor time for a read from PostgreSQL, in µs",
            "get one",
            lambda cell: _get_processor_time(cell, POSTGRES),
            50,
            is_maximum=True,
        ),
        Goal(
            "That time relative to the constant body's (18.3 µs on the machine where the target of 50 µs was set)",
            "get one",
            lambda cell: _get_processor_time(cell, POSTGRES) / _get_processor_time(cell, CONSTANT),
            2.7,
            is_maximum=True,
        ),
        Goal(
            "That time with asyncpg's own pool, relative to ours",
            "get one",
            lambda cell: _get_processor_time(cell, POOL) / _get_processor_time(cell, POSTGRES),
            2,
        ),
    )
    candidates = (
        _on_sqlite(SQLITE, data, core, {}),
        _on_postgres(POSTGRES, on_postgres, server),
        _on_postgres(POOL, on_postgres, server, OWN_POOL),
        build_constant_body(data),
    )
    return Part("reads", (_SCENARIOS["get one"],), candidates, goals)


def build_creates_part(on_postgres: Data, server: Postgres) -> Part:
    """Compare creates in one round trip with creates in several statements."""
    text = "Rate of creates, one round trip relative to single statements"
    goal = Goal(text, "create", lambda cell: cell.compute_ratio(ONE_ROUND_TRIP, SINGLE_STATEMENTS), 1.5)
    candidates = (
        _on_postgres(SINGLE_STATEMENTS, on_postgres, server, STATEMENTS),
        _on_postgres(ONE_ROUND_TRIP, on_postgres, server),
    )
    return Part("creates", (_SCENARIOS["create"],), candidates, (goal,))


def _build_p99_goal(scenario: str) -> Goal:
    return Goal(f"p99 ({scenario}), two processes relative to one", scenario, _compute_p99_ratio, 3, is_maximum=True)


def _compute_p99_ratio(cell: Cell) -> float:
    return compute_median(cell.runs[TWO], lambda run: run.p99) / compute_median(cell.runs[ONE], lambda run: run.p99)


def _get_processor_time(cell: Cell, name: str) -> float:
    return compute_median(cell.runs[name], lambda run: run.processor)


def _on_sqlite(name: str, data: Data, cores: Cores, settings: Mapping[str, str]) -> Candidate:
    def run(start: StartOptions) -> AbstractContextManager[Server]:
        return servers.run_service(data.database, start.folder, cores, window=start.window, settings=settings)

    return Candidate(name, "peer", data, "", run)


def _on_postgres(name: str, data: Data, server: Postgres, variant: str = "") -> Candidate:
    @contextmanager
    def run(start: StartOptions) -> Iterator[Server]:
        environment = {
            "LISTINGS_DATABASE_URL": server.copy(start.folder),
            "LISTINGS_DATA_FOLDER": str(start.folder / "data"),
            "LISTINGS_RATE_WINDOW": str(start.window),
            "LISTINGS_PORT": "0",
        }
        program = [sys.executable, "-m", "bench.scale.variants", variant] if variant else [_PROGRAM]
        with servers.run_server([*program, "serve"], environment, start.folder, start.core) as service:
            yield service._replace(database=server.process.pid)

    return Candidate(name, "peer", data, "", run, count_rows=server.count_rows)
