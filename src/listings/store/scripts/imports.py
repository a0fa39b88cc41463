"""`ImportStore`: transactions that import the rows of a file and store the import's progress."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import astuple

from listings.contract.history import Actor
from listings.contract.imports import ImportBatch, ImportKey, ImportProgress, ImportRow, RowOutcome
from listings.domain.account_limits import NO_GROWTH, AccountSize, measure_imported
from listings.domain.errors import Problem
from listings.domain.external_ids import build_taken_problem, find_claimed
from listings.domain.model import BUCKETS, ImportedListing, Listing, ListingChange
from listings.store import search_sql, sql
from listings.store.mapping import build_listing
from listings.store.scripts import audit, listings
from listings.store.scripts.accounts import lock_not_erased
from listings.store.scripts.changes import ChangeSet
from listings.store.scripts.engine import Engine
from listings.store.scripts.script import Query, QueryMany, Script, ScriptedStore, run_all, transaction


class ScriptedImportStore(ScriptedStore):
    """Implements `ImportStore`."""

    engine: Engine

    async def find_import(self, key: ImportKey) -> ImportProgress | None:
        return _parse_progress(await self._fetch(sql.GET_IMPORT, *astuple(key)))

    @transaction
    def begin_import(
        self, key: ImportKey, expected: ImportProgress | None, started_at: int, last_id: int
    ) -> Script[ImportProgress | None]:
        yield from lock_not_erased(key.account_id)
        yield from self.engine.lock_counter(key.bucket)
        if _parse_progress((yield Query(sql.GET_IMPORT, astuple(key)))) != expected:
            return None
        yield Query(sql.BEGIN_IMPORT, (*astuple(key), started_at))
        yield Query(sql.SKIP_SERIALS, (key.bucket, last_id // BUCKETS))
        return ImportProgress(started_at=started_at)

    @transaction
    def import_listings(
        self, key: ImportKey, batch: ImportBatch, actor: Actor | None = None
    ) -> Script[list[RowOutcome] | None]:
        yield from lock_not_erased(key.account_id)
        counter = yield Query(sql.GET_LAST_SERIAL, (key.bucket,), locks=True)  # `begin_import` has created it
        found = _parse_progress((yield Query(sql.GET_IMPORT, astuple(key))))
        if found is None or found.finished_at is not None or found.position != batch.start:
            return None
        importer = _BatchImporter(self.engine, key, int(counter[0][0]), actor)
        yield from importer.prepare(batch.rows)
        outcomes = yield from run_all(importer.import_row(row) for row in batch.rows)
        created, updated, unchanged = (outcomes.count(outcome) for outcome in ("created", "updated", "unchanged"))
        yield from importer.finish(created, updated)
        rejected = len(outcomes) - created - updated - unchanged
        values = (*batch.end, created, updated, unchanged, rejected, batch.finished_at)
        yield Query(sql.ADVANCE_IMPORT, (*astuple(key), *values))
        if actor is not None and (created or updated):
            yield from audit.record_import(key, found, outcomes, actor)
        return outcomes


def _parse_progress(rows: Sequence[Any]) -> ImportProgress | None:
    """Return the progress in the rows of `sql.GET_IMPORT`, or None if there are none."""
    return ImportProgress(**dict(zip(ImportProgress.__struct_fields__, rows[0], strict=True))) if rows else None


class _BatchImporter:
    """Imports one batch. New listings are buffered and written together, and the account's counts at the end."""

    def __init__(self, engine: Engine, key: ImportKey, last_serial: int, actor: Actor | None) -> None:
        self._engine = engine
        self._partition = (key.bucket, key.account_id)
        self._last_serial = last_serial
        self._indexed = False
        self._known: dict[int, Listing] = {}
        self._holders: dict[str, int | None] = {}  # ids of listings by external id, those of the batch included
        self._created: list[tuple[int, ImportedListing]] = []
        self._size = self._growth = NO_GROWTH  # of the account before the batch, and since
        self._change_set = ChangeSet(self._partition, actor, key)

    def prepare(self, rows: Sequence[ImportRow]) -> Script[None]:
        """Prepare the account, and read the listings that the rows name, those of other accounts included."""
        self._indexed = yield from self._engine.prepare_account(self._partition, len(rows))
        ids = list(dict.fromkeys(row.listing_id for row in rows if row.listing_id is not None))
        external_ids = list(dict.fromkeys(row.external_id for row in rows if row.external_id is not None))
        if ids or external_ids:
            self._known = yield from self._engine.lock_and_read_listings(self._partition, ids, external_ids)
        others = [(self._partition[0], listing_id) for listing_id in ids if listing_id not in self._known]
        if others:
            self._known |= {row[0]: build_listing(row) for row in (yield QueryMany(sql.GET_LISTING, others))}
        state = yield Query(sql.GET_ACCOUNT_SIZE, self._partition, locks=True)
        if state:
            *size, edit_revision = state[0]
            self._size = AccountSize(*size)
            self._change_set.begin(edit_revision + 1)
        if external_ids:
            found = yield QueryMany(sql.FIND_EXTERNAL_ID, [(*self._partition, one) for one in external_ids])
            self._holders = dict.fromkeys(external_ids) | {row[1]: row[0] for row in found}

    def import_row(self, row: ImportRow) -> Script[RowOutcome]:
        """Create or change the row's listing, as its `decide` returns."""
        listing = yield from self._find_listing(row)
        try:
            decision = row.decide(listing)
            yield from self._require_free(listing, decision)
            self._grow(listing, decision)
        except Problem as problem:
            return problem
        if isinstance(decision, ImportedListing):
            self._buffer(row.listing_id, decision)
            return "created"
        if not decision or listing is None:
            return "unchanged"
        yield from self._write_created()
        yield from self._change_set.add_changed(listing, decision)
        changed = yield from listings.update(self._engine, listing.id, decision, may_be_indexed=self._indexed)
        self._remember(changed, listing.external_id)
        return "updated"

    def finish(self, created: int, updated: int) -> Script[None]:
        """Write the buffered listings, the last serial, and the account's counts."""
        yield from self._write_created()
        if created:
            yield Query(sql.SKIP_SERIALS, (self._partition[0], self._last_serial))
        if created or updated:
            step = int(self._change_set.edit_revision is not None)
            rows = yield Query(sql.COUNT_MORE, (*self._partition, created, *self._growth, step))
            yield from self._change_set.write()
            if rows and rows[0][0] >= search_sql.MIN_INDEXED_LISTINGS and not self._indexed:
                yield from self._engine.start_indexing(self._partition)

    def _find_listing(self, row: ImportRow) -> Script[Listing | None]:
        """Return the listing with the row's id, or else with its external id."""
        if row.listing_id is not None:
            return self._known.get(row.listing_id)
        holder = None if row.external_id is None else (yield from self._find_holder(row.external_id))
        if holder is not None and holder not in self._known:
            rows = yield Query(sql.GET_LISTING, (self._partition[0], holder), locks=True)
            self._known[holder] = build_listing(rows[0])
        return None if holder is None else self._known[holder]

    def _find_holder(self, external_id: str) -> Script[int | None]:
        if external_id not in self._holders:
            self._holders[external_id] = yield from listings.find_holder(self._partition, external_id)
        return self._holders[external_id]

    def _require_free(self, listing: Listing | None, decision: ImportedListing | ListingChange) -> Script[None]:
        """Raise Problem("external_id_taken") if the row would take the external id of another listing."""
        claimed = find_claimed(listing, decision)
        if claimed is None:
            return
        holder = yield from self._find_holder(claimed)
        if holder is not None and (listing is None or holder != listing.id):
            raise build_taken_problem(claimed, holder)

    def _remember(self, listing: Listing, former: str | None = None) -> None:
        """Remember a written listing and who has its external id, and its former one."""
        self._known[listing.id] = listing
        if former is not None and self._holders.get(former) == listing.id:
            self._holders[former] = None
        if listing.external_id is not None and listing.deleted_at is None:
            self._holders[listing.external_id] = listing.id

    def _grow(self, listing: Listing | None, decision: ImportedListing | ListingChange) -> None:
        """Add the growth of the account by one row. Raises Problem("account_full")."""
        growth = measure_imported(listing, decision)
        self._engine.limits.require_room(self._size.add(self._growth), growth)
        self._growth = self._growth.add(growth)

    def _buffer(self, listing_id: int | None, listing: ImportedListing) -> None:
        bucket, account_id = self._partition
        if listing_id is None:
            listing_id = (self._last_serial + 1) * BUCKETS + bucket
        self._last_serial = max(self._last_serial, listing_id // BUCKETS)
        self._created.append((listing_id, listing))
        self._change_set.add_created(listing_id)
        new, *past = astuple(listing)
        self._remember(Listing(listing_id, account_id, 1, *astuple(new), *past))

    def _write_created(self) -> Script[None]:
        created, self._created = self._created, []
        if not created:
            return
        event = (None, None, self._change_set.edit_revision)
        rows = [
            listings.build_row(listing_id, self._partition, listing, indexed=self._indexed, event=event)
            for listing_id, listing in created
        ]
        yield QueryMany(sql.ADD_LISTING, rows)
        if self._indexed:
            texts = [(listing_id, listing.new.title, listing.new.content) for listing_id, listing in created]
            yield from self._engine.index_words(self._partition[1], texts)
