"""The store for PostgreSQL.

A read by id and most creates take one round trip. Every other write is a transaction of its own.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping
from contextlib import asynccontextmanager, nullcontext
from time import monotonic
from typing import Any, TypeVar

from listings.domain.account_limits import NO_LIMITS, AccountLimits
from listings.domain.errors import Problem, Unavailable
from listings.domain.history import Actor
from listings.domain.listings import (
    MAX_LIST_BYTES,
    ROW_BYTES,
    AddResult,
    AddStep,
    Batch,
    BatchOutcome,
    Decide,
    IdempotencyRecord,
    LargeListError,
    ListResult,
    ListStream,
    Pieces,
)
from listings.domain.model import BUCKETS, Caller, Listing, ListingQuery, Revisions, bucket_of
from listings.queues import FairQueue
from listings.store import member_sql, sql
from listings.store.mapping import ListingRow
from listings.store.migrations import APPLIED, build_older_schema_problem
from listings.store.postgres import citus, errors, migrate, writes
from listings.store.postgres import search as postgres_search
from listings.store.postgres.batched_lookups import BatchedLookups
from listings.store.postgres.index_steps import PostgresIndexStore
from listings.store.postgres.pool import Pool, PoolLimits, Session
from listings.store.postgres.search import build_merge
from listings.store.postgres.transactions import MAX_ATTEMPTS, log_cause, retrieve_exception
from listings.store.postgres.writes import PostgresEngine, WriteOptions
from listings.store.query import Query, R, Row
from listings.store.scripts.script import Script
from listings.store.store import Store

T = TypeVar("T")

_CHECK_TIMEOUT_SECONDS = 2
_CALLER_CACHE_SECONDS = 1.0
_CALLER_CHANGE_SECONDS = 1.05  # until no process has an older caller in its cache, even if its clock is a bit slower
_MAX_WRITES_OF_BUCKET = 2  # one holds the lock of the account's state, and the next one begins meanwhile
_SESSIONS_FOR_READS = 2
_MAX_CACHED = 10_000  # callers, and accounts whose listings are indexed
_UNDEFINED_TABLE = "42P01"
_SIZE = f"{sql.TEXT_BYTES} + {ROW_BYTES}"
_STATUS = Query[tuple[int, str, str, bool, bool]](
    f"SELECT version, name, checksum, pg_is_in_recovery(), {citus.IS_INSTALLED} FROM ({APPLIED}) AS applied"
)
_READ_LISTING = Query[tuple[str]]("SELECT title FROM listings ORDER BY bucket, id LIMIT 1")

GET_REVISIONS = Query[tuple[int, int, int]](
    "SELECT account_id, revision, edit_revision FROM account_state WHERE bucket = $1 AND account_id = $2"
)
PAGE_LISTINGS = Query[ListingRow](f"""
SELECT {sql.LISTING_COLUMNS} FROM (
    SELECT *, sum({_SIZE}) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS size_before
    FROM ({build_merge(sql.PAGE_LISTINGS, "ORDER BY id LIMIT $4")}) AS page) AS measured
WHERE COALESCE(size_before, 0) < {MAX_LIST_BYTES}
ORDER BY id
""")
LIST_LISTINGS = Query[tuple[int, int, int, *ListingRow]](f"""
SELECT size, state.*, found.*
FROM (SELECT revision, edit_revision FROM account_state WHERE bucket = $1 AND account_id = $2) AS state
CROSS JOIN LATERAL (
    SELECT COALESCE(sum({_SIZE}), 0) FROM (
        SELECT title, content, images FROM listings
        WHERE bucket = $1 AND account_id = $2 AND is_active AND deleted_at IS NULL
        ORDER BY id DESC LIMIT {MAX_LIST_BYTES // ROW_BYTES + 1}) AS few) AS measured (size)
LEFT JOIN LATERAL (SELECT * FROM ({sql.LIST_LISTINGS}) AS listed WHERE size <= {MAX_LIST_BYTES}) AS found ON TRUE
""")
PAGE_CREATIONS = Query[Row](build_merge(member_sql.PAGE_CREATIONS, "ORDER BY id DESC LIMIT $4"))
PAGE_EVENTS = Query[Row](build_merge(member_sql.PAGE_EVENTS, "ORDER BY revision DESC, number DESC LIMIT $5"))
LIST_EDIT_REVISIONS = Query[tuple[int, int]](f"""
SELECT account_id, edit_revision FROM unnest(CAST($1 AS bigint[])) AS wanted (id)
JOIN account_state ON bucket = CAST(wanted.id % {BUCKETS} AS smallint) AND account_id = wanted.id
""")
SEARCHES: Mapping[str, Query[Any]] = {
    sql.PAGE_LISTINGS: PAGE_LISTINGS,
    member_sql.PAGE_CREATIONS: PAGE_CREATIONS,
    member_sql.PAGE_EVENTS: PAGE_EVENTS,
}
"""Statements for PostgreSQL by the one that they replace. They run in a session for searches.

In others, the planner may sort all rows of a table for a page.
"""


class PostgresStore(PostgresIndexStore, Store):
    """Implements `listings.store.store.Store` on a database that is migrated by `postgres.migrate.migrate`."""

    database_bytes_statement = Query[tuple[int]]("SELECT pg_database_size(current_database())")

    def __init__(
        self,
        url: str,
        limits: PoolLimits,
        clock: Callable[[], float] = monotonic,
        account_limits: AccountLimits = NO_LIMITS,
        record_failed_write: Callable[[], None] = lambda: None,
    ) -> None:
        """`url` is a libpq connection URI, and `clock` returns seconds. See `Transactions` for the last one."""
        self.engine = PostgresEngine(account_limits)
        super().__init__(Pool(url, limits, self._clear_caches), record_failed_write)
        self._on_reset: Callable[[], None] = lambda: None
        self._clock = clock
        self._listings = BatchedLookups(sql.GET_LISTING, self._use)
        self._listings_and_revisions = BatchedLookups(sql.GET_LISTING_AND_REVISION, self._use)
        self._revisions = BatchedLookups(GET_REVISIONS, self._use)
        self._caller_rows = BatchedLookups(sql.FIND_CALLER, self._use)
        self._callers: dict[bytes, tuple[Caller, float]] = {}  # and until when each is served from this cache
        self._write_slots = _build_write_slots(limits, _MAX_WRITES_OF_BUCKET)
        self._batch_slots = _build_write_slots(limits, 1)  # a second one would only wait for the account's lock
        searches = max(1, limits.sessions // 2)
        self._count_slots = FairQueue(None, slots=searches, seconds=limits.seconds)  # by account
        self._piece_lock = asyncio.Lock()  # one piece of a list is read at a time
        self._indexed: set[int] = set()  # accounts whose listings are known to be indexed, so that creates need words

    async def open(self) -> None:
        await self._pool.open()
        self._failed_until = 0.0
        try:
            await self._require_ready()
        except BaseException:
            await self._pool.close()
            raise

    async def close(self) -> None:
        if self._writes:
            await asyncio.wait(self._writes)
        await self._pool.close()

    @property
    def restore_id(self) -> str:  # type: ignore[override]  # it changes with the sessions of the pool
        return self._pool.restore_id

    @property
    def writes_waiting(self) -> int:
        """The number of unfinished writes. May be read from any thread."""
        return len(self._writes)

    def count_sessions(self) -> tuple[int, int]:
        """Return how many sessions are in use, and how many callers wait for one. May be called from any thread."""
        return self._pool.count()

    async def check(self) -> None:
        task = asyncio.get_running_loop().create_task(self._require_ready())
        task.add_done_callback(retrieve_exception)
        await asyncio.wait([task], timeout=_CHECK_TIMEOUT_SECONDS)
        if not task.done():
            task.cancel()
            raise Unavailable("The database took too long to respond")
        task.result()

    async def list_unavailable_nodes(self) -> list[str]:
        return await citus.list_unavailable_workers(self._read) or []

    async def _require_ready(self) -> None:
        try:
            rows = await self._read(_STATUS)
        except Unavailable as error:
            if errors.get_sqlstate(error.__cause__ or error) == _UNDEFINED_TABLE:
                raise build_older_schema_problem() from error
            raise
        migrate.require_current([(version, name, checksum) for version, name, checksum, *_ in rows])
        *_, is_standby, has_citus = rows[0]
        if is_standby:
            raise Unavailable("The database is a standby, which rejects writes")
        if not has_citus:  # with Citus, it would read all shards, also those of an unavailable node
            await self._read(_READ_LISTING)
        if monotonic() < self._failed_until:
            raise Unavailable("The database fails to confirm writes")

    # Callers

    async def find_caller(self, digest: bytes) -> Caller | None:
        now = self._clock()
        caller, expires_at = self._callers.get(digest, (None, 0.0))
        if expires_at > now:
            return caller
        row = await self._caller_rows.find(digest)
        if row is None:
            return None  # an unknown key is not cached (decision G25)
        if len(self._callers) >= _MAX_CACHED:
            self._callers.clear()
        caller = Caller(*row[1:])
        self._callers[digest] = (caller, now + _CALLER_CACHE_SECONDS)
        return caller

    # Listings

    async def list_listings(self, bucket: int, account_id: int) -> ListResult:
        rows = await self._read(LIST_LISTINGS, bucket, account_id)
        if not rows:
            return ListResult([])
        size, revision, edit_revision, *_ = rows[0]
        if size > MAX_LIST_BYTES:
            raise LargeListError
        listings = [Listing(*columns) for _, _, _, *columns in rows if columns[0] is not None]
        return ListResult(listings, None, Revisions(revision, edit_revision))

    async def get_listing(self, listing_id: int) -> Listing | None:
        row = await self._listings.find(bucket_of(listing_id), listing_id)
        return None if row is None else Listing(*row)

    async def get_listing_and_revision(self, listing_id: int) -> tuple[Listing, int] | None:
        row = await self._listings_and_revisions.find(bucket_of(listing_id), listing_id)
        if row is None:
            return None
        *values, revision = row
        return Listing(*values), int(revision)

    async def find_listings(self, bucket: int, account_id: int, query: ListingQuery) -> ListResult:
        partition = (bucket, account_id)
        async with self._count_slots.acquire(account_id) if query.words and query.count else nullcontext():
            found = await self._use(lambda session: postgres_search.find(session, partition, query), searching=True)
        if found.listings is None:
            raise LargeListError
        return ListResult(found.listings, found.total, found.revisions)

    @asynccontextmanager
    async def read_listings(self, bucket: int, account_id: int, query: ListingQuery) -> AsyncIterator[ListStream]:
        session = await self._pool.acquire_usable(searching=True)
        partition = (bucket, account_id)
        try:
            await session.execute(postgres_search.SNAPSHOT)
            pieces = await postgres_search.find_pieces(session, partition, query)
            total = await postgres_search.count(session, partition, query) if query.count else None
            states = await session.fetch(GET_REVISIONS, *partition)
            revisions = next((Revisions(*state) for _, *state in states), None)
            yield ListStream(self._read_pieces(session, partition, pieces), total, revisions)
        except BaseException as error:
            await self._give_back(session, keep=isinstance(error, Exception) and not errors.is_stale(error))
            if isinstance(error, errors.DRIVER_ERRORS):
                raise log_cause(errors.build_read_error(error), error) from error
            raise
        await self._give_back(session)

    async def _read_pieces(
        self, session: Session, partition: tuple[int, int], pieces: postgres_search.ListingPieces
    ) -> Pieces:
        for ids in pieces.ids:
            async with self._piece_lock:
                found = await postgres_search.fetch_piece(session, partition, ids)
                listings = postgres_search.filter_by_words(found, pieces.words)
                await asyncio.sleep(0)
            yield listings

    async def add_listing(
        self,
        bucket: int,
        account_id: int,
        step: AddStep,
        idempotency: IdempotencyRecord | None = None,
        actor: Actor | None = None,
    ) -> AddResult:
        async def add() -> AddResult:
            return await self._shield(self._add((bucket, account_id), step, WriteOptions(idempotency, actor)))

        return await self._take_slot(bucket, add())

    # Change sets

    async def list_edit_revisions(self, account_ids: Collection[int]) -> Mapping[int, int]:
        return dict(await self._read(LIST_EDIT_REVISIONS, list(account_ids)))

    # Revisions

    async def get_revisions(self, bucket: int, account_id: int) -> Revisions:
        row = await self._revisions.find(bucket, account_id)
        return Revisions(0, 0) if row is None else Revisions(*row[1:])

    async def get_last_change_revision(self, bucket: int, account_id: int) -> int:
        # The server does not record what the last edit changed.
        return (await self.get_revisions(bucket, account_id)).revision

    def get_cached_last_change_revision(self, bucket: int, account_id: int) -> int | None:
        return None  # another process may have raised it since it was read

    def on_reset(self, callback: Callable[[], None]) -> None:
        self._on_reset = callback

    async def change_listing(self, listing_id: int, decide: Decide, actor: Actor | None = None) -> Listing:
        return await self._take_slot(bucket_of(listing_id), super().change_listing(listing_id, decide, actor))

    async def run_batch(
        self,
        bucket: int,
        account_id: int,
        batch: Batch,
        idempotency: IdempotencyRecord | None = None,
        actor: Actor | None = None,
    ) -> BatchOutcome | str:
        async with self._batch_slots.acquire(bucket):
            return await self._take_slot(bucket, super().run_batch(bucket, account_id, batch, idempotency, actor))

    # Helpers

    async def _take_slot(self, bucket: int, write: Coroutine[Any, Any, T]) -> T:
        # The write runs even if the caller is cancelled.
        async def run() -> T:
            try:
                async with self._write_slots.acquire(bucket):
                    self._writes.discard(task)  # `write` adds a task of its own, so this one would count twice
                    return await write
            finally:
                write.close()  # if it got no slot

        task = asyncio.get_running_loop().create_task(run())
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)
        task.add_done_callback(retrieve_exception)
        return await asyncio.shield(task)

    async def _fetch(self, statement: Query[R], *values: object) -> list[R]:
        search = SEARCHES.get(statement)
        if search is not None:
            return await self._use(lambda session: session.fetch(search, *values), searching=True)
        return await self._read(statement, *values)

    async def _run_script(self, script: Script[T], *, changes_callers: bool = False, is_dry_run: bool = False) -> T:
        try:
            result = await self._run(
                lambda session: script(writes.PostgresTransaction(session, is_urgent=not is_dry_run))
            )
        finally:
            if changes_callers:
                self._callers.clear()
        if changes_callers:
            await asyncio.sleep(_CALLER_CHANGE_SECONDS)  # so that it applies in every process when this returns
        return result

    async def _run_reads(self, script: Script[T]) -> T:
        async def run(session: Session) -> T:
            await session.execute(postgres_search.SNAPSHOT)
            result = await script(writes.PostgresTransaction(session))
            await session.execute("COMMIT")
            return result

        return await self._use(run, searching=True)

    async def _add(self, partition: tuple[int, int], step: AddStep, options: WriteOptions) -> AddResult:
        is_grouped = options.actor is not None and options.actor.group is not None
        added = None if is_grouped or step.require_room is not None else await self._create(partition, step, options)
        if added is None:  # also if it is rejected, or the account's listings are indexed, or must be now
            added = await self._transact(
                lambda session: writes.add(writes.PostgresTransaction(session), self.engine, partition, step, options)
            )
            if len(self._indexed) >= _MAX_CACHED:
                self._indexed.clear()
            self._indexed.add(partition[1])
        return added

    async def _create(self, partition: tuple[int, int], step: AddStep, options: WriteOptions) -> AddResult | None:
        # A single statement. It is repeated only if certainly nothing was written.
        attempts = 0
        while True:
            session = await self._acquire_prepared(writes.CREATE)
            with_words = partition[1] in self._indexed
            try:
                added = await writes.create(
                    session, partition, step, options, limits=self.engine.limits, with_words=with_words
                )
            except errors.DRIVER_ERRORS as error:
                is_stale = errors.is_stale(error)
                await self._give_back(session, keep=not is_stale)
                attempts += 1
                if (is_stale or errors.is_rolled_back(error)) and attempts < MAX_ATTEMPTS:
                    continue
                is_certain = errors.is_certain(error)
                problem = errors.build_write_error(error) if is_certain else errors.build_unknown_outcome()
                raise log_cause(problem, error) from error
            except BaseException as error:
                await self._give_back(session, keep=isinstance(error, Problem))
                raise
            self._pool.release(session)
            return added

    def _clear_caches(self) -> None:
        # The new server may lag: it may be a standby, or its data may have been restored.
        self._callers.clear()
        self._indexed.clear()
        self._on_reset()


def _build_write_slots(limits: PoolLimits, max_per_bucket: int) -> FairQueue:
    # With two or more sessions, at least one stays free.
    writes_at_once = max(1, limits.sessions - _SESSIONS_FOR_READS)
    return FairQueue(
        None,
        slots=writes_at_once,
        slots_of_owner=max(1, min(max_per_bucket, writes_at_once // 2)),
        max_callers=math.inf,  # an account must not take all places of a bucket, which others share
        seconds=limits.seconds,
    )
