"""Detects runs during which the machine stalled.

The host of a virtual machine stops it now and then, for 50 to 160 ms on some. A sleeper on each core records how late
it wakes up. If permitted, it has priority over all ordinary processes (SCHED_FIFO): a busy core does not delay it, and
any delay counts. Otherwise load may delay it as well, and only stalls of both cores at the same time count.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Generic, NamedTuple, Self, TypeAlias, TypeVar

from bench import BenchmarkError
from bench.machine import get_processor_seconds

T = TypeVar("T")
Interval: TypeAlias = tuple[float, float]
"""The start and end of a stall, in seconds of the monotonic clock."""

MAX_LOST_SECONDS = 0.030
MAX_TRIES = 3

_SLEEPER = Path(__file__).with_name("sleeper.py")
_START_SECONDS = 10.0


class TimedRun(NamedTuple, Generic[T]):
    """A result, and its start and end on the monotonic clock."""

    run: T
    started: float
    ended: float


class MeasuredRun(NamedTuple, Generic[T]):
    """A result, the seconds lost to stalls, and the number of attempts."""

    run: T
    lost: float
    tries: int = 1

    @property
    def is_disturbed(self) -> bool:
        """Return whether too much was lost."""
        return self.lost > MAX_LOST_SECONDS


class StallDetector:
    """Runs a sleeper on each core; their logs are files in a folder."""

    def __init__(self, cores: Iterable[int], folder: Path) -> None:
        self._logs = {core: folder / f"sleeper-{core}" for core in cores}
        self.sleepers: list[subprocess.Popen[bytes]] = []
        self._stack = ExitStack()
        self.has_priority = False  # whether load cannot delay the sleepers

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for core, log in self._logs.items():
                self.sleepers.append(_start(core, log, stack))
            classes = [self._read_scheduling_class(log) for log in self._logs.values()]
            self.has_priority = set(classes) == {"fifo"}
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def get_lost_seconds(self, timed: TimedRun[T]) -> float:
        """Return the seconds lost during a run that has just ended. Raise BenchmarkError if a sleeper has ended."""
        if any(sleeper.poll() is not None for sleeper in self.sleepers):
            raise BenchmarkError("A sleeper of the stall detection has ended, so stalls are unknown")
        time.sleep(0.02)  # a sleeper logs a delay only after it has woken up
        by_core = [clip(read_intervals(log), timed.started, timed.ended) for log in self._logs.values()]
        return compute_lost_seconds(by_core, any_core=self.has_priority)

    def get_processor_seconds(self) -> float:
        """Return the processor time of the sleepers."""
        return sum(get_processor_seconds(sleeper.pid) for sleeper in self.sleepers)

    def _read_scheduling_class(self, log: Path) -> str:
        deadline = time.monotonic() + _START_SECONDS
        while not (line := log.read_text("ascii")).endswith("\n"):
            if time.monotonic() > deadline:
                raise BenchmarkError("The sleepers of the stall detection do not start")
            time.sleep(0.01)
        return line.partition("\n")[0]


def repeat_if_disturbed(
    run: Callable[[], TimedRun[T]],
    get_lost_seconds: Callable[[TimedRun[T]], float],
    on_disturbed: Callable[[float], None],
) -> MeasuredRun[T]:
    """Return the first run that is not disturbed, or the best of `MAX_TRIES`.

    `get_lost_seconds` returns the seconds lost in a run, and `on_disturbed` is called with them if they are too many.
    """
    attempts: list[MeasuredRun[T]] = []
    while len(attempts) < MAX_TRIES:
        timed = run()
        attempts.append(MeasuredRun(timed.run, get_lost_seconds(timed)))
        if not attempts[-1].is_disturbed:
            break
        on_disturbed(attempts[-1].lost)
    return min(attempts, key=lambda measured: measured.lost)._replace(tries=len(attempts))


def read_intervals(log: Path) -> list[Interval]:
    """Read the complete lines of a sleeper's log."""
    lines = log.read_text("ascii").rpartition("\n")[0].splitlines()[1:]
    pairs = [(float(due), float(late)) for due, late in (line.split() for line in lines)]
    return [(due, due + late) for due, late in pairs]


def clip(intervals: list[Interval], started: float, ended: float) -> list[Interval]:
    """Return the parts of the intervals between two times."""
    parts = [(max(start, started), min(end, ended)) for start, end in intervals]
    return [(start, end) for start, end in parts if start < end]


def compute_lost_seconds(by_core: list[list[Interval]], *, any_core: bool) -> float:
    """Return the seconds lost on the worst core, or else those that all cores lost at the same time."""
    if any_core:
        return max(map(_sum, by_core))
    common = by_core[0]
    for intervals in by_core[1:]:
        common = [part for start, end in intervals for part in clip(common, start, end)]
    return _sum(common)


def _sum(intervals: list[Interval]) -> float:
    return sum(end - start for start, end in intervals)


def _start(core: int, log: Path, stack: ExitStack) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        sleeper = subprocess.Popen([sys.executable, str(_SLEEPER), str(core)], stdout=file, stdin=subprocess.DEVNULL)
    stack.callback(_end, sleeper)
    return sleeper


def _end(sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.kill()
    sleeper.wait()
