"""Bar charts of usage, computed on the server. Pure functions."""

from collections.abc import Callable, Sequence
from itertools import count
from typing import NamedTuple

from listings.domain.number_text import format_count
from listings.service.history.usage import Period

_WIDTH, _HEIGHT = 720, 160
_TICKS = 4  # intervals between the labels below the chart
_GAP = 0.25  # between two bars, as a share of a bar's slot
_MIN_HEIGHT = 5.0  # so that the smallest number is visible, above the line at the bottom


class Bar(NamedTuple):
    """A bar with the rejected requests on top; y grows downwards."""

    x: float
    width: float
    y: float
    height: float
    rejected: float  # height of the part on top
    title: str


class Chart(NamedTuple):
    """Bars on a scale from 0 to `scale`, with the labels of five of them, and where the line of the limit is."""

    bars: list[Bar]
    scale: int
    ticks: list[str]
    limit_y: float | None
    rows: list[tuple[str, int, int]]  # label, requests, rejected requests; newest first
    total: int
    width: int = _WIDTH
    height: int = _HEIGHT


def build_chart(
    periods: Sequence[Period], label: Callable[[int], str], limit: int = 0, *, unit: str = "request"
) -> Chart:
    """Return the chart of consecutive periods; `label` formats the start of a period. `limit` is drawn as a line."""
    most = max(limit, *(period.responses for period in periods))
    scales = (digit * 10**power for power in count() for digit in (1, 2, 3, 4, 5, 6, 8))
    scale = next(number for number in scales if number >= most)
    slot = _WIDTH / len(periods)
    bars = [
        _bar(period, number * slot, slot, scale, label(period.start), unit) for number, period in enumerate(periods)
    ]
    rows = [(label(period.start), period.responses, period.rejected) for period in reversed(periods)]
    total = sum(period.responses for period in periods)
    last = len(periods) - 1
    ticks = [label(periods[round(last * part / _TICKS)].start) for part in range(_TICKS + 1)]
    return Chart(bars, scale, ticks, round(_HEIGHT * (1 - limit / scale), 1) if limit else None, rows, total)


def _bar(period: Period, x: float, slot: float, scale: int, label: str, unit: str) -> Bar:
    height = max(_MIN_HEIGHT, _HEIGHT * period.responses / scale) if period.responses else 0.0
    rejected = max(_MIN_HEIGHT, height * period.rejected / period.responses) if period.rejected else 0.0
    title = f"{label}: {format_count(period.responses, unit)}"
    return Bar(
        round(x + slot * _GAP / 2, 1),
        round(slot * (1 - _GAP), 1),
        round(_HEIGHT - height, 1),
        round(height, 1),
        round(rejected, 1),
        f"{title}, {period.rejected:,} rejected" if period.rejected else title,
    )
