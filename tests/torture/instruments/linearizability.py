"""Linearizability: eight clients on three listings, with kills, on both engines; a checker validates the histories."""

import asyncio
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from http import HTTPStatus
from pathlib import Path
from random import Random
from time import monotonic
from typing import NamedTuple

import uvloop

from tests.http.raw import PATH, AsyncConnection, ConnectionLostError, RawResponse, UnreachableError
from tests.postgres_server import PostgresServer
from tests.torture.instrument import Instrument, Outcome, Scale
from tests.torture.linearizability import Kind, Operation, Values, is_linearizable
from tests.torture.parallel import count_cores, run_in_parallel
from tests.torture.services import RestartableService, create_people

HISTORIES, OPERATIONS, CLIENTS, LISTINGS = 200, 300, 8, 3
_KILLED_FRACTION = 0.6  # fraction of the histories
_RESTART_INTERVAL = 20  # histories between two restarts of PostgreSQL
_KINDS: list[Kind] = ["read", "set price", "set location", "swap"]
_DELETED_FRACTION = 0.003  # fraction of the operations
_MIN_PARALLEL_HISTORIES = 20  # fewer are not worth another process


class Job(NamedTuple):
    folder: Path
    histories: int
    seconds: float
    seed: int
    on_postgres: bool = False
    fault: str | None = None


class Result(NamedTuple):
    histories: int
    operations: int
    unknown: int
    kills: int
    failures: list[str]


class History:
    def __init__(self, service: RestartableService, key: str, random: Random) -> None:
        self.operations: dict[int, list[Operation]] = {}
        self.failures: list[str] = []
        self.count = 0
        self._service = service
        self._key = key
        self._random = random
        self._last_value = 0

    async def run(self, disturbance: asyncio.Task[None] | None) -> None:
        connection = AsyncConnection(self._service.port, self._key)
        await _until_ready(connection)
        for _ in range(LISTINGS):
            response = await connection.fetch("POST", PATH, {"title": "Lamp", "content": "Bright.", "location": "0"})
            self.operations[int(response.json()["id"])] = []
        connection.close()
        await asyncio.gather(*(self._client() for _ in range(CLIENTS)))
        if disturbance is not None:
            await disturbance

    def has_reached(self, operations: int) -> bool:
        """Return whether all listings exist and more than this number of operations have begun."""
        return len(self.operations) == LISTINGS and self.count > operations

    async def _client(self) -> None:
        connection = AsyncConnection(self._service.port, self._key)
        seen: dict[int, tuple[Values, str]] = {}
        while self.count < OPERATIONS:
            self.count += 1
            listing_id = self._random.choice(list(self.operations))
            operation, etag = self._next(seen.get(listing_id))
            try:
                response = await self._send(connection, listing_id, operation, etag)
            except UnreachableError:  # the request was not sent
                self.count -= 1
                await asyncio.sleep(0.005)
                continue
            except ConnectionLostError:
                response = None
            seen |= self._record(listing_id, operation, response)
            if response is not None and response.status == HTTPStatus.SERVICE_UNAVAILABLE:
                await _until_ready(connection)
        connection.close()

    def _next(self, seen: tuple[Values, str] | None) -> tuple[Operation, str]:
        """Choose an operation; return it with the ETag for If-Match."""
        kind = self._random.choice(_KINDS)
        if self._random.random() < _DELETED_FRACTION:
            kind = "delete"
        if kind == "swap" and seen is None:
            kind = "read"
        self._last_value += 1
        values, etag = seen if kind == "swap" and seen is not None else ((0, 0), "")
        return Operation(kind, monotonic(), value=self._last_value, values=values), etag

    async def _send(self, connection: AsyncConnection, listing_id: int, operation: Operation, etag: str) -> RawResponse:
        path = f"{PATH}/{listing_id}"
        match operation.kind:
            case "read":
                return await connection.fetch("GET", path)
            case "delete":
                return await connection.fetch("DELETE", path)
            case "set location":
                return await connection.fetch("PATCH", path, {"location": str(operation.value)})
            case "set price":
                return await connection.fetch("PATCH", path, {"price": operation.value})
            case "swap":
                return await connection.fetch("PATCH", path, {"price": operation.value}, {"If-Match": etag})

    def _record(
        self, listing_id: int, operation: Operation, response: RawResponse | None
    ) -> dict[int, tuple[Values, str]]:
        """Record the operation; return the values and the ETag that were read."""
        if response is None or response.status == HTTPStatus.SERVICE_UNAVAILABLE:
            if operation.kind != "read":
                self.operations[listing_id].append(operation)
            return {}
        if response.status not in {200, 404, 412}:
            self.failures.append(f"{operation} returned {response.status} {response.body[:200]!r}")
        completed = operation._replace(ended=monotonic(), status=response.status)
        seen = {}
        if operation.kind == "read" and response.status == HTTPStatus.OK:
            data = response.json()
            completed = completed._replace(values=(int(data["price"]), int(data["location"])))
            seen[listing_id] = completed.values, response.headers["etag"]
        self.operations[listing_id].append(completed)
        return seen


async def _until_ready(connection: AsyncConnection) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                if (await connection.fetch("GET", "/readyz")).status == HTTPStatus.OK:
                    return
            except ConnectionLostError:
                pass
            await asyncio.sleep(0.02)


def work(job: Job) -> Result:
    job.folder.mkdir()
    with ExitStack() as stack:
        # The server dies with the thread that starts it, so the thread must outlive it.
        thread = stack.enter_context(ThreadPoolExecutor(1))
        server, settings = None, {}
        if job.on_postgres:
            server = stack.enter_context(PostgresServer())
            settings["LISTINGS_DATABASE_URL"] = stack.enter_context(server.bare_database())
        service = stack.enter_context(RestartableService(job.folder, job.fault, **settings))
        total = uvloop.run(_work(job, service, server, thread))
        service.kill()  # its sessions would block DROP DATABASE
        return total


async def _work(job: Job, service: RestartableService, server: PostgresServer | None, thread: Executor) -> Result:
    scale, random = Scale(job.folder, 1.0, job.seconds), Random(job.seed)
    (alice,) = await create_people(job.folder, 1, database=service.environment["LISTINGS_DATABASE_URL"])
    service.start()
    await service.wait_until_ready()
    total = Result(0, 0, 0, 0, [])
    while total.histories < job.histories and not scale.is_time_up and not total.failures:
        history = History(service, alice.key, random)
        is_restart = server is not None and total.histories % _RESTART_INTERVAL == _RESTART_INTERVAL - 1
        disturbance = None
        if is_restart and server is not None:
            disturbance = asyncio.create_task(_restart(history, server, thread))
        elif random.random() < _KILLED_FRACTION:
            disturbance = asyncio.create_task(_kill(history, service, random.randrange(OPERATIONS - 50)))
        await history.run(disturbance)
        total = _add_history(total, history, was_disturbed=disturbance is not None)
    return total


async def _kill(history: History, service: RestartableService, operations: int) -> None:
    while not history.has_reached(operations):  # noqa: ASYNC110 - no event to wait for
        await asyncio.sleep(0.001)
    service.kill()
    service.start()
    await service.wait_until_ready()


async def _restart(history: History, server: PostgresServer, thread: Executor) -> None:
    while not history.has_reached(OPERATIONS // 3):  # noqa: ASYNC110 - as above
        await asyncio.sleep(0.001)
    await asyncio.get_running_loop().run_in_executor(thread, server.restart)


def _add_history(total: Result, history: History, *, was_disturbed: bool) -> Result:
    failures = list(history.failures)
    for listing_id, operations in history.operations.items():
        if not is_linearizable(operations):
            failures.append(
                f"history {total.histories + 1}, listing {listing_id}: no order explains {len(operations)} responses"
            )
    all_operations = [one for operations in history.operations.values() for one in operations]
    return Result(
        total.histories + 1,
        total.operations + len(all_operations),
        total.unknown + sum(one.status is None for one in all_operations),
        total.kills + was_disturbed,
        [*total.failures, *failures],
    )


def _summarize(name: str, results: list[Result]) -> str:
    histories, operations, unknown, kills = map(sum, zip(*(one[:4] for one in results), strict=True))
    return f"{name}: {histories} histories, {operations:,} operations, {kills} kills, {unknown} without a response"


def run(scale: Scale) -> Outcome:
    """Run one engine after the other, in a process per core, or a few histories in this process."""
    count = scale.amount(HISTORIES, 4)
    processes = count_cores() if count >= _MIN_PARALLEL_HISTORIES else 1
    summaries, failures, is_complete = [], [], True
    for engine, time_fraction in (("SQLite", 0.5), ("PostgreSQL", 1.0)):
        seconds = scale.seconds_left * time_fraction
        jobs = [
            Job(scale.folder / f"{engine}-{number}", count // processes, seconds, number, engine == "PostgreSQL")
            for number in range(processes)
        ]
        results = run_in_parallel(work, jobs) if processes > 1 else [work(jobs[0])]
        summaries.append(_summarize(engine, results))
        failures += [f"{engine}: {failure}" for one in results for failure in one.failures]
        is_complete = is_complete and sum(one.histories for one in results) >= HISTORIES
    return Outcome("; ".join(summaries), failures, is_complete)


def control(scale: Scale) -> Outcome:
    """Read, decide and write without a transaction."""
    job = Job(scale.folder / "control", 10, scale.seconds_left, 1, fault="update_without_transaction")
    result = work(job)
    return Outcome(_summarize("without the transaction", [result]), result.failures)


INSTRUMENT = Instrument(
    4,
    "linearizability: 8 clients on 3 listings, kills, a Wing-Gong/Lowe checker",
    "200 histories of 300 operations on each engine: 0 violations",
    2,
    run,
    control,
    short_fraction=0.02,
)
