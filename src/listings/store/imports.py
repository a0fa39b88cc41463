"""Imports of files, in the writing thread: their rows and how far they are."""

from apsw import Connection
from msgspec.structs import astuple

from listings.console_contract import Author
from listings.contract import ImportBatch, ImportKey, ImportProgress, ImportRow, RowOutcome
from listings.errors import Problem
from listings.model import BUCKETS, ImportedListing
from listings.store import events, listing_writes, sql
from listings.store.rows import Read, Row, listing_of, perform, write


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


def advance(
    connection: Connection, key: ImportKey, batch: ImportBatch, author: Author | None
) -> list[RowOutcome] | None:
    """The rows of a batch, and the progress; None when the import is not where the batch starts."""
    found = _find(connection, key)
    if found is None or found.finished_at is not None or found.position != batch.start:
        return None
    outcomes = [_import(connection, key, row) for row in batch.rows]
    counts = [outcomes.count(outcome) for outcome in ("made", "changed", "unchanged")]
    write(
        connection,
        sql.ADVANCE_IMPORT,
        (*astuple(key), *batch.end, *counts, len(outcomes) - sum(counts), batch.finished_at),
    )
    if "made" in outcomes or "changed" in outcomes:
        write(connection, sql.RAISE_REVISION, (key.bucket, key.account_id))
        if author is not None:
            perform(connection, events.note_import(key, found, outcomes, author))
    return outcomes


def _find(connection: Connection, key: ImportKey) -> ImportProgress | None:
    def read(statement: str, values: Row) -> list[Row]:
        return write(connection, statement, values)

    return find(read, key)


def _import(connection: Connection, key: ImportKey, row: ImportRow) -> RowOutcome:
    found = [] if row.listing_id is None else write(connection, sql.GET_LISTING, (key.bucket, row.listing_id))
    try:
        decision = row.decide(listing_of(found[0]) if found else None)
    except Problem as problem:
        return problem
    if isinstance(decision, ImportedListing):
        place = (key.bucket, key.account_id)
        listing_writes.insert(connection, place, row.listing_id, decision, raises=False)
        return "made"
    if not decision or row.listing_id is None:
        return "unchanged"
    listing_writes.apply(connection, row.listing_id, decision)
    return "changed"
