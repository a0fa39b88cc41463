"""Writes to listings. Each public function runs inside one operation of the writer, in the writer thread."""

from typing import TypeAlias

from apsw import Connection
from msgspec.structs import astuple

from listings.contract.history import Actor
from listings.contract.listings import AddResult, AddStep, Batch, Decide, IdempotencyRecord, Step, StepResult
from listings.domain.errors import Problem
from listings.domain.model import BUCKETS, ImportedListing, Listing, ListingChange, NewListing, bucket_of
from listings.store import search_sql, sql
from listings.store.mapping import Partition, build_listing
from listings.store.scripts import audit
from listings.store.scripts.audit import Edits
from listings.store.sqlite import account_index
from listings.store.sqlite import search as sqlite_search
from listings.store.sqlite.rows import execute, execute_one, run_script

CreateEvent: TypeAlias = tuple[int | None, int | None]
"""The `Actor.key_id` that created a listing, and the account revision of the create."""

NO_EVENT: CreateEvent = (None, None)  # for a create that is not an audit event of its own
_IS_LISTING_INDEXED = "SELECT indexed FROM listings WHERE bucket = $1 AND id = $2"


class UndoneError(Exception):
    """Rolls an operation back while still returning the results of its batch."""

    def __init__(self, results: list[StepResult]) -> None:
        super().__init__()
        self.results = results


def add(  # noqa: PLR0913, PLR0917 - the contract's parameters
    connection: Connection,
    partition: Partition,
    new: NewListing,
    created_at: str,
    idempotency: IdempotencyRecord | None,
    actor: Actor | None,
) -> AddResult:
    """Create a listing, or return the one that was created with the same idempotency key."""
    earlier = _find_earlier_result(connection, partition, idempotency)
    if earlier is not None:
        return AddResult(int(earlier), replayed=True)
    key_id = actor.key_id if actor is not None else None
    listing_id, revision = _insert_new(connection, partition, new, created_at, key_id)
    _record_result(connection, partition, idempotency, str(listing_id))
    return AddResult(listing_id, revision=revision)


def change(connection: Connection, listing_id: int, decide: Decide, actor: Actor | None = None) -> Listing:
    """Apply the changes that `decide` returns, and return the listing. Without an actor, record no audit event."""
    rows = execute(connection, sql.GET_LISTING, (bucket_of(listing_id), listing_id))
    listing = build_listing(rows[0]) if rows else None
    changes = decide(listing)
    if listing is None:
        raise AssertionError(f"decide accepted the missing listing {listing_id}")
    if not changes:
        return listing
    changed = apply(connection, listing_id, changes)
    partition = (bucket_of(listing_id), listing.account_id)
    revision = int(execute_one(connection, sql.RAISE_REVISION, partition)[0])
    if actor is not None:
        run_script(connection, audit.record_edit(partition, revision, actor, listing_id, changes))
    return changed


def run(
    connection: Connection,
    partition: Partition,
    batch: Batch,
    idempotency: IdempotencyRecord | None,
    actor: Actor | None,
) -> list[StepResult] | str:
    """Run all steps of a batch, each in a savepoint. Raises UndoneError if the whole batch must be rolled back."""
    earlier = _find_earlier_result(connection, partition, idempotency)
    if earlier is not None:
        return earlier
    edits = Edits()
    results = [_run_step(connection, partition, edits.watch(step)) for step in batch.steps]
    if batch.dry_run or (batch.atomic and any(isinstance(result, Problem) for result in results)):
        raise UndoneError(results)
    if actor is not None:
        run_script(connection, audit.record_batch(partition, actor, edits, results))
    _record_result(connection, partition, idempotency, batch.record(results))
    return results


def insert(  # noqa: PLR0913 - a row, and the columns that its listing does not have
    connection: Connection,
    listing_id: int,
    partition: Partition,
    listing: ImportedListing,
    *,
    indexed: bool,
    event: CreateEvent = NO_EVENT,
) -> None:
    """Insert a row. If `indexed`, also add its words to the full-text index.

    The caller allocates the id and updates the account's number of listings.
    """
    new, *past = astuple(listing)
    execute(connection, sql.ADD_LISTING, (listing_id, *partition, *astuple(new), *past, indexed, *event))
    if indexed:
        sqlite_search.index_words(connection, partition[1], listing_id, new.title, new.content)


def apply(connection: Connection, listing_id: int, changes: ListingChange) -> Listing:
    """Update the changed columns of a listing and return it. The caller raises the account's revision."""
    key = (bucket_of(listing_id), listing_id)
    statement = sql.build_listing_update(tuple(changes))
    changed = build_listing(execute_one(connection, statement, (*key, *changes.values())))
    if changes.keys() & {"title", "content"} and _is_indexed(connection, key):
        sqlite_search.index_words(connection, changed.account_id, changed.id, changed.title, changed.content)
    return changed


def _is_indexed(connection: Connection, key: tuple[int, int]) -> bool:
    """Read it from the listing: an account that is being indexed has indexed and unindexed ones."""
    return bool(execute_one(connection, _IS_LISTING_INDEXED, key)[0])


def _insert_new(
    connection: Connection, partition: Partition, new: NewListing, created_at: str, author: int | None = None
) -> tuple[int, int]:
    """Insert a new listing and return its id and the account's revision.

    `author` is an `Actor.key_id` if the create is an audit event of its own. While a large account is being indexed,
    the listing may be left to the index steps.
    """
    listing_id = int(execute_one(connection, sql.NEXT_SERIAL, partition[:1])[0]) * BUCKETS + partition[0]
    count, indexed, revision = (execute(connection, sql.COUNT_ONE_MORE, (*partition, 1)) or [(0, 0, 0)])[0]
    listing = ImportedListing(new, view_count=0, created_at=created_at, updated_at=created_at, deleted_at=None)
    event = NO_EVENT if author is None else (author, revision)
    index_now = account_index.is_indexed_on_create(indexed, count)
    insert(connection, listing_id, partition, listing, indexed=index_now, event=event)
    if count >= search_sql.MIN_INDEXED_LISTINGS and not indexed:
        account_index.start_indexing(connection, partition)
    return listing_id, revision


def _run_step(connection: Connection, partition: Partition, step: Step) -> StepResult:
    """Run one step. If it is rejected, roll back this step only."""
    if isinstance(step, Problem):
        return step
    connection.execute("SAVEPOINT step")
    try:
        if isinstance(step, AddStep):
            result: StepResult = _insert_new(connection, partition, step.new, step.created_at)[0]
        else:
            result = change(connection, step.listing_id, step.decide)
    except Problem as problem:
        connection.execute("ROLLBACK TO step")
        result = problem
    connection.execute("RELEASE step")
    return result


def _find_earlier_result(
    connection: Connection, partition: Partition, idempotency: IdempotencyRecord | None
) -> str | None:
    """Return the recorded result of an earlier write with the same idempotency key."""
    if idempotency is None:
        return None
    rows = execute(connection, sql.FIND_IDEMPOTENCY_RECORD, (*partition, idempotency.key, idempotency.oldest))
    if rows and rows[0][0] != idempotency.digest:
        raise Problem("idempotency_key_reused", "This Idempotency-Key was sent with another request before")
    return str(rows[0][1]) if rows else None


def _record_result(
    connection: Connection, partition: Partition, idempotency: IdempotencyRecord | None, result: str
) -> None:
    if idempotency is not None:
        execute(
            connection,
            sql.STORE_IDEMPOTENCY_RECORD,
            (*partition, idempotency.key, idempotency.digest, result, idempotency.moment),
        )
