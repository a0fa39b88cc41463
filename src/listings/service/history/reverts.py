"""The use cases of reverts: preview, start, continue in the background, and report (decisions G46, G55)."""

import asyncio
import logging
import secrets
from collections.abc import Callable

from listings.domain.errors import Problem, Unavailable
from listings.domain.history import CONSOLE, OPERATOR, Actor
from listings.domain.model import bucket_of
from listings.domain.reverts import (
    MAX_FIRST_LISTINGS,
    FoundScope,
    Revert,
    RevertConflict,
    RevertKey,
    RevertKind,
    RevertPosition,
    RevertPreview,
    RevertRequest,
)
from listings.domain.timestamps import DAY_SECONDS
from listings.queues import FairQueue
from listings.service.listings.steps import DEFAULT_WRITE_OPTIONS, WriteOptions, build_idempotency_record
from listings.store.store import Store

_log = logging.getLogger(__name__)

_MAX_FIRST_SCANS = 8  # before the answer to a request
_MAX_PREVIEWS = 4  # at a time: each has up to 5 MB of listings in memory
_POLL_SECONDS = 0.2
_CLOCK_SECONDS = 60  # by which the clock of a client may be ahead
_PAUSE_SECONDS = 0.001  # between steps, so that waiting writes can run
_RETRY_SECONDS = 60  # after an unexpected error


class Reverts:
    """Previews, starts and continues reverts. An account is given by its id."""

    def __init__(self, store: Store, clock: Callable[[], float], days: int) -> None:
        """`days`: how long change sets are stored."""
        self._store = store
        self._clock = clock
        self._days = days
        self._worker = secrets.token_bytes(16)
        self._previews = FairQueue(slots=_MAX_PREVIEWS)
        self._retry_times: dict[RevertKey, float] = {}  # of reverts that failed

    async def preview(
        self, account_id: int, request: RevertRequest, has_left: Callable[[], bool] = lambda: False
    ) -> RevertPreview:
        """Return what a revert would do. Raises Unavailable once `has_left` returns True: the client.

        Raises Problem: invalid_request, change_not_found, changes_gone, revert_running (the revert to undo is
        unfinished).
        """
        async with self._previews.acquire(account_id):
            scope, times = await self._find_scope(account_id, request)
            partition, now = (bucket_of(account_id), account_id), int(self._clock())
            preview = RevertPreview(times)
            position, scan, is_over = RevertPosition(scope.last), None, False
            while not is_over:
                if has_left():
                    raise Unavailable("The service is restarting: try again in a moment")
                if scan is None or position == scan.end:
                    scan = await self._store.scan_revert(*partition, scope, position)
                step = scan.cut(position, MAX_FIRST_LISTINGS)
                done = await self._store.preview_revert(*partition, scope, step, now, preview)
                position, is_over = step.find_end(done)
                await asyncio.sleep(0)  # lets other requests run
        return preview

    async def start(
        self, account_id: int, request: RevertRequest, actor: int, options: WriteOptions = DEFAULT_WRITE_OPTIONS
    ) -> tuple[Revert, bool]:
        """Start a revert on behalf of an actor: revert the first listings now; `run` reverts the others.

        It uses only the idempotency key and the digest in the options. Return whether an earlier request started it.

        Raises Problem: invalid_request, revert_running, change_not_found, changes_gone, idempotency_key_reused,
        account_disabled.
        """
        partition, now = (bucket_of(account_id), account_id), int(self._clock())
        earlier = await self.find_earlier(account_id, options)
        if earlier is not None:  # even if the change sets to revert are no longer stored
            return earlier, True
        record = build_idempotency_record(options, now)
        scope, _ = await self._find_scope(account_id, request)
        found = await self._store.scan_revert(*partition, scope, RevertPosition(scope.last))
        for _ in range(_MAX_FIRST_SCANS - 1):
            if found.is_last or len(found.candidates) > MAX_FIRST_LISTINGS:
                break
            following = await self._store.scan_revert(*partition, scope, found.end)
            found = following._replace(start=found.start, candidates=[*found.candidates, *following.candidates])
        step = found.cut(found.start, MAX_FIRST_LISTINGS)
        begun = await self._store.begin_revert(*partition, scope, step, Actor(actor, now), record)
        if isinstance(begun, Revert):
            _log.info("Started the revert %d of account %d", begun.key.id, account_id)
            return begun, False
        return await self.get(account_id, begun), True

    async def find_earlier(self, account_id: int, options: WriteOptions) -> Revert | None:
        """Return the revert that was started with the idempotency key, or None.

        Raises Problem("idempotency_key_reused") if the key was used for a different request.
        """
        record = build_idempotency_record(options, int(self._clock()))
        if record is None:
            return None
        revert_id = await self._store.find_earlier_revert(bucket_of(account_id), account_id, record)
        return None if revert_id is None else await self.get(account_id, revert_id)

    async def get(self, account_id: int, revert_id: int) -> Revert:
        """Return a revert of an account. Raises Problem("change_not_found")."""
        revert = await self._store.get_revert(RevertKey(bucket_of(account_id), account_id, revert_id))
        if revert is None:
            raise Problem("change_not_found", f"There is no revert with the id {revert_id}")
        return revert

    async def list_undone(self, account_id: int) -> set[tuple[RevertKind, int]]:
        """Return the kinds and subjects of the scopes that reverts have undone without a conflict."""
        return await self._store.list_undone(bucket_of(account_id), account_id)

    async def list_conflicts(self, revert: Revert, after: int, count: int) -> list[RevertConflict]:
        """Return at most `count` conflicts of a revert with numbers above `after`."""
        return await self._store.page_revert_conflicts(revert.key, after, count)

    async def run(self) -> None:
        """Continue all enabled accounts' unfinished reverts in turn, except those that another process works on."""
        while running := await self._list_running():
            for revert in running:
                await self._try_to_advance(revert)

    async def _list_running(self) -> list[Revert]:
        now = int(self._clock())
        found = await self._store.list_running_reverts(self._worker, now)
        self._retry_times = {key: moment for key, moment in self._retry_times.items() if moment > now}
        return [revert for revert in found if revert.key not in self._retry_times]

    async def _try_to_advance(self, revert: Revert) -> None:
        try:
            await self._advance(revert)
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001 - a bug must not stop the other reverts
            if not (isinstance(error, Problem) and error.code == "account_disabled"):
                self._retry_times[revert.key] = self._clock() + _RETRY_SECONDS
                _log.exception("The revert %d of account %d failed", revert.key.id, revert.key.account_id)

    async def finish(self, revert: Revert) -> Revert:
        """Continue a revert until it is finished, here or in another process. Raises Problem("account_disabled")."""
        while revert.finished_at is None:
            if not await self._advance(revert):
                await asyncio.sleep(_POLL_SECONDS)
            revert = await self.get(revert.key.account_id, revert.key.id)
        return revert

    async def _advance(self, revert: Revert) -> bool:
        # Takes the steps of a page of changes. Returns False if another process is working on this revert.
        scan = await self._store.scan_revert(*revert.key[:2], revert.scope, revert.position)
        while not (scan.candidates or scan.is_last):
            scan = await self._store.scan_revert(*revert.key[:2], revert.scope, scan.end)
        advanced: Revert | None = revert
        while advanced is not None and advanced.finished_at is None and advanced.position != scan.end:
            step = scan.cut(advanced.position, self._store.choose_revert_step_size())
            advanced = await self._store.advance_revert(revert.key, step, self._worker, int(self._clock()))
            await asyncio.sleep(_PAUSE_SECONDS)
        return advanced is not None

    async def _find_scope(self, account_id: int, request: RevertRequest) -> FoundScope:
        if request.kind == "key":
            keys = {key.id for key in await self._store.list_keys(account_id)}
            if request.subject not in keys | {CONSOLE, OPERATOR}:
                raise Problem("change_not_found", f"There is no key with the id {request.subject}")
            if request.since > self._clock() + _CLOCK_SECONDS:
                raise Problem("invalid_request", "since must not be in the future. Times are in UTC")
            if request.since < self._clock() - self._days * DAY_SECONDS:
                stored = f"the last {self._days} days, for which changes are stored"
                raise Problem("changes_gone", f"since must be within {stored}")
        return await self._store.find_revert_scope(bucket_of(account_id), account_id, request)
