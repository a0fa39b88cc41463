"""Draws the result as bars of requests per second, with a column per scenario and a row per number of connections.

The colours follow the browser's preference for light or dark pages.
"""

from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import NamedTuple, TypeVar

from bench.peers.candidates import Candidate
from bench.peers.comparison import Cell

T = TypeVar("T")

_WIDTH = 1000
_MARGIN = 16
_NAME_WIDTH = 142  # for the candidates' names
_HEADER_HEIGHT = 96
_BAR_HEIGHT = 15
_BAR_DISTANCE = 21  # between the tops of two bars
_ROW_GAP = 34  # includes the heading of the next row
_FIGURE_WIDTH = 52  # for the number after the longest bar
_COLUMN_GAP = 12

_STYLE = """
  .page { fill: #ffffff; }
  text { font: 12px system-ui, sans-serif; fill: #1f2328; }
  .title { font-size: 17px; font-weight: 600; }
  .head { font-weight: 600; }
  .small { fill: #59636e; }
  .axis { stroke: #8c959f; }
  .service { fill: #0969da; }
  .peer { fill: #bc4c00; }
  .limit { fill: #afb8c1; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117; }
    text { fill: #f0f6fc; }
    .small { fill: #9198a1; }
    .axis { stroke: #656c76; }
    .service { fill: #4493f8; }
    .peer { fill: #db6d28; }
    .limit { fill: #3d444d; }
  }
"""
_LEGEND = (
    ("service", "this service"),
    ("peer", "peers doing the same work"),
    ("limit", "upper limits: one constant response"),
)


class Panel(NamedTuple):
    """The position of a cell's bars; `scale` is in pixels per request per second."""

    cell: Cell
    left: int
    top: int
    scale: float


def draw_plot(cells: list[Cell], candidates: tuple[Candidate, ...]) -> str:
    """Draw all cells as SVG."""
    kinds = {candidate.name: candidate.kind for candidate in candidates}
    rows = len({cell.connections for cell in cells})
    height = _HEADER_HEIGHT + rows * (len(kinds) * _BAR_DISTANCE + _ROW_GAP) + _MARGIN
    parts = [*_draw_heading(height), *_draw_names(cells, kinds)]
    for panel in _build_panels(cells, kinds):
        parts += _draw_bars(panel, kinds)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _draw_heading(height: int) -> Iterator[str]:
    label = "Requests per second on one core: Listings, its peers, and two upper limits"
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
        f'height="{height}" role="img" aria-label="{label}">'
    )
    yield f"<style>{_STYLE}</style>"
    yield f'<rect class="page" width="{_WIDTH}" height="{height}"/>'
    yield _draw_text(_MARGIN, 30, "Requests per second on one core (longer is better)", "title")
    left = _MARGIN
    for kind, text in _LEGEND:
        yield f'<rect class="{kind}" x="{left}" y="44" width="12" height="12"/>'
        yield _draw_text(left + 18, 54, text, "small")
        left += 40 + 7 * len(text)


def _draw_names(cells: list[Cell], kinds: Mapping[str, str]) -> Iterator[str]:
    for row, connections in enumerate(_remove_duplicates(cell.connections for cell in cells)):
        top = _get_row_top(row, len(kinds))
        plural = "connection" if connections == 1 else "connections"
        yield _draw_text(_MARGIN, top - 10, f"{connections} {plural}", "head")
        for index, name in enumerate(kinds):
            yield _draw_text(_MARGIN, top + index * _BAR_DISTANCE + 12, name)


def _build_panels(cells: list[Cell], kinds: Mapping[str, str]) -> Iterator[Panel]:
    scenarios, counts = (
        _remove_duplicates(cell.scenario for cell in cells),
        _remove_duplicates(cell.connections for cell in cells),
    )
    column_width = (_WIDTH - _MARGIN - _NAME_WIDTH) // len(scenarios)
    for cell in cells:
        column = scenarios.index(cell.scenario)
        max_rate = max(one.compute_rate(name) for one in cells if one.scenario == cell.scenario for name in one.runs)
        yield Panel(
            cell,
            _NAME_WIDTH + column * column_width,
            _get_row_top(counts.index(cell.connections), len(kinds)),
            (column_width - _FIGURE_WIDTH - _COLUMN_GAP) / max_rate,
        )


def _draw_bars(panel: Panel, kinds: Mapping[str, str]) -> Iterator[str]:
    cell, left, top, scale = panel
    yield _draw_text(left, top - 10, cell.scenario, "head")
    yield f'<line class="axis" x1="{left}" y1="{top - 3}" x2="{left}" y2="{top + len(kinds) * _BAR_DISTANCE - 3}"/>'
    for index, (name, kind) in enumerate(kinds.items()):
        y = top + index * _BAR_DISTANCE
        if name not in cell.runs:
            yield _draw_text(left + 5, y + 12, "not supported", "small")
            continue
        rate = cell.compute_rate(name)
        width = max(1.0, rate * scale)
        yield f'<rect class="{kind}" x="{left}" y="{y}" width="{width:.1f}" height="{_BAR_HEIGHT}"/>'
        yield _draw_text(left + width + 5, y + 12, f"{rate:,.0f}")


def _get_row_top(row: int, bars: int) -> int:
    return _HEADER_HEIGHT + row * (bars * _BAR_DISTANCE + _ROW_GAP) + 16


def _remove_duplicates(values: Iterable[T]) -> list[T]:
    return list(dict.fromkeys(values))


def _draw_text(x: float, y: float, text: str, kind: str = "") -> str:
    name = f' class="{kind}"' if kind else ""
    return f'<text{name} x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'
