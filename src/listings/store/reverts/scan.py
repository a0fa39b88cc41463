"""Find the change sets that a revert undoes, and the listings that they change. The scripts only read."""

from collections.abc import Sequence

from listings.domain import timestamps
from listings.domain.changes import GroupOfChanges
from listings.domain.errors import Problem
from listings.domain.reverts import (
    Candidate,
    ChangeSource,
    FoundScope,
    RevertPosition,
    RevertRequest,
    RevertScope,
    RevertStep,
)
from listings.store import change_groups, change_sql
from listings.store.change_reads import find_last_row_before, find_single_creates, list_used, require_time
from listings.store.change_sql import Span
from listings.store.mapping import ChangeState, Partition
from listings.store.reverts import sql as revert_sql
from listings.store.reverts.sql import ScannedRow
from listings.store.scripts.changes import MARKER_INTERVAL, decode_ids
from listings.store.scripts.script import Transaction

_MAX_ROWS = 1024  # of changes, and change sets without a row, in one scan
_CLOCK_SECONDS = 60  # by which the clocks of machines may differ


async def find_scope(tx: Transaction, partition: Partition, request: RevertRequest) -> FoundScope:
    """Return the change sets that a request names. Raises Problem: change_not_found, changes_gone, revert_running."""
    state = await tx.get(ChangeState, change_sql.GET_EDIT_STATE, partition)
    last, purged = state.edit_revision, state.purged_revision
    lost = await tx.fetch(change_sql.LIST_LOST_CHANGES, partition)
    kind, subject, overwrite = request.kind, request.subject, request.overwrite
    if kind == "key":
        require_time(request.since, purged, state.purged_at)
        return await _find_key_scope(tx, partition, request, last, purged, lost), None
    if kind == "change" and isinstance(subject, int):
        require_retained(subject, purged, lost)
        if subject > last:
            raise Problem("change_not_found", f"There is no change set with the id {subject}")
        return RevertScope(kind, subject, subject, subject, overwrite=overwrite), None
    if kind == "revert":
        rows = await tx.fetch(revert_sql.GET_GROUP_OF_REVERT, (*partition, subject))
        earlier, finished_at = rows[0] if rows else (0, 0)
        if finished_at is None:
            raise Problem("revert_running", f"Revert {subject} is not finished: try again later")
        if earlier is None:
            return RevertScope(kind, 0, last + 1, last, overwrite=overwrite), None
        group = (await _find_group(tx, partition, "reverted", earlier, purged, lost)) if rows else None
    elif isinstance(subject, str) and not subject.startswith("#"):
        group = await tx.find(GroupOfChanges, change_groups.FIND_GROUP, (*partition, subject))
    else:
        group_kind = "import" if kind == "import" else "bulk"
        group = await _find_group(tx, partition, group_kind, int(str(subject).removeprefix("#")), purged, lost)
    if group is None:
        name = "name" if kind == "group" else "id"
        raise Problem("change_not_found", f"There is no {kind} with the {name} {subject}")
    require_retained(group.id, purged, lost)
    times = (group.started_at, group.ended_at)
    return RevertScope(kind, group.id, group.id, group.last_id, overwrite=overwrite), times


async def _find_group(
    tx: Transaction, partition: Partition, kind: str, group_id: int, purged: int, lost: Sequence[Span]
) -> GroupOfChanges | None:
    require_retained(group_id, purged, lost)
    group = await tx.find(GroupOfChanges, change_groups.GET_GROUP, (*partition, group_id))
    return group if group is not None and group.kind == kind else None


def require_retained(subject: int, purged: int, lost: Sequence[Span]) -> None:
    """Raise Problem("changes_gone") if a change set was deleted. `lost`: the first and the last of ids without one."""
    if subject <= purged or not list_used(subject, subject, lost):
        raise Problem("changes_gone", f"Change set {subject} is no longer stored, so it can't be reverted")


async def _find_key_scope(
    tx: Transaction, partition: Partition, request: RevertRequest, last: int, purged: int, lost: Sequence[Span]
) -> RevertScope:
    kind, subject, since, until, overwrite = request
    before = await find_last_row_before(tx, partition, last, since - _CLOCK_SECONDS)
    values = (*partition, subject, timestamps.format_timestamp(since), before)
    ((earlier,),) = await tx.fetch(revert_sql.FIND_FIRST_CREATE, values)  # with a clock that was ahead
    first = max(purged + 1, before + 1 if earlier is None else earlier)
    if until is None:
        return RevertScope(kind, int(subject), first, last, since, overwrite=overwrite)
    row = await find_last_row_before(tx, partition, last, until + 1 + _CLOCK_SECONDS)
    end = row + MARKER_INTERVAL + sum(end - start + 1 for start, end in lost if end > row)
    return RevertScope(kind, int(subject), first, min(end, last), since, until, overwrite)


async def scan(tx: Transaction, partition: Partition, scope: RevertScope, start: RevertPosition) -> RevertStep:
    """Return the next listings of a revert: those of whole change sets."""
    state = await tx.get(ChangeState, change_sql.GET_EDIT_STATE, partition)
    first = max(scope.first, state.purged_revision + 1)
    lost = (await tx.fetch(change_sql.LIST_LOST_CHANGES, partition)) if first <= state.lost_revision else []
    high = start.edit_revision
    low = high - _MAX_ROWS + 1
    for first_lost, last_lost in reversed(lost):  # so that change sets used at most _MAX_ROWS of the ids
        if low <= last_lost and first_lost <= high:
            low -= min(high, last_lost) - first_lost + 1
    low = max(first, low)
    rows, low = await _read_whole_sets(tx, partition, scope, high, low)
    found: list[Candidate] = []
    created: dict[int, int] = {}
    for edit_revision, number, listing_id, serials, moment, actor, kind, group_id, is_newest in rows:
        if is_newest and listing_id:
            found.append(Candidate(RevertPosition(edit_revision, number), listing_id))
        source = ChangeSource(edit_revision, moment, actor, kind, group_id)
        if not (number or listing_id) and scope.includes(source):
            created |= dict.fromkeys(decode_ids(serials or "[]", partition[0]), edit_revision)
    stored = {edit_revision for edit_revision, *_ in rows}
    gaps = [number for number in list_used(low, high, lost) if number not in stored]
    if gaps and scope.kind in {"change", "key"}:
        for one in await find_single_creates(tx, partition, gaps, state.purged_serial):
            if scope.kind == "change" or one.author == scope.subject:
                created[one.listing_id] = one.edit_revision
    wanted = [(partition[0], *one, scope.last, scope.subject, scope.since, scope.until) for one in created.items()]
    newer = {one for (one,) in await tx.fetch_each(revert_sql.FIND_NEWER[scope.kind], wanted)}
    found += [Candidate(RevertPosition(created[one], -one), one) for one in created.keys() - newer]
    rest = [one for one in sorted(found, reverse=True) if one.position < start]
    return RevertStep(start, rest, RevertPosition(low - 1), low <= first)


async def _read_whole_sets(
    tx: Transaction, partition: Partition, scope: RevertScope, high: int, low: int
) -> tuple[list[ScannedRow], int]:
    # Returns the rows from `low` to `high`, or of the last sets, and the oldest of these sets.
    limit = _MAX_ROWS
    while True:
        values = (high, low, limit, scope.last, scope.subject, scope.since, scope.until)
        rows = await tx.fetch(revert_sql.SCANS[scope.kind], (*partition, *values))
        if len(rows) < limit:
            return rows, low
        (newest, *_), (oldest, *_) = rows[0], rows[-1]  # the oldest may have further rows
        if newest != oldest:
            return [row for row in rows if row[0] != oldest], oldest + 1
        limit *= 2
