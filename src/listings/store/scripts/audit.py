"""Write audit events in the same transaction as the change that they record.

The event of a single edit is its change set, which `Engine.record_edit` writes.
"""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import astuple

from listings.contract.history import Actor, EventKind
from listings.contract.imports import ImportKey, ImportProgress, RowOutcome
from listings.contract.reverts import RevertCounts
from listings.domain.model import ListingChange, bucket_of
from listings.store import member_sql, sql
from listings.store.mapping import Partition
from listings.store.scripts.script import Query, Script


def record_event(
    account_id: int, actor: Actor, kind: EventKind, subject: int = 0, detail: object = None
) -> Script[None]:
    """Store an event that is not an edit of a listing, with the next number of the account's current revision."""
    partition = (bucket_of(account_id), account_id)
    rows = yield Query(sql.GET_REVISIONS, partition, locks=True)
    revision = int(rows[0][0])
    rows = yield Query(member_sql.GET_LAST_NUMBER, (*partition, revision))
    values = (revision, int(rows[0][0]) + 1, actor.moment, actor.key_id, kind, subject, _encode(detail))
    yield Query(member_sql.ADD_EVENT, (*partition, *values))


def record_batch(
    partition: Partition, actor: Actor, change_set: int, ids_by_kind: Mapping[str, list[int]]
) -> Script[None]:
    """Store one event for a batch. `change_set` is its edit revision, `ids_by_kind` are the listings that it edited."""
    rows = yield Query(sql.GET_REVISIONS, partition)
    detail = _encode({kind: ids for kind, ids in ids_by_kind.items() if ids})
    yield _build_edit(partition, int(rows[0][0]), actor, "batch", detail, change_set)


def record_import(key: ImportKey, before: ImportProgress, outcomes: Sequence[RowOutcome], actor: Actor) -> Script[None]:
    """Store the totals of an import in one event, which has the revision of the import's first edit.

    `before` is the progress before this batch.
    """
    partition = (key.bucket, key.account_id)
    detail = {
        "created": before.created + outcomes.count("created"),
        "updated": before.updated + outcomes.count("updated"),
    }
    rows = yield Query(member_sql.GET_IMPORT_REVISION, astuple(key))
    found, import_id = rows[0]
    if found is not None and (yield Query(member_sql.SET_EVENT_DETAIL, (*partition, found, _encode(detail)))):
        return
    rows = yield Query(sql.GET_REVISIONS, partition)
    revision = int(rows[0][0])
    yield _build_edit(partition, revision, actor, "import", _encode(detail), import_id)
    yield Query(member_sql.SET_IMPORT_REVISION, (*astuple(key), revision))


def record_revert(partition: Partition, revision: int, actor: Actor, revert_id: int, counts: RevertCounts) -> Query:
    """Return the statement that stores the event of a revert, which has the revision of its first edit."""
    return _build_edit(partition, revision, actor, "reverted", _encode(counts), revert_id)


def update_revert(partition: Partition, revision: int, counts: RevertCounts) -> Query:
    """Return the statement that stores new totals in the event of a revert."""
    return Query(member_sql.SET_EVENT_DETAIL, (*partition, revision, _encode(counts)))


def choose_kind(changes: ListingChange) -> EventKind:
    """Return the kind of an edit of one listing."""
    if "deleted_at" not in changes:
        return "updated"
    return "restored" if changes["deleted_at"] is None else "deleted"


def _build_edit(  # noqa: PLR0913, PLR0917 - the columns
    partition: Partition, revision: int, actor: Actor, kind: EventKind, detail: str, subject: int
) -> Query:
    return Query(member_sql.ADD_EVENT, (*partition, revision, 0, actor.moment, actor.key_id, kind, subject, detail))


def _encode(detail: object) -> str:
    return "" if detail is None else msgspec.json.encode(detail).decode()
