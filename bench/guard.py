"""Check whether responses take more instructions than before: `make bench-check`, `python -m bench.guard`.

The measure is the number of instructions of a response relative to that of a constant body of the same size, so that
versions of Python and of the event loop matter little. The baseline is in `guard.json`.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import click

from bench import callgrind, data, machine, servers
from bench.command import log_progress, report_errors
from bench.data import Data
from bench.http_client import Request, Response
from bench.peers.rows import ROWS
from bench.scenarios import SCENARIOS, Scenario

BASELINE_FILE = Path(__file__).with_name("guard.json")
TOLERANCE = 0.1
"""The tolerated difference from the baseline, as a fraction."""
_SETTINGS = {"LISTINGS_SITE": "off"}
"""The market's index would be updated during the measurement."""
_SCENARIOS = (*SCENARIOS, *(row for row in ROWS if row.name in {"page of 50", "update", "batch of 100 creates"}))
_DIVISORS = {"batch of 100 creates": 10}
_PROGRAM = (sys.executable, "-m", "bench.without_maintenance")


class Count(NamedTuple):
    """The instructions of a response of the service, and of the constant body."""

    service: float
    reference: float

    @property
    def multiple(self) -> float:
        """Return the service's instructions relative to the constant body's."""
        return self.service / self.reference


class Comparison(NamedTuple):
    """The result of a scenario and its baseline, None if there is none."""

    scenario: str
    measured: float
    baseline: float | None

    @property
    def change(self) -> float:
        """Return the relative change from the baseline."""
        return 0.0 if self.baseline is None else self.measured / self.baseline - 1

    @property
    def is_more_expensive(self) -> bool:
        """Return whether the result exceeds the baseline by more than the tolerance."""
        return self.change > TOLERANCE

    @property
    def is_cheaper(self) -> bool:
        """Return whether it is so far below the baseline that this should be updated."""
        return self.change < -TOLERANCE

    def format(self) -> str:
        """Format the comparison as a line."""
        if self.baseline is None:
            return f"{self.scenario}: {self.measured:.2f} times the constant body, no baseline"
        return (
            f"{self.scenario}: {self.measured:.2f} times the constant body, baseline {self.baseline:.2f}, "
            f"{self.change * 100:+.1f}%{self._format_verdict()}"
        )

    def _format_verdict(self) -> str:
        if self.is_more_expensive:
            return f": more than {TOLERANCE * 100:.0f}% above the baseline"
        return ": lower, update the baseline with `make bench-check ARGS=--write`" if self.is_cheaper else ""


@click.command()
@click.option("--write", "writes", is_flag=True, help="Store the result as the new baseline.")
@click.option("--add", "adds", is_flag=True, help="Store only the results that have no baseline.")
@click.option("--folder", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Folder for test data.")
def main(*, writes: bool, adds: bool, folder: Path | None) -> None:
    """Check whether a response takes more instructions than before.

    \b
    Example: python -m bench.guard
    """
    with report_errors():
        measured = _measure(folder)
        baseline = json.loads(BASELINE_FILE.read_text("utf-8"))
        comparisons = compare(measured, measured if writes else baseline)
        if writes or adds:
            stored = measured | (baseline if adds else {})
            BASELINE_FILE.write_text(json.dumps({name: round(stored[name], 3) for name in measured}, indent=2) + "\n")
    for comparison in comparisons:
        click.echo(comparison.format())
    sys.exit(any(comparison.is_more_expensive for comparison in comparisons))


def compare(measured: Mapping[str, float], baseline: Mapping[str, float]) -> list[Comparison]:
    """Compare each scenario with its baseline."""
    return [Comparison(scenario, multiple, baseline.get(scenario)) for scenario, multiple in measured.items()]


def build_measurements() -> dict[str, Scenario]:
    """Return the scenarios to count by name: each one, and one repeated request of each cached response.

    No listing or page is read twice by a scenario; its lists and creates return to an account after a hundred requests.
    """
    repeated = {f"{row.name}, again": row._replace(requests=_repeat_first(row)) for row in SCENARIOS if not row.creates}
    return {row.name: row for row in SCENARIOS} | repeated | {row.name: row for row in _SCENARIOS}


def _repeat_first(scenario: Scenario) -> Callable[[Data], list[Request]]:
    return lambda filled: scenario.requests(filled)[:1]


def _measure(folder: Path | None) -> dict[str, float]:
    callgrind.find_valgrind()
    core = machine.choose_cores()[0]
    log_progress(f"{1 + len(_SCENARIOS)} servers under valgrind: two or three minutes, longer on a busy machine")
    with tempfile.TemporaryDirectory(prefix="listings-guard-", dir=folder) as name:
        parent = Path(name)
        filled = data.fill(parent / "filled.db")
        responses, services = _count_service(filled, parent, core)
        references = {row.name: _count_reference(filled, row, responses[row.name], parent, core) for row in _SCENARIOS}
    counts = {name: Count(services[name], references[row.name]) for name, row in build_measurements().items()}
    for name, count in counts.items():
        log_progress(f"{name}: {count.service:,.0f} instructions, constant body {count.reference:,.0f}")
    return {name: count.multiple for name, count in counts.items()}


def _count_service(filled: Data, parent: Path, core: int) -> tuple[dict[str, Response], dict[str, float]]:
    """Return the service's responses by scenario, and its instructions by measurement."""
    with tempfile.TemporaryDirectory(dir=parent) as name:
        folder = Path(name)
        program = (*callgrind.build_command(folder), *_PROGRAM)
        with servers.run_service(filled.database, folder, core, settings=_SETTINGS, program=program) as server:
            responses = {row.name: row.check(filled, server.port) for row in _SCENARIOS}
            counts = {
                name: callgrind.count_instructions(server, row.requests(filled), folder, _DIVISORS.get(name, 1))
                for name, row in build_measurements().items()
            }
    return responses, counts


def _count_reference(filled: Data, scenario: Scenario, response: Response, parent: Path, core: int) -> float:
    with tempfile.TemporaryDirectory(dir=parent) as name:
        folder = Path(name)
        with servers.run_reference(response, folder, core, wrapper=callgrind.build_command(folder)) as server:
            return callgrind.count_instructions(server, scenario.requests(filled), folder)


if __name__ == "__main__":
    main()
