"""Transactions that revert change sets, a limited number of listings at a time."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import astuple

from listings.contract.history import Actor
from listings.contract.listings import IdempotencyRecord
from listings.contract.reverts import (
    Candidate,
    Revert,
    RevertConflict,
    RevertCounts,
    RevertKey,
    RevertPosition,
    RevertPreview,
    RevertStep,
)
from listings.domain.account_limits import AccountLimits
from listings.domain.accounts import require_enabled
from listings.domain.changes import Change
from listings.domain.errors import Problem
from listings.domain.model import Account, Listing
from listings.domain.reverts import RevertScope
from listings.store import sql
from listings.store.mapping import Partition, Row
from listings.store.reverts import reads as revert_reads
from listings.store.reverts import sql as revert_sql
from listings.store.reverts.reads import Planned, PlanOptions, Plans
from listings.store.scripts import audit, listings
from listings.store.scripts.changes import ChangeSet
from listings.store.scripts.engine import Engine
from listings.store.scripts.script import Query, QueryMany, Script

_encode = msgspec.json.Encoder().encode
_decode_names = msgspec.json.Decoder(list[str]).decode


def build_revert(row: Sequence[object]) -> Revert:
    """Return the revert in a row of REVERT_COLUMNS."""
    return msgspec.convert(
        {
            "key": row[:3],
            "scope": dict(zip(RevertScope.__struct_fields__, (*row[3:9], row[9] == 1), strict=True)),
            "actor": row[10],
            "started_at": row[11],
            "position": row[12:14],
            "counts": dict(zip(RevertCounts.__struct_fields__, row[14:17], strict=True)),
            "finished_at": row[17],
        },
        Revert,
    )


def build_conflict(row: Row) -> RevertConflict:
    """Return the conflict in a row of PAGE_CONFLICTS."""
    number, listing_id, external_id, reason, fields, subject = row
    return RevertConflict(number, listing_id, external_id, reason, _decode_names(fields), subject)


def begin(  # noqa: PLR0913, PLR0917 - the contract's parameters
    engine: Engine,
    partition: Partition,
    scope: RevertScope,
    step: RevertStep,
    actor: Actor,
    idempotency: IdempotencyRecord | None,
) -> Script[Revert | int]:
    """Start a revert with its first step, or return the id of the one that had the same idempotency key."""
    yield from _lock_account(partition)
    if idempotency is not None:
        yield from engine.lock_counter(partition[0])
        earlier = yield from listings.find_earlier_result(partition, idempotency)
        if earlier is not None:
            return int(earlier)
    yield from _require_no_unfinished(partition)
    options = PlanOptions(scope, engine.limits, actor.moment)
    plans, revision = yield from _lock_and_plan(engine, partition, step, options)
    key = RevertKey(*partition, revision + 1)
    rows = yield Query(sql.RAISE_REVISION, (*partition, *plans.growth, 1))
    yield from _write(engine, partition, plans.planned, ChangeSet(partition, actor, revert_id=key.id), key.id)
    counts = yield from _store_conflicts(key, plans.planned, RevertCounts())
    position, finished_at = _find_end(step, plans, actor.moment)
    started = (*key, *astuple(scope), *actor)
    yield Query(revert_sql.ADD_REVERT, (*started, *position, *astuple(counts), finished_at, rows[0][0]))
    yield audit.record_revert(partition, rows[0][0], actor, key.id, counts)
    if idempotency is not None:
        yield listings.store_result(partition, idempotency, str(key.id))
    return Revert(key, scope, *actor, position, counts, finished_at)


def advance(engine: Engine, key: RevertKey, step: RevertStep, worker: bytes, now: int) -> Script[Revert | None]:
    """Take the next step of a revert. Return None if it is not at the start of the step, or has another worker."""
    yield from _lock_account(key[:2])
    leased = yield Query(revert_sql.LEASE_REVERT, (*key, worker, now))
    revert = build_revert(leased[0][:-1]) if leased else None
    if revert is None or revert.position != step.start:
        return None
    partition, actor = key[:2], Actor(revert.actor, now)
    options = PlanOptions(revert.scope, engine.limits, now)
    plans, revision = yield from _lock_and_plan(engine, partition, step, options)
    if any(one.plan.changes for one in plans.planned):
        yield Query(sql.RAISE_REVISION, (*partition, *plans.growth, 1))
        change_set = ChangeSet(partition, actor, revert_id=key.id)
        yield from _write(engine, partition, plans.planned, change_set, revision + 1)
    counts = yield from _store_conflicts(key, plans.planned, revert.counts)
    position, finished_at = _find_end(step, plans, now)
    yield Query(revert_sql.ADVANCE_REVERT, (*key, *position, *astuple(counts), finished_at))
    if counts != revert.counts:
        yield audit.update_revert(partition, leased[0][-1], counts)
    return msgspec.structs.replace(revert, position=position, counts=counts, finished_at=finished_at)


def _lock_account(partition: Partition) -> Script[None]:
    """Lock the account, so that it is not erased meanwhile. Raises Problem("account_disabled")."""
    rows = yield Query(sql.GET_ACCOUNT, (partition[1],), locks=True)
    require_enabled(Account(*rows[0]))


def _require_no_unfinished(partition: Partition) -> Script[None]:
    """Raise Problem("revert_running") if the account, which must be locked, has an unfinished revert."""
    rows = yield Query(revert_sql.FIND_UNFINISHED_REVERT, partition)
    if rows:
        running = f"Revert {rows[0][0]} is still running"
        raise Problem("revert_running", f"{running}, and an account can have only one at a time: try again later")


def preview(
    partition: Partition, scope: RevertScope, candidates: Sequence[Candidate], limits: AccountLimits, now: int
) -> Script[RevertPreview]:
    """Return what the revert of some changes would do."""
    plans = yield from revert_reads.plan(partition, candidates, PlanOptions(scope, limits, now))
    changes = [_build_change(one, now) for one in plans.planned if one.plan.changes]
    conflicts = [
        RevertConflict(number, *one)
        for number, one in enumerate(
            (
                (listing.id, listing.external_id, conflict.reason, conflict.fields, conflict.subject)
                for listing, plan, _ in plans.planned
                for conflict in plan.conflicts
            ),
            1,
        )
    ]
    return RevertPreview(changes, conflicts, _count(plans.planned, RevertCounts()), plans.done)


def _build_change(planned: Planned, now: int) -> Change:
    listing, changes = planned.listing, dict(planned.plan.changes)
    del changes["updated_at"]
    before = {name: getattr(listing, name) for name in changes}
    return Change(0, 0, listing.id, now, 0, "reverted", None, listing.external_id, before, changes)


def _lock_and_plan(
    engine: Engine, partition: Partition, step: RevertStep, options: PlanOptions
) -> Script[tuple[Plans, int]]:
    """Lock the listings and the account. Return the plans and the account's edit revision."""
    ids = sorted({candidate.listing_id for candidate in step.candidates})
    if ids:
        yield from engine.lock_listings(partition, ids)
    state = yield Query(sql.GET_ACCOUNT_SIZE, partition, locks=True)
    return (yield from revert_reads.plan(partition, step.candidates, options)), int(state[0][2])


def _write(
    engine: Engine, partition: Partition, planned: Sequence[Planned], change_set: ChangeSet, edit_revision: int
) -> Script[None]:
    """Write the changes, those that take no external id first, and the change set."""
    change_set.begin(edit_revision)
    by_columns: dict[tuple[str, ...], list[Planned]] = {}
    for one in planned:
        if one.plan.changes and one.claimed is None:
            by_columns.setdefault(tuple(one.plan.changes), []).append(one)
    for columns, group in by_columns.items():
        rows = [(partition[0], one.listing.id, *one.plan.changes.values()) for one in group]
        update = sql.build_listing_update(columns, returning=False)
        yield QueryMany(update, rows, sql.build_listing_updates(columns))
    yield from _index(engine, partition, [one for group in by_columns.values() for one in group])
    yield from _free_claimed(partition, planned)
    for listing, plan, claimed in planned:
        if claimed is not None:
            yield from listings.update(engine, listing.id, plan.changes)
        if plan.changes:
            yield from change_set.add_changed(listing, plan.changes)
    yield from change_set.write(may_be_empty=True)


def _free_claimed(partition: Partition, planned: Sequence[Planned]) -> Script[None]:
    """Free the external ids that other listings of the step take: a unique index is checked after each row."""
    takers = {one.claimed: one.listing.id for one in planned if one.claimed is not None}
    passed_on = [
        one.listing.id
        for one in planned
        if one.plan.changes.get("deleted_at") is None  # a deleted listing keeps it, and conflicts with no other one
        and takers.get(one.held or "", one.listing.id) != one.listing.id
    ]
    if passed_on:
        yield QueryMany(revert_sql.FREE_EXTERNAL_ID, [(partition[0], listing_id) for listing_id in passed_on])


def _index(engine: Engine, partition: Partition, planned: Sequence[Planned]) -> Script[None]:
    """Index the new words of those listings that are indexed."""
    changed = [one for one in planned if one.plan.changes.keys() & {"title", "content"}]
    if not changed:
        return
    rows = yield QueryMany(sql.IS_LISTING_INDEXED, [(partition[0], one.listing.id) for one in changed])
    after = [_apply(one) for one, (indexed,) in zip(changed, rows, strict=True) if indexed]
    if after:
        yield from engine.index_words(partition[1], [(one.id, one.title, one.content) for one in after])


def _apply(planned: Planned) -> Listing:
    return msgspec.structs.replace(planned.listing, **dict(planned.plan.changes))


def _store_conflicts(key: RevertKey, planned: Sequence[Planned], before: RevertCounts) -> Script[RevertCounts]:
    """Store the conflicts with the next numbers. Return the new counts."""
    found = [(listing.id, conflict) for listing, plan, _ in planned for conflict in plan.conflicts]
    rows = [
        (*key, number, listing_id, conflict.reason, _encode(conflict.fields).decode(), conflict.subject)
        for number, (listing_id, conflict) in enumerate(found, before.conflicts + 1)
    ]
    if rows:
        yield QueryMany(revert_sql.ADD_CONFLICT, rows)
    return _count(planned, before)


def _count(planned: Sequence[Planned], before: RevertCounts) -> RevertCounts:
    reverted = sum(bool(one.plan.changes) for one in planned)
    unchanged = sum(not (one.plan.changes or one.plan.conflicts) for one in planned)
    conflicts = sum(len(one.plan.conflicts) for one in planned)
    return RevertCounts(before.reverted + reverted, before.unchanged + unchanged, before.conflicts + conflicts)


def _find_end(step: RevertStep, plans: Plans, now: int) -> tuple[RevertPosition, int | None]:
    """Return the position after the step, and the time if the revert is finished."""
    if plans.done < len(step.candidates):
        return RevertPosition(*step.candidates[plans.done - 1][:2]), None
    return step.end, now if step.is_last else None
