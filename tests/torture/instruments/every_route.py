"""Every route: a thousand clients that read nothing of the largest response, or send the largest body slowly.

`python -m tests.torture.instruments.every_route [TEXT]` runs the attacks whose names contain the text.
"""

import asyncio
import json
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from tests.http import timeouts
from tests.http.raw import PATH, Connection, request
from tests.http.test_deadlines import Timing, busy_neighbour, steady_client
from tests.torture.instrument import Instrument, Outcome, Scale
from tests.torture.instruments.expensive_requests import run_when_idle
from tests.torture.memory import read_status_mib, reset_peak
from tests.torture.route_data import Data, Owner, prepare
from tests.torture.routes import SMALL_BYTES, TABLE, Caller, Request, Route
from tests.torture.services import ROOT, RestartableService

_CLIENTS, _SHORT_CLIENTS, _OWNERS, _SITEMAP_LISTINGS = 1_000, 200, 20, 10_000
_HELD_BYTES = 100  # of a body, of which one is sent every second
_SMALL_REPEATED = 4  # times all small routes, on each connection
_REQUESTS_PER_SECOND = 200
_SETTLED_STEPS, _SETTLED_MIB = 2, 1.0  # without more growth than this, an attack has done what it can
_MIN_SECONDS = 3.0  # in which a busy machine has begun to serve the clients
_STEP_SECONDS, _ALONE_SECONDS, _SHORT_SECONDS = 1.0, 2.0, 0.3
_MAX_SECONDS = 15.0
_MAX_GROWTH_MIB = 64.0
_RETURN_SECONDS, _MAX_RETURNED_RATIO = 30.0, 1.5
_MAX_RATIO, _EXTRA_MS = 2.0, 1.0
_MAX_ROUNDS = 3  # a stall of the machine may spoil a round
_PROBE_SECONDS = 5.0
_PROBE_BODY_BYTES, _PROBE_PIECES, _PIECE_SECONDS = 90_000, 4, 0.02
_REJECTED = {429, 503}

_SETTINGS = {timeouts.VARIABLE: "30", "LISTINGS_TRUSTED_PROXIES": "127.0.0.1"}
_NEEDED: Mapping[str, Mapping[str, str]] = {
    "": {},
    "mail": {
        "LISTINGS_SMTP_URL": "smtp://127.0.0.1:1",
        "LISTINGS_MAIL_FROM": "market@example.com",
        "LISTINGS_BASE_URL": "http://localhost",
        "LISTINGS_CONTACT": "help@example.com",
    },
    "operator": {"LISTINGS_OPERATOR_PAGE": "on"},
    "stripe": {
        "LISTINGS_PAYMENT_PROVIDER": "stripe",
        "LISTINGS_STRIPE_SECRET_KEY": "sk_test",
        "LISTINGS_STRIPE_WEBHOOK_SECRET": "whsec_test",
    },
}

SHORT = (
    "GET /api/v1/listings of a key",
    "POST /console/import/rejected of a session",
    "POST /console/import/rejected of a session, many owners",
    "GET /api/v1/changes of a key",
    "GET /listings/{id} of a visitor",
    "GET /docs of a visitor",
    "small responses",
    "slow bodies of one session",
)
"""The attacks of the short form: one of each kind."""


class Attack(NamedTuple):
    """The requests of the clients. Each is on a connection of its own."""

    name: str
    caller: Caller
    requests: Sequence[Request]
    statuses: frozenset[int]
    is_many: bool = False  # whether the requests have many owners
    held: int = 0  # bytes at the end of each body, which is sent slowly
    is_constant: bool = False
    needs: frozenset[str] = frozenset()
    first: Sequence[bytes] = ()  # requests that load the code and templates of the attack, so that they do not count


class Measurement(NamedTuple):
    """The effects of an attack on the service and its neighbour."""

    name: str
    bytes: int  # of the request's response
    alone: Timing
    during: Timing
    start: float  # MiB
    growth: float  # MiB, at most
    left: float  # MiB, some time after the attack
    statuses: Mapping[int, int]
    failures: Sequence[str]  # other than of latency and memory

    @property
    def is_fast(self) -> bool:
        return not self.during.failed and self.during.p99 <= _MAX_RATIO * self.alone.p99 + _EXTRA_MS

    def find_failures(self, *, timed: bool) -> list[str]:
        """Return the deviations from the target; those of the neighbour's latency only if `timed`."""
        found = [f"{self.name}: {failure}" for failure in self.failures]
        is_small = self.growth <= _MAX_GROWTH_MIB and self.left <= _MAX_RETURNED_RATIO * self.start
        if self.during.failed:
            found.append(f"{self.name}: {self.during.failed} requests of others failed")
        return found if is_small and (self.is_fast or not timed) else [*found, f"{self}"]

    def __str__(self) -> str:
        statuses = ", ".join(f"{count} × {status or 'none'}" for status, count in sorted(self.statuses.items()))
        times = f"p99 {self.alone.p99:.1f} ms alone, {self.during.p99:.1f} ms during"
        memory = f"memory {self.start:.0f} MiB {self.growth:+.0f} MiB, {self.left - self.start:+.0f} MiB afterwards"
        return f"{self.name} ({self.bytes:,} bytes): {times}, {memory} ({statuses})"


class Probe(NamedTuple):
    """A request of others that must succeed during an attack."""

    name: str
    caller: Caller | None  # None if its response is constant
    data: bytes
    is_slow: bool = False  # whether it is sent in several pieces

    def fetch(self, service: RestartableService) -> int:
        """Return the status of the response, or 0 without one."""
        pieces = _PROBE_PIECES if self.is_slow else 1
        size = -(-len(self.data) // pieces)
        try:
            with Connection(service) as connection:
                connection.socket.settimeout(_PROBE_SECONDS)
                for start in range(0, len(self.data), size):
                    connection.send(self.data[start : start + size])
                    time.sleep(_PIECE_SECONDS if self.is_slow else 0)
                return connection.read_response().status
        except (OSError, ValueError):
            return 0


def build_probes(owner: Owner) -> list[Probe]:
    values = owner.values | {"network": "203.0.113.9"}

    def build(route: Route) -> bytes:
        return route.build(values).encode()

    text = "x" * _PROBE_BODY_BYTES
    body = f'{{"title": "Lamp", "content": "{text}"}}'.encode()
    constant = [
        Probe(build(route).split(maxsplit=2)[1].decode(), None, build(route)) for route in TABLE if route.is_constant
    ]
    preview = Route("POST", "/console/listings/new/preview", "session", body=f"token=$token&title=Lamp&content={text}")
    return [
        *constant,
        Probe("a list", "key", build(Route("GET", PATH, "key"))),
        Probe("a body", "key", request("POST", f"{PATH}?dry_run=true", owner.key, body=body), is_slow=True),
        Probe("a form", "session", build(Route("GET", "", "session", "/console/listings/$quoted"))),
        Probe("a preview", "session", build(preview), is_slow=True),
        Probe("a search", "visitor", build(Route("GET", "", "visitor", "/?q=lamp"))),
    ]


def build_attacks(data: Data, sizes: Mapping[Route, int]) -> Iterator[Attack]:
    small = [route for route in TABLE if sizes[route] < SMALL_BYTES]
    yield _build_small(data, small)
    for route in TABLE:
        if route not in small:
            for many in (False, True) if route.many else (False,):
                yield _build_attack(data, route, many=many)
    for caller in ("key", "session", "visitor"):
        for many in (False, True):
            yield _build_slow_bodies(data, caller, many=many)


def _build_attack(data: Data, route: Route, *, many: bool) -> Attack:
    requests = [route.build(values) for values in data.list_values(route, many=many)]
    name = f"{route.name}{', many owners' if many else ''}"
    statuses = frozenset({route.status} if route.is_constant else {route.status, *_REJECTED})
    first = [requests[0].encode()]
    return Attack(name, route.caller, requests, statuses, many, 0, route.is_constant, frozenset({route.needs}), first)


def _build_small(data: Data, routes: Sequence[Route]) -> Attack:
    """Return the attack with all small routes, one after the other. Its clients begin with different ones."""
    requests = []
    for first in range(len(routes)):
        chosen = [*routes[first:], *routes[:first]] * _SMALL_REPEATED
        whole = b"".join(route.build(data.attacker.values).encode() for route in chosen)
        requests.append(Request(whole.decode("latin-1"), "", 0))
    statuses = frozenset({*_REJECTED, *(route.status for route in routes)})
    needs = frozenset(route.needs for route in routes)
    alone = [route.build(data.attacker.values).encode() for route in routes]
    return Attack("small responses", "visitor", requests, statuses, needs=needs, first=alone)


def _build_slow_bodies(data: Data, caller: Caller, *, many: bool) -> Attack:
    """Return the attack on all routes that take a body from such a caller."""
    routes = [route for route in TABLE if route.body and route.caller == caller]
    requests = [
        route._replace(fill=route.fill or "x").build(values)
        for route in routes
        for values in data.list_values(route, many=many)[:_OWNERS]
    ]
    needs = frozenset(route.needs for route in routes)
    statuses = frozenset({0, 400, 403, 413, *_REJECTED})  # most wait for the rest of the body
    name = f"slow bodies of {'many' if many else 'one'} {caller}{'s' if many else ''}"
    return Attack(name, caller, requests, statuses, many, _HELD_BYTES, needs=needs)


class Trial:
    """A prepared database, and services that run on copies of it."""

    def __init__(self, folder: Path, data: Data, fault: str, *, clients: int, timed: bool) -> None:
        self._prepared = folder
        self._data = data
        self._fault = fault
        self._clients = clients
        self._is_timed = timed
        self._probes = build_probes(data.neighbour)

    @contextmanager
    def _serve(self, needs: Iterable[str]) -> Iterator[RestartableService]:
        settings = dict(_SETTINGS)
        for name in needs:
            settings |= _NEEDED[name]
        # The index process of a killed service may still write.
        with tempfile.TemporaryDirectory(dir=self._prepared.parent, ignore_cleanup_errors=True) as name:
            folder = Path(name) / "data"
            shutil.copytree(self._prepared, folder)
            with RestartableService(folder, self._fault, **settings) as service:
                service.start()
                asyncio.run(service.wait_until_ready())
                yield service

    def measure_sizes(self) -> dict[Route, int]:
        """Return the size of each route's response. Raise AssertionError if its status is not that of the table."""
        sizes = {}
        for needs in _NEEDED:
            with self._serve([needs]) as service:
                for route in (one for one in TABLE if one.needs == needs):
                    values = self._data.list_values(route, many=False)[0]
                    status, sizes[route] = fetch(service.port, route.build(values).encode())
                    assert status == route.status, f"{route.name}: {status}"
        return sizes

    def run(self, attack: Attack, size: int) -> Measurement:
        """Measure a neighbour alone and during an attack; once more if it was slow, because the machine may stall."""
        found: list[Measurement] = []
        while len(found) < (_MAX_ROUNDS if self._is_timed else 1) and not any(it.is_fast for it in found):
            with self._serve(attack.needs) as service:
                found.append(self._run_once(service, attack, size))
            if found[-1].find_failures(timed=False):  # no round can pass
                break
        return found[-1]

    def _run_once(self, service: RestartableService, attack: Attack, size: int) -> Measurement:
        assert service.process is not None
        pid = service.process.pid
        failures = Counter(
            f"{probe.name} failed before the attack" for probe in self._probes if not probe.fetch(service)
        )
        step, time_alone = (_STEP_SECONDS, _ALONE_SECONDS) if self._is_timed else (_SHORT_SECONDS, _SHORT_SECONDS)
        self._measure(service, step)  # loads the code, so that its memory does not count
        for data in attack.first:
            fetch(service.port, data)
        with busy_neighbour() if self._is_timed else nullcontext():  # only latencies depend on it
            alone = self._measure(service, time_alone)
            start = read_status_mib(pid, "VmRSS")
            reset_peak(pid)
            during, peaks = [], [start]
            with self._attack(service, attack) as clients:
                began = time.monotonic()
                while not service.process.has_ended and time.monotonic() < began + _MAX_SECONDS:
                    during.append(self._measure(service, step))
                    failures.update(self._probe(service, attack))
                    peaks.append(read_status_mib(pid, "VmHWM"))
                    if self._is_done(peaks) and clients.are_connected and time.monotonic() > began + _MIN_SECONDS:
                        break
                statuses = clients.leave()
        has_failed = max(peaks) > start + _MAX_GROWTH_MIB
        left = _wait_for_memory(pid, start, 0 if has_failed and not self._is_timed else _RETURN_SECONDS)
        failures.update(_find_failures(service, attack, statuses))
        timing = Timing([ms for one in during for ms in one.latencies_ms], sum(one.failed for one in during))
        texts = [f"{count} times: {text}" for text, count in failures.items()]
        return Measurement(attack.name, size, alone, timing, start, max(peaks) - start, left, statuses, texts)

    def _is_done(self, peaks: Sequence[float]) -> bool:
        """Return whether the process has settled, or whether the short form has failed already."""
        has_failed = peaks[-1] > peaks[0] + _MAX_GROWTH_MIB
        is_settled = len(peaks) > _SETTLED_STEPS and peaks[-1] < peaks[-1 - _SETTLED_STEPS] + _SETTLED_MIB
        return is_settled or (has_failed and not self._is_timed)

    def _measure(self, service: RestartableService, seconds: float) -> Timing:
        try:
            return steady_client(service, self._data.neighbour.key, seconds, _REQUESTS_PER_SECOND)
        except (OSError, EOFError, ValueError, AssertionError):
            return Timing([1000 * seconds] * 2, 1)

    def _probe(self, service: RestartableService, attack: Attack) -> Iterator[str]:
        """Yield the others' requests that fail, until one gets no response.

        Many owners of a class may fill it, but constant responses remain.
        """
        for probe in self._probes:
            if not (attack.is_many and probe.caller == attack.caller):
                status = probe.fetch(service)
                if status in {0, *_REJECTED}:
                    yield f"{probe.name} of another was {status or 'without a response'}"
                if not status:
                    return

    @contextmanager
    def _attack(self, service: RestartableService, attack: Attack) -> Iterator["_Clients"]:
        command = [sys.executable, "-m", "tests.torture.route_clients"]
        values = {"port": service.port, "requests": attack.requests, "count": self._clients, "held": attack.held}
        with subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            preexec_fn=run_when_idle if self._is_timed else None,  # noqa: PLW1509 - it takes no lock
        ) as process:
            try:
                yield _Clients(process, values)
            finally:
                process.kill()


class _Clients:
    def __init__(self, process: Any, values: Mapping[str, object]) -> None:
        self._process = process
        process.stdin.write(json.dumps(values).encode() + b"\n")
        process.stdin.flush()

    @property
    def are_connected(self) -> bool:
        return bool(select.select([self._process.stdout], [], [], 0)[0])

    def leave(self) -> dict[int, int]:
        """Close all connections. Return the number of clients by the status of their responses."""
        self._process.stdin.close()
        lines = self._process.stdout.read().split(b"\n")
        return {int(status): count for status, count in json.loads(lines[-2]).items()}


def fetch(port: int, data: bytes) -> tuple[int, int]:
    """Send a request on a connection of its own. Return the status and the size of the response."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(data.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
        size, status = 0, 0
        while piece := client.recv(1 << 20):
            status = status or int(piece.split(maxsplit=2)[1])
            size += len(piece)
    return status, size


def _wait_for_memory(pid: int, start: float, seconds: float) -> float:
    """Wait until enough memory is returned, for at most so many seconds. Return the MiB that are left."""
    end = time.monotonic() + seconds
    while (left := read_status_mib(pid, "VmRSS")) > _MAX_RETURNED_RATIO * start and time.monotonic() < end:
        time.sleep(0.2)
    return left


def _find_failures(service: RestartableService, attack: Attack, statuses: Mapping[int, int]) -> Iterator[str]:
    assert service.process is not None
    if service.process.has_ended:
        yield f"the process has ended: {service.read_log()[-300:]}"
    yield from (f"{count} × {status}" for status, count in statuses.items() if status and status not in attack.statuses)
    if attack.is_constant and statuses.get(0):
        yield f"{statuses[0]} without a response"


def work(
    folder: Path, fault: str, clients: int, is_chosen: Callable[[str], bool], *, timed: bool
) -> Iterator[Measurement]:
    prepared = folder / "prepared"
    prepared.mkdir(parents=True)
    data = asyncio.run(prepare(prepared, _OWNERS if timed else 4, _SITEMAP_LISTINGS if timed else 1_000))
    trial = Trial(prepared, data, fault, clients=clients, timed=timed)
    sizes = trial.measure_sizes()
    by_name = {route.name: size for route, size in sizes.items()}
    for attack in build_attacks(data, sizes):
        if is_chosen(attack.name):
            yield trial.run(attack, by_name.get(attack.name.removesuffix(", many owners"), 0))


def _summarize(found: Sequence[Measurement], *, timed: bool) -> Outcome:
    failures = [failure for one in found for failure in one.find_failures(timed=timed)]
    return Outcome("; ".join(map(str, found)), failures, timed)


def run(scale: Scale) -> Outcome:
    """Run all attacks with memory for the whole program of 512 MiB; in the short form, one of each kind."""
    if scale.fraction < 1:
        found = work(scale.folder, "limit_memory", _SHORT_CLIENTS, SHORT.__contains__, timed=False)
        return _summarize(list(found), timed=False)
    return _summarize(list(work(scale.folder, "limit_memory", _CLIENTS, lambda _: True, timed=True)), timed=True)


def control(scale: Scale) -> Outcome:
    """Hold any number of unread responses and of large bodies."""
    folder, chosen = scale.folder / "control", SHORT[:2]
    found = work(folder, "use_unlimited_memory", _SHORT_CLIENTS, chosen.__contains__, timed=False)
    return _summarize(list(found), timed=False)


INSTRUMENT = Instrument(
    20,
    "every route in 512 MiB of memory: 1,000 clients that read nothing of the largest response, of one owner and of"
    " many, or that send the largest body slowly",
    "others' p99 at most 2 × alone + 1 ms, memory at most +64 MiB, at most 1.5 × the start 30 s later, constant"
    " responses never 503",
    9,
    run,
    control,
)


def main() -> None:
    text = "".join(sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="listings-torture-", ignore_cleanup_errors=True) as name:
        for found in work(Path(name), "limit_memory", _CLIENTS, lambda attack: text in attack, timed=True):
            print(found, *found.find_failures(timed=True), sep="\n  ! ", flush=True)  # noqa: T201 - the result


if __name__ == "__main__":
    main()
