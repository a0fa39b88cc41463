"""The store on one SQLite file: reads run on the event loop, writes in the writer thread."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from time import perf_counter, thread_time

import apsw

from listings.contract.freshness import Revisions
from listings.contract.history import Actor
from listings.contract.listings import (
    MAX_LIST_BYTES,
    ROW_BYTES,
    AddResult,
    Found,
    FoundPieces,
    IdempotencyRecord,
    LargeListError,
    measure_listings,
)
from listings.contract.market import IndexStep
from listings.domain.account_limits import NO_LIMITS, AccountLimits
from listings.domain.errors import Unavailable
from listings.domain.model import (
    BUCKETS,
    Caller,
    Listing,
    ListingQuery,
    MarketEntry,
    MarketQuery,
    MarketTraits,
    NewListing,
    bucket_of,
)
from listings.store import sql
from listings.store.mapping import Partition, Row, build_listing
from listings.store.market_entries import INDEX_VERSION
from listings.store.scripts.listings import Added
from listings.store.scripts.market_index import run_step
from listings.store.scripts.script import Script
from listings.store.scripts.store import CommonStore
from listings.store.sqlite import account_index, market, market_index, search
from listings.store.sqlite.connections import (
    MIN_FREE_BYTES,
    get_free_bytes,
    is_damage,
    is_read_only,
    open_reader,
    require_database_file,
    require_no_marker,
    require_safe_sqlite,
    set_checkpoint_on_close,
)
from listings.store.sqlite.engine import SqliteEngine, add
from listings.store.sqlite.file_identity import OpenFiles
from listings.store.sqlite.maintenance import migrate
from listings.store.sqlite.revision_cache import RevisionCache
from listings.store.sqlite.rows import run_script
from listings.store.sqlite.snapshot_reads import SnapshotReads
from listings.store.sqlite.write_lock import VersionedCache
from listings.store.sqlite.writer import OnBatch, Operation, T, Writer

_FIND_CALLER = sql.to_sqlite(sql.FIND_CALLER)
_LIST_LISTINGS = sql.to_sqlite(sql.LIST_LISTINGS)
_PAGE_LISTINGS = sql.to_sqlite(sql.PAGE_LISTINGS)
_GET_REVISIONS = sql.to_sqlite(sql.GET_REVISIONS)
_GET_LISTING = sql.to_sqlite(sql.GET_LISTING)
_LIST_EDIT_REVISIONS = f"""
SELECT account_id, edit_revision FROM json_each(?1) AS wanted
CROSS JOIN account_state ON bucket = wanted.value % {BUCKETS} AND account_id = wanted.value
"""
_GET_LISTING_AND_REVISIONS = f"""
SELECT {", ".join(f"listings.{column}" for column in Listing.__struct_fields__)},
    account_state.revision, account_state.edit_revision
FROM listings LEFT JOIN account_state USING (bucket, account_id) WHERE bucket = ?1 AND id = ?2
"""
_MAX_READ_SECONDS = 0.0025  # of the processor's time for one list, on the event loop
_MAX_WAIT_SECONDS = 0.02  # for the disk in addition
_STEPS_PER_CHECK = 20  # of SQLite's virtual machine, between two checks of this time: about one row
_ONE_WRITE = 2  # how far one write, of any process, raises the lock's write counter


class SqliteStore(CommonStore):
    """`listings.contract.store.Store` on a file that `migrate.migrate` has created."""

    sitemap_statement = market.SITEMAP
    entries_statement = market.GET_ENTRIES
    spellings_statement = market.SPELLINGS
    database_bytes_statement = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"

    def __init__(self, path: Path, on_batch: OnBatch | None = None, account_limits: AccountLimits = NO_LIMITS) -> None:
        """`path` is the database file; `on_batch` is called after every batch of writes."""
        self.path = path
        self.engine = SqliteEngine(account_limits)
        self._on_batch = on_batch
        self._reader: apsw.Connection | None = None
        self._revisions: RevisionCache | None = None
        self._callers: VersionedCache | None = None  # by the digest of their key
        self._writer: Writer | None = None
        self._snapshot_reads = SnapshotReads(path, self._build_read_error)
        self._index_cursor: account_index.IndexCursor | None = None  # in the account that is being indexed
        self._last_index_sequence: int | None = None  # the write counter at the last step of any index

    async def open(self) -> None:
        require_safe_sqlite()
        try:
            require_no_marker(self.path)
            require_database_file(self.path)
            reader = open_reader(self.path)
            search.prepare(reader)
            migrate.require_current(reader)
            files = OpenFiles(self.path)
            self._writer = Writer(self.path, self._on_batch, files if files.has_wal else None)
            self._revisions = self._writer.revisions
            self._callers = VersionedCache(self._writer.lock.read_caller_sequence)
        except (apsw.Error, OSError) as error:
            raise Unavailable(f"The database {self.path} can't be opened: {error}") from error
        self._reader = reader

    async def close(self) -> None:
        self._snapshot_reads.close()
        if self._reader is not None:
            if self._writer is not None and self._writer.find_fault(self._reader) is not None:
                set_checkpoint_on_close(self._reader, enabled=False)
            self._reader.close()
            self._reader = None
        self._revisions = self._callers = None
        if self._writer is not None:
            await self._writer.close()

    @property
    def writes_waiting(self) -> int:
        """Number of writes that are queued for the writer. Thread-safe."""
        return self._writer.queued if self._writer is not None else 0

    async def list_absent_nodes(self) -> list[str]:
        return []

    async def check(self) -> None:
        if self._reader is None or self._writer is None:
            raise Unavailable("The service is stopping")
        try:
            self._writer.require_files(self._reader)
            migrate.require_current(self._reader)
            free_bytes, read_only = get_free_bytes(self.path), is_read_only(self.path)
        except (apsw.Error, OSError) as error:
            raise self._build_read_error(error) from error
        if read_only:
            raise Unavailable("The file system is read-only")
        if free_bytes < MIN_FREE_BYTES:
            raise Unavailable("The disk is almost full")
        await self._writer.check()

    # Callers

    async def find_caller(self, digest: bytes) -> Caller | None:
        """Any write that may change a caller empties the cache, so that changes take effect immediately."""
        if self._callers is None:
            raise Unavailable("The service is stopping")
        cached = self._callers.values()
        caller: Caller | None = cached.get(digest)
        if caller is None:
            rows = self._read(_FIND_CALLER, (digest,))
            if rows:
                caller = cached[digest] = Caller(*rows[0])
        return caller

    # Listings

    async def list_listings(self, bucket: int, account_id: int) -> list[Listing]:
        return _build_list(self._read_quickly(lambda: self._read(_LIST_LISTINGS, (bucket, account_id))))

    async def get_listing(self, listing_id: int) -> Listing | None:
        rows = self._read(_GET_LISTING, (bucket_of(listing_id), listing_id))
        return build_listing(rows[0]) if rows else None

    async def get_listing_and_revision(self, listing_id: int) -> tuple[Listing, int] | None:
        can_record = self._known_revisions.can_record()
        rows = self._read(_GET_LISTING_AND_REVISIONS, (bucket_of(listing_id), listing_id))
        if not rows:
            return None
        *row, revision, edit_revision = rows[0]
        listing = build_listing(row)
        if can_record:
            self._known_revisions.record(listing.account_id, Revisions(revision, edit_revision))
        return listing, revision

    async def find_listings(self, bucket: int, account_id: int, query: ListingQuery) -> Found:
        partition = (bucket, account_id)
        if query.count:
            rows, total = self._find_and_count(partition, query)
            return Found(_build_list(rows), total)
        return Found(_build_list(self._read_quickly(lambda: search.find(self._read_neutral, partition, query))))

    def read_listings(
        self, bucket: int, account_id: int, query: ListingQuery
    ) -> AbstractAsyncContextManager[FoundPieces]:
        return self._snapshot_reads.read((bucket, account_id), query)

    async def page_listings(self, bucket: int, account_id: int, after_id: int, count: int) -> list[Listing]:
        page: list[Listing] = []
        size = 0
        for row in self._iterate(_PAGE_LISTINGS, (bucket, account_id, after_id, count)):
            page.append(build_listing(row))
            size += measure_listings(page[-1:])
            if size >= MAX_LIST_BYTES:
                break
        return page

    async def add_listing(  # noqa: PLR0913, PLR0917 - the contract's parameters
        self,
        bucket: int,
        account_id: int,
        new: NewListing,
        created_at: str,
        idempotency: IdempotencyRecord | None = None,
        actor: Actor | None = None,
    ) -> AddResult:
        partition = (bucket, account_id)
        revisions = self._known_revisions

        def track(added: Added) -> None:
            if added.revisions is not None:
                revisions.record_create(account_id, added.revisions)

        added = await self._run(
            lambda connection: add(self.engine, connection, partition, new, created_at, idempotency, actor), track=track
        )
        return added.result

    # The market

    async def search_market(self, query: MarketQuery) -> list[MarketEntry]:
        return market.search(self._read_neutral, query, await self._get_index_version())

    async def list_market_traits(self, query: MarketQuery, count: int) -> list[MarketTraits]:
        return market.list_traits(self._read_neutral, query, await self._get_index_version(), count)

    async def index_market(self, count: int, indexer: bytes, now: float) -> IndexStep:
        # Reads first: without anything to index, the writer isn't used.
        if not market_index.is_lease_free(self._read_neutral, indexer, now):
            return IndexStep(0)
        version = await self._get_index_version()
        batch = await market_index.prepare_next(self._read_neutral, count, version)
        has_account = bool(self._read_neutral(market_index.NEXT_ACCOUNT, ()))
        if not batch.listings and not has_account and version == INDEX_VERSION:
            return IndexStep(0)

        def step(connection: apsw.Connection) -> IndexStep:
            storage = market_index.SqliteMarketStorage(batch)
            return run_script(connection, run_step(storage, count, indexer, now))

        result = await self._run_index_step(step)
        return result._replace(left=result.left or batch.left, preparing_seconds=batch.seconds)

    async def index_accounts(self, count: int) -> IndexStep:
        cursor, self._index_cursor = self._index_cursor, None  # start from the beginning if the step fails
        if not self._read_neutral(account_index.NEXT_ACCOUNT, ()):
            return IndexStep(0)
        next_cursors: list[account_index.IndexCursor | None] = []

        def step(connection: apsw.Connection) -> IndexStep:
            done, next_cursor = run_script(connection, account_index.run_step(count, cursor))
            next_cursors.append(next_cursor)
            return done

        result = await self._run_index_step(step)
        self._index_cursor = next_cursors[-1]
        return result

    async def _run_index_step(self, step: Operation[IndexStep]) -> IndexStep:
        """Run a step and add how long it took, and whether there were other writes since the last step of any index."""
        if self._writer is None:
            raise Unavailable("The service is stopping")
        writer, lock = self._writer, self._writer.lock

        def run(connection: apsw.Connection) -> IndexStep:
            began, sequence = perf_counter(), lock.read_sequence()
            result = step(connection)
            had_writes = self._last_index_sequence is not None and sequence > self._last_index_sequence + _ONE_WRITE
            self._last_index_sequence = sequence
            return result._replace(seconds=perf_counter() - began, contended=had_writes or writer.batch_size > 1)

        return await writer.run(run, changes_callers=False, track=lambda _: None)  # it changes no listing

    # Change sets

    async def list_edit_revisions(self, account_ids: Collection[int]) -> Mapping[int, int]:
        return dict(self._read(_LIST_EDIT_REVISIONS, (json.dumps([*account_ids]),)))

    # Revisions

    async def get_revisions(self, bucket: int, account_id: int) -> Revisions:
        revisions = self._known_revisions.find_revisions(account_id)
        return revisions if revisions is not None else self._read_revisions(bucket, account_id)

    async def get_settled_revision(self, bucket: int, account_id: int) -> int:
        revision = self._read_revisions(bucket, account_id).revision
        settled = self._known_revisions.find_settled_revision(account_id)
        return settled if settled is not None else revision

    def get_cached_settled_revision(self, bucket: int, account_id: int) -> int | None:
        return self._known_revisions.find_settled_revision(account_id)

    def on_reset(self, callback: Callable[[], None]) -> None:
        """Ignore the callback: a file that was replaced is not read."""

    # Access to the file

    def _read(self, statement: str, values: Row) -> list[Row]:
        """Read all rows: an open cursor would pin a snapshot."""
        if self._reader is None:
            raise Unavailable("The service is stopping")
        try:
            return self._reader.execute(statement, values).fetchall()
        except apsw.InterruptError as error:  # by the progress handler of `_read_quickly`
            raise LargeListError from error
        except apsw.Error as error:
            raise self._build_read_error(error) from error

    def _build_read_error(self, error: Exception) -> Unavailable:
        """Return the error of a failed read. If the database is damaged, writes are rejected too."""
        if self._writer is not None and isinstance(error, apsw.Error) and is_damage(error):
            self._writer.report_damage(f"The database is damaged ({error})")
        return Unavailable("The database can't be read")

    def _iterate(self, statement: str, values: Row) -> Iterator[Row]:
        """Yield rows until the caller has enough."""
        if self._reader is None:
            raise Unavailable("The service is stopping")
        try:
            with closing(self._reader.execute(statement, values)) as cursor:
                yield from cursor
        except apsw.Error as error:
            raise self._build_read_error(error) from error

    def _find_and_count(self, partition: Partition, query: ListingQuery) -> tuple[list[Row], int]:
        """Find and count in one transaction."""
        self._read("BEGIN", ())
        try:
            return self._read_quickly(lambda: search.find_and_count(self._read_neutral, partition, query))
        finally:
            self._read("COMMIT", ())

    def _read_quickly(self, read: Callable[[], T]) -> T:
        """Return the result of reads, unless they take too long on the event loop."""
        reader = self._reader
        if reader is None:
            raise Unavailable("The service is stopping")
        reader.set_progress_handler(_start_timer(), _STEPS_PER_CHECK)
        try:
            return read()
        finally:
            reader.set_progress_handler(None)

    @property
    def _known_revisions(self) -> RevisionCache:
        if self._revisions is None:
            raise Unavailable("The service is stopping")
        return self._revisions

    def _read_revisions(self, bucket: int, account_id: int) -> Revisions:
        can_record = self._known_revisions.can_record()
        rows = self._read(_GET_REVISIONS, (bucket, account_id))
        revisions = Revisions(*rows[0]) if rows else Revisions(0, 0)
        if can_record:
            self._known_revisions.record(account_id, revisions)
        return revisions

    def _read_neutral(self, statement: str, values: Row) -> list[Row]:
        """Read all rows of an engine-neutral statement, whose parameters are written `$n`."""
        return self._read(sql.to_sqlite(statement), values)

    async def _fetch(self, statement: str, *values: object) -> list[Row]:
        return self._read_neutral(statement, values)

    async def _run_script(self, build_script: Callable[[], Script[T]], *, changes_callers: bool = False) -> T:
        return await self._run(
            lambda connection: run_script(connection, build_script()), changes_callers=changes_callers
        )

    async def _run_reads(self, build_script: Callable[[], Script[T]]) -> T:
        return await self._snapshot_reads.run_script(build_script)

    async def _run(
        self, operation: Operation[T], *, changes_callers: bool = False, track: Callable[[T], None] | None = None
    ) -> T:
        if self._writer is None:
            raise Unavailable("The service is stopping")
        return await self._writer.run(operation, changes_callers=changes_callers, track=track)


def _build_list(rows: list[Row]) -> list[Listing]:
    """Return the listings in rows, unless they are too large."""
    if len(rows) > MAX_LIST_BYTES // ROW_BYTES:
        raise LargeListError
    listings = [build_listing(row) for row in rows]
    if measure_listings(listings) > MAX_LIST_BYTES:
        raise LargeListError
    return listings


def _start_timer() -> Callable[[], bool]:
    """Return a function that tells whether a read has taken too long. Waiting for the processor does not count."""
    end, processor_end = perf_counter() + _MAX_READ_SECONDS, thread_time() + _MAX_READ_SECONDS

    def is_over() -> bool:
        late = perf_counter() - end  # much cheaper than `thread_time`
        return late > 0 and (late > _MAX_WAIT_SECONDS or thread_time() > processor_end)

    return is_over
