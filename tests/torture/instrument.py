"""The parts that all instruments share: an instrument, its scale, and its outcome."""

from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import NamedTuple

SHORT_FRACTION = 0.01
"""The fraction of a full run that the short form does, unless an instrument sets its own."""
CONTROL_SECONDS = 240.0


class Scale:
    """How much an instrument should do."""

    def __init__(self, folder: Path, fraction: float, seconds: float) -> None:
        """Run in `folder`, with this fraction of a full run's amounts; begin nothing new after `seconds`."""
        self.folder = folder
        self.fraction = fraction
        self.seconds = seconds
        self._end = monotonic() + seconds

    def amount(self, full: int, minimum: int = 1) -> int:
        """Scale an amount of a full run, such as 1,000 kills."""
        return max(minimum, round(full * self.fraction))

    @property
    def seconds_left(self) -> float:
        """Return the remaining seconds, 0 if the time is up."""
        return max(0.0, self._end - monotonic())

    @property
    def is_time_up(self) -> bool:
        """Return whether nothing new should begin."""
        return self.seconds_left == 0


class Outcome(NamedTuple):
    summary: str  # such as "1,000 kills, 52,113 acknowledged writes"
    failures: Sequence[str] = ()  # one sentence each
    is_complete: bool = True  # whether it did as much as the target says


class Instrument(NamedTuple):
    """A row of the table; each module in `instruments` defines one as INSTRUMENT."""

    number: int
    name: str
    target: str
    minutes: float  # limit of a full run
    run: Callable[[Scale], Outcome]
    control: Callable[[Scale], Outcome]
    """The same with an injected fault: it must find failures."""
    short_fraction: float = SHORT_FRACTION
    """The fraction of a full run that the short form does."""

    def run_short(self, folder: Path) -> Outcome:
        return self.run(Scale(folder, self.short_fraction, CONTROL_SECONDS))
