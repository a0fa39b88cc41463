"""Write listings in PostgreSQL. Each function runs inside one transaction.

Locks are always acquired in the same order: the bucket's counter, the listings by id, the account's state. Idempotency
records and imports need no locks, because they are only used while the counter is locked.
"""

from collections.abc import Collection, Mapping
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import astuple

from listings.contract.history import Actor
from listings.contract.imports import ImportBatch, ImportKey, ImportProgress, ImportRow, RowOutcome
from listings.contract.listings import (
    AddResult,
    AddStep,
    Batch,
    ChangeStep,
    Decide,
    IdempotencyRecord,
    Step,
    StepResult,
)
from listings.domain.errors import Problem
from listings.domain.model import BUCKETS, ImportedListing, Listing, ListingChange, NewListing, bucket_of
from listings.store import search_sql, sql
from listings.store.mapping import Partition
from listings.store.postgres.pool import Session
from listings.store.postgres.search import build_account_words
from listings.store.scripts import audit
from listings.store.scripts.audit import Edits
from listings.store.scripts.script import Script

T = TypeVar("T")

_CREATE_PARAMETERS = (
    *("of_bucket", "of_account", "large", *(f"new_{name}" for name in NewListing.__struct_fields__)),
    *("moment", "new_words", "claim_key", "claim_digest", "claim_moment", "claim_oldest", "of_author"),
)
CREATE = f"""
SELECT listing_id, earlier_digest, earlier_result FROM create_listing(
    {", ".join(f"{name} => ${number}" for number, name in enumerate(_CREATE_PARAMETERS, 1))})
"""
_LOCK_CLAUSE = " FOR NO KEY UPDATE"
_LOCK_COUNTER = "SELECT last FROM listing_ids WHERE bucket = $1 FOR UPDATE"
_LOCK_LISTING = sql.GET_LISTING + " FOR UPDATE"
_LOCK_LISTINGS = f"""
SELECT {sql.LISTING_COLUMNS} FROM listings
WHERE bucket = $1 AND account_id = $2 AND id = ANY($3)
ORDER BY bucket, id FOR UPDATE
"""
_LOCK_ALL_LISTINGS = """
SELECT id FROM listings WHERE bucket = $1 AND account_id = $2
ORDER BY bucket, id FOR UPDATE
"""
_LOCK_VIEWED = sql.GET_VIEWED + " FOR UPDATE"
_GET_LISTINGS = f"SELECT {sql.LISTING_COLUMNS} FROM listings WHERE bucket = $1 AND id = ANY($2)"
_GET_STATE = "SELECT listings, indexed FROM account_state WHERE bucket = $1 AND account_id = $2"
_SET_WORDS = """
INSERT INTO listing_words (bucket, id, words) VALUES ($1, $2, $3)
ON CONFLICT (bucket, id) DO UPDATE SET words = excluded.words
"""


class WriteOptions(NamedTuple):
    """The idempotency record and the actor of a write."""

    idempotency: IdempotencyRecord | None
    actor: Actor | None


class RollbackError(Exception):
    """Rolls back a batch's transaction. Carries the results of the steps."""

    def __init__(self, results: list[StepResult]) -> None:
        super().__init__()
        self.results = results


class State(NamedTuple):
    """The number of an account's listings, and whether they are indexed."""

    listings: int
    indexed: bool


async def run_script(session: Session, script: Script[T]) -> T:
    """Run a script in the session's transaction."""
    try:
        query = next(script)
        while True:
            statement = query.statement + _LOCK_CLAUSE if query.locks else query.statement
            query = script.send(await session.fetch(statement, *query.values))
    except StopIteration as end:
        result: T = end.value
        return result


def build_listing(row: Any) -> Listing:  # noqa: ANN401 - the driver's
    """Return the listing in a row."""
    return Listing(*row)


# Single listings


async def create(  # noqa: PLR0913 - the listing, and how to create it
    session: Session, partition: Partition, new: NewListing, created_at: str, options: WriteOptions, *, with_words: bool
) -> AddResult | None:
    """Create a listing by calling the database function, which needs no explicit transaction.

    Return None and write nothing if only `add` can create it.
    """
    words = build_account_words(partition[1], new.title, new.content) if with_words else None
    idempotency, actor = options
    values = (
        *partition,
        search_sql.MIN_INDEXED_LISTINGS,
        *astuple(new),
        created_at,
        words,
        *(idempotency or (None,) * 4),
        None if actor is None else actor.key_id,
    )
    listing_id, digest, result = await session.fetch_one(CREATE, *values)
    if listing_id is not None:
        return AddResult(listing_id)
    if idempotency is None or digest is None:
        return None
    return AddResult(int(_require_same_request(idempotency, digest, result)), replayed=True)


async def add(
    session: Session, partition: Partition, new: NewListing, created_at: str, options: WriteOptions
) -> AddResult:
    """Create a listing with single statements, which works for an account of any size."""
    idempotency, actor = options
    await lock_counter(session, partition[0])
    earlier = await _find_earlier_result(session, partition, idempotency)
    if earlier is not None:
        return AddResult(int(earlier), replayed=True)
    listing_id = await _add_new(session, partition, new, created_at, actor)
    await _store_result(session, partition, idempotency, str(listing_id))
    return AddResult(listing_id)


async def change(session: Session, listing_id: int, decide: Decide, actor: Actor | None) -> Listing:
    """Change a listing as `decide` returns, and return the new listing."""
    rows = await session.fetch(_LOCK_LISTING, bucket_of(listing_id), listing_id)
    listing = build_listing(rows[0]) if rows else None
    changes = decide(listing)
    if listing is None:
        raise AssertionError(f"decide accepted the missing listing {listing_id}")
    if not changes:
        return listing
    changed = await _apply(session, listing_id, changes)
    partition = (bucket_of(listing_id), listing.account_id)
    revision = int((await session.fetch_one(sql.RAISE_REVISION, *partition))[0])
    if actor is not None:
        await run_script(session, audit.record_edit(partition, revision, actor, listing_id, changes))
    return changed


async def lock_counter(session: Session, bucket: int) -> int:
    """Lock the bucket's counter until the end of the transaction, and return the last serial."""
    rows = await session.fetch(_LOCK_COUNTER, bucket)
    if not rows:
        await session.fetch(sql.SKIP_SERIALS, bucket, 0)
        rows = await session.fetch(_LOCK_COUNTER, bucket)
    return int(rows[0][0])


async def _add_new(
    session: Session, partition: Partition, new: NewListing, created_at: str, actor: Actor | None = None
) -> int:
    """Store a listing. The counter must be locked."""
    await _index_if_large(session, partition, 1)
    serial = (await session.fetch_one(sql.NEXT_SERIAL, partition[0]))[0]
    listing_id = int(serial) * BUCKETS + partition[0]
    rows = await session.fetch(sql.COUNT_ONE_MORE, *partition, 1)
    indexed = bool(rows and rows[0][1])
    past = (0, created_at, created_at, None)
    edit = (None, None) if actor is None else (actor.key_id, rows[0][2] if rows else None)
    await session.fetch(sql.ADD_LISTING, listing_id, *partition, *astuple(new), *past, indexed, *edit)
    if indexed:
        await session.fetch(
            _SET_WORDS, partition[0], listing_id, build_account_words(partition[1], new.title, new.content)
        )
    return listing_id


async def _index_if_large(session: Session, partition: Partition, new_listings: int) -> State:
    """Index the account if the new listings make it large. Must run before the account's state is locked."""
    rows = await session.fetch(_GET_STATE, *partition)
    state = State(*rows[0]) if rows else State(0, indexed=False)
    if state.indexed or state.listings + new_listings < search_sql.MIN_INDEXED_LISTINGS:
        return state
    await session.fetch(_LOCK_ALL_LISTINGS, *partition)
    await session.fetch(sql.INDEX_ACCOUNT, *partition)
    for statement in (sql.INDEX_ACTIVE, sql.INDEX_HIDDEN):
        rows = await session.fetch(statement, *partition)
        words = [(partition[0], row[0], build_account_words(partition[1], *row[1:])) for row in rows]
        await session.execute_many(_SET_WORDS, words)
    return State(state.listings, indexed=True)


async def _apply(session: Session, listing_id: int, changes: ListingChange) -> Listing:
    """Write the changes of a listing and return the new listing. The caller must raise the revision."""
    bucket = bucket_of(listing_id)
    statement = sql.build_listing_update(tuple(changes))
    changed = build_listing(await session.fetch_one(statement, bucket, listing_id, *changes.values()))
    partition = (bucket, changed.account_id)
    if changes.keys() & {"title", "content"} and (await session.fetch_one(sql.IS_INDEXED, *partition))[0]:
        words = build_account_words(changed.account_id, changed.title, changed.content)
        await session.fetch(_SET_WORDS, bucket, listing_id, words)
    return changed


# Batches


async def run(session: Session, partition: Partition, batch: Batch, options: WriteOptions) -> list[StepResult] | str:
    """Run the steps of a batch. Raises RollbackError if the batch must be rolled back.

    No step needs a savepoint, because a step is rejected before it writes anything.
    """
    idempotency, actor = options
    if idempotency is not None or any(isinstance(step, AddStep) for step in batch.steps):
        await lock_counter(session, partition[0])
    earlier = await _find_earlier_result(session, partition, idempotency)
    if earlier is not None:
        return earlier
    additions = sum(isinstance(step, AddStep) for step in batch.steps)
    if additions:
        await _index_if_large(session, partition, additions)
    ids = [step.listing_id for step in batch.steps if isinstance(step, ChangeStep)]
    own = {row[0]: build_listing(row) for row in await session.fetch(_LOCK_LISTINGS, *partition, ids)} if ids else {}
    edits = Edits()
    results = [await _attempt(session, partition, edits.watch(step), own) for step in batch.steps]
    if batch.dry_run or (batch.atomic and any(isinstance(result, Problem) for result in results)):
        raise RollbackError(results)
    if actor is not None:
        await run_script(session, audit.record_batch(partition, actor, edits, results))
    await _store_result(session, partition, idempotency, batch.record(results))
    return results


async def _attempt(session: Session, partition: Partition, step: Step, own: dict[int, Listing]) -> StepResult:
    """Run one step. `own` are the account's locked listings by id."""
    if isinstance(step, Problem):
        return step
    if isinstance(step, AddStep):
        return await _add_new(session, partition, step.new, step.created_at)
    listing = own.get(step.listing_id) or await _get_listing(session, step.listing_id)
    try:
        changes = step.decide(listing)
    except Problem as problem:
        return problem
    if listing is None:
        raise AssertionError(f"decide accepted the missing listing {step.listing_id}")
    if not changes:
        return listing
    changed = own[step.listing_id] = await _apply(session, step.listing_id, changes)
    await session.fetch(sql.RAISE_REVISION, bucket_of(step.listing_id), listing.account_id)
    return changed


async def _get_listing(session: Session, listing_id: int) -> Listing | None:
    rows = await session.fetch(sql.GET_LISTING, bucket_of(listing_id), listing_id)
    return build_listing(rows[0]) if rows else None


# Views


async def record_views(session: Session, day: int, views: Mapping[int, Collection[bytes]]) -> None:
    """Count the new visitors of each listing, and raise the revision of each account once."""
    accounts = set()
    for bucket, listing_id in sorted((bucket_of(listing_id), listing_id) for listing_id in views):
        viewed = await session.fetch(_LOCK_VIEWED, bucket, listing_id)
        if viewed:
            visitors = sorted(views[listing_id])
            added = [await session.fetch(sql.ADD_VIEW, bucket, listing_id, day, visitor) for visitor in visitors]
            new = sum(len(rows) for rows in added)
            if new:
                await session.fetch(sql.COUNT_VIEWS, bucket, listing_id, new)
                accounts.add((bucket, viewed[0][0]))
    for account in sorted(accounts):
        await session.fetch(sql.RAISE_REVISION, *account)


# Idempotency records


async def _find_earlier_result(
    session: Session, partition: Partition, idempotency: IdempotencyRecord | None
) -> str | None:
    """Return the result of an earlier write with the same key. The counter must be locked."""
    if idempotency is None:
        return None
    rows = await session.fetch(sql.FIND_IDEMPOTENCY_RECORD, *partition, idempotency.key, idempotency.oldest)
    return _require_same_request(idempotency, *rows[0]) if rows else None


def _require_same_request(idempotency: IdempotencyRecord, digest: bytes, result: str) -> str:
    if digest != idempotency.digest:
        raise Problem("idempotency_key_reused", "This Idempotency-Key was sent with another request before")
    return result


async def _store_result(
    session: Session, partition: Partition, idempotency: IdempotencyRecord | None, result: str
) -> None:
    if idempotency is not None:
        values = (idempotency.key, idempotency.digest, result, idempotency.moment)
        await session.fetch(sql.STORE_IDEMPOTENCY_RECORD, *partition, *values)


# Imports


def parse_progress(rows: list[Any]) -> ImportProgress | None:
    """Return the progress in the rows of `sql.GET_IMPORT`, or None if there are none."""
    return ImportProgress(**dict(zip(ImportProgress.__struct_fields__, rows[0], strict=True))) if rows else None


async def begin_import(
    session: Session, key: ImportKey, found: ImportProgress | None, started_at: int, last_id: int
) -> ImportProgress | None:
    """Start an import from the beginning and reserve the ids of its file.

    Return None if the progress is no longer `found`.
    """
    await lock_counter(session, key.bucket)
    if parse_progress(await session.fetch(sql.GET_IMPORT, *astuple(key))) != found:
        return None
    await session.fetch(sql.BEGIN_IMPORT, *astuple(key), started_at)
    await session.fetch(sql.SKIP_SERIALS, key.bucket, last_id // BUCKETS)
    return ImportProgress(started_at=started_at)


async def import_rows(
    session: Session, key: ImportKey, batch: ImportBatch, actor: Actor | None
) -> list[RowOutcome] | None:
    """Write the rows of a batch and the progress. Return None if the import is not at the start of the batch."""
    last = await lock_counter(session, key.bucket)
    found = parse_progress(await session.fetch(sql.GET_IMPORT, *astuple(key)))
    if found is None or found.finished_at is not None or found.position != batch.start:
        return None
    importer = await _BatchImporter.prepare(session, key, batch, last)
    outcomes = [await importer.import_row(row) for row in batch.rows]
    created, changed, unchanged = (outcomes.count(outcome) for outcome in ("made", "changed", "unchanged"))
    await importer.finish(created, raise_revision=bool(created or changed))
    rejected = len(outcomes) - created - changed - unchanged
    values = (*batch.end, created, changed, unchanged, rejected, batch.finished_at)
    await session.fetch(sql.ADVANCE_IMPORT, *astuple(key), *values)
    if actor is not None and (created or changed):
        await run_script(session, audit.record_import(key, found, outcomes, actor))
    return outcomes


class _BatchImporter:
    """Imports one batch. New listings are buffered and written together."""

    def __init__(self, session: Session, key: ImportKey, last: int, known: dict[int, Listing], state: State) -> None:
        self._session = session
        self._key = key
        self._last = last
        self._known = known
        self._indexed = state.indexed
        self._created: list[tuple[int, ImportedListing]] = []

    @classmethod
    async def prepare(cls, session: Session, key: ImportKey, batch: ImportBatch, last: int) -> "_BatchImporter":
        ids = [row.listing_id for row in batch.rows if row.listing_id is not None]
        partition = (key.bucket, key.account_id)
        state = await _index_if_large(session, partition, len(batch.rows))
        rows = chain(
            await session.fetch(_GET_LISTINGS, key.bucket, ids), await session.fetch(_LOCK_LISTINGS, *partition, ids)
        )
        return cls(session, key, last, {row[0]: build_listing(row) for row in rows}, state)

    async def import_row(self, row: ImportRow) -> RowOutcome:
        listing = None if row.listing_id is None else self._known.get(row.listing_id)
        try:
            decision = row.decide(listing)
        except Problem as problem:
            return problem
        if isinstance(decision, ImportedListing):
            self._buffer(row.listing_id, decision)
            return "made"
        if not decision or row.listing_id is None:
            return "unchanged"
        await self._write_created()
        self._known[row.listing_id] = await _apply(self._session, row.listing_id, decision)
        return "changed"

    async def finish(self, created: int, *, raise_revision: bool) -> None:
        """Write the buffered listings, the last serial, and the account's counts."""
        await self._write_created()
        await self._session.fetch(sql.SKIP_SERIALS, self._key.bucket, self._last)
        if raise_revision:
            await self._session.fetch(sql.COUNT_MORE, self._key.bucket, self._key.account_id, 1, created)

    def _buffer(self, listing_id: int | None, listing: ImportedListing) -> None:
        if listing_id is None:
            listing_id = (self._last + 1) * BUCKETS + self._key.bucket
        self._last = max(self._last, listing_id // BUCKETS)
        self._created.append((listing_id, listing))
        new, *past = astuple(listing)
        fields = (listing_id, self._key.account_id, 1, *astuple(new), *past)
        self._known[listing_id] = Listing(*fields)

    async def _write_created(self) -> None:
        created, self._created = self._created, []
        bucket, account_id = self._key.bucket, self._key.account_id
        rows = []
        for listing_id, listing in created:
            new, *past = astuple(listing)
            rows.append((listing_id, bucket, account_id, *astuple(new), *past, self._indexed, None, None))
        if rows:
            await self._session.execute_many(sql.ADD_LISTING, rows)
        if rows and self._indexed:
            words = [
                (bucket, listing_id, build_account_words(account_id, listing.new.title, listing.new.content))
                for listing_id, listing in created
            ]
            await self._session.execute_many(_SET_WORDS, words)
