"""What is measured: two processes beside one, PostgreSQL beside SQLite and beside other ways to use it."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

from bench import servers
from bench.data import Data
from bench.peers.contenders import Contender, Start, constant_body
from bench.peers.contest import Cell
from bench.report import middle
from bench.scale.postgres import Postgres
from bench.scale.variants import OWN_POOL, STATEMENTS
from bench.scenarios import SCENARIOS, Scenario
from bench.servers import Cores, Server

ONE, TWO = "one process", "two processes"
SQLITE, POSTGRES, POOL = "SQLite", "PostgreSQL", "PostgreSQL, asyncpg's pool"
CONSTANT = "constant body"
AT_ONCE, BY_STATEMENTS = "one round trip", "single statements"

_TWO_WORKERS = {"LISTINGS_WORKERS": "2"}
_SCENARIOS = {row.name: row for row in SCENARIOS}
_PROGRAM = str(Path(sys.executable).with_name("listings"))


class Goal(NamedTuple):
    """What a number is to be; `value` is what the runs of a scenario say."""

    text: str
    scenario: str
    value: Callable[[Cell], float]
    bound: float
    at_most: bool = False

    def is_reached(self, cell: Cell) -> bool:
        """Whether it is so."""
        found = self.value(cell)
        return found <= self.bound if self.at_most else found >= self.bound

    def line(self, cell: Cell) -> str:
        """For people."""
        word, verdict = "most" if self.at_most else "least", "reached" if self.is_reached(cell) else "missed"
        found = f"{self.value(cell):.2f} (target: at {word} {self.bound:g}): {verdict}"
        return f"{self.text}, {cell.connections} connections: {found}."


class Part(NamedTuple):
    """Some ways to run the service that are measured by turns; the first is what the others are compared with."""

    name: str
    scenarios: tuple[Scenario, ...]
    contenders: tuple[Contender, ...]
    goals: tuple[Goal, ...]


def of_lists(data: Data, cores: tuple[int, int]) -> Part:
    """Two processes on both cores beside one on the first, each list being made anew.

    A list that is kept in memory costs wrk nearly as much as the service, and wrk is on these cores as well.
    """
    goals = (
        Goal("Rate of lists, two processes relative to one", "list of 100", lambda cell: cell.ratio(TWO, ONE), 1.85),
        _p99_goal("list of 100"),
    )
    made_anew = {"LISTINGS_LIST_CACHE_BYTES": "0"}
    contenders = (_on_sqlite(ONE, data, cores[0], made_anew), _on_sqlite(TWO, data, cores, _TWO_WORKERS | made_anew))
    return Part("lists", (_SCENARIOS["list of 100"],), contenders, goals)


def of_processes(data: Data, cores: tuple[int, int]) -> Part:
    """Two processes on both cores beside one on the first, by default settings."""
    goals = (
        Goal("Rate of creates, two processes relative to one", "create", lambda cell: cell.ratio(TWO, ONE), 1),
        _p99_goal("create"),
    )
    contenders = (_on_sqlite(ONE, data, cores[0], {}), _on_sqlite(TWO, data, cores, _TWO_WORKERS))
    return Part("processes", (_SCENARIOS["list of 100"], _SCENARIOS["create"]), contenders, goals)


def of_reads(data: Data, on_postgres: Data, server: Postgres, core: int) -> Part:
    """PostgreSQL beside SQLite, beside the same store on the driver's own pool, and beside doing nothing at all."""
    goals = (
        Goal(
            "Processor time for a read from PostgreSQL, in µs",
            "get one",
            lambda cell: _processor(cell, POSTGRES),
            50,
            at_most=True,
        ),
        Goal(
            "That time relative to the constant body's (18.3 µs on the machine where the target of 50 µs was set)",
            "get one",
            lambda cell: _processor(cell, POSTGRES) / _processor(cell, CONSTANT),
            2.7,
            at_most=True,
        ),
        Goal(
            "That time with asyncpg's own pool, relative to ours",
            "get one",
            lambda cell: _processor(cell, POOL) / _processor(cell, POSTGRES),
            2,
        ),
    )
    contenders = (
        _on_sqlite(SQLITE, data, core, {}),
        _on_postgres(POSTGRES, on_postgres, server),
        _on_postgres(POOL, on_postgres, server, OWN_POOL),
        constant_body(data),
    )
    return Part("reads", (_SCENARIOS["get one"],), contenders, goals)


def of_creates(on_postgres: Data, server: Postgres) -> Part:
    """Creates in one round trip beside those in several."""
    text = "Rate of creates, one round trip relative to single statements"
    goal = Goal(text, "create", lambda cell: cell.ratio(AT_ONCE, BY_STATEMENTS), 1.8)
    contenders = (
        _on_postgres(BY_STATEMENTS, on_postgres, server, STATEMENTS),
        _on_postgres(AT_ONCE, on_postgres, server),
    )
    return Part("creates", (_SCENARIOS["create"],), contenders, (goal,))


def _p99_goal(scenario: str) -> Goal:
    return Goal(f"p99 ({scenario}), two processes relative to one", scenario, _p99_multiple, 3, at_most=True)


def _p99_multiple(cell: Cell) -> float:
    return middle(cell.runs[TWO], lambda run: run.p99) / middle(cell.runs[ONE], lambda run: run.p99)


def _processor(cell: Cell, name: str) -> float:
    return middle(cell.runs[name], lambda run: run.processor)


def _on_sqlite(name: str, data: Data, cores: Cores, settings: Mapping[str, str]) -> Contender:
    def running(start: Start) -> AbstractContextManager[Server]:
        return servers.service(data.database, start.folder, cores, window=start.window, settings=settings)

    return Contender(name, "peer", data, "", running)


def _on_postgres(name: str, data: Data, server: Postgres, variant: str = "") -> Contender:
    @contextmanager
    def running(start: Start) -> Iterator[Server]:
        environment = {
            "LISTINGS_DATABASE_URL": server.copy(start.folder),
            "LISTINGS_DATA_FOLDER": str(start.folder / "data"),
            "LISTINGS_RATE_WINDOW": str(start.window),
            "LISTINGS_PORT": "0",
        }
        program = [sys.executable, "-m", "bench.scale.variants", variant] if variant else [_PROGRAM]
        with servers.started([*program, "serve"], environment, start.folder, start.core) as service:
            yield service._replace(database=server.process.pid)

    return Contender(name, "peer", data, "", running, stored=server.count_rows)
