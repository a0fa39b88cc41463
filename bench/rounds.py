"""Runs the benchmark in rounds: each scenario and number of connections on the service and on the reference."""

import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import apsw

from bench import BenchmarkError, servers, wrk
from bench.data import Data
from bench.http_client import Request, Response, send
from bench.machine import compute_busy_seconds
from bench.scenarios import Scenario
from bench.servers import Server
from bench.stall_detector import MAX_TRIES, MeasuredRun, StallDetector, TimedRun, repeat_if_disturbed
from bench.wrk import Count

Side: TypeAlias = Literal["service", "reference"]

WARM_UP_SECONDS = 1
_OVERHEAD_SECONDS = 2.0  # per run, without warm-up and measurement
_IDLE_TIMEOUT_SECONDS = 20.0
_POLL_SECONDS = 0.1
_NEARLY_IDLE = 0.2  # of a core
_MEASURED_NUMBER = 5_000_000  # the numbers in the requests of the warm-up are lower
_USED_UP_SECONDS = 2
_SIZE_TOLERANCE = 0.05  # the size of responses varies: digits and listings vary


class Plan(NamedTuple):
    """What to measure, and for how long."""

    scenarios: tuple[Scenario, ...]
    connections: tuple[int, ...] = (1, 32, 256)
    rounds: int = 5
    seconds: int = 10

    @property
    def runs(self) -> int:
        """Return the number of runs without repetitions."""
        return 2 * self.rounds * len(self.scenarios) * len(self.connections)

    @property
    def estimate(self) -> tuple[float, float]:
        """Return the duration in seconds if no run is disturbed, and if every run is."""
        once = self.runs * (WARM_UP_SECONDS + self.seconds + _OVERHEAD_SECONDS)
        return once, MAX_TRIES * once


class Run(NamedTuple):
    """The result of a run; latencies in microseconds, processor time in microseconds per request."""

    rate: float
    p50: int
    p99: int
    processor: float
    peak_mebibytes: float
    other_load: float  # seconds of a core that other programs used in each second


class Cell(NamedTuple):
    """All runs of a scenario with a number of connections, by round."""

    scenario: str
    connections: int
    service: list[MeasuredRun[Run]]
    reference: list[MeasuredRun[Run]]

    def ratios(self) -> list[float]:
        """Return the service's rate relative to the reference's in each round."""
        return [ours.run.rate / theirs.run.rate for ours, theirs in zip(self.service, self.reference, strict=True)]


class Bench(NamedTuple):
    """The data, the cores of server and client, the stall detector, a folder, and a function to log progress."""

    data: Data
    cores: tuple[int, int]
    detector: StallDetector
    folder: Path
    log_progress: Callable[[str], None]

    def measure(self, plan: Plan) -> list[Cell]:
        """Run a plan. Raise BenchmarkError if a response is wrong."""
        responses = {scenario.name: self._get_expected_response(scenario) for scenario in plan.scenarios}
        cells = [Cell(scenario.name, count, [], []) for scenario in plan.scenarios for count in plan.connections]
        for number in range(plan.rounds):
            for cell, scenario in zip(cells, _iterate_scenarios(plan), strict=True):
                for side in ("service", "reference") if number % 2 == 0 else ("reference", "service"):
                    load = Load(scenario, cell.connections, plan.seconds, responses[scenario.name])
                    measured = self._run_undisturbed(side, load)
                    (cell.service if side == "service" else cell.reference).append(measured)
                self._log_round(number, plan, cell)
        return cells

    def _get_expected_response(self, scenario: Scenario) -> Response:
        """Return the service's response, which the reference then repeats."""
        with self._service() as server:
            return scenario.check(self.data, server.port)

    def _run_undisturbed(self, side: Side, load: "Load") -> MeasuredRun[Run]:
        run = self._run_service if side == "service" else self._run_reference

        def log_disturbed(lost: float) -> None:
            self.log_progress(f"{label}: the machine stalled for {lost * 1000:.0f} ms")

        label = f"{load.scenario.name}, {load.connections} connections, {side}"
        return repeat_if_disturbed(lambda: run(load), self.detector.get_lost_seconds, log_disturbed)

    def _run_service(self, load: "Load") -> TimedRun[Run]:
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            folder = Path(name)
            with servers.run_service(self.data.database, folder, self.cores[0]) as server:
                load.scenario.check(self.data, server.port)
                run, response_count = self.run_load(server, load, folder)
            if load.scenario.creates:
                require_rows(folder / "listings.db", self.data.rows + 1 + response_count, load.connections)
        return run

    def _run_reference(self, load: "Load") -> TimedRun[Run]:
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            folder = Path(name)
            with servers.run_reference(load.response, folder, self.cores[0]) as server:
                request = load.scenario.requests(self.data)[0]
                require_same(send(server.port, request), load.response)
                return self.run_load(server, load, folder)[0]

    def run_load(self, server: Server, load: "Load", folder: Path) -> tuple[TimedRun[Run], int]:
        """Warm up and measure; return the run and the number of responses in both."""
        scenario = load.scenario
        sent = scenario.prepare(server.port, scenario.requests(self.data))
        seconds = min(load.seconds, _USED_UP_SECONDS) if scenario.is_used_up else load.seconds
        warm_up, measured = _split(sent, seconds) if scenario.is_used_up else (sent, sent)
        _wait_until_idle(server, _NEARLY_IDLE)  # the scan at the start
        requests = write_requests(warm_up, folder)
        warm = wrk.run_wrk(server.port, requests, load.connections, WARM_UP_SECONDS, self.cores[1], min_requests=0)
        _wait_until_idle(server)
        requests = write_requests(measured, folder)
        before, started = self._usage(server), time.monotonic()
        count = wrk.run_wrk(
            server.port, requests, load.connections, seconds, self.cores[1], last_number=_MEASURED_NUMBER
        )
        after, ended = self._usage(server), time.monotonic()
        if not scenario.sizes_vary:
            require_size(count, load.response, load.connections)
        used, other_load = (
            after.server - before.server,
            (after.other_programs - before.other_programs) / (ended - started),
        )
        processor = used / count.requests * 1e6
        run = Run(count.rate, count.p50, count.p99, processor, server.peak_mebibytes(), max(0.0, other_load))
        return TimedRun(run, started, ended), warm.requests + count.requests

    def _usage(self, server: Server) -> "Usage":
        used = server.get_processor_seconds()
        finished = resource.getrusage(resource.RUSAGE_CHILDREN)  # includes wrk, which has ended
        ours = (
            used
            + server.get_database_seconds()
            + finished.ru_utime
            + finished.ru_stime
            + self.detector.get_processor_seconds()
        )
        return Usage(used, compute_busy_seconds(self.cores, Path("/proc/stat").read_text("ascii")) - ours)

    def _service(self) -> AbstractContextManager[Server]:
        folder = self.folder / "check"
        folder.mkdir(exist_ok=True)
        return servers.run_service(self.data.database, folder, self.cores[0])

    def _log_round(self, number: int, plan: Plan, cell: Cell) -> None:
        ours, theirs = cell.service[-1].run, cell.reference[-1].run
        self.log_progress(
            f"round {number + 1} of {plan.rounds}: {cell.scenario}, {cell.connections} connections: "
            f"{ours.rate:,.0f} requests/s, constant body {theirs.rate:,.0f}, {ours.rate / theirs.rate:.2f} of it"
        )


class Usage(NamedTuple):
    """Processor seconds so far: of the server, and of other programs on the two cores."""

    server: float
    other_programs: float


class Load(NamedTuple):
    """The load of a run, and the expected response."""

    scenario: Scenario
    connections: int
    seconds: int
    response: Response


def _iterate_scenarios(plan: Plan) -> Iterator[Scenario]:
    return (scenario for scenario in plan.scenarios for _ in plan.connections)


def _split(requests: list[Request], seconds: int) -> tuple[list[Request], list[Request]]:
    """Return the requests of the warm-up and of the measurement."""
    end = len(requests) * WARM_UP_SECONDS // (WARM_UP_SECONDS + seconds)
    return requests[:end], requests[end:]


def _wait_until_idle(server: Server, share: float = 0.5) -> None:
    """Wait until the server uses less than this share of a core, such as after the requests of the warm-up."""
    deadline = time.monotonic() + _IDLE_TIMEOUT_SECONDS
    used = server.get_processor_seconds()
    while time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        before, used = used, server.get_processor_seconds()
        if used - before < _POLL_SECONDS * share:
            return


def write_requests(requests: list[Request], folder: Path) -> Path:
    """Write the requests for `load.lua` to a file."""
    path = folder / "requests"
    path.write_text("".join(request.format_for_wrk() for request in requests), "utf-8")
    return path


def require_same(response: Response, expected: Response) -> None:
    """Raise BenchmarkError unless the reference repeats the service's response, except for date and header order."""
    if (response.status, response.header_lines(), response.body) != (
        expected.status,
        expected.header_lines(),
        expected.body,
    ):
        raise BenchmarkError(f"The reference returned another response: {response.head!r}, expected {expected.head!r}")


def require_size(count: Count, response: Response, connections: int) -> None:
    """Raise BenchmarkError unless wrk received as many bytes as this number of responses has.

    It has also received parts of unfinished responses, at most one per connection.
    """
    minimum = count.requests * response.size * (1 - _SIZE_TOLERANCE)
    maximum = (count.requests + connections) * response.size * (1 + _SIZE_TOLERANCE)
    if not minimum <= count.size <= maximum:
        raise BenchmarkError(
            f"wrk received {count.size / count.requests:.0f} bytes per response, expected {response.size}"
        )


def require_rows(database: Path, expected: int, connections: int) -> None:
    """Raise BenchmarkError unless the file has a row for each successful create."""
    require_count(count_rows(database), expected, connections)


def count_rows(database: Path) -> int:
    """Return the number of listings in a file."""
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return int(connection.execute("SELECT COUNT(*) FROM listings").get)
    finally:
        connection.close()


def require_count(rows: int, expected: int, connections: int) -> None:
    """Raise BenchmarkError unless there is a row for each successful create.

    Creates that were in progress when one of wrk's two runs ended may have a row too, one per connection and run.
    """
    if not expected <= rows <= expected + 2 * connections:
        raise BenchmarkError(
            f"{rows} listings are stored, expected {expected}: the responses of the creates were wrong"
        )
