"""The store on one SQLite file: reads in place on the event loop, writes through the writer thread."""

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
from listings.store.sqlite.connections import LEAST_ROOM, free_room, open_reader, require_file, require_sound_sqlite
from listings.store.sqlite.maintenance import migrate
from listings.store.sqlite.revision_cache import RevisionCache
from listings.store.sqlite.rows import run_script, write, write_one
from listings.store.sqlite.write_lock import VersionedCache
from listings.store.sqlite.writer import OnBatch, Operation, T, Writer

_FIND_CALLER = sql.to_sqlite(sql.FIND_CALLER)
_LIST_LISTINGS = sql.to_sqlite(sql.LIST_LISTINGS)
_GET_REVISION = sql.to_sqlite(sql.GET_REVISION)
_GET_LISTING = sql.to_sqlite(sql.GET_LISTING)
_GET_LISTING_AND_REVISION = sql.to_sqlite(sql.GET_LISTING_AND_REVISION)
_TO_NEXT_TURN = 2  # by which the turn's number is raised where nobody else had one between


class SqliteStore(ScriptedMemberStore):
    """`listings.contract.store.Store` on a file that `migrate.migrate` has made."""

    def __init__(self, path: Path, on_batch: OnBatch | None = None) -> None:
        """`path` is the database file's; `on_batch` hears of every batch of writes."""
        self.path = path
        self.on_server_replaced: Callable[[], None] = lambda: None  # a file that was replaced is read no more
        self._on_batch = on_batch
        self._reader: apsw.Connection | None = None
        self._revisions: RevisionCache | None = None
        self._callers: VersionedCache | None = None  # by their key's digest
        self._writer: Writer | None = None
        self._look_through = asyncio.Lock()  # had by one search at a time, for a slice of long texts
        self._walk: account_index.Walk | None = None  # of the account that is being indexed
        self._indexed_in: int | None = None  # the number of the turn of the last step of any index

    async def open(self) -> None:
        """Connect to a file that must exist and have this program's schema."""
        require_sound_sqlite()
        try:
            require_file(self.path)
            reader = open_reader(self.path)
            search.prepare(reader)
            migrate.require_current(reader)
            self._writer = Writer(self.path, self._on_batch)
            self._revisions = self._writer.revisions
            self._callers = VersionedCache(self._writer.turn.callers_number)
        except (apsw.Error, OSError) as error:
            raise Unavailable(f"The database {self.path} can't be opened: {error}") from error
        self._reader = reader

    async def close(self) -> None:
        """Commit what waits and disconnect."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        self._revisions = self._callers = None
        if self._writer is not None:
            await self._writer.close()

    @property
    def writes_waiting(self) -> int:
        """How many writes wait for the writer; may be asked from any thread."""
        return self._writer.waiting if self._writer is not None else 0

    async def check(self) -> None:
        """Look whether the file is still there, read the schema, and look how much room is left beside it."""
        if self._reader is None or self._writer is None:
            raise Unavailable("The service is stopping")
        self._writer.require_files()
        try:
            migrate.require_current(self._reader)
            room = free_room(self.path)
        except (apsw.Error, OSError) as error:
            raise Unavailable("The database can't be read") from error
        if room < LEAST_ROOM:
            raise Unavailable("The disk is almost full")

    async def get_database_id(self) -> str:
        """Drawn by the first migration."""
        return str(self._read(sql.GET_DATABASE_ID, ())[0][0])

    # Callers

    async def find_caller(self, digest: bytes) -> Caller | None:
        """Read again after every write about callers, so that whatever the operator changes is in force at once."""
        if self._callers is None:
            raise Unavailable("The service is stopping")
        kept = self._callers.values()
        caller: Caller | None = kept.get(digest)
        if caller is None:
            rows = self._read(_FIND_CALLER, (digest,))
            if rows:
                caller = kept[digest] = Caller(*rows[0])
        return caller

    # Listings

    async def list_listings(self, bucket: int, account_id: int) -> list[Listing]:
        """Active ones, newest first."""
        return [build_listing(row) for row in self._read(_LIST_LISTINGS, (bucket, account_id))]

    async def get_listing(self, listing_id: int) -> Listing | None:
        """Of any account, deleted ones included."""
        rows = self._read(_GET_LISTING, (bucket_of(listing_id), listing_id))
        return build_listing(rows[0]) if rows else None

    async def get_listing_and_revision(self, listing_id: int) -> tuple[Listing, int] | None:
        """By one statement, after which the revision is known."""
        holds = self._known.holds()
        rows = self._read(_GET_LISTING_AND_REVISION, (bucket_of(listing_id), listing_id))
        if not rows:
            return None
        *row, revision = rows[0]
        listing = build_listing(row)
        if holds:
            self._known.note(listing.account_id, revision)
        return listing, revision

    async def count_listings(self, bucket: int, account_id: int) -> ListingCounts:
        """Through all of the account's listings."""
        return ListingCounts(*self._read(sql.to_sqlite(sql.COUNT_LISTINGS), (bucket, account_id))[0])

    async def find_listings(self, bucket: int, account_id: int, query: ListingQuery) -> list[Listing]:
        """Looked through or looked up, as `search` tells."""
        rows = await search.find(self._read_any, (bucket, account_id), query, self._look_through)
        return [build_listing(row) for row in rows]

    async def add_listing(  # noqa: PLR0913, PLR0917 - as the contract has it
        self,
        bucket: int,
        account_id: int,
        new: NewListing,
        created_at: str,
        idempotency: IdempotencyRecord | None = None,
        actor: Actor | None = None,
    ) -> AddResult:
        """The id is drawn in the same transaction."""
        place = (bucket, account_id)

        known = self._known

        def follow(added: AddResult) -> None:
            if added.revision is not None:
                known.follow(account_id, added.revision)

        return await self._run(
            lambda connection: listing_writes.add(connection, place, new, created_at, idempotency, actor),
            changes_callers=False,
            follow=follow,
        )

    async def change_listing(self, listing_id: int, decide: Decide, actor: Actor | None = None) -> Listing:
        """Read, judge and write in one write transaction."""
        return await self._edit(lambda connection: listing_writes.change(connection, listing_id, decide, actor))

    async def run_batch(
        self,
        bucket: int,
        account_id: int,
        batch: Batch,
        idempotency: IdempotencyRecord | None = None,
        actor: Actor | None = None,
    ) -> Sequence[StepResult] | str:
        """Each step in a savepoint; what is to be undone leaves the operation by an exception."""
        place = (bucket, account_id)

        try:
            return await self._edit(lambda connection: listing_writes.run(connection, place, batch, idempotency, actor))
        except listing_writes.UndoneError as undone:
            return undone.results

    async def purge_idempotency_records(self, oldest: int) -> None:
        """By their age."""
        await self._run(lambda connection: write(connection, sql.PURGE_IDEMPOTENCY_RECORDS, (oldest,)))

    # The market

    async def search_market(self, query: MarketQuery) -> list[MarketEntry]:
        """Along an index of words in the order that is asked for."""
        return market.search(self._read_any, query)

    async def index_market(self, count: int, indexer: bytes, now: float) -> IndexStep:
        """The writer is asked only where there is something to do."""
        if not market_index.may_index(self._read_any, indexer, now):
            return IndexStep(0)
        coming = await market_index.read_next(self._read_any, count)
        if not coming.prepared and not self._read_any(market_index.NEXT_ACCOUNT, ()):
            return IndexStep(0)
        step = partial(market_index.step, coming=coming, count=count, indexer=indexer, now=now)
        taken = await self._take_step(step)
        return taken._replace(preparing_seconds=coming.seconds)

    async def index_accounts(self, count: int) -> IndexStep:
        """The writer is asked only where there is something to do."""
        walk, self._walk = self._walk, None  # to be begun anew where the step fails
        if account_index.next_walk(self._read_any) is None:
            return IndexStep(0)
        going_on: list[account_index.Walk | None] = []

        def step(connection: apsw.Connection) -> IndexStep:
            done, after = account_index.step(connection, count, walk)
            going_on.append(after)
            return done

        taken = await self._take_step(step)
        self._walk = going_on[-1]
        return taken

    async def _take_step(self, step: Operation[IndexStep]) -> IndexStep:
        """A step that is told how long it took, and whether others have written since the last one of any index."""
        if self._writer is None:
            raise Unavailable("The service is stopping")
        writer, turn = self._writer, self._writer.turn

        def take(connection: apsw.Connection) -> IndexStep:
            began, number = perf_counter(), turn.number()
            taken = step(connection)
            had_turns = self._indexed_in is not None and number > self._indexed_in + _TO_NEXT_TURN
            self._indexed_in = number
            return taken._replace(seconds=perf_counter() - began, contended=had_turns or writer.together > 1)

        return await writer.run(take, changes_callers=False, follow=lambda _: None)  # no listing changes by it

    async def list_market_facets(self, count: int) -> MarketFacets:
        """From what the index has counted."""
        return market.places(self._read_any, count)

    async def page_sitemap(self, after: int, count: int) -> list[SitemapEntry]:
        """By their serials."""
        return market.page_sitemap(self._read_any, after, count)

    # Views

    async def get_view_salt(self, day: int) -> bytes:
        """The first that is drawn for a day stands."""

        def draw(connection: apsw.Connection) -> bytes:
            write(connection, sql.ADD_VIEW_SALT, (day, token_bytes(32)))
            return bytes(write_one(connection, sql.GET_VIEW_SALT, (day,))[0])

        found = self._read_any(sql.GET_VIEW_SALT, (day,))
        return bytes(found[0][0]) if found else await self._run(draw)

    async def record_views(self, day: int, views: Mapping[int, Collection[bytes]]) -> None:
        """All of them in one write transaction."""
        await self._edit(lambda connection: sqlite_views.record(connection, day, views))

    async def purge_views(self, oldest: int, count: int) -> int:
        """By their day."""
        return await self._run(lambda connection: sqlite_views.forget(connection, oldest, count))

    async def get_revision(self, bucket: int, account_id: int) -> int:
        """Raised by every edit."""
        known = self._known.present(account_id)
        return known if known is not None else self._read_revision(bucket, account_id)

    async def get_settled_revision(self, bucket: int, account_id: int) -> int:
        """What was known before, where the revision is the one that was expected."""
        revision = self._read_revision(bucket, account_id)
        settled = self._known.settled(account_id)
        return settled if settled is not None else revision

    def get_cached_settled_revision(self, bucket: int, account_id: int) -> int | None:  # noqa: ARG002 - the account tells it
        """Unless somebody else has written since, or this process anything but new listings."""
        return self._known.settled(account_id)

    # All listings of an account, out and in

    async def page_listings(self, bucket: int, account_id: int, after_id: int, count: int) -> list[Listing]:
        """By the two indexes that together hold all of them."""
        rows = self._read(sql.to_sqlite(sql.PAGE_LISTINGS), (bucket, account_id, after_id, count))
        return [build_listing(row) for row in rows]

    async def find_import(self, key: ImportKey) -> ImportProgress | None:
        """By everything that tells imports apart."""
        return imports.find(self._read_any, key)

    async def begin_import(
        self, key: ImportKey, found: ImportProgress | None, started_at: int, last_id: int
    ) -> ImportProgress | None:
        """The ids are set aside in the same transaction."""
        return await self._run(lambda connection: imports.begin(connection, key, found, started_at, last_id))

    async def import_listings(
        self, key: ImportKey, batch: ImportBatch, actor: Actor | None = None
    ) -> list[RowOutcome] | None:
        """All rows and the progress in one write transaction."""
        return await self._edit(lambda connection: imports.advance(connection, key, batch, actor))

    # Accounts

    async def add_account(self, name: str, email: str, plan_expires_at: int | None, created_at: int) -> Account | None:
        """With the state that its listings refer to."""
        return await self._run_script(lambda: accounts.add(name, email, plan_expires_at, created_at))

    async def get_account(self, account_id: int) -> Account | None:
        """By its id."""
        rows = self._read(sql.to_sqlite(sql.GET_ACCOUNT), (account_id,))
        return Account(*rows[0]) if rows else None

    async def find_account(self, email: str) -> Account | None:
        """By its e-mail address."""
        rows = self._read(sql.to_sqlite(sql.FIND_ACCOUNT), (email,))
        return Account(*rows[0]) if rows else None

    async def page_accounts(self, after: int, count: int) -> list[Account]:
        """In the order of their ids."""
        return [Account(*row) for row in self._read(sql.to_sqlite(sql.PAGE_ACCOUNTS), (after, count))]

    async def change_account(
        self, account_id: int, decide: Callable[[Account], AccountChange], actor: Actor | None = None
    ) -> Account | None:
        """Read, decide and write in one write transaction."""
        return await self._run_script(lambda: accounts.change(account_id, decide, actor))

    # Keys

    async def add_key(self, new: NewKey, actor: Actor | None = None) -> ApiKey | None:
        """Its digest alone is kept."""
        return await self._run_script(lambda: keys.add(new, actor))

    async def list_keys(self, account_id: int) -> list[ApiKey]:
        """In the order of their ids."""
        return [ApiKey(*row) for row in self._read(sql.to_sqlite(sql.LIST_KEYS), (account_id,))]

    async def rotate_key(self, key_id: int, decide: DecideRotation, actor: Actor | None = None) -> ApiKey | None:
        """Both keys in one write transaction."""
        return await self._run_script(lambda: keys.rotate(key_id, decide, actor))

    async def record_key_uses(self, uses: Mapping[int, int]) -> None:
        """All of them in one write transaction."""

        def note(connection: apsw.Connection) -> None:
            for key_id, moment in uses.items():
                write(connection, sql.RECORD_KEY_USE, (moment, key_id))

        await self._run(note)

    async def revoke_key(self, key_id: int, revoked_at: int, actor: Actor | None = None) -> ApiKey | None:
        """The first time stands."""
        return await self._run_script(lambda: keys.revoke(key_id, revoked_at, actor))

    # The ways to the file

    def _read(self, statement: str, values: Row) -> list[Row]:
        """All rows, so that no cursor stays open and pins a snapshot."""
        if self._reader is None:
            raise Unavailable("The service is stopping")
        try:
            return self._reader.execute(statement, values).fetchall()
        except apsw.Error as error:
            raise Unavailable("The database can't be read") from error

    @property
    def _known(self) -> RevisionCache:
        if self._revisions is None:
            raise Unavailable("The service is stopping")
        return self._revisions

    def _read_revision(self, bucket: int, account_id: int) -> int:
        holds = self._known.holds()
        rows = self._read(_GET_REVISION, (bucket, account_id))
        revision = int(rows[0][0]) if rows else 0
        if holds:
            self._known.note(account_id, revision)
        return revision

    def _read_any(self, statement: str, values: Row) -> list[Row]:
        return self._read(sql.to_sqlite(statement), values)

    async def _fetch(self, statement: str, *values: object) -> list[Row]:
        return self._read_any(statement, values)

    async def _run_script(self, make: Callable[[], Script[T]], *, changes_callers: bool = False) -> T:  # noqa: ARG002 - all of them may be about callers
        return await self._run(lambda connection: run_script(connection, make()))

    async def _run(
        self, operation: Operation[T], *, changes_callers: bool = True, follow: Callable[[T], None] | None = None
    ) -> T:
        if self._writer is None:
            raise Unavailable("The service is stopping")
        return await self._writer.run(operation, changes_callers=changes_callers, follow=follow)

    async def _edit(self, operation: Operation[T]) -> T:
        """What changes nothing that a caller is made of."""
        return await self._run(operation, changes_callers=False)
