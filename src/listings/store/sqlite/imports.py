"""Imports of files, in the writing thread: their rows and how far they are."""

from apsw import Connection
from msgspec.structs import astuple

from listings.contract.history import Actor
from listings.contract.imports import ImportBatch, ImportKey, ImportProgress, ImportRow, RowOutcome
from listings.domain.errors import Problem
from listings.domain.model import BUCKETS, ImportedListing
from listings.store import search_sql, sql
from listings.store.mapping import Partition, Row, build_listing
from listings.store.scripts import audit
from listings.store.sqlite import account_index, listing_writes
from listings.store.sqlite.rows import Read, run_script, write


def find(read: Read, key: ImportKey) -> ImportProgress | None:
    """How far an import is."""
    rows = read(sql.GET_IMPORT, astuple(key))
    return ImportProgress(**dict(zip(ImportProgress.__struct_fields__, rows[0], strict=True))) if rows else None


def begin(
    connection: Connection, key: ImportKey, found: ImportProgress | None, started_at: int, last_id: int
) -> ImportProgress | None:
    """Set an import to its beginning, and the ids of its file aside; None when it is no more as it was found."""
    if _find(connection, key) != found:
        return None
    write(connection, sql.BEGIN_IMPORT, (*astuple(key), started_at))
    write(connection, sql.SKIP_SERIALS, (key.bucket, last_id // BUCKETS))
    return ImportProgress(started_at=started_at)


def advance(connection: Connection, key: ImportKey, batch: ImportBatch, actor: Actor | None) -> list[RowOutcome] | None:
    """The rows of a batch, and the progress; None when the import is not where the batch starts."""
    found = _find(connection, key)
    if found is None or found.finished_at is not None or found.position != batch.start:
        return None
    importing = _Importing(connection, (key.bucket, key.account_id))
    outcomes = [importing.take(row) for row in batch.rows]
    counts = [outcomes.count(outcome) for outcome in ("made", "changed", "unchanged")]
    importing.end(made=counts[0], changed=counts[1])
    write(
        connection,
        sql.ADVANCE_IMPORT,
        (*astuple(key), *batch.end, *counts, len(outcomes) - sum(counts), batch.finished_at),
    )
    if actor is not None and (counts[0] or counts[1]):
        run_script(connection, audit.record_import(key, found, outcomes, actor))
    return outcomes


def _find(connection: Connection, key: ImportKey) -> ImportProgress | None:
    def read(statement: str, values: Row) -> list[Row]:
        return write(connection, statement, values)

    return find(read, key)


class _Importing:
    """One batch of an import: what it draws of ids and adds to the account is written once, at its end."""

    def __init__(self, connection: Connection, place: Partition) -> None:
        self._connection = connection
        self._place = place
        self._last = _one_or_nought(connection, sql.GET_LAST_SERIAL, place[:1])
        self._indexed = bool(_one_or_nought(connection, sql.IS_INDEXED, place))

    def take(self, row: ImportRow) -> RowOutcome:
        """Judge a row, and do as its judge says."""
        place = (self._place[0], row.listing_id)
        found = [] if row.listing_id is None else write(self._connection, sql.GET_LISTING, place)
        try:
            decision = row.decide(build_listing(found[0]) if found else None)
        except Problem as problem:
            return problem
        if isinstance(decision, ImportedListing):
            self._make(row.listing_id, decision)
            return "made"
        if not decision or row.listing_id is None:
            return "unchanged"
        listing_writes.apply(self._connection, row.listing_id, decision)
        return "changed"

    def end(self, *, made: int, changed: int) -> None:
        """Set the ids aside, count what was made, raise the revision."""
        if made:
            write(self._connection, sql.SKIP_SERIALS, (self._place[0], self._last))
        if made or changed:
            rows = write(self._connection, sql.COUNT_MORE, (*self._place, 1, made))
            if rows and rows[0][0] >= search_sql.MIN_INDEXED_LISTINGS and not self._indexed:
                account_index.begin(self._connection, self._place)

    def _make(self, listing_id: int | None, listing: ImportedListing) -> None:
        if listing_id is None:
            listing_id = (self._last + 1) * BUCKETS + self._place[0]
        self._last = max(self._last, listing_id // BUCKETS)
        listing_writes.insert(self._connection, listing_id, self._place, listing, indexed=self._indexed)


def _one_or_nought(connection: Connection, statement: str, values: Row) -> int:
    rows = write(connection, statement, values)
    return int(rows[0][0]) if rows else 0
