"""Index listings in the background, in short steps with pauses, so that requests are hardly delayed."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from listings.domain.market import IndexResult

Pause: TypeAlias = Callable[[float], Awaitable[None]]
"""Sleeps for a number of seconds."""

_FIRST_STEP, _MIN_STEP, _MAX_STEP = 16, 4, 2_000  # listings
_IDLE_STEP_SECONDS = 0.1  # target duration of a step without other requests lately; a request may wait that long
_BUSY_STEP_SECONDS = 0.001  # target duration of a step with other requests
_IDLE_SHARE, _READ_SHARE, _BUSY_SHARE = 0.8, 0.25, 0.04  # of the time: without requests, with reads, with writes
_MAX_PAUSE_SECONDS = 5.0


async def run_index_steps(
    take_step: Callable[[int], Awaitable[IndexResult]], pause: Pause, count_requests: Callable[[], int]
) -> int:
    """Run index steps until nothing remains. Return the number of listings indexed.

    `take_step` receives the maximum number of listings. The size of a step limits the delay of a concurrent request,
    and the pause after it limits the share of the time that indexing takes. The first step is small, because it is not
    yet known whether there are concurrent requests. `count_requests` returns those that this process has received.
    """
    done, size, requests = 0, _FIRST_STEP, count_requests()
    while True:
        step = await take_step(size)
        done += step.done
        if not step.has_more:
            return done
        share = _BUSY_SHARE if step.contended else _IDLE_SHARE
        if step.delays_reads and not step.contended and count_requests() != requests:
            step, share = step._replace(contended=True), _READ_SHARE
        requests = count_requests()
        size = compute_next_size(size, step)
        await pause(min(step.seconds * (1 / share - 1), _MAX_PAUSE_SECONDS))


def compute_next_size(size: int, step: IndexResult) -> int:
    """Return the size of the next step, given the size and the result of the last one. It at most doubles."""
    if step.seconds <= 0:
        return size
    fitting = int(step.done * (_BUSY_STEP_SECONDS if step.contended else _IDLE_STEP_SECONDS) / step.seconds)
    return max(_MIN_STEP, min(fitting, 2 * size, _MAX_STEP))
