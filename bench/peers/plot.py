"""The result as a picture: bars of requests a second, a column for each scenario, a row for each number of connections.

The colours are for light and dark pages alike; a browser chooses by its user's preference.
"""

from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import NamedTuple, TypeVar

from bench.peers.contenders import Contender
from bench.peers.contest import Cell

T = TypeVar("T")

_WIDTH = 1000
_MARGIN = 16
_NAMES = 142  # for the contenders' names at the left
_TOP = 96
_BAR = 15
_STEP = 21  # from one bar to the next
_GAP = 34  # between rows, with the heading of the lower one
_FIGURE = 52  # for the number behind the longest bar
_BETWEEN = 12

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
    """Where one cell's bars stand; `scale`: pixels for a request a second."""

    cell: Cell
    left: int
    top: int
    scale: float


def plot(cells: list[Cell], contenders: tuple[Contender, ...]) -> str:
    """An SVG of all cells."""
    kinds = {contender.name: contender.kind for contender in contenders}
    rows = len({cell.connections for cell in cells})
    height = _TOP + rows * (len(kinds) * _STEP + _GAP) + _MARGIN
    parts = [*_heading(height), *_names(cells, kinds)]
    for panel in _panels(cells, kinds):
        parts += _bars(panel, kinds)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _heading(height: int) -> Iterator[str]:
    label = "Requests per second on one core: Listings, its peers, and two upper limits"
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
        f'height="{height}" role="img" aria-label="{label}">'
    )
    yield f"<style>{_STYLE}</style>"
    yield f'<rect class="page" width="{_WIDTH}" height="{height}"/>'
    yield _text(_MARGIN, 30, "Requests per second on one core (longer is better)", "title")
    left = _MARGIN
    for kind, words in _LEGEND:
        yield f'<rect class="{kind}" x="{left}" y="44" width="12" height="12"/>'
        yield _text(left + 18, 54, words, "small")
        left += 40 + 7 * len(words)


def _names(cells: list[Cell], kinds: Mapping[str, str]) -> Iterator[str]:
    for row, connections in enumerate(_once(cell.connections for cell in cells)):
        top = _top_of(row, len(kinds))
        plural = "connection" if connections == 1 else "connections"
        yield _text(_MARGIN, top - 10, f"{connections} {plural}", "head")
        for place, name in enumerate(kinds):
            yield _text(_MARGIN, top + place * _STEP + 12, name)


def _panels(cells: list[Cell], kinds: Mapping[str, str]) -> Iterator[Panel]:
    scenarios, counts = _once(cell.scenario for cell in cells), _once(cell.connections for cell in cells)
    wide = (_WIDTH - _MARGIN - _NAMES) // len(scenarios)
    for cell in cells:
        column = scenarios.index(cell.scenario)
        most = max(one.rate(name) for one in cells if one.scenario == cell.scenario for name in one.runs)
        yield Panel(
            cell,
            _NAMES + column * wide,
            _top_of(counts.index(cell.connections), len(kinds)),
            (wide - _FIGURE - _BETWEEN) / most,
        )


def _bars(panel: Panel, kinds: Mapping[str, str]) -> Iterator[str]:
    cell, left, top, scale = panel
    yield _text(left, top - 10, cell.scenario, "head")
    yield f'<line class="axis" x1="{left}" y1="{top - 3}" x2="{left}" y2="{top + len(kinds) * _STEP - 3}"/>'
    for place, (name, kind) in enumerate(kinds.items()):
        y = top + place * _STEP
        if name not in cell.runs:
            yield _text(left + 5, y + 12, "not supported", "small")
            continue
        rate = cell.rate(name)
        width = max(1.0, rate * scale)
        yield f'<rect class="{kind}" x="{left}" y="{y}" width="{width:.1f}" height="{_BAR}"/>'
        yield _text(left + width + 5, y + 12, f"{rate:,.0f}")


def _top_of(row: int, bars: int) -> int:
    return _TOP + row * (bars * _STEP + _GAP) + 16


def _once(values: Iterable[T]) -> list[T]:
    return list(dict.fromkeys(values))


def _text(x: float, y: float, words: str, kind: str = "") -> str:
    name = f' class="{kind}"' if kind else ""
    return f'<text{name} x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'
