"""Find change sets by their time. Every script must run in a snapshot."""

from listings.domain import timestamps
from listings.domain.errors import Problem
from listings.store import change_sql
from listings.store.change_reads import find_single_creates, list_used
from listings.store.mapping import Partition
from listings.store.scripts.script import Transaction


def require_time(moment: int, purged: int, purged_at: int) -> None:
    """Raise Problem("changes_gone") if change sets since `moment` were deleted: `purged` and those before it."""
    if purged and moment <= purged_at:
        oldest = timestamps.format_timestamp(purged_at + 1)
        raise Problem("changes_gone", f"Changes before {oldest} are no longer stored: give a later time")


async def find_last_row_before(tx: Transaction, partition: Partition, last: int, moment: int) -> int:
    """Return the last change set that has a row and is older than `moment`, or 0, by binary search."""
    low, high = 0, last
    while low < high:
        middle = (low + high + 1) // 2
        rows = await tx.fetch(change_sql.FIND_SET_BEFORE, (*partition, middle))
        if not rows or rows[0][1] < moment:
            low = middle
        else:
            high = rows[0][0] - 1
    rows = await tx.fetch(change_sql.FIND_SET_BEFORE, (*partition, low))
    return int(rows[0][0]) if rows else 0


async def find_last_before(tx: Transaction, partition: Partition, moment: int, page_creates: str) -> int:
    """Return the last change set that is older than `moment`. Raises Problem("changes_gone")."""
    last, purged, _, purged_serial, purged_at = (await tx.fetch(change_sql.GET_EDIT_STATE, partition))[0]
    require_time(moment, purged, purged_at)
    row = max((await find_last_row_before(tx, partition, last, moment)), purged)
    following = await tx.fetch(change_sql.FIND_SET_AFTER, (*partition, row))
    end = int(following[0][0]) if following else last + 1
    gaps = list_used(row + 1, end - 1, (await tx.fetch(change_sql.LIST_LOST_CHANGES, partition)))
    creates = await find_single_creates(tx, partition, gaps, purged_serial, page_creates)
    times = await tx.fetch_many(change_sql.GET_CREATION_TIME, [(partition[0], create[0]) for create in creates])
    for create, (created_at,) in zip(creates, times, strict=True):
        if timestamps.parse_timestamp(created_at) >= moment:
            return int(create[2] or 0) - 1
    return end - 1
