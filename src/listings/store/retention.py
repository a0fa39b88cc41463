"""Delete the oldest history of an account: change sets, and rows of deleted listings (decisions G11, G39, G45).

A row goes only when no stored change set names its listing, in the transaction that removes it from the indexes. So the
feed, the histories and reverts of the stored change sets always find the listings that they need.
"""

import time
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import NamedTuple

from listings.domain.account_limits import DELETED_BYTES, UNLIMITED
from listings.domain.model import MAX_ID
from listings.store import change_groups, change_sql, member_sql
from listings.store.mapping import Partition
from listings.store.market import stamps
from listings.store.query import Command, Query
from listings.store.reverts import sql as revert_sql
from listings.store.scripts.changes import MAX_AHEAD_SECONDS, settle_moment
from listings.store.scripts.engine import Engine
from listings.store.scripts.script import Transaction
from listings.store.sql import TEXT_BYTES

_MAX_SETS = 50  # in one transaction, and further limits of it
_MAX_CHANGES = 300
_MAX_BYTES = 4 * 1024 * 1024
_MAX_LISTINGS = 200

FIND_OLD_ACCOUNTS = Query[tuple[int]]("""
SELECT account_id FROM account_state AS state
WHERE bucket = $1 AND (edited_at > $4 OR (
    SELECT moment FROM changes WHERE bucket = $1 AND changes.account_id = state.account_id
    ORDER BY changes.edit_revision, number LIMIT 1) < $2 OR (
    SELECT deleted_at FROM listings
    WHERE bucket = $1 AND listings.account_id = state.account_id AND deleted_at > 0
    ORDER BY deleted_at LIMIT 1) < $3 OR EXISTS (
    SELECT 1 FROM listings
    WHERE bucket = $1 AND listings.account_id = state.account_id AND deleted_at > 0 AND deleted_at > $4) OR EXISTS (
    SELECT 1 FROM reverts
    WHERE bucket = $1 AND reverts.account_id = state.account_id AND group_id IS NULL AND finished_at > 0
        AND started_at < $2))
""")
_SET_BACK_DELETIONS = Command("""
UPDATE listings SET deleted_at = $3 WHERE bucket = $1 AND account_id = $2 AND deleted_at > 0 AND deleted_at > $3
""")
LIST_LARGE_ACCOUNTS = Query[tuple[int, int, int, int, int | None, int | None, int | None]]("""
SELECT bucket, account_id, text_bytes, text_bytes + history_bytes, max_listings, max_text_bytes, max_stored_bytes
FROM account_state
WHERE history_bytes > 0
    AND (text_bytes + history_bytes > $1 OR max_text_bytes IS NOT NULL OR max_stored_bytes IS NOT NULL)
""")
_LOCK_MARKET = Query[tuple[int]]("SELECT id FROM market_indexer WHERE id = 1")
_GET_STATE = Query[tuple[int, int, int, int, int | None, int | None, int | None]]("""
SELECT purged_revision, edited_at, text_bytes, history_bytes, max_listings, max_text_bytes, max_stored_bytes
FROM account_state WHERE bucket = $1 AND account_id = $2
""")
OLDEST_SETS = Query[tuple[int, int, int, int, int]](f"""
SELECT edit_revision, max(moment), max(last_serial), count(*), sum({change_sql.STORED_BYTES}) FROM changes
WHERE bucket = $1 AND account_id = $2
GROUP BY edit_revision ORDER BY edit_revision LIMIT $3
""")
_DELETE_CHANGES = Command("DELETE FROM changes WHERE bucket = $1 AND account_id = $2 AND edit_revision <= $3")
_DELETE_BATCH_EVENTS = Command(f"""
DELETE FROM activity WHERE bucket = $1 AND account_id = $2 AND kind = 'batch' AND subject <= $3 AND revision <= (
    SELECT max(revision) FROM (
        SELECT revision FROM activity WHERE bucket = $1 AND account_id = $2 AND kind = 'batch'
        ORDER BY revision LIMIT {_MAX_SETS}) AS oldest)
""")
_SET_PURGED = Command("""
UPDATE account_state SET purged_revision = $3, purged_serial = $4, purged_at = $5
WHERE bucket = $1 AND account_id = $2 AND purged_revision < $3
""")
LIST_DELETED = Query[tuple[int, int, int]](f"""
SELECT id, version, bytes FROM (
    SELECT id, version, edit_revision, deleted_at, {DELETED_BYTES} + {TEXT_BYTES} AS bytes FROM listings
    WHERE bucket = $1 AND account_id = $2 AND deleted_at > 0 AND deleted_at <= $3
    ORDER BY deleted_at, id LIMIT $5) AS oldest
WHERE COALESCE(edit_revision, 0) <= $4 AND NOT EXISTS (
    SELECT 1 FROM changes WHERE changes.bucket = $1 AND listing_id = oldest.id AND listing_id <> 0)
ORDER BY deleted_at, id
""")
_REMOVE_LISTING = Query[tuple[int, int]](f"""
DELETE FROM listings WHERE bucket = $1 AND id = $2 AND version = $3 RETURNING id, {DELETED_BYTES} + {TEXT_BYTES}
""")
_COUNT_REMOVED = Command("""
UPDATE account_state SET revision = revision + 1, listings = listings - $3, history_bytes = history_bytes - $4
WHERE bucket = $1 AND account_id = $2
""")


class _StoredSet(NamedTuple):
    edit_revision: int
    moment: int
    last_serial: int
    changes: int
    bytes: int


class Cutoffs(NamedTuple):
    """The Unix times before which change sets and deleted listings are old. A time after `latest` is a wrong one."""

    changes: int
    listings: int = 0
    latest: int = MAX_ID


async def purge(tx: Transaction, engine: Engine, partition: Partition, cutoffs: Cutoffs, max_sets: int) -> int:
    """Delete the account's old change sets, at most `max_sets`, and old rows of listings. Return how many.

    Finished reverts of that time are deleted, too.
    """
    await tx.fetch(_LOCK_MARKET, (), locks=True)  # before the account, as an index step locks them
    ((purged, edited_at, *_),) = await tx.fetch(_GET_STATE, partition, locks=True)
    if edited_at > cutoffs.latest:
        await settle_moment(tx, partition, cutoffs.latest - MAX_AHEAD_SECONDS, edited_at)
    await tx.fetch(_SET_BACK_DELETIONS, (*partition, cutoffs.latest))
    stored = await _list_sets(tx, partition, max_sets)
    old = list(takewhile(lambda one: one.moment < cutoffs.changes, stored))
    if old:
        await _remove_sets(tx, partition, old)
        purged = max(purged, old[-1].edit_revision)
    await _remove_reverts(tx, partition, purged, cutoffs.changes)
    return len(old) + (await _remove_listings(tx, engine, partition, cutoffs.listings - 1, purged))


async def forget(tx: Transaction, engine: Engine, partition: Partition, count: int) -> bool:
    """Delete a part of the history of an account, and rows of deleted listings. Return whether there were any."""
    await tx.fetch(_LOCK_MARKET, (), locks=True)
    await tx.fetch(_GET_STATE, partition, locks=True)
    erased = [row for one in member_sql.ERASE_HISTORY for row in await tx.fetch(one, (*partition, count - 1))]
    if not erased:
        await tx.fetch(revert_sql.ERASE_REVERTS, partition)
        for erase in (revert_sql.ERASE_CONFLICTS, change_sql.ERASE_CHANGES):
            erased += await tx.fetch(erase, partition)
        for statement in (change_groups.ERASE_GROUPS, member_sql.DELETE_IDEMPOTENCY_RECORDS):
            await tx.fetch(statement, partition)
    await tx.fetch(change_sql.FORGET_CHANGES, (*partition, sum(size for (size,) in erased)))
    return bool(await _remove_listings(tx, engine, partition, MAX_ID, MAX_ID)) or bool(erased)


async def shrink(tx: Transaction, engine: Engine, partition: Partition) -> bool:
    """Delete the oldest part of the history of an account that is over its budget. Return whether it was.

    Listings that were deleted before the oldest stored change set go first, and those that a change set deleted go with
    it, and finished reverts that go with their first change set or, if they changed nothing, with those of their time.
    Return False if nothing can be deleted for now.
    """
    await tx.fetch(_LOCK_MARKET, (), locks=True)
    ((purged, _, text_bytes, history_bytes, *own),) = await tx.fetch(_GET_STATE, partition, locks=True)
    excess = text_bytes + history_bytes - engine.limits.override(own).compute_budget(text_bytes)
    if excess <= 0:
        return False
    stored = await _list_sets(tx, partition, _MAX_SETS + 1)
    before = stored[0].moment if stored else MAX_ID
    if await _remove_listings(tx, engine, partition, before, purged, excess):
        return True
    limits = (min(excess, _MAX_BYTES), (one.bytes for one in stored)), (_MAX_CHANGES, (one.changes for one in stored))
    count = min(_MAX_SETS, *(_count_until(limit, sizes) for limit, sizes in limits))
    if not count:
        return not stored and (await _remove_reverts(tx, partition, purged, MAX_ID))
    await _remove_sets(tx, partition, stored[:count])
    await tx.fetch(_DELETE_BATCH_EVENTS, (*partition, stored[count - 1].edit_revision))
    before = stored[count].moment if count < len(stored) else MAX_ID
    await _remove_reverts(tx, partition, stored[count - 1].edit_revision, before)
    await _remove_listings(tx, engine, partition, before, stored[count - 1].edit_revision)
    return True


async def _list_sets(tx: Transaction, partition: Partition, count: int) -> list[_StoredSet]:
    # Without those that an unfinished revert needs.
    reverts = await tx.fetch(revert_sql.FIND_UNFINISHED_REVERT, partition)
    needed = next((first for _, first in reverts), MAX_ID)
    stored = [_StoredSet(*row) for row in await tx.fetch(OLDEST_SETS, (*partition, count))]
    return [one for one in stored if one.edit_revision < needed]


async def _remove_sets(tx: Transaction, partition: Partition, sets: Sequence[_StoredSet]) -> None:
    last = sets[-1].edit_revision
    await tx.fetch(_DELETE_CHANGES, (*partition, last))
    await tx.fetch(_SET_PURGED, (*partition, last, max(one.last_serial for one in sets), sets[-1].moment))
    await tx.fetch(change_groups.PURGE_GROUPS, (*partition, last))
    await tx.fetch(change_sql.ADD_HISTORY_BYTES, (*partition, -sum(one.bytes for one in sets)))


async def _remove_reverts(tx: Transaction, partition: Partition, purged: int, before: int) -> bool:
    # Those whose first change set is deleted, or that changed nothing before `before`. Returns if they had conflicts.
    conflicts = await tx.fetch(revert_sql.PURGE_CONFLICTS, (*partition, purged, before))
    await tx.fetch(revert_sql.PURGE_REVERTS, (*partition, purged, before))
    if conflicts:
        await tx.fetch(change_sql.ADD_HISTORY_BYTES, (*partition, -sum(size for (size,) in conflicts)))
    return bool(conflicts)


async def _remove_listings(
    tx: Transaction, engine: Engine, partition: Partition, before: int, purged: int, max_bytes: int = UNLIMITED
) -> int:
    # `purged`: the last deleted change set. Entries of the market become tombstones.
    if before < 0:
        return 0
    rows = await tx.fetch(LIST_DELETED, (*partition, before, purged, _MAX_LISTINGS))
    rows = rows[: _count_until(max_bytes, [size for _, _, size in rows])]
    keys = [(partition[0], listing_id, version) for listing_id, version, _ in rows]
    removed = await tx.fetch_many(_REMOVE_LISTING, sorted(keys))
    if removed:
        ids = [listing_id for listing_id, _ in removed]
        await engine.remove_words(tx, partition[0], ids)
        await stamps.remove(tx, ids, time.time())
        await tx.fetch(_COUNT_REMOVED, (*partition, len(ids), sum(size for _, size in removed)))
    return len(removed)


def _count_until(limit: int, sizes: Iterable[int]) -> int:
    total = count = 0
    for size in sizes:
        if total >= limit:
            break
        total, count = total + size, count + 1
    return count
