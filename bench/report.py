"""The result as a table, and its place in docs/performance.md."""

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from statistics import median

from bench import RejectedRequest
from bench.rounds import Cell, Plan, Run
from bench.witness import MOST_LOST, MOST_TRIES, Watched

BEGIN = "<!-- made by `make bench ARGS=--write`: begin -->"
END = "<!-- made by `make bench ARGS=--write`: end -->"

MOST_FOREIGN = 0.2
"""The part of a core that others may have in the median run before the numbers count for nothing."""

_COLUMNS = (
    "Scenario",
    "Connections",
    "Requests/s",
    "Constant body, requests/s",
    "Ratio (min-max)",
    "p50 ms",
    "p99 ms",
    "Constant body, p99 ms",
    "CPU µs/request",
    "Constant body, CPU µs",
    "Peak MiB",
    "Repeated runs",
)


def report(cells: Iterable[Cell], plan: Plan, facts: Mapping[str, str], *, goes_first: bool) -> str:
    """All that is told of a benchmark, in Markdown."""
    cells = list(cells)
    runs = [watched for cell in cells for watched in (*cell.service, *cell.reference)]
    lines = [f"- {name}: {value}." for name, value in facts.items()]
    parts = ["\n".join([*lines, *conditions(plan, goes_first=goes_first)]), table(cells)]
    return "\n\n".join([*parts, *disturbances(runs), others(runs)]) + "\n"


def table(cells: Iterable[Cell]) -> str:
    """A row for each scenario and number of connections, medians over the rounds."""
    rows = [_COLUMNS, tuple("---" if name == "Scenario" else "---:" for name in _COLUMNS), *map(_row, cells)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def write(page: Path, text: str, begin: str = BEGIN, end: str = END) -> None:
    """Put the text between two marks of a page. Raises Refusal for a page without them."""
    before, found_begin, rest = page.read_text("utf-8").partition(begin)
    _, found_end, after = rest.partition(end)
    if not (found_begin and found_end):
        raise RejectedRequest(f"{page} has no place for the result: the lines {begin} and {end} are missing")
    page.write_text(f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}", "utf-8")


def today() -> str:
    """The date in UTC."""
    return dt.datetime.now(dt.UTC).date().isoformat()


def conditions(plan: Plan, *, goes_first: bool) -> list[str]:
    """How often and how long it was measured, and what watched over it."""
    kind = (
        "sleepers with real-time priority (SCHED_FIFO), which load does not delay"
        if goes_first
        else "sleepers without real-time priority (SCHED_FIFO is not permitted); only stalls of both cores count"
    )
    return [
        f"- Runs: {plan.rounds} round{'' if plan.rounds == 1 else 's'} of {plan.seconds} s, on {today()}.",
        f"- Stall detection: {kind}.",
    ]


def _row(cell: Cell) -> tuple[str, ...]:
    ours, theirs, ratios = cell.service, cell.reference, cell.ratios()
    return (
        cell.scenario,
        str(cell.connections),
        f"{middle(ours, lambda run: run.rate):,.0f}",
        f"{middle(theirs, lambda run: run.rate):,.0f}",
        f"{median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})",
        f"{middle(ours, lambda run: run.p50) / 1000:.2f}",
        f"{middle(ours, lambda run: run.p99) / 1000:.2f}",
        f"{middle(theirs, lambda run: run.p99) / 1000:.2f}",
        f"{middle(ours, lambda run: run.processor):.1f}",
        f"{middle(theirs, lambda run: run.processor):.1f}",
        f"{max(watched.run.peak_mebibytes for watched in ours):.0f}",
        set_aside([*ours, *theirs]),
    )


def middle(runs: list[Watched[Run]], value: Callable[[Run], float]) -> float:
    """The median over runs of a value of each."""
    return median(value(watched.run) for watched in runs)


def set_aside(runs: list[Watched[Run]]) -> str:
    """How many runs were repeated, with a star for each one that was kept though it was disturbed."""
    stars = "*" * sum(watched.disturbed for watched in runs)
    return f"{sum(watched.tries - 1 for watched in runs)} {stars}".rstrip()


def others(runs: list[Watched[Run]]) -> str:
    """How much of the two cores went to programs that have no part in the benchmark, and what to think of it."""
    shares = [watched.run.foreign for watched in runs]
    told = (
        f"Other programs and kernel threads used {median(shares) * 100:.0f} % of a core in the median run, and "
        f"{max(shares) * 100:.0f} % in the worst."
    )
    return told if median(shares) <= MOST_FOREIGN else f"{told} The machine was too busy for these numbers to count."


def disturbances(runs: list[Watched[Run]]) -> list[str]:
    """What a star means, when a run has one."""
    kept = [watched for watched in runs if watched.disturbed]
    if not kept:
        return []
    worst = max(watched.lost for watched in kept) * 1000
    meaning = (
        f"A star marks a run during which the machine stalled for more than {MOST_LOST * 1000:.0f} ms in each of "
        f"{MOST_TRIES} attempts; the least disturbed attempt counts. The worst of these lost {worst:.0f} ms."
    )
    return [meaning]
