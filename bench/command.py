"""What the commands that measure have in common: their options, and how they speak and end."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import click

from bench import RejectedRequest

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
_LONGEST_IN_SECONDS = 100

F = TypeVar("F", bound=Callable[..., Any])


def measuring(quick_rounds: str) -> Callable[[F], F]:
    """The options of every command; `quick_rounds` says how much `--quick` measures."""
    options = (
        click.option("--quick", is_flag=True, help=f"{quick_rounds}, to try it; no numbers to believe."),
        click.option("--rounds", type=click.IntRange(1, 100), help="How often everything is measured. Default: 5"),
        click.option("--seconds", type=click.IntRange(1, 600), help="How long a run lasts. Default: 10"),
        click.option("--connections", type=click.IntRange(1, 1000), multiple=True, help="May be given several times."),
        click.option(
            "--folder", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Where data is put."
        ),
    )

    def add(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def require_worth_keeping(*, quick: bool, writes: bool | None) -> None:
    """Raises click.UsageError."""
    if quick and writes:
        raise click.UsageError("A quick result is not worth keeping: leave out --quick or --write")


@contextmanager
def telling() -> Iterator[None]:
    """Tell a refusal in one line, with exit code 1; end in order at SIGTERM, too."""
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    except RejectedRequest as refusal:
        tell(f"bench: {refusal}")
        sys.exit(1)


def estimate(least: float, most: float) -> str:
    """Two spans of time, in seconds or minutes."""
    unit, size = ("minutes", 60) if least > _LONGEST_IN_SECONDS else ("seconds", 1)
    return f"about {least / size:.0f} {unit}, at most {most / size:.0f}"


def tell(sentence: str) -> None:
    """Say how it goes, apart from the result."""
    click.echo(sentence, err=True)


def end(number: int, _frame: FrameType | None) -> None:
    """End as at Ctrl-C: with every process and file of ours gone."""
    sys.exit(128 + number)
