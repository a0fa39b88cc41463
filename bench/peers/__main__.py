"""Compare the service with its peers and print a table: `python -m bench.peers`."""

import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import click

from bench import data, imports, machine, wrk
from bench.command import (
    PAGE,
    format_estimate,
    log_progress,
    measurement_options,
    reject_writing_quick_result,
    report_errors,
)
from bench.peers import comparison, contract, table
from bench.peers.candidates import Candidate, build_service, load_peer
from bench.peers.definitions import PEERS, Peer, run_version_command
from bench.peers.installation import install_all
from bench.peers.rows import ROWS
from bench.report import write_result
from bench.rounds import Bench, Plan
from bench.stall_detector import MAX_TRIES, StallDetector

_FULL = Plan(ROWS, rounds=3, seconds=2)
_QUICK = Plan(ROWS, connections=(32,), rounds=1, seconds=1)
_DEFAULT_PEERS = ("fastify",)
_OVERHEAD_SECONDS = 4.5  # per run: start, check, warm-up, stop
_PREPARATION_SECONDS = 60  # test data and checks


class Choice(NamedTuple):
    """What to measure, where, and whether to write the result to the docs."""

    plan: Plan
    peers: tuple[str, ...]
    folder: Path | None
    writes: bool


@click.command()
@measurement_options("1 round of 1 second with 32 connections")
@click.option("--scenario", "names", type=click.Choice([row.name for row in ROWS]), multiple=True)
@click.option("--peer", "peers", type=click.Choice([row.name for row in PEERS]), multiple=True, default=_DEFAULT_PEERS)
@click.option("--write/--no-write", "writes", default=None, help="Write the result to docs/. Default: if complete")
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
    """Compare the service with programs that its users might choose instead.

    \b
    Example: python -m bench.peers --quick --peer fastify
    """
    reject_writing_quick_result(quick=quick, writes=writes)
    defaults = _QUICK if quick else _FULL
    plan = Plan(
        tuple(row for row in ROWS if row.name in names) or defaults.scenarios,
        connections or defaults.connections,
        rounds or defaults.rounds,
        seconds or defaults.seconds,
    )
    is_complete = plan == _FULL and peers == _DEFAULT_PEERS
    with report_errors():
        _run(Choice(plan, peers, folder, is_complete if writes is None else writes))


def _run(choice: Choice) -> None:
    wrk.find_wrk()
    cores = machine.choose_cores()
    selected = tuple(peer for peer in PEERS if peer.name in choice.peers)
    peers, missing = install_all(selected, log_progress)
    versions = {peer.title: peer.versions() for peer in peers} | _get_node_version()
    with tempfile.TemporaryDirectory(prefix="listings-bench-", dir=choice.folder) as name:
        work_folder = Path(name)
        facts = {**machine.describe_machine(cores, work_folder), **versions}
        candidates = _build_candidates(peers, work_folder)
        _log_estimate(choice.plan, candidates)
        _require_contracts(candidates, work_folder, cores[0])
        with StallDetector(cores, work_folder) as detector:
            bench = Bench(candidates[0].data, cores, detector, work_folder, log_progress)
            cells = comparison.Comparison(candidates, bench).measure(choice.plan)
            has_priority = detector.has_priority
        facts["Import"] = imports.describe(work_folder, cores[0], choice.plan.rounds)
    text = table.format_report(cells, choice.plan, facts, missing, has_priority=has_priority)
    click.echo(text, nl=False)
    if choice.writes:
        write_result(PAGE, text, table.BEGIN, table.END)


def _build_candidates(peers: tuple[Peer, ...], work_folder: Path) -> tuple[Candidate, ...]:
    filled = data.fill(work_folder / "filled.db")
    expired = data.add_expired_account(filled.database)
    loaded = [load_peer(peer, filled, expired, work_folder) for peer in peers]
    return (build_service(filled, expired), *loaded)


def _require_contracts(candidates: tuple[Candidate, ...], work_folder: Path, core: int) -> None:
    records = contract.fetch_records(candidates[0], work_folder, core)
    for candidate in candidates:
        contract.require_contract(candidate, records, work_folder, core)
        log_progress(f"{candidate.name}: all responses are correct")


def _get_node_version() -> dict[str, str]:
    return {"node": run_version_command("node", "--version")} if shutil.which("node") else {}


def _log_estimate(plan: Plan, candidates: tuple[Candidate, ...]) -> None:
    runs = comparison.count_runs(plan, candidates)
    minimum = _PREPARATION_SECONDS + runs * (plan.seconds + _OVERHEAD_SECONDS)
    log_progress(f"{runs} runs: {format_estimate(minimum, MAX_TRIES * minimum)} if every run is disturbed")


if __name__ == "__main__":
    main()
