"""`python -m bench.scale`: measure two processes beside one, and PostgreSQL beside other ways, and print a table."""

import tempfile
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import click

from bench import data, machine, wrk
from bench.command import PAGE, estimate, measuring, require_worth_keeping, tell, telling
from bench.peers.contest import Cell, Contest, runs_of
from bench.report import write
from bench.rounds import Bench, Plan
from bench.scale import parts, postgres, table
from bench.scale.parts import Part
from bench.witness import MOST_TRIES, Witness

_NAMES = ("lists", "processes", "reads", "creates")
_FULL = Plan((), connections=(32,))
_QUICK = Plan((), connections=(32,), rounds=1, seconds=2)
_AROUND_SECONDS = 4.5  # what a run takes beside measuring: copy, start, check, warming up, stop
_BEFORE_SECONDS = 45  # filling two databases


class Choice(NamedTuple):
    """What is measured, and where."""

    plan: Plan
    parts: tuple[str, ...]
    folder: Path | None


@click.command()
@measuring("1 round of 2 seconds")
@click.option("--part", "names", type=click.Choice(_NAMES), multiple=True, help="May be given several times.")
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
    """Measure the service on two processes beside one, and on PostgreSQL.

    \b
    Example: python -m bench.scale --quick --part processes
    """
    require_worth_keeping(quick=quick, writes=writes)
    if names and writes:
        raise click.UsageError("A part of the result is not kept: leave out --part or --write")
    usual = _QUICK if quick else _FULL
    plan = Plan((), connections or usual.connections, rounds or usual.rounds, seconds or usual.seconds)
    with telling():
        result = _measure(Choice(plan, names or _NAMES, folder))
        click.echo(result, nl=False)
        if writes:
            write(PAGE, result, table.BEGIN, table.END)


def _measure(choice: Choice) -> str:
    wrk.program()
    cores = machine.two_cores()
    with ExitStack() as stack:
        folder = tempfile.TemporaryDirectory(prefix="listings-bench-", dir=choice.folder)
        place = Path(stack.enter_context(folder))
        facts = {**machine.facts(cores, place), **_facts()}
        chosen = _parts(choice.parts, place, cores, stack)
        _tell_estimate(choice.plan, chosen)
        witness = stack.enter_context(Witness(cores, place))
        measured: dict[Part, list[Cell]] = {}
        for part in chosen:
            bench = Bench(part.contenders[0].data, cores, witness, place, tell)
            plan = choice.plan._replace(scenarios=part.scenarios)
            measured[part] = Contest(part.contenders, bench).measure(plan)
        return table.report(measured, choice.plan, facts, goes_first=witness.goes_first)


def _parts(names: tuple[str, ...], place: Path, cores: tuple[int, int], stack: ExitStack) -> list[Part]:
    filled = data.fill(place / "filled.db")
    chosen = [parts.of_lists(filled, cores), parts.of_processes(filled, cores)]
    if set(names) & {"reads", "creates"}:
        server = stack.enter_context(postgres.started(place, cores[1]))
        on_postgres = filled._replace(owners=data.fill_at(server.new(), place / "beside"))
        server.settle()
        chosen += [parts.of_reads(filled, on_postgres, server, cores[0]), parts.of_creates(on_postgres, server)]
    return [part for part in chosen if part.name in names]


def _facts() -> dict[str, str]:
    return {
        "PostgreSQL": f"{postgres.version()} on the client's core, asyncpg {version('asyncpg')}",
        "Two processes": "on both cores, the second one shared with wrk",
    }


def _tell_estimate(plan: Plan, chosen: list[Part]) -> None:
    runs = sum(runs_of(plan._replace(scenarios=part.scenarios), part.contenders) for part in chosen)
    once = _BEFORE_SECONDS + runs * (plan.seconds + _AROUND_SECONDS)
    tell(f"{runs} runs: {estimate(once, MOST_TRIES * once)} when the machine disturbs every one")


if __name__ == "__main__":
    main()
