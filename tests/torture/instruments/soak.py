"""Soak: a mixed load for a long time, with errors and aborted requests; memory, descriptors and the WAL do not grow.

Before a long run the engine's cache is filled. The memory is what of the service's process is in use, read twice a
second: its resident set grows by a mebibyte at a time, which within half an hour can't be told from a slope, and is
bounded beside that. After the first third, which warms up, the least of each of sixty spans of time is taken: what
comes and goes within a span is no growth. A straight line through these by least squares has the slope, and the scatter
about it the slope's standard error. What counts is whether the slope is above its bound by more than two standard
errors, and whether these are small enough to tell.
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
from tests.torture import memory
from tests.torture.instrument import Instrument, Outcome, Scale
from tests.torture.serving import Place, Zygote, make_people
from tests.torture.wire import PATH, Line

CLIENTS = 16
_ERRORS, _ABORTS = 0.05, 0.01  # of the requests
_LISTINGS = 50  # that a client keeps, one of which each create replaces
_MINUTES = 10.0  # of a whole long run
_SHORT = 5.0  # seconds
_LONG = 240.0  # seconds that a run must have for its slope to mean anything
_MOST_SLOPE = 1.0  # MiB an hour
_MOST_SHORT = 8.0  # MiB in a run too short for that, and that the resident set may grow by in any
_MOST_WAL = 64 * 1024 * 1024
_MOST_DESCRIPTORS = 2  # more in the last quarter than in the first after the warm-up
_LEAST_SAMPLES, _LEAST_REQUESTS = 8, 2_000  # after the warm-up, and in all: a slow machine takes more time for them
_SPANS = 60
_BATCHES = 20  # of a hundred drafts for each account
_EVERY = 0.5  # seconds
_WARM = 1 / 3
_WRONG_BODY = b'{"title": "never ends'
_TWO_ERRORS = 2
_KNOWN = 2  # of a straight line: its height and its slope


class Sample(NamedTuple):
    """How large the service is at a moment."""

    second: float
    mebibytes: float  # in use
    resident: float  # MiB
    descriptors: int
    wal: int


class Slope(NamedTuple):
    """Of a straight line, in MiB an hour, with its standard error."""

    slope: float
    error: float


class Load:
    """Clients that read, list, make, change and delete, and make mistakes."""

    def __init__(self, place: Place, people: Sequence[Person]) -> None:
        self.requests = self.errors = self.aborted = 0
        self.faults: list[str] = []
        self._place = place
        self._people = people

    async def client(self, number: int) -> None:
        """Until cancelled."""
        person, random = self._people[number % len(self._people)], Random(number)
        own: list[int] = []
        with closing(Line(self._place.port, person.key)) as line:
            for turn in count():
                self.requests += 1
                chance = random.random()
                if chance < _ABORTS:
                    await self._abort(person.key, random)
                elif chance < _ABORTS + _ERRORS:
                    await self._err(line, random)
                else:
                    await self._work(line, own, turn, random)

    async def _work(self, line: Line, own: list[int], turn: int, random: Random) -> None:
        kind = random.random()
        if not own or (kind < 0.1 and len(own) < _LISTINGS):
            data = {"title": f"Lamp {turn}", "content": "Bright. " * random.randrange(1, 100), "price": turn % 1000}
            answer = await self._ask(line, "POST", PATH, data, 201)
            own.append(int(json.loads(answer)["id"]))
        elif kind < 0.2:
            path = f"{PATH}/{random.choice(own)}"
            await self._ask(line, "PATCH", path, {"price": turn % 1000, "title": f"Lamp {turn}"}, 200)
        elif len(own) >= _LISTINGS:
            await self._ask(line, "DELETE", f"{PATH}/{own.pop(0)}", None, 200)
        elif kind < 0.5:
            query = random.choice(("", "?limit=20", "?sort=price&limit=10", "?q=lamp&limit=5", "?status=all&limit=20"))
            await self._ask(line, "GET", PATH + query, None, 200)
        else:
            await self._ask(line, "GET", f"{PATH}/{random.choice(own)}", None, 200)

    async def _ask(self, line: Line, method: str, path: str, data: object, wanted: int) -> bytes:
        answer = await line.fetch(method, path, data)
        if answer.status != wanted:
            self.faults.append(f"{method} {path} was answered {answer.status} {answer.body[:200]!r}")
        return answer.body

    async def _err(self, line: Line, random: Random) -> None:
        """A request that must be refused."""
        self.errors += 1
        path = f"{PATH}/{random.randrange(10**9, 10**12)}"
        match random.randrange(5):
            case 0:
                await self._ask(line, "GET", path, None, HTTPStatus.NOT_FOUND)
            case 1:
                await self._ask(line, "POST", PATH, {"title": "", "price": -1}, HTTPStatus.BAD_REQUEST)
            case 2:
                with closing(Line(self._place.port, "lst_" + "0" * 38)) as stranger:
                    await self._ask(stranger, "GET", PATH, None, HTTPStatus.UNAUTHORIZED)
            case 3:
                await self._ask(line, "PUT", PATH, None, HTTPStatus.METHOD_NOT_ALLOWED)
            case _:
                await self._ask(line, "GET", f"{PATH}?limit=none", None, HTTPStatus.BAD_REQUEST)

    async def _abort(self, key: str, random: Random) -> None:
        """A connection that ends in the middle of a request, or before its answer."""
        self.aborted += 1
        head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nX-API-Key: {key}\r\n"
        whole = f"GET {PATH} HTTP/1.1\r\nHost: x\r\nX-API-Key: {key}\r\n\r\n"
        half = head.encode() + b"Content-Length: 500\r\n\r\n" + _WRONG_BODY
        await Line(self._place.port, key).begin(random.choice((head.encode(), half, whole.encode())))


async def fill(place: Place, people: Sequence[Person]) -> None:
    """More drafts than the engine's cache holds, each read once: what would fill it slowly is there before the load."""
    for person in people:
        line = Line(place.port, person.key)
        for number in range(_BATCHES):
            draft = {"title": f"Draft {number}", "content": "Bright. " * 200, "is_active": False}
            operations = [{"op": "create", "listing": draft}] * 100
            answer = await line.fetch("POST", f"{PATH}/batch", {"operations": operations})
            assert answer.status == HTTPStatus.OK, answer
        path = f"{PATH}?status=inactive&limit=200"
        while path:
            answer = await line.fetch("GET", path)
            path = answer.headers.get("link", "").partition(">")[0].removeprefix("<")
        line.close()


def line_through(points: Sequence[tuple[float, float]]) -> Slope:
    """By least squares; x in seconds, y in MiB."""
    middle_x, middle_y = fmean(x for x, _ in points), fmean(y for _, y in points)
    spread = sum((x - middle_x) ** 2 for x, _ in points)
    slope = sum((x - middle_x) * (y - middle_y) for x, y in points) / spread
    scatter = sum((y - middle_y - slope * (x - middle_x)) ** 2 for x, y in points)
    return Slope(slope * 3600, sqrt(scatter / max(1, len(points) - _KNOWN) / spread) * 3600)


def floors(samples: Sequence[Sample]) -> list[tuple[float, float]]:
    """The least of each span of time, at the moment at which it was."""
    spans = min(_SPANS, len(samples) // 2)
    begin, length = samples[0].second, (samples[-1].second - samples[0].second) / spans + 1e-9
    found: dict[int, Sample] = {}
    for sample in samples:
        span = int((sample.second - begin) / length)
        if span not in found or sample.mebibytes < found[span].mebibytes:
            found[span] = sample
    return [(sample.second, sample.mebibytes) for sample in found.values()]


def judge(samples: Sequence[Sample], seconds: float) -> tuple[str, list[str]]:
    """What is told of a run, and what of it may not be."""
    warm = [sample for sample in samples if sample.second > seconds * _WARM]
    part = max(1, len(warm) // 4)
    slope, error = line_through(floors(warm))
    grown = slope / 3600 * (warm[-1].second - warm[0].second)
    swollen = median(it.resident for it in warm[-part:]) - median(it.resident for it in warm[:part])
    descriptors = round(median(it.descriptors for it in warm[-part:]) - median(it.descriptors for it in warm[:part]))
    wal = max(sample.wal for sample in samples)
    found = []
    if seconds >= _LONG and slope - _TWO_ERRORS * error > _MOST_SLOPE:
        found.append(f"memory grows by {slope:.2f} ± {error:.2f} MiB an hour")
    if seconds >= _LONG and error > _MOST_SLOPE:
        found.append(f"the slope can't be told: {slope:.2f} ± {error:.2f} MiB an hour")
    if seconds < _LONG and grown > _MOST_SHORT:
        found.append(f"memory has grown by {grown:.1f} MiB in {seconds:.0f} s")
    if seconds >= _LONG and swollen > _MOST_SHORT:
        found.append(f"the resident set has grown by {swollen:.1f} MiB in {seconds:.0f} s")
    if descriptors > (_MOST_DESCRIPTORS if seconds >= _LONG else CLIENTS):  # of few samples, each counts who is there
        found.append(f"{descriptors} more descriptors are open than after the warm-up")
    if wal > _MOST_WAL:
        found.append(f"the WAL was {wal // 1024**2} MiB long")
    told = f"memory {warm[-1].resident:.0f} MiB, {warm[-1].mebibytes:.1f} of them in use"
    told += f", growth {slope:+.2f} ± {error:.2f} MiB/h"
    return f"{told}, {descriptors:+} descriptors, WAL at most {wal / 1024**2:.1f} MiB", found


def work(scale: Scale, seconds: float, fault: str | None = None) -> tuple[str, list[str]]:
    """A service, its load, and what becomes of it."""
    with ExitStack() as stack:
        zygote = stack.enter_context(Zygote())
        file = str(scale.folder / "memory")
        place = stack.enter_context(Place(scale.folder, zygote, fault, **{memory.VARIABLE: file}))
        return uvloop.run(_work(place, seconds))


async def _work(place: Place, seconds: float) -> tuple[str, list[str]]:
    people = await make_people(place.folder, CLIENTS // 2)
    place.start()
    await place.answers()
    if seconds >= _LONG:
        await fill(place, people)
    load = Load(place, people)
    clients = [asyncio.create_task(load.client(number)) for number in range(CLIENTS)]
    samples = await _watch(place, seconds, load, clients)
    for client in clients:
        client.cancel()
        with suppress(asyncio.CancelledError):
            await client
    place.stop()
    told, found = judge(samples, seconds)
    done = f"{seconds / 60:.1f} minutes, {load.requests:,} requests, {load.errors:,} errors, {load.aborted:,} aborted"
    return f"{done}: {told}", load.faults[:5] + found


async def _watch(place: Place, seconds: float, load: Load, clients: Sequence[asyncio.Task[None]]) -> list[Sample]:
    assert place.process is not None
    began, samples = monotonic(), list[Sample]()
    while (
        monotonic() - began < seconds
        or sum(sample.second > seconds * _WARM for sample in samples) < _LEAST_SAMPLES
        or load.requests < _LEAST_REQUESTS
    ):
        samples.append(_look(place, place.process.pid, monotonic() - began))
        for client in clients:
            if client.done():
                client.result()  # raises what it ended by
        await asyncio.sleep(_EVERY)
    return samples


def _look(place: Place, pid: int, second: float) -> Sample:
    pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    wal = Path(f"{place.database}-wal")
    return Sample(
        second,
        memory.told(Path(place.environment[memory.VARIABLE])) / 1024**2,
        pages * os.sysconf("SC_PAGE_SIZE") / 1024**2,
        sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()),
        wal.stat().st_size if wal.exists() else 0,
    )


def run(scale: Scale) -> Outcome:
    """As long as the time allows; a short one lasts some seconds, which shows no slope but what is gross."""
    seconds = max(_SHORT, scale.part * _MINUTES * 60 - 30)
    told, found = work(scale, seconds)
    return Outcome(told, found, seconds >= _MINUTES * 60 - 30)


def control(scale: Scale) -> Outcome:
    """Every request keeps 64 KiB for ever."""
    told, found = work(scale, _SHORT, "leak_with_every_read")
    return Outcome(f"a leak in every request: {told}", found)


INSTRUMENT = Instrument(
    15,
    "soak: mixed load with 5 % errors and 1 % aborted requests",
    "memory growth at most 1 MiB/h after the warm-up, no growth in descriptors, WAL bounded",
    _MINUTES,
    run,
    control,
)
