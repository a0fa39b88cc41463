"""`python -m bench`: measure the service beside a constant body and print a table."""

import tempfile
from pathlib import Path

import click

from bench import data, machine, wrk
from bench.command import PAGE, estimate, measuring, require_worth_keeping, tell, telling
from bench.report import report, write
from bench.rounds import Bench, Plan
from bench.scenarios import SCENARIOS
from bench.witness import Witness

_FULL = Plan(SCENARIOS)
_QUICK = Plan(SCENARIOS, rounds=2, seconds=2)


@click.command()
@measuring("2 rounds of 2 seconds")
@click.option("--scenario", "names", type=click.Choice([row.name for row in SCENARIOS]), multiple=True)
@click.option("--write", "writes", is_flag=True, help="Write the result into docs/performance.md as well.")
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
    require_worth_keeping(quick=quick, writes=writes)
    usual = _QUICK if quick else _FULL
    plan = Plan(
        tuple(row for row in SCENARIOS if row.name in names) or usual.scenarios,
        connections or usual.connections,
        rounds or usual.rounds,
        seconds or usual.seconds,
    )
    with telling():
        result = _measure(plan, folder)
        click.echo(result, nl=False)
        if writes:
            write(PAGE, result)


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


if __name__ == "__main__":
    main()
