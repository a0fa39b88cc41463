"""Disjoint updates: eight writers change different fields of one listing, on both engines."""

import asyncio
from collections.abc import Callable
from contextlib import ExitStack, closing
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

import uvloop

from tests.postgres_server import PostgresServer
from tests.torture.http_client import PATH, Connection
from tests.torture.instrument import Instrument, Outcome, Scale
from tests.torture.services import RestartableService, create_people

UPDATES = 20_000
_READ_INTERVAL = 25  # updates after which a writer reads its field
FIELDS: dict[str, Callable[[int], Any]] = {
    "title": str,
    "content": str,
    "category": str,
    "location": str,
    "region": str,
    "district": str,
    "price": float,
    "latitude": lambda number: number / 1000,
}


class Job(NamedTuple):
    """The work on one engine."""

    folder: Path
    updates: int
    seconds: float
    processes: int = 1  # number of workers
    on_postgres: bool = False
    fault: str | None = None


class Result(NamedTuple):
    """The number of acknowledged updates, and the lost ones."""

    updates: int
    failures: list[str]


def work(job: Job) -> Result:
    """Start a service, and run the writers in this process."""
    job.folder.mkdir()
    with ExitStack() as stack:
        settings = {"LISTINGS_WORKERS": str(job.processes)}
        if job.on_postgres:
            server = stack.enter_context(PostgresServer())
            settings["LISTINGS_DATABASE_URL"] = stack.enter_context(server.bare_database())
            settings["LISTINGS_DATABASE_TIMEOUT"] = "120"  # all writers wait for one row, and a disk may stall
        service = stack.enter_context(RestartableService(job.folder, job.fault, **settings))
        service.start()
        return uvloop.run(_work(job, service))


async def _work(job: Job, service: RestartableService) -> Result:
    await service.wait_until_ready()
    (alice,) = await create_people(job.folder, 1, database=service.environment["LISTINGS_DATABASE_URL"])
    with closing(Connection(service.port, alice.key)) as connection:
        created = await connection.fetch("POST", PATH, {"title": "0", "content": "0"})
    assert created.status == HTTPStatus.CREATED
    path = f"{PATH}/{created.json()['id']}"
    scale, each = Scale(job.folder, 1.0, job.seconds), job.updates // len(FIELDS)
    writers = [_write(Connection(service.port, alice.key), path, field, each, scale) for field in FIELDS]
    done = await asyncio.gather(*writers)
    with closing(Connection(service.port, alice.key)) as connection:  # the first one may have been closed as idle
        listing = (await connection.fetch("GET", f"{path}?include=district,latitude")).json()
        version = await _read_version(connection, path)
    failures = [failure for _, failures in done for failure in failures]
    for (field, value), (count, _) in zip(FIELDS.items(), done, strict=True):
        if count and listing[field] != value(count):
            failures.append(f"{field} is {listing[field]!r}, but {value(count)!r} was acknowledged")
    total = sum(count for count, _ in done)
    if version != total + 1:
        failures.append(f"the listing has version {version} after {total} updates")
    service.stop()
    return Result(total, failures)


async def _write(connection: Connection, path: str, field: str, count: int, scale: Scale) -> tuple[int, list[str]]:
    """Return the number of acknowledged updates, and the lost ones."""
    failures, value, number = [], FIELDS[field], 0
    while number < count and not scale.is_time_up:
        number += 1
        response = await connection.fetch("PATCH", path, {field: value(number)})
        assert response.status == HTTPStatus.OK, response
        if number % _READ_INTERVAL == 0:
            actual = (await connection.fetch("GET", f"{path}?include=district,latitude")).json()[field]
            if actual != value(number):
                failures.append(f"{field} is {actual!r} right after {value(number)!r} was acknowledged")
    connection.close()
    return number, failures


async def _read_version(connection: Connection, path: str) -> int:
    """Return the version of the listing, which its ETag begins with."""
    tag = (await connection.fetch("GET", path)).headers["etag"]
    return int(tag.removeprefix('"v').partition(".")[0])


def run(scale: Scale) -> Outcome:
    """Run on SQLite with two workers, and on PostgreSQL."""
    updates = scale.amount(UPDATES)
    sqlite = work(Job(scale.folder / "sqlite", updates, scale.seconds_left / 2, processes=2))
    postgres = work(Job(scale.folder / "postgres", updates, scale.seconds_left, on_postgres=True))
    summary = f"SQLite, two processes: {sqlite.updates:,} updates; PostgreSQL: {postgres.updates:,}"
    return Outcome(summary, [*sqlite.failures, *postgres.failures], min(sqlite.updates, postgres.updates) >= UPDATES)


def control(scale: Scale) -> Outcome:
    """Write all fields as they were read before."""
    result = work(Job(scale.folder / "control", 400, scale.seconds_left, fault="update_without_transaction"))
    return Outcome(f"whole rows without a transaction: {result.updates} updates", result.failures)


INSTRUMENT = Instrument(
    5,
    "disjoint updates: 8 writers change different fields of one listing",
    "20,000 on each engine: 0 lost",
    1,
    run,
    control,
    short_fraction=0.02,
)
