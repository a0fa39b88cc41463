"""Background tasks of a running service, such as indexing, sending mail, continuing reverts and purging old data."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias, cast

from listings.domain.errors import Unavailable
from listings.service.indexing import Pause

if TYPE_CHECKING:
    from listings.service import Services

_log = logging.getLogger(__name__)

Job: TypeAlias = Callable[[], Awaitable[object]]

_MINUTELY_SECONDS = 60
_HOURLY_SECONDS = 3600
_MARKET_SECONDS = 1
_INDEX_SECONDS = 1
_MAIL_SECONDS = 2
_REVERT_SECONDS = 1
_LIMITER_SECONDS = 1  # until the limiter's maintenance is started again after it ends
_USAGE_SECONDS = 2  # normal delay until other processes show the requests that this one has counted


async def run_background_tasks(services: "Services", pause: Pause, *, market_open: bool) -> None:
    """Run the background tasks until cancelled. `market_open`: whether listings are indexed for the market."""
    purges = (
        services.listings.purge_idempotency_records,
        services.market.purge_views,
        services.sessions.purge,
        services.activity.purge,
        services.changes.purge,
        services.mailer.purge,
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(
            _repeat(pause, _MINUTELY_SECONDS, services.access.write_key_uses, services.usage.write, *purges)
        )
        group.create_task(_repeat(pause, _USAGE_SECONDS, services.usage.write_batch))
        group.create_task(_repeat(pause, _MARKET_SECONDS, services.market.write_views))
        group.create_task(_repeat(pause, _INDEX_SECONDS, services.market.index_accounts))
        group.create_task(_repeat(pause, _HOURLY_SECONDS, services.plan_requests.report, services.plan_reminders.queue))
        group.create_task(_repeat(pause, _MINUTELY_SECONDS, services.own_account.erase_closed))
        if services.mailer.is_on:
            group.create_task(_repeat(pause, _MAIL_SECONDS, services.mailer.send_due))
        group.create_task(_repeat(pause, _REVERT_SECONDS, services.reverts.run))
        if services.limiter is not None:
            maintain = services.limiter.run_maintenance  # runs until cancelled, or returns if it has nothing to do
            group.create_task(_repeat(pause, _LIMITER_SECONDS, maintain, pauses_first=False))
        if market_open:
            group.create_task(_repeat(pause, _MARKET_SECONDS, services.market.index))


async def _repeat(pause: Pause, seconds: float, *jobs: Job, pauses_first: bool = True) -> None:
    """Pause and run the jobs, repeatedly, until cancelled.

    A cancelled job may raise an exception other than CancelledError, so cancellation is checked after each job.
    """
    task = cast("asyncio.Task[None]", asyncio.current_task())
    if pauses_first:
        await pause(seconds)
    while True:
        for job in jobs:
            await _run(job)
            if task.cancelling():
                return
        await pause(seconds)


async def _run(job: Job) -> None:
    try:
        await job()
    except Unavailable:
        pass  # the next run tries again
    except Exception:  # noqa: BLE001 - a bug in one job must not stop the others
        _log.exception("The background job %s failed", getattr(job, "__qualname__", job))
