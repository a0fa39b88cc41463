"""PostgreSQL goes away under load: crashes and restarts, sessions that are ended, a standby that takes its place."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from time import monotonic
from typing import NamedTuple, TypeVar

import uvloop

from tests.torture.clients import WRITERS, Crowd
from tests.torture.instrument import SHORT, Instrument, Outcome, Scale
from tests.torture.serving import Place, Zygote, make_people
from tests.torture.standby import Pair
from tests.torture.writers import Rows, by_account, compare_all

T = TypeVar("T")

RESTARTS, TERMINATIONS, PROMOTIONS = 20, 40, 6
_LONGEST_RESTART, _LONGEST_PROMOTION = 5.0, 15.0  # seconds until it is good again
_LONGEST_BESIDE = 60.0  # of either, where others are at work
_BETWEEN = 60  # writes between two disturbances
_DATABASE = "listings"
_ROWS = "SELECT id, account_id, title, price_cents, version, deleted_at IS NOT NULL FROM listings"
_TERMINATE = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = 'listings' AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""


class Result(NamedTuple):
    """What it came to."""

    restarts: int
    terminations: int
    promotions: int
    acknowledged: int
    refused: int
    slowest_restart: float
    slowest_promotion: float
    faults: list[str]


class Trial:
    """Two servers, a service over them, and its clients."""

    def __init__(self, pair: Pair, crowd: Crowd, thread: Executor) -> None:
        """`thread` lives longer than the servers that are started in it, since they die with it."""
        self._pair = pair
        self._thread = thread
        self._crowd = crowd
        self.restarts = self.terminations = self.promotions = 0
        self.slowest_restart = self.slowest_promotion = 0.0

    async def restart(self) -> None:
        """As after a crash."""
        await self._crowd.until_acknowledged(_BETWEEN)
        await self._beside(self._pair.primary.restart)
        self.slowest_restart = max(self.slowest_restart, await self._crowd.until_acknowledged(WRITERS))
        self.restarts += 1

    async def terminate(self) -> None:
        """Every session of the service is ended."""
        await self._crowd.until_acknowledged(_BETWEEN)
        await self._beside(self._pair.primary.execute, _TERMINATE)
        self.slowest_restart = max(self.slowest_restart, await self._crowd.until_acknowledged(WRITERS))
        self.terminations += 1

    async def promote(self, *, behind: bool = False) -> None:
        """The primary is gone, and the standby takes its place; `behind`: it lacks what was written last."""
        pair = self._pair
        await self._beside(pair.standby.follow, pair.primary)
        await self._beside(lambda: pair.primary.require_follower(synchronous=not behind))
        await self._crowd.until_acknowledged(_BETWEEN)
        if behind:
            await self._beside(pair.standby.unfollow)
            await self._crowd.until_acknowledged(_BETWEEN)
        began = monotonic()
        await self._beside(pair.fail_over)
        await self._crowd.until_acknowledged(WRITERS)
        self.slowest_promotion = max(self.slowest_promotion, monotonic() - began)
        self.promotions += 1

    async def _beside(self, work: Callable[..., T], *arguments: object) -> T:
        """While the clients go on."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: work(*arguments))

    def stored(self) -> dict[int, Rows]:
        return by_account(self._pair.primary.execute(_ROWS, _DATABASE))


def work(scale: Scale, restarts: int, terminations: int, promotions: int, *, behind: bool = False) -> Result:
    """One pair of servers for all of it."""
    with ExitStack() as stack:
        thread = stack.enter_context(ThreadPoolExecutor(1))
        pair = stack.enter_context(Pair())
        pair.primary.execute(f"CREATE DATABASE {_DATABASE}")
        zygote = stack.enter_context(Zygote())
        settings = {"LISTINGS_DATABASE_URL": pair.url(_DATABASE), "LISTINGS_DATABASE_TIMEOUT": "5"}
        place = stack.enter_context(Place(scale.folder, zygote, **settings))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            trial, crowd = runner.run(
                _work(pair, place, scale, (restarts, terminations, promotions), thread, behind=behind)
            )
        found = crowd.faults + compare_all(crowd.writers, trial.stored())
        place.kill()
    return Result(
        trial.restarts,
        trial.terminations,
        trial.promotions,
        crowd.acknowledged,
        crowd.refused,
        trial.slowest_restart,
        trial.slowest_promotion,
        found,
    )


async def _work(
    pair: Pair, place: Place, scale: Scale, counts: tuple[int, int, int], thread: Executor, *, behind: bool
) -> tuple[Trial, Crowd]:
    people = await make_people(scale.folder, WRITERS, database=pair.url(_DATABASE))
    place.start()
    await place.answers()
    crowd = Crowd(place.port, people)
    crowd.reads_may_fail = True
    trial = Trial(pair, crowd, thread)
    restarts, terminations, promotions = counts
    for _ in range(terminations):
        await trial.terminate()
    for _ in range(restarts):
        await trial.restart()
    while trial.promotions < promotions and not scale.is_over:
        await trial.promote(behind=behind)
    await crowd.finish()
    return trial, crowd


def run(scale: Scale) -> Outcome:
    """Restarts, ended sessions, promotions."""
    counts = scale.amount(RESTARTS, 1), scale.amount(TERMINATIONS, 2), scale.amount(PROMOTIONS)
    result = work(scale, *counts)
    found = list(result.faults)
    is_alone = scale.part > SHORT
    if result.slowest_restart > (_LONGEST_RESTART if is_alone else _LONGEST_BESIDE):
        found.append(f"after a restart it took {result.slowest_restart:.1f} s until it was good again")
    if result.slowest_promotion > (_LONGEST_PROMOTION if is_alone else _LONGEST_BESIDE):
        found.append(f"after a promotion it took {result.slowest_promotion:.1f} s until it was good again")
    disturbed = f"{result.restarts} crashes, {result.terminations} times all sessions ended"
    slowest = f"{result.slowest_restart:.1f} s; {result.promotions} promotions: within {result.slowest_promotion:.1f} s"
    answers = f"{result.acknowledged:,} acknowledged, {result.refused:,} rejected"
    told = f"{disturbed}: recovery within {slowest}; {answers}"
    whole = result[:3] >= (RESTARTS, TERMINATIONS, PROMOTIONS)
    return Outcome(told, found, whole)


def control(scale: Scale) -> Outcome:
    """A standby that is behind takes the place of its primary."""
    result = work(scale, 0, 0, 1, behind=True)
    return Outcome(f"a standby that is behind is promoted, {result.acknowledged} acknowledged", result.faults)


INSTRUMENT = Instrument(
    13,
    "PostgreSQL: crashes, ended sessions, failover to a standby, with 16 writers",
    "0 acknowledged writes lost, only 503, recovery within 5 s (crash) and 15 s (promotion)",
    2.5,
    run,
    control,
)
