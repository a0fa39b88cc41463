"""The methods of the store that revert change sets, a limited number of listings in each transaction."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
from msgspec.structs import astuple, replace

from listings.domain.errors import Problem, Unavailable
from listings.domain.history import Actor
from listings.domain.listings import IdempotencyRecord
from listings.domain.reverts import (
    MAX_STEP_LISTINGS,
    FoundScope,
    Revert,
    RevertConflict,
    RevertCounts,
    RevertKey,
    RevertKind,
    RevertPlan,
    RevertPosition,
    RevertPreview,
    RevertRequest,
    RevertScope,
    RevertStep,
)
from listings.store import change_sql, member_sql, sql
from listings.store.mapping import ChangeState, Partition
from listings.store.own_account import lock_enabled
from listings.store.reverts import scan
from listings.store.reverts import sql as revert_sql
from listings.store.reverts.plans import HoldersChangedError, Planner, Plans
from listings.store.scripts import audit, listings
from listings.store.scripts.bulk import update_many
from listings.store.scripts.changes import ChangeSet, measure_change
from listings.store.scripts.engine import Engine
from listings.store.scripts.script import Script, ScriptedStore, Transaction

T = TypeVar("T")

_MAX_ATTEMPTS = 5

_encode = msgspec.json.Encoder().encode
_decode_names = msgspec.json.Decoder(list[str]).decode


class ScriptedRevertStore(ScriptedStore):
    """Stores reverts. A revert stores change sets of the kind `reverted`, unless it changes nothing."""

    engine: Engine

    async def find_revert_scope(self, bucket: int, account_id: int, request: RevertRequest) -> FoundScope:
        """Return the change sets to revert, of those that are stored now.

        Raises Problem: change_not_found, changes_gone, revert_running (the revert to undo is unfinished).
        """
        return await self._run_reads(lambda tx: scan.find_scope(tx, (bucket, account_id), request))

    async def scan_revert(self, bucket: int, account_id: int, scope: RevertScope, start: RevertPosition) -> RevertStep:
        """Return the next listings to revert. A scan is of limited size and may find none."""
        return await self._run_reads(lambda tx: scan.scan(tx, (bucket, account_id), scope, start))

    async def preview_revert(
        self, bucket: int, account_id: int, scope: RevertScope, step: RevertStep, now: int, preview: RevertPreview
    ) -> int:
        """Add to the preview what a step would do, and return how many of its listings were planned.

        It ends early if the values are large.
        """
        partition, engine = (bucket, account_id), self.engine
        plans = await self._run_reads(
            lambda tx: Planner(tx, partition, scope, engine, now, preview=preview).plan_step(step, locks=False)
        )
        preview.add(plans.planned, plans.growth, now)
        return plans.done

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

        async def begin(tx: Transaction) -> Revert | int:
            await lock_enabled(tx, account_id)
            if idempotency is not None:
                await self.engine.lock_counter(tx, bucket)
                earlier = await listings.find_earlier_result(tx, partition, idempotency)
                if earlier is not None:
                    return int(earlier)
            for revert_id, _ in await tx.fetch(revert_sql.FIND_UNFINISHED_REVERT, partition):
                advice = "an account can have only one at a time: try again later"
                raise Problem("revert_running", f"Revert {revert_id} is still running, and {advice}")
            state = await tx.get(ChangeState, change_sql.GET_EDIT_STATE, partition)
            scan.require_retained(scope.first, state.purged_revision, [])
            plans = await Planner(tx, partition, scope, self.engine, actor.moment).plan_step(step)
            key = RevertKey(*partition, await tx.get(int, revert_sql.RAISE_LAST_REVERT, partition))
            begun = Revert(key, scope, actor.key_id, actor.moment, step.start, RevertCounts(), None)
            await tx.fetch(revert_sql.ADD_REVERT, (*key, *astuple(scope), actor.key_id, actor.moment, *step.start))
            if idempotency is not None:
                await listings.store_result(tx, partition, idempotency, str(key.id))
            return await self._write_step(tx, begun, step, plans, actor.moment, 0)

        return await self._run_step(begin)

    def choose_revert_step_size(self) -> int:
        """Return the maximum: with row locks, a step does not delay the writes of other accounts."""
        return MAX_STEP_LISTINGS

    async def advance_revert(self, key: RevertKey, step: RevertStep, worker: bytes, now: int) -> Revert | None:
        """Take the next step of a revert, which may end early as a preview does, and store its progress.

        `worker` identifies the calling process, which then holds a lease on the revert for a few seconds. Return None
        and write nothing if another process holds it. Return None and only renew the lease if the revert is not at the
        start of the step. Raises Problem("account_disabled"). The account is not erased during a step.
        """

        async def advance(tx: Transaction) -> Revert | None:
            await lock_enabled(tx, key.account_id)
            leased = await tx.fetch(revert_sql.LEASE_REVERT, (*key, worker, now))
            if not leased:
                return None
            *columns, revision = leased[0]
            revert = _build_revert(*columns)
            if revert.position != step.start:
                return None
            plans = await Planner(tx, key[:2], revert.scope, self.engine, now, key, revert.group_id).plan_step(step)
            return await self._write_step(tx, revert, step, plans, now, revision)

        return await self._run_step(advance)

    async def get_revert(self, key: RevertKey) -> Revert | None:
        return await self._find(_build_revert, revert_sql.GET_REVERT, *key)

    async def list_undone(self, bucket: int, account_id: int) -> set[tuple[RevertKind, int]]:
        """Return the kinds and subjects of the scopes that the last 1,000 reverts have undone without a conflict.

        Those whose revert was undone are left out.
        """
        undone: set[tuple[RevertKind, int]] = set()
        for kind, subject, group_id in await self._fetch(revert_sql.LIST_UNDONE, bucket, account_id):
            if ("revert", group_id) not in undone:  # the newer ones come first
                undone.add((kind, subject))
        return undone

    async def page_revert_conflicts(self, key: RevertKey, after: int, count: int) -> list[RevertConflict]:
        """Return at most `count` conflicts of a revert with numbers above `after`, in their order."""
        found = await self._fetch(revert_sql.PAGE_CONFLICTS, *key, after, count)
        return [
            RevertConflict(number, listing_id, external_id, reason, _decode_names(fields), subject)
            for number, listing_id, external_id, reason, fields, subject in found
        ]

    async def list_running_reverts(self, worker: bytes, now: int) -> list[Revert]:
        """Return the unfinished reverts of all enabled accounts, except those on which another worker is working."""
        return await self._list(_build_revert, revert_sql.LIST_RUNNING_REVERTS, worker, now)

    async def _run_step(self, script: Script[T]) -> T:
        # Again if other writes pass on external ids between its reads and its locks.
        for _ in range(_MAX_ATTEMPTS):
            with suppress(HoldersChangedError):
                return await self._run_script(script)
        raise Unavailable("Other writes change the same external ids: try again later")

    async def _write_step(
        self, tx: Transaction, revert: Revert, step: RevertStep, plans: Plans, now: int, revision: int
    ) -> Revert:
        # The first change adds the audit event.
        partition, group_id, planned = revert.key[:2], revert.group_id, plans.planned
        is_first = group_id is None
        if any(one.changes for one in planned):
            group_id = group_id or plans.edit_revision + 1
            change_set = ChangeSet(partition, Actor(revert.actor, now), revert_id=group_id)
            raised = await self._write_plans(tx, partition, plans, change_set)
            revision = raised if is_first else revision
        await _store_conflicts(tx, revert.key, planned, revert.counts.conflicts)
        counts = revert.counts.add(planned)
        if is_first and group_id is not None:
            started, detail = Actor(revert.actor, revert.started_at), audit.encode_detail(counts)
            await audit.record_edit(tx, partition, revision, started, "reverted", detail, revert.key.id)
        elif group_id is not None and counts != revert.counts:
            await tx.fetch(member_sql.SET_EVENT_DETAIL, (*partition, revision, audit.encode_detail(counts)))
        position, is_over = step.find_end(plans.done)
        finished_at = now if is_over else None
        progress = (*position, *astuple(counts), finished_at, group_id)
        await tx.fetch(revert_sql.ADVANCE_REVERT, (*revert.key, *progress, revision))
        return replace(revert, position=position, counts=counts, finished_at=finished_at, group_id=group_id)

    async def _write_plans(self, tx: Transaction, partition: Partition, plans: Plans, change_set: ChangeSet) -> int:
        # The changes that take no external id come first. Returns the account's revision.
        raised = await tx.fetch(sql.RAISE_REVISION, (*partition, *plans.growth, change_set.step, 0))
        ((revision, edit_revision, edited_at),) = raised
        change_set.begin(edit_revision, edited_at)
        changed = [one for one in plans.planned if one.changes]
        edited = [(replace(one.listing, **dict(one.changes)), one.changes) for one in changed if one.claimed is None]
        await update_many(tx, self.engine, partition, edited)
        # Other listings of the step take these external ids: a unique index is checked after each row.
        takers = {one.claimed: one.listing.id for one in plans.planned if one.claimed is not None}
        passed_on = [
            (partition[0], one.listing.id)
            for one in plans.planned
            if one.changes.get("deleted_at") is None  # a deleted listing keeps it, and conflicts with no other one
            and takers.get(one.held or "", one.listing.id) != one.listing.id
        ]
        await tx.fetch_many(revert_sql.FREE_EXTERNAL_ID, passed_on)
        for one in changed:
            if one.claimed is not None:
                await listings.update(tx, self.engine, one.listing, one.changes)
            await change_set.add_changed(tx, one.listing, one.changes)
        await change_set.write(tx)
        return int(revision)


def _build_revert(*row: Any) -> Revert:  # noqa: ANN401 - REVERT_COLUMNS
    *head, edit_revision, number, reverted, unchanged, conflicts, finished_at, group_id = row
    bucket, account_id, revert_id, *scope, actor, started_at = head
    key, position = RevertKey(bucket, account_id, revert_id), RevertPosition(edit_revision, number)
    counts = RevertCounts(reverted, unchanged, conflicts)
    return Revert(key, RevertScope(*scope), actor, started_at, position, counts, finished_at, group_id)


async def _store_conflicts(tx: Transaction, key: RevertKey, planned: Sequence[RevertPlan], stored: int) -> None:
    # They get the next numbers. Listings that lost their external ids ahead of their turn are marked.
    was_ahead = [(*key, -one.listing.id) for one in planned if one.was_ahead and not one.is_ahead]
    removed = await tx.fetch_many(revert_sql.DELETE_CONFLICT, was_ahead)
    found = [(one.listing.id, conflict) for one in planned for conflict in one.conflicts]
    rows = [
        (*key, number, listing_id, conflict.reason, _encode(conflict.fields).decode(), conflict.subject)
        for number, (listing_id, conflict) in enumerate(found, stored + 1)
    ]
    rows += [
        (*key, -one.listing.id, one.listing.id, "external_id_taken", "[]", None) for one in planned if one.is_ahead
    ]
    if rows:
        await tx.fetch_many(revert_sql.ADD_CONFLICT, rows)
    size = sum(measure_change(fields) for *_, fields, _ in rows) - sum(size for (size,) in removed)
    if size:
        await tx.fetch(change_sql.ADD_HISTORY_BYTES, (*key[:2], size))
