"""Transactions that revert change sets, a limited number of listings at a time."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import astuple

from listings.domain.accounts import require_enabled
from listings.domain.changes import Change
from listings.domain.errors import Problem
from listings.domain.history import Actor
from listings.domain.listings import IdempotencyRecord
from listings.domain.model import Account
from listings.domain.reverts import (
    Revert,
    RevertConflict,
    RevertCounts,
    RevertKey,
    RevertPosition,
    RevertPreview,
    RevertScope,
    RevertStep,
)
from listings.store import change_sql, member_sql, sql
from listings.store.mapping import Partition, Row
from listings.store.reverts import sql as revert_sql
from listings.store.reverts.plans import Planned, PlanOptions, Plans, build_scope, plan_step
from listings.store.reverts.scan import require_stored
from listings.store.scripts import audit, listings
from listings.store.scripts.bulk import update_many
from listings.store.scripts.changes import ChangeSet, measure_change
from listings.store.scripts.engine import Engine
from listings.store.scripts.script import Transaction

_encode = msgspec.json.Encoder().encode
_decode_names = msgspec.json.Decoder(list[str]).decode


def build_revert(row: Sequence[Any]) -> Revert:
    """Return the revert in a row of REVERT_COLUMNS."""
    *key_and_scope, actor, started_at, revision, number, reverted, unchanged, conflicts, finished_at, group_id = row
    counts, position = RevertCounts(reverted, unchanged, conflicts), RevertPosition(revision, number)
    key, scope = RevertKey(*key_and_scope[:3]), build_scope(key_and_scope[3:])
    return Revert(key, scope, actor, started_at, position, counts, finished_at, group_id)


def build_conflict(row: Row) -> RevertConflict:
    """Return the conflict in a row of PAGE_CONFLICTS."""
    number, listing_id, external_id, reason, fields, subject = row
    return RevertConflict(number, listing_id, external_id, reason, _decode_names(fields), subject)


async def begin(  # noqa: PLR0913, PLR0917 - the parts of a revert
    tx: Transaction,
    engine: Engine,
    partition: Partition,
    scope: RevertScope,
    step: RevertStep,
    actor: Actor,
    idempotency: IdempotencyRecord | None,
) -> Revert | int:
    """Start a revert with its first step, or return the id of the one that had the same idempotency key."""
    await _lock_account(tx, partition)
    if idempotency is not None:
        await engine.lock_counter(tx, partition[0])
        earlier = await listings.find_earlier_result(tx, partition, idempotency)
        if earlier is not None:
            return int(earlier)
    unfinished = await tx.fetch(revert_sql.FIND_UNFINISHED_REVERT, partition)
    if unfinished:
        running = f"Revert {unfinished[0][0]} is still running"
        raise Problem("revert_running", f"{running}, and an account can have only one at a time: try again later")
    await require_stored(tx, partition, scope.first)
    options = PlanOptions(scope, engine.limits, actor.moment)
    plans = await plan_step(tx, partition, step, options, partial(_lock, tx, engine, partition))
    key = RevertKey(*partition, await tx.get(int, revert_sql.RAISE_LAST_REVERT, partition))
    begun = Revert(key, scope, actor.key_id, actor.moment, step.start, RevertCounts(), None)
    await tx.fetch(revert_sql.ADD_REVERT, (*key, *astuple(scope), actor.key_id, actor.moment, *step.start))
    if idempotency is not None:
        await listings.store_result(tx, partition, idempotency, str(key.id))
    return await _write_step(tx, engine, begun, step, plans, actor.moment, 0)


async def advance(
    tx: Transaction, engine: Engine, key: RevertKey, step: RevertStep, worker: bytes, now: int
) -> Revert | None:
    """Take the next step of a revert. Return None if it is not at the start of the step, or has another worker."""
    await _lock_account(tx, key[:2])
    leased = await tx.fetch(revert_sql.LEASE_REVERT, (*key, worker, now))
    if not leased:
        return None
    *columns, revision = leased[0]
    revert = build_revert(columns)
    if revert.position != step.start:
        return None
    options = PlanOptions(revert.scope, engine.limits, now, key, revert.group_id)
    plans = await plan_step(tx, key[:2], step, options, partial(_lock, tx, engine, key[:2]))
    return await _write_step(tx, engine, revert, step, plans, now, revision)


async def _lock_account(tx: Transaction, partition: Partition) -> None:
    """Lock the account, so that it is not erased meanwhile. Raises Problem("account_disabled")."""
    require_enabled(await tx.get(Account, sql.GET_ACCOUNT, (partition[1],), locks=True))


async def preview(tx: Transaction, partition: Partition, step: RevertStep, options: PlanOptions) -> RevertPreview:
    """Return what a step would do."""
    plans = await plan_step(tx, partition, step, options)
    planned = [one for one in plans.planned if not one.is_ahead]
    changes = [_build_change(one, options.now) for one in planned if one.plan.changes]
    found = [(one.listing, conflict) for one in planned for conflict in one.plan.conflicts]
    conflicts = [
        RevertConflict(number, listing.id, listing.external_id, conflict.reason, conflict.fields, conflict.subject)
        for number, (listing, conflict) in enumerate(found, 1)
    ]
    return RevertPreview(changes, conflicts, _count(planned, RevertCounts()), plans.done)


def _build_change(planned: Planned, now: int) -> Change:
    listing, changes = planned.listing, dict(planned.plan.changes)
    del changes["updated_at"]
    before = {name: getattr(listing, name) for name in changes}
    return Change(0, 0, listing.id, now, 0, "reverted", None, None, listing.external_id, before, changes)


async def _lock(tx: Transaction, engine: Engine, partition: Partition, ids: Sequence[int]) -> None:
    """Lock listings, and then the account."""
    if ids:
        await engine.lock_listings(tx, partition, ids)
    await tx.fetch(sql.GET_ACCOUNT_SIZE, partition, locks=True)


async def _write_step(  # noqa: PLR0913, PLR0917 - the state of the revert
    tx: Transaction, engine: Engine, revert: Revert, step: RevertStep, plans: Plans, now: int, revision: int
) -> Revert:
    """Write the changes of a step, its conflicts, the progress, and the audit event, which the first change adds."""
    partition, group_id, planned = revert.key[:2], revert.group_id, plans.planned
    is_first = group_id is None
    if any(one.plan.changes for one in planned):
        group_id = group_id or plans.edit_revision + 1
        change_set = ChangeSet(partition, Actor(revert.actor, now), revert_id=group_id)
        raised = await _write(tx, engine, partition, plans, change_set)
        revision = raised if is_first else revision
    counts = await _store_conflicts(tx, revert.key, planned, revert.counts)
    if is_first and group_id is not None:
        started = Actor(revert.actor, revert.started_at)
        detail = audit.encode_detail(counts)
        await audit.record_edit(tx, partition, revision, started, "reverted", detail, revert.key.id)
    elif group_id is not None and counts != revert.counts:
        await tx.fetch(member_sql.SET_EVENT_DETAIL, (*partition, revision, audit.encode_detail(counts)))
    is_whole = plans.done == len(step.candidates)
    position = step.end if is_whole else RevertPosition(*step.candidates[plans.done - 1][:2])
    finished_at = now if is_whole and step.is_last else None
    progress = (*position, *astuple(counts), finished_at, group_id)
    await tx.fetch(revert_sql.ADVANCE_REVERT, (*revert.key, *progress, revision))
    return msgspec.structs.replace(revert, position=position, counts=counts, finished_at=finished_at, group_id=group_id)


async def _write(tx: Transaction, engine: Engine, partition: Partition, plans: Plans, change_set: ChangeSet) -> int:
    """Write the changes, those that take no external id first, and the change set. Return the account's revision."""
    raised = await tx.fetch(sql.RAISE_REVISION, (*partition, *plans.growth, change_set.step, 0))
    ((revision, edit_revision, edited_at),) = raised
    change_set.begin(edit_revision, edited_at)
    planned = plans.planned
    edits = [(one.listing, one.plan.changes) for one in planned if one.plan.changes and one.claimed is None]
    edited = [(msgspec.structs.replace(listing, **dict(changes)), changes) for listing, changes in edits]
    await update_many(tx, engine, partition, edited)
    await _free_claimed(tx, partition, planned)
    for one in planned:
        if one.claimed is not None:
            await listings.update(tx, engine, one.listing.id, one.plan.changes)
        if one.plan.changes:
            await change_set.add_changed(tx, one.listing, one.plan.changes)
    await change_set.write(tx)
    return int(revision)


async def _free_claimed(tx: Transaction, partition: Partition, planned: Sequence[Planned]) -> None:
    """Free the external ids that other listings of the step take: a unique index is checked after each row."""
    takers = {one.claimed: one.listing.id for one in planned if one.claimed is not None}
    passed_on = [
        one.listing.id
        for one in planned
        if one.plan.changes.get("deleted_at") is None  # a deleted listing keeps it, and conflicts with no other one
        and takers.get(one.held or "", one.listing.id) != one.listing.id
    ]
    if passed_on:
        await tx.fetch_many(revert_sql.FREE_EXTERNAL_ID, [(partition[0], listing_id) for listing_id in passed_on])


async def _store_conflicts(
    tx: Transaction, key: RevertKey, planned: Sequence[Planned], before: RevertCounts
) -> RevertCounts:
    """Store the conflicts with the next numbers, and mark the listings that lost their ids ahead. Return the counts."""
    was_ahead = [(*key, -one.listing.id) for one in planned if one.was_ahead and not one.is_ahead]
    removed = await tx.fetch_many(revert_sql.DELETE_CONFLICT, was_ahead)
    found = [(one.listing.id, conflict) for one in planned for conflict in one.plan.conflicts]
    rows = [
        (*key, number, listing_id, conflict.reason, _encode(conflict.fields).decode(), conflict.subject)
        for number, (listing_id, conflict) in enumerate(found, before.conflicts + 1)
    ]
    rows += [
        (*key, -one.listing.id, one.listing.id, "external_id_taken", "[]", None) for one in planned if one.is_ahead
    ]
    if rows:
        await tx.fetch_many(revert_sql.ADD_CONFLICT, rows)
    size = sum(measure_change(fields) for *_, fields, _ in rows) - sum(row[0] for row in removed)
    if size:
        await tx.fetch(change_sql.ADD_HISTORY_BYTES, (*key[:2], size))
    return _count([one for one in planned if not one.is_ahead], before)


def _count(planned: Sequence[Planned], before: RevertCounts) -> RevertCounts:
    reverted = sum(bool(one.plan.changes) for one in planned if not one.plan.conflicts)
    unchanged = sum(not (one.plan.changes or one.plan.conflicts) for one in planned)
    conflicts = sum(len(one.plan.conflicts) for one in planned)
    return RevertCounts(before.reverted + reverted, before.unchanged + unchanged, before.conflicts + conflicts)
