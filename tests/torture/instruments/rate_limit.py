"""The rate limit: exactly a thousand of a key's requests in an hour, over processes, restarts, clocks and Redis.

`time.time` in the service's processes stands in for the machine's wall clock, which can't be set for them alone: it
jumps to and fro by an hour while requests are counted.
"""

import asyncio
import signal
from collections import Counter
from contextlib import ExitStack
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

import uvloop

from tests.ratelimit.locks import is_exclusively_locked
from tests.redis_server import RedisServer
from tests.torture.instrument import Instrument, Outcome, Scale
from tests.torture.serving import Place, Zygote, children_of, make_people
from tests.torture.wire import PATH, Line, LostError, UnreachableError

LIMIT, CONNECTIONS = 1000, 200
_EXTRA = 400  # requests beyond the limit
_ACCEPTED, _REFUSED = HTTPStatus.NOT_FOUND, HTTPStatus.TOO_MANY_REQUESTS


class Scene(NamedTuple):
    """What is tried."""

    name: str
    workers: int = 1  # of each service
    services: int = 1  # on one database
    fault: str | None = None
    restart: signal.Signals | None = None  # sent in the middle
    redis: bool = False  # which is killed in the middle
    is_late: bool = False  # the last service starts in the middle, so that the first one was alone


_STEPPED = "step_the_wall_clock"
SCENES = (
    Scene("1 process"),
    Scene("2 processes", 2),
    Scene("4 processes", 4),
    Scene("clock stepped", services=2, fault=_STEPPED),
    Scene("clock stepped and killed", fault=_STEPPED, restart=signal.SIGKILL),
    Scene("restarted", 2, restart=signal.SIGTERM),
    Scene("Redis killed", 2, redis=True),
    Scene("one more service", services=2, is_late=True),
)
_SHORT = ("2 processes", "clock stepped", "one more service")
CONTROLS = ("count_for_itself", "count_by_the_wall_clock")


class Asker:
    """Asks with a key from many connections, by either header."""

    def __init__(self, ports: list[int], key: str, connections: int) -> None:
        self.statuses: Counter[int] = Counter()
        self.in_doubt = 0
        self.faults: list[str] = []
        self._key = key
        self._lines = [Line(ports[number % len(ports)], "") for number in range(connections)]
        self._left = 0

    async def fetch(self, requests: int) -> None:
        """So many in all."""
        self._left = requests
        await asyncio.gather(*(self._ask(number, line) for number, line in enumerate(self._lines)))

    async def _ask(self, number: int, line: Line) -> None:
        name, prefix = (("X-API-Key", ""), ("Authorization", "Bearer "))[number % 2]
        request = f"GET {PATH}/1 HTTP/1.1\r\nHost: x\r\n{name}: {prefix}{self._key}\r\n\r\n".encode()
        while self._left > 0:
            self._left -= 1
            try:
                answer = await line.send(request)
            except UnreachableError:
                self._left += 1
                await asyncio.sleep(0.01)
                continue
            except LostError:
                self.in_doubt += 1
                await asyncio.sleep(0.01)
                continue
            self.statuses[answer.status] += 1
            if answer.status == _REFUSED and not 1 <= int(answer.headers["retry-after"]) <= 3600:
                self.faults.append(f"Retry-After is {answer.headers['retry-after']}")

    def close(self) -> None:
        """End all connections."""
        for line in self._lines:
            line.close()


class Trial:
    """One scene: services on one database, and whoever counts for them."""

    def __init__(self, folder: Path, scene: Scene, stack: ExitStack, connections: int) -> None:
        self.scene = scene
        self.faults: list[str] = []
        self.requests = self.accepted = self.in_doubt = 0
        self._connections = connections
        self._redis = stack.enter_context(RedisServer()) if scene.redis else None
        settings = {"LISTINGS_RATE_LIMIT": str(LIMIT), "LISTINGS_WORKERS": str(scene.workers)}
        if self._redis is not None:
            settings |= {"LISTINGS_REDIS_URL": self._redis.url, "LISTINGS_REDIS_TIMEOUT": "10000"}
        zygote = stack.enter_context(Zygote())
        self._folder = folder
        self._places = [
            stack.enter_context(Place(folder, zygote, scene.fault, **settings)) for _ in range(scene.services)
        ]

    async def work(self) -> None:
        """Spend a key's hour, and more."""
        (alice,) = await make_people(self._folder, 1)
        for place in self._places[:-1] if self.scene.is_late else self._places:
            await self._start(place)
        while self.scene.is_late and not is_exclusively_locked(place.database):  # noqa: ASYNC110 - the kernel knows it
            await asyncio.sleep(0.001)
        asker = Asker([place.port for place in self._places], alice.key, self._connections)
        asking = asyncio.create_task(asker.fetch(LIMIT + _EXTRA))
        while asker.statuses.total() < LIMIT // 3 and not asking.done():  # noqa: ASYNC110 - it is a number of many
            await asyncio.sleep(0.001)
        await self._disturb()
        await asking
        self._check(asker)
        asker.close()
        self.requests = asker.statuses.total()
        self.accepted, self.in_doubt = asker.statuses[_ACCEPTED], asker.in_doubt

    async def _start(self, place: Place) -> None:
        place.start()
        await place.answers()
        line = Line(place.port, "")
        while not _is_whole(place, self.scene.workers):  # noqa: ASYNC110 - other processes decide it
            await asyncio.sleep(0.01)
        assert (await line.fetch("GET", "/readyz")).status == HTTPStatus.OK
        line.close()

    async def _disturb(self) -> None:
        if self._redis is not None:
            await asyncio.to_thread(self._redis.kill)
        if self.scene.restart is not None:
            process = self._places[0].process
            assert process is not None
            await asyncio.to_thread(process.kill, self.scene.restart)
            await self._start(self._places[0])
        if self.scene.is_late:
            await self._start(self._places[-1])

    def _check(self, asker: Asker) -> None:
        accepted = asker.statuses[_ACCEPTED]
        if not LIMIT - asker.in_doubt <= accepted <= LIMIT:
            self.faults.append(f"{accepted} were accepted, {asker.in_doubt} are in doubt")
        others = {status: count for status, count in asker.statuses.items() if status not in {_ACCEPTED, _REFUSED}}
        if others:
            self.faults.append(f"others were answered {others}")
        self.faults += asker.faults[:3]


def _is_whole(place: Place, workers: int) -> bool:
    return workers == 1 or (place.process is not None and len(children_of(place.process.pid)) == workers)


def work(scale: Scale, scene: Scene, connections: int) -> Trial:
    """A scene in a place of its own."""
    folder = scale.folder / scene.name.replace(" ", "-")
    folder.mkdir()
    with ExitStack() as stack:
        trial = Trial(folder, scene, stack, connections)
        uvloop.run(trial.work())
    return trial


def run(scale: Scale) -> Outcome:
    """All scenes from 200 connections in a long run, some from fewer in a short one."""
    is_long = scale.part >= 1
    scenes = [scene for scene in SCENES if is_long or scene.name in _SHORT]
    trials = [work(scale, scene, CONNECTIONS if is_long else CONNECTIONS // 4) for scene in scenes]
    faults = [f"{trial.scene.name}: {fault}" for trial in trials for fault in trial.faults]
    told = ", ".join(f"{it.scene.name} {it.accepted:,}" + f" + {it.in_doubt} lost" * bool(it.in_doubt) for it in trials)
    return Outcome(f"{sum(it.requests for it in trials):,} requests; accepted: {told}", faults, is_long)


def control(scale: Scale) -> Outcome:
    """Each process counts for itself; time is what the wall clock says."""
    faults = []
    for fault in CONTROLS:
        found = work(scale, Scene(fault, services=2, fault=fault), CONNECTIONS // 4).faults
        if not found:
            return Outcome(f"{fault} was not found")
        faults += [f"{fault}: {one}" for one in found]
    return Outcome(f"{', '.join(CONTROLS)}: 2 services each", faults)


INSTRUMENT = Instrument(
    6,
    "rate limit: processes, 200 connections, both headers, stepped clocks, restarts, Redis killed",
    "exactly 1,000 accepted: 0 over, 0 under",
    1,
    run,
    control,
)
