"""Large lists: an account with 300 MB of text, and clients that request lists of 24 MB and read nothing."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import apsw
import asyncpg

from listings.domain.model import Account, bucket_of
from tests.harness import Person
from tests.http import timeouts
from tests.http.test_deadlines import Timing, busy_neighbour, steady_client
from tests.postgres_server import PostgresServer
from tests.torture.http_client import PATH, Connection
from tests.torture.instrument import Instrument, Outcome, Scale
from tests.torture.services import ROOT, RestartableService, create_people

_LISTINGS, _TEXT = 60_000, "A lamp of brass. " * 300  # 5 kB each
_LONG_LISTINGS, _LONG_TEXT = 60, "💡" * 100_000  # 400 kB each
_CLIENTS = 60
_QUERIES = tuple(  # the attack must last as long as the time alone, and each list must be read from the database
    f"{PATH}?{query}&price_max={price}"
    for price in (1000, 2000, 3000)
    for query in ("sort=title", "limit=50", "status=all&q=lamp", "include=all")
)
_KINDS = 4  # of queries, one after the other
_ALONE_SECONDS, _HOLD_SECONDS = 5.0, 10.0
_RETURN_SECONDS = 10.0  # until memory must be returned
_SHORT_SECONDS = (1.0, 3.0, 1.0)
_REQUESTS_PER_SECOND = 200
_MAX_GROWTH_MIB = 64.0
_MAX_LEFT_MIB = 24.0
_MAX_P99_MS = 100.0
_MAX_RATIO = 2.0
_NOISE_MS = 1.0  # by which p99 differs between two measurements without any load
_MAX_ROUNDS = 3  # a stall of the machine may spoil a round

_SELECT = (
    "SELECT n * 1024 + {bucket}, {bucket}, {account}, 'Lamp ' || n, {text}, 'product', 'Lighting', '[]', n, 'fixed',"
    " 'Attic', 'Otago', '', {yes}, '2026-01-02 03:04:05', '2026-01-02 03:04:05'"
)
_INSERT = (
    "INSERT INTO listings (id, bucket, account_id, title, content, type, category, images, price_cents, price_type,"
    " location, region, district, is_active, created_at, updated_at) "
)
_COUNT = "UPDATE account_state SET listings = {count}, revision = 1 WHERE account_id = {account}"
_SQLITE_NUMBERS = "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count}) "


class Address(NamedTuple):
    """The address of a service."""

    base_url: str


class Attack(NamedTuple):
    """A neighbour alone and next to an attack, and what the attack did to the service."""

    name: str
    alone: Timing
    during: Timing
    growth: float  # MiB over rest, at most
    left: float  # MiB over rest, some time after the attack
    failure: str = ""

    @property
    def is_fast(self) -> bool:
        allowed = min(_MAX_P99_MS, _MAX_RATIO * self.alone.p99 + _NOISE_MS)
        return not self.during.failed and self.during.p99 <= allowed

    def __str__(self) -> str:
        times = f"p99 {self.alone.p99:.1f} ms alone, {self.during.p99:.1f} ms during"
        longest = f"longest {max(self.during.latencies_ms):.0f} ms"
        return f"{self.name}: {times} ({longest}), memory {self.growth:+.0f} MiB, {self.left:+.0f} MiB afterwards"


async def fill(url: str, account: Account, count: int, text: str) -> None:
    """Store listings of an account, without the service."""
    values = {"bucket": bucket_of(account.id), "account": account.id, "text": f"'{text}'"}
    counted = _COUNT.format(count=count, account=account.id)
    if url.startswith("sqlite"):
        with closing(apsw.Connection(url.removeprefix("sqlite:///"))) as connection:
            numbers, select = _SQLITE_NUMBERS.format(count=count), _SELECT.format(yes="1", **values)
            connection.execute(f"{numbers} {_INSERT} {select} FROM numbers").fetchall()
            connection.execute(counted).fetchall()
        return
    session = await asyncpg.connect(url)
    select = _SELECT.format(yes="TRUE", **values)
    await session.execute(f"{_INSERT} {select} FROM generate_series(1, {count}) AS n")
    await session.execute(counted)
    await session.execute("VACUUM ANALYZE listings")
    await session.close()


def _read_status_mib(pid: int, name: str) -> float:
    """Return a value of the process's status in MiB; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(name)), 0.0)


@contextmanager
def _running(service: RestartableService, key: str, count: int, hold: float, *paths: str) -> Iterator[Any]:
    command = [sys.executable, "-m", "tests.torture.list_readers", str(service.port), key, str(count), str(hold)]
    with subprocess.Popen([*command, *paths], cwd=ROOT, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


class _Trial:
    """A running service and its neighbour."""

    def __init__(self, service: RestartableService, neighbour: Person) -> None:
        assert service.process is not None
        self.service = service
        self.process = service.process
        self.key = neighbour.key
        self.address = cast("Any", Address(f"http://127.0.0.1:{service.port}"))

    def measure(self, seconds: float) -> Timing:
        try:
            return steady_client(self.address, self.key, seconds, _REQUESTS_PER_SECOND)
        except (OSError, EOFError, ValueError, AssertionError):
            return Timing([1000 * seconds] * 2, 1)

    def attack(self, name: str, person: Person, clients: int, seconds: "Seconds", paths: tuple[str, ...]) -> Attack:
        """Measure the neighbour alone and while clients request lists, which they read if `seconds.hold` is 0."""
        hold = seconds.hold
        pid = self.process.pid
        rest = _read_status_mib(pid, "VmRSS")
        Path(f"/proc/{pid}/clear_refs").write_text("5", "ascii")
        with busy_neighbour(), ThreadPoolExecutor(1) as thread:
            alone = self.measure(seconds.alone)
            with _running(self.service, person.key, clients, hold, *paths) as readers:
                during = [self.measure(1.0)]
                while readers.poll() is None and not self.process.has_ended:
                    during.append(self.measure(1.0))
                out = thread.submit(readers.communicate).result()[0] if readers.poll() is not None else b""
        growth = _read_status_mib(pid, "VmHWM") - rest
        time.sleep(seconds.wait)
        left = _read_status_mib(pid, "VmRSS") - rest
        timing = Timing([ms for one in during for ms in one.latencies_ms], sum(one.failed for one in during))
        return Attack(name, alone, timing, growth, left, self._find_failure(out, hold))

    def _find_failure(self, out: bytes, hold: float) -> str:
        if self.process.has_ended:
            return f"the process has ended: {self.service.read_log()[-300:]}"
        if hold:
            return ""
        bodies: dict[str, set[str]] = {}
        for path, status, digest in json.loads(out or b"[]"):
            if status != 200:
                return f"{path} returned {status}"
            bodies.setdefault(path, set()).add(digest)
        return "" if bodies and all(len(each) == 1 for each in bodies.values()) else f"different bodies: {bodies}"


class Seconds(NamedTuple):
    """How long to measure alone, to hold responses, and to wait for the memory."""

    alone: float
    hold: float
    wait: float


def work(folder: Path, listings: int, seconds: Seconds, rounds: int, fault: str) -> list[Attack]:
    """Run the attacks on both engines; repeat one whose neighbour is slow, up to `rounds` times."""
    return [
        attack
        for engine in ("SQLite", "PostgreSQL")
        for attack in work_on(engine, folder / engine, listings, seconds, rounds, fault)
    ]


def work_on(engine: str, folder: Path, listings: int, seconds: Seconds, rounds: int, fault: str) -> Iterator[Attack]:
    """Run the attacks until one ends the service."""
    folder.mkdir()
    with ExitStack() as stack:
        settings = {timeouts.VARIABLE: "30", "LISTINGS_SITE": "off"}  # the market would be indexed meanwhile
        if engine == "PostgreSQL":
            server = stack.enter_context(PostgresServer())
            settings["LISTINGS_DATABASE_URL"] = stack.enter_context(server.bare_database())
        service = stack.enter_context(RestartableService(folder, fault, **settings))
        url = service.environment["LISTINGS_DATABASE_URL"]
        alice, bob, dave = asyncio.run(create_people(folder, 3, database=url))
        asyncio.run(fill(url, alice.account, listings, _TEXT))
        asyncio.run(fill(url, bob.account, _LONG_LISTINGS, _LONG_TEXT))
        service.start()
        asyncio.run(_warm_up(service, dave.key))
        trial = _Trial(service, dave)
        for name, person, clients, hold, paths in (
            ("one list", alice, 1, 0.0, (PATH,)),
            ("unread lists", bob, _CLIENTS, seconds.hold, (PATH,)),
            ("queries", bob, len(_QUERIES) if rounds > 1 else _KINDS, 0.0, _QUERIES),
        ):
            attacks: list[Attack] = []
            while len(attacks) < rounds and not any(it.is_fast or it.failure for it in attacks):
                attacks.append(trial.attack(f"{engine}, {name}", person, clients, seconds._replace(hold=hold), paths))
            yield attacks[-1]
            if trial.process.has_ended:
                return
        service.kill()  # its sessions would block DROP DATABASE


async def _warm_up(service: RestartableService, key: str) -> None:
    """Load the code first, so that its memory does not count."""
    await service.wait_until_ready()
    connection = Connection(service.port, key)
    for _ in range(100):
        await connection.fetch("POST", PATH, {"title": "Lamp", "content": "Bright."})
        await connection.fetch("GET", PATH)
    connection.close()


def find_failures(attacks: list[Attack], *, timed: bool) -> list[str]:
    """Return the deviations from the target; those of the neighbour's latency only if `timed`."""
    failures = [f"{it.name}: {it.failure}" for it in attacks if it.failure]
    failures += [f"{it}" for it in attacks if it.growth > _MAX_GROWTH_MIB or it.left > _MAX_LEFT_MIB]
    failures += [f"{it.name}: {it.during.failed} requests of others failed" for it in attacks if it.during.failed]
    return failures + [f"{it}" for it in attacks if timed and not it.is_fast]


def run(scale: Scale) -> Outcome:
    """Run all attacks with memory for the whole program of 512 MiB."""
    is_long = scale.fraction >= 1
    seconds = Seconds(_ALONE_SECONDS, _HOLD_SECONDS, _RETURN_SECONDS) if is_long else Seconds(*_SHORT_SECONDS)
    listings = scale.amount(_LISTINGS, 2000)
    attacks = work(scale.folder, listings, seconds, _MAX_ROUNDS if is_long else 1, "limit_memory")
    return Outcome("; ".join(map(str, attacks)), find_failures(attacks, timed=is_long), is_long)


def control(scale: Scale) -> Outcome:
    """Build all lists in memory."""
    attacks = list(
        work_on("SQLite", scale.folder / "control", 2000, Seconds(*_SHORT_SECONDS), 1, "build_lists_in_memory")
    )
    return Outcome(f"lists in memory: {'; '.join(map(str, attacks))}", find_failures(attacks, timed=False))


INSTRUMENT = Instrument(
    17,
    "large lists in 512 MiB of memory: one of 300 MB, 60 of 24 MB that nobody reads, and filtered and searched ones",
    "others' p99 at most 2 × alone + 1 ms and 100 ms, memory at most +64 MiB, returned within 10 s",
    3,
    run,
    control,
)
