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
from tests.http.test_deadlines import Timing, busy_neighbour, steady_client
from tests.postgres_server import PostgresServer
from tests.torture.http_client import PATH, Connection
from tests.torture.instrument import Scale
from tests.torture.services import ROOT, ForkServer, RestartableService, create_people

_LISTINGS, _TEXT = 60_000, "A lamp of brass. " * 300  # 5 kB
_LONG_LISTINGS, _LONG_TEXT = 60, "💡" * 100_000  # 400 kB
_CLIENTS = 60
_HOLD_SECONDS = 20.0
_ALONE_SECONDS = 10.0
_RETURN_SECONDS = 60.0  # until the memory must be returned
_REQUESTS_PER_SECOND = 200
_MAX_GROWTH_MIB = 64.0
_MAX_P99_MS = 100.0
_MAX_RATIO = 2.0
_NOISE_MS = 2.0  # by which p99 differs between two measurements without any load
_ROUNDS = 3  # a stall of the machine may spoil a round

_ROW = (
    "n * 1024 + {bucket}, {bucket}, {account}, 'Lamp ' || n, {text}, 'product', 'Lighting', '[]', n, 'fixed', 'Attic',"
    " 'Otago', '', {yes}, '2026-01-02 03:04:05', '2026-01-02 03:04:05'"
)
_INSERT = (
    "INSERT INTO listings (id, bucket, account_id, title, content, type, category, images, price_cents, price_type,"
    " location, region, district, is_active, created_at, updated_at) "
)
_SQLITE_NUMBERS = "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count}) "


class Address(NamedTuple):
    """The address of a service."""

    base_url: str


class Attack(NamedTuple):
    """A neighbour alone and next to an attack, and what the attack did to the service."""

    name: str
    alone: Timing
    beside: Timing
    growth: float  # MiB over rest, at most
    left: float  # MiB over rest, some time after the attack
    seconds: float
    failure: str = ""

    @property
    def is_fast(self) -> bool:
        allowed = min(_MAX_P99_MS, _MAX_RATIO * self.alone.p99 + _NOISE_MS)
        return not self.beside.failed and self.beside.p99 <= allowed

    def __str__(self) -> str:
        times = f"p99 {self.alone.p99:.1f} ms alone, {self.beside.p99:.1f} ms beside"
        longest = f"longest {max(self.beside.latencies_ms):.0f} ms"
        return f"{self.name}: {times} ({longest}), memory {self.growth:+.0f} MiB, {self.left:+.0f} MiB afterwards"


async def fill(url: str, account: Account, count: int, text: str) -> None:
    """Store listings of an account, without the service."""
    values = {"bucket": bucket_of(account.id), "account": account.id, "text": f"'{text}'"}
    counted = f"UPDATE account_state SET listings = {count}, revision = 1 WHERE account_id = {account.id}"
    if url.startswith("sqlite"):
        with closing(apsw.Connection(url.removeprefix("sqlite:///"))) as connection:
            select = f"SELECT {_ROW.format(yes='1', **values)} FROM numbers"
            connection.execute(_SQLITE_NUMBERS.format(count=count) + _INSERT + select).fetchall()
            connection.execute(counted).fetchall()
        return
    connection = await asyncpg.connect(url)
    select = f"SELECT {_ROW.format(yes='TRUE', **values)} FROM generate_series(1, {count}) AS n"
    await connection.execute(_INSERT + select)
    await connection.execute(counted)
    await connection.execute("VACUUM ANALYZE listings")
    await connection.close()


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

    def attack(
        self, name: str, person: Person, clients: int, seconds: tuple[float, float, float], *paths: str
    ) -> Attack:  # noqa: E501
        """Measure the neighbour alone and while clients request lists; `seconds`: alone, held (0: read) and wait."""
        alone_seconds, hold, wait = seconds
        pid = self.process.pid
        rest = _read_status_mib(pid, "VmRSS")
        Path(f"/proc/{pid}/clear_refs").write_text("5", "ascii")
        with busy_neighbour(), ThreadPoolExecutor(1) as thread:
            alone = self.measure(alone_seconds)
            began = time.monotonic()
            with _running(self.service, person.key, clients, hold, *paths) as readers:
                beside = [self.measure(1.0)]
                while readers.poll() is None and not self.process.has_ended:
                    beside.append(self.measure(1.0))
                taken = time.monotonic() - began
                out = thread.submit(readers.communicate).result()[0] if readers.poll() is not None else b""
        growth = _read_status_mib(pid, "VmHWM") - rest
        time.sleep(wait)
        left = _read_status_mib(pid, "VmRSS") - rest
        timing = Timing([ms for one in beside for ms in one.latencies_ms], sum(one.failed for one in beside))
        return Attack(name, alone, timing, growth, left, taken, self._find_failure(out, hold))

    def _find_failure(self, out: bytes, hold: float) -> str:
        if self.process.has_ended:
            return f"the process has ended: {self.service.read_log()[-300:]}"
        if hold:
            return ""
        results = json.loads(out or b"[]")
        statuses = {status for status, _ in results}
        digests = {digest for status, digest in results if status == 200}
        return "" if statuses <= {200, 503} and len(digests) == 1 else f"the lists were read as {statuses}, {digests}"


def work(
    scale: Scale, listings: int, waits: tuple[float, float, float], fault: str | None, engine: str
) -> list[Attack]:
    """Run both attacks on an engine; `waits`: seconds alone, with clients that don't read, and until memory is back."""
    alone, hold, wait = waits
    folder = scale.folder / engine
    folder.mkdir(exist_ok=True)
    with ExitStack() as stack:
        settings = {}
        if engine == "PostgreSQL":
            server = stack.enter_context(PostgresServer())
            settings["LISTINGS_DATABASE_URL"] = stack.enter_context(server.bare_database())
        fork_server = stack.enter_context(ForkServer())
        service = stack.enter_context(RestartableService(folder, fork_server, fault, **settings))
        url = service.environment["LISTINGS_DATABASE_URL"]
        alice, bob, dave = asyncio.run(create_people(folder, 3, database=url))
        asyncio.run(fill(url, alice.account, listings, _TEXT))
        asyncio.run(fill(url, bob.account, _LONG_LISTINGS, _LONG_TEXT))
        service.start()
        asyncio.run(_warm_up(service, dave.key))
        trial = _Trial(service, dave)
        readers = trial.attack("one list", alice, 1, (alone, 0, wait))
        if service.process is not None and service.process.has_ended:
            return [readers]
        holders = trial.attack("unread lists", bob, _CLIENTS, (alone, hold, wait))
        service.kill()
        return [readers, holders]


async def _warm_up(service: RestartableService, key: str) -> None:
    """Load the code first, so that its memory does not count."""
    await service.wait_until_ready()
    connection = Connection(service.port, key)
    for _ in range(100):
        await connection.fetch("POST", PATH, {"title": "Lamp", "content": "Bright."})
        await connection.fetch("GET", PATH)
    connection.close()
