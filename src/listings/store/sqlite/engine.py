"""SQLite's operations for scripts on listings. Its write transactions lock the whole database."""

from collections.abc import Sequence

from apsw import Connection

from listings.contract.history import Actor
from listings.contract.listings import AddResult, AddStep, IdempotencyRecord
from listings.contract.revisions import Revisions
from listings.domain.account_limits import AccountLimits, AccountSize, measure_new
from listings.domain.model import BUCKETS, ImportedListing, Listing
from listings.store import change_sql, sql
from listings.store.mapping import Partition, Row
from listings.store.scripts import changes, listings
from listings.store.scripts.engine import ListingText, SingleEdit
from listings.store.scripts.script import Query, Script
from listings.store.search_sql import MIN_INDEXED_LISTINGS
from listings.store.sqlite.account_index import MARK_ACCOUNT
from listings.store.sqlite.script_runner import run_script
from listings.store.sqlite.search import INDEXED, INDEXING, index_words

# Above this number of listings, an account that is being indexed gets new ones indexed on creation.
_MAX_UNINDEXED = 2 * MIN_INDEXED_LISTINGS

_ADD_SINGLE_EDIT = """
INSERT INTO changes (
    bucket, account_id, edit_revision, number, listing_id, moment, author, kind, revision, last_serial, fields, detail)
VALUES ($1, $2, $3, 0, $4, $5, $6, $7, $8, (SELECT last FROM listing_ids WHERE bucket = $1), $9, $10)
"""
_ADD_LISTING, _ADD_CHANGE = sql.to_sqlite(sql.ADD_LISTING), sql.to_sqlite(change_sql.ADD_CHANGE)
# For RETURNING, SQLite creates a temporary table each time. With one query for both results, a create takes 3% fewer
# instructions.
_NEXT_SERIAL, _COUNT_ONE_MORE = (
    sql.to_sqlite(statement.partition("RETURNING")[0]) for statement in (sql.NEXT_SERIAL, sql.COUNT_ONE_MORE)
)
_GET_COUNTERS = """
SELECT last, listings, indexed, revision, edit_revision
FROM listing_ids LEFT JOIN account_state ON account_state.bucket = ?1 AND account_id = ?2
WHERE listing_ids.bucket = ?1
"""


class SqliteEngine:
    """Implements `listings.store.scripts.engine.Engine`. Large accounts are indexed later, by `account_index`."""

    def __init__(self, limits: AccountLimits) -> None:
        self.limits = limits

    def lock_counter(self, bucket: int) -> Script[None]:
        yield from ()  # the transaction has locked the whole database

    def lock_and_read_listings(
        self, partition: Partition, ids: Sequence[int], external_ids: Sequence[str] = ()
    ) -> Script[dict[int, Listing]]:
        yield from ()  # as in `lock_counter`
        return {}

    def lock_listings(self, partition: Partition, ids: Sequence[int]) -> Script[None]:
        yield from ()  # as in `lock_counter`

    def prepare_account(self, partition: Partition, new_listings: int) -> Script[bool]:
        rows = yield Query(sql.IS_INDEXED, partition)
        return bool(rows and rows[0][0])  # also while it is being indexed: a step may have passed the listing's id

    def is_indexed_on_create(self, indexed: int, count: int) -> bool:
        """Return whether to index a listing whose id is the account's highest, which no index step has passed yet.

        Imports, whose ids may be lower, use `prepare_account`.
        """
        return indexed == INDEXED or (indexed == INDEXING and count > _MAX_UNINDEXED)

    def start_indexing(self, partition: Partition) -> Script[None]:
        yield Query(MARK_ACCOUNT, (*partition, INDEXING))

    def index_words(self, account_id: int, texts: Sequence[ListingText]) -> Script[None]:
        return index_words(account_id, texts)

    def record_edit(self, partition: Partition, growth: AccountSize, edit: SingleEdit) -> Script[None]:
        rows = yield Query(sql.RAISE_REVISION, (*partition, *growth, 1))
        revision, edit_revision = rows[0]
        actor, kind, listing_id, fields, detail = edit
        values = (edit_revision, listing_id, actor.moment, actor.key_id, kind, revision, fields, detail)
        yield Query(_ADD_SINGLE_EDIT, (*partition, *values))

    def add(
        self,
        connection: Connection,
        partition: Partition,
        step: AddStep,
        idempotency: IdempotencyRecord | None,
        actor: Actor | None,
    ) -> listings.Added:
        """Create a listing like `listings.add`, but call SQLite directly: generators make a create 5% slower."""
        if idempotency is not None:
            return run_script(connection, listings.add(self, partition, step, idempotency, actor))
        new, created_at = step
        if new.external_id is not None:
            run_script(connection, listings.require_free(partition, new.external_id))
        size = measure_new(new)
        values = (*partition, size.text_bytes, *self.limits, int(actor is not None))
        connection.execute(_COUNT_ONE_MORE, values)
        if not connection.changes():
            run_script(connection, listings.require_room(self, partition, size))
        connection.execute(_NEXT_SERIAL, partition[:1])
        rows: list[Row] = connection.execute(_GET_COUNTERS, partition).fetchall()
        serial, count, indexed, revision, edit_revision = rows[0]
        listing_id = serial * BUCKETS + partition[0]
        index_now = self.is_indexed_on_create(indexed, count)
        listing = ImportedListing(new, view_count=0, created_at=created_at, updated_at=created_at, deleted_at=None)
        event = listings.NO_EVENT if actor is None else (actor.key_id, revision, edit_revision)
        row = listings.build_row(listing_id, partition, listing, indexed=index_now, event=event)
        connection.execute(_ADD_LISTING, row)  # without the account, the foreign key makes this fail
        if actor is not None and not edit_revision % changes.MARKER_INTERVAL:
            connection.execute(_ADD_CHANGE, changes.build_marker(partition, edit_revision, actor, listing_id))
        if index_now:
            run_script(connection, self.index_words(partition[1], [(listing_id, new.title, new.content)]))
        if count >= MIN_INDEXED_LISTINGS and not indexed:
            run_script(connection, self.start_indexing(partition))
        return listings.Added(AddResult(listing_id), Revisions(revision, edit_revision))
