"""What is indexed beside the requests: in steps that leave most of the time to others."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from listings.contract.listings import IndexStep

Pause: TypeAlias = Callable[[float], Awaitable[None]]
"""Waits for so many seconds."""

_FIRST_STEP, _LEAST_STEP, _MOST_STEP = 16, 4, 2_000  # listings
_IDLE = 0.1  # seconds that a step may take, and a write may wait for it, while nobody writes
_BUSY = 0.001  # and while others do
_SHARE_OF_IDLE, _SHARE_OF_BUSY = 0.8, 0.04  # of the time
_LONGEST_PAUSE = 5.0  # seconds


async def index(take_step: Callable[[int], Awaitable[IndexStep]], pause: Pause) -> int:
    """Take steps of at most so many listings until nothing is left; returns how many listings that were.

    A step is made as long as a write of others may wait for it, and is followed by a pause that leaves it its share of
    the time. The first one is small, for others may have begun to write.
    """
    done, size = 0, _FIRST_STEP
    while True:
        step = await take_step(size)
        done += step.done
        if not step.left:
            return done
        size = next_size(size, step)
        share = _SHARE_OF_BUSY if step.contended else _SHARE_OF_IDLE
        await pause(min((step.seconds + step.preparing_seconds) * (1 / share - 1), _LONGEST_PAUSE))


def next_size(size: int, step: IndexStep) -> int:
    """How many listings the next step may have, by how long this one took: never more than twice as many."""
    if step.seconds <= 0:
        return size
    fitting = int(step.done * (_BUSY if step.contended else _IDLE) / step.seconds)
    return max(_LEAST_STEP, min(fitting, 2 * size, _MOST_STEP))
