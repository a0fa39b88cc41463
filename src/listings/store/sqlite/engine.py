"""SQLite's operations for scripts on listings. Its write transactions lock the whole database."""

import json
from collections.abc import Sequence

from apsw import Connection

from listings.domain.account_limits import AccountLimits, AccountSize, measure_new
from listings.domain.history import Actor
from listings.domain.listings import AddResult, AddStep, IdempotencyRecord
from listings.domain.model import BUCKETS, Listing, Revisions
from listings.store import sql
from listings.store.mapping import ListingRow, Partition, build_listing
from listings.store.query import Command, Query, Row
from listings.store.scripts import changes, listings
from listings.store.scripts.engine import ListingText, SingleEdit
from listings.store.scripts.script import Transaction
from listings.store.search_sql import MIN_INDEXED_LISTINGS
from listings.store.sqlite.account_index import MARK_ACCOUNT
from listings.store.sqlite.script_runner import run_script
from listings.store.sqlite.search import INDEXED, INDEXING, REMOVE_WORDS, index_words

# Above this number of listings, an account that is being indexed gets new ones indexed on creation.
_MAX_UNINDEXED = 2 * MIN_INDEXED_LISTINGS

_ADD_SINGLE_EDIT = Command("""
INSERT INTO changes (
    bucket, account_id, edit_revision, number, listing_id, moment, author, kind, revision, last_serial, fields, detail)
VALUES ($1, $2, $3, 0, $4, $5, $6, $7, $8, $9, $10, $11)
""")
_ADD_LISTING = sql.to_sqlite(sql.ADD_LISTING)
# For RETURNING, SQLite creates a temporary table each time. With one query for both results, a create takes 3% fewer
# instructions.
_NEXT_SERIAL, _COUNT_ONE_MORE, _RAISE_REVISION = (
    Command(sql.to_sqlite(statement.partition("RETURNING")[0]))
    for statement in (sql.NEXT_SERIAL, sql.COUNT_ONE_MORE, sql.RAISE_REVISION)
)
_GET_COUNTERS = Query[tuple[int, int, int, int, int, int]]("""
SELECT last, listings, indexed, revision, edit_revision, edited_at
FROM listing_ids LEFT JOIN account_state ON account_state.bucket = ?1 AND account_id = ?2
WHERE listing_ids.bucket = ?1
""")
# One statement reads a listing in 40% of the time of a statement for each. The others are too large to be in memory
# together.
_COLUMNS = ", ".join(f"listings.{name}" for name in Listing.__struct_fields__)
_IS_SMALL = f"octet_length(title) + octet_length(content) + octet_length(images) <= {8 * 1024}"
_READ_LISTINGS = Query[ListingRow](f"""
SELECT {_COLUMNS} FROM json_each($3) AS wanted
CROSS JOIN listings ON bucket = $1 AND listings.id = wanted.value AND account_id = $2
WHERE {_IS_SMALL}
""")
_READ_LISTINGS_BY_EXTERNAL_ID = Query[ListingRow](f"""
SELECT {_COLUMNS} FROM json_each($3) AS wanted
CROSS JOIN listings ON bucket = $1 AND account_id = $2 AND external_id = wanted.value
    AND CASE WHEN deleted_at IS NULL THEN 0 ELSE listings.id END = 0
WHERE {_IS_SMALL}
""")


class SqliteEngine:
    """Implements `listings.store.scripts.engine.Engine`. Large accounts are indexed later, by `account_index`."""

    def __init__(self, limits: AccountLimits) -> None:
        self.limits = limits

    async def lock_counter(self, tx: Transaction, bucket: int) -> None:
        pass  # the transaction has locked the whole database

    async def lock_and_read_listings(
        self, tx: Transaction, partition: Partition, ids: Sequence[int], external_ids: Sequence[str] = ()
    ) -> dict[int, Listing]:
        # Without a lock, as in `lock_counter`.
        rows = await tx.fetch(_READ_LISTINGS, (*partition, json.dumps(ids))) if ids else []
        if external_ids:
            rows += await tx.fetch(_READ_LISTINGS_BY_EXTERNAL_ID, (*partition, json.dumps(external_ids)))
        return {row[0]: build_listing(row) for row in rows}

    async def lock_listings(self, tx: Transaction, partition: Partition, ids: Sequence[int]) -> None:
        pass  # as in `lock_counter`

    async def prepare_account(self, tx: Transaction, partition: Partition, new_listings: int) -> bool:
        return bool(
            await tx.find(int, sql.IS_INDEXED, partition)
        )  # also while it is being indexed: a step may have passed the listing's id

    def is_indexed_on_create(self, indexed: int, count: int) -> bool:
        """Return whether to index a listing whose id is the account's highest, which no index step has passed yet.

        Imports, whose ids may be lower, use `prepare_account`.
        """
        return indexed == INDEXED or (indexed == INDEXING and count > _MAX_UNINDEXED)

    async def start_indexing(self, tx: Transaction, partition: Partition) -> None:
        await tx.fetch(MARK_ACCOUNT, (*partition, INDEXING))

    async def index_words(self, tx: Transaction, account_id: int, texts: Sequence[ListingText]) -> None:
        return await index_words(tx, account_id, texts)

    async def remove_words(self, tx: Transaction, bucket: int, ids: Sequence[int]) -> None:
        await tx.fetch_many(REMOVE_WORDS, [(listing_id,) for listing_id in ids])

    async def record_edit(self, tx: Transaction, partition: Partition, growth: AccountSize, edit: SingleEdit) -> None:
        actor, kind, listing_id, fields, detail = edit
        await tx.fetch(_RAISE_REVISION, (*partition, *growth, 1, actor.moment))
        serial, _, _, revision, edit_revision, edited_at = (await tx.fetch(_GET_COUNTERS, partition))[0]
        moment = edited_at
        if edited_at != actor.moment:
            moment = await changes.settle_moment(tx, partition, actor.moment, edited_at)
        values = (edit_revision, listing_id, moment, actor.key_id, kind, revision, serial, fields, detail)
        await tx.fetch(_ADD_SINGLE_EDIT, (*partition, *values))

    def add(
        self,
        connection: Connection,
        partition: Partition,
        step: AddStep,
        idempotency: IdempotencyRecord | None,
        actor: Actor | None,
    ) -> listings.Added:
        """Create a listing like `listings.add`, but call SQLite directly: a script makes a create 5% slower."""
        if step.require_room is not None or (actor is not None and actor.group is not None):
            return run_script(connection, lambda tx: listings.add(tx, self, partition, step, idempotency, actor))
        if idempotency is None:
            return self._add(connection, partition, step, actor)
        earlier = run_script(connection, lambda tx: listings.find_earlier_result(tx, partition, idempotency))
        if earlier is not None:
            return listings.Added(AddResult(int(earlier), replayed=True), None)
        added = self._add(connection, partition, step, actor)
        result = str(added.result.listing_id)
        run_script(connection, lambda tx: listings.store_result(tx, partition, idempotency, result))
        return added

    def _add(self, connection: Connection, partition: Partition, step: AddStep, actor: Actor | None) -> listings.Added:
        new = step.new
        external_id = new.external_id
        if external_id is not None:
            run_script(connection, lambda tx: listings.require_free(tx, partition, external_id))
        size = measure_new(new)
        values = (*partition, size.text_bytes, *self.limits[:2], int(actor is not None))
        connection.execute(_COUNT_ONE_MORE, values)
        if not connection.changes():
            run_script(connection, lambda tx: listings.require_room(tx, self, partition, size))
        connection.execute(_NEXT_SERIAL, partition[:1])
        rows: list[Row] = connection.execute(_GET_COUNTERS, partition).fetchall()
        serial, count, indexed, revision, edit_revision, edited_at = rows[0]
        listing_id = serial * BUCKETS + partition[0]
        index_now = self.is_indexed_on_create(indexed, count)
        event = listings.NO_EVENT if actor is None else (actor.key_id, revision, edit_revision)
        row = listings.build_row(listing_id, partition, listings.build_new(step), indexed=index_now, event=event)
        connection.execute(_ADD_LISTING, row)  # without the account, the foreign key makes this fail
        if actor is not None and not edit_revision % changes.MARKER_INTERVAL:
            run_script(
                connection, lambda tx: changes.add_marker(tx, partition, edit_revision, actor, listing_id, edited_at)
            )
        if index_now:
            run_script(
                connection, lambda tx: self.index_words(tx, partition[1], [(listing_id, new.title, new.content)])
            )
        if count >= MIN_INDEXED_LISTINGS and not indexed:
            run_script(connection, lambda tx: self.start_indexing(tx, partition))
        return listings.Added(AddResult(listing_id), Revisions(revision, edit_revision))
