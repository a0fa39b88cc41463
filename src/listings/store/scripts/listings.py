"""Transactions that create and change listings, singly and in batches."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from msgspec.structs import astuple, replace

from listings.domain.account_limits import AccountSize, measure_growth, measure_new
from listings.domain.errors import Problem
from listings.domain.external_ids import build_taken_problem, find_claimed
from listings.domain.history import Actor, choose_kind
from listings.domain.listings import AddResult, AddStep, Decide, IdempotencyRecord
from listings.domain.model import BUCKETS, ImportedListing, Listing, ListingChange, NewListing, Revisions, bucket_of
from listings.store import change_groups, search_sql, sql
from listings.store.mapping import AccountState, Partition, build_listing
from listings.store.query import Row
from listings.store.scripts import changes
from listings.store.scripts.engine import Engine, SingleEdit
from listings.store.scripts.script import Transaction

CreateEvent: TypeAlias = tuple[int | None, int | None, int | None]
"""The `Actor.key_id` that created a listing, the account's revision after it, and its edit revision.

The first two are None if the create is not an audit event of its own.
"""

NO_EVENT: CreateEvent = (None, None, None)


class Added(NamedTuple):
    """The result of a create, and the account's revisions after it, or None if nothing was created."""

    result: AddResult
    revisions: Revisions | None


# Single listings


async def add(
    tx: Transaction,
    engine: Engine,
    partition: Partition,
    step: AddStep,
    idempotency: IdempotencyRecord | None,
    actor: Actor | None,
) -> Added:
    """Create a listing, or return the one that was created with the same idempotency key.

    The bucket's counter must be locked and the account prepared.
    """
    if idempotency is not None:
        earlier = await find_earlier_result(tx, partition, idempotency)
        if earlier is not None:
            return Added(AddResult(int(earlier), replayed=True), None)
    listing_id, revisions, must_index = await _add_new(tx, engine, partition, step, actor)
    if must_index:
        await engine.start_indexing(tx, partition)
    if idempotency is not None:
        await store_result(tx, partition, idempotency, str(listing_id))
    return Added(AddResult(listing_id), revisions)


async def change(tx: Transaction, engine: Engine, listing_id: int, decide: Decide, actor: Actor | None) -> Listing:
    """Change a listing as `decide` returns, and return the new listing. Without an actor, record no audit event."""
    rows = await tx.fetch(sql.GET_LISTING, (bucket_of(listing_id), listing_id), locks=True)
    before = build_listing(rows[0]) if rows else None
    change = decide(before)
    if before is None:
        raise AssertionError(f"decide accepted the missing listing {listing_id}")
    if not change:
        return before
    partition, growth = (bucket_of(listing_id), before.account_id), measure_growth(before, change)
    claimed = find_claimed(before, change)
    if claimed is not None:
        await require_free(tx, partition, claimed, listing_id)
    if max(growth[:2]) > 0:
        await require_room(tx, engine, partition, growth)
    changed = await update(tx, engine, before, change)
    if actor is None:
        await tx.fetch(sql.RAISE_REVISION, (*partition, *growth, 0, 0))
        return changed
    single = SingleEdit(actor, choose_kind(change), listing_id, *changes.encode_values(before, change))
    stored = growth.history_bytes + changes.measure_change(single.detail)
    await engine.record_edit(tx, partition, growth._replace(history_bytes=stored), single)
    await change_groups.add_single(tx, partition, actor)
    return changed


async def update(tx: Transaction, engine: Engine, before: Listing, change: ListingChange) -> Listing:
    """Write the changes of a listing and return the new listing. The caller must raise the revision."""
    values: Mapping[str, Any] = change
    changed = replace(before, version=before.version + 1, **values)
    key = (bucket_of(before.id), before.id)
    await tx.fetch(sql.build_listing_update(tuple(change)), (*key, *change.values()))
    if ("title" in change or "content" in change) and await tx.get(bool, sql.IS_LISTING_INDEXED, key):
        await engine.index_words(tx, changed.account_id, [(changed.id, changed.title, changed.content)])
    return changed


def build_row(
    listing_id: int, partition: Partition, listing: ImportedListing, *, indexed: bool, event: CreateEvent = NO_EVENT
) -> Row:
    """Return the values of `sql.ADD_LISTING`."""
    new, *past = astuple(listing)
    return (listing_id, *partition, *astuple(new), *past, indexed, *event)


def build_new(step: AddStep) -> ImportedListing:
    """Return the listing that a step creates."""
    moment = step.created_at
    return ImportedListing(step.new, view_count=0, created_at=moment, updated_at=moment, deleted_at=None)


async def _add_new(
    tx: Transaction, engine: Engine, partition: Partition, step: AddStep, actor: Actor | None = None
) -> tuple[int, Revisions, bool]:
    # Returns the new id, the account's revisions, and whether the account has become large, so that it must be indexed.
    # With an `actor`, the create is an audit event and a change set of its own. While a large account is being indexed,
    # the listing may be left to the index steps.
    new = step.new
    if new.external_id is not None:
        await require_free(tx, partition, new.external_id)
    if step.require_room is not None:
        state = await tx.get(AccountState, sql.GET_ACCOUNT_SIZE, partition, locks=True)
        step.require_room(state.size)
    size = measure_new(new)
    values = (*partition, size.text_bytes, *engine.limits[:2], int(actor is not None))
    rows = await tx.fetch(sql.COUNT_ONE_MORE, values)
    if not rows:
        await require_room(tx, engine, partition, size)  # with a lock, so there is room now
        rows = await tx.fetch(sql.COUNT_ONE_MORE, values)
    # Without the account, the foreign key makes the insert fail.
    count, indexed, revision, edit_revision, edited_at = rows[0] if rows else (0,) * 5
    ((serial,),) = await tx.fetch(sql.NEXT_SERIAL, partition[:1])
    listing_id = serial * BUCKETS + partition[0]
    event = NO_EVENT if actor is None else (actor.key_id, revision, edit_revision)
    index_now = engine.is_indexed_on_create(indexed, count)
    await tx.fetch(sql.ADD_LISTING, build_row(listing_id, partition, build_new(step), indexed=index_now, event=event))
    if actor is not None and (actor.group or not edit_revision % changes.MARKER_INTERVAL):
        await changes.add_marker(tx, partition, edit_revision, actor, listing_id, edited_at)
        await change_groups.add_single(tx, partition, actor)
    if index_now:
        await engine.index_words(tx, partition[1], [(listing_id, new.title, new.content)])
    must_index = count >= search_sql.MIN_INDEXED_LISTINGS and not indexed
    return listing_id, Revisions(revision, edit_revision), must_index


async def require_acceptable(tx: Transaction, engine: Engine, partition: Partition, new: NewListing) -> None:
    """Raise the Problem with which a create would be rejected, without a lock: another write may still change that.

    Raises Problem: account_full, external_id_taken.
    """
    if new.external_id is not None:
        await require_free(tx, partition, new.external_id, locks=False)
    await require_room(tx, engine, partition, measure_new(new), locks=False)


async def require_room(
    tx: Transaction, engine: Engine, partition: Partition, growth: AccountSize, *, locks: bool = True
) -> None:
    """Raise Problem("account_full") if the account may not grow by `growth`. Locks the account's state if `locks`."""
    state = await tx.find(AccountState, sql.GET_ACCOUNT_SIZE, partition, locks=locks)
    if state is not None:
        engine.limits.override((state.max_listings, state.max_text_bytes)).require_room(state.size, growth)


# External ids


async def require_free(
    tx: Transaction, partition: Partition, external_id: str, listing_id: int | None = None, *, locks: bool = True
) -> None:
    """Raise Problem("external_id_taken") if another listing of the account has the external id."""
    holder = await find_holder(tx, partition, external_id, locks=locks)
    if holder is not None and holder != listing_id:
        raise build_taken_problem(external_id, holder)


async def find_holder(tx: Transaction, partition: Partition, external_id: str, *, locks: bool = True) -> int | None:
    """Return the id of the account's listing with the external id, and lock the account's state if `locks`.

    The lock comes first: every write that claims an external id holds this lock until it commits.
    """
    if locks:
        await tx.fetch(sql.GET_ACCOUNT_SIZE, partition, locks=True)
    return await tx.find(lambda listing_id, _: int(listing_id), sql.FIND_EXTERNAL_ID, (*partition, external_id))


# Idempotency records


def require_same_request(idempotency: IdempotencyRecord, digest: bytes, result: str) -> str:
    """Return the result of an earlier write with the same key. Raise Problem if that was a different request."""
    if digest != idempotency.digest:
        raise Problem("idempotency_key_reused", "This Idempotency-Key was sent with another request before")
    return result


async def find_earlier_result(tx: Transaction, partition: Partition, idempotency: IdempotencyRecord) -> str | None:
    """Return the stored result of an earlier write with the same key. Raises like `require_same_request`."""
    rows = await tx.fetch(sql.FIND_IDEMPOTENCY_RECORD, (*partition, idempotency.key, idempotency.oldest))
    return require_same_request(idempotency, *rows[0]) if rows else None


async def store_result(tx: Transaction, partition: Partition, idempotency: IdempotencyRecord, result: str) -> None:
    """Store the result of a write."""
    values = (*partition, idempotency.key, idempotency.digest, result, idempotency.moment)
    await tx.fetch(sql.STORE_IDEMPOTENCY_RECORD, values)
