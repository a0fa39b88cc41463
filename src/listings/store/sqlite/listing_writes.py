"""What is written of listings, in the writing thread, each function within one operation of the writer."""

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
from listings.store.sqlite.rows import run_script, write, write_one

Edit: TypeAlias = tuple[int | None, int | None]
"""Who has made a listing, and which edit of its account that was; neither where it was no edit of its own."""

NO_EDIT: Edit = (None, None)
_IS_LISTING_INDEXED = "SELECT indexed FROM listings WHERE bucket = $1 AND id = $2"


class UndoneError(Exception):
    """Takes a batch's results out of an operation that is to leave nothing."""

    def __init__(self, results: list[StepResult]) -> None:
        super().__init__()
        self.results = results


def add(  # noqa: PLR0913, PLR0917 - what is to be added, and on whose behalf
    connection: Connection,
    place: Partition,
    new: NewListing,
    created_at: str,
    idempotency: IdempotencyRecord | None,
    actor: Actor | None,
) -> AddResult:
    """A new listing, or the one that was made under the idempotency before."""
    earlier = _claimed(connection, place, idempotency)
    if earlier is not None:
        return AddResult(int(earlier), replayed=True)
    listing_id, revision = _add_new(connection, place, new, created_at, actor.key_id if actor is not None else None)
    _keep(connection, place, idempotency, str(listing_id))
    return AddResult(listing_id, revision=revision)


def change(connection: Connection, listing_id: int, decide: Decide, actor: Actor | None = None) -> Listing:
    """The listing as `decide` has changed it; without an author it leaves no event."""
    rows = write(connection, sql.GET_LISTING, (bucket_of(listing_id), listing_id))
    listing = build_listing(rows[0]) if rows else None
    changes = decide(listing)
    if listing is None:
        raise AssertionError(f"decide accepted the missing listing {listing_id}")
    if not changes:
        return listing
    changed = apply(connection, listing_id, changes)
    place = (bucket_of(listing_id), listing.account_id)
    revision = int(write_one(connection, sql.RAISE_REVISION, place)[0])
    if actor is not None:
        run_script(connection, audit.record_edit(place, revision, actor, listing_id, changes))
    return changed


def run(
    connection: Connection, place: Partition, batch: Batch, idempotency: IdempotencyRecord | None, actor: Actor | None
) -> list[StepResult] | str:
    """All steps of a batch, each in a savepoint. Raises UndoneError where all of it is to be undone."""
    earlier = _claimed(connection, place, idempotency)
    if earlier is not None:
        return earlier
    edits = Edits()
    results = [_attempt(connection, place, edits.watch(step)) for step in batch.steps]
    if batch.dry_run or (batch.atomic and any(isinstance(result, Problem) for result in results)):
        raise UndoneError(results)
    if actor is not None:
        run_script(connection, audit.record_batch(place, actor, edits, results))
    _keep(connection, place, idempotency, batch.record(results))
    return results


def insert(  # noqa: PLR0913 - a row, and what it is beside its listing
    connection: Connection,
    listing_id: int,
    place: Partition,
    listing: ImportedListing,
    *,
    indexed: bool,
    edit: Edit = NO_EDIT,
) -> None:
    """A new row, which is neither given its id nor counted here; of an account that is indexed, its words too."""
    new, *past = astuple(listing)
    write(connection, sql.ADD_LISTING, (listing_id, *place, *astuple(new), *past, indexed, *edit))
    if indexed:
        sqlite_search.index_words(connection, place[1], listing_id, new.title, new.content)


def apply(connection: Connection, listing_id: int, changes: ListingChange) -> Listing:
    """Write what has changed of a listing; returns it as it is then. The revision is the caller's to raise."""
    place = (bucket_of(listing_id), listing_id)
    statement = sql.build_listing_update(tuple(changes))
    changed = build_listing(write_one(connection, statement, (*place, *changes.values())))
    if changes.keys() & {"title", "content"} and _is_indexed(connection, place):
        sqlite_search.index_words(connection, changed.account_id, changed.id, changed.title, changed.content)
    return changed


def _is_indexed(connection: Connection, place: Partition) -> bool:
    """By the listing itself: of an account that is being indexed some are."""
    return bool(write_one(connection, _IS_LISTING_INDEXED, place)[0])


def _add_new(
    connection: Connection, place: Partition, new: NewListing, created_at: str, actor: int | None = None
) -> tuple[int, int]:
    """Its id, and the account's revision. `actor`: of a create that is an event of its own.

    Its words, and the rest that searches go by, may be left to the steps that index its account.
    """
    listing_id = int(write_one(connection, sql.NEXT_SERIAL, place[:1])[0]) * BUCKETS + place[0]
    count, indexed, revision = (write(connection, sql.COUNT_ONE_MORE, (*place, 1)) or [(0, 0, 0)])[0]
    listing = ImportedListing(new, view_count=0, created_at=created_at, updated_at=created_at, deleted_at=None)
    edit = NO_EDIT if actor is None else (actor, revision)
    insert(connection, listing_id, place, listing, indexed=account_index.takes(indexed, count), edit=edit)
    if count >= search_sql.MIN_INDEXED_LISTINGS and not indexed:
        account_index.begin(connection, place)
    return listing_id, revision


def _attempt(connection: Connection, place: Partition, step: Step) -> StepResult:
    """One step, which undoes only itself when it is refused."""
    if isinstance(step, Problem):
        return step
    connection.execute("SAVEPOINT step")
    try:
        if isinstance(step, AddStep):
            result: StepResult = _add_new(connection, place, step.new, step.created_at)[0]
        else:
            result = change(connection, step.listing_id, step.decide)
    except Problem as problem:
        connection.execute("ROLLBACK TO step")
        result = problem
    connection.execute("RELEASE step")
    return result


def _claimed(connection: Connection, place: Partition, idempotency: IdempotencyRecord | None) -> str | None:
    """What an earlier write under the idempotency came to."""
    if idempotency is None:
        return None
    rows = write(connection, sql.FIND_IDEMPOTENCY_RECORD, (*place, idempotency.key, idempotency.oldest))
    if rows and rows[0][0] != idempotency.digest:
        raise Problem("idempotency_key_reused", "This Idempotency-Key was sent with another request before")
    return str(rows[0][1]) if rows else None


def _keep(connection: Connection, place: Partition, idempotency: IdempotencyRecord | None, result: str) -> None:
    if idempotency is not None:
        write(
            connection,
            sql.STORE_IDEMPOTENCY_RECORD,
            (*place, idempotency.key, idempotency.digest, result, idempotency.moment),
        )
