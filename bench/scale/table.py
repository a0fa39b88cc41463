"""The result of the scale-out, as Markdown."""

from collections.abc import Mapping

from bench.peers.contest import Cell
from bench.report import conditions, disturbances, middle, others, set_aside
from bench.rounds import Plan, Run
from bench.scale.parts import Part
from bench.witness import Watched

BEGIN = "<!-- made by `make bench-scale ARGS=--write`: begin -->"
END = "<!-- made by `make bench-scale ARGS=--write`: end -->"

_COLUMNS = (
    "Part",
    "Scenario",
    "Connections",
    "Variant",
    "Requests/s",
    "Relative to the first",
    "p50 ms",
    "p99 ms",
    "CPU µs/request",
    "Peak MiB",
    "Repeated runs",
)


def report(measured: Mapping[Part, list[Cell]], plan: Plan, facts: Mapping[str, str], *, goes_first: bool) -> str:
    """All that is told of the parts."""
    runs = [watched for cells in measured.values() for cell in cells for kept in cell.runs.values() for watched in kept]
    lines = [f"- {name}: {value}." for name, value in facts.items()]
    conditions_ = "\n".join([*lines, *conditions(plan, goes_first=goes_first)])
    goals = "\n".join(f"- {line}" for part, of_part in measured.items() for line in goal_lines(part, of_part))
    return "\n\n".join([conditions_, table(measured), goals, *disturbances(runs), others(runs)]) + "\n"


def goal_lines(part: Part, cells: list[Cell]) -> list[str]:
    """What each goal of a part has come to."""
    return [goal.line(cell) for goal in part.goals for cell in cells if cell.scenario == goal.scenario]


def table(measured: Mapping[Part, list[Cell]]) -> str:
    """A row for each part, scenario, number of connections and way: medians over the rounds."""
    rule = tuple("---" if place in {0, 1, 3} else "---:" for place in range(len(_COLUMNS)))
    rows = [
        (part.name, *_row(cell, name, runs))
        for part, cells in measured.items()
        for cell in cells
        for name, runs in cell.runs.items()
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in (_COLUMNS, rule, *rows))


def _row(cell: Cell, name: str, runs: list[Watched[Run]]) -> tuple[str, ...]:
    return (
        cell.scenario,
        str(cell.connections),
        name,
        f"{cell.rate(name):,.0f}",
        f"{cell.ratio(name, next(iter(cell.runs))):.2f}",
        f"{middle(runs, lambda run: run.p50) / 1000:.2f}",
        f"{middle(runs, lambda run: run.p99) / 1000:.2f}",
        f"{middle(runs, lambda run: run.processor):.1f}",
        f"{max(watched.run.peak_mebibytes for watched in runs):.0f}",
        set_aside(runs),
    )
