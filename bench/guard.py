"""`python -m bench.guard`: tell whether an answer of the service has become more expensive: `make bench-check`.

What is compared are the instructions of an answer as a multiple of those of the constant body for one of the same
size, so that the versions of Python and of the loop matter little. The multiples that are held against it are kept in
`guard.json`.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import click

from bench import callgrind, data, machine, servers
from bench.command import tell, telling
from bench.data import Data
from bench.exchange import Answer, Request
from bench.scenarios import SCENARIOS, Scenario

KEPT = Path(__file__).with_name("guard.json")
TOLERANCE = 0.1
"""How much a multiple may differ from the one that is kept, as part of it."""
_ALONE = {"LISTINGS_SITE": "off"}
"""Else the market's index is brought up to date beside the answers, and its instructions are no answer's."""


class Count(NamedTuple):
    """Instructions of an answer: the service's, and those of the constant body."""

    service: float
    reference: float

    @property
    def multiple(self) -> float:
        """The service's as a multiple of the other's."""
        return self.service / self.reference


class Comparison(NamedTuple):
    """A scenario's multiple beside the one that is kept; None where none is."""

    scenario: str
    found: float
    kept: float | None

    @property
    def change(self) -> float:
        """By how much it has grown, as part of the kept one."""
        return 0.0 if self.kept is None else self.found / self.kept - 1

    @property
    def dearer(self) -> bool:
        """Whether it has grown by more than is tolerated."""
        return self.change > TOLERANCE

    @property
    def cheaper(self) -> bool:
        """Whether it has fallen by as much, so that the kept one guards little any more."""
        return self.change < -TOLERANCE

    def line(self) -> str:
        """A line for people."""
        if self.kept is None:
            return f"{self.scenario}: {self.found:.2f} times the constant body; none is kept"
        return (
            f"{self.scenario}: {self.found:.2f} times the constant body, kept {self.kept:.2f}, "
            f"{self.change * 100:+.1f} %{self._word()}"
        )

    def _word(self) -> str:
        if self.dearer:
            return f": more than {TOLERANCE * 100:.0f} % dearer"
        return ": cheaper, keep it with `make bench-check ARGS=--write`" if self.cheaper else ""


@click.command()
@click.option("--write", "writes", is_flag=True, help="Keep what is found, to be held against later runs.")
@click.option("--folder", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Where data is put.")
def main(*, writes: bool, folder: Path | None) -> None:
    """Tell whether an answer of the service takes more instructions than it did.

    \b
    Example: python -m bench.guard
    """
    with telling():
        found = _measure(folder)
        if writes:
            KEPT.write_text(json.dumps({name: round(value, 3) for name, value in found.items()}, indent=2) + "\n")
        verdicts = judge(found, json.loads(KEPT.read_text("utf-8")))
    for verdict in verdicts:
        click.echo(verdict.line())
    sys.exit(any(verdict.dearer for verdict in verdicts))


def judge(found: Mapping[str, float], kept: Mapping[str, float]) -> list[Comparison]:
    """A verdict for each scenario that was measured."""
    return [Comparison(scenario, multiple, kept.get(scenario)) for scenario, multiple in found.items()]


def measures() -> dict[str, Scenario]:
    """What is counted, by name: each scenario; and of each that reads, one request again and again.

    No listing is read twice by a scenario; its lists and creates come back to an account after a hundred requests.
    """
    again = {f"{row.name}, again": row._replace(requests=_first_of(row)) for row in SCENARIOS if not row.creates}
    return {row.name: row for row in SCENARIOS} | again


def _first_of(scenario: Scenario) -> Callable[[Data], list[Request]]:
    return lambda filled: scenario.requests(filled)[:1]


def _measure(folder: Path | None) -> dict[str, float]:
    callgrind.program()
    core = machine.two_cores()[0]
    tell("4 servers under valgrind: a minute or two, longer on a busy machine")
    with tempfile.TemporaryDirectory(prefix="listings-guard-", dir=folder) as name:
        place = Path(name)
        filled = data.fill(place / "filled.db")
        answers, ours = _count_service(filled, place, core)
        theirs = {row.name: _count_reference(filled, row, answers[row.name], place, core) for row in SCENARIOS}
    counts = {name: Count(ours[name], theirs[row.name]) for name, row in measures().items()}
    for name, count in counts.items():
        tell(f"{name}: {count.service:,.0f} instructions, constant body {count.reference:,.0f}")
    return {name: count.multiple for name, count in counts.items()}


def _count_service(filled: Data, place: Path, core: int) -> tuple[dict[str, Answer], dict[str, float]]:
    """By scenario, the service's right answers; and by measure, its instructions."""
    with tempfile.TemporaryDirectory(dir=place) as name:
        folder = Path(name)
        with servers.service(filled.database, folder, core, settings=_ALONE, under=callgrind.under(folder)) as server:
            answers = {row.name: row.check(filled, server.port) for row in SCENARIOS}
            counts = {
                name: callgrind.instructions(server, row.requests(filled), folder) for name, row in measures().items()
            }
    return answers, counts


def _count_reference(filled: Data, scenario: Scenario, answer: Answer, place: Path, core: int) -> float:
    with tempfile.TemporaryDirectory(dir=place) as name:
        folder = Path(name)
        with servers.reference(answer, folder, core, under=callgrind.under(folder)) as server:
            return callgrind.instructions(server, scenario.requests(filled), folder)


if __name__ == "__main__":
    main()
