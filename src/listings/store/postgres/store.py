"""The store on PostgreSQL: reads and creates in one round trip, other writes in a transaction each."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from secrets import token_bytes
from time import monotonic
from typing import NamedTuple, TypeVar

from msgspec.structs import astuple

from listings.contract.accounts import AccountChange, DecideRotation, NewKey
from listings.contract.history import Actor
from listings.contract.imports import ImportBatch, ImportKey, ImportProgress, RowOutcome
from listings.contract.listings import Added, Batch, Decide, IdempotencyRecord, IndexStep, StepResult
from listings.domain.errors import Problem, Unavailable
from listings.domain.model import (
    Account,
    ApiKey,
    Caller,
    Listing,
    ListingCounts,
    ListingQuery,
    MarketEntry,
    MarketPlaces,
    MarketQuery,
    NewListing,
    SitemapEntry,
    bucket_of,
)
from listings.store import member_sql, sql
from listings.store.market_entries import KINDS
from listings.store.migrations import APPLIED, older
from listings.store.postgres import errors as faults
from listings.store.postgres import market, market_index, migrate, writes
from listings.store.postgres import search as postgres_search
from listings.store.postgres.batched_lookups import Lookups
from listings.store.postgres.pool import Pool, PoolLimits, Rows, Session
from listings.store.postgres.transactions import ATTEMPTS, Operation, Transactions, log_error, told
from listings.store.postgres.writes import UndoneError, WriteOptions, listing_of
from listings.store.scripts import accounts, keys
from listings.store.scripts.member_store import Console
from listings.store.scripts.script import Script

T = TypeVar("T")

_CHECK_SECONDS = 2
_KEPT_SECONDS = 1.0
_MOST_KNOWN = 10_000
_UNDEFINED_TABLE = "42P01"
_STATUS = f"SELECT version, name, checksum, pg_is_in_recovery() FROM ({APPLIED}) AS applied"


def _merged(statement: str, order: str) -> str:
    """Each half of a union in its order, or the engine would sort all that is behind the id."""
    halves = statement.removesuffix(f"{order}\n").split("UNION ALL")
    return " UNION ALL ".join(f"({half} {order})" for half in halves) + f" {order}"


GET_REVISION = "SELECT account_id, revision FROM account_state WHERE bucket = $1 AND account_id = $2"
PAGE_LISTINGS = _merged(sql.PAGE_LISTINGS, "ORDER BY id LIMIT $4")
PAGE_MADE = _merged(member_sql.PAGE_MADE, "ORDER BY id DESC LIMIT $4")


class _KeptCaller(NamedTuple):
    """Who a key belongs to, and until when that need not be read again."""

    caller: Caller
    until: float


class PostgresStore(Transactions, Console):
    """`listings.contract.store.Store` on a database that `postgres_migrate.migrate` has made."""

    page_made_statement = PAGE_MADE

    def __init__(self, url: str, bounds: PoolLimits, clock: Callable[[], float] = monotonic) -> None:
        """`url` as libpq has it; `clock` tells seconds."""
        super().__init__(Pool(url, bounds, self._forget))
        self.on_server_replaced: Callable[[], None] = lambda: None
        self._clock = clock
        self._listings = Lookups(sql.GET_LISTING, self._use)
        self._listings_and_revisions = Lookups(sql.GET_LISTING_AND_REVISION, self._use)
        self._revisions = Lookups(GET_REVISION, self._use)
        self._callers: dict[bytes, _KeptCaller] = {}
        self._written_before: int | None = None  # as many as there were after the last step of the market's index
        self._indexed: set[int] = set()  # accounts whose creates need words, as far as this process has met them

    async def open(self) -> None:
        """Connect, and look at the schema."""
        await self._pool.open()
        try:
            await self._require_ready()
        except BaseException:
            await self._pool.close()
            raise

    async def close(self) -> None:
        """Wait for the writes that run, then disconnect."""
        if self._writes:
            await asyncio.wait(self._writes)
        await self._pool.close()

    @property
    def writes_waiting(self) -> int:
        """How many writes have not ended; may be asked from any thread."""
        return len(self._writes)

    async def check(self) -> None:
        """Ask the server for the schema, and whether it takes writes."""
        task = asyncio.get_running_loop().create_task(self._require_ready())
        task.add_done_callback(log_error)
        await asyncio.wait([task], timeout=_CHECK_SECONDS)
        if not task.done():
            task.cancel()
            raise Unavailable("The database took too long to answer")
        task.result()

    async def _require_ready(self) -> None:
        try:
            rows = await self._read(_STATUS)
        except Unavailable as error:
            if faults.state_of(error.__cause__ or error) == _UNDEFINED_TABLE:
                raise older() from error
            raise
        migrate.require_current([row[:3] for row in rows])
        if rows[0][3]:
            raise Unavailable("The database is a standby, which takes no writes")

    async def get_id(self) -> str:
        """Drawn by the first migration."""
        return str((await self._read(sql.GET_DATABASE_ID))[0][0])

    # Callers

    async def find_caller(self, digest: bytes) -> Caller | None:
        """Read at most once a second for each key (decision G25); one that is unknown is looked up every time."""
        now = self._clock()
        kept = self._callers.get(digest)
        if kept is not None and kept.until > now:
            return kept.caller
        rows = await self._read(sql.FIND_CALLER, digest)
        if not rows:
            return None
        if len(self._callers) >= _MOST_KNOWN:
            self._callers.clear()
        kept = self._callers[digest] = _KeptCaller(Caller(*rows[0]), now + _KEPT_SECONDS)
        return kept.caller

    # Listings

    async def list_listings(self, bucket: int, account_id: int) -> list[Listing]:
        """Active ones, newest first."""
        return [Listing(*row) for row in await self._read(sql.LIST_LISTINGS, bucket, account_id)]

    async def get_listing(self, listing_id: int) -> Listing | None:
        """Of any account, deleted ones included; together with others that are read at the same time."""
        row = await self._listings.find(bucket_of(listing_id), listing_id)
        return None if row is None else Listing(*row)

    async def get_listing_and_revision(self, listing_id: int) -> tuple[Listing, int] | None:
        """As `get_listing`."""
        row = await self._listings_and_revisions.find(bucket_of(listing_id), listing_id)
        if row is None:
            return None
        *values, revision = row
        return Listing(*values), int(revision)

    async def count_listings(self, bucket: int, account_id: int) -> ListingCounts:
        """Through all of the account's listings."""
        return ListingCounts(*(await self._read(sql.COUNT_LISTINGS, bucket, account_id))[0])

    async def find_listings(self, bucket: int, account_id: int, query: ListingQuery) -> list[Listing]:
        """Looked through or looked up, as `search` tells."""
        place = (bucket, account_id)

        async def find(session: Session) -> Rows:
            return await postgres_search.find(session, place, query)

        return [listing_of(row) for row in await self._use(find)]

    async def add_listing(  # noqa: PLR0913, PLR0917 - as the contract has it
        self,
        bucket: int,
        account_id: int,
        new: NewListing,
        created_at: str,
        claim: IdempotencyRecord | None = None,
        actor: Actor | None = None,
    ) -> Added:
        """By the database's own function, which is one round trip; else in a transaction."""
        return await self._shielded(self._add((bucket, account_id), new, created_at, WriteOptions(claim, actor)))

    async def change_listing(self, listing_id: int, decide: Decide, actor: Actor | None = None) -> Listing:
        """Locked, read, judged and written in one transaction."""
        return await self._run(lambda session: writes.change(session, listing_id, decide, actor))

    async def run_batch(
        self,
        bucket: int,
        account_id: int,
        batch: Batch,
        claim: IdempotencyRecord | None = None,
        actor: Actor | None = None,
    ) -> Sequence[StepResult] | str:
        """What is to be undone leaves the transaction by an exception."""
        place = (bucket, account_id)

        try:
            return await self._run(lambda session: writes.run(session, place, batch, WriteOptions(claim, actor)))
        except UndoneError as undone:
            return undone.results

    async def purge_idempotency_records(self, oldest: int) -> None:
        """By their age."""
        await self._run(lambda session: session.fetch(sql.FORGET_CLAIMS, oldest))

    # The market

    async def search_market(self, query: MarketQuery) -> list[MarketEntry]:
        """Looked for among the next ones, else gathered."""

        async def search(session: Session) -> Rows:
            return await market.search(session, query)

        return [MarketEntry(*row) for row in await self._use(search)]

    async def index_accounts(self, count: int) -> IndexStep:  # noqa: ARG002 - as the contract has it
        """Nothing: an account is indexed by the write that makes it large, while all others go on."""
        return IndexStep(0)

    async def index_market(self, count: int, indexer: bytes, now: float) -> IndexStep:
        """One transaction, where there is something to do."""

        async def look(session: Session) -> Rows:
            return await market_index.has_work(session, indexer, now)

        found = await self._use(look)
        if not (found and found[0][0]):
            return IndexStep(0)
        contended = self._written_before is not None and self._written > self._written_before
        began = self._clock()
        step = await self._run(lambda session: market_index.step(session, count, indexer, now))
        self._written_before = self._written
        return step._replace(seconds=self._clock() - began, contended=contended)

    async def list_market_places(self, count: int) -> MarketPlaces:
        """From what the index has counted."""
        category, region = [[row[0] for row in await self._read(market.PLACES, kind, count)] for kind in KINDS]
        return MarketPlaces(region, category)

    async def page_sitemap(self, after: int, count: int) -> list[SitemapEntry]:
        """By their serials."""
        return [SitemapEntry(*row) for row in await self._read(market.SITEMAP, after, count)]

    # Views

    async def get_view_salt(self, day: int) -> bytes:
        """The first that is drawn for a day stands."""
        found = await self._read(sql.GET_VIEW_SALT, day)
        if not found:
            await self._run(lambda session: session.fetch(sql.ADD_VIEW_SALT, day, token_bytes(32)))
            found = await self._read(sql.GET_VIEW_SALT, day)
        return bytes(found[0][0])

    async def record_views(self, day: int, views: Mapping[int, Collection[bytes]]) -> None:
        """All of them in one transaction."""
        await self._run(lambda session: writes.record_views(session, day, views))

    async def purge_views(self, oldest: int, count: int) -> int:
        """By their day."""

        async def forget(session: Session) -> int:
            await session.fetch(sql.FORGET_VIEW_SALTS, oldest)
            return len(await session.fetch(sql.FORGET_VIEWS, oldest, count))

        return await self._run(forget)

    async def get_revision(self, bucket: int, account_id: int) -> int:
        """Raised by every edit."""
        row = await self._revisions.find(bucket, account_id)
        return 0 if row is None else int(row[1])

    async def get_settled_revision(self, bucket: int, account_id: int) -> int:
        """The present one: what the last edit was about, nobody tells."""
        return await self.get_revision(bucket, account_id)

    def known_settled_revision(self, bucket: int, account_id: int) -> int | None:  # noqa: ARG002 - nobody tells it unasked
        """None: another process may have raised it since it was read."""
        return None

    # All listings of an account, out and in

    async def page_listings(self, bucket: int, account_id: int, after_id: int, count: int) -> list[Listing]:
        """By the two indexes that together hold all of them."""
        return [listing_of(row) for row in await self._read(PAGE_LISTINGS, bucket, account_id, after_id, count)]

    async def find_import(self, key: ImportKey) -> ImportProgress | None:
        """By everything that tells imports apart."""
        return writes.progress_of(await self._read(sql.GET_IMPORT, *astuple(key)))

    async def begin_import(
        self, key: ImportKey, found: ImportProgress | None, started_at: int, last_id: int
    ) -> ImportProgress | None:
        """The ids are set aside in the same transaction."""
        return await self._run(lambda session: writes.begin_import(session, key, found, started_at, last_id))

    async def import_listings(
        self, key: ImportKey, batch: ImportBatch, actor: Actor | None = None
    ) -> list[RowOutcome] | None:
        """All rows and the progress in one transaction."""
        return await self._run(lambda session: writes.import_rows(session, key, batch, actor))

    # Accounts

    async def add_account(self, name: str, email: str, plan_expires_at: int | None, created_at: int) -> Account | None:
        """With the state that its listings refer to."""
        return await self._perform(lambda: accounts.add(name, email, plan_expires_at, created_at))

    async def get_account(self, account_id: int) -> Account | None:
        """By its id."""
        rows = await self._read(sql.GET_ACCOUNT, account_id)
        return Account(*rows[0]) if rows else None

    async def find_account(self, email: str) -> Account | None:
        """By its e-mail address."""
        rows = await self._read(sql.FIND_ACCOUNT, email)
        return Account(*rows[0]) if rows else None

    async def page_accounts(self, after: int, count: int) -> list[Account]:
        """In the order of their ids."""
        return [Account(*row) for row in await self._read(sql.PAGE_ACCOUNTS, after, count)]

    async def change_account(
        self, account_id: int, decide: Callable[[Account], AccountChange], actor: Actor | None = None
    ) -> Account | None:
        """Locked, read, decided and written in one transaction."""
        return await self._perform(lambda: accounts.change(account_id, decide, actor), of_callers=True)

    # Keys

    async def add_key(self, new: NewKey, actor: Actor | None = None) -> ApiKey | None:
        """Its digest alone is kept."""
        return await self._perform(lambda: keys.add(new, actor))

    async def list_keys(self, account_id: int) -> list[ApiKey]:
        """In the order of their ids."""
        return [ApiKey(*row) for row in await self._read(sql.LIST_KEYS, account_id)]

    async def rotate_key(self, key_id: int, decide: DecideRotation, actor: Actor | None = None) -> ApiKey | None:
        """Both keys in one transaction."""
        return await self._perform(lambda: keys.rotate(key_id, decide, actor), of_callers=True)

    async def record_key_uses(self, uses: Mapping[int, int]) -> None:
        """All of them in one transaction, in the order of their ids: two processes may note the same ones."""
        values = [(moment, key_id) for key_id, moment in sorted(uses.items())]
        await self._run(lambda session: session.run_many(sql.NOTE_KEY_USE, values))

    async def revoke_key(self, key_id: int, revoked_at: int, actor: Actor | None = None) -> ApiKey | None:
        """The first time stands."""
        return await self._perform(lambda: keys.revoke(key_id, revoked_at, actor), of_callers=True)

    # What the others are made of

    async def _ask(self, statement: str, *values: object) -> Rows:
        return await self._read(statement, *values)

    async def _perform(self, make: Callable[[], Script[T]], *, of_callers: bool = False) -> T:
        async def operate(session: Session) -> T:
            return await writes.run_script(session, make())

        return await (self._change_callers(operate) if of_callers else self._run(operate))

    async def _change_callers(self, operation: Operation[T]) -> T:
        """A transaction after which this process keeps no caller from before it."""
        try:
            return await self._run(operation)
        finally:
            self._callers.clear()

    async def _add(self, place: tuple[int, int], new: NewListing, created_at: str, terms: WriteOptions) -> Added:
        added = await self._create(place, new, created_at, terms)
        if added is None:  # the account's listings are indexed, or are to be
            self._note_indexed(place[1])
            added = await self._transact(lambda session: writes.add(session, place, new, created_at, terms))
        return added

    async def _create(
        self, place: tuple[int, int], new: NewListing, created_at: str, terms: WriteOptions
    ) -> Added | None:
        """One statement, which is its own transaction: again only where it has certainly written nothing."""
        attempts = 0
        while True:
            session = await self._prepared(writes.CREATE)
            with_words = place[1] in self._indexed
            try:
                added = await writes.create(session, place, new, created_at, terms, with_words=with_words)
            except faults.DRIVER_ERRORS as error:
                await self._leave(session)
                attempts += 1
                if faults.is_undone(error) and attempts < ATTEMPTS:
                    continue
                fault = faults.unwritten(error) if faults.is_certain(error) else faults.unknown()
                raise told(fault, error) from error
            except BaseException as error:
                await self._leave(session, keep=isinstance(error, Problem))
                raise
            self._pool.give(session)
            return added

    def _forget(self) -> None:
        """Another server answers from now on: a standby, or one whose data was restored, may be behind the last one."""
        self._callers.clear()
        self._indexed.clear()
        self.on_server_replaced()

    def _note_indexed(self, account_id: int) -> None:
        if len(self._indexed) >= _MOST_KNOWN:
            self._indexed.clear()
        self._indexed.add(account_id)
