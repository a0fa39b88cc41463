"""Linearizability: eight clients on three listings, with kills, on both engines; what they saw is checked."""

import asyncio
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from http import HTTPStatus
from pathlib import Path
from random import Random
from time import monotonic
from typing import NamedTuple

import uvloop

from tests.postgres_server import PostgresServer
from tests.torture.instrument import Instrument, Outcome, Scale
from tests.torture.linearizability import Kind, Operation, Shown, is_linearizable
from tests.torture.serving import Place, Zygote, make_people
from tests.torture.signals import beside, cores
from tests.torture.wire import PATH, Answer, Line, LostError, UnreachableError

HISTORIES, OPERATIONS, CLIENTS, LISTINGS = 200, 300, 8, 3
_KILLED = 0.6  # of the histories
_RESTARTS = 20  # one of so many histories restarts PostgreSQL
_KINDS: list[Kind] = ["read", "set price", "set place", "swap"]
_DELETED = 0.003  # of the operations
_LEAST_OF_TWO = 20  # histories, for which a process more is worth its start


class Share(NamedTuple):
    """What one process of clients does."""

    folder: Path
    histories: int
    seconds: float
    seed: int
    on_postgres: bool = False
    fault: str | None = None


class Result(NamedTuple):
    """What it came to."""

    histories: int
    operations: int
    unknown: int
    kills: int
    faults: list[str]


class History:
    """What clients do to some listings, and what they see."""

    def __init__(self, place: Place, key: str, random: Random) -> None:
        self.operations: dict[int, list[Operation]] = {}
        self.faults: list[str] = []
        self.count = 0
        self._place = place
        self._key = key
        self._random = random
        self._values = 0

    async def run(self, disturb: asyncio.Task[None] | None) -> None:
        """Until there are so many operations; who disturbs does it meanwhile."""
        line = Line(self._place.port, self._key)
        await _until_ready(line)
        for _ in range(LISTINGS):
            answer = await line.fetch("POST", PATH, {"title": "Lamp", "content": "Bright.", "location": "0"})
            self.operations[int(answer.json()["id"])] = []
        line.close()
        await asyncio.gather(*(self._client() for _ in range(CLIENTS)))
        if disturb is not None:
            await disturb

    def has_reached(self, moment: int) -> bool:
        """Whether all listings are there, and so many operations were begun."""
        return len(self.operations) == LISTINGS and self.count > moment

    async def _client(self) -> None:
        line = Line(self._place.port, self._key)
        seen: dict[int, tuple[Shown, str]] = {}
        while self.count < OPERATIONS:
            self.count += 1
            listing_id = self._random.choice(list(self.operations))
            asked, tag = self._next(seen.get(listing_id))
            try:
                answer = await self._ask(line, listing_id, asked, tag)
            except UnreachableError:  # nothing was sent
                self.count -= 1
                await asyncio.sleep(0.005)
                continue
            except LostError:
                answer = None
            seen |= self._note(listing_id, asked, answer)
            if answer is not None and answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
                await _until_ready(line)
        line.close()

    def _next(self, seen: tuple[Shown, str] | None) -> tuple[Operation, str]:
        """An operation, and the tag that a swap goes by."""
        kind = self._random.choice(_KINDS)
        if self._random.random() < _DELETED:
            kind = "delete"
        if kind == "swap" and seen is None:
            kind = "read"
        self._values += 1
        shown, tag = seen if kind == "swap" and seen is not None else ((0, 0), "")
        return Operation(kind, monotonic(), value=self._values, shown=shown), tag

    async def _ask(self, line: Line, listing_id: int, asked: Operation, tag: str) -> Answer:
        path = f"{PATH}/{listing_id}"
        match asked.kind:
            case "read":
                return await line.fetch("GET", path)
            case "delete":
                return await line.fetch("DELETE", path)
            case "set place":
                return await line.fetch("PATCH", path, {"location": str(asked.value)})
            case "set price":
                return await line.fetch("PATCH", path, {"price": asked.value})
            case "swap":
                return await line.fetch("PATCH", path, {"price": asked.value}, {"If-Match": tag})

    def _note(self, listing_id: int, asked: Operation, answer: Answer | None) -> dict[int, tuple[Shown, str]]:
        """Keep it; returns what was seen."""
        if answer is None or answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
            if asked.kind != "read":
                self.operations[listing_id].append(asked)
            return {}
        if answer.status not in {200, 404, 412}:
            self.faults.append(f"{asked} was answered {answer.status} {answer.body[:200]!r}")
        done = asked._replace(ended=monotonic(), status=answer.status)
        seen = {}
        if asked.kind == "read" and answer.status == HTTPStatus.OK:
            data = answer.json()
            done = done._replace(shown=(int(data["price"]), int(data["location"])))
            seen[listing_id] = done.shown, answer.headers["etag"]
        self.operations[listing_id].append(done)
        return seen


async def _until_ready(line: Line) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                if (await line.fetch("GET", "/readyz")).status == HTTPStatus.OK:
                    return
            except LostError:
                pass
            await asyncio.sleep(0.02)


def work(share: Share) -> Result:
    """In a process of its own."""
    share.folder.mkdir()
    with ExitStack() as stack:
        thread = stack.enter_context(ThreadPoolExecutor(1))  # outlives the server, which dies with its starter
        server, settings = None, {}
        if share.on_postgres:
            server = stack.enter_context(PostgresServer())
            settings["LISTINGS_DATABASE_URL"] = stack.enter_context(server.bare_database())
        zygote = stack.enter_context(Zygote())
        place = stack.enter_context(Place(share.folder, zygote, share.fault, **settings))
        total = uvloop.run(_work(share, place, server, thread))
        place.kill()  # or its sessions would be in the way of the database's end
        return total


async def _work(share: Share, place: Place, server: PostgresServer | None, thread: Executor) -> Result:
    scale, random = Scale(share.folder, 1.0, share.seconds), Random(share.seed)
    (alice,) = await make_people(share.folder, 1, database=place.environment["LISTINGS_DATABASE_URL"])
    place.start()
    await place.answers()
    total = Result(0, 0, 0, 0, [])
    while total.histories < share.histories and not scale.is_over and not total.faults:
        history = History(place, alice.key, random)
        is_restart = server is not None and total.histories % _RESTARTS == _RESTARTS - 1
        disturb = None
        if is_restart and server is not None:
            disturb = asyncio.create_task(_restart(history, server, thread))
        elif random.random() < _KILLED:
            disturb = asyncio.create_task(_kill(history, place, random.randrange(OPERATIONS - 50)))
        await history.run(disturb)
        total = _added(total, history, disturbed=disturb is not None)
    return total


async def _kill(history: History, place: Place, moment: int) -> None:
    """After so many operations."""
    while not history.has_reached(moment):  # noqa: ASYNC110 - it is counted, nobody tells
        await asyncio.sleep(0.001)
    place.kill()
    place.start()
    await place.answers()


async def _restart(history: History, server: PostgresServer, thread: Executor) -> None:
    while not history.has_reached(OPERATIONS // 3):  # noqa: ASYNC110 - as above
        await asyncio.sleep(0.001)
    await asyncio.get_running_loop().run_in_executor(thread, server.restart)


def _added(total: Result, history: History, *, disturbed: bool) -> Result:
    faults = list(history.faults)
    for listing_id, operations in history.operations.items():
        if not is_linearizable(operations):
            faults.append(
                f"history {total.histories + 1}, listing {listing_id}: no order explains {len(operations)} answers"
            )
    all_of_them = [one for operations in history.operations.values() for one in operations]
    return Result(
        total.histories + 1,
        total.operations + len(all_of_them),
        total.unknown + sum(one.status is None for one in all_of_them),
        total.kills + disturbed,
        [*total.faults, *faults],
    )


def _told(name: str, results: list[Result]) -> str:
    histories, operations, unknown, kills = map(sum, zip(*(one[:4] for one in results), strict=True))
    return f"{name}: {histories} histories, {operations:,} operations, {kills} kills, {unknown} without a response"


def run(scale: Scale) -> Outcome:
    """One engine after the other, in as many processes as there are cores."""
    count = scale.amount(HISTORIES, 4)
    arms = cores() if count >= _LEAST_OF_TWO else 1
    told, faults, whole = [], [], True
    for engine, share_of_time in (("SQLite", 0.5), ("PostgreSQL", 1.0)):
        seconds = scale.left * share_of_time
        shares = [
            Share(scale.folder / f"{engine}-{arm}", count // arms, seconds, arm, engine == "PostgreSQL")
            for arm in range(arms)
        ]
        results = beside(work, shares)
        told.append(_told(engine, results))
        faults += [f"{engine}: {fault}" for one in results for fault in one.faults]
        whole = whole and sum(one.histories for one in results) >= HISTORIES
    return Outcome("; ".join(told), faults, whole)


def control(scale: Scale) -> Outcome:
    """Updates that read, decide and write without a transaction."""
    share = Share(scale.folder / "control", 10, scale.left, 1, fault="update_without_transaction")
    result = work(share)
    return Outcome(_told("without the transaction", [result]), result.faults)


INSTRUMENT = Instrument(
    4,
    "linearizability: 8 clients on 3 listings, kills, a Wing-Gong/Lowe checker",
    "200 histories of 300 operations on each engine: 0 violations",
    5,
    run,
    control,
    short=0.02,
)
