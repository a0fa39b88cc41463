"""`python -m bench`: measure the service beside a constant body and print a table."""

import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType

import click

from bench import Refusal, data, machine, wrk
from bench.report import report, write
from bench.rounds import Bench, Plan
from bench.scenarios import SCENARIOS
from bench.witness import Witness

_PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
_FULL = Plan(SCENARIOS)
_LONGEST_IN_SECONDS = 100
_QUICK = Plan(SCENARIOS, rounds=2, seconds=2)


@click.command()
@click.option("--quick", is_flag=True, help="2 rounds of 2 seconds, to try it; no numbers to believe.")
@click.option("--rounds", type=click.IntRange(1, 100), help="How often everything is measured. Default: 5")
@click.option("--seconds", type=click.IntRange(1, 600), help="How long a run lasts. Default: 10")
@click.option("--connections", type=click.IntRange(1, 1000), multiple=True, help="May be given several times.")
@click.option("--scenario", "names", type=click.Choice([row.name for row in SCENARIOS]), multiple=True)
@click.option("--write", "writes", is_flag=True, help="Write the result into docs/performance.md as well.")
@click.option("--folder", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Where data is put.")
def main(  # noqa: PLR0913 - an argument for each option
    *,
    quick: bool,
    rounds: int | None,
    seconds: int | None,
    connections: tuple[int, ...],
    names: tuple[str, ...],
    writes: bool,
    folder: Path | None,
) -> None:
    """Measure the service beside a constant body of the same size on plain uvicorn.

    \b
    Example: python -m bench --quick
    """
    if quick and writes:
        raise click.UsageError("A quick result is not worth keeping: leave out --quick or --write")
    usual = _QUICK if quick else _FULL
    plan = Plan(
        tuple(row for row in SCENARIOS if row.name in names) or usual.scenarios,
        connections or usual.connections,
        rounds or usual.rounds,
        seconds or usual.seconds,
    )
    signal.signal(signal.SIGTERM, end)
    try:
        result = _measure(plan, folder)
        click.echo(result, nl=False)
        if writes:
            write(_PAGE, result)
    except Refusal as refusal:
        tell(f"bench: {refusal}")
        sys.exit(1)


def _measure(plan: Plan, folder: Path | None) -> str:
    wrk.program()
    cores = machine.two_cores()
    tell(f"{plan.runs} runs: {estimate(*plan.estimate)} when the machine disturbs every one")
    with tempfile.TemporaryDirectory(prefix="listings-bench-", dir=folder) as name:
        place = Path(name)
        facts = machine.facts(cores, place)
        filled = data.fill(place / "filled.db")
        with Witness(cores, place) as witness:
            cells = Bench(filled, cores, witness, place, tell).measure(plan)
            return report(cells, plan, facts, goes_first=witness.goes_first)


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


if __name__ == "__main__":
    main()
