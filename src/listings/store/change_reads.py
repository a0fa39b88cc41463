"""Read change sets. Every script must run in a snapshot."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby, islice
from types import MappingProxyType
from typing import NamedTuple, TypeAlias, TypeVar

import msgspec

from listings.domain import timestamps
from listings.domain.changes import END, Change, ChangePage, ChangePosition, EditState, ListingChangePage
from listings.domain.errors import Problem
from listings.domain.fields import FIELDS
from listings.domain.listings import MAX_LIST_BYTES, ROW_BYTES
from listings.domain.model import BUCKETS, ListingChange, Value, bucket_of
from listings.store import change_sql
from listings.store.change_sql import ChangeRow, CreatedListing, LaterEdit, MeasuredChange, Span
from listings.store.mapping import ChangeState, Partition, build_listing
from listings.store.scripts.changes import decode_ids, find_updated_at, join_value
from listings.store.scripts.script import Transaction

T = TypeVar("T")

_MAX_ROWS = 1024  # measured at a time
_MAX_PARTS = 16  # of MAX_LIST_BYTES, which are read and converted one after the other
_MAX_BUILT = 200  # changes read at a time: about 1.5 ms of the event loop on PostgreSQL
_CHANGE_BYTES = 200  # bytes that are counted for a change in addition to its values
_CREATED_ATTRIBUTES = (*(field.attribute for field in FIELDS.values()), "created_at", "updated_at", "deleted_at")
_MAX_CREATES = 64  # whose later edits are read at a time
_MAX_LATER_EDITS = 20_000  # of the listings that a page creates, after which it ends

EditKey: TypeAlias = tuple[int, int]
NO_EDITS: Mapping[str, EditKey] = MappingProxyType({})

_decode_values = msgspec.json.Decoder(list[list[Value]]).decode


class _Entry(NamedTuple):
    # A change that was found but not read yet. `first_edits`: of a created listing, the first later edit of each field.
    # The number of a create is 0 if its change set has no row, and otherwise -n, ..., -1 in the order of creation.
    edit_revision: int
    number: int
    listing_id: int
    size: int
    is_create: bool
    first_edits: Mapping[str, EditKey] = NO_EDITS


class SingleCreate(NamedTuple):
    """A change set that exists only as the listing that it created: the listing, its author, and its bytes."""

    listing_id: int
    author: int
    edit_revision: int
    size: int


async def read_page(tx: Transaction, partition: Partition, after: ChangePosition, last: int) -> ChangePage:
    """Return a page of the account's changes."""
    state = await tx.get(ChangeState, change_sql.GET_EDIT_STATE, partition)
    is_split = after.number != END
    EditState(state.edit_revision, state.purged_revision).require_retained(after.edit_revision - is_split)
    has_lost = after.edit_revision < state.lost_revision
    lost = (await tx.fetch(change_sql.LIST_LOST_CHANGES, partition)) if has_lost else []
    last = min(last, state.edit_revision)
    rows = await tx.fetch(change_sql.MEASURE_CHANGES, (*partition, *after, last, _MAX_ROWS))
    has_more_rows = len(rows) == _MAX_ROWS
    if has_more_rows:
        last = rows[-1][0]
    found, gaps, last = _arrange(partition[0], rows, after, last, lost)
    creates = await find_single_creates(tx, partition, gaps, state.purged_serial)
    found += [_Entry(one.edit_revision, 0, one.listing_id, one.size + ROW_BYTES, is_create=True) for one in creates]
    entries = await _measure_creates(tx, partition, found)
    kept = await _find_first_edits(tx, partition, entries)
    if len(kept) < len(entries):
        last, has_more_rows = kept[-1].edit_revision, True
    entries, end = _cut(kept, last, is_complete=not has_more_rows)
    changes: list[Change] = []
    for start in range(0, len(entries), _MAX_BUILT):
        changes += await _read_slice(tx, partition, entries[start : start + _MAX_BUILT])
    return ChangePage(changes, end, state.edit_revision)


def _arrange(
    bucket: int, rows: Sequence[MeasuredChange], after: ChangePosition, last: int, lost: Sequence[Span]
) -> tuple[list[_Entry], list[int], int]:
    # Returns the ids of the change sets without a row as well, and the id of the last one read.
    found: list[_Entry] = []
    gaps: list[int] = []
    next_revision = after.edit_revision + 1
    for edit_revision, group in groupby(rows, lambda row: row[0]):
        gaps += list_used(next_revision, edit_revision - 1, lost)
        found += [entry for row in group for entry in _expand(bucket, row) if entry[:2] > after]
        next_revision = edit_revision + 1
        if len(found) + len(gaps) >= _MAX_ROWS:
            return found, gaps, edit_revision
    gaps += list_used(next_revision, last, lost)
    return found, gaps, max(after.edit_revision, last)


def list_used(first: int, last: int, lost: Sequence[Span]) -> list[int]:
    """Return the ids from `first` to `last` without those that a restore skipped: `lost`, rows of LIST_LOST_CHANGES."""
    used: list[int] = []
    for first_lost, last_lost in lost:
        used += range(first, min(first_lost, last + 1))
        first = max(first, last_lost + 1)
    return [*used, *range(first, last + 1)]


def _expand(bucket: int, row: MeasuredChange) -> Iterator[_Entry]:
    edit_revision, number, listing_id, serials, size = row
    if listing_id:
        yield _Entry(edit_revision, number, listing_id, size + _CHANGE_BYTES, is_create=False)
        return
    ids = list(decode_ids(serials or "[]", bucket))
    for index, created_id in enumerate(ids):
        yield _Entry(edit_revision, index - len(ids), created_id, 0, is_create=True)


async def find_single_creates(
    tx: Transaction, partition: Partition, gaps: Sequence[int], purged_serial: int
) -> list[SingleCreate]:
    """Return the listings created by the change sets `gaps`, which have no row.

    `gaps` and the result are in ascending order.
    """
    if not gaps:
        return []
    found, missing = list[SingleCreate](), set(gaps)
    start = await tx.find(int, change_sql.FIND_START, (*partition, gaps[0] - 1))
    position = (purged_serial if start is None else start) * BUCKETS + partition[0]
    while missing:
        page = await tx.fetch(tx.page_creates, (*partition, position, _MAX_ROWS))
        for listing_id, author, edit_revision, size in page:
            if author is not None and edit_revision is not None and edit_revision in missing:
                missing.remove(edit_revision)
                found.append(SingleCreate(listing_id, author, edit_revision, size))
        if missing and len(page) < _MAX_ROWS:
            raise AssertionError(f"Account {partition[1]} lacks the change sets {sorted(missing)[:10]}")
        position = page[-1][0]
    return found


async def _measure_creates(tx: Transaction, partition: Partition, entries: list[_Entry]) -> list[_Entry]:
    entries = sorted(entries)
    unmeasured = [number for number, entry in enumerate(entries) if not entry.size]
    if unmeasured:
        keys = [(partition[0], entries[number].listing_id) for number in unmeasured]
        sizes = await tx.fetch_many(change_sql.MEASURE_LISTING, keys)
        for number, (size,) in zip(unmeasured, sizes, strict=True):
            entries[number] = entries[number]._replace(size=size + ROW_BYTES)
    return entries


async def _find_first_edits(tx: Transaction, partition: Partition, entries: Sequence[_Entry]) -> list[_Entry]:
    # Returns only some entries if all have too many later edits together.
    found: list[_Entry] = []
    total = 0
    for start in range(0, len(entries), _MAX_CREATES):
        part = entries[start : start + _MAX_CREATES]
        wanted = [(partition[0], one.listing_id, one.edit_revision, 0) for one in part if one.is_create]
        rows = (await tx.fetch_each(change_sql.LIST_LATER, wanted)) if wanted else []
        total += len(rows)
        by_listing: dict[int, list[LaterEdit]] = {}
        for row in rows:
            by_listing.setdefault(row[0], []).append(row)
        for entry in part:
            later = by_listing.get(entry.listing_id, []) if entry.is_create else []
            while later and len(later) % change_sql.MAX_LATER == 0:  # there may be more
                rest = await tx.fetch(change_sql.LIST_LATER, (partition[0], *later[-1][:2], later[-1][2] + 1))
                if not rest:
                    break
                later += rest
                total += len(rest)
            found.append(_add_first_edits(entry, later))
        if total >= _MAX_LATER_EDITS:
            break
    return found


def _add_first_edits(entry: _Entry, later: Iterable[LaterEdit]) -> _Entry:
    # `later` are the later edits of its listing, oldest first.
    first: dict[str, EditKey] = {}
    size = entry.size
    for _, edit_revision, number, fields, bytes_ in later:
        new = [name for name in fields.split(",") if name not in first]
        first |= dict.fromkeys(new, (edit_revision, number))
        size += bytes_ if new else 0
    return entry._replace(size=size, first_edits=first) if first else entry


def _cut(entries: list[_Entry], last: int, *, is_complete: bool) -> tuple[list[_Entry], ChangePosition]:
    # `is_complete`: `entries` has all of the set `last`.
    size = count = 0
    for entry in entries:
        size += entry.size
        if size > MAX_LIST_BYTES and count:
            break
        count += 1
    kept = entries[:count]
    split = entries[count].edit_revision if count < len(entries) else last
    if count == len(entries) and is_complete:
        return kept, ChangePosition(last)
    whole = [entry for entry in kept if entry.edit_revision < split]
    if whole or not kept:
        return whole, ChangePosition(split - 1)
    return kept, ChangePosition(split, kept[-1].number)


async def _read_slice(tx: Transaction, partition: Partition, entries: Sequence[_Entry]) -> list[Change]:
    first, last = entries[0], entries[-1]
    span = (first.edit_revision, first.number, last.edit_revision, max(last.number, 0))
    rows = {(row[0], row[1]): row for row in (await tx.fetch(change_sql.LIST_CHANGES, (*partition, *span)))}
    created = [(partition[0], entry.listing_id) for entry in entries if entry.is_create]
    listings = {}
    if created:
        listings = {row[0]: row for row in (await tx.fetch_many(change_sql.GET_CREATED, created))}
    values = await _read_values(tx, partition, entries)
    return [
        _build_create(entry, listings[entry.listing_id], rows.get((entry.edit_revision, 0)), values)
        if entry.is_create
        else build_change(rows[entry.edit_revision, entry.number])
        for entry in entries
    ]


async def _read_values(
    tx: Transaction, partition: Partition, entries: Iterable[_Entry]
) -> dict[EditKey, ListingChange]:
    keys = sorted({key for entry in entries for key in entry.first_edits.values()})
    rows = await tx.fetch_many(change_sql.GET_CHANGE, [(*partition, *key) for key in keys])
    return {
        (edit_revision, number): build_values(fields.split(","), detail)[0]
        for edit_revision, number, _, _, _, _, _, fields, detail, *_ in rows
    }


def build_change(row: ChangeRow) -> Change:
    """Return the change in a row of LIST_CHANGES."""
    edit_revision, number, listing_id, moment, actor, kind, group_id, fields, detail, external_id, name = row
    group = read_group(kind, group_id, name)
    before, after = build_values(fields.split(","), detail)
    return Change(edit_revision, number, listing_id, moment, actor, kind, *group, external_id, before, after)


def read_group(kind: str, group_id: int | None, name: str | None) -> tuple[int | None, str | None]:
    """Return the id of a change's import or revert, and the name of its group. `name` is the last column of a row."""
    if kind == "import":
        return group_id, None
    return (None if name is None else int(name), None) if kind == "reverted" else (None, name)


def build_values(names: Sequence[str], detail: str) -> tuple[ListingChange, ListingChange]:
    """Return the values of the changed columns before and after the change."""
    values = [join_value(*value) for value in _decode_values(detail)]
    before = {name: old for name, (old, _) in zip(names, values, strict=True)}
    return before, {name: new for name, (_, new) in zip(names, values, strict=True)}


def _build_create(
    entry: _Entry, row: CreatedListing, described: ChangeRow | None, values: Mapping[EditKey, ListingChange]
) -> Change:
    # As it was then. `described`: the row with number 0 of its change set; `values`: those from before the later edits.
    *columns, author = row
    listing = build_listing(columns)
    after = {name: getattr(listing, name) for name in _CREATED_ATTRIBUTES}
    after |= {name: values[key][name] for name, key in entry.first_edits.items()}
    moment, kind, group_id, detail, name = timestamps.parse_timestamp(listing.created_at), "created", None, "[]", None
    if described is not None:
        _, _, _, moment, author, kind, group_id, _, detail, _, name = described
    if author is None:
        raise AssertionError(f"Listing {listing.id} lacks the change set that created it")
    if entry.first_edits:
        after["updated_at"] = find_updated_at(detail, listing.id) or listing.created_at
    group = read_group(kind, group_id, name)
    edit_revision, number = entry.edit_revision, entry.number
    return Change(edit_revision, number, listing.id, moment, author, kind, *group, listing.external_id, None, after)


async def convert_first(
    tx: Transaction, partition: Partition, ids: Sequence[int], count: int, convert: Callable[[Change], T]
) -> dict[int, list[T]]:
    """Return the converted first `count` changes of each change set that has a row."""
    limit = count + 1  # the first row may only describe the change set
    sizes = await tx.fetch_many(change_sql.MEASURE_FIRST_CHANGES, [(*partition, number, limit) for number in ids])
    totals = accumulate(size + _CHANGE_BYTES for _, _, size in sizes)
    found: dict[int, list[T]] = {}
    for part, group in groupby(zip(sizes, totals, strict=True), lambda pair: int(pair[1]) // MAX_LIST_BYTES):
        if part >= _MAX_PARTS:
            break
        for row in await tx.fetch_many(change_sql.GET_CHANGE, [(*partition, *row[:2]) for row, _ in group]):
            converted = found.setdefault(row[0], [])
            converted += map(convert, islice(_build_changes(partition[0], row), count - len(converted)))
    return found


def _build_changes(bucket: int, row: ChangeRow) -> Iterator[Change]:
    edit_revision, number, listing_id, moment, actor, kind, group_id, _, detail, _, name = row
    if listing_id:
        yield build_change(row)
        return
    for created_id in decode_ids(detail, bucket):
        yield Change(
            edit_revision, number, created_id, moment, actor, kind, *read_group(kind, group_id, name), None, None, {}
        )


async def read_listing_page(tx: Transaction, listing_id: int, before: int, count: int) -> ListingChangePage:
    """Return the changes of a listing in at most `count` change sets before `before`."""
    key = (bucket_of(listing_id), listing_id)
    sizes = await tx.fetch(change_sql.MEASURE_LISTING_CHANGES, (*key, before, _MAX_ROWS))
    kept, is_complete = _cut_history(sizes, count)
    changes: list[Change] = []
    for start in range(0, len(kept), _MAX_BUILT):
        part, end = kept[start : start + _MAX_BUILT], kept[start - 1] if start else before
        rows = await tx.fetch(change_sql.LIST_LISTING_CHANGES, (*key, end, part[-1]))
        changes += [build_change(row) for row in rows]
    creation = await _read_creation(tx, key, before)
    if (is_complete and len(kept) < count) or (creation and creation[0].edit_revision in kept):
        return ListingChangePage(changes + creation, more=False)
    return ListingChangePage(changes, more=bool(creation) or not is_complete)


def _cut_history(rows: Sequence[tuple[int, int, int]], count: int) -> tuple[list[int], bool]:
    # Returns whether there are no further rows, too.
    size, kept = 0, list[int]()
    for edit_revision, group in groupby(rows, lambda row: row[0]):
        size += sum(bytes_ + _CHANGE_BYTES for _, _, bytes_ in group)
        if kept and (size > MAX_LIST_BYTES or len(kept) == count):
            return kept, False
        kept.append(edit_revision)
    return kept, len(rows) < _MAX_ROWS


async def _read_creation(tx: Transaction, key: tuple[int, int], before: int) -> list[Change]:
    rows = await tx.fetch(change_sql.GET_CREATED, key)
    if not rows:  # the listing was removed meanwhile
        return []
    ((account_id, edit_revision),) = await tx.fetch(change_sql.GET_CREATION, key)
    if edit_revision is None or edit_revision >= before:
        return []
    partition = (key[0], account_id)
    state = await tx.get(ChangeState, change_sql.GET_EDIT_STATE, partition)
    if edit_revision <= state.purged_revision:
        return []
    described = await tx.fetch(change_sql.LIST_CHANGES, (*partition, edit_revision, 0, edit_revision, 0))
    entry = _Entry(edit_revision, 0, key[1], 0, is_create=True)
    (entry,) = await _find_first_edits(tx, partition, [entry])
    values = await _read_values(tx, partition, [entry])
    return [_build_create(entry, rows[0], described[0] if described else None, values)]


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
        edit_revision, written_at = next(iter(rows), (0, moment - 1))
        if written_at < moment:
            low = middle
        else:
            high = edit_revision - 1
    return next(
        (edit_revision for edit_revision, _ in await tx.fetch(change_sql.FIND_SET_BEFORE, (*partition, low))), 0
    )


async def find_last_before(tx: Transaction, partition: Partition, moment: int) -> int:
    """Return the last change set that is older than `moment`. Raises Problem("changes_gone")."""
    state = await tx.get(ChangeState, change_sql.GET_EDIT_STATE, partition)
    require_time(moment, state.purged_revision, state.purged_at)
    row = max(await find_last_row_before(tx, partition, state.edit_revision, moment), state.purged_revision)
    end = await tx.find(int, change_sql.FIND_SET_AFTER, (*partition, row)) or state.edit_revision + 1
    gaps = list_used(row + 1, end - 1, (await tx.fetch(change_sql.LIST_LOST_CHANGES, partition)))
    creates = await find_single_creates(tx, partition, gaps, state.purged_serial)
    times = await tx.fetch_many(
        change_sql.GET_CREATION_TIME, [(partition[0], listing_id) for listing_id, *_ in creates]
    )
    for (_, _, edit_revision, _), (created_at,) in zip(creates, times, strict=True):
        if timestamps.parse_timestamp(created_at) >= moment:
            return (edit_revision or 0) - 1
    return end - 1
