"""Options, progress messages and error handling of the benchmark commands."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import click

from bench import BenchmarkError

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
_MAX_IN_SECONDS = 100

F = TypeVar("F", bound=Callable[..., Any])


def measurement_options(quick_rounds: str) -> Callable[[F], F]:
    """Add the common options to a command; `quick_rounds` describes the amount of `--quick`."""
    options = (
        click.option("--quick", is_flag=True, help=f"{quick_rounds}, to try it; the figures mean little."),
        click.option("--rounds", type=click.IntRange(1, 100), help="Number of measurements."),
        click.option("--seconds", type=click.IntRange(1, 600), help="Duration of a run."),
        click.option("--connections", type=click.IntRange(1, 1000), multiple=True, help="Can be given several times."),
        click.option(
            "--folder", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Folder for test data."
        ),
    )

    def add_options(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return add_options


def reject_writing_quick_result(*, quick: bool, writes: bool | None) -> None:
    """Raise click.UsageError if both flags are set."""
    if quick and writes:
        raise click.UsageError("A quick result is not worth storing: leave out --quick or --write")


@contextmanager
def report_errors() -> Iterator[None]:
    """Print a BenchmarkError and exit with code 1; clean up on SIGTERM as well."""
    signal.signal(signal.SIGTERM, exit_on_signal)
    try:
        yield
    except BenchmarkError as error:
        log_progress(f"bench: {error}")
        sys.exit(1)


def format_estimate(minimum: float, maximum: float) -> str:
    """Format a range of durations in seconds or minutes."""
    unit, size = ("minutes", 60) if minimum > _MAX_IN_SECONDS else ("seconds", 1)
    return f"about {minimum / size:.0f} {unit}, at most {maximum / size:.0f}"


def log_progress(sentence: str) -> None:
    """Print a message to standard error; the result goes to standard output."""
    click.echo(sentence, err=True)


def exit_on_signal(number: int, _frame: FrameType | None) -> None:
    """Exit like Ctrl-C does, so that all processes and files are cleaned up."""
    sys.exit(128 + number)
