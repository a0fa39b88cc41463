"""Tells a run that the machine has disturbed from one that it has not.

A virtual machine is stopped by its host now and then, for 50 to 160 ms on some. A sleeper on each core notes how
late it wakes. Where it is allowed to, it runs before all ordinary processes (SCHED_FIFO), so that a busy core does
not make it late and any lateness counts. Elsewhere load could make it late as well, and only what both cores lose at
the same time counts, as a stopped machine loses it.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Generic, NamedTuple, Self, TypeAlias, TypeVar

from bench import RejectedRequest
from bench.machine import used_seconds

T = TypeVar("T")
Stretch: TypeAlias = tuple[float, float]
"""From when until when a core did not run its sleeper, in seconds of the monotonic clock."""

MOST_LOST = 0.030
MOST_TRIES = 3

_SLEEPER = Path(__file__).with_name("sleeper.py")
_START_SECONDS = 10.0


class Timed(NamedTuple, Generic[T]):
    """What was measured, and between which moments of the monotonic clock."""

    run: T
    since: float
    until: float


class Watched(NamedTuple, Generic[T]):
    """A run with the seconds that the machine lost in it, and how often it was made before it was kept."""

    run: T
    lost: float
    tries: int = 1

    @property
    def disturbed(self) -> bool:
        """Whether too much was lost."""
        return self.lost > MOST_LOST


class Witness:
    """A sleeper on each of some cores, for as long as the context lasts; their notes are files in a folder."""

    def __init__(self, cores: Iterable[int], folder: Path) -> None:
        """Nothing runs yet."""
        self._notes = {core: folder / f"sleeper-{core}" for core in cores}
        self.sleepers: list[subprocess.Popen[bytes]] = []
        self._stack = ExitStack()
        self.goes_first = False  # whether load can't make the sleepers late

    def __enter__(self) -> Self:
        """Start the sleepers."""
        with ExitStack() as stack:
            for core, notes in self._notes.items():
                self.sleepers.append(_start(core, notes, stack))
            classes = [self._class(notes) for notes in self._notes.values()]
            self.goes_first = set(classes) == {"fifo"}
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """End them."""
        self._stack.close()

    def lost(self, timed: Timed[T]) -> float:
        """Seconds that the machine lost in a run that has just ended. Raises Refusal when a sleeper has ended."""
        if any(sleeper.poll() is not None for sleeper in self.sleepers):
            raise RejectedRequest(
                "A sleeper of the witness has ended, so nothing tells whether the machine was disturbed"
            )
        time.sleep(0.02)  # a sleeper that is late notes it only when it wakes
        of_cores = [within(read_stretches(notes), timed.since, timed.until) for notes in self._notes.values()]
        return lost(of_cores, any_core=self.goes_first)

    def processor_seconds(self) -> float:
        """What the sleepers have used of their cores."""
        return sum(used_seconds(sleeper.pid) for sleeper in self.sleepers)

    def _class(self, notes: Path) -> str:
        deadline = time.monotonic() + _START_SECONDS
        while not (text := notes.read_text("ascii")).endswith("\n"):
            if time.monotonic() > deadline:
                raise RejectedRequest("The sleepers of the witness do not start")
            time.sleep(0.01)
        return text.partition("\n")[0]


def watch(
    run: Callable[[], Timed[T]], lost_in: Callable[[Timed[T]], float], on_disturbed: Callable[[float], None]
) -> Watched[T]:
    """The first run in which the machine lost little, at most the third; then the least disturbed of them.

    `lost_in`: the seconds that were lost in a run. `on_disturbed` hears them when they are too many.
    """
    tried: list[Watched[T]] = []
    while len(tried) < MOST_TRIES:
        timed = run()
        tried.append(Watched(timed.run, lost_in(timed)))
        if not tried[-1].disturbed:
            break
        on_disturbed(tried[-1].lost)
    return min(tried, key=lambda watched: watched.lost)._replace(tries=len(tried))


def read_stretches(notes: Path) -> list[Stretch]:
    """What a sleeper has noted so far, whole lines only."""
    lines = notes.read_text("ascii").rpartition("\n")[0].splitlines()[1:]
    pairs = [(float(due), float(late)) for due, late in (line.split() for line in lines)]
    return [(due, due + late) for due, late in pairs]


def within(stretches: list[Stretch], since: float, until: float) -> list[Stretch]:
    """The parts of stretches between two moments."""
    parts = [(max(begin, since), min(end, until)) for begin, end in stretches]
    return [(begin, end) for begin, end in parts if begin < end]


def lost(of_cores: list[list[Stretch]], *, any_core: bool) -> float:
    """Seconds that were lost: on the core that lost most, or else only those that all cores lost together."""
    if any_core:
        return max(map(_sum, of_cores))
    common = of_cores[0]
    for stretches in of_cores[1:]:
        common = [part for begin, end in stretches for part in within(common, begin, end)]
    return _sum(common)


def _sum(stretches: list[Stretch]) -> float:
    return sum(end - begin for begin, end in stretches)


def _start(core: int, notes: Path, stack: ExitStack) -> subprocess.Popen[bytes]:
    with notes.open("wb") as file:
        sleeper = subprocess.Popen([sys.executable, str(_SLEEPER), str(core)], stdout=file, stdin=subprocess.DEVNULL)
    stack.callback(_end, sleeper)
    return sleeper


def _end(sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.kill()
    sleeper.wait()
