"""Usage as bars: a chart is drawn on the server, and its numbers stand in a table behind it. Pure."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from listings.service.usage import Period
from listings.site import presentation

WIDTH, HEIGHT = 720, 160
_GAP = 0.25  # of a bar's place
_LEAST = 2.0  # what is there can be seen
_STEPS = (1, 2, 3, 4, 5, 6, 8)


class Bar(NamedTuple):
    """A bar with what was refused on its top; y grows downwards."""

    x: float
    width: float
    y: float
    height: float
    refused: float  # height of the part on top
    title: str


class Chart(NamedTuple):
    """Bars below a line at `most`, and where they begin and end in words."""

    bars: list[Bar]
    most: int
    first: str
    last: str
    rows: list[tuple[str, int, int]]  # when, responses, refused ones; the latest first
    total: int


def chart_of(periods: Sequence[Period], when: Callable[[int], str]) -> Chart:
    """The chart of periods in their order; `when` tells a moment in words."""
    most = _round_up(max(period.responses for period in periods))
    place = WIDTH / len(periods)
    bars = [_bar(period, number * place, place, most, when(period.start)) for number, period in enumerate(periods)]
    rows = [(when(period.start), period.responses, period.rejected) for period in reversed(periods)]
    total = sum(period.responses for period in periods)
    return Chart(bars, most, when(periods[0].start), when(periods[-1].start), rows, total)


def _bar(period: Period, x: float, place: float, most: int, when: str) -> Bar:
    height = max(_LEAST, HEIGHT * period.responses / most) if period.responses else 0.0
    refused = max(_LEAST, height * period.rejected / period.responses) if period.rejected else 0.0
    told = f"{when}: {presentation.count_of(period.responses, 'request')}"
    return Bar(
        round(x + place * _GAP / 2, 1),
        round(place * (1 - _GAP), 1),
        round(HEIGHT - height, 1),
        round(height, 1),
        round(refused, 1),
        f"{told}, {period.rejected:,} refused" if period.rejected else told,
    )


def _round_up(most: int) -> int:
    """The next number whose first digit alone is none: 1, 2, 3, 40, 500."""
    scale = 1
    while True:
        for step in _STEPS:
            if most <= step * scale:
                return step * scale
        scale *= 10
