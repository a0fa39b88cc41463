"""The store on one SQLite file: reads run on the event loop, writes in the writer thread."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from secrets import token_bytes
from time import perf_counter

import apsw

from listings.contract.accounts import AccountChange, DecideRotation, NewKey
from listings.contract.history import Actor
from listings.contract.imports import ImportBatch, ImportKey, ImportProgress, RowOutcome
from listings.contract.listings import AddResult, Batch, Decide, IdempotencyRecord, IndexStep, StepResult
from listings.domain.errors import Unavailable
from listings.domain.model import (
    Account,
    ApiKey,
    Caller,
    Listing,
    ListingCounts,
    ListingQuery,
    MarketEntry,
    MarketFacets,
    MarketQuery,
    NewListing,
    SitemapEntry,
    bucket_of,
)
from listings.store import sql
from listings.store.mapping import Row, build_listing
from listings.store.scripts import accounts, keys
from listings.store.scripts.member_store import ScriptedMemberStore
from listings.store.scripts.script import Script
from listings.store.sqlite import account_index, imports, listing_writes, market, market_index, search
from listings.store.sqlite import views as sqlite_views
from listings.store.sqlite.connections import (
    MIN_FREE_BYTES,
    get_free_bytes,
    open_reader,
    require_database_file,
    require_safe_sqlite,
)
from listings.store.sqlite.maintenance import migrate
from listings.store.sqlite.revision_cache import RevisionCache
from listings.store.sqlite.rows import execute, execute_one, run_script
from listings.store.sqlite.write_lock import VersionedCache
from listings.store.sqlite.writer import OnBatch, Operation, T, Writer

_FIND_CALLER = sql.to_sqlite(sql.FIND_CALLER)
_LIST_LISTINGS = sql.to_sqlite(sql.LIST_LISTINGS)
_GET_REVISION = sql.to_sqlite(sql.GET_REVISION)
_GET_LISTING = sql.to_sqlite(sql.GET_LISTING)
_GET_LISTING_AND_REVISION = sql.to_sqlite(sql.GET_LISTING_AND_REVISION)
_ONE_WRITE = 2  # how far one write, of any process, raises the lock's write counter


class SqliteStore(ScriptedMemberStore):
    """`listings.contract.store.Store` on a file that `migrate.migrate` has created."""

    def __init__(self, path: Path, on_batch: OnBatch | None = None) -> None:
        """`path` is the database file; `on_batch` is called after every batch of writes."""
        self.path = path
        self._on_batch = on_batch
        self._reader: apsw.Connection | None = None
        self._revisions: RevisionCache | None = None
        self._callers: VersionedCache | None = None  # by the digest of their key
        self._writer: Writer | None = None
        self._scan_lock = asyncio.Lock()  # one search at a time scans a slice of long texts
        self._index_cursor: account_index.IndexCursor | None = None  # in the account that is being indexed
        self._last_index_sequence: int | None = None  # the write counter at the last step of any index

    async def open(self) -> None:
        require_safe_sqlite()
        try:
            require_database_file(self.path)
            reader = open_reader(self.path)
            search.prepare(reader)
            migrate.require_current(reader)
            self._writer = Writer(self.path, self._on_batch)
            self._revisions = self._writer.revisions
            self._callers = VersionedCache(self._writer.lock.read_caller_sequence)
        except (apsw.Error, OSError) as error:
            raise Unavailable(f"The database {self.path} can't be opened: {error}") from error
        self._reader = reader

    async def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        self._revisions = self._callers = None
        if self._writer is not None:
            await self._writer.close()

    @property
    def writes_waiting(self) -> int:
        """Number of writes that are queued for the writer. Thread-safe."""
        return self._writer.queued if self._writer is not None else 0

    async def check(self) -> None:
        if self._reader is None or self._writer is None:
            raise Unavailable("The service is stopping")
        self._writer.require_files()
        try:
            migrate.require_current(self._reader)
            free_bytes = get_free_bytes(self.path)
        except (apsw.Error, OSError) as error:
            raise Unavailable("The database can't be read") from error
        if free_bytes < MIN_FREE_BYTES:
            raise Unavailable("The disk is almost full")

    async def get_database_id(self) -> str:
        return str(self._read(sql.GET_DATABASE_ID, ())[0][0])

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
        return [build_listing(row) for row in self._read(_LIST_LISTINGS, (bucket, account_id))]

    async def get_listing(self, listing_id: int) -> Listing | None:
        rows = self._read(_GET_LISTING, (bucket_of(listing_id), listing_id))
        return build_listing(rows[0]) if rows else None

    async def get_listing_and_revision(self, listing_id: int) -> tuple[Listing, int] | None:
        can_record = self._known_revisions.can_record()
        rows = self._read(_GET_LISTING_AND_REVISION, (bucket_of(listing_id), listing_id))
        if not rows:
            return None
        *row, revision = rows[0]
        listing = build_listing(row)
        if can_record:
            self._known_revisions.record(listing.account_id, revision)
        return listing, revision

    async def count_listings(self, bucket: int, account_id: int) -> ListingCounts:
        return ListingCounts(*self._read(sql.to_sqlite(sql.COUNT_LISTINGS), (bucket, account_id))[0])

    async def find_listings(self, bucket: int, account_id: int, query: ListingQuery) -> list[Listing]:
        rows = await search.find(self._read_any, (bucket, account_id), query, self._scan_lock)
        return [build_listing(row) for row in rows]

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

        def track(added: AddResult) -> None:
            if added.revision is not None:
                revisions.record_create(account_id, added.revision)

        return await self._run(
            lambda connection: listing_writes.add(connection, partition, new, created_at, idempotency, actor),
            changes_callers=False,
            track=track,
        )

    async def change_listing(self, listing_id: int, decide: Decide, actor: Actor | None = None) -> Listing:
        return await self._edit(lambda connection: listing_writes.change(connection, listing_id, decide, actor))

    async def run_batch(
        self,
        bucket: int,
        account_id: int,
        batch: Batch,
        idempotency: IdempotencyRecord | None = None,
        actor: Actor | None = None,
    ) -> Sequence[StepResult] | str:
        partition = (bucket, account_id)

        try:
            return await self._edit(
                lambda connection: listing_writes.run(connection, partition, batch, idempotency, actor)
            )
        except listing_writes.UndoneError as undone:
            return undone.results

    async def purge_idempotency_records(self, oldest: int) -> None:
        await self._run(lambda connection: execute(connection, sql.PURGE_IDEMPOTENCY_RECORDS, (oldest,)))

    # The market

    async def search_market(self, query: MarketQuery) -> list[MarketEntry]:
        return market.search(self._read_any, query)

    async def index_market(self, count: int, indexer: bytes, now: float) -> IndexStep:
        # Reads first: without anything to index, the writer isn't used.
        if not market_index.is_lease_free(self._read_any, indexer, now):
            return IndexStep(0)
        batch = await market_index.prepare_next(self._read_any, count)
        if not batch.listings and not self._read_any(market_index.NEXT_ACCOUNT, ()):
            return IndexStep(0)
        step = partial(market_index.run_step, batch=batch, count=count, indexer=indexer, now=now)
        result = await self._run_index_step(step)
        return result._replace(preparing_seconds=batch.seconds)

    async def index_accounts(self, count: int) -> IndexStep:
        cursor, self._index_cursor = self._index_cursor, None  # start from the beginning if the step fails
        if account_index.find_next(self._read_any) is None:
            return IndexStep(0)
        next_cursors: list[account_index.IndexCursor | None] = []

        def step(connection: apsw.Connection) -> IndexStep:
            done, next_cursor = account_index.run_step(connection, count, cursor)
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

    async def list_market_facets(self, count: int) -> MarketFacets:
        return market.list_facets(self._read_any, count)

    async def page_sitemap(self, after: int, count: int) -> list[SitemapEntry]:
        return market.page_sitemap(self._read_any, after, count)

    # Views

    async def get_view_salt(self, day: int) -> bytes:
        def draw(connection: apsw.Connection) -> bytes:
            execute(connection, sql.ADD_VIEW_SALT, (day, token_bytes(32)))  # keeps an existing salt
            return bytes(execute_one(connection, sql.GET_VIEW_SALT, (day,))[0])

        found = self._read_any(sql.GET_VIEW_SALT, (day,))
        return bytes(found[0][0]) if found else await self._run(draw)

    async def record_views(self, day: int, views: Mapping[int, Collection[bytes]]) -> None:
        await self._edit(lambda connection: sqlite_views.record(connection, day, views))

    async def purge_views(self, oldest: int, count: int) -> int:
        return await self._run(lambda connection: sqlite_views.purge(connection, oldest, count))

    # Revisions

    async def get_revision(self, bucket: int, account_id: int) -> int:
        revision = self._known_revisions.find_revision(account_id)
        return revision if revision is not None else self._read_revision(bucket, account_id)

    async def get_settled_revision(self, bucket: int, account_id: int) -> int:
        revision = self._read_revision(bucket, account_id)
        settled = self._known_revisions.find_settled_revision(account_id)
        return settled if settled is not None else revision

    def get_cached_settled_revision(self, bucket: int, account_id: int) -> int | None:  # noqa: ARG002 - the cache needs no bucket
        return self._known_revisions.find_settled_revision(account_id)

    def on_reset(self, callback: Callable[[], None]) -> None:
        """Ignore the callback: a file that was replaced is not read."""

    # Export and import

    async def page_listings(self, bucket: int, account_id: int, after_id: int, count: int) -> list[Listing]:
        rows = self._read(sql.to_sqlite(sql.PAGE_LISTINGS), (bucket, account_id, after_id, count))
        return [build_listing(row) for row in rows]

    async def find_import(self, key: ImportKey) -> ImportProgress | None:
        return imports.find(self._read_any, key)

    async def begin_import(
        self, key: ImportKey, found: ImportProgress | None, started_at: int, last_id: int
    ) -> ImportProgress | None:
        return await self._run(lambda connection: imports.begin(connection, key, found, started_at, last_id))

    async def import_listings(
        self, key: ImportKey, batch: ImportBatch, actor: Actor | None = None
    ) -> list[RowOutcome] | None:
        return await self._edit(lambda connection: imports.advance(connection, key, batch, actor))

    # Accounts

    async def add_account(self, name: str, email: str, plan_expires_at: int | None, created_at: int) -> Account | None:
        return await self._run_script(lambda: accounts.add(name, email, plan_expires_at, created_at))

    async def get_account(self, account_id: int) -> Account | None:
        rows = self._read(sql.to_sqlite(sql.GET_ACCOUNT), (account_id,))
        return Account(*rows[0]) if rows else None

    async def find_account(self, email: str) -> Account | None:
        rows = self._read(sql.to_sqlite(sql.FIND_ACCOUNT), (email,))
        return Account(*rows[0]) if rows else None

    async def page_accounts(self, after: int, count: int) -> list[Account]:
        return [Account(*row) for row in self._read(sql.to_sqlite(sql.PAGE_ACCOUNTS), (after, count))]

    async def change_account(
        self, account_id: int, decide: Callable[[Account], AccountChange], actor: Actor | None = None
    ) -> Account | None:
        return await self._run_script(lambda: accounts.change(account_id, decide, actor))

    # Keys

    async def add_key(self, new: NewKey, actor: Actor | None = None) -> ApiKey | None:
        return await self._run_script(lambda: keys.add(new, actor))

    async def list_keys(self, account_id: int) -> list[ApiKey]:
        return [ApiKey(*row) for row in self._read(sql.to_sqlite(sql.LIST_KEYS), (account_id,))]

    async def rotate_key(self, key_id: int, decide: DecideRotation, actor: Actor | None = None) -> ApiKey | None:
        return await self._run_script(lambda: keys.rotate(key_id, decide, actor))

    async def record_key_uses(self, uses: Mapping[int, int]) -> None:
        def record(connection: apsw.Connection) -> None:
            for key_id, moment in uses.items():
                execute(connection, sql.RECORD_KEY_USE, (moment, key_id))

        await self._run(record)

    async def revoke_key(self, key_id: int, revoked_at: int, actor: Actor | None = None) -> ApiKey | None:
        return await self._run_script(lambda: keys.revoke(key_id, revoked_at, actor))

    # Access to the file

    def _read(self, statement: str, values: Row) -> list[Row]:
        """Read all rows: an open cursor would pin a snapshot."""
        if self._reader is None:
            raise Unavailable("The service is stopping")
        try:
            return self._reader.execute(statement, values).fetchall()
        except apsw.Error as error:
            raise Unavailable("The database can't be read") from error

    @property
    def _known_revisions(self) -> RevisionCache:
        if self._revisions is None:
            raise Unavailable("The service is stopping")
        return self._revisions

    def _read_revision(self, bucket: int, account_id: int) -> int:
        can_record = self._known_revisions.can_record()
        rows = self._read(_GET_REVISION, (bucket, account_id))
        revision = int(rows[0][0]) if rows else 0
        if can_record:
            self._known_revisions.record(account_id, revision)
        return revision

    def _read_any(self, statement: str, values: Row) -> list[Row]:
        return self._read(sql.to_sqlite(statement), values)

    async def _fetch(self, statement: str, *values: object) -> list[Row]:
        return self._read_any(statement, values)

    async def _run_script(self, make: Callable[[], Script[T]], *, changes_callers: bool = False) -> T:  # noqa: ARG002 - any script may change callers
        return await self._run(lambda connection: run_script(connection, make()))

    async def _run(
        self, operation: Operation[T], *, changes_callers: bool = True, track: Callable[[T], None] | None = None
    ) -> T:
        if self._writer is None:
            raise Unavailable("The service is stopping")
        return await self._writer.run(operation, changes_callers=changes_callers, track=track)

    async def _edit(self, operation: Operation[T]) -> T:
        """Run an operation that changes no caller."""
        return await self._run(operation, changes_callers=False)
