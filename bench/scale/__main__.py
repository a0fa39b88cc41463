"""Compare two processes with one, and PostgreSQL with SQLite, and print a table: `python -m bench.scale`."""

import tempfile
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

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
from bench.peers.comparison import Cell, Comparison, count_runs
from bench.report import write_result
from bench.rounds import Bench, Plan
from bench.scale import parts, postgres, table
from bench.scale.parts import Part
from bench.stall_detector import MAX_TRIES, StallDetector

_NAMES = ("lists", "processes", "reads", "creates")
_FULL = Plan((), connections=(32,))
_QUICK = Plan((), connections=(32,), rounds=1, seconds=2)
_OVERHEAD_SECONDS = 4.5  # per run: copy, start, check, warm-up, stop
_PREPARATION_SECONDS = 45  # two databases


class Choice(NamedTuple):
    """What to measure, and where."""

    plan: Plan
    parts: tuple[str, ...]
    folder: Path | None


@click.command()
@measurement_options("1 round of 2 seconds")
@click.option("--part", "names", type=click.Choice(_NAMES), multiple=True, help="Can be given several times.")
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
    """Measure the service with two processes, and on PostgreSQL.

    \b
    Example: python -m bench.scale --quick --part processes
    """
    reject_writing_quick_result(quick=quick, writes=writes)
    if names and writes:
        raise click.UsageError("An incomplete result is not written: leave out --part or --write")
    defaults = _QUICK if quick else _FULL
    plan = Plan((), connections or defaults.connections, rounds or defaults.rounds, seconds or defaults.seconds)
    with report_errors():
        result = _measure(Choice(plan, names or _NAMES, folder))
        click.echo(result, nl=False)
        if writes:
            write_result(PAGE, result, table.BEGIN, table.END)


def _measure(choice: Choice) -> str:
    wrk.find_wrk()
    cores = machine.choose_cores()
    with ExitStack() as stack:
        folder = tempfile.TemporaryDirectory(prefix="listings-bench-", dir=choice.folder)
        work_folder = Path(stack.enter_context(folder))
        facts = {**machine.describe_machine(cores, work_folder), **_describe_setup()}
        selected = _build_parts(choice.parts, work_folder, cores, stack)
        _log_estimate(choice.plan, selected)
        detector = stack.enter_context(StallDetector(cores, work_folder))
        measured: dict[Part, list[Cell]] = {}
        for part in selected:
            bench = Bench(part.candidates[0].data, cores, detector, work_folder, log_progress)
            plan = choice.plan._replace(scenarios=part.scenarios)
            measured[part] = Comparison(part.candidates, bench).measure(plan)
        return table.format_report(measured, choice.plan, facts, has_priority=detector.has_priority)


def _build_parts(names: tuple[str, ...], work_folder: Path, cores: tuple[int, int], stack: ExitStack) -> list[Part]:
    source = data.fill(work_folder / "filled.db")
    selected = [parts.build_lists_part(source, cores), parts.build_processes_part(source, cores)]
    if set(names) & {"reads", "creates"}:
        server = stack.enter_context(postgres.run_postgres(work_folder, cores[1]))
        on_postgres = source._replace(owners=data.fill_url(server.create_template(), work_folder / "data"))
        server.analyze()
        selected += [
            parts.build_reads_part(source, on_postgres, server, cores[0]),
            parts.build_creates_part(on_postgres, server),
        ]
    return [part for part in selected if part.name in names]


def _describe_setup() -> dict[str, str]:
    return {
        "PostgreSQL": f"{postgres.get_version()} on the client's core, asyncpg {version('asyncpg')}",
        "Two processes": "on both cores, the second one shared with wrk",
    }


def _log_estimate(plan: Plan, selected: list[Part]) -> None:
    runs = sum(count_runs(plan._replace(scenarios=part.scenarios), part.candidates) for part in selected)
    minimum = _PREPARATION_SECONDS + runs * (plan.seconds + _OVERHEAD_SECONDS)
    log_progress(f"{runs} runs: {format_estimate(minimum, MAX_TRIES * minimum)} if every run is disturbed")


if __name__ == "__main__":
    main()
