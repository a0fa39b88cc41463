"""Find the changes that a revert undoes, and plan its writes. The scripts only read."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from listings.contract.reverts import Candidate, RevertPosition, RevertRequest, RevertScan
from listings.domain import timestamps
from listings.domain.account_limits import NO_GROWTH, AccountLimits, AccountSize, measure_growth
from listings.domain.errors import Problem
from listings.domain.external_ids import find_claimed
from listings.domain.model import MAX_ID, Listing
from listings.domain.reverts import (
    CREATION_FIELDS,
    Conflict,
    Edit,
    EditKey,
    RevertPlan,
    RevertScope,
    leave_all,
    leave_external_id,
    list_needed,
    plan_revert,
)
from listings.store import change_sql, sql
from listings.store.change_reads import build_values, find_single_creates
from listings.store.mapping import Partition, Row, build_listing
from listings.store.reverts import sql as revert_sql
from listings.store.scripts.changes import MARKER_INTERVAL, decode_ids
from listings.store.scripts.script import Query, QueryMany, Script

_MAX_ROWS = 1024  # of changes, and change sets without a row, in one scan
_CLOCK_SECONDS = 60  # by which the clocks of machines may differ
_MAX_EDITS = 2_000  # per listing
_MAX_BYTES = 4 * 1024 * 1024  # of values and edits, and characters of texts, in memory at a time
_EDIT_BYTES = 200  # of an edit without its values
_CHUNK = 20  # listings whose edits are in memory at a time
_END_OF_SET = -MAX_ID  # below the numbers of all changes of a change set


class PlanOptions(NamedTuple):
    """What to plan: the change sets to revert, the current Unix time, and the limits of the account."""

    scope: RevertScope
    limits: AccountLimits
    now: int


class Planned(NamedTuple):
    """A listing, its plan, and the external id that the changes take."""

    listing: Listing
    plan: RevertPlan
    claimed: str | None

    @property
    def held(self) -> str | None:
        """The external id that the listing has, unless it is deleted."""
        return None if self.listing.deleted_at is not None else self.listing.external_id

    @property
    def frees(self) -> bool:
        """Whether the changes free that external id."""
        changes = self.plan.changes
        return changes.get("deleted_at") is not None or changes.get("external_id", self.held) != self.held


class Plans(NamedTuple):
    """The plans of the first `done` candidates, and the growth of the account by them."""

    planned: list[Planned]
    done: int
    growth: AccountSize


class _EditedListing(NamedTuple):
    """A listing to be planned, with its edits, newest first, and the edits whose values are needed.

    `short` has the fields and the values of edits, also of other listings, whose values are so short that they are read
    with the edits.
    """

    listing: Listing
    edits: Sequence[Edit]
    needed: set[EditKey]
    short: Mapping[EditKey, tuple[str, str]]

    @property
    def size(self) -> int:
        """Bytes of the edits and the needed values, and characters of the listing's texts."""
        texts = len(self.listing.title) + len(self.listing.content) + len(self.listing.images)
        return texts + _EDIT_BYTES * len(self.edits) + sum(edit.size for edit in self.edits if edit.key in self.needed)


# The change sets


def find_scope(partition: Partition, request: RevertRequest) -> Script[RevertScope]:
    """Return the change sets that a request names. Raises Problem: change_not_found, changes_gone."""
    last, purged, _ = (yield Query(change_sql.GET_EDIT_STATE, partition))[0]
    kind, subject, since, until, overwrite = request
    if kind == "key":
        first = (yield from _find_last_row_before(partition, last, since - _CLOCK_SECONDS)) + 1
        if until is None:
            return RevertScope(kind, subject, first, last, since, overwrite=overwrite)
        end = (yield from _find_last_row_before(partition, last, until + 1 + _CLOCK_SECONDS)) + MARKER_INTERVAL
        return RevertScope(kind, subject, first, min(end, last), since, until, overwrite)
    if subject <= purged:
        raise Problem("changes_gone", f"Change set {subject} is no longer stored, so it can't be reverted")
    if kind != "change":
        heads = yield Query(revert_sql.GET_SET_HEAD, (*partition, subject))
        expected = (subject, "import" if kind == "import" else "reverted")
        if not heads or tuple(heads[0][3:]) != expected:
            raise Problem("change_not_found", f"There is no {kind} with the id {subject}")
        return RevertScope(kind, subject, subject, last, overwrite=overwrite)
    if subject > last:
        raise Problem("change_not_found", f"There is no change set with the id {subject}")
    return RevertScope(kind, subject, subject, subject, overwrite=overwrite)


def _find_last_row_before(partition: Partition, last: int, moment: int) -> Script[int]:
    """Return the last change set that has a row and is older than `moment`, or 0, by binary search."""
    low, high = 0, last
    while low < high:
        middle = (low + high + 1) // 2
        rows = yield Query(revert_sql.FIND_SET_BEFORE, (*partition, middle))
        if not rows or rows[0][1] < moment:
            low = middle
        else:
            high = rows[0][0] - 1
    rows = yield Query(revert_sql.FIND_SET_BEFORE, (*partition, low))
    return int(rows[0][0]) if rows else 0


def scan(partition: Partition, scope: RevertScope, before: RevertPosition, page_creates: str) -> Script[RevertScan]:
    """Return the next changes to revert. `page_creates` is PAGE_CREATES as the engine runs it."""
    _, purged, purged_serial = (yield Query(change_sql.GET_EDIT_STATE, partition))[0]
    first = max(scope.first, purged + 1)
    bound = (before.edit_revision, max(before.number, 1), first, _MAX_ROWS)
    rows = yield Query(revert_sql.SCAN_CHANGES, (*partition, *bound))
    has_more = len(rows) == _MAX_ROWS
    found, gaps, end = _walk(partition[0], rows, scope, before, first, has_more=has_more)
    if gaps and scope.kind in {"change", "key"}:
        creates = yield from find_single_creates(partition, gaps[::-1], purged_serial, page_creates)
        found += [
            Candidate(edit_revision, 0, listing_id)
            for listing_id, author, edit_revision, _ in creates
            if scope.kind == "change" or author == scope.subject
        ]
    latest: dict[int, Candidate] = {}
    for candidate in sorted(found, reverse=True):
        latest.setdefault(candidate.listing_id, candidate)
    is_last = end == RevertPosition(first, _END_OF_SET)
    return RevertScan(list(latest.values()), end, is_last)


def _walk(  # noqa: PLR0913 - the state of the scan
    bucket: int, rows: Sequence[Row], scope: RevertScope, before: RevertPosition, first: int, *, has_more: bool
) -> tuple[list[Candidate], list[int], RevertPosition]:
    """Return the changes in the rows, the change sets without a row (both newest first), and where the page ends."""
    found: list[Candidate] = []
    gaps: list[int] = []
    previous = before.edit_revision
    for edit_revision, group in groupby(rows, lambda row: int(row[0])):
        gaps += range(previous - 1, edit_revision, -1)
        if len(gaps) > _MAX_ROWS:
            return found, gaps, RevertPosition(edit_revision + 1, _END_OF_SET)
        for row in group:
            if scope.includes(edit_revision, row[3], row[4], row[5]):
                found += [one for one in _expand(bucket, row) if one[:2] < before]
        previous = edit_revision
    if has_more and rows[0][0] != previous:  # end with a whole change set, if there is one
        found = [one for one in found if one.edit_revision != previous]
        return found, gaps, RevertPosition(previous + 1, _END_OF_SET)
    if has_more:
        number = int(rows[-1][1])
        return found, gaps, RevertPosition(previous, number if number > 0 else _END_OF_SET)
    gaps += range(min(previous - 1, scope.last), first - 1, -1)
    return found, gaps, RevertPosition(first, _END_OF_SET)


def _expand(bucket: int, row: Row) -> Iterator[Candidate]:
    """Yield the changes of a row: one of a listing, or all creates of the change set."""
    edit_revision, number, listing_id, *_, serials, takes_external_id = row
    if listing_id:
        yield Candidate(edit_revision, number, listing_id, bool(takes_external_id))
        return
    for index, created_id in enumerate(decode_ids(serials, bucket), 1):
        yield Candidate(edit_revision, -index, created_id)


# The plans


def plan(partition: Partition, candidates: Sequence[Candidate], options: PlanOptions) -> Script[Plans]:
    """Plan the revert of some listings. The caller must lock them first if it writes the plans."""
    planned: list[Planned] = []
    done = size = 0
    for start in range(0, len(candidates), _CHUNK):
        chunk = candidates[start : start + _CHUNK]
        cases = yield from _read_cases(partition, options.scope, chunk)
        fitting: list[_EditedListing] = []
        for candidate in chunk:
            case = cases.get(candidate.listing_id)
            size += 0 if case is None else case.size
            if size > _MAX_BYTES and done:
                break
            done += 1
            if case is not None and (yield from _is_last_reverted(partition[0], options.scope, candidate, case.edits)):
                fitting.append(case)
        planned += yield from _plan_cases(partition, fitting, options)
        if done < start + len(chunk):
            break
    return (yield from _resolve(partition, planned, done, options))


def _read_cases(
    partition: Partition, scope: RevertScope, candidates: Sequence[Candidate]
) -> Script[dict[int, _EditedListing]]:
    keys = [(partition[0], listing_id) for listing_id in dict.fromkeys(one.listing_id for one in candidates)]
    rows = yield QueryMany(revert_sql.GET_CREATED_LISTING, keys, revert_sql.GET_CREATED_LISTINGS)
    revisions = {row[-1] for row in rows if row[-2] is None and row[-1] is not None and row[-1] >= scope.first}
    heads = yield QueryMany(revert_sql.GET_SET_HEAD, [(*partition, one) for one in sorted(revisions)])
    batches = {head[0]: head[1:4] for head in heads}
    wanted = [(*key, scope.first, _MAX_EDITS + 1) for key in keys]
    edits = yield QueryMany(revert_sql.LIST_EDITS, wanted, revert_sql.LIST_EDITS_OF_LISTINGS)
    by_listing: dict[int, list[Edit]] = {}
    short: dict[EditKey, tuple[str, str]] = {}
    for listing_id, edit_revision, number, moment, author, group, kind, fields, size, values in edits:
        is_reverted = scope.includes(edit_revision, moment, author, group)
        edit = Edit(edit_revision, number, fields.split(","), is_reverted, kind == "reverted", size)
        by_listing.setdefault(listing_id, []).append(edit)
        if values is not None:
            short[edit.key] = fields, values
    cases = {}
    for *columns, author, edit_revision in rows:
        listing = build_listing(columns)
        found = by_listing.get(listing.id, [])
        if edit_revision is not None and edit_revision >= scope.first and len(found) <= _MAX_EDITS:
            moment = timestamps.parse_timestamp(listing.created_at)
            origin = batches.get(edit_revision, (moment, author, None))
            found.append(_build_creation(edit_revision, is_reverted=scope.includes(edit_revision, *origin)))
        needed = list_needed(found) if len(found) <= _MAX_EDITS else set()
        cases[listing.id] = _EditedListing(listing, found, needed, short)
    return cases


def _build_creation(edit_revision: int, *, is_reverted: bool) -> Edit:
    return Edit(edit_revision, 0, CREATION_FIELDS, is_reverted, is_creation=True)


def _is_last_reverted(bucket: int, scope: RevertScope, candidate: Candidate, edits: Sequence[Edit]) -> Script[bool]:
    """Return whether this is the newest edit of the listing that the revert undoes: the listing is planned with it."""
    last = next((edit for edit in edits if edit.is_reverted), None)
    if last is not None:
        return last.key == (candidate.edit_revision, max(candidate.number, 0))
    return len(edits) > _MAX_EDITS and not (yield from _has_newer(bucket, scope, candidate))


def _has_newer(bucket: int, scope: RevertScope, candidate: Candidate) -> Script[bool]:
    """Return whether a later change set that the revert undoes has changed the listing."""
    values = (bucket, candidate.listing_id, candidate.edit_revision, scope.last, scope.subject)
    if scope.kind == "key":
        return bool((yield Query(revert_sql.FIND_NEWER_EDIT_OF_KEY, (*values, scope.since, scope.until))))
    return bool((yield Query(revert_sql.FIND_NEWER_EDIT_OF_GROUP, values)))


def _plan_cases(partition: Partition, cases: Sequence[_EditedListing], options: PlanOptions) -> Script[list[Planned]]:
    values = {key: build_values(*case.short[key])[0] for case in cases for key in case.needed if key in case.short}
    keys = sorted(set[EditKey]().union(*(case.needed for case in cases)) - values.keys())
    rows = yield QueryMany(revert_sql.GET_EDIT_VALUES, [(*partition, *key) for key in keys])
    values |= {(row[0], row[1]): build_values(*row[2:])[0] for row in rows}
    overwrite = options.scope.overwrite
    return [
        _build_planned(
            listing,
            plan_revert(listing, edits, values, options.now, overwrite=overwrite)
            if len(edits) <= _MAX_EDITS
            else RevertPlan({}, [Conflict("too_many_changes", ())]),
        )
        for listing, edits, *_ in cases
    ]


def _build_planned(listing: Listing, plan: RevertPlan) -> Planned:
    return Planned(listing, plan, find_claimed(listing, plan.changes))


def _resolve(partition: Partition, planned: Sequence[Planned], done: int, options: PlanOptions) -> Script[Plans]:
    """Leave out changes that would clash with other listings' external ids, or exceed the account's limits.

    Listings that take no external id come first, since they may make room.
    """
    ordered = sorted(planned, key=lambda one: one.claimed is not None)
    names = sorted({one.claimed for one in ordered if one.claimed is not None})
    rows = yield QueryMany(sql.FIND_EXTERNAL_ID, [(*partition, name) for name in names])
    state = yield Query(sql.GET_ACCOUNT_SIZE, partition)
    holders, size = {str(row[1]): int(row[0]) for row in rows}, AccountSize(*state[0][:2])
    resolved, growth = _check_plans(ordered, holders, size, options)
    while resolved != ordered:  # a listing that is left out keeps the external id that another one takes
        ordered = resolved
        resolved, growth = _check_plans(ordered, holders, size, options)
    return Plans(resolved, done, growth)


def _check_plans(
    planned: Sequence[Planned], holders: Mapping[str, int], size: AccountSize, options: PlanOptions
) -> tuple[list[Planned], AccountSize]:
    """Return the plans without the changes that are impossible if all others are written, and their growth.

    `holders` are the ids of listings by external id, and `size` is the size of the account.
    """
    freed = {one.listing.id for one in planned if one.frees}
    taken = {name: holder for name, holder in holders.items() if holder not in freed}
    checked: list[Planned] = []
    total = NO_GROWTH
    for one in planned:
        listing, plan, claimed = one
        if claimed is not None and taken.get(claimed, listing.id) != listing.id:
            plan = leave_external_id(plan, listing, taken[claimed], options.now)
        growth = measure_growth(listing, plan.changes)
        try:
            options.limits.require_room(size.add(total), growth)
        except Problem:
            plan, growth = leave_all(plan, "account_full"), NO_GROWTH
        total = total.add(growth)
        checked.append(one if plan is one.plan else _build_planned(listing, plan))
        if checked[-1].claimed is not None:
            taken[checked[-1].claimed] = listing.id
    return checked, total
