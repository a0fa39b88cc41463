"""Slow clients, a thousand of each kind, and two hundred simultaneous sign-ins, next to good clients.

The short form is in tests/http/test_deadlines.py.
"""

import asyncio
import json
import os
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from typing import NamedTuple

from tests.http import timeouts
from tests.http.raw import PATH, AsyncConnection
from tests.http.test_deadlines import GRACE, Timing, busy_neighbour, steady_client
from tests.torture.instrument import Instrument, Outcome, Scale
from tests.torture.memory import read_status_mib
from tests.torture.services import ROOT, RestartableService, create_people

CLIENTS_PER_KIND = 1000
_TIMEOUT_SECONDS, _CONTROL_TIMEOUT_SECONDS = 8, 100
_ARRIVAL_SECONDS = 5.0  # over which the slow clients connect
_ROUND_SECONDS = 16.0
_GOOD_CLIENTS, _REQUESTS_PER_SECOND = 3, 60  # the rate is per client
_REACTION_SECONDS = 1.0  # until a low-priority process with 5,000 clients notices that a connection was closed
_MAX_GROWTH_MIB = 100.0
_STORM_CLIENTS, _STORM_SECONDS = 200, 5.0
_MAX_RATIO = 2  # of p99
_MAX_ROUNDS = 3  # a stall of the machine may spoil a round


class Round(NamedTuple):
    """Good clients alone and next to slow ones, and the seconds until each slow one was cut off."""

    alone: Timing
    with_slow: Timing
    held_seconds: dict[str, list[float]]
    growth: float  # MiB

    @property
    def meets_target(self) -> bool:
        return self.with_slow.p99 <= 2 * self.alone.p99 + 10


class Storm(NamedTuple):
    """Good clients alone and during a storm of sign-ins, and the number of its responses by status."""

    alone: list[Timing]
    during: list[Timing]
    statuses: dict[str, int]

    @property
    def meets_target(self) -> bool:
        of_slowest = _find_slowest(self.during).p99 <= 2 * _find_slowest(self.alone).p99 + 1
        return of_slowest and self.ratio <= _MAX_RATIO

    @property
    def ratio(self) -> float:
        """The p99 of all requests during the storm, relative to that without."""
        return _merge(self.during).p99 / _merge(self.alone).p99

    def __str__(self) -> str:
        slowest = f"slowest client {_find_slowest(self.alone).p99:.1f} and {_find_slowest(self.during).p99:.1f} ms"
        return f"{_merge(self.alone).p99:.1f} ms without, {_merge(self.during).p99:.1f} ms with them ({slowest})"


class Results(NamedTuple):
    rounds: list[Round]
    storms: list[Storm]


def _run_at_once() -> None:
    """Let the calling thread run as soon as its response arrives, as a client on another machine would."""
    with suppress(PermissionError):  # without it, the figures have the kernel's delays in them
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


def _merge(timings: list[Timing]) -> Timing:
    latencies_ms = [latency for timing in timings for latency in timing.latencies_ms]
    return Timing(latencies_ms, sum(timing.failed for timing in timings))


def _find_slowest(timings: list[Timing]) -> Timing:
    slowest = max(timings, key=lambda timing: timing.p99)
    return slowest._replace(failed=sum(timing.failed for timing in timings))


def _run_good_clients(service: RestartableService, key: str, seconds: float) -> list[Timing]:
    with ThreadPoolExecutor(_GOOD_CLIENTS, initializer=_run_at_once) as pool:
        run = partial(steady_client, service, key, seconds, _REQUESTS_PER_SECOND)
        return list(pool.map(lambda _: run(), range(_GOOD_CLIENTS)))


def _run_round(service: RestartableService, key: str, clients: int) -> Round:
    assert service.process is not None
    pid = service.process.pid
    command = [
        sys.executable,
        "-m",
        "tests.http.slow_clients",
        "127.0.0.1",
        str(service.port),
        key,
        str(clients),
        str(_TIMEOUT_SECONDS),
        str(_ARRIVAL_SECONDS),
    ]
    before = read_status_mib(pid, "VmRSS")
    with busy_neighbour():
        alone = _find_slowest(_run_good_clients(service, key, _ROUND_SECONDS / 3))
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as slow:
            with_slow = _find_slowest(_run_good_clients(service, key, _ROUND_SECONDS))
            out, _ = slow.communicate(timeout=120)
    return Round(alone, with_slow, json.loads(out), read_status_mib(pid, "VmHWM") - before)


def _run_storm(service: RestartableService, key: str) -> Storm:
    numbers = service.port, _STORM_CLIENTS, _STORM_SECONDS + 1
    command = [sys.executable, "-m", "tests.http.sign_in_storm", *map(str, numbers)]
    alone = _run_good_clients(service, key, _STORM_SECONDS)
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as storm:
        during = _run_good_clients(service, key, _STORM_SECONDS)
        out, _ = storm.communicate(timeout=120)
    return Storm(alone, during, json.loads(out))


async def _prepare(service: RestartableService, key: str) -> None:
    await service.wait_until_ready()
    connection = AsyncConnection(service.port, key)
    await connection.fetch("POST", PATH, {"title": "Large", "content": "x" * 30_000})  # to make lists long enough
    connection.close()


def work(scale: Scale, clients: int, timeout: int, rounds: int, fault: str = "set_timeouts") -> Results:
    """Run rounds of either kind until one meets the target, at most `rounds`."""
    settings = {
        timeouts.VARIABLE: str(timeout),
        "LISTINGS_TRUSTED_PROXIES": "127.0.0.1",
    }  # so that each sign-in has an address of its own
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # inherited by the slow clients
    results = Results([], [])
    with ExitStack() as stack:
        service = stack.enter_context(RestartableService(scale.folder, fault, **settings))
        (alice,) = asyncio.run(create_people(scale.folder, 1))
        service.start()
        asyncio.run(_prepare(service, alice.key))
        while len(results.rounds) < rounds and not any(it.meets_target for it in results.rounds):
            results.rounds.append(_run_round(service, alice.key, clients))
        while len(results.storms) < rounds and not any(it.meets_target for it in results.storms):
            results.storms.append(_run_storm(service, alice.key))
        service.stop()
    return results


def find_failures(results: list[Round], clients: int) -> list[str]:
    failures = [
        f"{it.alone.failed + it.with_slow.failed} good requests failed" for it in results if it.with_slow.failed
    ]
    for it in results:
        for kind, seconds in it.held_seconds.items():
            if len(seconds) != clients:
                failures.append(f"only {len(seconds)} of {clients} {kind} clients could connect")
            elif seconds[-1] > _TIMEOUT_SECONDS + 1 + GRACE[kind] + _REACTION_SECONDS:
                failures.append(
                    f"{kind}: a client was cut off after {seconds[-1]:.1f} s, allowed: {_TIMEOUT_SECONDS} s"
                )
            elif seconds[0] < _TIMEOUT_SECONDS - 0.1:
                failures.append(f"{kind}: a client was cut off after only {seconds[0]:.1f} s")
    if not any(it.meets_target for it in results):
        failures += [f"p99 is {it.with_slow.p99:.1f} ms with them, {it.alone.p99:.1f} ms without" for it in results]
    if results[0].growth > _MAX_GROWTH_MIB:
        failures.append(f"the process grew by {results[0].growth:.0f} MiB")
    return failures


def find_storm_failures(storms: list[Storm]) -> list[str]:
    """Return the deviations from the target in the storms of sign-ins."""
    failed = [_merge(it.during).failed for it in storms]
    failures = [f"{count} good requests failed" for count in failed if count]
    failures += [f"sign-ins got {it.statuses}" for it in storms if not {"403"} <= it.statuses.keys() <= {"403", "503"}]
    if not any(it.meets_target for it in storms):
        failures += [f"p99 in a storm: {it}" for it in storms]
    return failures


def run(scale: Scale) -> Outcome:
    """Run a thousand clients of each kind in a full run."""
    clients = scale.amount(CLIENTS_PER_KIND, 20)
    results, storms = work(scale, clients, _TIMEOUT_SECONDS, _MAX_ROUNDS)
    best = min(results, key=lambda it: it.with_slow.p99 - 2 * it.alone.p99)
    times = f"p99 {best.alone.p99:.1f} ms without them, {best.with_slow.p99:.1f} ms with them"
    longest = max(max(seconds) for it in results for seconds in it.held_seconds.values())
    storm = min(storms, key=lambda it: (not it.meets_target, it.ratio))
    summary = (
        f"{clients:,} of each of 5 kinds: {times}, cut off after at most {longest:.1f} s, "
        f"memory {results[0].growth:+.0f} MiB; "
        f"{_STORM_CLIENTS} simultaneous sign-ins: {storm}"
    )
    failures = find_failures(results, clients) + find_storm_failures(storms)
    return Outcome(summary, failures, clients >= CLIENTS_PER_KIND)


def control(scale: Scale) -> Outcome:
    """Use timeouts that are much too long, and check passwords in the event loop."""
    fault = "check_passwords_in_the_event_loop"
    results, storms = work(scale, 5, _CONTROL_TIMEOUT_SECONDS, 1, fault)
    found = find_storm_failures(storms)
    if not found:
        return Outcome(f"{fault} was not found")
    return Outcome(f"timeouts of {_CONTROL_TIMEOUT_SECONDS} s; {fault}", found + find_failures(results, 5))


INSTRUMENT = Instrument(
    9,
    "clients that send headers or bodies slowly, send nothing, stay idle, or read slowly; 200 simultaneous sign-ins",
    "1,000 of each, 200 sign-ins: good clients 0 errors, p99 at most 2 × alone + 10 ms (sign-ins: 2 × alone, the"
    " slowest client 1 ms more); cut off in time; memory at most +100 MiB",
    3,
    run,
    control,
    short_fraction=0.02,
)
