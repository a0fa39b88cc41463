"""Import rows of a file and record the import's progress, in the writer thread."""

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
from listings.store.sqlite.rows import Read, execute, run_script


def find(read: Read, key: ImportKey) -> ImportProgress | None:
    """Return the progress of an import, or None if it was never begun."""
    rows = read(sql.GET_IMPORT, astuple(key))
    return ImportProgress(**dict(zip(ImportProgress.__struct_fields__, rows[0], strict=True))) if rows else None


def begin(
    connection: Connection, key: ImportKey, found: ImportProgress | None, started_at: int, last_id: int
) -> ImportProgress | None:
    """Start an import from the beginning and reserve the ids of its file up to `last_id`.

    Returns None if its progress is no longer `found`.
    """
    if _find(connection, key) != found:
        return None
    execute(connection, sql.BEGIN_IMPORT, (*astuple(key), started_at))
    execute(connection, sql.SKIP_SERIALS, (key.bucket, last_id // BUCKETS))
    return ImportProgress(started_at=started_at)


def advance(connection: Connection, key: ImportKey, batch: ImportBatch, actor: Actor | None) -> list[RowOutcome] | None:
    """Import the rows of a batch and record the progress; return None if the batch does not start at its position."""
    found = _find(connection, key)
    if found is None or found.finished_at is not None or found.position != batch.start:
        return None
    rows = _BatchImport(connection, (key.bucket, key.account_id))
    outcomes = [rows.apply(row) for row in batch.rows]
    counts = [outcomes.count(outcome) for outcome in ("made", "changed", "unchanged")]
    rows.finish(created=counts[0], updated=counts[1])
    execute(
        connection,
        sql.ADVANCE_IMPORT,
        (*astuple(key), *batch.end, *counts, len(outcomes) - sum(counts), batch.finished_at),
    )
    if actor is not None and (counts[0] or counts[1]):
        run_script(connection, audit.record_import(key, found, outcomes, actor))
    return outcomes


def _find(connection: Connection, key: ImportKey) -> ImportProgress | None:
    def read(statement: str, values: Row) -> list[Row]:
        return execute(connection, statement, values)

    return find(read, key)


class _BatchImport:
    """One batch of an import. The allocated ids and the account's counts are written once, at its end."""

    def __init__(self, connection: Connection, partition: Partition) -> None:
        self._connection = connection
        self._partition = partition
        self._last_serial = _read_number(connection, sql.GET_LAST_SERIAL, partition[:1])
        self._indexed = bool(_read_number(connection, sql.IS_INDEXED, partition))

    def apply(self, row: ImportRow) -> RowOutcome:
        """Create or update the row's listing, as its `decide` returns."""
        key = (self._partition[0], row.listing_id)
        found = [] if row.listing_id is None else execute(self._connection, sql.GET_LISTING, key)
        try:
            decision = row.decide(build_listing(found[0]) if found else None)
        except Problem as problem:
            return problem
        if isinstance(decision, ImportedListing):
            self._create(row.listing_id, decision)
            return "made"
        if not decision or row.listing_id is None:
            return "unchanged"
        listing_writes.apply(self._connection, row.listing_id, decision)
        return "changed"

    def finish(self, *, created: int, updated: int) -> None:
        """Reserve the allocated ids, update the account's number of listings and raise its revision."""
        if created:
            execute(self._connection, sql.SKIP_SERIALS, (self._partition[0], self._last_serial))
        if created or updated:
            rows = execute(self._connection, sql.COUNT_MORE, (*self._partition, 1, created))
            if rows and rows[0][0] >= search_sql.MIN_INDEXED_LISTINGS and not self._indexed:
                account_index.start_indexing(self._connection, self._partition)

    def _create(self, listing_id: int | None, listing: ImportedListing) -> None:
        if listing_id is None:
            listing_id = (self._last_serial + 1) * BUCKETS + self._partition[0]
        self._last_serial = max(self._last_serial, listing_id // BUCKETS)
        listing_writes.insert(self._connection, listing_id, self._partition, listing, indexed=self._indexed)


def _read_number(connection: Connection, statement: str, values: Row) -> int:
    """Return the first column of the first row, or 0 if there is no row."""
    rows = execute(connection, statement, values)
    return int(rows[0][0]) if rows else 0
