"""Expensive requests: lists of 300 MB, sixty unread lists of 24 MB, large bodies, dry runs of batches, and exports."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, nullcontext
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import asyncpg

from listings import wiring
from listings.domain.model import Account, NewListing, bucket_of
from tests.harness import Person, load_test_settings
from tests.http import timeouts
from tests.http.raw import PATH, AsyncConnection
from tests.http.test_deadlines import Timing, busy_neighbour, steady_client
from tests.postgres_server import PostgresServer
from tests.torture.instrument import Instrument, Outcome, Scale
from tests.torture.memory import read_status_mib, reset_peak
from tests.torture.services import ROOT, RestartableService, create_people

_LISTINGS, _TEXT = 60_000, "A lamp of brass. " * 300  # 5 kB each
_LONG_LISTINGS, _LONG_TEXT = 60, "💡" * 100_000  # 400 kB each
_SEARCHED_LISTINGS, _SEARCHED_TEXT = 1_000, "A lamp of brass. " * 1_200  # 20 kB each; the account is indexed
_CLIENTS = 60
_QUERIES = tuple(  # the attack must last as long as the time alone, and each list must be read from the database
    f"{PATH}?{query}&price_max={price}"
    for price in (1000, 2000, 3000)
    for query in ("sort=title", "limit=50", "status=all&q=lamp", "include=all")
)
_KINDS = 4  # of queries, one after the other
_VALUES = 600_000  # in a body of 1.8 MB
_UPDATES = 40  # in the dry run of a batch
_EXPORTS = 100  # 1.3 MB of memory each
_READERS = 4  # of exports; an account may have two
_PASSWORD = "wide rivers run 7"
_ALONE_SECONDS, _HOLD_SECONDS = 5.0, 10.0
_RETURN_SECONDS = 10.0  # until memory must be returned
_SHORT_SECONDS = (0.3, 2.0, 0.5)
_CONTROL_SECONDS = (0.3, 10.0, 0.5)  # the attacks of the control end once they have grown the process
_REQUESTS_PER_SECOND = 200
_MAX_GROWTH_MIB = 64.0
_MAX_LEFT_MIB = 24.0
_MAX_P99_MS = 100.0
_MAX_RATIO = 2.0
_EXTRA_MS = 1.0  # permitted in addition during all attacks but the first two, which have the strict target
_MAX_ROUNDS = 3  # a stall of the machine may spoil a round

_SELECT = (
    "SELECT n * 1024 + {bucket}, {bucket}, {account}, 'Lamp ' || n, {text}, 'product', 'Lighting', '[]', n, 'fixed',"
    " 'Attic', 'Otago', '', {yes}, 1, '2026-01-02 03:04:05', '2026-01-02 03:04:05'"
)
_INSERT = (
    "INSERT INTO listings (id, bucket, account_id, title, content, type, category, images, price_cents, price_type,"
    " location, region, district, is_active, market_version, created_at, updated_at) "
)
_COUNT = "UPDATE account_state SET listings = {count}, revision = 1 WHERE account_id = {account}"
_SKIP_IDS = (
    "INSERT INTO listing_ids (bucket, last) VALUES ({bucket}, {count})"
    " ON CONFLICT (bucket) DO UPDATE SET last = excluded.last"
)
_SQLITE_NUMBERS = "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count}) "


class Attack(NamedTuple):
    name: str
    requests: list[str]
    clients: int
    hold: float = 0.0  # seconds for which no client reads; 0 if they read their responses
    statuses: frozenset[int] = frozenset({200})
    holds_last_byte: bool = False  # until all others have been sent
    extra_ms: float = _EXTRA_MS


class Measurement(NamedTuple):
    """A neighbour alone and next to an attack, and what the attack did to the service."""

    name: str
    alone: Timing
    during: Timing
    growth: float  # MiB over rest, at most
    left: float  # MiB over rest, some time after the attack
    extra_ms: float
    failure: str = ""

    @property
    def is_fast(self) -> bool:
        allowed = min(_MAX_P99_MS, _MAX_RATIO * self.alone.p99 + self.extra_ms)
        return not self.during.failed and self.during.p99 <= allowed

    def __str__(self) -> str:
        times = f"p99 {self.alone.p99:.1f} ms alone, {self.during.p99:.1f} ms during"
        longest = f"longest {max(self.during.latencies_ms):.0f} ms"
        return f"{self.name}: {times} ({longest}), memory {self.growth:+.0f} MiB, {self.left:+.0f} MiB afterwards"


async def fill(url: str, account: Account, count: int, text: str) -> None:
    values = {"bucket": bucket_of(account.id), "account": account.id, "text": f"'{text}'"}
    counted = _COUNT.format(count=count, account=account.id)
    skipped = _SKIP_IDS.format(count=count, bucket=values["bucket"])
    if url.startswith("sqlite"):
        with closing(apsw.Connection(url.removeprefix("sqlite:///"))) as connection:
            numbers, select = _SQLITE_NUMBERS.format(count=count), _SELECT.format(yes="1", **values)
            connection.execute(f"{numbers} {_INSERT} {select} FROM numbers").fetchall()
            connection.execute(f"{counted}; {skipped}").fetchall()
        return
    session = await asyncpg.connect(url)
    select = _SELECT.format(yes="TRUE", **values)
    await session.execute(f"{_INSERT} {select} FROM generate_series(1, {count}) AS n")
    await session.execute(f"{counted}; {skipped}")
    await session.execute("VACUUM ANALYZE listings")
    await session.close()


async def index(folder: Path, url: str, person: Person) -> None:
    """Create another listing in a person's account, which makes it large enough, and index it."""
    async with wiring.open_services(load_test_settings(folder, database=url)) as services:
        caller = await services.access.authenticate(person.key)
        await services.listings.create(caller, NewListing(title="Lamp", content=_SEARCHED_TEXT))
        while await services.market.index_accounts():
            pass


def build_request(method: str, path: str, header: str, body: str = "") -> str:
    """Return a request of a client that closes its connection afterwards."""
    lines = (f"{method} {path} HTTP/1.1", "Host: localhost", header, f"Content-Length: {len(body)}")
    return "\r\n".join((*lines, "AsyncConnection: close", "", body))


def build_attacks(
    engine: str, owners: tuple[Person, Person, Person], session: str, hold: float, queries: int
) -> Iterator[Attack]:
    """Yield the attacks.

    The owners: Alice has many listings, Bob long ones, and Frank indexed ones. A member with long ones has `session`.
    """
    alice, bob, frank = owners

    def get(person: Person, path: str) -> str:
        return build_request("GET", path, f"X-API-Key: {person.key}")

    def post(path: str, body: str) -> str:
        return build_request("POST", path, f"X-API-Key: {bob.key}", body)

    yield Attack(f"{engine}, one list", [get(alice, PATH)], 1, extra_ms=0)
    yield Attack(f"{engine}, unread lists", [get(bob, PATH)], _CLIENTS, hold, extra_ms=0)
    yield Attack(f"{engine}, queries", [get(bob, query) for query in _QUERIES], queries)
    searches = [get(frank, f"{PATH}?q={words}") for words in ("lamp", "brass&sort=title")]
    yield Attack(f"{engine}, searches", searches, _CLIENTS, hold)
    body = f'{{"title": "t", "content": "c", "x": [{",".join(["[]"] * _VALUES)}]}}'
    yield Attack(
        f"{engine}, bodies", [post(PATH, body)], _CLIENTS, statuses=frozenset({400, 503}), holds_last_byte=True
    )
    ids = [number * 1024 + bucket_of(bob.account.id) for number in range(1, 1 + _UPDATES)]
    updates = [{"op": "update", "id": listing_id, "changes": {"content": "x"}} for listing_id in ids]
    dry_run = post(f"{PATH}/batch?dry_run=true", json.dumps({"operations": updates}))
    yield Attack(f"{engine}, dry runs", [dry_run], _CLIENTS, hold)
    export = build_request("GET", "/console/export?format=jsonl", f"Cookie: listings_session={session}")
    yield Attack(f"{engine}, unread exports", [export], _EXPORTS, 2 * hold)  # they are sent in turns
    yield Attack(f"{engine}, exports", [export], _READERS, statuses=frozenset({200, 503}))


async def sign_up(folder: Path, url: str) -> tuple[Account, str]:
    async with wiring.open_services(load_test_settings(folder, database=url, sign_up="on")) as services:
        token = await services.sessions.sign_up("Erin", "erin@example.com", _PASSWORD, "127.0.0.1")
        member = await services.sessions.find_member(token)
        assert member is not None
        return member.account, token


def run_when_idle() -> None:
    """Take no processor time from the service; runs in the clients' process before its program starts."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


@contextmanager
def _running(service: RestartableService, attack: Attack, *, is_timed: bool) -> Iterator[Any]:
    command = [sys.executable, "-m", "tests.torture.expensive_clients"]
    values = {"port": service.port, "requests": attack.requests, "count": attack.clients, "seconds": attack.hold}
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=run_when_idle if is_timed or attack.hold else None,  # noqa: PLW1509 - it takes no lock
    ) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps(values | {"holds_last_byte": attack.holds_last_byte}).encode())
        process.stdin.close()
        process.stdin = None
        try:
            yield process
        finally:
            process.kill()


class _Trial:
    def __init__(self, service: RestartableService, neighbour: Person, *, is_timed: bool) -> None:
        assert service.process is not None
        self.is_timed = is_timed
        self.service = service
        self.process = service.process
        self.key = neighbour.key

    def measure(self, seconds: float) -> Timing:
        try:
            return steady_client(self.service, self.key, seconds, _REQUESTS_PER_SECOND)
        except (OSError, EOFError, ValueError, AssertionError):
            return Timing([1000 * seconds] * 2, 1)

    def run(self, attack: Attack, seconds: "Seconds") -> Measurement:
        """Measure the neighbour alone and during an attack."""
        pid = self.process.pid
        rest = read_status_mib(pid, "VmRSS")
        reset_peak(pid)
        neighbour = busy_neighbour() if self.is_timed else nullcontext()  # only latencies depend on it
        with neighbour, ThreadPoolExecutor(1) as thread:
            alone = self.measure(seconds.alone)
            with _running(self.service, attack, is_timed=self.is_timed) as clients:
                during = [self.measure(1.0)]
                while clients.poll() is None and not self.process.has_ended:
                    during.append(self.measure(1.0))
                    if not self.is_timed and read_status_mib(pid, "VmHWM") - rest > _MAX_GROWTH_MIB:
                        break
                out = thread.submit(clients.communicate).result()[0] if clients.poll() is not None else b""
        growth = read_status_mib(pid, "VmHWM") - rest
        time.sleep(seconds.wait)
        left = read_status_mib(pid, "VmRSS") - rest
        timing = Timing([ms for one in during for ms in one.latencies_ms], sum(one.failed for one in during))
        failure = self._find_failure(out, attack)
        return Measurement(attack.name, alone, timing, growth, left, attack.extra_ms, failure)

    def _find_failure(self, out: bytes, attack: Attack) -> str:
        if self.process.has_ended:
            return f"the process has ended: {self.service.read_log()[-300:]}"
        if attack.hold:
            return ""
        bodies: dict[int, set[str]] = {}
        for number, status, digest in json.loads(out or b"[]"):
            if status not in attack.statuses:
                return f"request {number} returned {status}"
            if status == HTTPStatus.OK:
                bodies.setdefault(number, set()).add(digest)
        is_complete = bodies or HTTPStatus.OK not in attack.statuses
        return "" if is_complete and all(len(each) == 1 for each in bodies.values()) else f"different bodies: {bodies}"


class Seconds(NamedTuple):
    """How long to measure alone, to hold responses, and to wait for the memory."""

    alone: float
    hold: float
    wait: float


def work(folder: Path, listings: int, seconds: Seconds, rounds: int, fault: str) -> list[Measurement]:
    """Run the attacks on both engines; repeat one whose neighbour is slow, up to `rounds` times."""
    return [
        measurement
        for engine in ("SQLite", "PostgreSQL")
        for measurement in work_on(engine, folder / engine, listings, seconds, rounds, fault)
    ]


def work_on(
    engine: str, folder: Path, listings: int, seconds: Seconds, rounds: int, fault: str
) -> Iterator[Measurement]:
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        settings = {timeouts.VARIABLE: "30"}
        if engine == "PostgreSQL":
            server = stack.enter_context(PostgresServer())
            settings["LISTINGS_DATABASE_URL"] = stack.enter_context(server.bare_database())
        service = stack.enter_context(RestartableService(folder, fault, **settings))
        url = service.environment["LISTINGS_DATABASE_URL"]
        alice, bob, dave, frank = asyncio.run(create_people(folder, 4, database=url))
        erin, session = asyncio.run(sign_up(folder, url))
        asyncio.run(fill(url, alice.account, listings, _TEXT))
        for account in (bob.account, erin):
            asyncio.run(fill(url, account, _LONG_LISTINGS, _LONG_TEXT))
        asyncio.run(fill(url, frank.account, _SEARCHED_LISTINGS, _SEARCHED_TEXT))
        asyncio.run(index(folder, url, frank))
        trial = _start(service, dave, is_timed=rounds > 1)
        queries = len(_QUERIES) if rounds > 1 else _KINDS
        for attack in build_attacks(engine, (alice, bob, frank), session, seconds.hold, queries):
            found: list[Measurement] = []
            while len(found) < rounds and not any(it.is_fast or it.failure for it in found):
                found.append(trial.run(attack, seconds))
            yield found[-1]
            if trial.process.has_ended:
                return
            if found[-1].left > _MAX_LEFT_MIB:  # it would hide the growth of the next attack
                service.kill()
                trial = _start(service, dave, is_timed=rounds > 1)
        service.kill()  # its sessions would block DROP DATABASE


def _start(service: RestartableService, neighbour: Person, *, is_timed: bool) -> _Trial:
    service.start()
    asyncio.run(_warm_up(service, neighbour.key))
    return _Trial(service, neighbour, is_timed=is_timed)


async def _warm_up(service: RestartableService, key: str) -> None:
    """Load the code first, so that its memory does not count."""
    await service.wait_until_ready()
    connection = AsyncConnection(service.port, key)
    for _ in range(100):
        await connection.fetch("POST", PATH, {"title": "Lamp", "content": "Bright."})
        await connection.fetch("GET", PATH)
    connection.close()


def find_failures(attacks: list[Measurement], *, timed: bool) -> list[str]:
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
    """Build all lists in memory, and accept any number of bodies, dry runs and exports; on both engines."""
    attacks = work(scale.folder / "control", 2000, Seconds(*_CONTROL_SECONDS), 1, "use_unlimited_memory")
    return Outcome(f"unlimited memory: {'; '.join(map(str, attacks))}", find_failures(attacks, timed=False))


INSTRUMENT = Instrument(
    17,
    "expensive requests in 512 MiB of memory: a list of 300 MB, 60 unread ones of 24 MB, filtered and searched ones, 60"
    " unread ones of an indexed account, 60 bodies with 600,000 values, 60 dry runs of batches, and 100 exports",
    "others' p99 at most 2 × alone (1 ms more for all but the first two) and 100 ms, memory at most +64 MiB, returned"
    " within 10 s",
    5,
    run,
    control,
)
