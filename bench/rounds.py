"""The runs, interleaved: in each round every scenario at each number of connections, service and reference by turns."""

import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import apsw

from bench import RejectedRequest, servers, wrk
from bench.data import Data
from bench.exchange import Answer, Request, exchange
from bench.machine import busy_seconds
from bench.scenarios import Scenario
from bench.servers import Server
from bench.witness import MOST_TRIES, Timed, Watched, Witness, watch
from bench.wrk import Count

Side: TypeAlias = Literal["service", "reference"]

WARM_UP_SECONDS = 1
_AROUND_SECONDS = 2.0  # what a run takes beside warming up and measuring
_REST_SECONDS = 20.0
_LOOK_SECONDS = 0.1
_TOLERANCE = 0.05  # of an answer's size, which varies with its digits and, for one listing, with the listing


class Plan(NamedTuple):
    """What is measured, and for how long."""

    scenarios: tuple[Scenario, ...]
    connections: tuple[int, ...] = (1, 32, 256)
    rounds: int = 5
    seconds: int = 10

    @property
    def runs(self) -> int:
        """Runs when none has to be repeated."""
        return 2 * self.rounds * len(self.scenarios) * len(self.connections)

    @property
    def estimate(self) -> tuple[float, float]:
        """Seconds that all of it takes: when no run is disturbed, and when every one is, three times."""
        once = self.runs * (WARM_UP_SECONDS + self.seconds + _AROUND_SECONDS)
        return once, MOST_TRIES * once


class Run(NamedTuple):
    """What one run has shown; latencies in microseconds, processor time in microseconds a request."""

    rate: float
    p50: int
    p99: int
    processor: float
    peak_mebibytes: float
    foreign: float  # seconds of a core that other programs used in each second


class Cell(NamedTuple):
    """All runs of a scenario at a number of connections, by round."""

    scenario: str
    connections: int
    service: list[Watched[Run]]
    reference: list[Watched[Run]]

    def ratios(self) -> list[float]:
        """In each round the service's rate as part of the reference's."""
        return [ours.run.rate / theirs.run.rate for ours, theirs in zip(self.service, self.reference, strict=True)]


class Bench(NamedTuple):
    """What every run needs: data, cores (server's, client's), the witness, a folder, and whom to tell how it goes."""

    data: Data
    cores: tuple[int, int]
    witness: Witness
    folder: Path
    tell: Callable[[str], None]

    def measure(self, plan: Plan) -> list[Cell]:
        """Carry out a plan. Raises Refusal when an answer is wrong or refused."""
        answers = {scenario.name: self._rehearse(scenario) for scenario in plan.scenarios}
        cells = [Cell(scenario.name, count, [], []) for scenario in plan.scenarios for count in plan.connections]
        for number in range(plan.rounds):
            for cell, scenario in zip(cells, _each(plan), strict=True):
                for side in ("service", "reference") if number % 2 == 0 else ("reference", "service"):
                    load = Load(scenario, cell.connections, plan.seconds, answers[scenario.name])
                    watched = self._watched(side, load)
                    (cell.service if side == "service" else cell.reference).append(watched)
                self._tell_round(number, plan, cell)
        return cells

    def _rehearse(self, scenario: Scenario) -> Answer:
        """The service's right answer, by which the reference is made."""
        with self._service() as server:
            return scenario.check(self.data, server.port)

    def _watched(self, side: Side, load: "Load") -> Watched[Run]:
        run = self._run_service if side == "service" else self._run_reference

        def set_aside(lost: float) -> None:
            self.tell(f"{place}: set aside, the machine stood still for {lost * 1000:.0f} ms")

        place = f"{load.scenario.name}, {load.connections} connections, {side}"
        return watch(lambda: run(load), self.witness.lost, set_aside)

    def _run_service(self, load: "Load") -> Timed[Run]:
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            folder = Path(name)
            with servers.service(self.data.database, folder, self.cores[0]) as server:
                load.scenario.check(self.data, server.port)
                run, answered = self.drive(server, load, folder)
            if load.scenario.creates:
                require_rows(folder / "listings.db", self.data.rows + 1 + answered, load.connections)
        return run

    def _run_reference(self, load: "Load") -> Timed[Run]:
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            folder = Path(name)
            with servers.reference(load.answer, folder, self.cores[0]) as server:
                request = load.scenario.requests(self.data)[0]
                require_same(exchange(server.port, request), load.answer)
                return self.drive(server, load, folder)[0]

    def drive(self, server: Server, load: "Load", folder: Path) -> tuple[Timed[Run], int]:
        """Warm up, then measure; returns how many requests were answered in both."""
        requests = write_requests(load.scenario.requests(self.data), folder)
        warm = wrk.drive(server.port, requests, load.connections, WARM_UP_SECONDS, self.cores[1], least=0)
        _await_rest(server)
        before, since = self._usage(server), time.monotonic()
        count = wrk.drive(server.port, requests, load.connections, load.seconds, self.cores[1])
        after, until = self._usage(server), time.monotonic()
        require_size(count, load.answer, load.connections)
        used, foreign = after.server - before.server, (after.others - before.others) / (until - since)
        processor = used / count.requests * 1e6
        run = Run(count.rate, count.p50, count.p99, processor, server.peak_mebibytes(), max(0.0, foreign))
        return Timed(run, since, until), warm.requests + count.requests

    def _usage(self, server: Server) -> "Usage":
        used = server.processor_seconds()
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)  # wrk, as soon as it has ended
        ours = used + server.beside_seconds() + ended.ru_utime + ended.ru_stime + self.witness.processor_seconds()
        return Usage(used, busy_seconds(self.cores, Path("/proc/stat").read_text("ascii")) - ours)

    def _service(self) -> AbstractContextManager[Server]:
        rehearsal = self.folder / "rehearsal"
        rehearsal.mkdir(exist_ok=True)
        return servers.service(self.data.database, rehearsal, self.cores[0])

    def _tell_round(self, number: int, plan: Plan, cell: Cell) -> None:
        ours, theirs = cell.service[-1].run, cell.reference[-1].run
        self.tell(
            f"round {number + 1} of {plan.rounds}: {cell.scenario}, {cell.connections} connections: "
            f"{ours.rate:,.0f} requests/s, constant body {theirs.rate:,.0f}, {ours.rate / theirs.rate:.2f} of it"
        )


class Usage(NamedTuple):
    """Processor seconds so far: of the server, and of the two cores what was none of the benchmark's."""

    server: float
    others: float


class Load(NamedTuple):
    """What one run sends, and the answer that the reference gives to it."""

    scenario: Scenario
    connections: int
    seconds: int
    answer: Answer


def _each(plan: Plan) -> Iterator[Scenario]:
    return (scenario for scenario in plan.scenarios for _ in plan.connections)


def _await_rest(server: Server) -> None:
    """Wait until a slow server has done with what was under way when warming up ended."""
    deadline = time.monotonic() + _REST_SECONDS
    used = server.processor_seconds()
    while time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        before, used = used, server.processor_seconds()
        if used - before < _LOOK_SECONDS / 2:
            return


def write_requests(requests: list[Request], folder: Path) -> Path:
    """A file of requests for `load.lua`."""
    path = folder / "requests"
    path.write_text("".join(request.line() for request in requests), "utf-8")
    return path


def require_same(answer: Answer, wanted: Answer) -> None:
    """Raises Refusal unless the reference's answer is the service's, but for date and order of headers."""
    if (answer.status, answer.header_lines(), answer.body) != (wanted.status, wanted.header_lines(), wanted.body):
        raise RejectedRequest(f"The reference does not give the service's answer: {answer.head!r} for {wanted.head!r}")


def require_size(count: Count, answer: Answer, connections: int) -> None:
    """Raises Refusal unless wrk has read as many bytes as so many answers of this size have.

    It has also read some of those that were under way at the end, one for each connection.
    """
    least = count.requests * answer.size * (1 - _TOLERANCE)
    most = (count.requests + connections) * answer.size * (1 + _TOLERANCE)
    if not least <= count.size <= most:
        raise RejectedRequest(
            f"wrk has read {count.size / count.requests:.0f} bytes an answer, where a right one has {answer.size}"
        )


def require_rows(database: Path, wanted: int, connections: int) -> None:
    """Raises Refusal unless there is a row in the file for each create that was answered."""
    require_count(count_rows(database), wanted, connections)


def count_rows(database: Path) -> int:
    """The listings in a file."""
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return int(connection.execute("SELECT COUNT(*) FROM listings").get)
    finally:
        connection.close()


def require_count(rows: int, wanted: int, connections: int) -> None:
    """Raises Refusal unless there is a row for each create that was answered.

    Those that were under way when wrk ended its two runs may be there as well, one for each connection.
    """
    if not wanted <= rows <= wanted + 2 * connections:
        raise RejectedRequest(
            f"{rows} listings are stored where {wanted} should be, so the creates were not what they seemed"
        )
