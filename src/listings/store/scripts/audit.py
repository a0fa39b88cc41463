"""Write audit events in the same transaction as the change that they record.

The event of a single edit is its change set, which `Engine.record_edit` writes.
"""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import astuple

from listings.domain.history import Actor, EventKind
from listings.domain.imports import ImportKey, ImportProgress, RowOutcome, count_outcomes
from listings.domain.model import Revisions, bucket_of
from listings.store import member_sql, sql
from listings.store.mapping import Partition
from listings.store.scripts.script import Transaction


async def record_event(
    tx: Transaction, account_id: int, actor: Actor, kind: EventKind, subject: int = 0, detail: object = None
) -> None:
    """Store an event that is not an edit of a listing, with the next number of the account's current revision."""
    partition = (bucket_of(account_id), account_id)
    revision = (await tx.get(Revisions, sql.GET_REVISIONS, partition, locks=True)).revision
    last = await tx.get(int, member_sql.GET_LAST_NUMBER, (*partition, revision))
    values = (revision, last + 1, actor.moment, actor.key_id, kind, subject, encode_detail(detail))
    await tx.fetch(member_sql.ADD_EVENT, (*partition, *values))


async def record_edit(  # noqa: PLR0913, PLR0917 - the columns
    tx: Transaction, partition: Partition, revision: int, actor: Actor, kind: EventKind, detail: str, subject: int
) -> None:
    """Store the event of a batch, an import, a bulk action or a revert, with the revision of its first edit."""
    await tx.fetch(member_sql.ADD_EVENT, (*partition, revision, 0, actor.moment, actor.key_id, kind, subject, detail))


async def record_batch(
    tx: Transaction, partition: Partition, actor: Actor, change_set: int, ids_by_kind: Mapping[str, list[int]]
) -> None:
    """Store one event for a batch. `change_set` is its edit revision, `ids_by_kind` are the listings that it edited."""
    revisions = await tx.get(Revisions, sql.GET_REVISIONS, partition)
    detail = encode_detail({kind: ids for kind, ids in ids_by_kind.items() if ids})
    await record_edit(tx, partition, revisions.revision, actor, "batch", detail, change_set)


async def record_import(
    tx: Transaction, key: ImportKey, before: ImportProgress, outcomes: Sequence[RowOutcome], actor: Actor
) -> None:
    """Store the totals of an import in one event, which has the revision of the import's first edit.

    `before` is the progress before this batch.
    """
    partition = (key.bucket, key.account_id)
    done = count_outcomes(outcomes)
    names = ("created", "updated", "restored", "deleted")
    counts = {name: getattr(before, name) + done[name] for name in names}
    detail = {name: count for name, count in counts.items() if count or name in {"created", "updated"}}
    ((found, import_id),) = await tx.fetch(member_sql.GET_IMPORT_REVISION, astuple(key))
    if found is not None and (await tx.fetch(member_sql.SET_EVENT_DETAIL, (*partition, found, encode_detail(detail)))):
        return
    revision = (await tx.get(Revisions, sql.GET_REVISIONS, partition)).revision
    await record_edit(tx, partition, revision, actor, "import", encode_detail(detail), import_id or 0)
    await tx.fetch(member_sql.SET_IMPORT_REVISION, (*astuple(key), revision))


def encode_detail(detail: object) -> str:
    """Return the detail of an event as JSON."""
    return "" if detail is None else msgspec.json.encode(detail).decode()
