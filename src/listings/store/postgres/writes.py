"""Write listings in PostgreSQL: run scripts, lock rows, index words, and create a listing in one round trip."""

import asyncio
from collections.abc import Iterable, Sequence
from time import perf_counter
from typing import NamedTuple, TypeVar

from msgspec.structs import astuple

from listings.domain.account_limits import AccountLimits, AccountSize
from listings.domain.history import Actor
from listings.domain.listings import AddResult, AddStep, IdempotencyRecord
from listings.domain.model import Listing, NewListing, bucket_of
from listings.store import change_sql, search_sql, sql
from listings.store.mapping import ListingRow, Partition
from listings.store.postgres.pool import Session
from listings.store.postgres.search import build_account_words, build_merge
from listings.store.query import Command, Query, R, Row
from listings.store.scripts import listings
from listings.store.scripts.engine import Engine, ListingText, SingleEdit
from listings.store.scripts.script import Transaction

T = TypeVar("T")

_CREATE_PARAMETERS = (
    *(
        "of_bucket",
        "of_account",
        "large",
        "max_listings",
        "max_text_bytes",
        *(f"new_{name}" for name in NewListing.__struct_fields__),
    ),
    *("moment", "new_words", "claim_key", "claim_digest", "claim_moment", "claim_oldest", "of_author"),
)
CREATE = Query[tuple[int | None, bytes | None, str]](f"""
SELECT listing_id, earlier_digest, earlier_result FROM create_listing(
    {", ".join(f"{name} => ${number}" for number, name in enumerate(_CREATE_PARAMETERS, 1))})
""")
_LOCK_CLAUSE = " FOR NO KEY UPDATE"
_LOCK_COUNTER = Query[tuple[int]]("SELECT last FROM listing_ids WHERE bucket = $1 FOR UPDATE")
_LONG_STEP_SECONDS = 0.0003
_PAUSE_RATIO = 4  # of a pause to the long step before it
_MAX_INDEXED = 50  # listings whose words are in memory at a time
_MAX_SHORT_CHARACTERS = 10_000  # to split into words on the event loop, which takes 1 ms; others are split in a thread
_MAX_LOCKED_BYTES = 1024 * 1024  # of the texts that are returned together
_LOCK_AND_READ_LISTINGS = Query[ListingRow](f"""
WITH locked AS MATERIALIZED (
    SELECT {sql.LISTING_COLUMNS} FROM listings
    WHERE bucket = $1 AND account_id = $2 AND id = ANY($3)
    ORDER BY bucket, id FOR UPDATE)
SELECT {sql.LISTING_COLUMNS} FROM locked
WHERE (SELECT sum({sql.TEXT_BYTES}) FROM locked) <= {_MAX_LOCKED_BYTES}
""")
_LOCK_LISTINGS = Query[tuple[int]]("""
SELECT id FROM listings WHERE bucket = $1 AND account_id = $2 AND id = ANY($3)
ORDER BY bucket, id FOR UPDATE
""")
_FIND_EXTERNAL_IDS = Query[tuple[int, str]](sql.FIND_EXTERNAL_ID.replace("external_id = $3", "external_id = ANY($3)"))
_LOCK_ALL_LISTINGS = Query[tuple[int]]("""
SELECT id FROM listings WHERE bucket = $1 AND account_id = $2
ORDER BY bucket, id FOR UPDATE
""")
_GET_TEXTS = Query[ListingText](
    "SELECT id, title, content FROM listings WHERE bucket = $1 AND account_id = $2 AND id = ANY($3)"
)
_GET_STATE = Query[tuple[int, bool]](
    "SELECT listings, indexed FROM account_state WHERE bucket = $1 AND account_id = $2"
)
# In one round trip.
_RECORD_EDIT = Query[tuple[None]]("SELECT record_edit($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)")
_REMOVE_WORDS = Command("DELETE FROM listing_words WHERE bucket = $1 AND id = ANY($2)")
_SET_WORDS = Command("""
INSERT INTO listing_words (bucket, id, words) VALUES ($1, $2, $3)
ON CONFLICT (bucket, id) DO UPDATE SET words = excluded.words
""")


class WriteOptions(NamedTuple):
    """The idempotency record and the actor of a write."""

    idempotency: IdempotencyRecord | None
    actor: Actor | None


class PostgresEngine:
    """Implements `listings.store.scripts.engine.Engine`. A large account is indexed by the write that makes it large.

    Idempotency records and imports need no locks, because they are only used while the counter is locked.
    """

    def __init__(self, limits: AccountLimits) -> None:
        self.limits = limits

    async def lock_counter(self, tx: Transaction, bucket: int) -> None:
        if not await tx.fetch(_LOCK_COUNTER, (bucket,)):
            await tx.fetch(sql.SKIP_SERIALS, (bucket, 0))
            await tx.fetch(_LOCK_COUNTER, (bucket,))

    async def lock_and_read_listings(
        self, tx: Transaction, partition: Partition, ids: Sequence[int], external_ids: Sequence[str] = ()
    ) -> dict[int, Listing]:
        if external_ids:
            ids = [*ids, *(it for it, _ in await tx.fetch(_FIND_EXTERNAL_IDS, (*partition, external_ids)))]
        return {row[0]: Listing(*row) for row in (await tx.fetch(_LOCK_AND_READ_LISTINGS, (*partition, ids)))}

    async def lock_listings(self, tx: Transaction, partition: Partition, ids: Sequence[int]) -> None:
        await tx.fetch(_LOCK_LISTINGS, (*partition, ids))

    async def prepare_account(self, tx: Transaction, partition: Partition, new_listings: int) -> bool:
        """Index the account if the new listings make it large. Must run before the account's state is locked."""
        indexed, must_index = await _read_index_state(tx, partition, new_listings)
        if must_index:
            await self.start_indexing(tx, partition)
        return indexed or must_index

    def is_indexed_on_create(self, indexed: int, count: int) -> bool:
        return bool(indexed)  # either all listings of an account are indexed, or none

    async def start_indexing(self, tx: Transaction, partition: Partition) -> None:
        ids = [it for (it,) in await tx.fetch(_LOCK_ALL_LISTINGS, partition)]
        for statement in (sql.INDEX_ACCOUNT, sql.INDEX_ACTIVE, sql.INDEX_HIDDEN):
            await tx.fetch(statement, partition)
        for start in range(0, len(ids), _MAX_INDEXED):
            part = ids[start : start + _MAX_INDEXED]
            await self.index_words(tx, partition[1], (await tx.fetch(_GET_TEXTS, (*partition, part))))

    async def index_words(self, tx: Transaction, account_id: int, texts: Sequence[ListingText]) -> None:
        bucket = bucket_of(account_id)
        for start in range(0, len(texts), _MAX_INDEXED):
            part = texts[start : start + _MAX_INDEXED]
            rows = ((bucket, it, build_account_words(account_id, *text)) for it, *text in part)
            is_short = sum(len(content) for _, _, content in part) <= _MAX_SHORT_CHARACTERS
            await tx.fetch_many(_SET_WORDS, list(rows) if is_short else rows)

    async def remove_words(self, tx: Transaction, bucket: int, ids: Sequence[int]) -> None:
        await tx.fetch(_REMOVE_WORDS, (bucket, ids))

    async def record_edit(self, tx: Transaction, partition: Partition, growth: AccountSize, edit: SingleEdit) -> None:
        await tx.fetch(_RECORD_EDIT, (*partition, *growth, edit.actor.moment, edit.actor.key_id, *edit[1:]))


class PostgresTransaction(Transaction):
    """Runs statements in the transaction of a session."""

    page_creates = Query[change_sql.CreatedRow](build_merge(change_sql.PAGE_CREATES, "ORDER BY id LIMIT $4"))

    def __init__(self, session: Session, *, is_urgent: bool = True) -> None:
        """Unless it `is_urgent`, each long step of the script is followed by a pause."""
        self._session = session
        self._is_urgent = is_urgent
        self._began = perf_counter()

    async def fetch(self, statement: Query[R], values: Row, *, locks: bool = False) -> list[R]:
        await self._pause()
        rows = await self._session.fetch(Query(statement + _LOCK_CLAUSE) if locks else statement, *values)
        self._began = perf_counter()
        return rows

    async def fetch_many(self, statement: Query[R], many: Iterable[Row], at_once: Query[R] | None = None) -> list[R]:
        await self._pause()
        rows = many if isinstance(many, list) else await asyncio.to_thread(list, many)
        if len(rows) > 1 and at_once:
            first, *others = zip(*rows, strict=True)
            found = await self._session.fetch(at_once, first[0], *others)
        else:
            found = await self._session.fetch_many(statement, rows) if rows else []
        self._began = perf_counter()
        return found

    async def _pause(self) -> None:
        seconds = perf_counter() - self._began
        if seconds > _LONG_STEP_SECONDS and not self._is_urgent:
            await asyncio.sleep(_PAUSE_RATIO * seconds)


async def create(
    session: Session,
    partition: Partition,
    step: AddStep,
    options: WriteOptions,
    *,
    limits: AccountLimits,
    with_words: bool,
) -> AddResult | None:
    """Create a listing by calling the database function, which needs no explicit transaction.

    Return None and write nothing if the create is left to `add`: it is rejected, or the account is or must be indexed.
    """
    new = step.new
    words = build_account_words(partition[1], new.title, new.content) if with_words else None
    idempotency, actor = options
    values = (
        *partition,
        search_sql.MIN_INDEXED_LISTINGS,
        *limits[:2],
        *astuple(new),
        step.created_at,
        words,
        *(idempotency or (None,) * 4),
        None if actor is None else actor.key_id,
    )
    listing_id, digest, result = await session.fetch_one(CREATE, *values)
    if listing_id is not None:
        return AddResult(listing_id)
    if idempotency is None or digest is None:
        return None
    return AddResult(int(listings.require_same_request(idempotency, digest, result)), replayed=True)


async def add(tx: Transaction, engine: Engine, partition: Partition, step: AddStep, options: WriteOptions) -> AddResult:
    """Create a listing with single statements, which works for an account of any size."""
    await engine.lock_counter(tx, partition[0])
    _, must_index = await _read_index_state(tx, partition, 1)
    if must_index:
        earlier = options.idempotency and await listings.find_earlier_result(tx, partition, options.idempotency)
        if earlier is None:  # a rejection after the indexing would undo it
            await listings.require_acceptable(tx, engine, partition, step.new)
            await engine.start_indexing(tx, partition)
    return (await listings.add(tx, engine, partition, step, *options)).result


async def _read_index_state(tx: Transaction, partition: Partition, new_listings: int) -> tuple[bool, bool]:
    # Returns whether the account is indexed, and whether it must be now.
    rows = await tx.fetch(_GET_STATE, partition)
    count, indexed = rows[0] if rows else (0, False)
    return indexed, not indexed and count + new_listings >= search_sql.MIN_INDEXED_LISTINGS
