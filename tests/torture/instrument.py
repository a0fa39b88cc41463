"""What the long tests have in common: what an instrument is, how much it is to do, and what that came to."""

from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import NamedTuple

SHORT = 0.01
"""The part of a long run that a short one does, unless an instrument says otherwise."""
LONGEST_CONTROL = 240.0  # seconds


class Scale:
    """How much an instrument is to do."""

    def __init__(self, folder: Path, part: float, seconds: float) -> None:
        """`folder` is the instrument's alone; `part` of a long run's amounts; no more is begun after `seconds`."""
        self.folder = folder
        self.part = part
        self.seconds = seconds
        self._end = monotonic() + seconds

    def amount(self, whole: int, least: int = 1) -> int:
        """The part of an amount, such as of 1,000 kills."""
        return max(least, round(whole * self.part))

    @property
    def left(self) -> float:
        """Seconds; 0 when the time is over."""
        return max(0.0, self._end - monotonic())

    @property
    def is_over(self) -> bool:
        """Whether no more is to be begun."""
        return self.left == 0


class Outcome(NamedTuple):
    """What an instrument has done and found."""

    done: str  # in numbers, such as "1,000 kills, 52,113 acknowledged writes"
    faults: Sequence[str] = ()  # a sentence each; none: what is promised was kept
    whole: bool = True  # whether as much was done as the target names


class Instrument(NamedTuple):
    """One row of the table: a module of `instruments` has it under the name INSTRUMENT."""

    number: int
    name: str
    target: str
    minutes: float  # that a whole long run may take
    run: Callable[[Scale], Outcome]
    control: Callable[[Scale], Outcome]
    """The same on what was broken on purpose: it must find faults."""
    short: float = SHORT
    """The part of it that the short run does."""

    def run_short(self, folder: Path) -> Outcome:
        """As the tests do."""
        return self.run(Scale(folder, self.short, LONGEST_CONTROL))

    def control_short(self, folder: Path) -> Outcome:
        """As the tests do, and the long run too."""
        return self.control(Scale(folder, self.short, LONGEST_CONTROL))
