"""Transactions that run the steps of a batch request."""

from collections.abc import Sequence

from msgspec.structs import asdict, replace

from listings.domain.errors import Problem
from listings.domain.history import Actor
from listings.domain.listings import (
    MAX_PREVIEW_CHARACTERS,
    AddStep,
    Batch,
    BatchOutcome,
    ChangeStep,
    IdempotencyRecord,
    Preview,
    PutStep,
    Step,
    StepResult,
)
from listings.domain.model import Listing, ListingChange
from listings.store import sql
from listings.store.mapping import AccountState, Partition
from listings.store.scripts import audit, changes
from listings.store.scripts.bulk import BulkWriter
from listings.store.scripts.changes import ChangeSet
from listings.store.scripts.engine import Engine
from listings.store.scripts.listings import build_new, find_earlier_result, store_result
from listings.store.scripts.script import Transaction


class RollbackError(Exception):
    """Rolls back the transaction of a batch request."""

    def __init__(self, outcome: BatchOutcome) -> None:
        super().__init__()
        self.outcome = outcome


async def run(
    tx: Transaction,
    engine: Engine,
    partition: Partition,
    batch: Batch,
    idempotency: IdempotencyRecord | None,
    actor: Actor | None,
) -> BatchOutcome | str:
    """Run the steps of a batch. Raises RollbackError if the batch must be rolled back."""
    additions = sum(isinstance(step, AddStep | PutStep) for step in batch.steps)
    if additions or idempotency is not None:
        await engine.lock_counter(tx, partition[0])
    if idempotency is not None:
        earlier = await find_earlier_result(tx, partition, idempotency)
        if earlier is not None:
            return earlier
    change_set = ChangeSet(partition, None if batch.dry_run else actor)
    writer = await _prepare(tx, engine, batch, BulkWriter(engine, partition, change_set), additions)
    state = await _require_state(tx, partition, batch)
    steps = _Steps(writer, with_previews=batch.dry_run)
    results = [await steps.run(tx, step) for step in batch.steps]
    if _rolls_back(batch, results):
        raise RollbackError(BatchOutcome(results, state))
    await writer.finish(tx)
    if actor is not None and change_set.edit_revision is not None and not change_set.is_empty:
        if actor.group is None or not actor.group.is_bulk:
            await audit.record_batch(tx, partition, actor, change_set.edit_revision, change_set.ids_by_kind)
        await change_set.write(tx)
        state = None if state is None else change_set.edit_revision
    outcome = BatchOutcome(results, state)
    if idempotency is not None:
        await store_result(tx, partition, idempotency, batch.encode(outcome))
    return outcome


async def _prepare(tx: Transaction, engine: Engine, batch: Batch, writer: BulkWriter, additions: int) -> BulkWriter:
    indexed = None
    if additions and not _rolls_back(batch, batch.steps):
        await _require_state(tx, writer.partition, batch, locks=False)  # the account's listings are locked first
        indexed = await engine.prepare_account(tx, writer.partition, additions)
    ids = [step.listing_id for step in batch.steps if isinstance(step, ChangeStep)]
    named = [step.external_id for step in batch.steps if isinstance(step, PutStep)]
    new = [step.new.external_id for step in batch.steps if isinstance(step, AddStep) and step.new.external_id]
    await writer.prepare(tx, ids, named, new, indexed=indexed)
    if additions:
        writer.last_serial = await tx.find(int, sql.GET_LAST_SERIAL, writer.partition[:1]) or 0
    return writer


def _rolls_back(batch: Batch, results: Sequence[Step | StepResult]) -> bool:
    # Receives the steps of the batch before it runs, or its results after.
    return batch.dry_run or (batch.atomic and any(isinstance(result, Problem) for result in results))


async def _require_state(tx: Transaction, partition: Partition, batch: Batch, *, locks: bool = True) -> int | None:
    if batch.require_state is None:
        return None
    state = await tx.find(AccountState, sql.GET_ACCOUNT_SIZE, partition, locks=locks)
    edit_revision = 0 if state is None else state.edit_revision
    batch.require_state(edit_revision)
    return edit_revision


class _Steps:
    # None needs a savepoint, because a step is rejected before it writes anything.
    def __init__(self, writer: BulkWriter, *, with_previews: bool) -> None:
        self._writer = writer
        self._preview_room = MAX_PREVIEW_CHARACTERS if with_previews else -1

    async def run(self, tx: Transaction, step: Step) -> StepResult:
        try:
            if isinstance(step, PutStep):
                return await self._put(tx, step)
            if isinstance(step, Problem):
                return step
            if isinstance(step, AddStep):
                return await self._add(tx, step)
            return await self._change(tx, step, await self._writer.find(tx, step.listing_id))
        except Problem as problem:
            return problem

    async def _put(self, tx: Transaction, step: PutStep) -> StepResult:
        holder = await self._writer.find_holder(tx, step.external_id)
        if holder is not None:
            listing = await self._writer.find(tx, holder, locks=True)
            return await self._change(tx, ChangeStep(holder, step.decide), listing)
        return step.create if isinstance(step.create, Problem) else (await self._add(tx, step.create))

    async def _add(self, tx: Transaction, step: AddStep) -> StepResult:
        listing_id = await self._writer.create(tx, build_new(step))
        return self._preview(listing_id, None, asdict(step.new)) if self._preview_room >= 0 else listing_id

    async def _change(self, tx: Transaction, step: ChangeStep, before: Listing | None) -> StepResult:
        edited = step.decide(before)
        if before is None:
            raise AssertionError(f"decide accepted the missing listing {step.listing_id}")
        listing = await self._writer.change(tx, before, edited)
        result = replace(listing, content="")  # the results of many batches are in memory together
        if self._preview_room < 0:
            return result
        names = changes.list_names(edited)
        values = {name: getattr(before, name) for name in names}
        return self._preview(result, values, {name: edited[name] for name in names})

    def _preview(self, result: int | Listing, before: ListingChange | None, after: ListingChange) -> StepResult:
        values = [*(before or {}).values(), *after.values()]
        self._preview_room -= sum(len(value) for value in values if isinstance(value, str))
        return Preview(result, before, after) if self._preview_room >= 0 else result
