"""Finds the instruments, runs them, and decides whether they passed."""

import importlib
import pkgutil
import tempfile
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from bench import BenchmarkError
from tests.torture import instruments
from tests.torture.instrument import CONTROL_SECONDS, Instrument, Outcome, Scale


class InstrumentResult(NamedTuple):
    instrument: Instrument
    outcome: Outcome
    control: Outcome
    seconds: float

    @property
    def is_passed(self) -> bool:
        """Return whether the run found no failure and the control found some."""
        return not self.outcome.failures and bool(self.control.failures)

    @property
    def verdict(self) -> str:
        """Return PASS or FAIL; "PASS (part)" if the run did less than its target."""
        if not self.is_passed:
            return "FAIL"
        return "PASS" if self.outcome.is_complete else "PASS (part)"


def find_instruments() -> list[Instrument]:
    names = [module.name for module in pkgutil.iter_modules(instruments.__path__, f"{instruments.__name__}.")]
    modules = [importlib.import_module(name) for name in names]
    return sorted(module.INSTRUMENT for module in modules if hasattr(module, "INSTRUMENT"))


def select_instruments(text: str | None) -> list[Instrument]:
    """Return the instruments with these numbers, such as "1,4", or all. Raise BenchmarkError for an unknown number."""
    found = find_instruments()
    if text is None:
        return found
    wanted = [part.strip() for part in text.split(",")]
    unknown = set(wanted) - {str(one.number) for one in found}
    if unknown:
        raise BenchmarkError(
            f"There is no instrument {min(unknown)}: choose from {', '.join(str(one.number) for one in found)}"
        )
    return [one for one in found if str(one.number) in wanted]


def run_all(
    selected: Iterable[Instrument], fraction: float | None, folder: Path | None, log_progress: Callable[[str], None]
) -> list[InstrumentResult]:
    """Run the instruments one after the other, each with its control; the short form if `fraction` is None."""
    return [_run_one(one, fraction, folder, log_progress) for one in selected]


def _run_one(
    one: Instrument, fraction: float | None, folder: Path | None, log_progress: Callable[[str], None]
) -> InstrumentResult:
    log_progress(f"{one.number:2} {one.name} …")
    began = monotonic()
    amount = one.short_fraction if fraction is None else fraction
    seconds = CONTROL_SECONDS if fraction is None else one.minutes * 60 * fraction
    outcome, error = _attempt(one.run, amount, seconds, folder)
    outcome = outcome or Outcome("crashed", [error], is_complete=False)
    control, error = _attempt(one.control, one.short_fraction, CONTROL_SECONDS, folder)
    control = control or Outcome(f"crashed: {error}")
    result = InstrumentResult(one, outcome, control, monotonic() - began)
    log_progress(f"   {result.verdict} in {result.seconds:.0f} s: {outcome.summary}; control: {control.summary}")
    for failure in outcome.failures[:10]:
        log_progress(f"   ! {failure}")
    return result


def _attempt(
    work: Callable[[Scale], Outcome], fraction: float, seconds: float, folder: Path | None
) -> tuple[Outcome | None, str]:
    """Return the outcome, or a traceback: a crash must not prevent the other instruments from running."""
    with tempfile.TemporaryDirectory(prefix="listings-torture-", dir=folder, ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)  # PostgreSQL runs as another user if the tests run as root
        try:
            return work(Scale(Path(name), fraction, seconds)), ""
        except Exception:  # noqa: BLE001 - reported
            return None, traceback.format_exc()
