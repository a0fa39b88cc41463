"""The result beside the peers, as Markdown."""

from collections.abc import Mapping

from bench.peers.contenders import Contender
from bench.peers.contest import Cell
from bench.report import conditions, disturbances, middle, others, set_aside
from bench.rounds import Plan, Run
from bench.witness import Watched

BEGIN = "<!-- made by `make bench-peers`: begin -->"
END = "<!-- made by `make bench-peers`: end -->"

NOT_MEASURED = {
    "Directus": (
        "version 11.3.5, the newest for Node 20, cannot do this work without an extension that implements the whole "
        "service: it limits requests by IP address instead of by key, and in fixed windows; it responds 403 for a "
        "missing listing as well as for another account's; lists and errors have other formats"
    )
}
"""Peers that we tried but cannot compare, each with the reason."""

_COLUMNS = (
    "Scenario",
    "Connections",
    "Server",
    "Requests/s",
    "Relative to the fastest peer",
    "p50 ms",
    "p99 ms",
    "CPU µs/request",
    "Peak MiB",
    "Repeated runs",
)


def report(  # noqa: PLR0913 - all that is told
    cells: list[Cell],
    contenders: tuple[Contender, ...],
    plan: Plan,
    facts: Mapping[str, str],
    missing: Mapping[str, str],
    *,
    goes_first: bool,
) -> str:
    """All that is told, but for the plot; `missing`: peers by title with why they are not there."""
    runs = [watched for cell in cells for kept in cell.runs.values() for watched in kept]
    lines = [f"- {name}: {value}." for name, value in facts.items()]
    left_out = [f"Not measured: {title}, because {reason}." for title, reason in missing.items()]
    parts = ["\n".join([*lines, *conditions(plan, goes_first=goes_first)]), table(cells, peers_of(contenders))]
    return "\n\n".join([*parts, *disturbances(runs), others(runs), *left_out]) + "\n"


def peers_of(contenders: tuple[Contender, ...]) -> set[str]:
    """The names of those who do the same work as the service."""
    return {contender.name for contender in contenders if contender.kind == "peer"}


def table(cells: list[Cell], peers: set[str]) -> str:
    """A row for each scenario, number of connections and contender: medians over the rounds."""
    rule = tuple("---" if place in {0, 2} else "---:" for place in range(len(_COLUMNS)))
    rows = [_row(cell, name, runs, cell.fastest(peers)) for cell in cells for name, runs in cell.runs.items()]
    return "\n".join(f"| {' | '.join(row)} |" for row in (_COLUMNS, rule, *rows))


def _row(cell: Cell, name: str, runs: list[Watched[Run]], fastest: str | None) -> tuple[str, ...]:
    return (
        cell.scenario,
        str(cell.connections),
        name,
        f"{cell.rate(name):,.0f}",
        f"{cell.ratio(name, fastest):.2f}" if fastest is not None else "no peer",
        f"{middle(runs, lambda run: run.p50) / 1000:.2f}",
        f"{middle(runs, lambda run: run.p99) / 1000:.2f}",
        f"{middle(runs, lambda run: run.processor):.1f}",
        f"{max(watched.run.peak_mebibytes for watched in runs):.0f}",
        set_aside(runs),
    )
