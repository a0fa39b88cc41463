"""Compare the service with its peers, print a table, and draw a plot: `python -m bench.peers`."""

import shutil
import tempfile
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
from bench.peers import comparison, contract, plot, table
from bench.peers.candidates import Candidate, build_constant_body, build_service, build_static_file, load_peer
from bench.peers.definitions import PEERS, Peer, run_version_command
from bench.peers.installation import install_all
from bench.report import write_result
from bench.rounds import Bench, Plan
from bench.scenarios import SCENARIOS
from bench.stall_detector import MAX_TRIES, StallDetector

_PICTURE = PAGE.with_name("performance.svg")
_FULL = Plan(SCENARIOS)
_QUICK = Plan(SCENARIOS, connections=(1, 32), rounds=1, seconds=2)
_OVERHEAD_SECONDS = 4.5  # per run: start, check, warm-up, stop
_PREPARATION_SECONDS = 60  # test data and checks


class Choice(NamedTuple):
    """What to measure, where, and whether to write the result to the docs."""

    plan: Plan
    peers: tuple[str, ...]
    folder: Path | None
    writes: bool


@click.command()
@measurement_options("1 round of 2 seconds")
@click.option("--scenario", "names", type=click.Choice([row.name for row in SCENARIOS]), multiple=True)
@click.option("--peer", "peers", type=click.Choice([row.name for row in PEERS]), multiple=True)
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
        tuple(row for row in SCENARIOS if row.name in names) or defaults.scenarios,
        connections or defaults.connections,
        rounds or defaults.rounds,
        seconds or defaults.seconds,
    )
    is_complete = plan._replace(rounds=min(plan.rounds, _FULL.rounds)) == _FULL and not peers
    with report_errors():
        _run(Choice(plan, peers, folder, is_complete if writes is None else writes))


def _run(choice: Choice) -> None:
    wrk.find_wrk()
    cores = machine.choose_cores()
    selected = tuple(peer for peer in PEERS if not choice.peers or peer.name in choice.peers)
    peers, missing = install_all(selected, log_progress)
    versions = {peer.title: peer.versions() for peer in peers} | _get_program_versions()
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
    absent = {**missing, **_list_missing_programs(), **table.NOT_MEASURED}
    text = table.format_report(cells, candidates, choice.plan, facts, absent, has_priority=has_priority)
    click.echo(text, nl=False)
    if choice.writes:
        _write(text, plot.draw_plot(cells, candidates))


def _build_candidates(peers: tuple[Peer, ...], work_folder: Path) -> tuple[Candidate, ...]:
    filled = data.fill(work_folder / "filled.db")
    expired = data.add_expired_account(filled.database)
    loaded = [load_peer(peer, filled, expired, work_folder) for peer in peers]
    limits = [build_constant_body(filled)]
    if shutil.which("nginx") is not None:
        limits.append(build_static_file(filled))
    return (build_service(filled, expired), *loaded, *limits)


def _require_contracts(candidates: tuple[Candidate, ...], work_folder: Path, core: int) -> None:
    records = contract.fetch_records(candidates[0], work_folder, core)
    for candidate in candidates:
        if candidate.kind != "limit":
            contract.require_contract(candidate, records, work_folder, core)
            log_progress(f"{candidate.name}: all responses are correct")


def _get_program_versions() -> dict[str, str]:
    found = {}
    for name, option in (("node", "--version"), ("nginx", "-v")):
        if shutil.which(name) is not None:
            found[name] = run_version_command(name, option).rpartition("/")[2]
    return found


def _list_missing_programs() -> dict[str, str]:
    return {} if shutil.which("nginx") is not None else {"nginx": "it is not installed"}


def _log_estimate(plan: Plan, candidates: tuple[Candidate, ...]) -> None:
    runs = comparison.count_runs(plan, candidates)
    minimum = _PREPARATION_SECONDS + runs * (plan.seconds + _OVERHEAD_SECONDS)
    log_progress(f"{runs} runs: {format_estimate(minimum, MAX_TRIES * minimum)} if every run is disturbed")


def _write(text: str, picture: str) -> None:
    _PICTURE.write_text(picture, "utf-8")
    write_result(PAGE, text, table.BEGIN, table.END)


if __name__ == "__main__":
    main()
