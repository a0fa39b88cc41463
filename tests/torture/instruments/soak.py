"""Soak: a mixed load with errors and aborted requests; memory, descriptors and the WAL must not grow.

Before a full run, the engine's cache is filled. The response cache is small, because at its usual size its content
varies by megabytes. The measured value is the memory in use within the process, read twice per second. The resident
set grows in steps of a mebibyte, which half an hour cannot distinguish from a slope; it has a limit of its own. The
first third of the run is the warm-up. The rest is divided into sixty spans, of which the minimum counts, so that
temporary peaks are ignored. A least-squares line through the minima gives the slope, and their scatter its standard
error. The run fails if the slope exceeds its limit by more than two standard errors, or if the standard error is too
large to decide.
"""

import asyncio
import json
import os
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from http import HTTPStatus
from itertools import count
from math import sqrt
from pathlib import Path
from random import Random
from statistics import fmean, median
from time import monotonic
from typing import NamedTuple

import uvloop

from tests.harness import Person
from tests.http.raw import PATH, AsyncConnection
from tests.torture import memory
from tests.torture.instrument import Instrument, Outcome, Scale
from tests.torture.services import RestartableService, create_people

CLIENTS = 16
_ERRORS, _ABORTS = 0.05, 0.01  # fractions of the requests
_MAX_LIVE_LISTINGS = 50  # per client; each create then replaces one
_FULL_MINUTES = 19.0
_SHORT_SECONDS = 5.0
_MIN_SLOPE_SECONDS = 240.0  # duration of a run whose slope is meaningful
_MAX_SLOPE_MIB_PER_HOUR = 1.0
_MAX_GROWTH_MIB = 8.0  # in a run too short for a slope, and of the resident set in any run
_MAX_WAL_BYTES = 64 * 1024 * 1024
_MAX_NEW_DESCRIPTORS = 2  # from the first to the last quarter after the warm-up
_MIN_SAMPLES, _MIN_REQUESTS = 8, 2_000  # after the warm-up, and in total: a slow machine runs longer
_SPANS = 60
_BATCHES = 20  # of 100 inactive listings, for each account
_INTERVAL_SECONDS = 0.5
_CACHE_BYTES = str(1024 * 1024)
_WARM_UP_FRACTION = 1 / 3
_INCOMPLETE_BODY = b'{"title": "never ends'
_STANDARD_ERRORS = 2
_LINE_PARAMETERS = 2  # height and slope


class Sample(NamedTuple):
    second: float
    mebibytes: float  # used
    resident: float  # MiB
    descriptors: int
    wal: int


class Slope(NamedTuple):
    """The slope of a line in MiB per hour, with its standard error."""

    slope: float
    error: float


class Load:
    """Clients that read, list, create, update and delete, and send invalid requests."""

    def __init__(self, service: RestartableService, people: Sequence[Person]) -> None:
        self.requests = self.errors = self.aborted = 0
        self.failures: list[str] = []
        self._service = service
        self._people = people

    async def client(self, number: int) -> None:
        person, random = self._people[number % len(self._people)], Random(number)
        own: list[int] = []
        with closing(AsyncConnection(self._service.port, person.key)) as connection:
            for iteration in count():
                self.requests += 1
                chance = random.random()
                if chance < _ABORTS:
                    await self._abort(person.key, random)
                elif chance < _ABORTS + _ERRORS:
                    await self._send_invalid(connection, random)
                else:
                    await self._work(connection, own, iteration, random)

    async def _work(self, connection: AsyncConnection, own: list[int], number: int, random: Random) -> None:
        kind = random.random()
        if not own or (kind < 0.1 and len(own) < _MAX_LIVE_LISTINGS):
            data = {"title": f"Lamp {number}", "content": "Bright. " * random.randrange(1, 100), "price": number % 1000}
            response = await self._send(connection, "POST", PATH, data, 201)
            own.append(int(json.loads(response)["id"]))
        elif kind < 0.2:
            path = f"{PATH}/{random.choice(own)}"
            await self._send(connection, "PATCH", path, {"price": number % 1000, "title": f"Lamp {number}"}, 200)
        elif len(own) >= _MAX_LIVE_LISTINGS:
            await self._send(connection, "DELETE", f"{PATH}/{own.pop(0)}", None, 200)
        elif kind < 0.5:
            query = random.choice(("", "?limit=20", "?sort=price&limit=10", "?q=lamp&limit=5", "?status=all&limit=20"))
            await self._send(connection, "GET", PATH + query, None, 200)
        else:
            await self._send(connection, "GET", f"{PATH}/{random.choice(own)}", None, 200)

    async def _send(
        self, connection: AsyncConnection, method: str, path: str, data: object, expected_status: int
    ) -> bytes:
        response = await connection.fetch(method, path, data)
        if response.status != expected_status:
            self.failures.append(f"{method} {path} returned {response.status} {response.body[:200]!r}")
        return response.body

    async def _send_invalid(self, connection: AsyncConnection, random: Random) -> None:
        self.errors += 1
        path = f"{PATH}/{random.randrange(10**9, 10**12)}"
        match random.randrange(5):
            case 0:
                await self._send(connection, "GET", path, None, HTTPStatus.NOT_FOUND)
            case 1:
                await self._send(connection, "POST", PATH, {"title": "", "price": -1}, HTTPStatus.BAD_REQUEST)
            case 2:
                with closing(AsyncConnection(self._service.port, "lst_" + "0" * 38)) as stranger:
                    await self._send(stranger, "GET", PATH, None, HTTPStatus.UNAUTHORIZED)
            case 3:
                await self._send(connection, "PUT", PATH, None, HTTPStatus.METHOD_NOT_ALLOWED)
            case _:
                await self._send(connection, "GET", f"{PATH}?limit=none", None, HTTPStatus.BAD_REQUEST)

    async def _abort(self, key: str, random: Random) -> None:
        self.aborted += 1
        head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nX-API-Key: {key}\r\n"
        whole = f"GET {PATH} HTTP/1.1\r\nHost: x\r\nX-API-Key: {key}\r\n\r\n"
        half = head.encode() + b"Content-Length: 500\r\n\r\n" + _INCOMPLETE_BODY
        await AsyncConnection(self._service.port, key).send_and_abort(
            random.choice((head.encode(), half, whole.encode()))
        )


async def fill_cache(service: RestartableService, people: Sequence[Person]) -> None:
    """Create more inactive listings than the engine's cache holds, and read each once."""
    for person in people:
        connection = AsyncConnection(service.port, person.key)
        for number in range(_BATCHES):
            draft = {"title": f"Draft {number}", "content": "Bright. " * 200, "is_active": False}
            operations = [{"op": "create", "listing": draft}] * 100
            response = await connection.fetch("POST", f"{PATH}/batch", {"operations": operations})
            assert response.status == HTTPStatus.OK, response
        path = f"{PATH}?status=inactive&limit=200"
        while path:
            response = await connection.fetch("GET", path)
            path = response.headers.get("link", "").partition(">")[0].removeprefix("<")
        connection.close()


def fit_line(points: Sequence[tuple[float, float]]) -> Slope:
    """Fit a line by least squares; x is in seconds, y in MiB."""
    middle_x, middle_y = fmean(x for x, _ in points), fmean(y for _, y in points)
    spread = sum((x - middle_x) ** 2 for x, _ in points)
    slope = sum((x - middle_x) * (y - middle_y) for x, y in points) / spread
    scatter = sum((y - middle_y - slope * (x - middle_x)) ** 2 for x, y in points)
    return Slope(slope * 3600, sqrt(scatter / max(1, len(points) - _LINE_PARAMETERS) / spread) * 3600)


def find_minima(samples: Sequence[Sample]) -> list[tuple[float, float]]:
    """Return the minimum of each span, with its time."""
    span_count = min(_SPANS, len(samples) // 2)
    start, length = samples[0].second, (samples[-1].second - samples[0].second) / span_count + 1e-9
    found: dict[int, Sample] = {}
    for sample in samples:
        span = int((sample.second - start) / length)
        if span not in found or sample.mebibytes < found[span].mebibytes:
            found[span] = sample
    return [(sample.second, sample.mebibytes) for sample in found.values()]


def evaluate(samples: Sequence[Sample], seconds: float) -> tuple[str, list[str]]:
    warm = [sample for sample in samples if sample.second > seconds * _WARM_UP_FRACTION]
    quarter = max(1, len(warm) // 4)
    slope, error = fit_line(find_minima(warm))
    growth = slope / 3600 * (warm[-1].second - warm[0].second)
    resident_growth = median(it.resident for it in warm[-quarter:]) - median(it.resident for it in warm[:quarter])
    descriptors = round(
        median(it.descriptors for it in warm[-quarter:]) - median(it.descriptors for it in warm[:quarter])
    )
    wal = max(sample.wal for sample in samples)
    found = []
    if seconds >= _MIN_SLOPE_SECONDS and slope - _STANDARD_ERRORS * error > _MAX_SLOPE_MIB_PER_HOUR:
        found.append(f"memory grows by {slope:.2f} ± {error:.2f} MiB per hour")
    if seconds >= _MIN_SLOPE_SECONDS and error > _MAX_SLOPE_MIB_PER_HOUR:
        found.append(f"the slope is uncertain: {slope:.2f} ± {error:.2f} MiB per hour")
    if seconds < _MIN_SLOPE_SECONDS and growth > _MAX_GROWTH_MIB:
        found.append(f"memory has grown by {growth:.1f} MiB in {seconds:.0f} s")
    if seconds >= _MIN_SLOPE_SECONDS and resident_growth > _MAX_GROWTH_MIB:
        found.append(f"the resident set has grown by {resident_growth:.1f} MiB in {seconds:.0f} s")
    if descriptors > (_MAX_NEW_DESCRIPTORS if seconds >= _MIN_SLOPE_SECONDS else CLIENTS):
        found.append(f"{descriptors} more descriptors are open than after the warm-up")
    if wal > _MAX_WAL_BYTES:
        found.append(f"the WAL was {wal // 1024**2} MiB long")
    summary = f"memory {warm[-1].resident:.0f} MiB, {warm[-1].mebibytes:.1f} of them in use"
    summary += f", growth {slope:+.2f} ± {error:.2f} MiB/h"
    return f"{summary}, {descriptors:+} descriptors, WAL at most {wal / 1024**2:.1f} MiB", found


def work(scale: Scale, seconds: float, fault: str | None = None) -> tuple[str, list[str]]:
    """Run the load on a service for this time; return a summary and failures."""
    with ExitStack() as stack:
        file = str(scale.folder / "memory")
        environment = {memory.FILE_VARIABLE: file, "LISTINGS_LIST_CACHE_BYTES": _CACHE_BYTES}
        service = stack.enter_context(RestartableService(scale.folder, fault, **environment))
        return uvloop.run(_work(service, seconds))


async def _work(service: RestartableService, seconds: float) -> tuple[str, list[str]]:
    people = await create_people(service.folder, CLIENTS // 2)
    service.start()
    await service.wait_until_ready()
    if seconds >= _MIN_SLOPE_SECONDS:
        await fill_cache(service, people)
    load = Load(service, people)
    clients = [asyncio.create_task(load.client(number)) for number in range(CLIENTS)]
    samples = await _measure_until_done(service, seconds, load, clients)
    for client in clients:
        client.cancel()
        with suppress(asyncio.CancelledError):
            await client
    service.stop()
    summary, found = evaluate(samples, seconds)
    amounts = (
        f"{seconds / 60:.1f} minutes, {load.requests:,} requests, {load.errors:,} errors, {load.aborted:,} aborted"
    )
    return f"{amounts}: {summary}", load.failures[:5] + found


async def _measure_until_done(
    service: RestartableService, seconds: float, load: Load, clients: Sequence[asyncio.Task[None]]
) -> list[Sample]:
    assert service.process is not None
    began, samples = monotonic(), list[Sample]()
    while (
        monotonic() - began < seconds
        or sum(sample.second > seconds * _WARM_UP_FRACTION for sample in samples) < _MIN_SAMPLES
        or load.requests < _MIN_REQUESTS
    ):
        samples.append(_measure(service, service.process.pid, monotonic() - began))
        for client in clients:
            if client.done():
                client.result()  # raises the client's error
        await asyncio.sleep(_INTERVAL_SECONDS)
    return samples


def _measure(service: RestartableService, pid: int, second: float) -> Sample:
    pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    wal = Path(f"{service.database}-wal")
    return Sample(
        second,
        memory.read_used_bytes(Path(service.environment[memory.FILE_VARIABLE])) / 1024**2,
        pages * os.sysconf("SC_PAGE_SIZE") / 1024**2,
        sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()),
        wal.stat().st_size if wal.exists() else 0,
    )


def run(scale: Scale) -> Outcome:
    """Run as long as the time allows; the short form takes seconds and finds only large growth."""
    seconds = max(_SHORT_SECONDS, scale.fraction * _FULL_MINUTES * 60 - 30)
    summary, found = work(scale, seconds)
    return Outcome(summary, found, seconds >= _FULL_MINUTES * 60 - 30)


def control(scale: Scale) -> Outcome:
    """Leak 64 KiB with every request."""
    summary, found = work(scale, _SHORT_SECONDS, "leak_memory_on_read")
    return Outcome(f"a leak in every request: {summary}", found)


INSTRUMENT = Instrument(
    15,
    "soak: mixed load with 5% errors and 1% aborted requests",
    "memory growth at most 1 MiB/h after the warm-up, no growth in descriptors, WAL bounded",
    _FULL_MINUTES,
    run,
    control,
)
