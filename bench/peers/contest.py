"""The runs, interleaved: in each round every scenario at each number of connections, all contenders by turns."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench import RejectedRequest
from bench.exchange import Answer
from bench.peers.contenders import Contender, Start
from bench.rounds import Bench, Load, Plan, Run, require_count
from bench.scenarios import Scenario
from bench.witness import Timed, Watched, watch


class Cell(NamedTuple):
    """All runs of a scenario at a number of connections: by contender, by round."""

    scenario: str
    connections: int
    runs: Mapping[str, list[Watched[Run]]]

    def rate(self, name: str) -> float:
        """Requests a second in the median run."""
        return median(watched.run.rate for watched in self.runs[name])

    def fastest(self, names: set[str]) -> str | None:
        """Who of some contenders answers most; None when none of them was measured."""
        return max(names & set(self.runs), key=self.rate, default=None)

    def ratio(self, name: str, other: str) -> float:
        """The median over the rounds of a contender's rate as part of another's in the same round."""
        pairs = zip(self.runs[name], self.runs[other], strict=True)
        return median(one.run.rate / two.run.rate for one, two in pairs)


class Contest(NamedTuple):
    """What every run needs: those who are compared, the service first, and what the harness has."""

    contenders: tuple[Contender, ...]
    bench: Bench

    def measure(self, plan: Plan) -> list[Cell]:
        """Carry out a plan. Raises Refusal when an answer is wrong or refused."""
        answers = {scenario.name: self._rehearse(scenario) for scenario in plan.scenarios}
        cells = [_cell(self.contenders, scenario, count) for scenario, count in _each(plan)]
        for number in range(plan.rounds):
            for cell, (scenario, count) in zip(cells, _each(plan), strict=True):
                load = Load(scenario, count, plan.seconds, answers[scenario.name])
                for contender in in_turn(self.contenders, number):
                    if contender.does(scenario):
                        cell.runs[contender.name].append(self._watched(contender, load))
                self.bench.tell(f"round {number + 1} of {plan.rounds}: {_told(cell)}")
        return cells

    def _rehearse(self, scenario: Scenario) -> Answer:
        """The service's right answer, which the limits repeat."""
        service = self.contenders[0]
        with self._folder() as folder, service.running(Start(folder, self.bench.cores[0], _NO_ANSWER)) as server:
            return service.check(scenario, server.port, _NO_ANSWER)

    def _watched(self, contender: Contender, load: Load) -> Watched[Run]:
        def set_aside(lost: float) -> None:
            self.bench.tell(f"{place}: set aside, the machine stood still for {lost * 1000:.0f} ms")

        place = f"{load.scenario.name}, {load.connections} connections, {contender.name}"
        try:
            return watch(lambda: self._run(contender, load), self.bench.witness.lost, set_aside)
        except RejectedRequest as refusal:
            raise RejectedRequest(f"{place}: {refusal}") from None

    def _run(self, contender: Contender, load: Load) -> Timed[Run]:
        bench = self.bench._replace(data=contender.data)
        with self._folder() as folder:
            with contender.running(Start(folder, bench.cores[0], load.answer)) as server:
                answer = contender.check(load.scenario, server.port, load.answer)
                run, answered = bench.drive(server, load._replace(answer=answer), folder)
            if load.scenario.creates and contender.kind != "limit":
                require_count(contender.stored(folder), contender.data.rows + 1 + answered, load.connections)
        return run

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(dir=self.bench.folder) as name:
            yield Path(name)


def runs_of(plan: Plan, contenders: tuple[Contender, ...]) -> int:
    """How many runs a plan has when none is repeated."""
    each = [contender for scenario, _ in _each(plan) for contender in contenders if contender.does(scenario)]
    return plan.rounds * len(each)


def in_turn(contenders: tuple[Contender, ...], number: int) -> tuple[Contender, ...]:
    """The order of a round: each begins once, and every other round goes backwards."""
    first = number % len(contenders)
    turned = (*contenders[first:], *contenders[:first])
    return turned if number % 2 == 0 else turned[::-1]


def _each(plan: Plan) -> Iterator[tuple[Scenario, int]]:
    return ((scenario, count) for scenario in plan.scenarios for count in plan.connections)


def _cell(contenders: tuple[Contender, ...], scenario: Scenario, connections: int) -> Cell:
    return Cell(scenario.name, connections, {row.name: [] for row in contenders if row.does(scenario)})


def _told(cell: Cell) -> str:
    rates = ", ".join(f"{name} {runs[-1].run.rate:,.0f}" for name, runs in cell.runs.items())
    return f"{cell.scenario}, {cell.connections} connections, requests/s: {rates}"


_NO_ANSWER = Answer(b"HTTP/1.1 200 OK\r\n", b"")
