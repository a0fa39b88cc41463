"""Which instruments there are, and what each run of one comes to."""

import importlib
import pkgutil
import tempfile
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from bench import RejectedRequest
from tests.torture import instruments
from tests.torture.instrument import LONGEST_CONTROL, Instrument, Outcome, Scale


class Trial(NamedTuple):
    """An instrument with what its run and its control came to."""

    instrument: Instrument
    outcome: Outcome
    control: Outcome
    seconds: float

    @property
    def is_passed(self) -> bool:
        """Whether nothing was found where nothing may be, and something where something was planted."""
        return not self.outcome.faults and bool(self.control.faults)

    @property
    def verdict(self) -> str:
        """One word, or two: a run that did less than its target says so."""
        if not self.is_passed:
            return "FAIL"
        return "PASS" if self.outcome.whole else "PASS (part)"


def roster() -> list[Instrument]:
    """All, by their numbers."""
    names = [module.name for module in pkgutil.iter_modules(instruments.__path__, f"{instruments.__name__}.")]
    modules = [importlib.import_module(name) for name in names]
    return sorted(module.INSTRUMENT for module in modules if hasattr(module, "INSTRUMENT"))


def chosen(text: str | None) -> list[Instrument]:
    """Those whose numbers are named, such as in "1,4"; else all. Raises Refusal."""
    found = roster()
    if text is None:
        return found
    wanted = [part.strip() for part in text.split(",")]
    unknown = set(wanted) - {str(one.number) for one in found}
    if unknown:
        raise RejectedRequest(
            f"There is no instrument {min(unknown)}: choose from {', '.join(str(one.number) for one in found)}"
        )
    return [one for one in found if str(one.number) in wanted]


def try_all(
    wanted: Iterable[Instrument], part: float | None, folder: Path | None, tell: Callable[[str], None]
) -> list[Trial]:
    """Run one after the other, each with its control; `part` None: the short runs."""
    return [_try(one, part, folder, tell) for one in wanted]


def _try(one: Instrument, part: float | None, folder: Path | None, tell: Callable[[str], None]) -> Trial:
    tell(f"{one.number:2} {one.name} …")
    began = monotonic()
    amount = one.short if part is None else part
    seconds = LONGEST_CONTROL if part is None else one.minutes * 60 * part
    outcome, broken = _attempt(one.run, amount, seconds, folder)
    outcome = outcome or Outcome("broke", [broken], whole=False)
    control, broken = _attempt(one.control, one.short, LONGEST_CONTROL, folder)
    control = control or Outcome(f"broke: {broken}")
    trial = Trial(one, outcome, control, monotonic() - began)
    tell(f"   {trial.verdict} in {trial.seconds:.0f} s: {outcome.done}; control: {control.done}")
    for fault in outcome.faults[:10]:
        tell(f"   ! {fault}")
    return trial


def _attempt(
    work: Callable[[Scale], Outcome], part: float, seconds: float, folder: Path | None
) -> tuple[Outcome | None, str]:
    """What it comes to, or how it broke, which must not keep the others from being run."""
    with tempfile.TemporaryDirectory(prefix="listings-torture-", dir=folder) as name:
        try:
            return work(Scale(Path(name), part, seconds)), ""
        except Exception:  # noqa: BLE001 - as told
            return None, traceback.format_exc()
