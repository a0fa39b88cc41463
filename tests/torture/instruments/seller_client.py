"""The Python client: creates with injected faults, and random catalogues that are planned and applied."""

import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from listings_client import AsyncClient, Client, operations
from listings_client import client as client_module
from tests.cli.commands import Program, demo_environment
from tests.client.catalogues import World
from tests.torture.instrument import Instrument, Outcome, Scale
from tests.torture.parallel import run_in_parallel
from tests.torture.services import RestartableService, create_people

CREATES, CATALOGUES, MAX_ROWS = 10_000, 1_000, 500
_FAULTS = {0: "429", 1: "503", 2: "lost-response", 3: "slow"}  # by the last digit of a create's number
_TASKS = 100
_PROCESSES = 2
_CATALOGUES_PER_SELLER = 10
_SIZES = 10  # of catalogues
_CREATE_SHARE = 0.4  # of the time


class Seller(NamedTuple):
    key: str
    base_url: str


class Job(NamedTuple):
    folder: Path
    sellers: list[tuple[Seller, int]]
    rows: int
    seconds: float


@contextmanager
def serve(folder: Path) -> Iterator[Seller]:
    """Run a demo that simulates faults in a process of its own; yield its first seller."""
    folder.mkdir()
    program = Program(folder, LISTINGS_RATE_LIMIT="0", LISTINGS_LOG_LEVEL="error")
    with program.serve("--demo", "--rehearse") as serving:
        yield Seller(demo_environment(folder)["API_KEY"], serving.base_url)
        serving.stop()


async def _create_all(seller: Seller, count: int, scale: Scale, seconds: float) -> int:
    """Create listings, a tenth of them with each fault. Return how many were created."""
    numbers = iter(range(count))
    end = time.monotonic() + seconds
    created = 0

    async def work() -> None:
        nonlocal created
        for number in numbers:
            if time.monotonic() > end or scale.is_time_up:
                return
            fault = _FAULTS.get(number % 10)
            headers = {"X-Rehearse": f"{fault};create-{number}"} if fault else {}
            options = replace(client.options, headers=headers)
            steps = operations.create_listing(options, title=f"Listing {number}", content="Created with faults.")
            await client.run(steps)
            created += 1

    async with AsyncClient(*seller) as client:
        await asyncio.gather(*(work() for _ in range(_TASKS)))
    return created


def check_creates(seller: Seller, count: int, scale: Scale, seconds: float) -> tuple[int, list[str]]:
    created = asyncio.run(_create_all(seller, count, scale, seconds))
    with Client(*seller) as client:
        stored = Counter(one.title for one in client.stream() if one.content == "Created with faults.")
    failures = [f"{title} was created {times} times" for title, times in stored.items() if times > 1]
    if len(stored) != created:
        failures.append(f"{created} listings were created, {len(stored)} are stored")
    return created, failures


def check_catalogues(job: Job) -> tuple[int, list[str]]:
    """Return the number of catalogues that were planned and applied, and the failures."""
    end, done = time.monotonic() + job.seconds, 0
    failures: list[str] = []
    for seller, first in job.sellers:
        with Client(*seller) as client, tempfile.TemporaryDirectory(dir=job.folder) as folder:
            rows = round(job.rows ** (first % _SIZES / (_SIZES - 1))) + 1  # as many small as large ones
            world = World(client, Path(folder), first, min(rows, job.rows))
            for seed in range(first * _CATALOGUES_PER_SELLER, (first + 1) * _CATALOGUES_PER_SELLER):
                if time.monotonic() > end:
                    return done, failures
                failures += [f"catalogue {seed}: {failure}"[:300] for failure in world.check()]
                done += 1
    return done, failures


def run_catalogues(scale: Scale) -> tuple[int, list[str]]:
    """Plan and apply catalogues of many accounts in two processes."""
    folder, rows = scale.folder / "catalogues", scale.amount(MAX_ROWS, 20)
    folder.mkdir()
    with RestartableService(folder, LISTINGS_RATE_LIMIT="0") as service:
        service.start()
        asyncio.run(service.wait_until_ready())
        count = min(scale.amount(CATALOGUES), CATALOGUES)
        people = asyncio.run(create_people(folder, count // _CATALOGUES_PER_SELLER))
        sellers = [(Seller(one.key, f"http://127.0.0.1:{service.port}"), number) for number, one in enumerate(people)]
        parts = [sellers[number::_PROCESSES] for number in range(_PROCESSES)]
        results = run_in_parallel(check_catalogues, [Job(folder, part, rows, scale.seconds_left) for part in parts])
        service.stop()
    return sum(count for count, _ in results), list(chain.from_iterable(found for _, found in results))


def run(scale: Scale) -> Outcome:
    """Create listings with faults, and then plan and apply catalogues."""
    with serve(scale.folder / "demo") as seller:
        count = min(scale.amount(CREATES), CREATES)  # more time is for the catalogues
        created, failures = check_creates(seller, count, scale, scale.seconds_left * _CREATE_SHARE)
    done, found = run_catalogues(scale)
    summary = f"{created:,} creates, {4 * created // 10:,} faults; {done:,} catalogues"
    return Outcome(summary, failures + found, created >= CREATES and done >= CATALOGUES)


def _forget_key(build: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Return a function that builds requests without an Idempotency-Key."""

    def build_without(*given: object) -> dict[str, Any]:
        request = build(*given)
        headers = {name: value for name, value in request["headers"].items() if name != "Idempotency-Key"}
        return {**request, "headers": headers}

    return build_without


def control(scale: Scale) -> Outcome:
    """Create listings without an Idempotency-Key."""
    with serve(scale.folder / "control") as seller, pytest.MonkeyPatch.context() as patch:
        patch.setattr(client_module, "_build", _forget_key(client_module._build))  # noqa: SLF001 - the injected fault
        created, failures = check_creates(seller, 200, scale, scale.seconds_left)
    return Outcome(f"without an Idempotency-Key: {created} creates", failures)


INSTRUMENT = Instrument(
    21,
    "the Python client: creates with 429, 503, lost and slow responses; catalogues that are planned and applied",
    "10,000 creates with each fault in a tenth: exactly 10,000 listings; 1,000 catalogues of up to 500 rows, half of"
    " them with a rival: nothing else changed, nothing left to do",
    12,
    run,
    control,
    short_fraction=0.05,
)
