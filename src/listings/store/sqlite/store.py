"""The store on one SQLite file: short reads run on the event loop, long ones in a thread, writes in another."""

import json
import math
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from listings.domain.account_limits import NO_LIMITS, AccountLimits
from listings.domain.history import Actor
from listings.domain.listings import (
    MAX_LIST_BYTES,
    ROW_BYTES,
    AddResult,
    AddStep,
    Batch,
    BatchOutcome,
    IdempotencyRecord,
    LargeListError,
    ListResult,
    ListStream,
    measure_listings,
)
from listings.domain.model import BUCKETS, Caller, Listing, ListingCounts, ListingQuery, Revisions, bucket_of
from listings.queues import FairQueue
from listings.store import sql
from listings.store.mapping import Partition, build_listing
from listings.store.query import Query, Row
from listings.store.scripts.listings import Added
from listings.store.sqlite import search
from listings.store.sqlite.engine import SqliteEngine
from listings.store.sqlite.index_steps import SqliteIndexStore
from listings.store.sqlite.writer.batch_writer import OnBatch
from listings.store.store import Store

_BATCH_TIMEOUT_SECONDS = 30.0
_MAX_BATCHES = 16  # batch requests that run at a time, because all other writes wait for them
_MAX_BATCHES_PER_BUCKET = 2  # with 1, a series of batches takes 25% longer
_FIND_CALLER = sql.to_sqlite(sql.FIND_CALLER)
_LIST_LISTINGS = sql.to_sqlite(sql.LIST_LISTINGS)
_GET_REVISIONS = sql.to_sqlite(sql.GET_REVISIONS)
_GET_LISTING = sql.to_sqlite(sql.GET_LISTING)
_LIST_EDIT_REVISIONS = f"""
SELECT account_id, edit_revision FROM json_each(?1) AS wanted
CROSS JOIN account_state ON bucket = wanted.value % {BUCKETS} AND account_id = wanted.value
"""
_GET_LISTING_AND_REVISIONS = f"""
SELECT {", ".join(Listing.__struct_fields__)}, state.revision, state.edit_revision
FROM listings LEFT JOIN account_state AS state USING (bucket, account_id) WHERE bucket = ?1 AND id = ?2
"""


class SqliteStore(SqliteIndexStore, Store):
    """`listings.store.store.Store` on one file."""

    engine: SqliteEngine
    database_bytes_statement = Query[tuple[int]](
        "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
    )

    def __init__(self, path: Path, on_batch: OnBatch | None = None, account_limits: AccountLimits = NO_LIMITS) -> None:
        super().__init__(path, on_batch)
        self.engine = SqliteEngine(account_limits)
        self._batch_slots = FairQueue(
            None,
            slots=_MAX_BATCHES,
            slots_of_owner=_MAX_BATCHES_PER_BUCKET,
            max_callers=math.inf,  # an account must not take all places of a bucket, which others share
            seconds=_BATCH_TIMEOUT_SECONDS,
        )

    # Callers

    async def find_caller(self, digest: bytes) -> Caller | None:
        database = self._database  # any write that may change a caller empties the cache
        cached = database.callers.values()
        caller: Caller | None = cached.get(digest)
        if caller is None:
            rows = database.read(_FIND_CALLER, (digest,))
            if rows:
                caller = cached[digest] = Caller(*rows[0][1:])
        return caller

    # Listings

    async def run_batch(
        self,
        bucket: int,
        account_id: int,
        batch: Batch,
        idempotency: IdempotencyRecord | None = None,
        actor: Actor | None = None,
    ) -> BatchOutcome | str:
        if len(batch.steps) == 1:
            return await super().run_batch(bucket, account_id, batch, idempotency, actor)
        async with self._batch_slots.acquire(bucket):
            return await super().run_batch(bucket, account_id, batch, idempotency, actor)

    async def list_listings(self, bucket: int, account_id: int) -> ListResult:
        database, partition = self._database, (bucket, account_id)
        return ListResult(
            _build_list(database.read_quickly(account_id, lambda: database.read(_LIST_LISTINGS, partition)))
        )

    async def get_listing(self, listing_id: int) -> Listing | None:
        rows = self._database.read(_GET_LISTING, (bucket_of(listing_id), listing_id))
        return build_listing(rows[0]) if rows else None

    async def get_listing_and_revision(self, listing_id: int) -> tuple[Listing, int] | None:
        database = self._database
        can_record = database.revisions.can_record()
        rows = database.read(_GET_LISTING_AND_REVISIONS, (bucket_of(listing_id), listing_id))
        if not rows:
            return None
        *row, revision, edit_revision = rows[0]
        listing = build_listing(row)
        if can_record:
            database.revisions.record(listing.account_id, Revisions(revision, edit_revision))
        return listing, revision

    async def find_listings(self, bucket: int, account_id: int, query: ListingQuery) -> ListResult:
        partition = (bucket, account_id)
        if query.count:
            rows, total = self._find_and_count(partition, query)
            return ListResult(_build_list(rows), total)
        database, read = self._database, self._database.read_neutral
        rows = database.read_quickly(
            account_id,
            lambda: search.find(read, database.iterate, partition, query, search.plan_search(read, partition, query)),
            searches_words=bool(query.words),
        )
        return ListResult(_build_list(rows))

    def read_listings(
        self, bucket: int, account_id: int, query: ListingQuery
    ) -> AbstractAsyncContextManager[ListStream]:
        return self._database.snapshots.read((bucket, account_id), query)

    async def page_listings(self, bucket: int, account_id: int, after_id: int, count: int) -> list[Listing]:
        page: list[Listing] = []
        size = 0
        for row in self._database.iterate(sql.PAGE_LISTINGS, (bucket, account_id, after_id, count)):
            page.append(build_listing(row))
            size += measure_listings(page[-1:])
            if size >= MAX_LIST_BYTES:
                break
        return page

    async def add_listing(
        self,
        bucket: int,
        account_id: int,
        step: AddStep,
        idempotency: IdempotencyRecord | None = None,
        actor: Actor | None = None,
    ) -> AddResult:
        partition = (bucket, account_id)
        database = self._database

        def track(added: Added) -> None:
            if added.revisions is not None:
                database.revisions.record_create(account_id, added.revisions)

        added = await database.writer.run(
            lambda connection: self.engine.add(connection, partition, step, idempotency, actor),
            changes_callers=False,
            track=track,
        )
        return added.result

    # Change sets

    async def list_edit_revisions(self, account_ids: Collection[int]) -> Mapping[int, int]:
        return dict(self._database.read(_LIST_EDIT_REVISIONS, (json.dumps([*account_ids]),)))

    # Revisions

    async def get_revisions(self, bucket: int, account_id: int) -> Revisions:
        revisions = self._database.revisions.find_revisions(account_id)
        return revisions if revisions is not None else self._read_revisions(bucket, account_id)

    async def count_listings(self, bucket: int, account_id: int) -> ListingCounts:
        # In the thread, because it reads each inactive or deleted listing.
        return await self._run_reads(lambda tx: tx.get(ListingCounts, sql.COUNT_LISTINGS, (bucket, account_id)))

    async def get_last_change_revision(self, bucket: int, account_id: int) -> int:
        revision = self._read_revisions(bucket, account_id).revision  # first: it also fills the cache
        last_change = self._database.revisions.find_last_change_revision(account_id)
        return last_change if last_change is not None else revision

    def get_cached_last_change_revision(self, bucket: int, account_id: int) -> int | None:
        return self._database.revisions.find_last_change_revision(account_id)

    def on_reset(self, callback: Callable[[], None]) -> None:
        """Ignore the callback: the reader keeps the file that it opened, whose data can't become older."""

    def _find_and_count(self, partition: Partition, query: ListingQuery) -> tuple[list[Row], int]:
        # In one transaction, so from one snapshot.
        database = self._database
        database.read("BEGIN", ())
        try:
            return database.read_quickly(
                partition[1],
                lambda: search.find_and_count(database.read_neutral, database.iterate, partition, query),
                searches_words=bool(query.words),
            )
        finally:
            database.read("COMMIT", ())

    def _read_revisions(self, bucket: int, account_id: int) -> Revisions:
        database = self._database
        can_record = database.revisions.can_record()
        rows = database.read(_GET_REVISIONS, (bucket, account_id))
        revisions = Revisions(*rows[0]) if rows else Revisions(0, 0)
        if can_record:
            database.revisions.record(account_id, revisions)
        return revisions


def _build_list(rows: list[Row]) -> list[Listing]:
    if len(rows) > MAX_LIST_BYTES // ROW_BYTES:
        raise LargeListError
    listings = [build_listing(row) for row in rows]
    if measure_listings(listings) > MAX_LIST_BYTES:
        raise LargeListError
    return listings
