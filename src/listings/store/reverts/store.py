"""The methods of `RevertStore`, which every engine implements with the same statements and scripts."""

from collections.abc import Sequence

from listings.contract.history import Actor
from listings.contract.listings import IdempotencyRecord
from listings.contract.reverts import (
    MAX_STEP_LISTINGS,
    Candidate,
    Revert,
    RevertConflict,
    RevertKey,
    RevertPosition,
    RevertPreview,
    RevertRequest,
    RevertScan,
    RevertStep,
)
from listings.domain.reverts import RevertScope
from listings.store import change_sql
from listings.store.reverts import reads as revert_reads
from listings.store.reverts import sql as revert_sql
from listings.store.reverts import writes as revert_writes
from listings.store.scripts import listings
from listings.store.scripts.engine import Engine
from listings.store.scripts.script import ScriptedStore


class ScriptedRevertStore(ScriptedStore):
    """Implements `RevertStore`."""

    engine: Engine
    page_creates_statement = change_sql.PAGE_CREATES

    async def find_revert_scope(self, bucket: int, account_id: int, request: RevertRequest) -> RevertScope:
        return await self._run_reads(lambda: revert_reads.find_scope((bucket, account_id), request))

    async def scan_revert(self, bucket: int, account_id: int, scope: RevertScope, before: RevertPosition) -> RevertScan:
        partition, statement = (bucket, account_id), self.page_creates_statement
        return await self._run_reads(lambda: revert_reads.scan(partition, scope, before, statement))

    async def preview_revert(
        self, bucket: int, account_id: int, scope: RevertScope, candidates: Sequence[Candidate], now: int
    ) -> RevertPreview:
        partition, limits = (bucket, account_id), self.engine.limits
        return await self._run_reads(lambda: revert_writes.preview(partition, scope, candidates, limits, now))

    async def find_earlier_revert(self, bucket: int, account_id: int, idempotency: IdempotencyRecord) -> int | None:
        result = await self._run_reads(lambda: listings.find_earlier_result((bucket, account_id), idempotency))
        return int(result) if result is not None else None

    async def begin_revert(  # noqa: PLR0913, PLR0917 - the contract's parameters
        self,
        bucket: int,
        account_id: int,
        scope: RevertScope,
        step: RevertStep,
        actor: Actor,
        idempotency: IdempotencyRecord | None = None,
    ) -> Revert | int:
        partition = (bucket, account_id)
        return await self._run_script(
            lambda: revert_writes.begin(self.engine, partition, scope, step, actor, idempotency)
        )

    def choose_revert_step_size(self) -> int:
        """Return the maximum: with row locks, a step does not delay the writes of other accounts."""
        return MAX_STEP_LISTINGS

    async def advance_revert(self, key: RevertKey, step: RevertStep, worker: bytes, now: int) -> Revert | None:
        return await self._run_script(lambda: revert_writes.advance(self.engine, key, step, worker, now))

    async def get_revert(self, key: RevertKey) -> Revert | None:
        rows = await self._fetch(revert_sql.GET_REVERT, *key)
        return revert_writes.build_revert(rows[0]) if rows else None

    async def page_revert_conflicts(self, key: RevertKey, after: int, count: int) -> list[RevertConflict]:
        rows = await self._fetch(revert_sql.PAGE_CONFLICTS, *key, after, count)
        return [revert_writes.build_conflict(row) for row in rows]

    async def list_running_reverts(self, worker: bytes, now: int) -> list[Revert]:
        rows = await self._fetch(revert_sql.LIST_RUNNING_REVERTS, worker, now)
        return [revert_writes.build_revert(row) for row in rows]
