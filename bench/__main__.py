"""Compare the service with a constant body and print a table: `python -m bench`."""

import tempfile
from pathlib import Path

import click

from bench import data, machine, wrk
from bench.command import (
    PAGE,
    format_estimate,
    log_progress,
    measurement_options,
    reject_writing_quick_result,
    report_errors,
)
from bench.report import format_report, write_result
from bench.rounds import Bench, Plan
from bench.scenarios import SCENARIOS
from bench.stall_detector import StallDetector

_FULL = Plan(SCENARIOS)
_QUICK = Plan(SCENARIOS, rounds=2, seconds=2)


@click.command()
@measurement_options("2 rounds of 2 seconds")
@click.option("--scenario", "names", type=click.Choice([scenario.name for scenario in SCENARIOS]), multiple=True)
@click.option("--write", "writes", is_flag=True, help="Also write the result to docs/performance.md.")
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
    """Compare the service with a constant body of the same size on plain uvicorn.

    \b
    Example: python -m bench --quick
    """
    reject_writing_quick_result(quick=quick, writes=writes)
    defaults = _QUICK if quick else _FULL
    plan = Plan(
        tuple(scenario for scenario in SCENARIOS if scenario.name in names) or defaults.scenarios,
        connections or defaults.connections,
        rounds or defaults.rounds,
        seconds or defaults.seconds,
    )
    with report_errors():
        result = _measure(plan, folder)
        click.echo(result, nl=False)
        if writes:
            write_result(PAGE, result)


def _measure(plan: Plan, folder: Path | None) -> str:
    wrk.find_wrk()
    cores = machine.choose_cores()
    log_progress(f"{plan.runs} runs: {format_estimate(*plan.estimate)} if every run is disturbed")
    with tempfile.TemporaryDirectory(prefix="listings-bench-", dir=folder) as name:
        work_folder = Path(name)
        facts = machine.describe_machine(cores, work_folder)
        filled = data.fill(work_folder / "filled.db")
        with StallDetector(cores, work_folder) as detector:
            cells = Bench(filled, cores, detector, work_folder, log_progress).measure(plan)
            return format_report(cells, plan, facts, has_priority=detector.has_priority)


if __name__ == "__main__":
    main()
