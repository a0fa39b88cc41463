"""`python -m bench.peers`: measure the service beside its peers, print a table, draw a plot."""

import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import click

from bench import data, machine, wrk
from bench.command import PAGE, estimate, measuring, require_worth_keeping, tell, telling
from bench.peers import contenders, contest, contract, plot, table
from bench.peers.contenders import Contender
from bench.peers.installing import installed
from bench.peers.roster import PEERS, Peer, said
from bench.report import write
from bench.rounds import Bench, Plan
from bench.scenarios import SCENARIOS
from bench.witness import MOST_TRIES, Witness

_PICTURE = PAGE.with_name("performance.svg")
_FULL = Plan(SCENARIOS)
_QUICK = Plan(SCENARIOS, connections=(1, 32), rounds=1, seconds=2)
_AROUND_SECONDS = 4.5  # what a run takes beside measuring: start, check, warming up, stop
_BEFORE_SECONDS = 60  # filling, loading, the contract


class Choice(NamedTuple):
    """What is measured, with whom, where, and whether the result is kept."""

    plan: Plan
    peers: tuple[str, ...]
    folder: Path | None
    writes: bool


@click.command()
@measuring("1 round of 2 seconds")
@click.option("--scenario", "names", type=click.Choice([row.name for row in SCENARIOS]), multiple=True)
@click.option("--peer", "peers", type=click.Choice([row.name for row in PEERS]), multiple=True)
@click.option("--write/--no-write", "writes", default=None, help="Keep the result in docs/. Default: if it is of all.")
def main(  # noqa: PLR0913 - an argument for each option
    *,
    quick: bool,
    rounds: int | None,
    seconds: int | None,
    connections: tuple[int, ...],
    names: tuple[str, ...],
    peers: tuple[str, ...],
    writes: bool | None,
    folder: Path | None,
) -> None:
    """Measure the service beside what its users would pick instead.

    \b
    Example: python -m bench.peers --quick --peer fastify
    """
    require_worth_keeping(quick=quick, writes=writes)
    usual = _QUICK if quick else _FULL
    plan = Plan(
        tuple(row for row in SCENARIOS if row.name in names) or usual.scenarios,
        connections or usual.connections,
        rounds or usual.rounds,
        seconds or usual.seconds,
    )
    whole = plan._replace(rounds=min(plan.rounds, _FULL.rounds)) == _FULL and not peers
    with telling():
        _carry_out(Choice(plan, peers, folder, whole if writes is None else writes))


def _carry_out(choice: Choice) -> None:
    wrk.program()
    cores = machine.two_cores()
    chosen = tuple(row for row in PEERS if not choice.peers or row.name in choice.peers)
    there, missing = installed(chosen, tell)
    versions = {row.title: row.versions() for row in there} | _versions_of_programs()
    with tempfile.TemporaryDirectory(prefix="listings-bench-", dir=choice.folder) as name:
        place = Path(name)
        facts = {**machine.facts(cores, place), **versions}
        rivals = _contenders(there, place)
        _tell_estimate(choice.plan, rivals)
        _require_contracts(rivals, place, cores[0])
        with Witness(cores, place) as witness:
            bench = Bench(rivals[0].data, cores, witness, place, tell)
            cells = contest.Contest(rivals, bench).measure(choice.plan)
            goes_first = witness.goes_first
    absent = {**missing, **_missing_programs(), **table.NOT_MEASURED}
    told = table.report(cells, rivals, choice.plan, facts, absent, goes_first=goes_first)
    click.echo(told, nl=False)
    if choice.writes:
        _keep(told, plot.plot(cells, rivals))


def _contenders(there: tuple[Peer, ...], place: Path) -> tuple[Contender, ...]:
    filled = data.fill(place / "filled.db")
    expired = data.add_expired(filled.database)
    peers = [contenders.load(row, filled, expired, place) for row in there]
    limits = [contenders.constant_body(filled)]
    if shutil.which("nginx") is not None:
        limits.append(contenders.static_file(filled))
    return (contenders.service(filled, expired), *peers, *limits)


def _require_contracts(rivals: tuple[Contender, ...], place: Path, core: int) -> None:
    records = contract.records_of(rivals[0], place, core)
    for rival in rivals:
        if rival.kind != "limit":
            contract.require_contract(rival, records, place, core)
            tell(f"{rival.name} answers rightly")


def _versions_of_programs() -> dict[str, str]:
    found = {}
    for name, option in (("node", "--version"), ("nginx", "-v")):
        if shutil.which(name) is not None:
            found[name] = said(name, option).rpartition("/")[2]
    return found


def _missing_programs() -> dict[str, str]:
    return {} if shutil.which("nginx") is not None else {"nginx": "it is not installed"}


def _tell_estimate(plan: Plan, rivals: tuple[Contender, ...]) -> None:
    runs = contest.runs_of(plan, rivals)
    once = _BEFORE_SECONDS + runs * (plan.seconds + _AROUND_SECONDS)
    tell(f"{runs} runs: {estimate(once, MOST_TRIES * once)} when the machine disturbs every one")


def _keep(told: str, picture: str) -> None:
    _PICTURE.write_text(picture, "utf-8")
    write(PAGE, told, table.BEGIN, table.END)


if __name__ == "__main__":
    main()
