"""What is written of listings in PostgreSQL, each function within one transaction.

Locks are taken in one order everywhere: the bucket's counter, the listings by their ids, the account's state. Claims
and imports need none of their own: whoever looks at them holds the counter.
"""

from collections.abc import Collection, Mapping
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import astuple

from listings.contract.history import Actor
from listings.contract.imports import ImportBatch, ImportKey, ImportProgress, ImportRow, RowOutcome
from listings.contract.listings import Added, AddStep, Batch, ChangeStep, Decide, IdempotencyRecord, Step, StepResult
from listings.domain.errors import Problem
from listings.domain.model import BUCKETS, ImportedListing, Listing, ListingChange, NewListing, bucket_of
from listings.store import search_sql, sql
from listings.store.mapping import Partition
from listings.store.postgres.pool import Session
from listings.store.postgres.search import account_words
from listings.store.scripts import audit
from listings.store.scripts.audit import Edits
from listings.store.scripts.script import Script

T = TypeVar("T")

CREATE = """
SELECT listing_id, earlier_digest, earlier_result FROM create_listing(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23)
"""
_LOCKED = " FOR NO KEY UPDATE"
_LOCK_COUNTER = "SELECT last FROM listing_ids WHERE bucket = $1 FOR UPDATE"
_LOCK_LISTING = sql.GET_LISTING + " FOR UPDATE"
_LOCK_LISTINGS = f"""
SELECT {sql.LISTING_COLUMNS} FROM listings
WHERE bucket = $1 AND account_id = $2 AND id = ANY($3)
ORDER BY bucket, id FOR UPDATE
"""
_LOCK_ACCOUNT = """
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
    """On whose behalf something is written, and under which claim."""

    claim: IdempotencyRecord | None
    actor: Actor | None


class UndoneError(Exception):
    """Takes a batch's results out of a transaction that is to leave nothing."""

    def __init__(self, results: list[StepResult]) -> None:
        super().__init__()
        self.results = results


class State(NamedTuple):
    """How many listings an account has, and whether they are indexed."""

    listings: int
    indexed: bool


async def run_script(session: Session, script: Script[T]) -> T:
    """Run a script in the session's transaction."""
    try:
        asked = next(script)
        while True:
            statement = asked.statement + _LOCKED if asked.locks else asked.statement
            asked = script.send(await session.fetch(statement, *asked.values))
    except StopIteration as end:
        result: T = end.value
        return result


def author_of(actor: Actor | None) -> int | None:
    """What of an author a listing's row keeps."""
    return None if actor is None else actor.key_id


def listing_of(row: Any) -> Listing:  # noqa: ANN401 - the driver's
    """The listing of a row."""
    return Listing(*row)


# Single listings


async def create(  # noqa: PLR0913 - what is to be created, and how
    session: Session, place: Partition, new: NewListing, created_at: str, terms: WriteOptions, *, with_words: bool
) -> Added | None:
    """A create by the database's own function, which is a transaction where none is begun.

    None, and nothing written, when only `add` can do it.
    """
    found = account_words(place[1], new.title, new.content) if with_words else None
    claim, actor = terms
    values = (*place, search_sql.LARGE, *astuple(new), created_at, found, *(claim or (None,) * 4), author_of(actor))
    listing_id, digest, result = await session.fetch_one(CREATE, *values)
    if listing_id is not None:
        return Added(listing_id)
    if claim is None or digest is None:
        return None
    return Added(int(_same(claim, digest, result)), replayed=True)


async def add(session: Session, place: Partition, new: NewListing, created_at: str, terms: WriteOptions) -> Added:
    """The same by single statements, whatever the account's size."""
    claim, actor = terms
    await lock_counter(session, place[0])
    earlier = await _claimed(session, place, claim)
    if earlier is not None:
        return Added(int(earlier), replayed=True)
    listing_id = await _add_new(session, place, new, created_at, actor)
    await _keep(session, place, claim, str(listing_id))
    return Added(listing_id)


async def change(session: Session, listing_id: int, decide: Decide, actor: Actor | None) -> Listing:
    """The listing as `decide` has changed it; without an author it leaves no event."""
    rows = await session.fetch(_LOCK_LISTING, bucket_of(listing_id), listing_id)
    listing = listing_of(rows[0]) if rows else None
    changes = decide(listing)
    if listing is None:
        raise AssertionError(f"decide accepted the missing listing {listing_id}")
    if not changes:
        return listing
    changed = await _apply(session, listing_id, changes)
    place = (bucket_of(listing_id), listing.account_id)
    revision = int((await session.fetch_one(sql.RAISE_REVISION, *place))[0])
    if actor is not None:
        await run_script(session, audit.record_edit(place, revision, actor, listing_id, changes))
    return changed


async def lock_counter(session: Session, bucket: int) -> int:
    """Hold the bucket's counter until the end of the transaction; returns the last serial."""
    rows = await session.fetch(_LOCK_COUNTER, bucket)
    if not rows:
        await session.fetch(sql.SKIP_SERIALS, bucket, 0)
        rows = await session.fetch(_LOCK_COUNTER, bucket)
    return int(rows[0][0])


async def _add_new(
    session: Session, place: Partition, new: NewListing, created_at: str, actor: Actor | None = None
) -> int:
    """Under the counter's lock."""
    await _prepare_for(session, place, 1)
    serial = (await session.fetch_one(sql.NEXT_SERIAL, place[0]))[0]
    listing_id = int(serial) * BUCKETS + place[0]
    rows = await session.fetch(sql.COUNT_ONE_MORE, *place, 1)
    indexed = bool(rows and rows[0][1])
    past = (0, created_at, created_at, None)
    edit = (None, None) if actor is None else (actor.key_id, rows[0][2] if rows else None)
    await session.fetch(sql.ADD_LISTING, listing_id, *place, *astuple(new), *past, indexed, *edit)
    if indexed:
        await session.fetch(_SET_WORDS, place[0], listing_id, account_words(place[1], new.title, new.content))
    return listing_id


async def _prepare_for(session: Session, place: Partition, more: int) -> State:
    """Index an account that so many more listings make large, before its state is locked."""
    rows = await session.fetch(_GET_STATE, *place)
    state = State(*rows[0]) if rows else State(0, indexed=False)
    if state.indexed or state.listings + more < search_sql.LARGE:
        return state
    await session.fetch(_LOCK_ACCOUNT, *place)
    await session.fetch(sql.INDEX_ACCOUNT, *place)
    for statement in (sql.INDEX_ACTIVE, sql.INDEX_HIDDEN):
        rows = await session.fetch(statement, *place)
        await session.run_many(_SET_WORDS, [(place[0], row[0], account_words(place[1], *row[1:])) for row in rows])
    return State(state.listings, indexed=True)


async def _apply(session: Session, listing_id: int, changes: ListingChange) -> Listing:
    """Write what has changed of a listing; returns it as it is then. The revision is the caller's to raise."""
    bucket = bucket_of(listing_id)
    statement = sql.change_listing(tuple(changes))
    changed = listing_of(await session.fetch_one(statement, bucket, listing_id, *changes.values()))
    place = (bucket, changed.account_id)
    if changes.keys() & {"title", "content"} and (await session.fetch_one(sql.IS_INDEXED, *place))[0]:
        found = account_words(changed.account_id, changed.title, changed.content)
        await session.fetch(_SET_WORDS, bucket, listing_id, found)
    return changed


# Batches


async def run(session: Session, place: Partition, batch: Batch, terms: WriteOptions) -> list[StepResult] | str:
    """All steps of a batch. Raises UndoneError where all of it is to be undone.

    No step needs a savepoint: what is refused is refused by its judge, before it has written anything.
    """
    claim, actor = terms
    if claim is not None or any(isinstance(step, AddStep) for step in batch.steps):
        await lock_counter(session, place[0])
    earlier = await _claimed(session, place, claim)
    if earlier is not None:
        return earlier
    adds = sum(isinstance(step, AddStep) for step in batch.steps)
    if adds:
        await _prepare_for(session, place, adds)
    ids = [step.listing_id for step in batch.steps if isinstance(step, ChangeStep)]
    own = {row[0]: listing_of(row) for row in await session.fetch(_LOCK_LISTINGS, *place, ids)} if ids else {}
    edits = Edits()
    results = [await _attempt(session, place, edits.watched(step), own) for step in batch.steps]
    if batch.dry_run or (batch.atomic and any(isinstance(result, Problem) for result in results)):
        raise UndoneError(results)
    if actor is not None:
        await run_script(session, audit.record_batch(place, actor, edits, results))
    await _keep(session, place, claim, batch.record(results))
    return results


async def _attempt(session: Session, place: Partition, step: Step, own: dict[int, Listing]) -> StepResult:
    """One step; `own` are the account's listings that are locked."""
    if isinstance(step, Problem):
        return step
    if isinstance(step, AddStep):
        return await _add_new(session, place, step.new, step.created_at)
    listing = own.get(step.listing_id) or await _read(session, step.listing_id)
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


async def _read(session: Session, listing_id: int) -> Listing | None:
    rows = await session.fetch(sql.GET_LISTING, bucket_of(listing_id), listing_id)
    return listing_of(rows[0]) if rows else None


# Views


async def record_views(session: Session, day: int, views: Mapping[int, Collection[bytes]]) -> None:
    """Count who is new, and raise the revision of each account once."""
    accounts = set()
    for place in sorted((bucket_of(listing_id), listing_id) for listing_id in views):
        viewed = await session.fetch(_LOCK_VIEWED, *place)
        if viewed:
            added = [await session.fetch(sql.ADD_VIEW, *place, day, visitor) for visitor in sorted(views[place[1]])]
            new = sum(len(rows) for rows in added)
            if new:
                await session.fetch(sql.COUNT_VIEWS, *place, new)
                accounts.add((place[0], viewed[0][0]))
    for account in sorted(accounts):
        await session.fetch(sql.RAISE_REVISION, *account)


# Claims


async def _claimed(session: Session, place: Partition, claim: IdempotencyRecord | None) -> str | None:
    """What an earlier write under the claim came to. Asked under the counter's lock."""
    if claim is None:
        return None
    rows = await session.fetch(sql.FIND_CLAIM, *place, claim.key, claim.oldest)
    return _same(claim, *rows[0]) if rows else None


def _same(claim: IdempotencyRecord, digest: bytes, result: str) -> str:
    if digest != claim.digest:
        raise Problem("idempotency_key_reused", "This Idempotency-Key was sent with another request before")
    return result


async def _keep(session: Session, place: Partition, claim: IdempotencyRecord | None, result: str) -> None:
    if claim is not None:
        await session.fetch(sql.KEEP_CLAIM, *place, claim.key, claim.digest, result, claim.moment)


# Imports


def progress_of(rows: list[Any]) -> ImportProgress | None:
    """How far an import is, by what `sql.GET_IMPORT` found."""
    return ImportProgress(**dict(zip(ImportProgress.__struct_fields__, rows[0], strict=True))) if rows else None


async def begin_import(
    session: Session, key: ImportKey, found: ImportProgress | None, started_at: int, last_id: int
) -> ImportProgress | None:
    """Set an import to its beginning, and the ids of its file aside; None when it is no more as it was found."""
    await lock_counter(session, key.bucket)
    if progress_of(await session.fetch(sql.GET_IMPORT, *astuple(key))) != found:
        return None
    await session.fetch(sql.BEGIN_IMPORT, *astuple(key), started_at)
    await session.fetch(sql.SKIP_SERIALS, key.bucket, last_id // BUCKETS)
    return ImportProgress(started_at=started_at)


async def import_rows(
    session: Session, key: ImportKey, batch: ImportBatch, actor: Actor | None
) -> list[RowOutcome] | None:
    """The rows of a batch, and the progress; None when the import is not where the batch starts."""
    last = await lock_counter(session, key.bucket)
    found = progress_of(await session.fetch(sql.GET_IMPORT, *astuple(key)))
    if found is None or found.finished_at is not None or found.position != batch.start:
        return None
    importing = await _Importing.of(session, key, batch, last)
    outcomes = [await importing.take(row) for row in batch.rows]
    made, changed, unchanged = (outcomes.count(outcome) for outcome in ("made", "changed", "unchanged"))
    await importing.end(made, raises=bool(made or changed))
    refused = len(outcomes) - made - changed - unchanged
    values = (*batch.end, made, changed, unchanged, refused, batch.finished_at)
    await session.fetch(sql.ADVANCE_IMPORT, *astuple(key), *values)
    if actor is not None and (made or changed):
        await run_script(session, audit.record_import(key, found, outcomes, actor))
    return outcomes


class _Importing:
    """One batch of an import: what is made is kept back, and written at once."""

    def __init__(self, session: Session, key: ImportKey, last: int, known: dict[int, Listing], state: State) -> None:
        self._session = session
        self._key = key
        self._last = last
        self._known = known
        self._indexed = state.indexed
        self._made: list[tuple[int, ImportedListing]] = []

    @classmethod
    async def of(cls, session: Session, key: ImportKey, batch: ImportBatch, last: int) -> "_Importing":
        ids = [row.listing_id for row in batch.rows if row.listing_id is not None]
        place = (key.bucket, key.account_id)
        state = await _prepare_for(session, place, len(batch.rows))
        rows = chain(
            await session.fetch(_GET_LISTINGS, key.bucket, ids), await session.fetch(_LOCK_LISTINGS, *place, ids)
        )
        return cls(session, key, last, {row[0]: listing_of(row) for row in rows}, state)

    async def take(self, row: ImportRow) -> RowOutcome:
        """Judge a row, and do as its judge says."""
        listing = None if row.listing_id is None else self._known.get(row.listing_id)
        try:
            decision = row.decide(listing)
        except Problem as problem:
            return problem
        if isinstance(decision, ImportedListing):
            self._make(row.listing_id, decision)
            return "made"
        if not decision or row.listing_id is None:
            return "unchanged"
        await self._write_made()
        self._known[row.listing_id] = await _apply(self._session, row.listing_id, decision)
        return "changed"

    async def end(self, made: int, *, raises: bool) -> None:
        """Write what is left, and count it."""
        await self._write_made()
        await self._session.fetch(sql.SKIP_SERIALS, self._key.bucket, self._last)
        if raises:
            await self._session.fetch(sql.COUNT_MORE, self._key.bucket, self._key.account_id, 1, made)

    def _make(self, listing_id: int | None, listing: ImportedListing) -> None:
        if listing_id is None:
            listing_id = (self._last + 1) * BUCKETS + self._key.bucket
        self._last = max(self._last, listing_id // BUCKETS)
        self._made.append((listing_id, listing))
        new, *past = astuple(listing)
        fields = (listing_id, self._key.account_id, 1, *astuple(new), *past)
        self._known[listing_id] = Listing(*fields)

    async def _write_made(self) -> None:
        made, self._made = self._made, []
        bucket, account_id = self._key.bucket, self._key.account_id
        rows = []
        for listing_id, listing in made:
            new, *past = astuple(listing)
            rows.append((listing_id, bucket, account_id, *astuple(new), *past, self._indexed, None, None))
        if rows:
            await self._session.run_many(sql.ADD_LISTING, rows)
        if rows and self._indexed:
            found = ((one, account_words(account_id, it.new.title, it.new.content)) for one, it in made)
            await self._session.run_many(_SET_WORDS, [(bucket, one, its_words) for one, its_words in found])
