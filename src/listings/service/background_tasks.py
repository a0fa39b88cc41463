"""Background tasks of a running service, such as indexing, sending mail, continuing reverts and purging old data."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias, cast

from listings.domain.errors import Unavailable
from listings.service.indexing import Pause

_log = logging.getLogger(__name__)

Job: TypeAlias = Callable[[], Awaitable[object]]

MINUTELY_SECONDS = 60
HOURLY_SECONDS = 3600
BUDGET_SECONDS = 10
MARKET_SECONDS = 1
STAMP_SECONDS = 0.2
INDEX_SECONDS = 1
MAIL_SECONDS = 2
STATE_SECONDS = 15  # Prometheus usually reads metrics as often
REVERT_SECONDS = 1
LIMITER_SECONDS = 1  # until the limiter's maintenance is started again after it ends
USAGE_SECONDS = 2  # normal delay until other processes show the requests that this one has counted


class Task(NamedTuple):
    """Jobs that run one after the other, repeatedly. `seconds` is the pause before each round."""

    seconds: float
    jobs: Sequence[Job]
    pauses_first: bool = True


async def run_tasks(tasks: Iterable[Task], pause: Pause) -> None:
    """Run all tasks at the same time until cancelled."""
    async with asyncio.TaskGroup() as group:
        for task in tasks:
            group.create_task(_repeat(pause, task))


async def _repeat(pause: Pause, task: Task) -> None:
    current = cast("asyncio.Task[None]", asyncio.current_task())
    if task.pauses_first:
        await pause(task.seconds)
    while True:
        for job in task.jobs:
            try:
                await job()
            except Unavailable:
                pass  # the next run tries again
            except Exception:  # noqa: BLE001 - a bug in one job must not stop the others
                _log.exception("The background job %s failed", getattr(job, "__qualname__", job))
            if current.cancelling():  # the job may have raised another exception
                return
        await pause(task.seconds)
