"""Slow and many: a thousand clients of each slow kind, and good ones beside them.

The short form is in tests/http/test_deadlines.py.
"""

import asyncio
import json
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tests.http.test_deadlines import GRACE, Timing, busy_neighbour, steady_client
from tests.torture.instrument import Instrument, Outcome, Scale
from tests.torture.serving import ROOT, Place, Zygote, make_people
from tests.torture.wire import PATH, Line

EACH = 1000
_DEADLINE, _NEVER = 8, 100  # seconds: as the service is set up, and as its control is
_ARRIVALS = 5.0  # seconds over which the slow ones come
_SECONDS = 16.0
_GOOD, _RATE = 3, 60  # good clients, and requests a second of each
_NOTICED = 1.0  # seconds until a process of five thousand clients, which has the lowest priority, sees that one was cut
_MOST_GROWN = 100.0  # MiB
_ROUNDS = 3  # at most: a machine that stalls adds to any of them
_BOUNDS = ("HEADER_TIMEOUT", "BODY_TIMEOUT", "IDLE_TIMEOUT", "WRITE_TIMEOUT")


class Address(NamedTuple):
    """Where a service is."""

    base_url: str


class Round(NamedTuple):
    """Good clients alone and beside the slow ones, and how long each of these could hold on."""

    alone: Timing
    beside: Timing
    held: dict[str, list[float]]
    grown: float  # MiB

    @property
    def is_within(self) -> bool:
        return self.beside.p99 <= 2 * self.alone.p99 + 10


def _good_clients(address: Address, key: str, seconds: float) -> Timing:
    with ThreadPoolExecutor(_GOOD) as pool:
        timings = list(pool.map(lambda _: steady_client(address, key, seconds, _RATE), range(_GOOD)))  # type: ignore[arg-type]
    slowest = max(timings, key=lambda timing: timing.p99)
    return Timing(slowest.latencies_ms, sum(timing.failed for timing in timings))


def _round(place: Place, key: str, each: int) -> Round:
    assert place.process is not None
    address, status = Address(f"http://127.0.0.1:{place.port}"), Path(f"/proc/{place.process.pid}/status")
    command = [
        sys.executable,
        "-m",
        "tests.http.slow_clients",
        "127.0.0.1",
        str(place.port),
        key,
        str(each),
        str(_ARRIVALS),
    ]
    before = _mebibytes(status, "VmRSS")
    with busy_neighbour():
        alone = _good_clients(address, key, _SECONDS / 3)
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as slow:
            beside = _good_clients(address, key, _SECONDS)
            out, _ = slow.communicate(timeout=120)
    return Round(alone, beside, json.loads(out), _mebibytes(status, "VmHWM") - before)


def _mebibytes(status: Path, name: str) -> float:
    lines = status.read_text("ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


async def _prepare(place: Place, key: str) -> None:
    await place.answers()
    line = Line(place.port, key)
    await line.fetch("POST", PATH, {"title": "Large", "content": "x" * 30_000})  # so that a list is long enough
    line.close()


def work(scale: Scale, each: int, deadline: int, rounds: int) -> list[Round]:
    """Until one round is within the bound of time, or all were tried."""
    settings = {f"LISTINGS_{name}": str(deadline) for name in _BOUNDS}
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # which the slow clients inherit
    done: list[Round] = []
    with ExitStack() as stack:
        zygote = stack.enter_context(Zygote())
        place = stack.enter_context(Place(scale.folder, zygote, **settings))
        (alice,) = asyncio.run(make_people(scale.folder, 1))
        place.start()
        asyncio.run(_prepare(place, alice.key))
        while len(done) < rounds and not any(it.is_within for it in done):
            done.append(_round(place, alice.key, each))
        place.stop()
    return done


def judge(done: list[Round], each: int) -> list[str]:
    """What was not as it must be."""
    faults = [f"{it.alone.failed + it.beside.failed} good requests failed" for it in done if it.beside.failed]
    for it in done:
        for kind, seconds in it.held.items():
            if len(seconds) != each:
                faults.append(f"{len(seconds)} of {each} {kind} could connect")
            elif seconds[-1] > _DEADLINE + 1 + GRACE[kind] + _NOTICED:
                faults.append(f"{kind}: one held on for {seconds[-1]:.1f} s, {_DEADLINE} are allowed")
            elif seconds[0] < _DEADLINE - 0.1:
                faults.append(f"{kind}: one was cut after {seconds[0]:.1f} s already")
    if not any(it.is_within for it in done):
        faults += [f"p99 is {it.beside.p99:.1f} ms beside them, {it.alone.p99:.1f} ms without" for it in done]
    if done[0].grown > _MOST_GROWN:
        faults.append(f"the process grew by {done[0].grown:.0f} MiB")
    return faults


def run(scale: Scale) -> Outcome:
    """A thousand of each kind in a long run."""
    each = scale.amount(EACH, 20)
    done = work(scale, each, _DEADLINE, _ROUNDS)
    best = min(done, key=lambda it: it.beside.p99 - 2 * it.alone.p99)
    times = f"p99 {best.alone.p99:.1f} ms without them, {best.beside.p99:.1f} ms with them"
    longest = max(max(seconds) for it in done for seconds in it.held.values())
    told = f"{each:,} of each of 5 kinds: {times}, longest {longest:.1f} s, memory {done[0].grown:+.0f} MiB"
    return Outcome(told, judge(done, each), each >= EACH)


def control(scale: Scale) -> Outcome:
    """Deadlines that are much too long."""
    done = work(scale, 5, _NEVER, 1)
    return Outcome(f"deadlines of {_NEVER} s", judge(done, 5))


INSTRUMENT = Instrument(
    9,
    "slow clients: slow heads, slow bodies, silent, idle, slow readers, next to good clients",
    "1,000 of each: good clients 0 errors, p99 at most 2 × alone + 10 ms; cut off in time; memory at most +100 MiB",
    3,
    run,
    control,
    short=0.02,
)
