"""Rate limit: exactly 1,000 requests of a key per hour, across processes, restarts, clock changes and Redis failures.

`time.time` in the service's processes replaces the wall clock of the machine, which cannot be set per process. It
jumps back and forth by an hour during the run.
"""

import asyncio
import signal
from collections import Counter
from contextlib import ExitStack
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

import uvloop

from tests.http.raw import PATH, AsyncConnection, ConnectionLostError, UnreachableError
from tests.ratelimit.locks import is_exclusively_locked
from tests.redis_server import RedisServer
from tests.torture.instrument import Instrument, Outcome, Scale
from tests.torture.services import RestartableService, create_people, find_children

LIMIT, CONNECTIONS = 1000, 200
_EXTRA_REQUESTS = 400  # requests beyond the limit
_ACCEPTED, _REJECTED = HTTPStatus.NOT_FOUND, HTTPStatus.TOO_MANY_REQUESTS


class Scenario(NamedTuple):
    """A setup, and what happens in the middle of the run."""

    name: str
    workers: int = 1  # per service
    services: int = 1  # on the same database
    fault: str | None = None
    restart: signal.Signals | None = None  # the signal that ends a service in the middle
    redis: bool = False  # use Redis and kill it in the middle
    starts_late: bool = False  # the last service starts in the middle: until then the first one counts alone


_STEPPED = "step_wall_clock"
SCENARIOS = (
    Scenario("1 process"),
    Scenario("2 processes", 2),
    Scenario("4 processes", 4),
    Scenario("clock stepped", services=2, fault=_STEPPED),
    Scenario("clock stepped and killed", fault=_STEPPED, restart=signal.SIGKILL),
    Scenario("restarted", 2, restart=signal.SIGTERM),
    Scenario("Redis killed", 2, redis=True),
    Scenario("one more service", services=2, starts_late=True),
)
_SHORT_SCENARIOS = ("2 processes", "clock stepped", "one more service")
CONTROLS = ("count_per_process", "count_by_wall_clock")


class Client:
    """Sends requests with one key on many connections, in either header."""

    def __init__(self, ports: list[int], key: str, connections: int) -> None:
        self.statuses: Counter[int] = Counter()
        self.unknown = 0
        self.failures: list[str] = []
        self._key = key
        self._lines = [AsyncConnection(ports[number % len(ports)], "") for number in range(connections)]
        self._remaining = 0

    async def fetch(self, requests: int) -> None:
        self._remaining = requests
        await asyncio.gather(
            *(self._fetch_until_done(number, connection) for number, connection in enumerate(self._lines))
        )

    async def _fetch_until_done(self, number: int, connection: AsyncConnection) -> None:
        name, prefix = (("X-API-Key", ""), ("Authorization", "Bearer "))[number % 2]
        request = f"GET {PATH}/1 HTTP/1.1\r\nHost: x\r\n{name}: {prefix}{self._key}\r\n\r\n".encode()
        while self._remaining > 0:
            self._remaining -= 1
            try:
                response = await connection.send(request)
            except UnreachableError:
                self._remaining += 1
                await asyncio.sleep(0.01)
                continue
            except ConnectionLostError:
                self.unknown += 1
                await asyncio.sleep(0.01)
                continue
            self.statuses[response.status] += 1
            if response.status == _REJECTED and not 1 <= int(response.headers["retry-after"]) <= 3600:
                self.failures.append(f"Retry-After is {response.headers['retry-after']}")

    def close(self) -> None:
        for connection in self._lines:
            connection.close()


class ScenarioRun:
    def __init__(self, folder: Path, scenario: Scenario, stack: ExitStack, connections: int) -> None:
        self.scenario = scenario
        self.failures: list[str] = []
        self.requests = self.accepted = self.unknown = 0
        self._connections = connections
        self._redis = stack.enter_context(RedisServer()) if scenario.redis else None
        settings = {"LISTINGS_RATE_LIMIT": str(LIMIT), "LISTINGS_WORKERS": str(scenario.workers)}
        if self._redis is not None:
            settings |= {"LISTINGS_REDIS_URL": self._redis.url, "LISTINGS_REDIS_TIMEOUT": "10000"}
        self._folder = folder
        self._services = [
            stack.enter_context(RestartableService(folder, scenario.fault, **settings))
            for _ in range(scenario.services)
        ]

    async def work(self) -> None:
        (alice,) = await create_people(self._folder, 1)
        for service in self._services[:-1] if self.scenario.starts_late else self._services:
            await self._start(service)
        while self.scenario.starts_late and not is_exclusively_locked(service.database):  # noqa: ASYNC110 - a lock of the kernel
            await asyncio.sleep(0.001)
        client = Client([service.port for service in self._services], alice.key, self._connections)
        fetching = asyncio.create_task(client.fetch(LIMIT + _EXTRA_REQUESTS))
        while client.statuses.total() < LIMIT // 3 and not fetching.done():  # noqa: ASYNC110 - no event to wait for
            await asyncio.sleep(0.001)
        await self._disturb()
        await fetching
        self._check(client)
        client.close()
        self.requests = client.statuses.total()
        self.accepted, self.unknown = client.statuses[_ACCEPTED], client.unknown

    async def _start(self, service: RestartableService) -> None:
        service.start()
        await service.wait_until_ready()
        connection = AsyncConnection(service.port, "")
        while not _has_all_workers(service, self.scenario.workers):  # noqa: ASYNC110 - depends on other processes
            await asyncio.sleep(0.01)
        assert (await connection.fetch("GET", "/readyz")).status == HTTPStatus.OK
        connection.close()

    async def _disturb(self) -> None:
        if self._redis is not None:
            await asyncio.to_thread(self._redis.kill)
        if self.scenario.restart is not None:
            process = self._services[0].process
            assert process is not None
            await asyncio.to_thread(process.kill, self.scenario.restart)
            await self._start(self._services[0])
        if self.scenario.starts_late:
            await self._start(self._services[-1])

    def _check(self, client: Client) -> None:
        accepted = client.statuses[_ACCEPTED]
        if not LIMIT - client.unknown <= accepted <= LIMIT:
            self.failures.append(f"{accepted} were accepted, {client.unknown} have no response")
        unexpected = {
            status: count for status, count in client.statuses.items() if status not in {_ACCEPTED, _REJECTED}
        }
        if unexpected:
            self.failures.append(f"unexpected responses: {unexpected}")
        self.failures += client.failures[:3]


def _has_all_workers(service: RestartableService, workers: int) -> bool:
    return workers == 1 or (service.process is not None and len(find_children(service.process.pid)) == workers)


def work(scale: Scale, scenario: Scenario, connections: int) -> ScenarioRun:
    folder = scale.folder / scenario.name.replace(" ", "-")
    folder.mkdir()
    with ExitStack() as stack:
        scenario_run = ScenarioRun(folder, scenario, stack, connections)
        uvloop.run(scenario_run.work())
    return scenario_run


def run(scale: Scale) -> Outcome:
    """Run all scenarios with 200 connections, or some with fewer in the short form."""
    is_full = scale.fraction >= 1
    scenarios = [scenario for scenario in SCENARIOS if is_full or scenario.name in _SHORT_SCENARIOS]
    runs = [work(scale, scenario, CONNECTIONS if is_full else CONNECTIONS // 4) for scenario in scenarios]
    failures = [
        f"{scenario_run.scenario.name}: {failure}" for scenario_run in runs for failure in scenario_run.failures
    ]
    summary = ", ".join(
        f"{it.scenario.name} {it.accepted:,}" + f" ({it.unknown} without a response)" * bool(it.unknown) for it in runs
    )
    return Outcome(f"{sum(it.requests for it in runs):,} requests; accepted: {summary}", failures, is_full)


def control(scale: Scale) -> Outcome:
    """Count per process, and by the wall clock."""
    failures = []
    for fault in CONTROLS:
        found = work(scale, Scenario(fault, services=2, fault=fault), CONNECTIONS // 4).failures
        if not found:
            return Outcome(f"{fault} was not found")
        failures += [f"{fault}: {one}" for one in found]
    return Outcome(f"{', '.join(CONTROLS)}: 2 services each", failures)


INSTRUMENT = Instrument(
    6,
    "rate limit: processes, 200 connections, both headers, stepped clocks, restarts, Redis killed",
    "exactly 1,000 accepted: 0 over, 0 under",
    0.5,
    run,
    control,
)
