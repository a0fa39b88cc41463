"""Transactions that create and change listings, singly and in batches."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from msgspec.structs import asdict, astuple, replace

from listings.contract.history import Actor
from listings.contract.listings import (
    MAX_PREVIEW_CHARACTERS,
    AddResult,
    AddStep,
    Batch,
    BatchOutcome,
    ChangeStep,
    Decide,
    IdempotencyRecord,
    Preview,
    PutStep,
    Step,
    StepResult,
)
from listings.contract.revisions import Revisions
from listings.domain.account_limits import NO_GROWTH, AccountSize, measure_growth, measure_new
from listings.domain.errors import Problem
from listings.domain.external_ids import build_taken_problem, find_claimed
from listings.domain.model import BUCKETS, ImportedListing, Listing, ListingChange, NewListing, bucket_of
from listings.store import change_sql, search_sql, sql
from listings.store.mapping import Partition, Row, build_listing
from listings.store.scripts import audit, changes
from listings.store.scripts.changes import ChangeSet
from listings.store.scripts.engine import Engine, SingleEdit
from listings.store.scripts.script import Query, Script, run_all

CreateEvent: TypeAlias = tuple[int | None, int | None, int | None]
"""The `Actor.key_id` that created a listing, the account's revision after it, and its edit revision.

The first two are None if the create is not an audit event of its own.
"""

NO_EVENT: CreateEvent = (None, None, None)


class RollbackError(Exception):
    """Rolls back the transaction of a batch request."""

    def __init__(self, outcome: BatchOutcome) -> None:
        super().__init__()
        self.outcome = outcome


class Added(NamedTuple):
    """The result of a create, and the account's revisions after it, or None if nothing was created."""

    result: AddResult
    revisions: Revisions | None


class _Created(NamedTuple):
    """A new listing's id, the account's revisions after it, and whether the account has become large."""

    listing_id: int
    revisions: Revisions | None
    must_index: bool


class _Edit(NamedTuple):
    """A listing before and after a change, which may be empty, and the growth of its account."""

    before: Listing
    listing: Listing
    changes: ListingChange
    growth: AccountSize


# Single listings


def add(
    engine: Engine, partition: Partition, step: AddStep, idempotency: IdempotencyRecord | None, actor: Actor | None
) -> Script[Added]:
    """Create a listing, or return the one that was created with the same idempotency key.

    The bucket's counter must be locked and the account prepared.
    """
    if idempotency is not None:
        earlier = yield from find_earlier_result(partition, idempotency)
        if earlier is not None:
            return Added(AddResult(int(earlier), replayed=True), None)
    listing_id, revisions, must_index = yield from _add_new(engine, partition, step, actor)
    if must_index:
        yield from engine.start_indexing(partition)
    if idempotency is not None:
        yield store_result(partition, idempotency, str(listing_id))
    return Added(AddResult(listing_id), revisions)


def change(engine: Engine, listing_id: int, decide: Decide, actor: Actor | None) -> Script[Listing]:
    """Change a listing as `decide` returns, and return the new listing. Without an actor, record no audit event."""
    rows = yield Query(sql.GET_LISTING, (bucket_of(listing_id), listing_id), locks=True)
    edit = yield from _edit(engine, listing_id, build_listing(rows[0]) if rows else None, decide)
    partition = (bucket_of(listing_id), edit.listing.account_id)
    if edit.changes and actor is None:
        yield Query(sql.RAISE_REVISION, (*partition, *edit.growth, 0))
    elif edit.changes and actor is not None:
        values = changes.encode_values(edit.before, edit.changes)
        single = SingleEdit(actor, audit.choose_kind(edit.changes), listing_id, *values)
        yield from engine.record_edit(partition, edit.growth, single)
    return edit.listing


def update(engine: Engine, listing_id: int, change: ListingChange, *, may_be_indexed: bool = True) -> Script[Listing]:
    """Write the changes of a listing and return the new listing. The caller must raise the revision."""
    key = (bucket_of(listing_id), listing_id)
    rows = yield Query(sql.build_listing_update(tuple(change)), (*key, *change.values()))
    changed = build_listing(rows[0])
    if may_be_indexed and change.keys() & {"title", "content"}:
        rows = yield Query(sql.IS_LISTING_INDEXED, key)
        if rows[0][0]:
            yield from engine.index_words(changed.account_id, [(listing_id, changed.title, changed.content)])
    return changed


def build_row(
    listing_id: int, partition: Partition, listing: ImportedListing, *, indexed: bool, event: CreateEvent = NO_EVENT
) -> Row:
    """Return the values of `sql.ADD_LISTING`."""
    new, *past = astuple(listing)
    return (listing_id, *partition, *astuple(new), *past, indexed, *event)


def _add_new(
    engine: Engine, partition: Partition, step: AddStep, actor: Actor | None = None, change_set: ChangeSet | None = None
) -> Script[_Created]:
    """Store a listing. The caller must start to index the account if `must_index`.

    With an `actor`, the create is an audit event and a change set of its own, otherwise it belongs to the `change_set`.
    While a large account is being indexed, the listing may be left to the index steps.

    Raises Problem: account_full, external_id_taken.
    """
    new, created_at = step
    if new.external_id is not None:
        yield from require_free(partition, new.external_id)
    size = measure_new(new)
    edits = int(actor is not None) if change_set is None else change_set.step
    rows = yield Query(sql.COUNT_ONE_MORE, (*partition, size.text_bytes, *engine.limits, edits))
    if not rows:
        yield from require_room(engine, partition, size)  # with a lock, so there is room now
        rows = yield Query(sql.COUNT_ONE_MORE, (*partition, size.text_bytes, *engine.limits, edits))
    count, indexed, revision, edit_revision = rows[0] if rows else (0, 0, None, None)
    revisions = Revisions(*rows[0][2:]) if rows else None
    rows = yield Query(sql.NEXT_SERIAL, partition[:1])
    listing_id = int(rows[0][0]) * BUCKETS + partition[0]
    event = NO_EVENT
    if change_set is not None:
        event = (None, None, change_set.begin(edit_revision))
        change_set.add_created(listing_id)
    elif actor is not None:
        event = (actor.key_id, revision, edit_revision)
    index_now = engine.is_indexed_on_create(indexed, count)
    listing = ImportedListing(new, view_count=0, created_at=created_at, updated_at=created_at, deleted_at=None)
    yield Query(sql.ADD_LISTING, build_row(listing_id, partition, listing, indexed=index_now, event=event))
    if actor is not None and edit_revision is not None and not edit_revision % changes.MARKER_INTERVAL:
        yield Query(change_sql.ADD_CHANGE, changes.build_marker(partition, edit_revision, actor, listing_id))
    if index_now:
        yield from engine.index_words(partition[1], [(listing_id, new.title, new.content)])
    return _Created(listing_id, revisions, count >= search_sql.MIN_INDEXED_LISTINGS and not indexed)


def _edit(engine: Engine, listing_id: int, listing: Listing | None, decide: Decide) -> Script[_Edit]:
    """Change a listing, unless `decide` raises a Problem. The caller must raise the revision."""
    change = decide(listing)
    if listing is None:
        raise AssertionError(f"decide accepted the missing listing {listing_id}")
    if not change:
        return _Edit(listing, listing, change, NO_GROWTH)
    partition, growth = (bucket_of(listing_id), listing.account_id), measure_growth(listing, change)
    claimed = find_claimed(listing, change)
    if claimed is not None:
        yield from require_free(partition, claimed, listing_id)
    if max(growth) > 0:
        yield from require_room(engine, partition, growth)
    changed = yield from update(engine, listing_id, change)
    return _Edit(listing, changed, change, growth)


def require_acceptable(engine: Engine, partition: Partition, new: NewListing) -> Script[None]:
    """Raise the Problem with which a create would be rejected, without a lock: another write may still change that.

    Raises Problem: account_full, external_id_taken.
    """
    if new.external_id is not None:
        yield from require_free(partition, new.external_id, locks=False)
    yield from require_room(engine, partition, measure_new(new), locks=False)


def require_room(engine: Engine, partition: Partition, growth: AccountSize, *, locks: bool = True) -> Script[None]:
    """Raise Problem("account_full") if the account may not grow by `growth`. Locks the account's state if `locks`."""
    rows = yield Query(sql.GET_ACCOUNT_SIZE, partition, locks=locks)
    if rows:
        engine.limits.require_room(AccountSize(*rows[0][:2]), growth)


# External ids


def require_free(
    partition: Partition, external_id: str, listing_id: int | None = None, *, locks: bool = True
) -> Script[None]:
    """Raise Problem("external_id_taken") if another listing of the account has the external id."""
    holder = yield from find_holder(partition, external_id, locks=locks)
    if holder is not None and holder != listing_id:
        raise build_taken_problem(external_id, holder)


def find_holder(partition: Partition, external_id: str, *, locks: bool = True) -> Script[int | None]:
    """Return the id of the account's listing with the external id, and lock the account's state if `locks`.

    The lock comes first: every write that claims an external id holds this lock until it commits.
    """
    if locks:
        yield Query(sql.GET_ACCOUNT_SIZE, partition, locks=True)
    rows = yield Query(sql.FIND_EXTERNAL_ID, (*partition, external_id))
    return int(rows[0][0]) if rows else None


# Batches


def run(
    engine: Engine, partition: Partition, batch: Batch, idempotency: IdempotencyRecord | None, actor: Actor | None
) -> Script[BatchOutcome | str]:
    """Run the steps of a batch. Raises RollbackError if the batch must be rolled back."""
    additions = sum(isinstance(step, AddStep | PutStep) for step in batch.steps)
    if additions or idempotency is not None:
        yield from engine.lock_counter(partition[0])
    if idempotency is not None:
        earlier = yield from find_earlier_result(partition, idempotency)
        if earlier is not None:
            return earlier
    if additions and not _rolls_back(batch, batch.steps):
        yield from _require_state(partition, batch, locks=False)  # because the account's listings are locked first
        yield from engine.prepare_account(partition, additions)
    ids = [step.listing_id for step in batch.steps if isinstance(step, ChangeStep)]
    external_ids = [step.external_id for step in batch.steps if isinstance(step, PutStep)]
    known = (yield from engine.lock_and_read_listings(partition, ids, external_ids)) if ids or external_ids else {}
    state = yield from _require_state(partition, batch)
    change_set = ChangeSet(partition, None if batch.dry_run else actor)
    steps = _Steps(engine, partition, known, change_set, with_previews=batch.dry_run)
    results = yield from run_all(steps.run(step) for step in batch.steps)
    if _rolls_back(batch, results):
        raise RollbackError(BatchOutcome(results, state))
    if steps.must_index:
        yield from engine.start_indexing(partition)
    if actor is not None and change_set.edit_revision is not None:
        yield from audit.record_batch(partition, actor, change_set.edit_revision, change_set.ids_by_kind)
        yield from change_set.write()
        state = None if state is None else change_set.edit_revision
    outcome = BatchOutcome(results, state)
    if idempotency is not None:
        yield store_result(partition, idempotency, batch.encode(outcome))
    return outcome


def _rolls_back(batch: Batch, results: Sequence[Step | StepResult]) -> bool:
    """Return whether the batch is rolled back. Pass its steps before it runs, or its results after."""
    return batch.dry_run or (batch.atomic and any(isinstance(result, Problem) for result in results))


def _require_state(partition: Partition, batch: Batch, *, locks: bool = True) -> Script[int | None]:
    """Check and return the account's edit revision, if the batch depends on it. Locks the state if `locks`."""
    if batch.require_state is None:
        return None
    rows = yield Query(sql.GET_ACCOUNT_SIZE, partition, locks=locks)
    edit_revision = int(rows[0][2]) if rows else 0
    batch.require_state(edit_revision)
    return edit_revision


class _Steps:
    """Runs the steps of a batch. None needs a savepoint, because a step is rejected before it writes anything."""

    def __init__(
        self,
        engine: Engine,
        partition: Partition,
        known: dict[int, Listing],
        change_set: ChangeSet,
        *,
        with_previews: bool,
    ) -> None:
        """`known` are the account's locked listings by id."""
        self._engine = engine
        self._partition = partition
        self._known = known
        self._preview_room = MAX_PREVIEW_CHARACTERS if with_previews else -1
        self.change_set = change_set
        self.must_index = False  # whether the caller must start indexing the account

    def run(self, step: Step) -> Script[StepResult]:
        """Run one step."""
        try:
            if isinstance(step, PutStep):
                holder = yield from find_holder(self._partition, step.external_id)
                step = step.create if holder is None else ChangeStep(holder, step.decide)
            if isinstance(step, Problem):
                return step
            if isinstance(step, AddStep):
                return (yield from self._add(step))
            return (yield from self._change(step))
        except Problem as problem:
            return problem

    def _add(self, step: AddStep) -> Script[StepResult]:
        created = yield from _add_new(self._engine, self._partition, step, change_set=self.change_set)
        listing_id = created.listing_id
        self.must_index = self.must_index or created.must_index
        return self._preview(listing_id, None, asdict(step.new)) if self._preview_room >= 0 else listing_id

    def _change(self, step: ChangeStep) -> Script[StepResult]:
        listing = self._known.get(step.listing_id)
        if listing is None:
            rows = yield Query(sql.GET_LISTING, (bucket_of(step.listing_id), step.listing_id))
            listing = build_listing(rows[0]) if rows else None
        edit = yield from _edit(self._engine, step.listing_id, listing, step.decide)
        if edit.changes:
            rows = yield Query(sql.RAISE_REVISION, (*self._partition, *edit.growth, self.change_set.step))
            self.change_set.begin(rows[0][1])
            yield from self.change_set.add_changed(edit.before, edit.changes)
        if step.listing_id in self._known:
            self._known[step.listing_id] = edit.listing
        result = replace(edit.listing, content="")  # the results of many batches are in memory together
        if self._preview_room < 0:
            return result
        names = changes.list_names(edit.changes)
        before = {name: getattr(edit.before, name) for name in names}
        return self._preview(result, before, {name: edit.changes[name] for name in names})

    def _preview(self, result: int | Listing, before: ListingChange | None, after: ListingChange) -> StepResult:
        """Return the result with a preview, if there is room for it."""
        values = [*(before or {}).values(), *after.values()]
        self._preview_room -= sum(len(value) for value in values if isinstance(value, str))
        return Preview(result, before, after) if self._preview_room >= 0 else result


# Idempotency records


def require_same_request(idempotency: IdempotencyRecord, digest: bytes, result: str) -> str:
    """Return the result of an earlier write with the same key. Raise Problem if that was a different request."""
    if digest != idempotency.digest:
        raise Problem("idempotency_key_reused", "This Idempotency-Key was sent with another request before")
    return result


def find_earlier_result(partition: Partition, idempotency: IdempotencyRecord) -> Script[str | None]:
    """Return the stored result of an earlier write with the same key. Raises like `require_same_request`."""
    rows = yield Query(sql.FIND_IDEMPOTENCY_RECORD, (*partition, idempotency.key, idempotency.oldest))
    return require_same_request(idempotency, *rows[0]) if rows else None


def store_result(partition: Partition, idempotency: IdempotencyRecord, result: str) -> Query:
    """Return the statement that stores the result of a write."""
    values = (*partition, idempotency.key, idempotency.digest, result, idempotency.moment)
    return Query(sql.STORE_IDEMPOTENCY_RECORD, values)
