"""Disjoint updates: eight writers change different fields of one listing, on both engines."""

import asyncio
from collections.abc import Callable
from contextlib import ExitStack, closing
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

import uvloop

from tests.postgres_server import PostgresServer
from tests.torture.instrument import Instrument, Outcome, Scale
from tests.torture.serving import Place, Zygote, make_people
from tests.torture.wire import PATH, Line

UPDATES = 20_000
_LOOKED_AT = 25  # every so many updates a writer reads its field
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


class Share(NamedTuple):
    """What is done on an engine; `processes` of the service."""

    folder: Path
    updates: int
    seconds: float
    processes: int = 1
    on_postgres: bool = False
    fault: str | None = None


class Result(NamedTuple):
    """What it came to."""

    updates: int
    lost: list[str]


def work(share: Share) -> Result:
    """A service, and its writers in this process."""
    share.folder.mkdir()
    with ExitStack() as stack:
        settings = {"LISTINGS_WORKERS": str(share.processes)}
        if share.on_postgres:
            server = stack.enter_context(PostgresServer())
            settings["LISTINGS_DATABASE_URL"] = stack.enter_context(server.bare_database())
            settings["LISTINGS_DATABASE_TIMEOUT"] = "120"  # all wait for one row, and a disk may stand still
        zygote = stack.enter_context(Zygote())
        place = stack.enter_context(Place(share.folder, zygote, share.fault, **settings))
        place.start()
        return uvloop.run(_work(share, place))


async def _work(share: Share, place: Place) -> Result:
    await place.answers()
    (alice,) = await make_people(share.folder, 1, database=place.environment["LISTINGS_DATABASE_URL"])
    with closing(Line(place.port, alice.key)) as line:
        created = await line.fetch("POST", PATH, {"title": "0", "content": "0"})
    assert created.status == HTTPStatus.CREATED
    path = f"{PATH}/{created.json()['id']}"
    scale, each = Scale(share.folder, 1.0, share.seconds), share.updates // len(FIELDS)
    writers = [_write(Line(place.port, alice.key), path, field, each, scale) for field in FIELDS]
    done = await asyncio.gather(*writers)
    with closing(Line(place.port, alice.key)) as line:  # another one: the first would have been idle for too long
        listing = (await line.fetch("GET", f"{path}?include=district,latitude")).json()
        versions = await _versions(line, path)
    lost = [fault for _, faults in done for fault in faults]
    for (field, value), (count, _) in zip(FIELDS.items(), done, strict=True):
        if count and listing[field] != value(count):
            lost.append(f"{field} is {listing[field]!r} after {value(count)!r} was acknowledged")
    total = sum(count for count, _ in done)
    if versions != total + 1:
        lost.append(f"the listing has version {versions} after {total} updates that each changed it")
    place.stop()
    return Result(total, lost)


async def _write(line: Line, path: str, field: str, count: int, scale: Scale) -> tuple[int, list[str]]:
    """How many were acknowledged, and what was lost meanwhile."""
    lost, value, number = [], FIELDS[field], 0
    while number < count and not scale.is_over:
        number += 1
        answer = await line.fetch("PATCH", path, {field: value(number)})
        assert answer.status == HTTPStatus.OK, answer
        if number % _LOOKED_AT == 0:
            found = (await line.fetch("GET", f"{path}?include=district,latitude")).json()[field]
            if found != value(number):
                lost.append(f"{field} is {found!r} just after {value(number)!r} was acknowledged")
    line.close()
    return number, lost


async def _versions(line: Line, path: str) -> int:
    """The version that the listing has, which its tag begins with."""
    tag = (await line.fetch("GET", path)).headers["etag"]
    return int(tag.removeprefix('"v').partition(".")[0])


def run(scale: Scale) -> Outcome:
    """On SQLite with two processes of the service, and on PostgreSQL."""
    updates = scale.amount(UPDATES)
    sqlite = work(Share(scale.folder / "sqlite", updates, scale.left / 2, processes=2))
    postgres = work(Share(scale.folder / "postgres", updates, scale.left, on_postgres=True))
    told = f"SQLite, two processes: {sqlite.updates:,} updates; PostgreSQL: {postgres.updates:,}"
    return Outcome(told, [*sqlite.lost, *postgres.lost], min(sqlite.updates, postgres.updates) >= UPDATES)


def control(scale: Scale) -> Outcome:
    """Updates that write the whole of what they have read before."""
    result = work(Share(scale.folder / "control", 400, scale.left, fault="update_without_transaction"))
    return Outcome(f"whole rows without a transaction: {result.updates} updates", result.lost)


INSTRUMENT = Instrument(
    5,
    "disjoint updates: 8 writers change different fields of one listing",
    "20,000 on each engine: 0 lost",
    2.5,
    run,
    control,
    short=0.02,
)
