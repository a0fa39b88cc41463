"""Runs the comparison in interleaved rounds: each scenario and number of connections on each candidate."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench import BenchmarkError
from bench.http_client import Response
from bench.peers.candidates import Candidate, StartOptions
from bench.rounds import Bench, Load, Plan, Run, require_count
from bench.scenarios import Scenario
from bench.stall_detector import MeasuredRun, TimedRun, repeat_if_disturbed


class Cell(NamedTuple):
    """All runs of a scenario with a number of connections, by candidate and round."""

    scenario: str
    connections: int
    runs: Mapping[str, list[MeasuredRun[Run]]]

    def compute_rate(self, name: str) -> float:
        """Return the requests per second of the median run."""
        return median(measured.run.rate for measured in self.runs[name])

    def list_ratios(self, name: str, other: str) -> list[float]:
        """Return a candidate's rate relative to another's in each round."""
        pairs = zip(self.runs[name], self.runs[other], strict=True)
        return [one.run.rate / two.run.rate for one, two in pairs]

    def compute_ratio(self, name: str, other: str) -> float:
        """Return the median over the rounds of a candidate's rate relative to another's."""
        return median(self.list_ratios(name, other))


class Comparison(NamedTuple):
    """The candidates, the service first, and the benchmark's environment."""

    candidates: tuple[Candidate, ...]
    bench: Bench

    def measure(self, plan: Plan) -> list[Cell]:
        """Run a plan. Raise BenchmarkError if a response is wrong."""
        responses = {scenario.name: self._get_expected_response(scenario) for scenario in plan.scenarios}
        cells = [_cell(self.candidates, scenario, count) for scenario, count in _iterate_runs(plan)]
        for number in range(plan.rounds):
            for cell, (scenario, count) in zip(cells, _iterate_runs(plan), strict=True):
                load = Load(scenario, count, plan.seconds, responses[scenario.name])
                for candidate in order_candidates(self.candidates, number):
                    if candidate.can_run(scenario):
                        cell.runs[candidate.name].append(self._run_undisturbed(candidate, load))
                self.bench.log_progress(f"round {number + 1} of {plan.rounds}: {_format_rates(cell)}")
        return cells

    def _get_expected_response(self, scenario: Scenario) -> Response:
        """Return the service's response, which the limits repeat."""
        service = self.candidates[0]
        with self._folder() as folder, service.run(StartOptions(folder, self.bench.cores[0], _NO_RESPONSE)) as server:
            return service.check(scenario, server.port, _NO_RESPONSE)

    def _run_undisturbed(self, candidate: Candidate, load: Load) -> MeasuredRun[Run]:
        def log_disturbed(lost: float) -> None:
            self.bench.log_progress(f"{label}: repeated, the machine stalled for {lost * 1000:.0f} ms")

        label = f"{load.scenario.name}, {load.connections} connections, {candidate.name}"
        try:
            return repeat_if_disturbed(
                lambda: self._run(candidate, load), self.bench.detector.get_lost_seconds, log_disturbed
            )
        except BenchmarkError as error:
            raise BenchmarkError(f"{label}: {error}") from None

    def _run(self, candidate: Candidate, load: Load) -> TimedRun[Run]:
        bench = self.bench._replace(data=candidate.data)
        with self._folder() as folder:
            with candidate.run(StartOptions(folder, bench.cores[0], load.response)) as server:
                response = candidate.check(load.scenario, server.port, load.response)
                run, response_count = bench.run_load(server, load._replace(response=response), folder)
            if load.scenario.creates and candidate.kind != "limit":
                require_count(candidate.count_rows(folder), candidate.data.rows + 1 + response_count, load.connections)
        return run

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(dir=self.bench.folder) as name:
            yield Path(name)


def count_runs(plan: Plan, candidates: tuple[Candidate, ...]) -> int:
    """Return the number of runs of a plan without repetitions."""
    each = [candidate for scenario, _ in _iterate_runs(plan) for candidate in candidates if candidate.can_run(scenario)]
    return plan.rounds * len(each)


def order_candidates(candidates: tuple[Candidate, ...], number: int) -> tuple[Candidate, ...]:
    """Return the order of a round: each candidate is first once, and every other round is reversed."""
    first = number % len(candidates)
    rotated = (*candidates[first:], *candidates[:first])
    return rotated if number % 2 == 0 else rotated[::-1]


def _iterate_runs(plan: Plan) -> Iterator[tuple[Scenario, int]]:
    return (
        (scenario, count)
        for scenario in plan.scenarios
        for count in plan.connections
        if count <= scenario.max_connections
    )


def _cell(candidates: tuple[Candidate, ...], scenario: Scenario, connections: int) -> Cell:
    return Cell(scenario.name, connections, {row.name: [] for row in candidates if row.can_run(scenario)})


def _format_rates(cell: Cell) -> str:
    rates = ", ".join(f"{name} {runs[-1].run.rate:,.0f}" for name, runs in cell.runs.items())
    return f"{cell.scenario}, {cell.connections} connections, requests/s: {rates}"


_NO_RESPONSE = Response(b"HTTP/1.1 200 OK\r\n", b"")
