"""The methods of the store that revert change sets."""

from contextlib import suppress
from typing import TypeVar

from listings.domain.errors import Unavailable
from listings.domain.history import Actor
from listings.domain.listings import IdempotencyRecord
from listings.domain.reverts import (
    MAX_STEP_LISTINGS,
    FoundScope,
    Revert,
    RevertConflict,
    RevertKey,
    RevertKind,
    RevertOverlay,
    RevertPosition,
    RevertPreview,
    RevertRequest,
    RevertScope,
    RevertStep,
)
from listings.store import change_sql
from listings.store.reverts import plans, scan
from listings.store.reverts import sql as revert_sql
from listings.store.reverts import writes as revert_writes
from listings.store.scripts import listings
from listings.store.scripts.engine import Engine
from listings.store.scripts.script import Script, ScriptedStore

T = TypeVar("T")

_MAX_ATTEMPTS = 5


class ScriptedRevertStore(ScriptedStore):
    """Stores reverts.

    A revert stores change sets of the kind `reverted`, unless it changes nothing.
    """

    engine: Engine
    page_creates_statement = change_sql.PAGE_CREATES

    async def find_revert_scope(self, bucket: int, account_id: int, request: RevertRequest) -> FoundScope:
        """Return the change sets to revert, of those that are stored now.

        Raises Problem: change_not_found, changes_gone.
        """
        return await self._run_reads(lambda tx: scan.find_scope(tx, (bucket, account_id), request))

    async def scan_revert(self, bucket: int, account_id: int, scope: RevertScope, start: RevertPosition) -> RevertStep:
        """Return the next listings to revert. A scan is of limited size and may find none."""
        partition, statement = (bucket, account_id), self.page_creates_statement
        return await self._run_reads(lambda tx: scan.scan(tx, partition, scope, start, statement))

    async def preview_revert(
        self, bucket: int, account_id: int, scope: RevertScope, step: RevertStep, now: int, overlay: RevertOverlay
    ) -> RevertPreview:
        """Return what a step would do, and add it to the overlay. It ends early if the values are large."""
        options = plans.PlanOptions(scope, self.engine.limits, now, overlay=overlay)
        return await self._run_reads(lambda tx: revert_writes.preview(tx, (bucket, account_id), step, options))

    async def find_earlier_revert(self, bucket: int, account_id: int, idempotency: IdempotencyRecord) -> int | None:
        """Return the id of the revert that was started with an idempotency key, or None.

        Raises Problem("idempotency_key_reused") if the key was used for a different request.
        """
        result = await self._run_reads(lambda tx: listings.find_earlier_result(tx, (bucket, account_id), idempotency))
        return int(result) if result is not None else None

    async def begin_revert(
        self,
        bucket: int,
        account_id: int,
        scope: RevertScope,
        step: RevertStep,
        actor: Actor,
        idempotency: IdempotencyRecord | None = None,
    ) -> Revert | int:
        """Start a revert with its first step, or return the id of the one that was started with the idempotency key.

        Raises Problem("idempotency_key_reused") if the key was used for a different request,
        Problem("revert_running") if the account has an unfinished revert, and Problem("account_disabled").
        """
        partition = (bucket, account_id)
        return await self._run_step(
            lambda tx: revert_writes.begin(tx, self.engine, partition, scope, step, actor, idempotency)
        )

    def choose_revert_step_size(self) -> int:
        """Return the maximum: with row locks, a step does not delay the writes of other accounts."""
        return MAX_STEP_LISTINGS

    async def advance_revert(self, key: RevertKey, step: RevertStep, worker: bytes, now: int) -> Revert | None:
        """Take the next step of a revert and store its progress.

        A step ends early if its values are large, or if too many listings pass on external ids.

        `worker` identifies the calling process, which then holds a lease on the revert for a few seconds. Return None
        and write nothing if another process holds it. Return None and only renew the lease if the revert is not at the
        start of the step.

        Raises Problem("account_disabled"). The account is not erased during a step.
        """
        return await self._run_step(lambda tx: revert_writes.advance(tx, self.engine, key, step, worker, now))

    async def _run_step(self, script: Script[T]) -> T:
        """Run a step, again if other writes pass on external ids between its reads and its locks."""
        for _ in range(_MAX_ATTEMPTS):
            with suppress(plans.HoldersChangedError):
                return await self._run_script(script)
        raise Unavailable("Other writes change the same external ids: try again later")

    async def get_revert(self, key: RevertKey) -> Revert | None:
        """Return a revert, or None if it does not exist."""
        rows = await self._fetch(revert_sql.GET_REVERT, *key)
        return revert_writes.build_revert(rows[0]) if rows else None

    async def list_undone(self, bucket: int, account_id: int, count: int) -> set[tuple[RevertKind, int]]:
        """Return the kinds and subjects of the scopes that the last `count` reverts have undone without a conflict.

        Those whose revert was undone are left out.
        """
        undone: set[tuple[RevertKind, int]] = set()
        for kind, subject, group_id in await self._fetch(revert_sql.LIST_UNDONE, bucket, account_id, count):
            if ("revert", group_id) not in undone:  # the newer ones come first
                undone.add((kind, subject))
        return undone

    async def page_revert_conflicts(self, key: RevertKey, after: int, count: int) -> list[RevertConflict]:
        """Return at most `count` conflicts of a revert with numbers above `after`, in their order."""
        rows = await self._fetch(revert_sql.PAGE_CONFLICTS, *key, after, count)
        return [revert_writes.build_conflict(row) for row in rows]

    async def list_running_reverts(self, worker: bytes, now: int) -> list[Revert]:
        """Return the unfinished reverts of all enabled accounts, except those on which another worker is working."""
        rows = await self._fetch(revert_sql.LIST_RUNNING_REVERTS, worker, now)
        return [revert_writes.build_revert(row) for row in rows]
