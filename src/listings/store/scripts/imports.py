"""Transactions that import the rows of a file and store the import's progress."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import astuple

from listings.domain.errors import Problem
from listings.domain.history import Actor, choose_kind
from listings.domain.imports import (
    Edit,
    ImportBatch,
    ImportKey,
    ImportProgress,
    ImportRow,
    NoRoomToCreateError,
    RowOutcome,
    count_outcomes,
)
from listings.domain.model import BUCKETS, ImportedListing, Listing, bucket_of
from listings.store import change_sql, sql
from listings.store.mapping import build_listing
from listings.store.scripts import audit
from listings.store.scripts.accounts import lock_not_erased
from listings.store.scripts.bulk import BulkWriter
from listings.store.scripts.changes import ChangeSet
from listings.store.scripts.engine import Engine
from listings.store.scripts.script import ScriptedStore, Transaction, transaction


class ScriptedImportStore(ScriptedStore):
    """Stores imports."""

    engine: Engine

    async def find_import(self, key: ImportKey) -> ImportProgress | None:
        """Return the progress of an import, or None if it was never started."""
        return await self._find(_build_progress, sql.GET_IMPORT, *astuple(key))

    async def list_imports(self, bucket: int, account_id: int, count: int) -> list[ImportProgress]:
        """Return the account's latest `count` imports, newest first."""
        return await self._list(_build_progress, sql.LIST_IMPORTS, bucket, account_id, count)

    async def list_edits(self, listing_id: int, count: int) -> list[Edit]:
        """Return the stored edits of a listing, newest first, at most `count`."""
        return await self._list(Edit, change_sql.LIST_EDITS, bucket_of(listing_id), listing_id, count)

    @transaction
    async def begin_import(
        self,
        tx: Transaction,
        key: ImportKey,
        expected: ImportProgress | None,
        started_at: int,
        last_id: int,
        name: str = "",
    ) -> ImportProgress | None:
        """Start an import into an existing account from the beginning and return its progress.

        Ids up to `last_id`, which is 0 or an id in the account's bucket, are reserved: from now on, a new listing gets
        one of them only if a row of an import has that id.
        Return None and write nothing if the stored progress is not `expected`: another process started the import.
        Raises Problem("account_disabled") if the account is erased.
        """
        await lock_not_erased(tx, key.account_id)
        await self.engine.lock_counter(tx, key.bucket)
        if await tx.find(_build_progress, sql.GET_IMPORT, astuple(key)) != expected:
            return None
        await tx.fetch(sql.BEGIN_IMPORT, (*astuple(key), started_at, name))
        await tx.fetch(sql.SKIP_SERIALS, (key.bucket, last_id // BUCKETS))
        return ImportProgress(started_at=started_at, name=name)

    @transaction
    async def import_listings(
        self, tx: Transaction, key: ImportKey, batch: ImportBatch, actor: Actor | None = None
    ) -> list[RowOutcome] | None:
        """Call the `decide` of each row in order, write the decisions, and store the progress.

        If a new listing's row has an id, the listing gets that id, and ids generated later are higher. If `decide`
        raises a Problem, it is the outcome of that row only. Return None and write nothing if the import is not at the
        start of the batch, because another process continued or finished it. Raises Problem("account_disabled") if the
        account is erased, and NoRoomToCreateError.
        """
        await lock_not_erased(tx, key.account_id)
        last_serial = await tx.find(int, sql.GET_LAST_SERIAL, (key.bucket,), locks=True) or 0
        found = await tx.find(_build_progress, sql.GET_IMPORT, astuple(key))
        if found is None or found.finished_at is not None or found.position != batch.start:
            return None
        importer = _BatchImporter(self.engine, key, last_serial, actor)
        await importer.prepare(tx, batch.rows)
        outcomes = []
        for index, row in enumerate(batch.rows):
            outcomes.append(await importer.import_row(tx, row))
            batch.require_room(index, outcomes[-1])
        counts = count_outcomes(outcomes)
        created, updated = counts["created"], counts["updated"] + counts["restored"] + counts["deleted"]
        await importer.finish(tx)
        await tx.fetch(sql.ADVANCE_IMPORT, (*astuple(key), *batch.end, *counts.values(), batch.finished_at))
        if actor is not None and (created or updated):
            await audit.record_import(tx, key, found, outcomes, actor)
        return outcomes


def _build_progress(*columns: Any) -> ImportProgress:  # noqa: ANN401 - the types differ
    return ImportProgress(**dict(zip(ImportProgress.__struct_fields__, columns, strict=True)))


class _BatchImporter:
    def __init__(self, engine: Engine, key: ImportKey, last_serial: int, actor: Actor | None) -> None:
        self._engine = engine
        self._partition = (key.bucket, key.account_id)
        self._change_set = ChangeSet(self._partition, actor, key)
        self._writer = BulkWriter(engine, self._partition, self._change_set)
        self._writer.last_serial = last_serial

    async def prepare(self, tx: Transaction, rows: Sequence[ImportRow]) -> None:
        # Listings of other accounts are read, too.
        indexed = await self._engine.prepare_account(tx, self._partition, len(rows))
        ids = list(dict.fromkeys(row.listing_id for row in rows if row.listing_id is not None))
        external_ids = [row.external_id for row in rows if row.external_id is not None]
        known = self._writer.known
        await self._writer.prepare(tx, ids, list(dict.fromkeys(external_ids)), indexed=indexed)
        others = [(self._partition[0], listing_id) for listing_id in ids if listing_id not in known]
        if others:
            known |= {listing_id: None for _, listing_id in others}
            known |= {row[0]: build_listing(row) for row in (await tx.fetch_many(sql.GET_LISTING, others))}

    async def import_row(self, tx: Transaction, row: ImportRow) -> RowOutcome:
        listing = await self._find_listing(tx, row)
        try:
            decision = row.decide(listing)
        except Problem as problem:
            return problem
        if isinstance(decision, ImportedListing):
            return await self._create(tx, row, decision)
        if not decision or listing is None:
            return "unchanged"
        count = row.count_edits(listing)
        values = (self._partition[0], listing.id, count)
        edits = (await tx.fetch(change_sql.LIST_EDITS, values)) if count else []
        try:
            base_version = row.check(listing, decision, [Edit(*edit) for edit in edits])
            await self._writer.change(tx, listing, decision, base_version)
        except Problem as problem:
            return problem
        return choose_kind(decision)

    async def _create(self, tx: Transaction, row: ImportRow, listing: ImportedListing) -> RowOutcome:
        try:
            await self._writer.create(tx, listing, row.listing_id)
        except Problem as problem:
            is_full = problem.code == "account_full"
            return NoRoomToCreateError(problem.code, problem.message) if is_full else problem
        return "created"

    async def finish(self, tx: Transaction) -> None:
        await self._writer.finish(tx)
        await self._change_set.write(tx)

    async def _find_listing(self, tx: Transaction, row: ImportRow) -> Listing | None:
        if row.listing_id is not None:
            return await self._writer.find(tx, row.listing_id)
        holder = None if row.external_id is None else (await self._writer.find_holder(tx, row.external_id))
        return None if holder is None else await self._writer.find(tx, holder, locks=True)
