"""PostgreSQL failures under load: crashes, ended sessions, and failover to a standby."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from time import monotonic
from typing import NamedTuple, TypeVar

import uvloop

from tests.torture.instrument import SHORT_FRACTION, Instrument, Outcome, Scale
from tests.torture.services import RestartableService, create_people
from tests.torture.standby import ReplicatedPair
from tests.torture.workload import WRITERS, Workload
from tests.torture.writers import Rows, find_all_differences, group_by_account

T = TypeVar("T")

RESTARTS, TERMINATIONS, PROMOTIONS = 20, 40, 6
_MAX_RESTART_SECONDS, _MAX_PROMOTION_SECONDS = 5.0, 15.0  # until writes succeed again
_MAX_SECONDS_SHORT = 60.0  # for both, while other tests run
_WRITES_BETWEEN_FAILURES = 60
_DATABASE = "listings"
_ROWS = "SELECT id, account_id, title, price_cents, version, deleted_at IS NOT NULL FROM listings"
_TERMINATE = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = 'listings' AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""


class Result(NamedTuple):
    restarts: int
    terminations: int
    promotions: int
    acknowledged: int
    rejected: int
    slowest_restart: float
    slowest_promotion: float
    failures: list[str]


class FailoverRun:
    def __init__(self, pair: ReplicatedPair, workload: Workload, thread: Executor) -> None:
        """The servers are started in `thread`, which must outlive them: they die with it."""
        self._pair = pair
        self._thread = thread
        self._workload = workload
        self.restarts = self.terminations = self.promotions = 0
        self.slowest_restart = self.slowest_promotion = 0.0

    async def restart(self) -> None:
        """Restart the primary as after a crash."""
        await self._workload.wait_until_acknowledged(_WRITES_BETWEEN_FAILURES)
        await self._run_in_thread(self._pair.primary.restart)
        self.slowest_restart = max(self.slowest_restart, await self._workload.wait_until_acknowledged(WRITERS))
        self.restarts += 1

    async def terminate(self) -> None:
        """End all sessions of the service."""
        await self._workload.wait_until_acknowledged(_WRITES_BETWEEN_FAILURES)
        await self._run_in_thread(self._pair.primary.execute, _TERMINATE)
        self.slowest_restart = max(self.slowest_restart, await self._workload.wait_until_acknowledged(WRITERS))
        self.terminations += 1

    async def promote(self, *, is_lagging: bool = False) -> None:
        """Crash the primary and promote the standby, which lacks the last writes if `is_lagging`."""
        pair = self._pair
        await self._run_in_thread(pair.standby.follow, pair.primary)
        await self._run_in_thread(lambda: pair.primary.wait_for_standby(synchronous=not is_lagging))
        await self._workload.wait_until_acknowledged(_WRITES_BETWEEN_FAILURES)
        if is_lagging:
            await self._run_in_thread(pair.standby.stop_replication)
            await self._workload.wait_until_acknowledged(_WRITES_BETWEEN_FAILURES)
        began = monotonic()
        await self._run_in_thread(pair.fail_over)
        await self._workload.wait_until_acknowledged(WRITERS)
        self.slowest_promotion = max(self.slowest_promotion, monotonic() - began)
        self.promotions += 1

    async def _run_in_thread(self, work: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: work(*arguments))

    def read_rows(self) -> dict[int, Rows]:
        return group_by_account(self._pair.primary.execute(_ROWS, _DATABASE))


def work(scale: Scale, restarts: int, terminations: int, promotions: int, *, is_lagging: bool = False) -> Result:
    with ExitStack() as stack:
        thread = stack.enter_context(ThreadPoolExecutor(1))
        pair = stack.enter_context(ReplicatedPair())
        pair.primary.execute(f"CREATE DATABASE {_DATABASE}")
        settings = {"LISTINGS_DATABASE_URL": pair.url(_DATABASE), "LISTINGS_DATABASE_TIMEOUT": "5"}
        service = stack.enter_context(RestartableService(scale.folder, **settings))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            failover_run, workload = runner.run(
                _work(pair, service, scale, (restarts, terminations, promotions), thread, is_lagging=is_lagging)
            )
        found = workload.failures + find_all_differences(workload.writers, failover_run.read_rows())
        service.kill()
    return Result(
        failover_run.restarts,
        failover_run.terminations,
        failover_run.promotions,
        workload.acknowledged,
        workload.rejected,
        failover_run.slowest_restart,
        failover_run.slowest_promotion,
        found,
    )


async def _work(
    pair: ReplicatedPair,
    service: RestartableService,
    scale: Scale,
    counts: tuple[int, int, int],
    thread: Executor,
    *,
    is_lagging: bool,
) -> tuple[FailoverRun, Workload]:
    people = await create_people(scale.folder, WRITERS, database=pair.url(_DATABASE))
    service.start()
    await service.wait_until_ready()
    workload = Workload(service.port, people)
    workload.reads_may_fail = True
    failover_run = FailoverRun(pair, workload, thread)
    restarts, terminations, promotions = counts
    for _ in range(terminations):
        await failover_run.terminate()
    for _ in range(restarts):
        await failover_run.restart()
    while failover_run.promotions < promotions and not scale.is_time_up:
        await failover_run.promote(is_lagging=is_lagging)
    await workload.finish()
    return failover_run, workload


def run(scale: Scale) -> Outcome:
    """Restart, end sessions, and fail over."""
    counts = scale.amount(RESTARTS, 1), scale.amount(TERMINATIONS, 2), scale.amount(PROMOTIONS)
    result = work(scale, *counts)
    found = list(result.failures)
    is_full = scale.fraction > SHORT_FRACTION
    if result.slowest_restart > (_MAX_RESTART_SECONDS if is_full else _MAX_SECONDS_SHORT):
        found.append(f"recovery from a restart took {result.slowest_restart:.1f} s")
    if result.slowest_promotion > (_MAX_PROMOTION_SECONDS if is_full else _MAX_SECONDS_SHORT):
        found.append(f"recovery from a failover took {result.slowest_promotion:.1f} s")
    events = f"{result.restarts} crashes, {result.terminations} times all sessions ended"
    recovery = (
        f"{result.slowest_restart:.1f} s; {result.promotions} promotions: within {result.slowest_promotion:.1f} s"
    )
    writes = f"{result.acknowledged:,} acknowledged, {result.rejected:,} rejected"
    summary = f"{events}: recovery within {recovery}; {writes}"
    is_complete = result[:3] >= (RESTARTS, TERMINATIONS, PROMOTIONS)
    return Outcome(summary, found, is_complete)


def control(scale: Scale) -> Outcome:
    """Promote a standby that lacks the last writes."""
    result = work(scale, 0, 0, 1, is_lagging=True)
    return Outcome(f"a lagging standby is promoted, {result.acknowledged} acknowledged", result.failures)


INSTRUMENT = Instrument(
    13,
    "PostgreSQL: crashes, ended sessions, failover to a standby, with 16 writers",
    "0 acknowledged writes lost, only 503, recovery within 5 s (crash) and 15 s (promotion)",
    1.5,
    run,
    control,
)
