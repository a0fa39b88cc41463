"""Background tasks of a running service: write pending counts, update the indexes, continue reverts, purge old data."""

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

_PURGE_SECONDS = 60
_REPORT_SECONDS = 3600
_MARKET_SECONDS = 1
_INDEX_SECONDS = 1
_MAIL_SECONDS = 2
_REVERT_SECONDS = 1
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
        group.create_task(_repeat(pause, _PURGE_SECONDS, services.access.write_key_uses, services.usage.write, *purges))
        group.create_task(_repeat(pause, _USAGE_SECONDS, services.usage.write_batch))
        group.create_task(_repeat(pause, _MARKET_SECONDS, services.market.write_views))
        group.create_task(_repeat(pause, _INDEX_SECONDS, services.market.index_accounts))
        group.create_task(_repeat(pause, _REPORT_SECONDS, services.plan_requests.report, services.plan_reminders.queue))
        group.create_task(_repeat(pause, _PURGE_SECONDS, services.own_account.erase_closed))
        if services.mailer.is_on:
            group.create_task(_repeat(pause, _MAIL_SECONDS, services.mailer.send_due))
        group.create_task(_repeat(pause, _REVERT_SECONDS, services.reverts.run))
        if services.limiter is not None:
            group.create_task(services.limiter.run_maintenance())
        if market_open:
            group.create_task(_repeat(pause, _MARKET_SECONDS, services.market.index))


async def _repeat(pause: Pause, seconds: float, *jobs: Job) -> None:
    """Pause and run the jobs, repeatedly, until cancelled.

    A cancelled job may raise another exception instead, so the loop checks for the cancellation.
    """
    task = cast("asyncio.Task[None]", asyncio.current_task())
    while not task.cancelling():
        await pause(seconds)
        for job in jobs:
            try:
                await job()
            except Unavailable:
                pass  # the next run tries again
            except Exception:  # noqa: BLE001 - a bug in one job must not stop the others
                _log.exception("A maintenance job failed")
